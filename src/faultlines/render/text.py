"""Results as text: for the terminal, as Markdown and for a notebook."""

from __future__ import annotations

import html
from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple

from faultlines import checks, formats
from faultlines.results.clustering import Clustering
from faultlines.results.protocol import NEXT, Note

if TYPE_CHECKING:
    from faultlines.results.protocol import Result

Spelling = Literal["python", "command", "omit"]


class TextTable(NamedTuple):
    """Header, rows and the columns that are right-aligned."""

    header: list[str]
    rows: list[list[str]]
    right: set[int]


class Document(NamedTuple):
    """What a result is as text: opening sentences, tables, closing lines."""

    opening: list[str]
    tables: list[TextTable]
    closing: list[str]


def next_note(purpose: str, call: str, command: str | None) -> Note:
    """What to do next, in one line; `purpose` ends where the call begins.

    Args:
        purpose: What for: ``"confirm on new data with"``.
        call: The call in Python.
        command: What to type on the command line; None where nothing is typed there.
    """
    return Note(NEXT, f"Next: {purpose} {call}", fields={"purpose": purpose, "call": call, "command": command})


def next_lines(step: Note | None, spelling: Spelling) -> list[str]:
    """What to do next as one line, or none."""
    if step is None or spelling == "omit":
        return []
    if spelling == "python":
        return [step.text]
    command = step.fields["command"]
    return [] if command is None else [formats.printable(f"Next: {step.fields['purpose']} {command}")]


def document(result: Result, *, complete: bool = False, spelling: Spelling = "python") -> Document:
    """The parts of a result as text, what to do next last.

    Args:
        result: The result.
        complete: Without bars, but with all rows and members.
        spelling: How to say what to do next: as a call in Python, as a command, or not at all.
    """
    words = import_module(f"faultlines.render.{result.wording}")
    parts: Document = words.document(result, complete=complete)
    return parts._replace(closing=[*parts.closing, *next_lines(words.next_step(result), spelling)])


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
