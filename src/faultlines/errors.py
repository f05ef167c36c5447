"""The one error a user of faultlines should ever see: a code and fields for programs, a sentence for people.

A raise site gives fields: the parameter, what was given for it, what is wrong, what to do. The sentence is made of them
last, in the spelling of who reads it: ``alpha=0.05`` in Python, ``--alpha 0.05`` on the command line.
"""

from __future__ import annotations

import copy
import shlex
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import PurePath
from typing import Any, ClassVar, Literal, NamedTuple, Self

from faultlines.formats import printable

Form = Literal["is", "must", "clause", "column", "sentence"]


class ErrorCode(StrEnum):
    """What kind of mistake an `InputError` is about, for programs that act on it.

    Example:
        >>> import faultlines as fl
        >>> try:
        ...     fl.cluster(fl.Estimates([0.0, 1.0], [0.1, 0.1]), alpha=5)
        ... except fl.InputError as error:
        ...     print(error.code == "out of range")
        True
    """

    AMBIGUOUS = "ambiguous"  # several things are meant by what was given
    COLUMN_NOT_FOUND = "column not found"
    CONFLICT = "conflict"  # two arguments exclude each other, or one does not go with the data
    DUPLICATE = "duplicate"
    EMPTY = "empty"
    FILE_NOT_FOUND = "file not found"
    INVALID = "invalid"  # none of the others
    INVALID_DATA = "invalid data"  # a column or an array holds a value that cannot be used
    MISMATCH = "mismatch"  # shapes, lengths, or the groups of two inputs
    MISSING = "missing"  # an argument that is needed was not given
    NOT_FOUND = "not found"  # a group, variant, experiment, coefficient or label that is not there
    NOT_INSTALLED = "not installed"
    NO_GROUPS = "no groups"  # none of the groups can be used
    OUT_OF_MEMORY = "out of memory"
    OUT_OF_RANGE = "out of range"
    TOO_FEW = "too few"  # groups, rows, units or draws
    UNKNOWN = "unknown"  # none of the words that a parameter takes
    UNREADABLE_FILE = "unreadable file"
    UNSUPPORTED = "unsupported"  # a combination that is not possible
    UNWRITABLE_FILE = "unwritable file"
    WRONG_RETURN = "wrong return value"  # of a function of the user
    WRONG_TYPE = "wrong type"


class _Unset:
    """No value was given, which is not None."""


UNSET = _Unset()


class Argument(NamedTuple):
    """A parameter with what was given for it, where several errors are about the same."""

    parameter: str
    value: object


class CommandSpelling(NamedTuple):
    """How a command spells parameters: `InputError.for_command`."""

    options: Mapping[str, str]
    roles: Mapping[str, str]


class ErrorMaker(NamedTuple):
    """Makes errors of one kind: ``InputError.empty("data", "has no rows", "Give at least one row.")``."""

    code: ErrorCode

    def __call__(
        self,
        parameter: str | Argument,
        problem: str,
        remedy: str,
        value: object = UNSET,
        *,
        place: str = "",
        settings: Mapping[str, object] | None = None,
        form: Form = "is",
    ) -> InputError:
        """The error; arguments are those of `InputError`."""
        return InputError(
            parameter, problem, remedy, code=self.code, value=value, place=place, settings=settings, form=form
        )


