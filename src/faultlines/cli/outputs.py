"""What is written: where to, checked before any work is done for it; and how."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from csv import writer as csv_writer
from dataclasses import dataclass
from io import StringIO
from itertools import combinations, product
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from faultlines import checks, files
from faultlines.cli import streams
from faultlines.errors import Argument, InputError
from faultlines.formats import shell_word, spreadsheet_cell

if TYPE_CHECKING:
    from faultlines.cli.options import ExperimentOptions, Fresh, Output, Watched
    from faultlines.estimates.estimates import Estimates
    from faultlines.render.text import NextCommand
    from faultlines.results.certificate import Certificate
    from faultlines.results.clustering import Clustering
    from faultlines.results.protocol import Result
    from faultlines.results.self_check import SelfCheck

# JSON lets these stand as they are, and terminals act on some of them; escaped they are the same data.
_UNSEEN = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Targets:
    """Where results go; made by `checked`.

    Attributes:
        paths: The file of each option.
        stdout: The option whose data take the place of the text; "" for none.
        plots: The pictures, one for each result.
        title: What stands at the head of the page.
    """

    paths: Mapping[str, Path]
    stdout: str
    plots: tuple[Path, ...]
    title: str | None

    def say(self, words: str) -> None:
        """The result as text, unless stdout is taken by data."""
        if not self.stdout:
            streams.say(words)

    def say_result(self, result: Result) -> None:
        """A result as text that ends with the command to run next."""
        from faultlines.render.text import to_text

        self.say(to_text(result, spelling=complete_command))

    def wants(self, option: str) -> bool:
        """Whether an output was asked for."""
        return option == self.stdout or option in self.paths

    def write_result(self, result: Result, more: Mapping[str, Any] | None = None, **page: Any) -> None:
        """JSON, the table of groups, Markdown and the page of a result, of these what was wanted.

        Args:
            result: The result.
            more: What its JSON has beside its own.
            page: Options of its page.
        """
        from faultlines.results.protocol import TabularResult

        if self.wants("json"):
            self._write_json(result.to_dict() | dict(more or {}))
        if self.wants("csv") and isinstance(result, TabularResult):
            table, text = result.columns("groups"), StringIO()
            writer = csv_writer(text, lineterminator="\n")
            for row in [tuple(table), *zip(*table.values(), strict=True)]:
                writer.writerow([spreadsheet_cell(cell) for cell in row])
            self._put("csv", text.getvalue())
        if self.wants("markdown"):
            self._put("markdown", result.to_markdown())
        if self.wants("report"):
            result.report(self.paths["report"], title=self.title, command=command_line(), **page)

    def _put(self, option: str, text: str) -> None:
        if option == self.stdout:
            streams.print_data(text.removesuffix("\n"))
        else:
            files.write(option, self.paths[option], text)

    def _write_json(self, data: dict[str, Any]) -> None:
        from faultlines.results.protocol import json_text

        safe = _UNSEEN.sub(lambda match: f"\\u{ord(match.group()):04x}", json_text(data, 2))
        self._put("json", safe + "\n")

    def write(
        self,
        results: Sequence[Clustering],
        alpha: float,
        self_checks: Sequence[SelfCheck] = (),
        certificates: Sequence[Certificate | None] = (),
    ) -> None:
        """JSON, page and pictures of results; several are one list, one page, and numbered pictures."""
        if self.wants("json"):
            data = [result.to_dict() for result in results]
            for item, check in zip(data, self_checks, strict=False):
                item["self_check"] = check.to_dict()
            for item, certificate in zip(data, certificates, strict=False):
                item["certificate"] = None if certificate is None else certificate.to_dict()
            if len(data) > 1:
                from faultlines.render.clustering import RATIO
                from faultlines.render.collection import metrics_data

                for item in data:  # said once, before the metrics
                    item["notes"] = [note for note in item["notes"] if note["code"] != RATIO]
                self._write_json({**metrics_data(results), "metrics": data})
            else:
                self._write_json(data[0])
        if self.wants("report"):
            from faultlines.render.page import write_page

            count = f"{len(results)} metrics, corrected by Holm at α = {alpha:g}"
            note = f"{count}: clusters differ where the adjusted p is below α."
            write_page(
                results,
                [result.groups.metric for result in results],
                self.paths["report"],
                title=self.title,
                note=note if len(results) > 1 else None,
                command=command_line(),
                self_checks=self_checks,
                certificates=certificates,
            )
        for result, path in zip(results, self.plots, strict=False):
            from faultlines.render import chart

            chart.save(result, path)


def command_line() -> str:
    """What was run, to be said on a page."""
    return " ".join(["faultlines", *(shell_word(word) for word in sys.argv[1:])])


# ------------------------------------------------------------------------------------------- the command to run next

_FEW_FILES = 3  # files that are repeated by name
_OUTPUTS = ("json", "report")
_MODEL_COLUMNS = ("y-true", "y-pred", "score")
_OF_MODEL = (*_MODEL_COLUMNS, "threshold", "positive", "classes", "baseline", "baseline-score")

_TYPED: ContextVar[dict[str, Any]] = ContextVar("typed options", default={})  # noqa: B039 - never changed in place


@contextmanager
def typed_options(values: Mapping[str, Any]) -> Iterator[None]:
    """Remember what was typed while a command runs, by the names of its options."""
    typed = {name.replace("_", "-"): value for name, value in values.items() if value not in (None, [], ())}
    token = _TYPED.set(typed)
    try:
        yield
    finally:
        _TYPED.reset(token)


def complete_command(command: NextCommand) -> str:
    """A command of a result with the files and options that were typed; "" where it was typed already."""
    from faultlines.render.text import CLUSTERS, FILES, spell_options

    typed = _TYPED.get()
    if not command.name:
        return _repeat(command, typed)
    name, needs, may_need = _options_of(command, typed)
    options = [_complete_option(command, option, typed) or command.option(option) for option in needs]
    options += filter(None, (_complete_option(command, option, typed) for option in may_need))
    options += spell_options(command.changes)
    written = typed.get("json")
    is_written = written is not None and str(written) != "-"
    clusters = shell_word(str(written)) if is_written else "clusters.json"
    arguments = {FILES: _files(typed), CLUSTERS: clusters}
    places = [arguments.get(argument, argument) for argument in command.arguments]
    note = "" if is_written or CLUSTERS not in command.arguments else f" (--json {clusters} writes it)"
    return " ".join(["faultlines", name, *places, *options]) + note


def _options_of(command: NextCommand, typed: Mapping[str, Any]) -> tuple[str, Sequence[str], Sequence[str]]:
    """The command and the options that it needs and may need; those of models and tables are others."""
    from faultlines.render.text import CLUSTER

    if command.name != CLUSTER:
        return command.name, command.needs, command.may_need
    if "se" in typed:
        return "estimates", ("by", "estimate", "se"), ("n", "dof")
    if any(name in typed for name in _MODEL_COLUMNS):
        of_model = [name for name in _OF_MODEL if name in typed]
        return "model", ("by", "metric", *of_model), command.may_need
    return "experiment", command.needs, command.may_need


def _complete_option(command: NextCommand, name: str, typed: Mapping[str, Any]) -> str:
    """An option with the value that was typed for it, or that the result knows; "" without either."""
    from faultlines.render.text import spell_option

    value = typed.get(name)
    if value is not None:
        return spell_option(name, value if isinstance(value, list | tuple) else [value])
    return spell_option(name, command.known[name]) if name in command.known else ""


def _files(typed: Mapping[str, Any]) -> str:
    """The files that were typed, as long as they are few; or the query."""
    if "sql" in typed:
        return f"--sql {shell_word(str(typed['sql']))}"
    paths = [str(path) for path in typed.get("files", [])]
    return " ".join(map(shell_word, paths)) if 0 < len(paths) <= _FEW_FILES else "FILES"


def _repeat(command: NextCommand, typed: Mapping[str, Any]) -> str:
    """What was typed, with other options or files; "" where these outputs were asked for already."""
    from faultlines.render.text import FILES, spell_options

    if command.changes and all(name in _OUTPUTS and name in typed for name in command.changes):
        return ""
    words, paths = sys.argv[1:], {str(path) for path in typed.get("files", [])}
    is_on_others = command.arguments != (FILES,)
    if is_on_others or len(paths) > _FEW_FILES:
        words = _without(words, "sql")
        first = next((i for i, word in enumerate(words) if word in paths), 1)
        others = [word for word in words[first:] if word not in paths]
        words = [*words[:first], *command.arguments, *others]
    for name in command.changes:
        if name in typed and not isinstance(typed[name], list | tuple):
            words = _without(words, name)
    return " ".join(["faultlines", *map(shell_word, words), *spell_options(command.changes)])


def _without(words: Sequence[str], name: str) -> list[str]:
    """What was typed without an option and its value."""
    option = f"--{name}"
    return [
        word
        for i, word in enumerate(words)
        if word != option and not word.startswith(f"{option}=") and (i == 0 or words[i - 1] != option)
    ]


# -------------------------------------------------------------------------------------------------- before the work


def checked(
    output: Output,
    inputs: Sequence[str | Path],
    results: int = 1,
    also: Sequence[Path] = (),
    csv: Path | None = None,
    markdown: Path | None = None,
) -> Targets:
    """Where results can go.

    Args:
        output: What was asked for.
        inputs: The files that will be read, or patterns of them; ``-`` is standard input.
        results: How many results there will be.
        also: Other files that will be read.
        csv: Where a table goes, if one was asked for.
        markdown: Where a text goes, if one was asked for.

    Raises:
        InputError: If something could not be written after the work, if two outputs are one file, or if an output is
            a file that is read.
    """
    for option, path in (("report", output.report), ("plot", output.plot)):
        if path is not None:
            checks.need_report(option)
    wanted = {"json": output.json, "csv": csv, "markdown": markdown, "report": output.report}
    to_stdout = [option for option in ("json", "csv") if str(wanted[option]) == "-"]
    if len(to_stdout) > 1:
        raise InputError.conflict("json, csv", "both go to stdout", "Write one of them to a file.", form="clause")
    paths = {
        option: files.target(option, path, (".html", ".htm") if option == "report" else ())
        for option, path in wanted.items()
        if path is not None and option not in to_stdout
    }
    plots = () if output.plot is None else _pictures(output.plot, results)
    named = [*paths.items(), *(("plot", plot) for plot in plots)]
    for option, path in named:
        _check_writable(Argument(option, path), path)
    _check_distinct(named)
    if named:
        _check_not_read(named, inputs, also)
    return Targets(paths, "".join(to_stdout), plots, output.title)


def _pictures(path: Path, results: int) -> tuple[Path, ...]:
    """One picture per result; several are numbered."""
    from faultlines.render.chart import target

    single = target(path)
    if results == 1:
        return (single,)
    return tuple(target(single.with_stem(f"{single.stem}-{i + 1}")) for i in range(results))


def _check_writable(argument: Argument, path: Path) -> None:
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
        raise files.unwritable(argument, error) from error


def _mode(place: Path) -> int | None:
    """What is there; None for nothing. Errors are errors, unlike in `Path.exists`."""
    try:
        return place.stat().st_mode
    except FileNotFoundError:
        return None


def _check_distinct(named: Sequence[tuple[str, Path]]) -> None:
    for (other, earlier), (option, path) in combinations(named, 2):
        if _same(path, earlier):
            problem = f"are the same file, {str(path)!r}"
            raise InputError.duplicate(f"{other}, {option}", problem, "Give each a name of its own.")


def _check_not_read(named: Sequence[tuple[str, Path]], inputs: Sequence[str | Path], also: Sequence[Path]) -> None:
    from faultlines.engines.readers import find_files

    read = [*also, *find_files([source for source in inputs if str(source) != "-"])]
    for (option, path), source in product(named, read):
        if _same(path, source):
            raise InputError.conflict(option, "is a file that is read", "Give the output a name of its own.", str(path))


def _same(path: Path, other: Path) -> bool:
    """Whether two paths are one file, by name or by what is there under both."""
    try:
        return files.same(path, other) or path.samefile(other)
    except OSError:  # one of them is not there yet
        return False


# ---------- Data that are rows, or a table with one row per group: as the options of a command say.


def is_table(options: ExperimentOptions | Fresh | Watched) -> bool:
    """Whether files are a table with one row per group; refused where they can be neither that nor rows."""
    if options.estimate is not None or options.se is not None:
        return True
    if options.n is not None or options.dof is not None:
        raise InputError.conflict("n, dof", "need --estimate and --se", "Name these, or leave them out.")
    return False


def table_of(options: Fresh | Watched, *, measured: bool) -> Estimates:
    """The estimates of a table; `measured` says whether a metric was asked for, which goes with rows."""
    from faultlines.cli.metrics import column_names
    from faultlines.estimates.estimates import Estimates

    if measured:
        raise InputError.conflict("metric", "is measured in rows, not with --estimate and --se", "Leave it out.")
    if options.estimate is None or options.se is None or not options.by:
        problem = "a table with one row per group needs --by, --estimate and --se"
        raise InputError.missing("estimate, se", problem, "Name them.", form="clause")
    names = column_names(options.by)
    by = names[0] if len(names) == 1 else names
    return Estimates.from_frame(
        options.table(), by=by, estimate=options.estimate, se=options.se, n=options.n, dof=options.dof
    )
