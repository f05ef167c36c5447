"""What was found: the clusters, how sure that is, and one summary of it that every output reads."""
