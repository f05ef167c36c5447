"""How different two clusters are, the tree of merges, mixtures of clusters, and the compiled kernels."""
