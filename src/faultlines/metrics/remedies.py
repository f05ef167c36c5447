"""What to do where no group can be used: a remedy that fits the reason for which most of them cannot."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from faultlines import text

if TYPE_CHECKING:
    from collections.abc import Sequence

_DIFFERENCE = "Measure the difference instead of the lift: it has no mean to divide by."
_BOTH = "Use coarser groups that have both, or a metric that needs one of them only."
# Words of a reason, and what helps; the first that fits counts.
_REMEDIES = (
    ("fewer than two groups", "Give a feature with two groups or more that are large enough, or lower min_size."),
    ("fewer than two", _BOTH),
    ("fewer than", ""),  # of min_size, see below
    ("epsilon below 1", "Use an epsilon below 1, or leave out rows with zero: it is then about the others."),
    ("of zero", _DIFFERENCE),
    ("below zero", _DIFFERENCE),
    ("no rows in", _BOTH),
    ("no rows", "No row has all values that are needed, as finite numbers: name other columns, or fill them in."),
    ("zero variance", "All values of a group are the same: measure something that varies within groups."),
    (
        "empty denominator",
        "There is nothing to divide by: weights or denominators are zero, scores all the same, or no row is of the "
        "kind that is counted. Check these columns, or take another metric.",
    ),
    ("too large", "Use other units: such numbers cannot be squared."),
    ("below 0 or above 1", "Check the columns of sums and counts: more are counted than there are."),
    ("determines another", "Leave out the metric that follows from the others."),
    ("no value", "Use coarser groups, or a function that has a value for few rows too."),
    ("no positives", _BOTH),
    ("no negatives", _BOTH),
)


def remedy_without_groups(reasons: Sequence[str], sizes: Sequence[float] = (), usual: float = 0.0) -> str:
    """What to do about groups none of which can be used.

    Args:
        reasons: Why each of them cannot.
        sizes: How large each is, as `min_size` counts it, where that is known.
        usual: The `min_size` that the metric has by itself.
    """
    most = Counter(reasons).most_common(1)[0][0]
    remedy = next((remedy for words, remedy in _REMEDIES if words in most), "Use coarser groups.")
    if remedy:
        return remedy
    if not sizes:
        return "Use coarser groups, or a smaller min_size."
    lower = f"a min_size of at most {text.count(max(sizes))}"
    # Groups that are large enough for the metric need not be coarser, and one group cannot be.
    return f"Use {lower}." if max(sizes) >= usual or len(reasons) == 1 else f"Use coarser groups, or {lower}."
