"""What is written: where to, checked before any work is done for it; and how."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
from csv import writer as csv_writer
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from shlex import quote
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from faultlines import files
from faultlines.cli import streams
from faultlines.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from faultlines.cli.options import Output
    from faultlines.clustering import Clustering
    from faultlines.decide.certificate import Certificate
    from faultlines.result.selfcheck import SelfCheck

# JSON lets these stand as they are, and terminals act on some of them; escaped they are the same data.
_UNSEEN = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Targets:
    """Where results go; made by `checked`."""

    json: Path | None
    json_to_stdout: bool
    report: Path | None
    plots: tuple[Path, ...]
    title: str | None
    csv: Path | None = None
    csv_to_stdout: bool = False

    def say(self, words: str) -> None:
        """The result as text, unless stdout is taken by data."""
        if not self.json_to_stdout and not self.csv_to_stdout:
            streams.say(words)

    def write_csv(self, columns: Callable[[], Mapping[str, Sequence[Any]]]) -> None:
        """A table as csv to where it was wanted, if it was; it is made only then."""
        if self.csv is None and not self.csv_to_stdout:
            return
        made, written = columns(), StringIO()
        table = csv_writer(written, lineterminator="\n")
        table.writerow(made)
        for row in zip(*made.values(), strict=True):
            # Of several values, as of the clusters a group may belong to, one cell.
            table.writerow([" ".join(map(str, cell)) if isinstance(cell, list) else cell for cell in row])
        if self.csv_to_stdout:
            streams.say_data(written.getvalue().removesuffix("\n"))
        elif self.csv is not None:
            files.write("csv", self.csv, written.getvalue())

    def write_json(self, plain: str) -> None:
        """JSON to where it was wanted, if it was."""
        safe = _UNSEEN.sub(lambda found: f"\\u{ord(found.group()):04x}", plain)
        if self.json_to_stdout:
            streams.say_data(safe)
        elif self.json is not None:
            files.write("json", self.json, safe + "\n")

    def write(
        self,
        found: Sequence[Clustering],
        alpha: float,
        self_checks: Sequence[SelfCheck] = (),
        certificates: Sequence[Certificate | None] = (),
    ) -> None:
        """JSON, page and pictures of results; several are one list, one page, and numbered pictures."""
        if self.json is not None or self.json_to_stdout:
            plain = [one.summary() for one in found]
            for told, check in zip(plain, self_checks, strict=False):
                told["self_check"] = check.to_dict()
            for told, certificate in zip(plain, certificates, strict=False):
                told["certificate"] = None if certificate is None else certificate.to_dict()
            self.write_json(dumped(plain[0] if len(plain) == 1 else _together(plain, alpha)))
        if self.report is not None:
            from faultlines.clustering import write_page

            how = f"{len(found)} metrics, corrected by Holm at α = {alpha:g}"
            note = f"{how}: clusters differ where the adjusted p is below α."
            names = [one.groups.measure for one in found]
            several = note if len(found) > 1 else None
            write_page(
                found,
                names,
                self.report,
                title=self.title,
                note=several,
                command=command_line(),
                self_checks=self_checks,
                certificates=certificates,
            )
        for one, path in zip(found, self.plots, strict=False):
            from faultlines.show import chart

            chart.save(one._summary, path)


def command_line() -> str:
    """What was run, to be said on a page."""
    return " ".join(["faultlines", *(quote(word) for word in sys.argv[1:])])


def _together(plain: list[dict[str, Any]], alpha: float) -> dict[str, Any]:
    return {"correction": "holm", "alpha": alpha, "metrics": plain}


def dumped(plain: dict[str, Any]) -> str:
    """Plain data as JSON."""
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False, default=str)


# -------------------------------------------------------------------------------------------------- before the work


def checked(
    output: Output,
    inputs: Sequence[str | Path],
    results: int = 1,
    also: Sequence[Path] = (),
    csv: Path | None = None,
) -> Targets:
    """Where results can go.

    Args:
        output: What was asked for.
        inputs: The files that will be read, or patterns of them; ``-`` is standard input.
        results: How many results there will be.
        also: Other files that will be read.
        csv: Where a table goes, if one was asked for.

    Raises:
        InputError: If something could not be written after the work, if two outputs are one file, or if an output is
            a file that is read.
    """
    for option, path in (("--report", output.report), ("--plot", output.plot)):
        if path is not None:
            from faultlines.clustering import need_report

            need_report(option)
    to_stdout, csv_to_stdout = str(output.json) == "-", str(csv) == "-"
    if to_stdout and csv_to_stdout:
        raise InputError("--json, --csv", "both go to stdout", "Write one of them to a file.")
    table = None if csv is None or csv_to_stdout else files.target("csv", csv)
    whole = None if output.json is None or to_stdout else files.target("json", output.json)
    page = None if output.report is None else files.target("report", output.report, (".html", ".htm"))
    plots = () if output.plot is None else _pictures(output.plot, results)
    outputs = [("json", whole), ("csv", table), ("report", page), *(("plot", plot) for plot in plots)]
    named = [(option, path) for option, path in outputs if path is not None]
    for option, path in named:
        _check_writable(f"{option}={str(path)!r}", path)
    _check_distinct(named)
    if named:
        _check_not_read(named, inputs, also)
    return Targets(whole, to_stdout, page, plots, output.title, table, csv_to_stdout)


def _pictures(path: Path, results: int) -> tuple[Path, ...]:
    """One picture per result; several are numbered."""
    from faultlines.show.chart import target

    single = target(path)
    if results == 1:
        return (single,)
    return tuple(target(single.with_stem(f"{single.stem}-{i + 1}")) for i in range(results))


def _check_writable(shown: str, path: Path) -> None:
    """Refuse a name that is too long, a file that may not be replaced, a folder in which no file can be made."""
    place = Path(os.path.realpath(path))
    try:
        mode = _mode(place)
        if mode is not None and not os.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if mode is None or stat.S_ISREG(mode):  # a pipe or device is written to as it is
            with TemporaryFile(dir=place.parent):
                pass
    except OSError as error:
        raise files.unwritable(shown, error) from error


def _mode(place: Path) -> int | None:
    """What is there; None for nothing. Errors are errors, unlike in `Path.exists`."""
    try:
        return place.stat().st_mode
    except FileNotFoundError:
        return None


def _check_distinct(named: Sequence[tuple[str, Path]]) -> None:
    for i, (option, path) in enumerate(named):
        for other, earlier in named[:i]:
            if _same(path, earlier):
                raise InputError(
                    f"--{other}, --{option}", f"are the same file, {str(path)!r}", "Give each a name of its own."
                )


def _check_not_read(named: Sequence[tuple[str, Path]], inputs: Sequence[str | Path], also: Sequence[Path]) -> None:
    from faultlines.sources.paths import files as files_of

    read = [*also, *files_of([one for one in inputs if str(one) != "-"])]
    for option, path in named:
        for one in read:
            if _same(path, one):
                raise InputError(
                    f"{option}={str(path)!r}", "is a file that is read", "Give the output a name of its own."
                )


def _same(one: Path, other: Path) -> bool:
    """Whether two paths are one file, by name or by what is there under both."""
    try:
        return files.same(one, other) or one.samefile(other)
    except OSError:  # one of them is not there yet
        return False
