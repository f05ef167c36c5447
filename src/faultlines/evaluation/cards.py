"""A result as a block of a model card: plain Markdown, to stand below whatever else the card says."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from faultlines import checks, text
from faultlines.auditing import Audit
from faultlines.clustering import Clustering
from faultlines.errors import InputError, shorten
from faultlines.many import Many
from faultlines.result.multiplicity import CORRECTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST = 20  # results with a part of their own
_CAVEAT = (
    "Clusters are groups that can be told apart at this level. Groups of one cluster may still differ by less than "
    "these data can show: no difference found does not mean that there is none."
)


def model_card(
    results: Clustering | Sequence[Clustering] | Many | Audit,
    *,
    title: str = "Differences between groups",
    data: str = "",
) -> str:
    """The part of a model card that says which groups a model serves differently, as Markdown.

    It begins with a heading of the second level and holds no front matter, so that it can be put into a card as it is.

    Args:
        results: What `fl.cluster` returns; several, corrected by `fl.holm`; or what `fl.audit` or `fl.cluster_many`
            returns, of which those with clusters get a part of their own.
        title: The heading.
        data: What the model was evaluated on, in words.

    Returns:
        Markdown.

    Raises:
        InputError: If something else is given.

    Example:
        >>> import faultlines as fl
        >>> found = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> print(fl.model_card(found, data="validation set, May").splitlines()[2])
        Evaluated on: validation set, May.
    """
    for name, value in (("title", title), ("data", data)):
        if checks.text(name, value) is None:
            raise InputError(f"{name}=None", "is not text", "Give a string.")
    lines = [f"## {text.markdown(title)}"]
    lines += [f"Evaluated on: {text.markdown(data)}."] if data else []
    if isinstance(results, Many | Audit):
        names = results.rejected[:_MOST]
        told = f"{_counted(results)}." if isinstance(results, Many) else results.to_markdown().strip()
        lines += [told, *_parts([results[name] for name in names], names, heading=True)]
    else:
        several = [results] if isinstance(results, Clustering) else results
        if not isinstance(several, list | tuple) or not several or not all(isinstance(r, Clustering) for r in several):
            given = f"results={shorten(results)}"
            raise InputError(given, "is not a result, or a list of them", "Give what fl.cluster or fl.audit returns.")
        measures = [one.groups.measure for one in several]
        lines += _parts(several, measures, heading=len(several) > 1)
    lines += [_CAVEAT, f"Computed with faultlines {version('faultlines')}."]
    return "\n\n".join(lines) + "\n"


def _counted(many: Many) -> str:
    how = f"{CORRECTIONS[many.correction]}, α = {many.alpha:g}"
    left = f"; {len(many.excluded):,} could not be compared" if many.excluded else ""
    more = f" The {_MOST} surest are below" if len(many.rejected) > _MOST else ""
    return f"Clusters differ in {len(many.rejected):,} of {len(many):,} evaluations ({how}){left}{more}"


def _parts(results: Sequence[Clustering], names: Sequence[str], *, heading: bool) -> list[str]:
    """Each result with how it was computed."""
    made = []
    for result, name in zip(results, names, strict=True):
        made += [f"### {text.markdown(name)}"] if heading else []
        made += [result.to_markdown().strip(), text.markdown_table(["", ""], _how(result), set())]
    return made


def _how(result: Clustering) -> list[list[str]]:
    groups, by = len(result.groups), " × ".join(result.groups.attributes)
    rows = [
        ["Metric", result.groups.measure],
        ["Groups", f"{groups:,} by {by}" + (f", {len(result.excluded):,} left out" if result.excluded else "")],
        ["Chance of a false claim", f"{text.share(result.alpha, 1)} at most ({result.guarantee.name})"],
    ]
    if result.tolerance:
        rows.append(["Taken as alike", f"groups at most {result.tolerance:g} apart"])
    return [*rows, ["Fingerprint of data and settings", result.fingerprint]]
