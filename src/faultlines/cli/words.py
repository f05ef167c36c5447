"""Remedies of the library in the words of the command line: `threshold=0.5` is `--threshold 0.5` there."""

from __future__ import annotations

import re
from functools import wraps
from typing import TYPE_CHECKING, Any

from faultlines.cli.metrics import flag
from faultlines.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_VALUE = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s,:;()'"]*[^\s,:;.()'"]"""


def answering(command: Callable[..., None], options: Collection[str]) -> Callable[..., None]:
    """The same command, whose errors say what to do in its own options."""
    named = re.compile(rf"(?<![\w.\[-])({'|'.join(options)})=({_VALUE})")

    @wraps(command)
    def answered(**given: Any) -> None:
        try:
            command(**given)
        except InputError as error:
            raise type(error)(error.parameter, error.problem, named.sub(_written, error.remedy)) from error

    return answered


def _written(found: re.Match[str]) -> str:
    """A parameter with its value as it is typed: quoted only where a shell needs it."""
    plain = found[2].strip("'\"")
    shown = plain if re.fullmatch(r"[\w.…-]+", plain) else found[2]
    return f"{flag(found[1])} {shown}"
