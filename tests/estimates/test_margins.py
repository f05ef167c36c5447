"""Which margins there are."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultlines.estimates.labels import cross_levels, margins_of, nested, number_levels, refines


def crossing(*sizes: int) -> np.ndarray:
    """All combinations of so many levels."""
    return np.stack([axis.ravel() for axis in np.indices(sizes)], axis=1)


def test_three_attributes_have_seven_margins() -> None:
    margins = margins_of(crossing(4, 3, 2))
    assert [margin.attributes for margin in margins] == [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]
    assert [margin.levels for margin in margins] == [4, 3, 2, 12, 8, 6, 24]
    assert [margin.share for margin in margins] == pytest.approx([1 / 6] * 3 + [1 / 12] * 3 + [1 / 4])
    assert [margin.is_cells for margin in margins] == [False] * 6 + [True]


def test_one_attribute_has_one_margin() -> None:
    (margin,) = margins_of(np.array([[3], [1], [2]]))
    assert (margin.attributes, margin.levels, margin.share) == ((0,), 3, 1.0)


def test_nested_attributes_are_tested_once() -> None:
    zips = np.arange(40)
    codes = np.stack([zips // 10, zips // 5, zips], axis=1)
    assert [margin.attributes for margin in margins_of(codes)] == [(0,), (1,), (2,)]
    assert [margin.share for margin in margins_of(codes)] == pytest.approx([1 / 4, 1 / 4, 1 / 2])
    assert nested(codes) == ((1, 0), (2, 0), (2, 1))


def test_an_attribute_with_one_level_has_no_margin() -> None:
    codes = np.column_stack([crossing(3, 2), np.zeros(6, dtype=int)])
    assert [margin.attributes for margin in margins_of(codes)] == [(0,), (1,), (0, 1)]
    assert nested(codes) == ()


def test_many_attributes_are_limited_by_their_levels() -> None:
    codes = np.random.default_rng(0).integers(0, np.arange(2, 12), size=(500, 10))
    margins = margins_of(np.unique(codes, axis=0))
    assert len(margins) == 60
    assert [margin.attributes for margin in margins[:10]] == [(a,) for a in range(10)]
    assert margins[-1].is_cells
    pairs = {margin.attributes for margin in margins if len(margin.attributes) == 2}
    assert pairs == set(combinations(range(10), 2))
    assert {margin.attributes for margin in margins if len(margin.attributes) == 3} == {
        (0, 1, 2),
        (0, 1, 3),
        (0, 2, 3),
        (0, 1, 4),
    }


def test_cells_that_share_all_levels_are_still_cells() -> None:
    margins = margins_of(np.array([[0, 0], [0, 0], [1, 1]]))
    assert margins[-1].is_cells
    assert margins[-1].levels == 3


@settings(deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=2, max_size=40, unique=True))
def test_margins_are_distinct_partitions_whose_shares_add_up(rows: list[tuple[int, ...]]) -> None:
    codes = np.array(rows)
    margins = margins_of(codes)
    assert sum(margin.share for margin in margins) == pytest.approx(1)
    assert len({margin.codes.tobytes() for margin in margins}) == len(margins)
    for margin in margins:
        assert set(margin.codes.tolist()) == set(range(margin.levels))
        if not margin.is_cells:
            _, levels = np.unique(codes[:, list(margin.attributes)], axis=0, return_inverse=True)
            assert np.array_equal(number_levels(levels.ravel()), margin.codes)
    assert margins[-1].is_cells
    for fine, coarse in nested(codes):
        assert refines(number_levels(codes[:, fine]), number_levels(codes[:, coarse]))


def test_levels_are_numbered_by_their_first_cells() -> None:
    assert number_levels(np.array([5, 2, 5, 9])).tolist() == [0, 1, 0, 2]
    assert cross_levels([np.array([0, 0, 1, 1]), np.array([1, 0, 1, 1])]).tolist() == [0, 1, 2, 2]
