"""Measured figures: docs/figures/<study>.json, and the pages that show them. `python -m docs.figures --write`.

Studies and benchmarks record every figure under a name, with its runs, one Monte Carlo standard error, the commit, the
date and a hash of the code that was measured. A name has parts: "table; row; column". Pages take figures by marker:

    <!-- figure: margins/detection; type .25; margins -->37%<!-- end -->
    <!-- figures: margins/detection -->
    | truth | margins | cells | runs |
    …
    <!-- end -->
    <!-- range: certify/known se; * groups*, overall; wrongly passed -->2.0%–4.4%<!-- end -->
    <!-- runs: certify/known se; * -->150–1,000<!-- end -->

The second is a table of all figures whose name begins so. Its rows and columns keep the order in which they stand on
the page, new ones come last, and its first header is the page's own, as is that of a single column without a name. A
range is from the smallest to the largest of all figures whose names match, where * stands for anything. A test compares
pages with figures.

Environment: FAULTLINES_FIGURES, the folder to write to. Runs with fewer repetitions (FAULTLINES_SHARE) write to
build/figures, so that they never replace what a full run measured.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import re
import subprocess
from contextlib import contextmanager
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsFloat

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs" / "figures"
# What numbers rest on; words, pictures and the command line do not change them.
MEASURED_CODE = ("analyses", "core", "engines", "estimates", "guarantees", "metrics", "rows", "simulate.py")
ONLY = "value"  # the column of figures without one, until the page names it
MARKER = re.compile(
    r"<!-- (?P<kind>figures?|range|runs): (?P<study>\w+)/(?P<name>[^>]+?) -->(?P<old>.*?)<!-- end -->", re.DOTALL
)


def folder() -> Path:
    """Where figures are written now."""
    if chosen := os.environ.get("FAULTLINES_FIGURES"):
        return Path(chosen)
    return ROOT / "build" / "figures" if share_of_runs() < 1 else KEPT


def share_of_runs() -> float:
    """The share of their runs that studies make: FAULTLINES_SHARE, all of them where it is not set."""
    return float(os.environ.get("FAULTLINES_SHARE") or 1.0)


# ---------------------------------------------------------------------------------------------------------- to record


def record_figure(
    study: str, name: str, value: SupportsFloat, runs: int = 1, *, error: float | None = None, unit: str = "share"
) -> None:
    """Keep a figure under its name.

    Args:
        study: The file that it goes to.
        name: Its parts, "table; row; column", joined by semicolons.
        value: What was measured.
        runs: How many data sets it rests on.
        error: One Monte Carlo standard error; by default that of a share of so many runs, and none of anything else.
        unit: "share" (shown in %), "number", or what is written behind it: "×", "s".

    Raises:
        ValueError: If a share is not between 0 and 1.
    """
    number = float(value)
    if unit == "share" and (number < 0 or number > 1):
        raise ValueError(f"{name!r}: {value} is not a share")
    if error is None and unit == "share":
        error = share_error(number, runs)
    entry: dict[str, Any] = {"value": _rounded(number), "error": _rounded(error), "runs": int(runs)}
    entry |= {} if unit == "share" else {"unit": unit}
    keep_entry(study, "figures", name, entry)


def share_error(share: float, runs: float) -> float:
    """One Monte Carlo standard error of a share, not below that of one event."""
    return math.sqrt(max(share * (1 - share), 1 / max(runs, 1)) / max(runs, 1))


def keep_entry(study: str, section: str, name: str, entry: Mapping[str, Any]) -> None:
    """Write an entry with its origin; one that says the same of the same code stays as it is."""
    with _locked(study) as sections:
        entries = sections.setdefault(section, {})
        old = entries.get(name, {})
        if old.get("source") != source_hash() or any(old.get(key) != value for key, value in entry.items()):
            entries[name] = {**entry, **origin()}


def origin() -> dict[str, str]:
    """Where a figure comes from: commit, date, and the hash of the code that was measured."""
    return {"commit": commit(), "date": datetime.now(UTC).strftime("%Y-%m-%d"), "source": source_hash()}


@cache
def commit() -> str:
    """The commit of the working copy; empty outside of one."""
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return answer.stdout.strip()


@cache
def source_hash() -> str:
    """A hash of the code that studies measure."""
    digest = hashlib.sha256()
    for part in MEASURED_CODE:
        path = ROOT / "src" / "faultlines" / part
        for file in [path] if path.is_file() else sorted([*path.rglob("*.py"), *path.rglob("*.pyx")]):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _rounded(value: float | None) -> float | None:
    """Four digits are more than any figure supports; no number is None."""
    return float(f"{value:.4g}") if value is not None and math.isfinite(value) else None


# ------------------------------------------------------------------------------------------------------------ in files


def read_figures(study: str, place: Path | None = None) -> dict[str, dict[str, Any]]:
    """The file of a study by section; empty where there is none yet."""
    path = (place or folder()) / f"{study}.json"
    sections: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return sections


@contextmanager
def _locked(study: str) -> Iterator[dict[str, dict[str, Any]]]:
    """The file of a study to change, while no other process does."""
    folder().mkdir(parents=True, exist_ok=True)
    lock = ROOT / "build" / "figures.lock"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        sections = read_figures(study)
        yield sections
        path = folder() / f"{study}.json"
        beside = path.with_suffix(".part")  # a reader never sees half a file
        beside.write_text(one_line_per_entry(sections), encoding="utf-8")
        beside.replace(path)


def one_line_per_entry(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """JSON with one line for each entry, in the order of their names: small changes make small diffs."""
    parts = []
    for section, entries in sorted(sections.items()):
        lines = [f"  {_json(name)}: {_json(entry)}" for name, entry in sorted(entries.items())]
        parts.append(f" {_json(section)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


# ------------------------------------------------------------------------------------------------------------ on pages


def fill_page(text: str, place: Path = KEPT) -> str:
    """A page with its figures as they were measured.

    Raises:
        KeyError: If it asks for a figure or a table that no study has recorded.
    """

    def anew(found: re.Match[str]) -> str:
        figures = read_figures(found["study"], place).get("figures", {})
        start, name = found[0].partition("-->")[0] + "-->", " ".join(found["name"].split())
        if found["kind"] == "figure":
            if name not in figures:
                raise KeyError(f"{found['study']} has no figure {name!r}")
            return f"{start}{show(figures[name])}<!-- end -->"
        if found["kind"] in ("range", "runs"):
            matching = [entry for key, entry in figures.items() if fnmatchcase(key, name)]
            if not matching:
                raise KeyError(f"{found['study']} has no figures like {name!r}")
            return f"{start}{show_range(matching) if found['kind'] == 'range' else show_runs(matching)}<!-- end -->"
        rows = {key.removeprefix(f"{name}; "): entry for key, entry in figures.items() if key.startswith(f"{name}; ")}
        if not rows:
            raise KeyError(f"{found['study']} has no figures {name!r}")
        return f"{start}\n{make_table(rows, found['old'])}\n<!-- end -->"

    return MARKER.sub(anew, text)


def show(entry: Mapping[str, Any]) -> str:
    """A figure as people read it: shares in percent, three digits of anything else."""
    value, unit = entry["value"], entry.get("unit", "share")
    if value is None:
        return "–"
    if unit == "share":
        return f"{100 * value:.1f}%" if 0 < min(value, 1 - value) < 0.0995 else f"{100 * value:.0f}%"
    digits = 0 if value == int(value) else max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}{'' if unit == 'number' else f' {unit}'}"


def show_range(entries: Iterable[Mapping[str, Any]]) -> str:
    """From the smallest to the largest figure; one of them where they read the same."""
    ordered = sorted((entry for entry in entries if entry["value"] is not None), key=lambda entry: entry["value"])
    return "–".join(dict.fromkeys(show(entry) for entry in (*ordered[:1], *ordered[-1:]))) or "–"


def show_runs(entries: Iterable[Mapping[str, Any]]) -> str:
    """The smallest and the largest number of runs."""
    runs = sorted({entry["runs"] for entry in entries})
    return "–".join(f"{number:,}" for number in runs[:: max(1, len(runs) - 1)])


def make_table(figures: Mapping[str, Mapping[str, Any]], old: str = "") -> str:
    """A Markdown table of figures by "row; column", in the order of an older one."""
    cells = {_row_and_column(name): entry for name, entry in figures.items()}
    lines = [line.strip().strip("|").split("|") for line in old.strip().splitlines() if line.startswith("|")]
    header = [part.strip() for part in lines[0]] if lines else [""]
    rows = _in_order((row for row, _ in cells), [line[0].strip() for line in lines[2:]])
    columns = _in_order((column for _, column in cells), header[1:])
    named = header[1:2] if columns == [ONLY] and len(header) > 2 else columns  # one column has the page's own name
    lines_of_table = [f"| {' | '.join([header[0], *named, 'runs'])} |", f"|---|{'---:|' * (len(columns) + 1)}"]
    for row in rows:
        entries = [cells.get((row, column)) for column in columns]
        shown = [show(entry) if entry else "" for entry in entries]
        lines_of_table.append(f"| {' | '.join([row, *shown, show_runs(entry for entry in entries if entry)])} |")
    return "\n".join(lines_of_table)


def _row_and_column(name: str) -> tuple[str, str]:
    row, _, column = name.rpartition("; ")
    return (row, column) if row else (column, ONLY)


def _in_order(names: Iterable[str], old: Iterable[str]) -> list[str]:
    """Names in their older order, then new ones by their numbers and letters."""
    left = set(names)
    first = [name for name in dict.fromkeys(old) if name in left]
    return [*first, *sorted(left - set(first), key=_by_numbers)]


def _by_numbers(name: str) -> list[tuple[float, str]]:
    return [(float(part), "") if part[0].isdigit() else (math.inf, part) for part in re.findall(r"\d+|\D+", name)]


def pages() -> list[Path]:
    """Pages that may show figures."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
