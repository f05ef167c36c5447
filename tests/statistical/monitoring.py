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
        studies = read() if FILE.exists() else {}
        studies.setdefault(study, {})[cell] = rounded(numbers)
        parts = [
            f"{json.dumps(name)}: {{\n"
            + ",\n".join(f"{json.dumps(c)}: {json.dumps(n)}" for c, n in cells.items())
            + "\n}"
            for name, cells in sorted(studies.items())
        ]
        FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def read() -> dict[str, dict[str, Any]]:
    """Numbers by study and cell."""
    written: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return written


# ------------------------------------------------------------------------------------------------------------- tables

SPENDING = ("reserve", "obrien-fleming", "pocock", "haybittle-peto")
COMING_BACK = {
    "days": "sum of days, each by itself",
    "users": "sum of days, some users spend more",
    "week": "sum of the last seven days",
}
DEPENDENCE = ("independent", "returning", "any")


def texts(studies: dict[str, dict[str, Any]]) -> dict[str, str]:
    """All that the page takes from what was measured, by the name of its marker."""
    shown = {
        "false positives": ("ever a false claim", _false_positives),
        "power": ("power", _power),
        "returning": ("users that come back", _returning),
        "once": ("outcomes that happen once", _once),
        "coverage": ("intervals ever miss", _coverage),
        "rows": ("intervals of rows ever miss", _coverage_of_rows),
        "bug": ("planted bug", _bug),
        "attribute": ("difference along an attribute", _attribute),
    }
    # A study that was not run has no table; a page that asks for it is refused.
    tables = {f"table: {name}": f"\n{table(studies)}\n" for name, (study, table) in shown.items() if study in studies}
    runs = {
        f"fact: {name}.runs": f"{next(iter(studies[study].values()))['runs']:,}"
        for name, (study, _) in shown.items()
        if study in studies
    }
    return tables | runs | {f"fact: {name}": fact for name, fact in _facts(studies).items()}


def _facts(studies: dict[str, dict[str, Any]]) -> dict[str, str]:
    usual = {name: cell for name, cell in studies["power"].items() if name.endswith("reserve")}
    most = max(int(name.rsplit(", ", 2)[1].split()[0]) for name in usual)
    parts = [cell["share"] / cell["one"] for name, cell in usual.items() if f", {most} looks," in name]
    facts = {"kept": f"{most} looks detect {min(parts):.0%} to {max(parts):.0%}"}
    if "users that come back" in studies:
        facts["returning.error"] = (
            f"{100 * _error(studies['users that come back']['days, reserve']['runs']):.1f} points"
        )
    if (folds := studies.get("power of the robust form", {}).get("rule folds")) is not None:
        facts["folds"] = f"{folds['share']:.0%} where one look detects {folds['one']:.0%}"
    if (crossed := studies.get("ever a false claim of crossed attributes")) is not None:
        shares = [f"{_percent(cell['share'])} ({name})" for name, cell in crossed.items()]
        facts["crossed"] = f"{', '.join(shares)}; {next(iter(crossed.values()))['runs']:,} runs each"
    if (harm := studies.get("harm ever shown wrongly")) is not None:
        shares = [f"{_percent(cell['either'])} ({name})" for name, cell in harm.items()]
        facts["harm"] = f"{', '.join(shares)}; {next(iter(harm.values()))['runs']:,} runs each"
    return facts


def _false_positives(studies: dict[str, dict[str, Any]]) -> str:
    shares, rows = studies["ever a false claim"], []
    for looks in (5, 20, 100):
        cells = []
        for groups in (5, 21, 102):
            where = f"K={groups}, {looks} looks, "
            cells.append(_span([cell["share"] for name, cell in shares.items() if name.startswith(where)]))
        rows.append([f"{looks} looks", *cells])
    return markdown(["", "5 groups", "21 groups", "102 groups"], rows)


