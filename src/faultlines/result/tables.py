"""Results as columns of plain values, and those as dictionaries and frames."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from faultlines import checks
from faultlines.errors import InputError
from faultlines.estimates.estimates import plain
from faultlines.estimates.labels import key_of
from faultlines.result.finding import probability

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from faultlines.estimates.labels import Key
    from faultlines.result.summary import Summary

Columns = dict[str, list[Any]]
Rows = Literal["groups", "clusters", "pairs", "experiments"]
ARMS = ("control", "treatment")
_GROUP_COLUMNS = ("estimate", "se", "n", "cluster", "cluster_estimate", "membership", "possible", "excluded")
_BELIEF_COLUMNS = ("shrunken", "shrunken_lower", "shrunken_upper")
_REST_COLUMNS = ("pvalue_rest", "rest_difference", "rest_lower", "rest_upper")
_ARM_COLUMNS = tuple(f"{of}_{arm}" for of in ("n", "mean") for arm in ARMS)


class Tabular(ABC):
    """A result whose rows can be had as dictionaries and frames."""

    __slots__ = ()
    _rows: ClassVar[Rows] = "groups"  # what its rows are, where nothing is said

    @abstractmethod
    def _columns(self, rows: Rows = "groups") -> Columns:
        """The columns of its rows."""

    def _asked(self, rows: Rows | None) -> Columns:
        return self._columns(self._rows if rows is None else rows)

    def to_dicts(self, rows: Rows | None = None) -> list[dict[str, Any]]:
        """One dictionary per row: by default per group; of many experiments, per experiment.

        Groups left out have no cluster, and their reason beside them.

        Args:
            rows: ``"groups"``, ``"clusters"``, ``"pairs"`` where a result has pairs of clusters, or ``"experiments"``
                where it has several. Default: groups, or experiments.

        Returns:
            The rows, each from column to value.

        Example:
            >>> import faultlines as fl
            >>> found = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
            >>> [(row["group"], row["cluster"]) for row in found.to_dicts()]
            [('DE', 1), ('FR', 1), ('IN', 2)]
        """
        return dicts_of(self._asked(rows))

    def to_pandas(self, rows: Rows | None = None) -> pd.DataFrame:
        """The same rows as a pandas frame.

        Args:
            rows: See `to_dicts`.

        Returns:
            The frame.

        Raises:
            InputError: If pandas is not installed.

        Example:
            >>> import faultlines as fl
            >>> found = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
            >>> found.to_pandas("clusters")["estimate"].round(2).to_list()
            [0.05, 5.0]
        """
        frame: pd.DataFrame = _library("pandas").DataFrame(self._asked(rows))
        of_groups = (self._rows if rows is None else rows) == "groups"
        return frame.astype({"cluster": "Int64"}) if "cluster" in frame and of_groups else frame

    def to_polars(self, rows: Rows | None = None) -> pl.DataFrame:
        """The same rows as a Polars frame.

        Args:
            rows: See `to_dicts`.

        Returns:
            The frame.

        Raises:
            InputError: If Polars is not installed.

        Example:
            >>> import faultlines as fl
            >>> found = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
            >>> found.to_polars()["cluster"].to_list()
            [1, 1, 2]
        """
        frame: pl.DataFrame = _library("polars").DataFrame(self._asked(rows), strict=False)
        return frame

    def to_arrow(self, rows: Rows | None = None) -> pa.Table:
        """The same rows as an Arrow table.

        Args:
            rows: See `to_dicts`.

        Returns:
            The table.

        Raises:
            InputError: If PyArrow is not installed.

        Example:
            >>> import faultlines as fl
            >>> found = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
            >>> found.to_arrow()["cluster"].to_pylist()
            [1, 1, 2]
        """
        made: pa.Table = _library("pyarrow").table(self._asked(rows))
        return made


def dicts_of(columns: Columns) -> list[dict[str, Any]]:
    """Columns as one dictionary per row."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def json_text(plain: dict[str, Any], indent: int | None) -> str:
    """Plain data as JSON."""
    if indent is not None:
        problem = "must be a whole number from 0 to 100, or None"
        checks.number("indent", indent, problem, "Use indent=2.", low=0, high=100, whole=True)
    made = json.dumps(plain, indent=indent, ensure_ascii=False, allow_nan=False, default=str)
    return re.sub(r"[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", made)  # half a character, escaped


