"""The methods that ours is compared with, each on estimates and standard errors, or on rows where it needs them.

They are written out here, or wrapped, so that all see the same data; the library knows none of them. Labels are 1 … m
by rising mean, and effects are what the method would tell a user of each group.
"""

from experiments.baselines.fit import Fit, FloatArray, IntArray, interleaved, ours, pooled
from experiments.baselines.fused import fused, fused_effects
from experiments.baselines.global_tests import cochran_q, one_against_the_rest
from experiments.baselines.line import chaid, kmeans, optimal_partition, optimal_partitions
from experiments.baselines.methods import TOP_MERGE, fits
from experiments.baselines.mixture import Criterion, Mixture, mixtures
from experiments.baselines.trees import TREES, Rows, is_installed, tree

__all__ = [
    "TOP_MERGE",
    "TREES",
    "Criterion",
    "Fit",
    "FloatArray",
    "IntArray",
    "Mixture",
    "Rows",
    "chaid",
    "cochran_q",
    "fits",
    "fused",
    "fused_effects",
    "interleaved",
    "is_installed",
    "kmeans",
    "mixtures",
    "one_against_the_rest",
    "optimal_partition",
    "optimal_partitions",
    "ours",
    "pooled",
    "tree",
]
