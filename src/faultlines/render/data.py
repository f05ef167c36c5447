"""A clustering as plain data, for JSON; and the harmful direction of each effect, as data of a user's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from faultlines import checks
from faultlines.errors import InputError
from faultlines.estimates.estimates import plain
from faultlines.estimates.labels import name_of
from faultlines.metrics.names import plain_recipe, traits_of
from faultlines.metrics.table import Adverse
from faultlines.render.clustering import AdverseSides, decide
from faultlines.results.clustering import Clustering, overall_pvalues
from faultlines.results.effects import Effect
from faultlines.results.tables import missing_data, named_attributes, path_of, plain_attributes, plain_by, whole_number


def clustering_values(c: Clustering) -> dict[str, Any]:
    """What the JSON of a result has beside its fields and properties."""
    estimates = c.groups.estimates
    return {
        "decision": decide(c).to_dict(),
        "log10_pvalue": c.log_pvalue / np.log(10),
        "correction": None if c.adjustment is None else c.adjustment.correction,
        "n_groups": len(c.groups),
        "metric": c.groups.metric,
        "parts": list(estimates.parts) if estimates is not None else [],
        "scale": estimates.scale.name if estimates is not None else None,
        "guarantee": {"name": c.guarantee.name, **c.judged.facts},
        "clusters": [
            {**row, "members": [name_of(label) for label in cluster.members]}
            for row, cluster in zip(c.to_dicts("clusters"), c.clusters, strict=True)
        ],
        "attributes_needed": list(c.attributes),
        "explained": [asdict(row) for row in c.explained()],
        "additive": [_additive_term(term) for term in c.additive],
        "excluded": [
            {"group": name_of(left.label), "reason": str(left.reason), "n": left.n, "estimate": left.estimate}
            | {"events": left.events, "lower": left.lower, "upper": left.upper}
            for left in c.excluded
        ],
        "excluded_shares": [
            {"attribute": row.attribute, "value": row.value, "n": row.n, "total": row.total, "share": row.share}
            for row in c.excluded_shares
        ],
        "sample_ratio": None if c.readout is None or (ratio := c.readout.sample_ratio) is None else ratio.to_dict(),
        "overall": overall_effect(c),
        "in_all_rows": None if c.in_all_rows is None else plain(list(c.in_all_rows)),
        "detection_limits": [limit.to_dict(c.group_labels) for limit in c.detection_limits],
        "columns": measured_columns(c),
        "recipe": None if c.readout is None else plain_recipe(c.readout.metric),
        "by": plain_by(c.by),
        "attributes": plain_attributes(c.groups.attributes, named_attributes(c), c.groups.keys),
        "missing_values": missing_data(c.missing_values),
        **capped_values(c),
        **({} if c.readout is None or c.readout.distinct is None else {"distinct_units": c.readout.distinct}),
        "path": path_of(c.judged.path_at(c.alpha).log_pvalues.tolist(), c.claims.log_pvalues.tolist()),
    }


def _additive_term(c: Clustering) -> dict[str, Any]:
    """The levels of one term of effects that add up, with intervals at the level 1 − α."""
    lower, upper = c.estimates.interval_ends(c.alpha)
    ends = (c.estimates.shown, lower, upper)
    return {
        "attributes": list(c.groups.attributes),
        "pvalue": c.pvalue,
        "levels": [
            {"level": name_of(label), "n": n, "estimate": estimate, "lower": low, "upper": high, "cluster": cluster}
            for label, n, estimate, low, high, cluster in zip(
                c.group_labels,
                [None] * len(c.groups) if c.groups.n is None else map(whole_number, c.groups.n.tolist()),
                *(end[:, 0].tolist() for end in ends),
                c.labels.tolist(),
                strict=True,
            )
        ],
    }


def capped_values(c: Clustering) -> dict[str, Any]:
    """Where the largest values were cut, and the share of every arm and group that was; nothing where none were."""
    if c.readout is None or c.readout.capped is None:
        return {}
    column, at, count = c.readout.capped
    sizes = c.readout.moments.n[:, :, 0]
    arms = ("control", "treatment") if c.readout.metric.arms else ("all",)
    of_groups = (count.sum(axis=1) / np.maximum(sizes.sum(axis=1), 1)).tolist()
    return {
        "capped": {
            "column": column,
            "at": at,
            "arms": {arm: float(count[:, i].sum() / max(sizes[:, i].sum(), 1)) for i, arm in enumerate(arms)},
            "groups": [
                {"group": name_of(label), "share": share}
                for label, share in zip(c.group_labels, of_groups, strict=True)
            ],
        }
    }


def overall_effect(c: Clustering) -> dict[str, Any] | None:
    """The plain effect in all rows; of an experiment with its p, and for each treatment."""
    effects = c.overall.effects
    if not effects:
        return None
    pvalues = overall_pvalues(c.groups, c.readout, c.alpha)
    return {
        **_plain_effects(effects),
        "pvalue": plain(list(pvalues)) if pvalues else None,
        "arms": [
            {"treatment": str(arm.treatment), "control": str(arm.control), **_plain_effects(arm.effects)}
            | {"pvalue": plain(list(arm.pvalues))}
            for arm in c.arm_effects
        ],
    }


def _plain_effects(effects: Sequence[Effect]) -> dict[str, Any]:
    """Estimates, standard errors and ends of intervals; lists where there are several effects."""
    return {
        name: plain([getattr(effect, field) for effect in effects])
        for name, field in (("estimate", "estimate"), ("se", "se"), ("ci_lower", "lower"), ("ci_upper", "upper"))
    }


def measured_columns(c: Clustering) -> dict[str, str]:
    """The columns that were measured, by the parameter that named them, with control and treatment."""
    if c.readout is None:
        return {}
    metric = c.readout.metric
    columns = metric.columns()
    if metric.arms is not None:
        columns["control"] = str(metric.arms.control)
        columns |= {} if metric.arms.treatment is None else {"treatment": str(metric.arms.treatment)}
    return columns


# ------------------------------------------------------------------------------ the harmful direction, as asked for

DIRECTIONS: tuple[Adverse, ...] = ("low", "high")


def _refuse_mixed(adverse: Adverse, results: Sequence[Clustering]) -> None:
    """Refuse one direction for metrics that harm in different ones: "worse off" would be said of a high accuracy."""
    for c in results:
        traits_by_effect = () if c.groups.estimates is None else traits_of(c.groups.estimates.recipe)
        if any(traits.adverse not in (None, adverse) for traits in traits_by_effect):
            remedy = "Give a direction for each, by name."
            problem = f"is not the harmful direction of {c.groups.metric}"
            raise InputError.conflict("adverse", problem, remedy, adverse)


def adverse_sides(
    adverse: Adverse | Mapping[str, Adverse] | None, results: Sequence[Clustering], names: Sequence[str]
) -> list[AdverseSides]:
    """For each effect of each result, the harmful direction.

    Args:
        adverse: One direction for all effects, or one by the name of an effect, of the metric or of the result.
        results: The results.
        names: What they are called.

    Raises:
        InputError: If it is neither a direction nor directions by names that there are.
    """
    sides: Mapping[str, Adverse] = {}
    if isinstance(adverse, Mapping):
        sides = adverse
    elif adverse is not None:
        checks.choice("adverse", adverse, DIRECTIONS, "Use 'low' or 'high'.")
        sides = dict.fromkeys(names, adverse)
    parts = [c.groups.estimates.parts if c.groups.estimates is not None else () for c in results]
    allowed = {*names, *(name for c, some in zip(results, parts, strict=True) for name in (c.groups.metric, *some))}
    if isinstance(adverse, str) and sum(max(len(some), 1) for some in parts) > 1:
        _refuse_mixed(adverse, results)
    for name, side in sides.items():
        checks.choice("adverse: name", name, sorted(allowed))
        checks.choice(f"adverse[{name!r}]", side, DIRECTIONS, "Use 'low' or 'high'.")
    return [
        tuple(sides.get(effect, sides.get(name, sides.get(c.groups.metric))) for effect in c.effect_names)
        for c, name in zip(results, names, strict=False)
    ]
