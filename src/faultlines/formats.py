"""How numbers, intervals and tables look as text, Markdown and HTML: plain values in, strings out."""

from __future__ import annotations

import html
import math
import re
import shlex
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args

Unit = Literal["", "%", " points"]  # what stands behind a number: shares are in percent, their differences in points
UNITS: tuple[Unit, ...] = get_args(Unit)

_BAR = 20
_UNSEEN = {"Cc", "Cs", "Cn", "Co", "Zl", "Zp"}
_TURNING = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# Names of attributes that have a plural people would write; others are "groups by schid".
_NOUNS = frozenset(
    "account age app brand browser campaign category channel cell city class cohort continent country county customer "
    "day department device district domain education gender group hospital hour industry job lab land language market "
    "model month occupation page plan platform product project prompt provider race region school segment sex shop "
    "site source state store study subject task team tier topic type user variant version week year zip".split()
)
# Units that are counted: names of columns, without the ending of an id, that have a plural people would write.
_UNITS = frozenset(
    "account applicant business buyer case city client clinic company conversation customer device document "
    "driver employee family firm hospital household item listing market member merchant order patient player "
    "product prompt pupil query question rider school seller session shop store student subject subscriber "
    "subscription supplier team tenant thread ticket user vehicle vendor visit visitor workspace".split()
)
_ID = re.compile(r"(_?(id|key|uuid|hash|no|nr|number)|(Id|ID|Key|Uuid|UUID))$")


def pvalue(log_p: float) -> str:
    """A p-value from its logarithm: two digits, and "< 1e-10" for what is below that."""
    exponent = log_p / math.log(10)
    if exponent < -10:
        return "< 1e-10"
    if exponent > -4:
        text = f"{math.exp(log_p):.2g}"
        return text if text != "1" or log_p > math.log(0.999) else "0.99"
    power = math.floor(exponent)
    mantissa = f"{10 ** (exponent - power):.1f}"
    return f"1e{power + 1}" if mantissa == "10.0" else f"{mantissa.removesuffix('.0')}e{power}"


def p_is(log_p: float) -> str:
    """The same as a statement: ``p = 0.031`` or ``p < 1e-10``."""
    return p_statement(pvalue(log_p))


def p_statement(text: str) -> str:
    """A p that is written already as a statement."""
    return f"p {text}" if text.startswith("<") else f"p = {text}"


class NumberFormat(NamedTuple):
    """How a number is written: called with one, it gives the text.

    Attributes:
        spec: Python's format of the number.
        unit: What stands behind it.
    """

    spec: str
    unit: Unit = ""

    def __call__(self, value: float) -> str:
        """The number with its unit."""
        return f"{self.bare(value)}{self.unit}" if not math.isinf(value) else self.bare(value)

    def bare(self, value: float) -> str:
        """The number alone, where a header has its unit; what is infinite is shown as such."""
        if math.isinf(value):
            return "−∞" if value < 0 else "∞"
        return f"{100 * value if self.unit else value:{self.spec}}"

    def interval(self, lower: float, upper: float) -> str:
        """Two ends; a unit that is a word stands behind both."""
        if self.unit == " points":
            return f"{self.bare(lower)} … {self.bare(upper)}{self.unit}"
        return f"{self(lower)} … {self(upper)}"


def decimals(errors: Sequence[float], values: Sequence[float], signed: bool = True, unit: Unit = "") -> NumberFormat:
    """A number format for estimates whose standard errors are `errors`: two digits of the smallest one.

    Args:
        errors: Standard errors; where none is above zero, three digits of the values are shown.
        values: What will be shown.
        signed: Whether a plus sign says something.
        unit: What they are shown in: values with a unit are shares, or differences of shares.
    """
    factor = 100.0 if unit else 1.0
    largest = max((abs(factor * value) for value in values), default=1.0)
    smallest = factor * min((error for error in errors if error > 0), default=(largest or 1.0) / factor / 1e3)
    largest = max(smallest, largest)
    places = 1 - math.floor(math.log10(smallest))
    if largest < 1e15 and places <= 9:
        sign = "+" if signed else ""
        return NumberFormat(f"{sign}z,.{max(places, 0)}f", unit)  # z: never a negative zero
    digits = math.floor(math.log10(largest)) + places + 1
    return NumberFormat(f"+.{min(max(digits, 3), 17)}g", unit)


