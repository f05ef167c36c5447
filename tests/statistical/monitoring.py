"""What the studies of `fl.Monitor` measured, kept in docs/monitoring.json, and the tables of docs/monitoring.md.

`FAULTLINES_KEEP=1 pytest -m statistical tests/statistical/test_monitor.py` measures and keeps; `python -m
tests.statistical.monitoring` fills the page from what is kept.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from experiments.common import filled, markdown, rounded

FILE = Path(__file__).parents[2] / "docs" / "monitoring.json"
PAGE = FILE.with_suffix(".md")


def keep(study: str, cell: str, **numbers: Any) -> None:
    """Tell what one cell of a study measured; write it down where that was asked for."""
    print(f"{study}, {cell}: {numbers}")
    if os.environ.get("FAULTLINES_KEEP"):
        kept = read() if FILE.exists() else {}
        kept.setdefault(study, {})[cell] = rounded(numbers)
        parts = [
            f"{json.dumps(name)}: {{\n"
            + ",\n".join(f"{json.dumps(c)}: {json.dumps(n)}" for c, n in cells.items())
            + "\n}"
            for name, cells in sorted(kept.items())
        ]
        FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def read() -> dict[str, dict[str, Any]]:
    """Numbers by study and cell."""
    kept: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return kept


# ------------------------------------------------------------------------------------------------------------- tables

SPENDING = ("reserve", "obrien-fleming", "pocock", "haybittle-peto")
ARRANGED = [f"{spacing}, {se} se" for spacing in ("even", "uneven") for se in ("equal", "lognormal")]
COMING_BACK = {
    "days": "they spend every day, each day by itself, and it is added up",
    "users": "the same, but some users spend more than others on all days",
    "bought": "whether they have bought by now",
    "week": "what they spent in the last seven days only",
}
DEPENDENCE = ("independent", "returning", "any")


def texts(kept: dict[str, dict[str, Any]]) -> dict[str, str]:
    """All that the page takes from what was measured, by the name of its marker."""
    shown = {
        "false claims": ("ever a false claim", _false_claims),
        "others": ("ever a false claim of rates", _others),
        "power": ("power", _power),
        "returning": ("users that come back", _returning),
        "robust": ("power of the robust form", _robust),
        "ASOS": ("ASOS", _asos),
    }
    # A study that was not run has no table; a page that asks for it is refused.
    tables = {f"table: {name}": f"\n{made(kept)}\n" for name, (study, made) in shown.items() if study in kept}
    return tables | {f"fact: {name}": fact for name, fact in _facts(kept).items()}


def _facts(kept: dict[str, dict[str, Any]]) -> dict[str, str]:
    usual = {name: cell for name, cell in kept["power"].items() if name.endswith("reserve")}
    most = max(int(name.rsplit(", ", 2)[1].split()[0]) for name in usual)
    parts = [cell["share"] / cell["one"] for name, cell in usual.items() if f", {most} looks," in name]
    made = {"kept": f"{most} looks detect {min(parts):.2f} to {max(parts):.2f}"}
    if "users that come back" in kept:
        runs = kept["users that come back"]["days, reserve"]["runs"]
        made |= {"back.runs": str(runs), "back.error": f"{_error(runs):.3f}"}
    if "power of the robust form" in kept:
        runs = kept["power of the robust form"]["any"]["runs"]
        made |= {"robust.runs": str(runs), "robust.error": f"{_error(runs, 0.8):.2f}"}
    if "ASOS" in kept:
        made["sets"] = str(kept["ASOS"]["any"]["runs"])
    return made


def _share(cell: dict[str, Any], name: str = "share") -> str:
    return f"{cell[name]:.3f}"


def _false_claims(kept: dict[str, dict[str, Any]]) -> str:
    found, rows = kept["ever a false claim"], []
    for looks in (5, 20, 100):
        for groups in (5, 21, 102):
            where = f"K={groups}, {looks} looks"
            cells = [_share(found[f"{where}, {how}, reserve"]) for how in ARRANGED]
            rest = [
                cell["share"] for name, cell in found.items() if name.startswith(f"{where}, ") and "reserve" not in name
            ]
            rows.append([f"{looks} looks, {groups} groups", *cells, _span(rest)])
    return markdown(["", *ARRANGED, "other ways to spend α"], rows)


def _span(values: list[float]) -> str:
    return f"{min(values):.3f}–{max(values):.3f}" if values else "–"


def _others(kept: dict[str, dict[str, Any]]) -> str:
    rows = []
    for name, cell in kept["ever a false claim of rates"].items():
        rate, groups = name.removeprefix("rates of ").split(", K=")
        rows.append((f"rates of {float(rate):.0%}, 20 to 99 people a day and group, {groups} groups, 20 looks", cell))
    for name, cell in kept["ever a false claim with estimated errors"].items():
        rows.append((f"4 to 39 degrees of freedom, {name.removeprefix('K=')} groups, 8 looks", cell))
    for name, cell in kept["ever a false claim without an end"].items():
        rows.append((f"no planned end, {name.removeprefix('K=').replace(',', ' groups,')}", cell))
    for name, cell in kept["ever a false claim of the class"].items():
        where = name.removeprefix("K=").replace(",", " groups,")
        for dependence in ("returning", "any"):
            told = {"share": cell[dependence], "runs": cell["runs"]}
            rows.append((f"groups of unequal size and growth, 400 draws, {where}, `{dependence}`", told))
    shown = [[what, _share(cell), f"{cell['runs']:,}", f"{_error(cell['runs']):.3f}"] for what, cell in rows]
    return markdown(["", "ever a false claim", "runs", "Monte Carlo error"], shown)


def _error(runs: int, share: float = 0.05) -> float:
    return float((share * (1 - share) / runs) ** 0.5)


def _power(kept: dict[str, dict[str, Any]]) -> str:
    found = kept["power"]
    truths = dict.fromkeys(name.rsplit(", ", 2)[0] for name in found)
    rows = []
    for truth in truths:
        for looks in (looks for looks in (5, 20, 100) if f"{truth}, {looks} looks, reserve" in found):
            cells = [found.get(f"{truth}, {looks} looks, {spending}") for spending in SPENDING[:3]]
            shown = [
                "–" if c is None else f"{c['share']:.2f} ({c['share'] / c['one']:.2f}), {c['used']:.2f}" for c in cells
            ]
            rows.append([f"{truth}, {looks} looks", f"{found[f'{truth}, {looks} looks, reserve']['one']:.2f}", *shown])
    return markdown(["truth", "one look", *(f'`"{name}"`' for name in SPENDING[:3])], rows)


def _robust(kept: dict[str, dict[str, Any]]) -> str:
    names = {"returning": '`dependence="returning"`', "any": '`dependence="any"`'}
    names |= {"rule folds": '`rule="folds"`, the day\'s data alone'}
    found = kept["power of the robust form"]
    rows = [["one look at the end", _share(found["any"], "one"), "1"]]
    rows += [[shown, _share(found[name]), _used(found[name])] for name, shown in names.items()]
    return markdown(["halves of 21 groups 2 se apart, 20 looks", "detected", "mean information used"], rows)


def _used(cell: dict[str, Any]) -> str:
    return "–" if cell["used"] is None else f"{cell['used']:.2f}"


def _returning(kept: dict[str, dict[str, Any]]) -> str:
    found = kept["users that come back"]
    rows = [
        [f"{what}, `{spending}`", *(_share(found[f"{kind}, {spending}"], name) for name in DEPENDENCE)]
        for kind, what in COMING_BACK.items()
        for spending in ("reserve", "pocock")
    ]
    return markdown(["what is measured of users that come back", *(f'`"{name}"`' for name in DEPENDENCE)], rows)


def _asos(kept: dict[str, dict[str, Any]]) -> str:
    found = kept["ASOS"]
    rows = [["one look after four weeks", _share(found["any"], "one"), "–", "28"]]
    for name in DEPENDENCE:
        cell = found[name]
        rows.append([f'`dependence="{name}"`', _share(cell), _share(cell, "agree"), f"{cell['day']:.1f}"])
    return markdown(["", "sets with a claim", 'decided as by `"independent"`', "mean day of a claim"], rows)


def main() -> None:
    """Fill in the page anew."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), texts(read())), encoding="utf-8")


if __name__ == "__main__":
    main()
