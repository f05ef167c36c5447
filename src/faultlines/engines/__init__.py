"""Tables in: files and frames of every engine, under column names of our own. Knows nothing of groups and metrics."""
