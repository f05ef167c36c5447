"""What an error is about, without its words."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import faultlines as fl

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def refused(expected: str) -> Iterator[Any]:
    """Expect an `InputError` with a code and a parameter: ``"out of range: alpha"``."""
    with pytest.raises(fl.InputError) as caught:
        yield caught
    error = caught.value
    assert f"{error.code}: {error.parameter}" == expected, str(error)