def stacked(column: str, parts: Sequence[tuple[str, Columns]]) -> Columns:
    """The columns of several results below each other, with a first column that names the result.

    A result that lacks one of the columns has nothing in it.
    """
    names = list(dict.fromkeys(name for _, columns in parts for name in columns))
    sizes = [len(next(iter(columns.values()))) for _, columns in parts]
    made: Columns = {column: [name for (name, _), size in zip(parts, sizes, strict=True) for _ in range(size)]}
    for name in names:
        filled = [columns.get(name, [None] * size) for (_, columns), size in zip(parts, sizes, strict=True)]
        made[name if name != column else f"{name}_"] = [value for values in filled for value in values]
    return made


def columns_of(summary: Summary, rows: Rows) -> Columns:
    """The columns of a result by group or by cluster."""
    checks.choice("rows", rows, ("groups", "clusters"), "Use 'groups' or 'clusters'.")
    return _of_clusters(summary) if rows == "clusters" else _of_groups(summary)


def _of_clusters(summary: Summary) -> Columns:
    clusters, rules = summary.clusters, summary.rules
    made: Columns = {"cluster": list(range(1, len(clusters) + 1))}
    for whose, names in (
        ("effects", (("estimate", "estimate"), ("se", "se"), ("ci_lower", "lower"), ("ci_upper", "upper"))),
        ("observed_effects", (("observed", "estimate"), ("observed_lower", "lower"), ("observed_upper", "upper"))),
        ("simultaneous_effects", (("simultaneous_lower", "lower"), ("simultaneous_upper", "upper"))),
    ):
        for name, field in names:
            effects = [getattr(cluster, whose) for cluster in clusters]
            values = [plain([getattr(one, field) for one in several]) if several else None for several in effects]
            made |= _spread(summary, name, values)
    return made | {
        "groups": [len(c.members) for c in clusters],
        "n": [_whole(c.n) for c in clusters],
        "rule": [str(rule) if rule.fits else None for rule in rules],
        "rule_matches": [rule.matches for rule in rules],
        "rule_covers": [rule.covers for rule in rules],
    }


def _of_groups(summary: Summary) -> Columns:
    kept, out, estimates = summary.groups, summary.excluded, summary.estimates
    count, labels = len(kept), summary.labels.tolist()
    blank: list[Any] = [None] * len(out)
    values: list[Any] = [None] * count
    errors: list[Any] = [None] * count
    if estimates is not None:
        values = [plain(row) for row in estimates.shown.tolist()]
        errors = [plain(row) for row in estimates.readable_errors(estimates.given, estimates.errors).tolist()]
    sizes = [None] * count if kept.n is None else kept.n.tolist()
    of_cluster = [cluster.estimate for cluster in summary.clusters]
    return {
        **_of_attributes(summary),
        **_spread(summary, "estimate", values + [left.estimate for left in out]),
        **_spread(summary, "se", errors + [left.se for left in out]),
        "n": [_whole(n) for n in [*sizes, *(left.n for left in out)]],
        **_of_arms(summary),
        **_of_rest(summary),
        "cluster": labels + blank,
        **_spread(summary, "cluster_estimate", [of_cluster[i - 1] for i in labels] + blank),
        **_of_belief(summary),
        "excluded": [None] * count + [left.reason for left in out],
    }


def _of_belief(summary: Summary) -> Columns:
    """Which clusters every group may belong to, and its effect with what the others teach."""
    belief = summary.belief
    if belief is None:
        return {}
    blank: list[Any] = [None] * len(summary.excluded)
    clusters = range(1, len(summary.clusters) + 1)
    possible = [[c for c, may in zip(clusters, row, strict=True) if may] for row in belief.possible.tolist()]
    made: Columns = {"membership": belief.membership.tolist() + blank, "possible": possible + blank}
    for name in _BELIEF_COLUMNS:
        values = getattr(belief, name.removeprefix("shrunken_"))
        made |= _spread(summary, name, [plain(row) for row in values.tolist()] + blank)
    return made


def _of_rest(summary: Summary) -> Columns:
    """Every group against all the others together."""
    rest = summary.rest
    if rest is None:
        return {}
    blank: list[Any] = [None] * len(summary.excluded)
    made: Columns = {"pvalue_rest": [probability(p) for p in rest.log_pvalues.tolist()] + blank}
    for name in ("difference", "lower", "upper"):
        values = [plain(row) for row in getattr(rest, name).tolist()]
        made |= _spread(summary, f"rest_{name}", values + blank)
    return made