class InputError(ValueError):
    """Something given to faultlines cannot be used; the message says what, where, and how to fix it.

    Args:
        parameter: The bare name of the parameter: ``"alpha"``; of several, ``"y_pred, score"``. Or an `Argument`.
        problem: What is wrong with it, as the end of a sentence: ``"must be between 0 and 1"``.
        remedy: What to do about it, as a sentence. ``{alpha}`` stands for a setting: ``"Use for example {alpha}."``.
        code: What kind of mistake it is.
        value: What was given.
        place: Where in it, as words that follow the parameter: ``"of group 'DE'"``.
        settings: The values of the settings that the remedy names; ``...`` names one without a value, ``"…"`` one
            whose value the reader knows.
        form: How problem and parameter make a sentence. ``"is"``: ``alpha=5 is …``; ``"must"``: ``alpha must …, got
            5``; ``"clause"``: the problem has a subject of its own and comes first, ``… (alpha=5)``; ``"column"``: so
            too, and names the value itself, ``… (alpha)``; ``"sentence"``: it names the parameter too.

    Attributes:
        parameter: The parameter.
        value: What was given for it, shortened; None where nothing was.
        problem: What is wrong.
        remedy: What to do, settings filled in.
        code: An `ErrorCode`.

    Example:
        >>> import faultlines as fl
        >>> try:
        ...     fl.cluster(fl.Estimates([0.0, 1.0], [0.1, 0.1]), alpha=1.5)
        ... except fl.InputError as error:
        ...     print(error.code, "|", error.parameter, "|", error.value, "|", error)
        out of range | alpha | 1.5 | alpha must be between 0 and 1, got 1.5. For 1.5%, use alpha=0.015.
        >>> error = fl.InputError.out_of_range("alpha", "must be between 0 and 1", "Use {alpha}.", 5,
        ...                                    settings={"alpha": 0.05}, form="must")
        >>> print(error.within("experiment 'a'"), "|", error.changed(value=7).value, "|", error.remedy)
        experiment 'a': alpha must be between 0 and 1, got 5. Use alpha=0.05. | 7 | Use alpha=0.05.
        >>> print(error.for_command({"alpha": "NUMBER"}))
        --alpha must be between 0 and 1, got 5. Use --alpha 0.05.
    """

    ambiguous: ClassVar[ErrorMaker]
    column_not_found: ClassVar[ErrorMaker]
    conflict: ClassVar[ErrorMaker]
    duplicate: ClassVar[ErrorMaker]
    empty: ClassVar[ErrorMaker]
    file_not_found: ClassVar[ErrorMaker]
    invalid: ClassVar[ErrorMaker]
    invalid_data: ClassVar[ErrorMaker]
    mismatch: ClassVar[ErrorMaker]
    missing: ClassVar[ErrorMaker]
    not_found: ClassVar[ErrorMaker]
    not_installed: ClassVar[ErrorMaker]
    no_groups: ClassVar[ErrorMaker]
    out_of_memory: ClassVar[ErrorMaker]
    out_of_range: ClassVar[ErrorMaker]
    too_few: ClassVar[ErrorMaker]
    unknown: ClassVar[ErrorMaker]
    unreadable_file: ClassVar[ErrorMaker]
    unsupported: ClassVar[ErrorMaker]
    unwritable_file: ClassVar[ErrorMaker]
    wrong_return: ClassVar[ErrorMaker]
    wrong_type: ClassVar[ErrorMaker]

    def __init__(
        self,
        parameter: str | Argument,
        problem: str,
        remedy: str,
        *,
        code: ErrorCode = ErrorCode.INVALID,
        value: object = UNSET,
        place: str = "",
        settings: Mapping[str, object] | None = None,
        form: Form = "is",
    ) -> None:
        if isinstance(parameter, Argument):
            parameter, value = parameter
        self.parameter = parameter
        self.value = None if value is UNSET else shorten_value(value)
        self.problem = problem
        self.code = code
        self.place = place
        self.settings = dict(settings or {})
        self.form = form
        self.context = ""
        self._template = remedy
        self._command: CommandSpelling | None = None
        self._is_flag = value is True  # an option without a value on the command line
        self._items = _plain_texts(value)  # of an option that is given several times
        super().__init__(parameter, problem, remedy)

    @property
    def remedy(self) -> str:
        """What to do, with the settings it names written as they are typed."""
        text = self._template
        for name, value in self.settings.items():
            text = text.replace(f"{{{name}}}", self._setting(name, value))
        return text

    def __str__(self) -> str:
        names = ", ".join(self._name(name) for name in self.parameter.split(", "))
        subject, place = self._with_value(names), f" {self.place}" if self.place else ""
        if self.form == "must":
            got = "" if self.value is None else f", got {self.value}"
            sentence = f"{names}{place} {self.problem}{got}"
        elif self.form == "clause":
            sentence = f"{self.problem} ({subject}{place})"
        elif self.form == "sentence":
            sentence = f"{self.problem}{place}"
        elif self.form == "column":
            sentence = f"{self.problem}{place} ({names})"
        elif self._command is not None and self.parameter in self._command.roles and self.value is not None:
            sentence = f"column {self.value} ({names}){place} {self.problem}"
        else:
            sentence = f"{subject}{place} {self.problem}"
        start = f"{self.context}: " if self.context else ""
        return printable(f"{start}{sentence}. {self.remedy}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by fields: an exception pickles its arguments by default, and not what was set beside them."""
        return type(self), (self.parameter, self.problem, self._template), self.__dict__.copy()

    def changed(self, **fields: Any) -> Self:
        """The same error with other fields, for code that knows more about where it happened.

        Args:
            **fields: `parameter`, `value` (shortened), `problem`, `place`, `context` (what comes before the sentence),
                `remedy`, `settings`, `form`.

        Returns:
            A copy.
        """
        error = copy.copy(self)
        for name, value in fields.items():
            setattr(error, "_template" if name == "remedy" else name, value)
        return error

    def renamed(self, names: Mapping[str, str]) -> Self:
        """The same error with other names of its parameter and of the settings in its remedy.

        Args:
            names: Old → new.

        Returns:
            A copy.

        Example:
            >>> import faultlines as fl
            >>> error = fl.InputError.out_of_range("gap", "must be below 1", "Use {gap}.", 2, settings={"gap": 0.02})
            >>> error.renamed({"gap": "certify"}).parameter
            'certify'
        """
        template = self._template
        for old, new in names.items():
            template = template.replace(f"{{{old}}}", f"{{{new}}}")
        settings = {names.get(name, name): value for name, value in self.settings.items()}
        return self.changed(parameter=names.get(self.parameter, self.parameter), remedy=template, settings=settings)

    def within(self, context: str) -> Self:
        """The same error in one of several inputs: ``experiment 'a': …``.

        Args:
            context: Which of them.

        Returns:
            A copy whose sentence begins with it.
        """
        return self.changed(context=f"{context}, {self.context}" if self.context else context)

    def for_command(self, options: Mapping[str, str], roles: Mapping[str, str] | None = None) -> Self:
        """The same error in the spelling of a command.

        Args:
            options: The parameters that are options of the command, and what stands for a value of each: ``COLUMN``.
            roles: Parameters of the library for columns that an option of another name holds: ``{"value": "metric"}``.

        Returns:
            A copy that writes them as ``--option value``, and all others by name.
        """
        error = copy.copy(self)
        error._command = CommandSpelling(options, roles or {})
        return error

    def _with_value(self, names: str) -> str:
        """The parameter with what was given for it."""
        if self.value is None:
            return names
        if self._command is None:
            return f"{names}={self.value}"
        if self.parameter not in self._command.options:
            return f"{names} {self.value}"
        if self._items:
            return " ".join(f"{names} {shlex.quote(item)}" for item in self._items)
        return names if self._is_flag else f"{names} {self.value}"

    def _name(self, parameter: str) -> str:
        if self._command is None:
            return parameter
        option = self._command.roles.get(parameter, parameter)
        return f"--{option.replace('_', '-')}" if option in self._command.options else parameter

    def _setting(self, name: str, value: object) -> str:
        if self._command is None or name not in self._command.options:
            written = "" if value is ... else "…" if value == "…" else shorten_value(value)
            return f"{name}={written}"
        text = value if isinstance(value, str) else shorten_value(value)
        if isinstance(value, Mapping):
            text = ",".join(f"{key}={item}" for key, item in value.items())
        typed = self._command.options[name] if text == "…" else shlex.quote(text)
        return self._name(name) if value is ... or value is True else f"{self._name(name)} {typed}"


for _code in ErrorCode:
    setattr(InputError, _code.name.lower(), ErrorMaker(_code))


class NoGroupsError(InputError):
    """None of the groups can be used: there is nothing to compare, which is no answer.

    Attributes:
        reasons: Why, where groups were measured, and how many cannot be used for each reason.
    """

    def __init__(
        self,
        parameter: str | Argument,
        problem: str,
        remedy: str,
        *,
        code: ErrorCode = ErrorCode.NO_GROUPS,
        reasons: Mapping[Any, int] | None = None,  # of `estimates.reasons.Reason`, which is to the right of errors
        **how: Any,
    ) -> None:
        super().__init__(parameter, problem, remedy, code=code, **how)
        self.reasons = dict(reasons or {})


def _plain_texts(value: object) -> tuple[str, ...]:
    """The items of a list of text; none of anything else, or of a list that is too long to be repeated."""
    items = tuple(value) if isinstance(value, list | tuple) else ()
    return items if len(items) <= _REPEATED and all(isinstance(item, str) for item in items) else ()


# Similarity (difflib) from which on one name may be a misspelling of another: 'county' and 'country' have 0.92, 'recal'
# and 'recall' 0.91, 'acuracy' and 'accuracy' 0.93; 'nope' and 'topmerge' 0.5, 'gender' and 'age' 0.44.
_CLOSE = 0.7
_LISTED = 12  # names in a remedy
_SHORTEST = 3  # letters and digits of a name that stands for a longer one
_REPEATED = 4  # values of an option that are written as they were typed, one by one


def did_you_mean(name_given: object, candidates: Iterable[str]) -> str:
    """A remedy for a misspelled name: the nearest known one if it is close, else the list of those there are."""
    import difflib

    name = name_given if isinstance(name_given, str) else shorten(name_given)
    names = [str(candidate) for candidate in candidates]
    folded = {candidate.casefold(): candidate for candidate in names}
    near = difflib.get_close_matches(shorten_text(name).casefold(), folded, n=1, cutoff=_CLOSE)
    if near:
        return f"Did you mean {shorten(folded[near[0]])}?"
    if (alike := _alike(name, names)) is not None:
        return f"Did you mean {shorten(alike)}?"
    listed = ", ".join(shorten(candidate) for candidate in names[:_LISTED])
    return f"There are: {listed}{', …' if len(names) > _LISTED else ''}." if names else "There are none."


def _alike(name: str, candidates: list[str]) -> str | None:
    """The one candidate with the same letters and digits, or whose letters and digits begin with those of the name."""
    wanted = _letters(name)
    plain = {candidate: _letters(candidate) for candidate in candidates}
    same = [candidate for candidate, letters in plain.items() if letters == wanted]
    begun = [candidate for candidate, letters in plain.items() if letters.startswith(wanted)]
    found = same or begun
    return found[0] if len(wanted) >= _SHORTEST and len(found) == 1 else None


def _letters(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())


def to_install(extra: str) -> str:
    """A remedy for libraries that are missing: the extra of faultlines they come with."""
    return f"Install the extra {extra}: pip install '.[{extra}]' in a clone of faultlines."


def to_numbers(examples: Iterable[object], otherwise: str) -> str:
    """A remedy for text where numbers are needed: what to do about such text, or else the remedy `otherwise`."""
    for example in examples:
        text = str(example).strip()
        if _is_number(text):
            return f"It holds numbers as text, such as {shorten(example)}: convert it, in pandas with pd.to_numeric."
        if _is_number(text.rstrip("% ")):
            how = "pd.to_numeric(column.str.rstrip('%')) / 100"
            return f"It holds percentages as text, such as {shorten(example)}: convert it, in pandas with {how}."
        if _is_number(text.replace(",", "")):
            return f"It holds numbers with commas, such as {shorten(example)}: write them with a point only."
    return otherwise


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return any(character.isdigit() for character in text)


def shorten(value: object, width: int = 60) -> str:
    """A value for a message: its repr, cut in the middle when long; its type where it has no repr."""
    try:
        return shorten_text(repr(value), width)
    except Exception:  # an object of the user's whose repr fails must not hide what is wrong with it
        return f"<{type(value).__name__}>"


def shorten_value(value: object) -> str:
    """What was given for a parameter: a type by its name, a NumPy number as a plain one, else as `shorten`."""
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, PurePath):
        return shorten(str(value), 200)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    is_scalar = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return shorten(value.item() if is_scalar else value)  # type: ignore[attr-defined]


def shorten_text(text: str, width: int = 160) -> str:
    """Text cut in the middle when long."""
    return text if len(text) <= width else f"{text[: width - 20]} … {text[-15:]}"


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type where it has none."""
    lines = str(error).strip().splitlines()
    return shorten_text(lines[0]) if lines else type(error).__name__
