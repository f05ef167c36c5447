"""Tables in: files and frames of any kind, under column names of our own. Knows nothing of groups and metrics."""
