"""A result in words and numbers: for the terminal, as Markdown, for a notebook, and as plain data for JSON."""

from __future__ import annotations

import html
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from faultlines import text
from faultlines.estimates.estimates import plain
from faultlines.estimates.labels import name_of
from faultlines.metrics.recipe import plain_recipe
from faultlines.result.decision import contrast, decide
from faultlines.result.finding import probability
from faultlines.result.saved import plain_attributes, plain_by
from faultlines.result.tables import columns_of, dicts_of, named_attributes, path_of
from faultlines.result.who import who

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.result.clusters import Cluster
    from faultlines.result.effects import Effect
    from faultlines.result.summary import Summary

_LINE = 112  # characters in a line of text output
_ROWS = 40  # clusters in a table of text output


class Table(NamedTuple):
    """Header, rows and the columns that are right-aligned."""

    header: list[str]
    rows: list[list[str]]
    right: set[int]


def terminal(s: Summary) -> str:
    """Verdict, who differs and how much, table of clusters and notes, as plain text."""
    return text.printable_lines("\n\n".join(["\n".join(_head(s)), text.table(*_table(s)), *_paragraph(s)]))


def markdown(s: Summary) -> str:
    """The same as Markdown, with all members."""
    notes = ["\n".join(text.markdown(line) for line in words.split("\n")) for words in _paragraph(s)]
    head = [text.markdown(words) for words in _head(s)]
    return "\n\n".join([*head, text.markdown_table(*_table(s, whole=True)), *notes]) + "\n"


def notebook(s: Summary, picture: str = "") -> str:
    """The same as HTML, with a picture that was drawn before."""
    notes = "".join(f"<p>{html.escape(words)}</p>" for words in _paragraph(s))
    verdict, *more = (html.escape(text.printable(words)) for words in _head(s))
    head = f"<p><strong>{verdict}</strong></p>" + "".join(f"<p>{words}</p>" for words in more)
    return f"<div>{head}{picture}{text.html_table(*_table(s))}{notes}</div>"


def _head(s: Summary) -> list[str]:
    """The verdict, and which clusters differ and how much."""
    return [s.verdict, *filter(None, [contrast(s)])]


def _paragraph(s: Summary) -> list[str]:
    lines = [*s.explained_words, *(note.text for note in s.notes)]
    return ["\n".join(lines)] if lines else []


def plain_data(s: Summary) -> dict[str, Any]:
    """The whole result as plain data, for JSON."""
    estimates = s.estimates
    rows = {name: dicts_of(columns_of(s, name)) for name in ("clusters", "groups")}
    return {
        "faultlines": version("faultlines"),
        "verdict": s.verdict,
        "decision": decide(s).to_dict(),
        "rejected": s.rejected,
        "pvalue": probability(s.log_pvalue),
        "log10_pvalue": s.log_pvalue / np.log(10),
        "pvalue_adj": probability(s.claims.log_pvalue),
        "correction": None if s.adjustment is None else s.adjustment.correction,
        "alpha": s.alpha,
        "n_clusters": len(s.clusters),
        "n_groups": len(s.groups),
        "measure": s.groups.measure,
        "parts": list(estimates.parts) if estimates is not None else [],
        "tolerance": s.groups.tolerance,
        "scale": estimates.scale.name if estimates is not None else None,
        "guarantee": {"name": s.guarantee.name, **s.judged.facts},
        "refine": s.refine,
        "clusters": [
            {**row, "members": [name_of(label) for label in cluster.members]}
            for row, cluster in zip(rows["clusters"], s.clusters, strict=True)
        ],
        "explained": [
            {"attribute": row.attribute, "part": row.part, "values": row.values}
            | {"share": row.alone, "beyond": row.beyond, "pvalue": row.pvalue}
            for row in s.explained
        ],
        "groups": rows["groups"],
        "excluded": [
            {"group": name_of(left.label), "reason": left.reason, "n": left.n, "estimate": left.estimate}
            | {"events": left.events, "lower": left.lower, "upper": left.upper}
            for left in s.excluded
        ],
        "left_out": [
            {"attribute": one.attribute, "value": one.value, "n": one.n, "total": one.total, "share": one.share}
            for one in s.left_out
        ],
        "warnings": [note.text for note in s.notes if note.kind == "warning"],
        "overall": _overall(s),
        "reach": [one.to_dict(s.group_labels) for one in s.unseen],
        "measured": measured_from(s),
        "metric": None if s.readout is None else plain_recipe(s.readout.metric),
        "by": plain_by(s.by),
        "attributes": plain_attributes(s.groups.attributes, named_attributes(s), s.groups.keys),
        "dropped": dict(s.dropped),
        "path": path_of(s.judged.path.log_pvalues.tolist(), s.claims.log_pvalues.tolist()),
    }


