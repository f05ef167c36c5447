"""Errors are values: a code, a parameter, what was given; words are made of these for whoever reads them."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path
from typing import Any

import pytest

import faultlines as fl
from faultlines.errors import Argument, ErrorCode, NoGroupsError, did_you_mean, shorten_value
from faultlines.estimates.reasons import Reason, ReasonCode
from tests.refused import refused

SOURCE = Path(fl.__file__).parent


def test_every_error_of_the_library_has_a_code() -> None:
    makers = {code.name.lower() for code in ErrorCode}
    bare, used = [], set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "InputError":
                used.add(node.attr)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "InputError":
                bare += (
                    [] if any(keyword.arg == "code" for keyword in node.keywords) else [f"{path.name}:{node.lineno}"]
                )
    assert not bare
    assert used <= makers
    assert makers - used <= {"no_groups"}  # which has a class of its own


def test_fields_say_what_the_sentence_says() -> None:
    with refused("out of range: alpha") as caught:
        fl.cluster(fl.Estimates([0.0, 1.0], [0.1, 0.1]), alpha=5)
    error = caught.value
    assert (error.value, error.settings, error.remedy) == ("5", {"alpha": 0.05}, "For 5%, use alpha=0.05.")
    typed = error.for_command({"alpha": "NUMBER"})
    assert str(typed) == "--alpha must be between 0 and 1, got 5. For 5%, use --alpha 0.05."
    assert (typed.code, typed.parameter) == (error.code, error.parameter)
    assert str(error) == "alpha must be between 0 and 1, got 5. For 5%, use alpha=0.05."


def test_a_command_spells_files_columns_and_lists_as_they_are_typed() -> None:
    options, roles = {"by": "COLUMN", "metric": "METRIC", "score": "COLUMN"}, {"value": "metric"}
    file = fl.InputError.file_not_found("file", "does not exist", "Check the path.", "no.csv")
    column = fl.InputError.wrong_type("value", "is not numeric", "Use {score}.", "spend", settings={"score": "…"})
    several = fl.InputError.empty("by", "has no rows", "Name others.", ["country", "first device"], form="clause")
    assert str(file.for_command(options, roles)) == "file 'no.csv' does not exist. Check the path."
    assert str(column.for_command(options, roles)) == "column 'spend' (--metric) is not numeric. Use --score COLUMN."
    assert str(column) == "value='spend' is not numeric. Use score=…."
    assert str(several.for_command(options, roles)) == "has no rows (--by country --by 'first device'). Name others."


@pytest.mark.parametrize("form", ["is", "must", "clause", "column", "sentence"])
def test_errors_survive_a_pickle(form: Any) -> None:
    reason = Reason(ReasonCode.TOO_SMALL, least=10, unit="rows")
    error = NoGroupsError(Argument("by", ["g"]), "is x", "Use {n}.", settings={"n": 3}, reasons={reason: 2}, form=form)
    again = pickle.loads(pickle.dumps(error.within("experiment 'a'")))
    assert str(again) == str(error.within("experiment 'a'"))
    assert (again.code, again.parameter, again.value, again.reasons) == ("no groups", "by", "['g']", {reason: 2})


def test_only_close_names_are_suggested() -> None:
    assert did_you_mean("county", ["country", "device"]) == "Did you mean 'country'?"
    assert did_you_mean("nope", ["calibrated", "topmerge"]) == "There are: 'calibrated', 'topmerge'."
    assert did_you_mean("x", []) == "There are none."


def test_values_are_short() -> None:
    assert [shorten_value(value) for value in (5.0, "a", dict, Path("x"))] == ["5", "'a'", "dict", "'x'"]
    assert len(shorten_value("y" * 1000)) < 80
