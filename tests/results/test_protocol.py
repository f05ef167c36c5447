"""What all results share: their JSON has the keys that they declare, in that order."""

from __future__ import annotations

import math

import pytest

import faultlines as fl
from faultlines.results import Note, Result
from faultlines.results.protocol import plain_data
from tests.golden import CASES


@pytest.mark.parametrize("name", ["clustering-lift", "certificate-two-effects", "experiments", "audit", "monitor"])
def test_the_json_of_a_result_has_the_keys_that_it_declares(name: str) -> None:
    result = CASES[name]()
    assert isinstance(result, Result)
    keys = ["faultlines", *result.json_keys.split()]
    assert list(result.to_dict())[: len(keys)] == keys


def test_plain_data_is_what_json_holds() -> None:
    effect = fl.cluster(fl.Estimates([0.0, 5.0], [0.5, 0.5], ["DE", "IN"])).clusters[0].effects[0]
    assert list(plain_data(effect)) == ["estimate", "se", "lower", "upper"]
    note = Note("few events", "Few events.")
    assert plain_data({"ends": (1.0, math.inf), "notes": (note,)}) == {"ends": [1.0, None], "notes": [note.to_dict()]}