def count(value: float) -> str:
    """A size with separators: 12,345."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def amount(number: int, thing: str) -> str:
    """A number of things: ``1 group``, ``1,200 groups``."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def share(value: float, digits: int = 0) -> str:
    """A share in per cent; what is not all and not nothing never reads as 100% or 0%."""
    text = f"{100 * value:.{digits}f}"
    if 0 < value < 1 and float(text) in (0.0, 100.0):
        edge = 10.0**-digits
        return f"under {edge:g}%" if value < 0.5 else f"over {100 - edge:.{digits}f}%"
    return f"{text}%"


def level(alpha: float) -> str:
    """The level of an interval: 95%, or 1 − α where percent would read as all."""
    return f"{100 - float(f'{100 * alpha:.2g}'):.12g}%" if alpha >= 1e-10 else f"1 − {alpha:.2g}"


def bar(low: float, middle: float, high: float, scale: tuple[float, float]) -> str:
    """An interval as a small drawing on a common scale, with a mark at zero when that is on it."""
    start, stop = scale
    span = stop - start

    def at(value: float) -> int:
        return 0 if span <= 0 else min(_BAR - 1, max(0, round((value - start) / span * (_BAR - 1))))

    cells = [" "] * _BAR
    if start < 0 < stop:
        cells[at(0.0)] = "┊"
    for i in range(at(low), at(high) + 1):
        cells[i] = "─"
    if at(low) < at(middle):
        cells[at(low)] = "├"
    if at(high) > at(middle):
        cells[at(high)] = "┤"
    cells[at(middle)] = "●"
    return "".join(cells)


def printable(words: str) -> str:
    """Text with control characters made visible, and those that reverse the order of what follows; joiners stay."""
    if words.isprintable():
        return words
    return "".join("�" if unicodedata.category(c) in _UNSEEN or c in _TURNING else c for c in words)


def printable_lines(words: str) -> str:
    """The same for text of several lines."""
    return "\n".join(printable(line) for line in words.split("\n"))