def _overall(s: Summary) -> dict[str, Any] | None:
    """The plain effect in all rows."""
    effects = s.overall.effects
    if not effects:
        return None
    return {
        name: plain([getattr(effect, field) for effect in effects])
        for name, field in (("estimate", "estimate"), ("se", "se"), ("ci_lower", "lower"), ("ci_upper", "upper"))
    }


def measured_from(s: Summary) -> dict[str, str]:
    """The columns that were measured, by the parameter that named them, with control and treatment."""
    if s.readout is None:
        return {}
    metric = s.readout.metric
    named = metric.columns()
    if metric.arms is not None:
        named["control"] = str(metric.arms.control)
        named |= {} if metric.arms.treatment is None else {"treatment": str(metric.arms.treatment)}
    return named


# --------------------------------------------------------------------------------------------------- table of clusters


def effect_cells(s: Summary, cluster: Cluster) -> list[str]:
    """Estimate and interval of each effect, as text."""
    return _cells(s, cluster.effects)


def _cells(s: Summary, effects: Sequence[Effect]) -> list[str]:
    cells = []
    for number, effect in zip(s.numbers, effects, strict=bool(effects)):
        cells += [number(effect.estimate), f"{number(effect.lower)} … {number(effect.upper)}"]
    return cells


def observed_cells(s: Summary, cluster: Cluster) -> list[str]:
    """The effect on the people of a cluster and its interval, as text; dashes where it is not known."""
    if not observed_headers(s):
        return []
    return _cells(s, cluster.observed_effects) or ["–", "–"] * len(s.effect_names)


def observed_headers(s: Summary) -> list[str]:
    """Their headers; none where effects on people are not known."""
    if not any(cluster.observed_effects for cluster in s.clusters):
        return []
    several = len(s.effect_names) > 1
    return [h for name in s.effect_names for h in (f"observed {name}" if several else "observed", s.interval_name)]


def effect_headers(s: Summary) -> list[str]:
    """Their headers."""
    return [header for name in s.effect_names for header in (name, s.interval_name)]


def _table(s: Summary, *, whole: bool = False) -> Table:
    """The table of clusters; `whole` is without bars but with all clusters and members."""
    shown = list(range(len(s.clusters)))
    if len(shown) > _ROWS and not whole:
        shown = [*shown[: _ROWS // 2], *shown[-_ROWS // 2 :]]
    bars = _bars(s) if not whole and len(s.effect_names) == 1 else None
    header = [
        "cluster",
        *effect_headers(s),
        *([""] if bars else []),
        "groups",
        *(["n"] if s.groups.n is not None else []),
    ]
    rows = []
    for i in shown:
        cluster = s.clusters[i]
        row = [str(i + 1), *effect_cells(s, cluster), *([bars[i]] if bars else []), text.count(len(cluster.members))]
        rows.append(row + ([text.count(cluster.n or 0)] if s.groups.n is not None else []))
    width = len(header)
    header += _described(s, rows, shown, header, whole=whole)
    if len(rows) < len(s.clusters):
        more = f"{len(s.clusters) - len(rows):,} more clusters"
        rows.insert(_ROWS // 2, ["…", *[""] * (width - 1), more, *[""] * (len(header) - width - 1)])
    return Table(header, rows, set(range(width)) - ({3} if bars else set()))


def rule_or_members(s: Summary, i: int, room: int) -> str:
    """The rule of a cluster; its largest groups where no short rule fits it, or names say as much."""
    if not s.has_rules:
        return members(s, i, room)
    rule = s.rules[i]
    return str(rule) if rule.fits else f"{rule}: {members(s, i, max(room - len(rule) - 2, 30))}"


def members(s: Summary, i: int, room: int) -> str:
    """The largest groups of a cluster, in about so many characters."""
    return who(s.population, np.flatnonzero(s.labels == i + 1), room).words


def _bars(s: Summary) -> list[str]:
    """Intervals of the clusters as small drawings on one scale."""
    effects = [cluster.effects[0] for cluster in s.clusters]
    ends = [end for effect in effects for end in (effect.lower, effect.upper)]
    return [text.bar(e.lower, e.estimate, e.upper, (min(ends), max(ends))) for e in effects]


def _described(s: Summary, rows: list[list[str]], shown: list[int], header: list[str], *, whole: bool) -> list[str]:
    """Add rules or members to the rows, as far as there is room; their headers."""
    used = sum(max(len(row[i]) for row in [header, *rows]) + 2 for i in range(len(header)))
    told = ["rule"] if s.rejected and s.has_rules else []
    told += ["members"] if whole or not told else []
    room = 10**9 if whole else max(_LINE - used, 30)
    for row, i in zip(rows, shown, strict=True):
        if "rule" in told:
            row.append(str(s.rules[i]) if whole else rule_or_members(s, i, room))
        if "members" in told:
            row.append(text.members(s.clusters[i].members, name_of, room) if whole else members(s, i, room))
    return told
