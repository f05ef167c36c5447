"""What every result offers: a verdict as a code, a headline, notes, and the same ways out as data, text and page.

A result is a frozen value. What it says in words is made last, in `faultlines.render`; a result opens the doors to it.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from importlib import import_module
from importlib.metadata import version
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from faultlines import checks, formats
from faultlines.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

Columns = dict[str, list[Any]]
Rows = Literal["groups", "clusters", "pairs", "experiments", "comparisons", "metrics", "looks"]
Severity = Literal["info", "warning"]
NEXT = "next"  # the code of the note that says what to do next


@dataclass(frozen=True, slots=True)
class Note:
    """Something a reader must know beside the headline.

    Attributes:
        code: What it is about, for programs: ``"few events"``, ``"sample ratio"``, ``"excluded groups"``, …
        text: The same as a sentence, in one line: a line break or another control character in a name is made visible.
        severity: ``"warning"`` where the result may mislead without it, else ``"info"``.
        fields: The numbers behind the sentence.

    Example:
        >>> from faultlines.results import Note
        >>> Note("excluded groups", "1 group is excluded: PL.", "warning", {"groups": 1}).to_dict()
        {'code': 'excluded groups', 'severity': 'warning', 'text': '1 group is excluded: PL.'}
    """

    code: str
    text: str
    severity: Severity = "info"
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", formats.printable(self.text))

    def to_dict(self) -> dict[str, Any]:
        """The note as plain data.

        Returns:
            Its code, severity and text.
        """
        return {"code": self.code, "severity": self.severity, "text": self.text}


class Result(ABC):
    """What a public function returns.

    Every result has a `verdict` (a short code), a `headline` (one sentence) and `notes`; it prints itself, shows itself
    in a notebook, and leaves as plain data, JSON, Markdown or a page.

    Example:
        >>> import faultlines as fl
        >>> result = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> result.verdict, len(result.headline) > 0, all(note.code for note in result.notes)
        ('differ', True, True)
        >>> result.to_dict()["verdict"], result.to_json()[0], len(result.to_markdown()) > 100
        ('differ', '{', True)
        >>> result.report("page.html")
    """

    __slots__ = ()
    wording: ClassVar[str]  # the module of `faultlines.render` with its headline, notes and document
    json_keys: ClassVar[str] = ""  # the keys of `to_dict` behind the version, in their order

    if TYPE_CHECKING:  # frozen fields in some results, properties in others

        @property
        def verdict(self) -> str:
            """The outcome as a short code."""

    @property
    def headline(self) -> str:
        """The outcome in one sentence."""
        return formats.printable(str(self._wording().headline(self)))

    @property
    def notes(self) -> tuple[Note, ...]:
        """What a reader must know beside the headline; the last one, ``"next"``, says what to do now."""
        words = self._wording()
        following = words.next_step(self)
        return (*words.notes(self), *filter(None, [following]))

    def _wording(self) -> Any:
        """The module that says it in words."""
        return import_module(f"faultlines.render.{self.wording}")

    def to_dict(self) -> dict[str, Any]:
        """The whole result as plain data; an end that is not bounded is None.

        Returns:
            Dictionaries, lists, numbers and text, as `to_json` writes them.
        """
        own = self._plain_values()
        data = {key: own[key] if key in own else self._plain_value(key) for key in self.json_keys.split()}
        return {"faultlines": version("faultlines")} | data | own

    def _plain_value(self, key: str) -> Any:
        """What stands under a key: the field or property of that name."""
        return plain_data(getattr(self, key))

    def _plain_values(self) -> dict[str, Any]:
        """What stands under keys that have no field or property of their name, or not as it is; others come last."""
        return {}

    def to_json(self, *, indent: int | None = 2) -> str:
        """The whole result as JSON.

        Args:
            indent: How many spaces a level is indented by; None for one line.

        Returns:
            The text of the JSON.
        """
        return json_text(self.to_dict(), indent)

    def to_markdown(self) -> str:
        """Headline, table and notes as Markdown.

        Returns:
            The text, for an issue, a wiki or a chat.
        """
        from faultlines.render import text

        return text.to_markdown(self)

    def __str__(self) -> str:
        from faultlines.render import text

        return text.to_text(self)

    def _repr_html_(self) -> str:
        from faultlines.render import text

        return text.to_html(self)

    def report(self, path: str | PathLike[str], *, title: str | None = None, command: str | None = None) -> None:
        """Write one page to hand over: a file that needs no network and nothing beside it.

        Args:
            path: Where to, such as ``"out.html"``.
            title: What stands at its head: the experiment, the model, the date.
            command: What reproduces it, to be said on the page.

        Raises:
            InputError: If the extra ``report`` is not installed, or the file cannot be written.
        """
        from faultlines.render.page import write_report

        write_report(self, path, title=title, command=command)


class TabularResult(Result):
    """A result whose rows can be had as dictionaries and frames."""

    __slots__ = ()
    row_kinds: ClassVar[tuple[Rows, ...]] = ("groups", "clusters")  # the first is what rows are where nothing is said

    @abstractmethod
    def columns(self, rows: Rows) -> Columns:
        """The columns of its rows.

        Args:
            rows: What a row is.

        Returns:
            The columns by name.
        """

    def _plain_value(self, key: str) -> Any:
        for kind in self.row_kinds:
            if kind == key:
                return self.to_dicts(kind)
        return super()._plain_value(key)

    def _columns(self, rows: Rows | None) -> Columns:
        kind = self.row_kinds[0] if rows is None else rows
        checks.choice("rows", kind, self.row_kinds, f"Use {' or '.join(map(repr, self.row_kinds))}.")
        return self.columns(kind)

    def _frame_columns(self, rows: Rows | None) -> Columns:
        """The same as frames take it: half characters (lone surrogates) are made visible."""
        encoded: Columns = {}
        for name, values in self._columns(rows).items():
            plain = _encodable(name)
            while plain in encoded:
                plain += "_"
            encoded[plain] = _encodable(values)
        return encoded

    def to_dicts(self, rows: Rows | None = None) -> list[dict[str, Any]]:
        """One dictionary per row: by default per group; of several results, per result.

        Excluded groups have no cluster, and the reason beside them.

        Args:
            rows: ``"groups"``, ``"clusters"``, ``"pairs"`` where a result has pairs of clusters, or ``"experiments"``
                or ``"comparisons"`` where it has several.

        Returns:
            The rows, each from column to value.

        Example:
            >>> import faultlines as fl
            >>> c = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
            >>> [(row["group"], row["cluster"]) for row in c.to_dicts()]
            [('DE', 1), ('FR', 1), ('IN', 2)]
        """
        return dicts_of(self._columns(rows))

    def to_pandas(self, rows: Rows | None = None) -> pd.DataFrame:
        """The same rows as a pandas frame.

        Args:
            rows: See `to_dicts`.

        Returns:
            The frame.

        Raises:
            InputError: If pandas is not installed.

        Example:
            >>> import faultlines as fl
            >>> c = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
            >>> c.to_pandas("clusters")["estimate"].round(2).to_list()
            [0.05, 5.0]
        """
        columns = self._frame_columns(rows)
        frame: pd.DataFrame = _frame_library("pandas").DataFrame(columns)
        by_group = (self.row_kinds[0] if rows is None else rows) == "groups"
        # Where a result has no clusters, an attribute may have that name.
        is_number = all(value is None or isinstance(value, int) for value in columns.get("cluster", ["none"]))
        return frame.astype({"cluster": "Int64"}) if is_number and by_group else frame

    def to_polars(self, rows: Rows | None = None) -> pl.DataFrame:
        """The same rows as a Polars frame.

        Args:
            rows: See `to_dicts`.

        Returns:
            The frame.

        Raises:
            InputError: If Polars is not installed.

        Example:
            >>> import faultlines as fl
            >>> c = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
            >>> c.to_polars()["cluster"].to_list()
            [1, 1, 2]
        """
        frame: pl.DataFrame = _frame_library("polars").DataFrame(self._frame_columns(rows), strict=False)
        return frame

    def to_arrow(self, rows: Rows | None = None) -> pa.Table:
        """The same rows as an Arrow table.

        Args:
            rows: See `to_dicts`.

        Returns:
            The table.

        Raises:
            InputError: If PyArrow is not installed.

        Example:
            >>> import faultlines as fl
            >>> c = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
            >>> c.to_arrow()["cluster"].to_pylist()
            [1, 1, 2]
        """
        table: pa.Table = _frame_library("pyarrow").table(self._frame_columns(rows))
        return table


def _frame_library(name: str) -> Any:
    """A library of frames, if it is installed."""
    try:
        return import_module(name)
    except ImportError as error:
        method = f"to_{'arrow' if name == 'pyarrow' else name}()"
        raise InputError.not_installed(method, f"needs {name}", f"Run: pip install {name}") from error


def _encodable(value: Any) -> Any:
    """Text, or all text in a list, that can be encoded; other values as they are."""
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "replace").decode()
    return value


def plain_data(value: Any) -> Any:
    """A value as JSON has it: dictionaries, lists, numbers and text; None for infinities, which JSON has none of."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return {each.name: plain_data(getattr(value, each.name)) for each in fields(value)}
    if hasattr(value, "_asdict"):
        return plain_data(value._asdict())
    if isinstance(value, Mapping):
        return {key: plain_data(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [plain_data(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def probability(log_p: float) -> float:
    """A probability from its logarithm, at least the smallest positive double."""
    return float(max(np.exp(log_p), np.nextafter(0.0, 1.0)))


def dicts_of(columns: Columns) -> list[dict[str, Any]]:
    """Columns as one dictionary per row."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def json_text(data: dict[str, Any], indent: int | None) -> str:
    """Plain data as JSON."""
    if indent is not None:
        problem = "must be a whole number from 0 to 100, or None"
        checks.number("indent", indent, problem, "Use {indent}.", low=0, high=100, whole=True, settings={"indent": 2})
    text = json.dumps(data, indent=indent, ensure_ascii=False, allow_nan=False, default=str)
    return re.sub(r"[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)  # half a character, escaped


def stack_columns(column: str, parts: Sequence[tuple[str, Columns]]) -> Columns:
    """The columns of several results below each other, with a first column that names the result.

    A result that lacks one of the columns has nothing in it.
    """
    names = list(dict.fromkeys(name for _, columns in parts for name in columns))
    sizes = [len(next(iter(columns.values()))) for _, columns in parts]
    stacked: Columns = {column: [name for (name, _), size in zip(parts, sizes, strict=True) for _ in range(size)]}
    for name in names:
        values = [columns.get(name, [None] * size) for (_, columns), size in zip(parts, sizes, strict=True)]
        stacked[name if name != column else f"{name}_"] = [value for part in values for value in part]
    return stacked