def _span(values: list[float]) -> str:
    return f"{_percent(min(values))}–{_percent(max(values))}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _error(runs: int, share: float = 0.05) -> float:
    return float((share * (1 - share) / runs) ** 0.5)


def _power(studies: dict[str, dict[str, Any]]) -> str:
    shares = studies["power"]
    rows = []
    for truth in dict.fromkeys(name.rsplit(", ", 2)[0] for name in shares):
        cells = [shares[f"{truth}, 20 looks, {spending}"] for spending in SPENDING[:3]]
        shown = [f"{cell['share']:.0%}, {cell['used']:.0%}" for cell in cells]
        rows.append([truth, f"{cells[0]['one']:.0%}", *shown])
    return markdown(["truth", "one look", *(f'`"{name}"`' for name in SPENDING[:3])], rows)


def _returning(studies: dict[str, dict[str, Any]]) -> str:
    shares = studies["users that come back"]
    rows = []
    for kind, what in COMING_BACK.items():
        cells = [shares[f"{kind}, {spending}"] for spending in ("reserve", "pocock")]
        rows.append([what, *(" / ".join(_percent(cell[name]) for cell in cells) for name in DEPENDENCE)])
    return markdown(["`reserve` / `pocock`", *(f'`"{name}"`' for name in DEPENDENCE)], rows)


def _once(studies: dict[str, dict[str, Any]]) -> str:
    shares, rows = studies["outcomes that happen once"], []
    for where in dict.fromkeys(name.rsplit(", ", 1)[0] for name in shares):
        cells = [shares[f"{where}, {spending}"] for spending in ("reserve", "pocock")]
        shown = [" / ".join(_percent(cell[which]) for cell in cells) for which in ("users", "odds", "any")]
        rows.append([where, f"{cells[0]['by_now']:.0%}", *shown])
    header = ["who buys, `reserve` / `pocock`", "bought at the end", "clock of users", "clock of odds", '`"any"`']
    return markdown(header, rows)


def _coverage(studies: dict[str, dict[str, Any]]) -> str:
    rows = []
    for groups in (5, 21, 180):
        shares = {
            name: cell for name, cell in studies["intervals ever miss"].items() if name.startswith(f"K={groups},")
        }
        for dependence in ("independent", "any"):
            cells = [cell for name, cell in shares.items() if f", {dependence}, " in name]
            spans = [_span([cell[which] for cell in cells]) for which in ("groups", "overall")]
            rows.append([f'{groups} groups, `"{dependence}"`', *spans])
    return markdown(["100 looks", "any group, any look", "overall, any look"], rows)


def _coverage_of_rows(studies: dict[str, dict[str, Any]]) -> str:
    rows = [
        [name, _percent(cell["groups"]), _percent(cell["overall"])]
        for name, cell in studies["intervals of rows ever miss"].items()
    ]
    return markdown(["21 groups, 8 looks", "any group, any look", "overall, any look"], rows)


def _bug(studies: dict[str, dict[str, Any]]) -> str:
    names = {
        "pooled": "a test that knows the two groups and pools their rows",
        "pooled, all pairs": "the same, corrected for all pairs of groups",
        "monitor": "`fl.Monitor`",
    }
    cells = studies["planted bug"]
    rows = [[what, f"{cells[name]['found']:.0%}", f"{cells[name]['day']:.0f}"] for name, what in names.items()]
    return markdown(["two of 180 groups at −30%", "found in 14 days", "median day"], rows)


def _attribute(studies: dict[str, dict[str, Any]]) -> str:
    cell = studies["difference along an attribute"]["12 × 6 × 3"]
    rows = [
        ["all margins (default)", f"{cell['share']:.0%}", f"{cell['named']:.0%}"],
        ["cells alone (`margins=False`)", f"{cell['cells']:.0%}", "–"],
    ]
    return markdown(["", "reported", "and named by that attribute alone"], rows)


def main() -> None:
    """Fill in the page anew."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), texts(read())), encoding="utf-8")


if __name__ == "__main__":
    main()
