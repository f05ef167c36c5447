"""The tree of merges as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faultlines import text
from faultlines.estimates.labels import name_of
from faultlines.show.geometry import LAYERS, ROWS, WIDTH, Axis, Picture, row_heading, row_height, row_name

if TYPE_CHECKING:
    from faultlines.estimates.estimates import BoolArray
    from faultlines.result.summary import Summary
    from faultlines.show.geometry import Row

_LEAVES = 60  # of a tree that is drawn from the top


def _tree_gaps(s: Summary) -> BoolArray:
    """Where the tree is cut: into as many branches as there are clusters, if each branch then is mostly one of them.

    Clusters need not be branches: groups at the borders were moved, and a lone group can stand anywhere.
    """
    tree, count = s.judged.hierarchy, len(s.clusters)
    cut = tree.merge_rank() >= len(tree) - count
    labels = s.labels[tree.order]
    starts = tree.starts(cut)
    ends = [*starts[1:].tolist(), len(tree)]
    mostly = {int(np.bincount(labels[a:b]).argmax()) for a, b in zip(starts.tolist(), ends, strict=True)}
    return cut if len(mostly) == count else s.judged.path.open_gaps(count)


def tree(s: Summary) -> Picture:
    """The merges from the leaves to the root, with the cut; of very many groups only the topmost."""
    merges = s.judged.hierarchy
    groups = len(merges)
    size = np.sqrt(np.maximum(merges.gap_heights, 0.0))
    is_open = _tree_gaps(s)
    whole = groups <= ROWS
    kept = np.arange(groups - 1)
    if not whole:  # gaps that close last; what closes before is a leaf
        kept = np.sort(merges.merge_order()[-(_LEAVES - 1) :])
        # Each border is drawn at the nearest gap that is shown.
        nearest = kept[np.abs(kept[:, None] - np.flatnonzero(is_open)).argmin(axis=0)]
        is_open = np.zeros_like(is_open)
        is_open[nearest] = True
    first = [0, *(kept + 1).tolist()]
    last = [*kept.tolist(), groups - 1]
    # A branch has the colour of most of its groups: some at the borders were moved.
    labels, starts = s.labels[merges.order], merges.starts(is_open)
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), groups], strict=True):
        labels[start:end] = np.bincount(labels[start:end]).argmax()
    leaves = len(first)
    step = row_height(leaves)
    height = max(round(leaves * step), 40)
    high = float(size.max()) * 1.04 or 1.0
    x = Axis(s.judged.height_name, 0.0, high)
    layers: dict[str, list[Row]] = {name: [] for name in LAYERS}
    for leaf, (start, end) in enumerate(zip(first, last, strict=True)):
        only = name_of(s.group_labels[int(merges.order[start])])
        words = only if start == end else f"{text.count(end - start + 1)} groups"
        layers["names"] += row_name(x, leaf + 0.5, words, step)
    layers["notes"] += row_heading(s, x, step)
    # Each branch: the first and last leaf below it, where it stands, how high it is, and its cluster.
    branch = [(leaf, leaf, leaf + 0.5, 0.0, int(labels[first[leaf]])) for leaf in range(leaves)]
    merge_rank = merges.merge_rank()
    for gap in sorted(range(leaves - 1), key=lambda i: int(merge_rank[kept[i]])):
        left, right = branch[gap], branch[gap + 1]
        tall = float(size[kept[gap]])
        cluster = 0 if is_open[kept[gap]] else left[4]
        layers["branches"] += [
            {"x": left[3], "x2": tall, "y": left[2], "y2": left[2], "cluster": cluster},
            {"x": tall, "x2": tall, "y": left[2], "y2": right[2], "cluster": cluster},
            {"x": right[3], "x2": tall, "y": right[2], "y2": right[2], "cluster": cluster},
        ]
        # Neighbours ask only at its ends.
        branch[left[0]] = branch[right[1]] = (left[0], right[1], (left[2] + right[2]) / 2, tall, cluster)
    opened, closed = size[is_open], size[~is_open]
    if opened.size == 0 or closed.size == 0 or opened.min() > closed.max():
        upper = float(opened.min()) if opened.size else high
        cut = (upper + (float(closed.max()) if closed.size else 0.0)) / 2
        layers["faults"].append({"x": cut, "x2": cut, "y": 0.0, "y2": float(leaves), "cluster": 0})
        told = f"cut: {len(s.clusters)} cluster{'s' * s.rejected}"
        layers["sides"].append({"x": cut, "y": -9 / step, "text": told, "cluster": 0, "align": "center"})
    about = f"tree of merges of {text.count(groups)} groups" + ("" if whole else f", its {leaves} topmost branches")
    return Picture(about, WIDTH, height, x, Axis("", 0.0, float(leaves), False), layers)
