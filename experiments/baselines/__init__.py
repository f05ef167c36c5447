"""The methods that ours is compared with, each on estimates and standard errors, or on rows where it needs them.

They are written out here, or wrapped, so that all see the same data; the library knows none of them. Labels are 1 … m
by rising mean, and effects are what the method would tell a user of each group.
"""

from experiments.baselines.attributes import ALONG_ATTRIBUTES, Crossed, anova, chaid_tree, mixed_model, regression_tree
from experiments.baselines.bautista import bautista
from experiments.baselines.centres import clusters_of_centres
from experiments.baselines.dgc import dgc, dgc_pvalue, root_distances
from experiments.baselines.empirical_bayes import likeliest_weights, normal_bayes, npmle, shrunken
from experiments.baselines.fit import Fit, believed, interleaved, ours, pooled
from experiments.baselines.fused import fused, fused_effects
from experiments.baselines.global_tests import cochran_q, one_against_the_rest
from experiments.baselines.jolliffe import critical_ranges, jolliffe, range_probability
from experiments.baselines.line import chaid, kmeans, merge_levels, optimal_partition, optimal_partitions
from experiments.baselines.methods import BY_RATIO, EFFECTS, RIVALS, SHRUNKEN, TOP_MERGE, fits
from experiments.baselines.mixture import Criterion, Mixture, mixtures
from experiments.baselines.mixture_ratio import mixture_by_ratio, ratio_pvalues
from experiments.baselines.ranks import grouped_by_ranks, rank_sets
from experiments.baselines.rest import adjusted, against_the_rest, set_apart
from experiments.baselines.scott_knott import (
    best_cut,
    ratio_pvalue,
    scott_knott,
    scott_knott_pvalue,
    scott_knott_unequal,
)
from experiments.baselines.trees import TREES, Rows, is_installed, tree
from faultlines.types import FloatArray, IntArray

__all__ = [
    "ALONG_ATTRIBUTES",
    "BY_RATIO",
    "EFFECTS",
    "RIVALS",
    "SHRUNKEN",
    "TOP_MERGE",
    "TREES",
    "Criterion",
    "Crossed",
    "Fit",
    "FloatArray",
    "IntArray",
    "Mixture",
    "Rows",
    "adjusted",
    "against_the_rest",
    "anova",
    "bautista",
    "believed",
    "best_cut",
    "chaid",
    "chaid_tree",
    "clusters_of_centres",
    "cochran_q",
    "critical_ranges",
    "dgc",
    "dgc_pvalue",
    "fits",
    "fused",
    "fused_effects",
    "grouped_by_ranks",
    "interleaved",
    "is_installed",
    "jolliffe",
    "kmeans",
    "likeliest_weights",
    "merge_levels",
    "mixed_model",
    "mixture_by_ratio",
    "mixtures",
    "normal_bayes",
    "npmle",
    "one_against_the_rest",
    "optimal_partition",
    "optimal_partitions",
    "ours",
    "pooled",
    "range_probability",
    "rank_sets",
    "ratio_pvalue",
    "ratio_pvalues",
    "regression_tree",
    "root_distances",
    "scott_knott",
    "scott_knott_pvalue",
    "scott_knott_unequal",
    "set_apart",
    "shrunken",
    "tree",
]
