"""A clustering as columns: of its own tables, and of rows, as training weights; saved groups and back."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from faultlines import checks
from faultlines.core.comparison import Comparison
from faultlines.errors import InputError, shorten
from faultlines.estimates.estimates import Excluded, plain
from faultlines.estimates.labels import MISSING, Key, Range, key_of, match, name_of
from faultlines.results.protocol import Columns, probability
from faultlines.rows.attach import attach
from faultlines.rows.keys import Bins
from faultlines.rows.read import attribute_names
from faultlines.rows.request import MissingRows
from faultlines.types import IntArray

if TYPE_CHECKING:
    from faultlines.results.clustering import Clustering
    from faultlines.results.effects import Effect

Frame = TypeVar("Frame")

ARMS = ("control", "treatment")
_GROUP_COLUMNS = ("estimate", "se", "n", "cluster", "cluster_estimate", "membership", "possible")
_ROW_COLUMNS = ("dropped_share", "excluded")
_POSTERIOR_COLUMNS = ("shrunken", "shrunken_lower", "shrunken_upper")
_REST_COLUMNS = ("pvalue_rest", "rest_difference", "rest_lower", "rest_upper")
_ARM_COLUMNS = tuple(f"{of}_{arm}" for of in ("n", "mean") for arm in ARMS)


def cluster_columns(c: Clustering) -> Columns:
    """One row per cluster: effects, sizes and rule."""
    clusters, rules = c.clusters, c.rules
    columns: Columns = {"cluster": list(range(1, len(clusters) + 1))}
    for whose, names in (
        ("effects", (("estimate", "estimate"), ("se", "se"), ("ci_lower", "lower"), ("ci_upper", "upper"))),
        ("observed_effects", (("observed", "estimate"), ("observed_lower", "lower"), ("observed_upper", "upper"))),
        ("simultaneous_effects", (("simultaneous_lower", "lower"), ("simultaneous_upper", "upper"))),
    ):
        columns |= effect_columns(_parts(c), [getattr(cluster, whose) for cluster in clusters], names)
    return columns | {
        "groups": [len(c.members) for c in clusters],
        "n": [whole_number(c.n) for c in clusters],
        "rule": [str(rule) if rule.fits else None for rule in rules],
        "rule_matches": [rule.matches for rule in rules],
        "rule_covers": [rule.covers for rule in rules],
    }


def group_columns(c: Clustering) -> Columns:
    """One row per group: estimates, cluster, membership and shrunken estimate; excluded groups last."""
    groups, out, estimates = c.groups, c.excluded, c.groups.estimates
    count, labels = len(groups), c.labels.tolist()
    blank: list[Any] = [None] * len(out)
    values: list[Any] = [None] * count
    errors: list[Any] = [None] * count
    if estimates is not None:
        values = [plain(row) for row in estimates.shown.tolist()]
        errors = [plain(row) for row in estimates.readable_errors(estimates.given, estimates.errors).tolist()]
    sizes = [None] * count if groups.n is None else groups.n.tolist()
    keys = [*groups.keys, *(key_of(left.label) for left in out)]
    of_cluster = [cluster.estimate for cluster in c.clusters]
    return {
        **_by_attribute(named_attributes(c), keys),
        **_spread(c, "estimate", values + [left.estimate for left in out]),
        **_spread(c, "se", errors + [left.se for left in out]),
        "n": [whole_number(n) for n in [*sizes, *(left.n for left in out)]],
        **_of_arms(c),
        **_of_rest(c),
        "cluster": labels + blank,
        **_spread(c, "cluster_estimate", [of_cluster[i - 1] for i in labels] + blank),
        **_posterior_columns(c),
        **dropped_share_column(c.missing_values, keys),
        "excluded": [None] * count + [str(left.reason) for left in out],
    }


def _posterior_columns(c: Clustering) -> Columns:
    """Membership probabilities, the clusters every group may belong to, and its shrunken estimate."""
    posterior = c.posterior
    if posterior is None:
        return {}
    blank: list[Any] = [None] * len(c.excluded)
    clusters = range(1, len(c.clusters) + 1)
    possible = [[c for c, may in zip(clusters, row, strict=True) if may] for row in posterior.possible.tolist()]
    columns: Columns = {"membership": posterior.membership.tolist() + blank, "possible": possible + blank}
    for name in _POSTERIOR_COLUMNS:
        values = getattr(posterior, name.removeprefix("shrunken_"))
        columns |= _spread(c, name, [plain(row) for row in values.tolist()] + blank)
    return columns


def _of_rest(c: Clustering) -> Columns:
    """Every group against all the others together."""
    rest = c.rest
    if rest is None:
        return {}
    blank: list[Any] = [None] * len(c.excluded)
    columns: Columns = {"pvalue_rest": [probability(p) for p in rest.log_pvalues.tolist()] + blank}
    for name in ("difference", "lower", "upper"):
        values = [plain(row) for row in getattr(rest, name).tolist()]
        columns |= _spread(c, f"rest_{name}", values + blank)
    return columns


def _of_arms(c: Clustering) -> Columns:
    """Sizes and plain values of control and treatment, where they are compared."""
    readout = c.readout
    if readout is None or readout.by_arm is None or readout.arm_sizes is None:
        return {}
    blank: list[Any] = [None] * len(c.excluded)
    columns: Columns = {}
    for i, arm in enumerate(ARMS):
        columns[f"n_{arm}"] = [whole_number(n) for n in readout.arm_sizes[:, i].tolist()] + blank
    for i, arm in enumerate(ARMS):
        columns[f"mean_{arm}"] = readout.by_arm[:, i].tolist() + blank
    return columns


def named_attributes(c: Clustering) -> list[str]:
    """The column of each attribute; one that is called like a column of ours gets a longer name."""
    reserved = {
        name
        for column in (*_GROUP_COLUMNS, *_ROW_COLUMNS, *_POSTERIOR_COLUMNS, *_ARM_COLUMNS, *_REST_COLUMNS)
        for name in (column, *_spread(c, column, []))
    }
    return _not_taken(c.groups.attributes, reserved)


def attribute_columns(attributes: Sequence[str], keys: Sequence[Key], reserved: Set[str]) -> Columns:
    """A column for each attribute of some keys; one whose name is taken gets a longer one."""
    return _by_attribute(_not_taken(attributes, reserved), keys)


def _not_taken(attributes: Sequence[str], reserved: Set[str]) -> list[str]:
    named: list[str] = []
    for attribute in attributes:
        column = attribute
        while column in reserved or column in named:
            column += "_"
        named.append(column)
    return named


def _by_attribute(names: Sequence[str], keys: Sequence[Key]) -> Columns:
    return {name: one_type([key[i] for key in keys]) for i, name in enumerate(names)}


def _spread(c: Clustering, name: str, values: list[Any]) -> Columns:
    return spread(_parts(c), name, values)


def _parts(c: Clustering) -> tuple[str, ...]:
    return c.groups.estimates.parts if c.groups.estimates is not None else ()


def effect_columns(
    parts: Sequence[str], effects: Sequence[Sequence[Effect]], names: Sequence[tuple[str, str]]
) -> Columns:
    """Columns of effects: the name of each, and which number of an effect it has; nothing where there is no effect."""
    columns: Columns = {}
    for name, field in names:
        values = [plain([getattr(effect, field) for effect in several]) if several else None for several in effects]
        columns |= spread(parts, name, values)
    return columns


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
    if kinds in ({str}, {float}) or (kinds == {int} and all(abs(value) < 2**63 for value in values)):
        return values
    return [str(value) for value in values]


def whole_number(size: float | None) -> float | int | None:
    """A size as a whole number, where it is one."""
    return int(size) if size is not None and size == int(size) else size


# ----------------------------------------------------------------------------------------------------------- exclusions
# Excluded groups and dropped rows, in numbers a reader can judge: by level of the attributes, and by group.


def missing_data(missing: MissingRows | None) -> dict[str, Any] | None:
    """Rows that lack a value, of all and by group, as plain data; None where rows were not counted."""
    if missing is None:
        return None
    groups = zip(missing.keys, missing.rows.tolist(), missing.dropped.tolist(), missing.shares.tolist(), strict=True)
    return {
        "rows": int(missing.rows.sum()),
        "dropped": int(missing.dropped.sum()),
        "share": missing.share,
        "by_column": {name: int(counts.sum()) for name, counts in missing.by_column.items()},
        "without_group": int(missing.without_group),
        "groups": [
            {"group": name_of(key), "rows": int(rows), "dropped": int(dropped), "share": share}
            for key, rows, dropped, share in groups
        ],
    }


def dropped_share_column(missing: MissingRows | None, keys: Sequence[Key]) -> dict[str, list[Any]]:
    """The share of rows of each group that was dropped, as a column; none where rows were not counted."""
    return {} if missing is None else {"dropped_share": [group.share for group in missing.of(keys)]}


@dataclass(frozen=True, slots=True)
class ExcludedShare:
    """How many people with one value of an attribute are in excluded groups.

    Attributes:
        attribute: The attribute.
        value: Its value.
        n: How many with this value are in excluded groups.
        total: How many with this value there are.
    """

    attribute: str
    value: str
    n: float
    total: float

    @property
    def share(self) -> float:
        """The excluded share."""
        return self.n / self.total if self.total else 0.0


def excluded_by_value(groups: Comparison, excluded: Sequence[Excluded]) -> tuple[ExcludedShare, ...]:
    """For every value of every attribute of which some are excluded, how many; the largest share first."""
    if groups.n is None or not excluded or any(left.n is None for left in excluded):
        return ()
    shares = []
    keys = [key_of(left.label) for left in excluded]
    sizes = np.array([left.n for left in excluded], dtype=np.float64)
    for i, attribute in enumerate(groups.attributes):
        out: dict[str, float] = {}
        for key, size in zip(keys, sizes.tolist(), strict=True):
            out[str(key[i])] = out.get(str(key[i]), 0.0) + size
        total = dict(out)
        for key, size in zip(groups.keys, groups.n.tolist(), strict=True):
            if (name := str(key[i])) in total:
                total[name] += size
        values = [ExcludedShare(attribute, name, n, total[name]) for name, n in out.items() if n]
        shares += sorted(values, key=lambda value: -value.share)
    return tuple(shares)


# --------------------------------------------------------------------------------------------------------- saved groups
# What a saved result says about its groups, so that others can be told to belong to them: to plain data and back.


def plain_by(by: Sequence[str | Bins]) -> list[str | dict[str, Any]]:
    """What the groups are, as JSON can hold it."""
    return [
        {name: value for name, value in asdict(attribute).items() if value is not None}
        if isinstance(attribute, Bins)
        else attribute
        for attribute in by
    ]


def by_of(plain: Any) -> tuple[str | Bins, ...]:
    """The way back."""
    attributes = []
    for attribute in plain if isinstance(plain, list) else [None]:
        if not isinstance(attribute, str | Mapping):
            raise InputError.missing(
                "by", "does not say what the groups are", "Give {by} yourself.", plain, settings={"by": ...}
            )
        try:
            attributes.append(Bins(**attribute) if isinstance(attribute, Mapping) else attribute)
        except TypeError as error:
            raise InputError.missing(
                "by", "does not say how to cut", "Give {by} yourself.", plain, settings={"by": ...}
            ) from error
    return tuple(attributes)


def plain_attributes(
    attributes: Sequence[str], columns: Sequence[str], keys: Sequence[Key]
) -> list[dict[str, str | dict[str, Any]]]:
    """The attributes of the groups: the column of the table that holds each, and what the names of ranges mean."""
    described: list[dict[str, str | dict[str, Any]]] = []
    for i, (name, column) in enumerate(zip(attributes, columns, strict=True)):
        ranges = {str(key[i]): _plain(key[i]) for key in keys if isinstance(key[i], Range)}
        described.append({"name": name, "column": column} | ({"ranges": ranges} if ranges else {}))
    return described


def _plain(part: Any) -> dict[str, Any]:
    ends = {"lower": part.lower, "upper": part.upper}
    return {end: value if np.isfinite(value) else None for end, value in ends.items()} | {"whole": part.whole}


def keys_of_rows(rows: Sequence[Mapping[str, Any]], attributes: Any) -> list[Key]:
    """The keys of groups from the rows of a table and its attributes; raises KeyError or TypeError where they lack."""
    named = [(attribute["column"], attribute.get("ranges", {})) for attribute in attributes]
    return [tuple(_part(row[column], ranges) for column, ranges in named) for row in rows]


def _part(value: Hashable, ranges: Mapping[str, Any]) -> Hashable:
    bounds = ranges.get(value) if isinstance(value, str) else None
    if bounds is None:
        return value
    lower = -np.inf if bounds["lower"] is None else float(bounds["lower"])
    upper = np.inf if bounds["upper"] is None else float(bounds["upper"])
    return Range(lower, upper, bool(bounds["whole"]))


def cluster_numbers(
    keys: Sequence[Key], labels: IntArray, others: Sequence[Key], places: IntArray, attributes: Sequence[int], what: str
) -> IntArray:
    """The cluster of each of other groups; 0 where it has none.

    Args:
        keys: The groups that were clustered.
        labels: The cluster of each of them, from 1 on.
        others: The other groups.
        places: Where each of these is among `keys`; −1 where it is none of them.
        attributes: The places of attributes of whose levels clusters are unions: a new combination has the cluster of
            its levels.
        what: What errors call the other groups.
    """
    numbers = np.append(labels, 0)[places]
    new = np.flatnonzero(numbers == 0)
    if new.size and attributes:
        of_levels = {tuple(key[i] for i in attributes): label for key, label in zip(keys, labels.tolist(), strict=True)}
        at = match([tuple(others[j][i] for i in attributes) for j in new.tolist()], list(of_levels), what)
        numbers[new] = np.append(list(of_levels.values()), 0)[at]
    return numbers


def add_weights(c: Clustering, frame: Frame, column: str, label: str | None) -> Frame:
    """The frame with training weights as a new column; see `Clustering.weights`."""
    if label is not None and checks.column("label", label) in attribute_names(c.row_attributes):
        problem = "is one of the columns the groups are made of"
        raise InputError.conflict("label", problem, "Name the column of outcomes.", label)
    values = _equal_totals(c) if label is None else _independent_outcomes(c, label)
    weighted: Frame = attach(frame, c.row_attributes, values, column, label=label)
    return weighted


def _equal_totals(c: Clustering) -> Callable[[Sequence[Key], Sequence[float]], list[float]]:
    """Every cluster gets the same total weight, and rows an average of 1."""

    def weights(groups: Sequence[Key], rows: Sequence[float]) -> list[float]:
        cluster = c.cluster_of(groups)
        sizes = np.bincount(cluster, weights=np.asarray(rows), minlength=c.n_clusters + 1)
        present = np.count_nonzero(sizes[1:])
        share = np.divide(sizes[1:].sum() / max(present, 1), sizes, out=np.ones_like(sizes), where=sizes > 0)
        share[0] = 1.0
        return [float(weight) for weight in share[cluster]]

    return weights


def _independent_outcomes(c: Clustering, label: str) -> Callable[[Sequence[Key], Sequence[float]], list[float]]:
    """P(cluster) P(label) / P(cluster, label): outcomes are independent of clusters among weighted rows.

    Kamiran and Calders, Data preprocessing techniques for classification without discrimination (2012), equation 4.
    """

    def weights(groups: Sequence[Key], rows: Sequence[float]) -> list[float]:
        # The last part of every key is the outcome; a group comes once for each of its outcomes.
        first_place = {key: i for i, key in enumerate(dict.fromkeys(key[:-1] for key in groups))}
        cluster = c.cluster_of(list(first_place))[[first_place[key[:-1]] for key in groups]]
        outcomes = {part: i for i, part in enumerate(dict.fromkeys(key[-1] for key in groups if key[-1] != MISSING))}
        outcome = np.array([outcomes.get(key[-1], -1) for key in groups])
        used = (cluster > 0) & (outcome >= 0)
        if not used.any():
            problem = "no row of a cluster has an outcome"
            raise InputError.invalid_data("label", problem, "Name the column of outcomes.", label, form="clause")
        both = np.zeros((c.n_clusters + 1, len(outcomes)))
        np.add.at(both, (cluster[used], outcome[used]), np.asarray(rows)[used])
        by_cluster, by_outcome = both.sum(axis=1), both.sum(axis=0)
        lacking = np.argwhere((both == 0) & (by_cluster[:, None] > 0) & (by_outcome > 0))
        if lacking.size:
            number, missing = lacking[0].tolist()
            raise InputError.invalid_data(
                "label",
                f"cluster {number} has no row with the value {shorten(list(outcomes)[missing])},"
                " so that no weights make outcomes independent of clusters",
                "Name a column of outcomes that occur in every cluster, or merge rare ones.",
                label,
                form="clause",
            )
        weight = np.where(outcome < 0, np.nan, 1.0)
        cell = (cluster[used], outcome[used])
        weight[used] = by_cluster[cell[0]] * by_outcome[cell[1]] / (both.sum() * both[cell])
        return [float(value) for value in weight]

    return weights
