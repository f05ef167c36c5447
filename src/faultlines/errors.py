"""The one error a user of faultlines should ever see, and how its message is worded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultlines.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable


class InputError(ValueError):
    """Something given to faultlines cannot be used; the message names the parameter, the value and the remedy.

    Args:
        parameter: What was given, with its value where that is short: ``"alpha=1.5"``.
        problem: What is wrong with it, as the end of a sentence: ``"must lie strictly between 0 and 1"``.
        remedy: What to do about it, as a sentence: ``"Use for example alpha=0.05."``.

    Example:
        >>> import faultlines as fl
        >>> try:
        ...     fl.cluster(fl.Estimates([0.0, 1.0], [0.1, 0.1]), alpha=1.5)
        ... except fl.InputError as error:
        ...     print(error.parameter)
        alpha=1.5
    """

    def __init__(self, parameter: str, problem: str, remedy: str) -> None:
        super().__init__(printable(f"{parameter}: {problem}. {remedy}"))
        self.parameter = parameter
        self.problem = problem
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[InputError], tuple[str, str, str]]:
        """Pickle by the three parts: an exception pickles its message by default, and cannot be made again from it."""
        return type(self), (self.parameter, self.problem, self.remedy)


class NoGroupsError(InputError):
    """None of the groups can be used: there is nothing to compare, which is no answer."""


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """A remedy for a misspelt name: the nearest known one, or the list of those there are."""
    import difflib

    name = given if isinstance(given, str) else shorten(given)
    names = [str(candidate) for candidate in known]
    folded = {candidate.casefold(): candidate for candidate in names}
    near = difflib.get_close_matches(shorten_text(name).casefold(), folded, n=1, cutoff=0.5)
    if near:
        return f"Did you mean {shorten(folded[near[0]])}?"
    shown = ", ".join(shorten(candidate) for candidate in names[:12])
    return f"There are: {shown}{', …' if len(names) > 12 else ''}." if names else "There are none."


def to_install(extra: str) -> str:
    """A remedy for libraries that are missing: the extra of faultlines they come with."""
    return f"Install the extra {extra}: pip install '.[{extra}]' in a clone of faultlines."


def to_numbers(examples: Iterable[object], otherwise: str) -> str:
    """A remedy for text where numbers are needed: what to do about such text, or else what is given."""
    for example in examples:
        text = str(example).strip()
        if _is_number(text):
            return f"It holds numbers as text, such as {shorten(example)}: convert it, in pandas with pd.to_numeric."
        if _is_number(text.rstrip("% ")):
            how = "pd.to_numeric(column.str.rstrip('%')) / 100"
            return f"It holds per cent as text, such as {shorten(example)}: convert it, in pandas with {how}."
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


def shorten_text(text: str, width: int = 160) -> str:
    """Text cut in the middle when long."""
    return text if len(text) <= width else f"{text[: width - 20]} … {text[-15:]}"


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type where it has none."""
    lines = str(error).strip().splitlines()
    return shorten_text(lines[0]) if lines else type(error).__name__
