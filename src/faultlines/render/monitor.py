"""The page of a monitor: what every look showed and needed, and its result."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from markupsafe import Markup

from faultlines import formats
from faultlines.estimates.labels import name_of
from faultlines.render.geometry import LAYERS, WIDTH, Axis, Picture
from faultlines.render.page import rendered
from faultlines.render.vega import svg
from faultlines.results.monitor import ASSUMPTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.render.geometry import Row
    from faultlines.results.monitor import Look, MonitorResult

_HIGH = 200
_FEWEST = 8  # looks that have room in a picture where no number is planned
_NAMED = 2_000  # characters of the members of a cluster
_EVIDENCE = "evidence: −log₁₀ p (2 is p = 0.01)"


def monitor_page(
    result: MonitorResult, *, title: str | None = None, command: str = "", left_out: Sequence[str] = ()
) -> str:
    """The page of a monitor after its last look.

    Args:
        result: The result of the monitor.
        title: What stands at the head.
        command: What made it.
        left_out: Rows that were not used, in words.
    """
    last = result.looks[-1]
    return rendered(
        "monitor.html",
        title=title or result.headline,
        head=title or "",
        verdict=result.headline,
        assumed=ASSUMPTIONS[result.dependence],
        pictures=[
            {"svg": Markup(svg(picture)), "caption": picture.about}
            for picture in (_draw_looks(result), _draw_so_far(result))
        ],
        clusters=[
            {"number": i + 1, "size": formats.count(len(cluster)), "members": formats.members(cluster, name_of, _NAMED)}
            for i, cluster in enumerate(result.clusters if result.rejected else ())
        ],
        looks=[_row(look) for look in reversed(result.looks)],
        left_out=[*(f"{words}." for words in result.ignored_groups), *left_out],
        alpha=f"{result.alpha:g}",
        left=None if last.spent is None else formats.share(max(0.0, 1 - last.spent / result.alpha), 1),
        rejected=result.rejected,
        finished=result.finished,
        command=command,
    )


def _row(look: Look) -> list[str]:
    """A look as the cells of a table."""
    return [
        str(look.number),
        _information(look.information),
        "–" if look.fraction is None else formats.share(look.fraction, 1),
        formats.pvalue(math.log(look.pvalue)),
        _level(look.level),
        formats.pvalue(math.log(look.adjusted)),
    ]


def _information(information: float | None) -> str:
    if information is None:
        return "–"
    return formats.count(round(information)) if information >= 100 else f"{information:.3g}"


def _level(level: float) -> str:
    return "–" if level == 0 else formats.pvalue(math.log(level))


# ------------------------------------------------------------------------------------------------------------ pictures


def _draw_looks(result: MonitorResult) -> Picture:
    """The p of every look beside what it needed."""
    evidence = [_evidence(look.pvalue) for look in result.looks]
    high = max(4.0, 1.25 * max(evidence))
    needed = [min(_evidence(look.level), high) for look in result.looks]
    number = [float(look.number) for look in result.looks]
    points = [
        {"x": x, "y": y, "cluster": 1, "name": f"look {look.number}", "estimate": formats.pvalue(math.log(look.pvalue)),
         "interval": _level(look.level)}
        for x, y, look in zip(number, evidence, result.looks, strict=True)
    ]  # fmt: skip
    about = "Each look by itself: its p (dots) and the level it needs (dashed); a dot above reports a difference."
    layers = {"branches": _joined(number, evidence, 1), "points": points, "faults": _joined(number, needed, 0)}
    return _picture(result, about, high, layers)


def _draw_so_far(result: MonitorResult) -> Picture:
    """The p so far beside α."""
    evidence = [_evidence(look.adjusted) for look in result.looks]
    number = [float(look.number) for look in result.looks]
    alpha = _evidence(result.alpha)
    x = _axis(result)
    layers = {
        "means": _joined(number, evidence, 1),
        "points": [
            {"x": a, "y": b, "cluster": 1, "name": f"look {look.number}", "estimate": _level(look.adjusted),
             "interval": ""}
            for a, b, look in zip(number, evidence, result.looks, strict=True)
        ],
        "faults": [{"x": x.low, "x2": x.high, "y": alpha, "y2": alpha, "cluster": 0}],
    }  # fmt: skip
    about = "p so far, all looks taken into account, and α (dashed)."
    return _picture(result, about, max(2 * alpha, 1.25 * max(evidence)), layers)


def _picture(result: MonitorResult, about: str, high: float, layers: dict[str, list[Row]]) -> Picture:
    all_layers = {name: layers.get(name, []) for name in LAYERS}
    return Picture(about, WIDTH, _HIGH, _axis(result), Axis(_EVIDENCE, 0.0, high), all_layers)


def _axis(result: MonitorResult) -> Axis:
    last = result.looks[-1].number
    return Axis("look", 0.0, float(max(result.planned or _FEWEST, last)))


def _joined(x: Sequence[float], y: Sequence[float], cluster: int) -> list[Row]:
    """Neighbouring points joined by lines; one point is a short line."""
    if len(x) == 1:
        return [{"x": x[0] - 0.1, "x2": x[0] + 0.1, "y": y[0], "y2": y[0], "cluster": cluster}]
    return [{"x": x[i - 1], "y": y[i - 1], "x2": x[i], "y2": y[i], "cluster": cluster} for i in range(1, len(x))]


def _evidence(p: float) -> float:
    return -math.log10(p) if p > 0 else math.inf
