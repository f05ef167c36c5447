"""Groups left out: who is in them, and what is known of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.proportion import proportion_confint

import faultlines as fl


def people() -> pd.DataFrame:
    """Women and men of three origins; few of them Asian."""
    counts = {("Asian", "woman"): (4, 1), ("Asian", "man"): (6, 2), ("Black", "woman"): (400, 90)}
    counts |= {("Black", "man"): (300, 70), ("White", "woman"): (496, 100), ("White", "man"): (3, 3)}
    rows = []
    for (origin, sex), (n, events) in counts.items():
        rows.append(pd.DataFrame({"origin": origin, "sex": sex, "x": (np.arange(n) < events).astype(int)}))
    return pd.concat(rows, ignore_index=True)


@pytest.fixture(scope="module")
def result() -> Any:
    return fl.cluster(people(), by=["origin", "sex"], metric=fl.rate("x"))


def test_people_left_out_are_totalled_by_the_values_of_each_attribute(result: Any) -> None:
    assert [left.label for left in result.excluded] == [("Asian", "woman"), ("White", "man")]
    by_value = {
        (excluded_share.attribute, excluded_share.value): (excluded_share.n, excluded_share.total)
        for excluded_share in result.excluded_shares
    }
    assert by_value == {
        ("origin", "Asian"): (4, 10),
        ("origin", "White"): (3, 499),
        ("sex", "woman"): (4, 900),
        ("sex", "man"): (3, 309),
    }
    notes = [note for note in result.notes if note.code in {"excluded groups", "excluded share"}]
    assert [note.code for note in notes] == ["excluded groups", "excluded share"]
    assert notes[1].fields["share"] == pytest.approx(7 / 1209)
    for text in (str(result), result.to_markdown(), result._repr_html_()):
        assert all(note.text in text for note in notes)
    data = json.loads(result.to_json())
    assert data["excluded_shares"][0] == {"attribute": "origin", "value": "Asian", "n": 4, "total": 10, "share": 0.4}


def test_a_level_that_is_excluded_as_a_whole_is_named() -> None:
    data = people()
    rare = data[(data.origin != "Asian") | (data.index % 3 == 0)]
    result = fl.cluster(rare, by=["origin", "sex"], metric=fl.rate("x"))
    (note,) = (note for note in result.notes if note.code == "excluded levels")
    assert note.severity == "warning"
    assert note.fields == {"attribute": "origin", "levels": ["Asian"], "n": float((rare.origin == "Asian").sum())}
    assert note.text in str(result)
    single = fl.cluster(rare, by="origin", metric=fl.rate("x"))
    assert not any(note.code == "excluded levels" for note in single.notes)  # the group itself is named already


def test_they_stand_on_the_page(result: Any, tmp_path: Any) -> None:
    result.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "40.0%" in page
    assert "1 of 4" in page


def test_intervals_of_shares_are_exact(result: Any) -> None:
    for left, (events, n) in zip(result.excluded, [(1, 4), (3, 3)], strict=True):
        assert (left.events, left.n) == (events, n)
        assert left.estimate == pytest.approx(events / n)
        assert (left.lower, left.upper) == pytest.approx(proportion_confint(events, n, method="beta"))
    none = fl.measure(people().assign(x=0), ["origin", "sex"], fl.rate("x")).excluded[0]
    assert (none.events, none.lower) == (0, 0)
    assert none.upper == pytest.approx(proportion_confint(0, 4, method="beta")[1])


def test_intervals_of_means_are_those_of_student() -> None:
    data = people().assign(x=np.random.default_rng(0).standard_normal(1209))
    left = fl.measure(data, ["origin", "sex"], fl.mean("x"), min_size=350).excluded
    black = next(group for group in left if group.label == ("Black", "man"))
    assert black.events is None
    assert black.estimate is not None
    assert black.se is not None
    assert (black.lower, black.upper) == pytest.approx(
        (black.estimate - 1.96 * black.se, black.estimate + 1.96 * black.se), abs=0.01
    )


def test_without_sizes_or_groups_left_out_nothing_is_totalled() -> None:
    assert fl.cluster(fl.Estimates([0.0, 9.0], [1.0, 1.0])).excluded_shares == ()
    assert fl.cluster(people(), by="origin", metric=fl.rate("x")).excluded_shares == ()
