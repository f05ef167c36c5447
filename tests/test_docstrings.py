"""Every public name says what it does, what it takes, gives and refuses, with an example that runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import faultlines as fl
from tests.documented import PROTOCOLS, Name, failures, named, problems, public_names

if TYPE_CHECKING:
    from pathlib import Path

NAMES = public_names()


@pytest.mark.parametrize("name", NAMES)
def test_the_docstring_is_whole(name: str) -> None:
    missing = [f"{member.path} {problem}" for member in NAMES[name] for problem in problems(member)]
    assert not missing, "\n" + "\n".join(missing)


@pytest.mark.parametrize("name", NAMES)
def test_its_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed = "".join(map(failures, NAMES[name]))
    if os.environ.get("FAULTLINES_LOWEST") and "ModuleNotFoundError" in printed:
        pytest.skip("`make lowest` has none of the libraries that results are handed to")
    assert not printed, printed


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_protocols_say_what_they_ask_for(protocol: type) -> None:
    """Examples are those of the values that offer it."""
    missing = [
        f"{member.path} {problem}"
        for member in named(protocol.__name__, protocol)[1:]
        for problem in problems(member)
        if "Example" not in problem
    ]
    assert not missing, "\n" + "\n".join(missing)


def test_all_of_the_library_is_looked_at() -> None:
    looked_at = {name.partition(".")[0] for name in NAMES}
    assert set(fl.__all__) - looked_at == {"__version__"}
    paths = {member.path for members in NAMES.values() for member in members}
    assert {
        "lift",
        "results.Clustering.report",
        "results.Clustering.at",
        "results.Cluster.rule",
        "simulate.planted",
    } <= paths


def careless(first: int, second: int = 0) -> int:
    """Adds two numbers.

    Args:
        first: The one.
    """
    if second < 0:
        raise fl.InputError("second", "is negative", "Leave it out.")
    return first + second


def wrong() -> int:
    """A number.

    Returns:
        It.

    Example:
        >>> 1 + 1
        3
    """
    return 2


def test_what_is_missing_is_told() -> None:
    assert problems(Name("careless", careless)) == [
        "does not describe 'second' in a section Args",
        "has no section Returns",
        "raises an InputError, but has no section Raises",
        "has no Example with >>>",
    ]
    assert problems(Name("wrong", wrong)) == []
    assert "Expected:\n    3\nGot:\n    2" in failures(Name("wrong", wrong))


def test_help_of_a_metric_stands_alone() -> None:
    """What is estimated and in which unit, its standard error, what is excluded, and when to take another."""
    doc = " ".join((fl.lift.__doc__ or "").split())
    for said in ("0.05 is +5%", "standard error", "excluded", "fl.difference", "fl.ratio_lift", "unit=", "covariate="):
        assert said in doc, said
