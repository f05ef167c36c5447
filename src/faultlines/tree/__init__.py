"""The tree of merges, and the partitions one can cut from it."""