def printable_data(value: Any) -> Any:
    """The same for all text in lists and dictionaries, keys included."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable_data(key): printable_data(item) for key, item in value.items()}
    return [printable_data(item) for item in value] if isinstance(value, list | tuple) else value


_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # what spreadsheets begin a formula with


def shell_word(text: str) -> str:
    """Text as a shell takes it for one word; a query keeps its own single quotes, between double ones.

    Args:
        text: Any text.

    Returns:
        The word to type.

    Example:
        >>> print(shell_word("select * from 'visits.csv'"), shell_word("two words"), shell_word("one"))
        "select * from 'visits.csv'" 'two words' one
    """
    is_plain_between_double_quotes = not set(text) & set('"$`\\!')
    return f'"{text}"' if "'" in text and is_plain_between_double_quotes else shlex.quote(text)


def spreadsheet_cell(value: Any) -> Any:
    """A value as a cell that no spreadsheet runs: text that begins like a formula gets an apostrophe before it.

    Control characters are made visible, for csv is printed to terminals too. Numbers stay as they are, also as text.
    """
    if isinstance(value, list | tuple):  # of several values, as of the clusters a group may belong to, one cell
        value = " ".join(map(str, value))
    if not isinstance(value, str):
        return value
    words = printable(value)
    return f"'{words}" if value.lstrip(" ").startswith(_FORMULA) and not _NUMBER.fullmatch(value) else words


_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def first_few(words: Sequence[str], most: int, total: int | None = None) -> list[str]:
    """The first words, and how many more there are: ``["DE", "FR", "… +12"]``; `total` where not all are given."""
    total = len(words) if total is None else total
    return [*words[:most], *([_more(total - most)] if total > most else [])]


def _more(count: int) -> str:
    return f"… +{count:,}"


class Listing(NamedTuple):
    """Names in one line, and whether these are all of them."""

    text: str
    is_complete: bool


def members(labels: Sequence[Any], name: Callable[[Any], str], width: int, apart: str = ", ") -> str:
    """Names in one line of about `width` characters, the rest counted: ``DE, FR, … +12``."""
    return list_members(labels, name, width, apart)[0]


def list_members(labels: Sequence[Any], name: Callable[[Any], str], width: int, apart: str = ", ") -> tuple[str, int]:
    """The same, and how many of them are named."""
    texts: list[str] = []
    used = 0
    for i, label in enumerate(labels):
        left = len(labels) - i - 1
        full = printable(name(label))
        clipped = full if len(full) <= width else f"{full[: width - 1]}…"
        tail = len(f"{apart}{_more(left)}") if left else 0
        if texts and used + len(clipped) + 2 + tail > width:
            return apart.join(texts) + f"{apart}… +{len(labels) - len(texts):,}", len(texts)
        texts.append(clipped)
        used += len(clipped) + 2
    return apart.join(texts), len(texts)


def either(words: Sequence[str]) -> str:
    """A choice in words: ``1``, ``1 or 2``, ``1, 2 or 3``."""
    return " or ".join([", ".join(words[:-1]), *words[-1:]] if len(words) > 1 else words)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: set[int]) -> str:
    """Columns padded to their widest cell; those in `right` are right-aligned. No cell breaks its line."""
    header, rows = list(map(printable, header)), [list(map(printable, row)) for row in rows]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = (c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True)))
        return "  ".join(padded).rstrip()

    return "\n".join([line(header), *(line(row) for row in rows)])


def markdown(words: str) -> str:
    """Text that Markdown shows as it is: nothing in it ends a cell, starts HTML or becomes a link."""
    words = printable(words.replace("\n", " ")).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    words = re.sub(r"([\\`*\[\]|])", r"\\\1", words)
    # GitHub makes links of bare addresses.
    return re.sub(r"(?i)\b(www)\.", r"\1&#46;", words.replace("://", "&#58;//").replace("@", "&#64;"))


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: set[int]) -> str:
    """A Markdown table; see `markdown`."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(markdown(cell) for cell in cells) + " |"

    rule = "|" + "|".join("---:" if i in right else "---" for i in range(len(header))) + "|"
    return "\n".join([line(header), rule, *(line(row) for row in rows)])


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: set[int]) -> str:
    """An HTML table; everything is escaped."""

    def line(cells: Sequence[str], tag: str) -> str:
        sides = ["right" if i in right else "left" for i in range(len(cells))]
        styled = (
            f'<{tag} style="text-align:{side};white-space:pre">{html.escape(printable(cell))}</{tag}>'
            for side, cell in zip(sides, cells, strict=True)
        )
        return f"<tr>{''.join(styled)}</tr>"

    return f"<table>{line(header, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence: ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([", ".join(names[:-1]), *names[-1:]] if len(names) > 1 else names)


def plural(attributes: Sequence[str]) -> str:
    """Groups by some attributes in words: ``countries``, ``groups by zip_code``, ``groups by country × device``."""
    name = attributes[0] if len(attributes) == 1 else ""
    if name not in _NOUNS:
        by = " × ".join(attributes)
        return f"groups by {by}" if by != "group" else "groups"
    return _plural(name)


def unit_name(column: str | None) -> str:
    """What rows of a unit are counted as: ``users`` for user or user_id, ``units`` for a column like schid."""
    noun = _unit_noun(column) if isinstance(column, str) else None  # what is no column is refused where it is read
    return "rows" if column is None else "units" if noun is None else _plural(noun)


def one_unit(column: str) -> str:
    """What one unit is called: ``user`` for user_id, and the column itself where that has no noun in it."""
    return _unit_noun(column) or column


def _unit_noun(column: str) -> str | None:
    noun = _ID.sub("", column).lower()
    return noun if noun in _UNITS else None


def _plural(name: str) -> str:
    if name.endswith("y") and name[-2:-1] not in set("aeiou"):
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith(("s", "x", "z", "ch", "sh")) else f"{name}s"
