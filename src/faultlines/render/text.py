"""Results as text: for the terminal, as Markdown and for a notebook; what to do next; groups in few words."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np

from faultlines import checks, formats
from faultlines.estimates.labels import Names, Range, naming
from faultlines.results.clustering import Clustering
from faultlines.results.protocol import NEXT, Note, Result
from faultlines.results.rules import Attribute, Box, Population
from faultlines.types import BoolArray, FloatArray, IntArray

Spelling = Literal["python", "command", "omit"] | Callable[["NextCommand"], str]
Hidden = Literal["row", "note", "treatment"]  # what a text may leave out


CLUSTER = "cluster"  # estimates, experiment or model: the one that reads such data
FILES = "FILES"  # the files that were typed
CLUSTERS = "CLUSTERS.json"  # the file that --json was given, or will be
OF_METRIC = ("treatment", "unit", "overlap", "shares", "covariate", "weight", "aggregate", "cap", "min-size")

_COLUMN = "COLUMN"
_PLACEHOLDERS = {"metric": f"KIND:{_COLUMN}", "control": "VALUE"}


class TextTable(NamedTuple):
    """Header, rows and the columns that are right-aligned."""

    header: list[str]
    rows: list[list[str]]
    right: set[int]


class Document(NamedTuple):
    """What a result is as text: opening sentences, tables, closing lines.

    Attributes:
        opening: The sentences it begins with.
        tables: The tables.
        closing: The lines it ends with.
        hidden: How much is not shown, by what it is: where to find it is said in the spelling of the reader.
    """

    opening: list[str]
    tables: list[TextTable]
    closing: list[str]
    hidden: Mapping[Hidden, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class NextCommand:
    """A command to run next, whose options come from what was typed, or from the result.

    Attributes:
        name: The command; `CLUSTER` for the one that clusters such data, "" for the one that was typed.
        arguments: What stands before the options: files, `FILES` for those that were typed.
        needs: Options that it needs, as they were typed; a placeholder stands for one that was not.
        may_need: Options that it takes over if they were typed.
        known: Values of options that the result knows; those that were typed go first.
        changes: Options that are given other values than those that were typed, or are added.
    """

    name: str = ""
    arguments: tuple[str, ...] = (FILES,)
    needs: tuple[str, ...] = ()
    may_need: tuple[str, ...] = ()
    known: Mapping[str, Sequence[str]] = field(default_factory=dict)
    changes: Mapping[str, str] = field(default_factory=dict)

    def words(self) -> str:
        """The command where nothing is known of what was typed: ``faultlines srm FILES --by COLUMN``."""
        if self.name:
            named = [*self.needs, *(name for name in self.may_need if name in self.known)]
            options = [*(self.option(name) for name in named), *spell_options(self.changes)]
            name = "experiment" if self.name == CLUSTER else self.name
            return " ".join(["faultlines", name, *self.arguments, *options])
        if self.changes:
            return f"the same command with {' '.join(spell_options(self.changes))}"
        return "the same command" + ("" if self.arguments == (FILES,) else f" on {' '.join(self.arguments)}")

    def option(self, name: str) -> str:
        """An option with the value that the result knows, or with a placeholder."""
        values = self.known.get(name)
        if values is None:
            return f"--{name} {_PLACEHOLDERS.get(name, _COLUMN)}"
        return spell_option(name, values)


def cluster_again(*arguments: str) -> NextCommand:
    """The command that clusters the rows that were typed, with the same metric."""
    return NextCommand(CLUSTER, arguments or (FILES,), ("by", "metric", "variant", "control"), OF_METRIC)


def find_mismatch(known: Mapping[str, Sequence[str]] | None = None) -> NextCommand:
    """The command that looks for the cause of a sample ratio mismatch."""
    return NextCommand("srm", needs=("by", "variant"), may_need=("unit", "shares"), known=known or {})


def spell_options(options: Mapping[str, str]) -> list[str]:
    """Options as they are typed."""
    return [spell_option(name, [value]) for name, value in options.items()]


def spell_option(name: str, values: Sequence[object]) -> str:
    """An option as it is typed: once for each value; without any where it is a flag."""
    return " ".join(f"--{name}" if value is True else f"--{name} {formats.shell_word(str(value))}" for value in values)


def next_note(purpose: str, call: str, command: NextCommand | None) -> Note:
    """What to do next, in one line; `purpose` ends where the call begins.

    Args:
        purpose: What for: ``"confirm on new data with"``.
        call: The call in Python.
        command: The command that does it; None where nothing is typed there.
    """
    return Note(NEXT, f"Next: {purpose} {call}", fields={"purpose": purpose, "call": call, "command": command})


def next_lines(step: Note | None, spelling: Spelling) -> list[str]:
    """What to do next as one line, or none."""
    if step is None or spelling == "omit":
        return []
    if spelling == "python":
        return [step.text]
    command: NextCommand | None = step.fields["command"]
    if command is None:
        return []
    words = command.words() if spelling == "command" else spelling(command)
    return [formats.printable(f"Next: {step.fields['purpose']} {words}")] if words else []


# Where what is not shown can be found: in Python, and on the command line.
_FOUND: dict[Hidden, tuple[str, str]] = {
    "row": ('.to_dicts("groups")', "--csv FILE"),
    "note": (".notes", "--json FILE"),
    "treatment": (".arm_effects", "--json FILE"),
}


def hidden_lines(hidden: Mapping[Hidden, int], spelling: Spelling) -> list[str]:
    """How much is not shown, and where it is: ``8 more rows: --csv FILE``."""
    column = 0 if spelling == "python" else 1
    return [f"{formats.amount(count, f'more {what}')}: {_FOUND[what][column]}" for what, count in hidden.items()]


def document(result: Result, *, complete: bool = False, spelling: Spelling = "python") -> Document:
    """The parts of a result as text, what to do next last.

    Args:
        result: The result.
        complete: Without bars, but with all rows and members.
        spelling: How to say what to do next: as a call in Python, as a command, or not at all. A function fills in what
            was typed.
    """
    words = import_module(f"faultlines.render.{result.wording}")
    parts: Document = words.document(result, complete=complete)
    hidden = hidden_lines(parts.hidden, spelling)
    return parts._replace(closing=[*parts.closing, *hidden, *next_lines(words.next_step(result), spelling)])


def to_text(result: Result, *, spelling: Spelling = "python") -> str:
    """A result for the terminal; `spelling` as in `document`."""
    parts = document(result, spelling=spelling)
    # Cleaned before they are joined: a line break in a name would make a line of its own.
    opening, closing = (list(map(formats.printable, lines)) for lines in (parts.opening, parts.closing))
    blocks = ["\n".join(opening), *(formats.table(*table) for table in parts.tables), "\n".join(closing)]
    return "\n\n".join(filter(None, blocks))


def to_markdown(result: Result) -> str:
    """A result as Markdown, with all rows."""
    parts = document(result, complete=True)
    opening = [formats.markdown(text) for text in parts.opening]
    tables = [formats.markdown_table(*table) for table in parts.tables]
    closing = ["\n".join(formats.markdown(text) for text in parts.closing)] if parts.closing else []
    return "\n\n".join([*opening, *tables, *closing]) + "\n"


def to_html(result: Result) -> str:
    """A result for a notebook; a clustering with its picture."""
    parts = document(result)
    picture = ""
    if isinstance(result, Clustering) and not checks.missing_for_report() and result.groups.estimates is not None:
        from faultlines.render.vega import figure

        picture = figure(result)
    first, *more = (html.escape(formats.printable(text)) for text in parts.opening)
    opening = f"<p><strong>{first}</strong></p>" + "".join(f"<p>{text}</p>" for text in more)
    tables = "".join(formats.html_table(*table) for table in parts.tables)
    closing = "".join(f"<p>{html.escape(formats.printable(text))}</p>" for text in parts.closing)
    return f"<div>{opening}{picture}{tables}{closing}</div>"


# ------------------------------------------------------------------------------------------------------ groups in words


_SEARCHED = 20_000  # groups of several attributes up to which those that go together are named together


class GroupText(NamedTuple):
    """Groups in words.

    Attributes:
        text: The words.
        is_complete: Whether all of the groups are named.
        is_one: Whether it is one condition or list of names, and not several with semicolons between them.
    """

    text: str
    is_complete: bool
    is_one: bool = True


def supported_p(c: Clustering, log_p: float) -> str:
    """A p as a statement, no smaller than the rows support: ``p < 0.001``."""
    return formats.p_statement(supported_pvalue(c, log_p))


def supported_pvalue(c: Clustering, log_p: float) -> str:
    """The same as a number: ``< 0.001``."""
    floor = c.pvalue_floor
    if floor is None or log_p >= math.log(floor.pvalue):
        return formats.pvalue(log_p)
    return f"< {formats.pvalue(math.log(floor.pvalue))}"


def name_groups(population: Population, places: IntArray, room: int, attributes: Sequence[str] = ()) -> GroupText:
    """Groups by name, the largest first, in about `room` characters; those that are not named are counted.

    Groups of several attributes are named by them, and groups that share values together: ``race Black, sex men, age
    40–49 or 60+; race Other, sex women, age 20–29; … +5``. Excluded groups are not named.

    Args:
        population: All groups.
        places: Which of them.
        room: How long the text may become; one name is always there.
        attributes: Those by which the groups can be named; all by default.
    """
    ordered = places if population.sizes is None else places[np.argsort(-population.sizes[places], kind="stable")]
    if len(population.keys) > _SEARCHED or (isinstance(population.keys, Names) and not _is_range(population, places)):
        keys = population.keys
        names, named = formats.list_members(
            [keys[i] for i in ordered.tolist()], naming([column.name for column in population.columns]), room
        )
        return GroupText(names, named == ordered.size)
    by_name = zip(population.attributes, population.columns, strict=True)
    columns = [column for name, column in by_name if not attributes or name in attributes]
    return _name_together(population, columns, ordered, room)


def _is_range(population: Population, places: IntArray) -> bool:
    """Whether groups by one attribute read as one or two ranges of it; a single bin is one."""
    column = population.columns[0]
    if len(places) == 1:
        return isinstance(column.values[int(column.codes[places[0]])], Range)
    inside = np.zeros(len(column.values), dtype=bool)
    inside[column.codes[places]] = True
    return column.is_ordered and len(column.runs(inside)) <= 2


def _name_together(population: Population, columns: Sequence[Attribute], places: IntArray, room: int) -> GroupText:
    """Boxes around the largest groups that are left, until the room is used."""
    left = np.zeros(len(population.keys), dtype=bool)
    left[places] = True
    texts: list[str] = []
    used = 0
    for place in places.tolist():
        if not left[place]:
            continue
        box, inside = _around(columns, population.sizes, place, left)
        words = _words(columns, box, left.size)
        if not texts and len(words) > room:  # one group by its name rather than a part of a long list
            inside = np.arange(left.size) == place
            words = _words(columns, [np.arange(len(c.values)) == c.codes[place] for c in columns], left.size)
        rest = int(left.sum() - inside.sum())
        if texts and used + len(words) + (len(f"; … +{rest}") if rest else 0) > room:
            return GroupText(f"{'; '.join(texts)}; … +{formats.count(left.sum())}", False, False)
        texts.append(words)
        used += len(words) + 2
        left &= ~inside
    return GroupText("; ".join(texts), True, len(texts) == 1)


def _words(columns: Sequence[Attribute], box: Sequence[BoolArray], groups: int) -> str:
    """The conditions of a box, given the number of groups."""
    named = zip(columns, box, strict=True)
    texts = [column.words(allowed) for column, allowed in named if not allowed.all()]
    return ", ".join(texts) or f"all {formats.count(groups)} groups"


def _around(
    columns: Sequence[Attribute], weight: FloatArray | None, place: int, left: BoolArray
) -> tuple[Box, BoolArray]:
    """A box around one group that holds no others than those that are left, as many people as it can; and these.

    One attribute at a time, all values are added with which it still holds only such groups.
    """
    box = [np.arange(len(column.values)) == column.codes[place] for column in columns]
    while True:
        best, gained, wider = -1, 0.0, box[0]
        for i, column in enumerate(columns):
            elsewhere = np.ones(left.size, dtype=bool)
            for j, other in enumerate(columns):
                if j != i:
                    elsewhere &= box[j][other.codes]
            count = len(column.values)
            wrong = np.bincount(column.codes[elsewhere & ~left], minlength=count) > 0
            right = elsewhere & left
            free = (np.bincount(column.codes[right], minlength=count) > 0) & ~wrong & ~box[i]
            added = right & free[column.codes]
            gain = float(added.sum() if weight is None else weight[added].sum() + added.sum() * 1e-9)
            if gain > gained:
                best, gained, wider = i, gain, box[i] | free
        if best < 0:
            inside = np.ones(left.size, dtype=bool)
            for allowed, column in zip(box, columns, strict=True):
                inside &= allowed[column.codes]
            return tuple(box), inside
        box[best] = wider
