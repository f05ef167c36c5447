"""The one error a user of faultlines should ever see, and how a message finds its words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class InputError(ValueError):
    """Something given to faultlines cannot be used; the message names the parameter, the value and the remedy.

    Args:
        parameter: What was given, with its value where that is short: ``"alpha=1.5"``.
        problem: What is wrong with it, as the end of a sentence: ``"must lie strictly between 0 and 1"``.
        remedy: What to do about it, as a sentence: ``"Use for example alpha=0.05."``.
    """

    def __init__(self, parameter: str, problem: str, remedy: str) -> None:
        super().__init__(f"{parameter}: {problem}. {remedy}")
        self.parameter = parameter
        self.problem = problem
        self.remedy = remedy


def check_folder(what: str, path: Path) -> None:
    """Refuse a file where there is no folder for it."""
    if path.is_dir():
        raise InputError(what, "is a folder", "Name a file in it.")
    if not path.parent.is_dir():
        raise InputError(what, "there is no such folder", f"Make {str(path.parent)!r} first.")


def unwritable(what: str, error: OSError) -> InputError:
    """A file that cannot be written."""
    return InputError(what, f"cannot be written ({error.strerror})", "Check the path and the space that is left.")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A remedy for a misspelt name: the nearest one there is, or the list of those there are."""
    import difflib

    names = [str(candidate) for candidate in known]
    folded = {candidate.casefold(): candidate for candidate in names}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.5)
    if near:
        return f"Did you mean {folded[near[0]]!r}?"
    shown = ", ".join(repr(candidate) for candidate in names[:12])
    return f"There are: {shown}{', …' if len(names) > 12 else ''}." if names else "There are none."


def shorten(value: object, width: int = 60) -> str:
    """A value as it can stand in a message: its repr, cut in the middle when long."""
    return shorten_text(repr(value), width)


def shorten_text(text: str, width: int = 160) -> str:
    """Text cut in the middle when long."""
    return text if len(text) <= width else f"{text[: width - 20]} … {text[-15:]}"