def _of_arms(summary: Summary) -> Columns:
    """Sizes and plain values of control and treatment, where they are compared."""
    readout = summary.readout
    if readout is None or readout.by_arm is None or readout.arm_sizes is None:
        return {}
    blank: list[Any] = [None] * len(summary.excluded)
    made: Columns = {}
    for i, arm in enumerate(ARMS):
        made[f"n_{arm}"] = [_whole(n) for n in readout.arm_sizes[:, i].tolist()] + blank
    for i, arm in enumerate(ARMS):
        made[f"mean_{arm}"] = readout.by_arm[:, i].tolist() + blank
    return made


def named_attributes(summary: Summary) -> list[str]:
    """The column of each attribute; one that is called like a column of ours gets a longer name."""
    taken = {
        name
        for column in (*_GROUP_COLUMNS, *_BELIEF_COLUMNS, *_ARM_COLUMNS, *_REST_COLUMNS)
        for name in (column, *_spread(summary, column, []))
    }
    return _not_taken(summary.groups.attributes, taken)


def _of_attributes(summary: Summary) -> Columns:
    """A column for each attribute."""
    keys = [*summary.groups.keys, *(key_of(left.label) for left in summary.excluded)]
    return _by_attribute(named_attributes(summary), keys)


def attribute_columns(attributes: Sequence[str], keys: Sequence[Key], taken: Set[str]) -> Columns:
    """A column for each attribute of some keys; one whose name is taken gets a longer one."""
    return _by_attribute(_not_taken(attributes, taken), keys)


def _not_taken(attributes: Sequence[str], taken: Set[str]) -> list[str]:
    named: list[str] = []
    for attribute in attributes:
        column = _encodable(attribute)
        while column in taken or column in named:
            column += "_"
        named.append(column)
    return named


def _by_attribute(names: Sequence[str], keys: Sequence[Key]) -> Columns:
    return {name: one_type([key[i] for key in keys]) for i, name in enumerate(names)}


def _spread(summary: Summary, name: str, values: list[Any]) -> Columns:
    return spread(summary.estimates.parts if summary.estimates is not None else (), name, values)


def spread(parts: Sequence[str], name: str, values: list[Any]) -> Columns:
    """One column, or one for each of several effects: ``estimate_true_positive_rate``."""
    if not parts:
        return {name: values}
    slugs = [re.sub(r"\W+", "_", part).strip("_") or "part" for part in parts]
    slugs = [slug if slugs.count(slug) == 1 else f"{slug}_{i + 1}" for i, slug in enumerate(slugs)]
    return {
        f"{name}_{slug}": [value[i] if isinstance(value, tuple) else None for value in values]
        for i, slug in enumerate(slugs)
    }


def path_of(log_pvalues: Sequence[float], adjusted: Sequence[float]) -> list[dict[str, float]]:
    """Partitions with the p at which they appear, their own and adjusted, as far as there is evidence for them."""
    levels = [{"n_clusters": 1, "pvalue": 0.0, "pvalue_adj": 0.0}]
    for i, (log_p, log_adjusted) in enumerate(zip(log_pvalues, adjusted, strict=True)):
        if probability(log_p) < 1:
            p, p_adj = probability(log_p), probability(log_adjusted)
            levels.append({"n_clusters": i + 2, "pvalue": p, "pvalue_adj": p_adj})
    return levels


def one_type(values: list[Any]) -> list[Any]:
    """A column as frames want it: all text, or all numbers of one kind that fits their integers."""
    kinds = {type(value) for value in values}
    if kinds == {str}:
        return [_encodable(value) for value in values]
    if kinds == {float} or (kinds == {int} and all(abs(value) < 2**63 for value in values)):
        return values
    return [str(value) for value in values]


def _encodable(words: str) -> str:
    """Text with half characters, which no frame takes, made visible."""
    return words if words.isascii() else words.encode("utf-8", "replace").decode()


def _whole(size: float | None) -> float | int | None:
    """A size as a whole number, where it is one."""
    return int(size) if size is not None and size == int(size) else size


def _library(name: str) -> Any:
    """A library of frames, if it is there."""
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(
            f"to_{'arrow' if name == 'pyarrow' else name}()", f"{name} is not installed", f"Run: pip install {name}"
        ) from error
