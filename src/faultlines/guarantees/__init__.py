"""What makes a split believable: a guarantee turns groups into a path of partitions, each with an adjusted p."""
