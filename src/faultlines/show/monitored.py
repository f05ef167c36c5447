"""The page of a monitor: what every look showed and needed, and where it stands."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from faultlines import text
from faultlines.estimates.labels import name_of
from faultlines.guarantees.monitored import ASSUMED
from faultlines.show.geometry import LAYERS, WIDTH, Axis, Picture
from faultlines.show.page import rendered
from faultlines.show.vega import svg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.guarantees.monitored import Look, Monitored
    from faultlines.show.geometry import Row

_HIGH = 200
_FEWEST = 8  # looks that have room in a picture where no number is planned
_NAMED = 2_000  # characters of the members of a cluster
_EVIDENCE = "evidence: −log₁₀ p (2 is p = 0.01)"


def monitor_page(found: Monitored, *, title: str | None = None, command: str = "", left_out: Sequence[str] = ()) -> str:
    """The page of a monitor after its last look.

    Args:
        found: Where it stands.
        title: What stands at the head.
        command: What made it.
        left_out: What of the rows was not used.
    """
    last = found.looks[-1]
    return rendered(
        "monitor.html",
        title=title or found.verdict,
        head=title or "",
        verdict=found.verdict,
        assumed=ASSUMED[found.dependence],
        pictures=[{"svg": Markup(svg(one)), "caption": one.about} for one in (_each(found), _so_far(found))],
        clusters=[
            {"number": i + 1, "size": text.count(len(cluster)), "members": text.members(cluster, name_of, _NAMED)}
            for i, cluster in enumerate(found.clusters if found.rejected else ())
        ],
        looks=[_row(look) for look in reversed(found.looks)],
        left_out=[*(f"{count} {why}." for why, count in found.ignored.items()), *left_out],
        alpha=f"{found.alpha:g}",
        left=text.share(max(0.0, 1 - last.spent / found.alpha), 1),
        rejected=found.rejected,
        finished=found.finished,
        command=command,
    )


def _row(look: Look) -> list[str]:
    """A look as the cells of a table."""
    return [
        str(look.number),
        text.count(round(look.information)) if look.information >= 100 else f"{look.information:.3g}",
        text.share(look.fraction, 1),
        text.pvalue(math.log(look.pvalue)),
        _level(look.level),
        text.pvalue(math.log(look.adjusted)),
    ]


def _level(level: float) -> str:
    return "–" if level == 0 else text.pvalue(math.log(level))


# ------------------------------------------------------------------------------------------------------------ pictures


def _each(found: Monitored) -> Picture:
    """The p of every look beside what it needed."""
    shown = [_evidence(look.pvalue) for look in found.looks]
    high = max(4.0, 1.25 * max(shown))
    needed = [min(_evidence(look.level), high) for look in found.looks]
    number = [float(look.number) for look in found.looks]
    points = [
        {"x": x, "y": y, "cluster": 1, "name": f"look {look.number}", "estimate": text.pvalue(math.log(look.pvalue)),
         "interval": _level(look.level)}
        for x, y, look in zip(number, shown, found.looks, strict=True)
    ]  # fmt: skip
    about = "Each look by itself: its p (dots) and the level it needs (dashed); a dot above the dashed line is a claim."
    layers = {"branches": _joined(number, shown, 1), "points": points, "faults": _joined(number, needed, 0)}
    return _picture(found, about, high, layers)


def _so_far(found: Monitored) -> Picture:
    """The p so far beside α."""
    shown = [_evidence(look.adjusted) for look in found.looks]
    number = [float(look.number) for look in found.looks]
    alpha = _evidence(found.alpha)
    x = _axis(found)
    layers = {
        "means": _joined(number, shown, 1),
        "points": [
            {"x": a, "y": b, "cluster": 1, "name": f"look {look.number}", "estimate": _level(look.adjusted),
             "interval": ""}
            for a, b, look in zip(number, shown, found.looks, strict=True)
        ],
        "faults": [{"x": x.low, "x2": x.high, "y": alpha, "y2": alpha, "cluster": 0}],
    }  # fmt: skip
    about = "p so far, all looks taken into account, and α (dashed)."
    return _picture(found, about, max(2 * alpha, 1.25 * max(shown)), layers)


def _picture(found: Monitored, about: str, high: float, layers: dict[str, list[Row]]) -> Picture:
    all_layers = {name: layers.get(name, []) for name in LAYERS}
    return Picture(about, WIDTH, _HIGH, _axis(found), Axis(_EVIDENCE, 0.0, high), all_layers)


def _axis(found: Monitored) -> Axis:
    last = found.looks[-1].number
    return Axis("look", 0.0, float(max(found.planned or _FEWEST, last)))


def _joined(x: Sequence[float], y: Sequence[float], cluster: int) -> list[Row]:
    """Neighbouring points joined by lines; one point is a short line."""
    if len(x) == 1:
        return [{"x": x[0] - 0.1, "x2": x[0] + 0.1, "y": y[0], "y2": y[0], "cluster": cluster}]
    made: list[dict[str, Any]] = []
    for i in range(1, len(x)):
        made.append({"x": x[i - 1], "y": y[i - 1], "x2": x[i], "y2": y[i], "cluster": cluster})
    return made


def _evidence(p: float) -> float:
    return -math.log10(p) if p > 0 else math.inf
