"""A result as a block of a model card: plain Markdown, to stand below whatever else the card says."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from faultlines import checks, formats
from faultlines.errors import InputError
from faultlines.results.audit import Audit
from faultlines.results.clustering import Clustering
from faultlines.results.collection import Collection
from faultlines.results.protocol import NEXT

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST = 20  # results with a part of their own
_FINDINGS, _LEVELS, _COLUMNS, _NOTES = 14, 32, 12, 8  # of an audit, so that its card has at most 80 lines
_CAVEAT = (
    "Groups of different clusters differ at this significance level. Groups of one cluster may still differ by less "
    "than these data can show: no difference found does not mean that there is none."
)


def model_card(
    results: Clustering | Sequence[Clustering] | Collection,
    *,
    title: str = "Differences between groups",
    data: str = "",
) -> str:
    """The part of a model card that says which groups a model serves differently, as Markdown.

    The card of an audit has at most 80 lines: the findings, and every metric in the levels of every feature. It begins
    with a heading of the second level and holds no front matter, so that it can be put into a card as it is.

    Args:
        results: What `fl.cluster` returns; several, corrected by `fl.holm`; what `fl.audit` returns; or what
            `fl.cluster_many` returns, of which those with clusters get a part of their own.
        title: The heading.
        data: What the model was evaluated on, in words.

    Returns:
        Markdown.

    Raises:
        InputError: If something else is given.

    Example:
        >>> import faultlines as fl
        >>> c = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> print(fl.model_card(c, data="validation set, May").splitlines()[2])
        Evaluated on: validation set, May.
    """
    for name, value in (("title", title), ("data", data)):
        if checks.text(name, value) is None:
            raise InputError.wrong_type(name, "is not text", "Give a string.", None)
    lines = [f"## {formats.markdown(title)}"]
    lines += [f"Evaluated on: {formats.markdown(data)}."] if data else []
    if isinstance(results, Audit):
        lines += _audit_parts(results)
    elif isinstance(results, Collection):
        names = results.rejected[:_MOST]
        lines += [_collection_text(results), *_parts([results[name] for name in names], names, heading=True)]
    else:
        several = [results] if isinstance(results, Clustering) else results
        if not isinstance(several, list | tuple) or not several or not all(isinstance(r, Clustering) for r in several):
            remedy = "Give what fl.cluster or fl.audit returns."
            raise InputError.wrong_type("results", "is not a result, or a list of them", remedy, results)
        lines += _parts(several, [result.groups.metric for result in several], heading=len(several) > 1)
    lines += [_CAVEAT, f"Computed with faultlines {version('faultlines')}."]
    return "\n\n".join(lines) + "\n"


def _audit_parts(audit: Audit) -> list[str]:
    """Findings, metrics by level, what was excluded, and how it was computed."""
    from faultlines.render.audit import describe_groups, findings

    found = [f"- {formats.markdown(finding.text)}" for finding in findings(audit)]
    parts = [formats.markdown(audit.headline), "\n".join(formats.first_few(found, _FINDINGS))]
    tables = describe_groups(audit)[:_COLUMNS]
    names = list(dict.fromkeys(row.name for table in tables for row in table.levels))
    rows = [["overall", *(table.overall for table in tables)]]
    by_name = [{row.name: row for row in table.levels} for table in tables]
    for name in names[:_LEVELS]:
        cells = [f"{level[name].value} ({level[name].difference})" if name in level else "–" for level in by_name]
        rows.append([name, *cells])
    rows += [[f"… +{len(names) - _LEVELS:,}", *[""] * len(tables)]] if len(names) > _LEVELS else []
    header = ["group (difference from overall)", *(table.title for table in tables)]
    parts += [formats.markdown_table(header, rows, set(range(1, len(header))))] if tables else []
    notes = [formats.markdown(note.text) for note in audit.notes if note.code not in ("difference", NEXT)]
    parts += ["\n".join(formats.first_few(notes, _NOTES))] if notes else []
    control = audit.comparisons[0].result.guarantee.name
    facts = f"Error control: {control}, {audit.correction} over {len(audit)} {audit.noun}s, α = {audit.alpha:g}."
    return [*filter(None, parts), formats.markdown(facts)]


def _collection_text(results: Collection) -> str:
    excluded = [note.text for note in results.notes if note.code == "excluded experiments"]
    more = [f"The {_MOST} surest are below."] if len(results.rejected) > _MOST else []
    return formats.markdown(" ".join([results.headline, *excluded, *more]))


def _parts(results: Sequence[Clustering], names: Sequence[str], *, heading: bool) -> list[str]:
    """Each result with how it was computed."""
    parts = []
    for result, name in zip(results, names, strict=True):
        parts += [f"### {formats.markdown(name)}"] if heading else []
        parts += [result.to_markdown().strip(), formats.markdown_table(["", ""], _facts(result), set())]
    return parts


def _facts(result: Clustering) -> list[list[str]]:
    groups, by = len(result.groups), " × ".join(result.groups.attributes)
    rows = [
        ["Metric", result.groups.metric],
        ["Groups", f"{groups:,} by {by}" + (f", {len(result.excluded):,} excluded" if result.excluded else "")],
        ["Error control", f"{result.guarantee.name}, significance level α = {result.alpha:g}"],
    ]
    if result.tolerance:
        rows.append(["Tolerance", f"groups at most {result.tolerance:g} apart count as equal"])
    return [*rows, ["Fingerprint of data and settings", result.fingerprint]]
