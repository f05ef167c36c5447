"""What "similar" means: how clusters pool, and how likely two are as different as this when they are alike."""
