"""The paper's sequential form, `fl.Monitor(rule="folds")`: one step a batch, saved between runs, groups that stay."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import faultlines as fl
from faultlines.core.normal import compare_effects
from faultlines.guarantees.base import split_generator
from tests.refused import refused

if TYPE_CHECKING:
    from pathlib import Path

LABELS = ["a", "b", "c", "d", "e"]


def folds(**settings: Any) -> fl.Monitor:
    return fl.Monitor(rule="folds", **settings)


def batch(seed: int, labels: list[Any] | None = None, effects: Any = (0, 0, 12, 12, 30)) -> fl.Estimates:
    rng = np.random.default_rng(seed)
    return fl.Estimates(np.array(effects) + rng.standard_normal(len(effects)), np.ones(len(effects)), labels or LABELS)


def begun(labels: list[Any] | None = None) -> fl.Monitor:
    monitor = folds()
    monitor.update(batch(0, labels))
    return monitor


def test_batches_are_folds_in_time() -> None:
    """The paper's theorem: what folds of one data set do, batches do day by day."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        effects = np.repeat([0.0, 9.0], [3, 4])
        estimates = fl.Estimates(effects + rng.standard_normal(7), np.ones(7))
        at_once = fl.cluster(estimates, guarantee="folds", refine=False, seed=seed)
        parts = compare_effects(estimates).split((1 / 7,) * 7, split_generator(seed))
        daily = folds()
        for part in parts:
            result = daily.update(part.estimates)
        assert (result.verdict == "differ") == at_once.rejected
        if at_once.rejected:
            clusters = {frozenset(cluster) for cluster in result.clusters}
            assert clusters == {frozenset(cluster.members) for cluster in at_once.clusters}


def test_a_verdict_is_reached_and_stays() -> None:
    daily = folds()
    results = [daily.update(batch(day)) for day in range(6)]
    assert [result.n_clusters for result in results[:3]] == [4, 3, 3]
    assert [result.verdict for result in results[:3]] == ["continue", "continue", "differ"]
    assert results[2].clusters == (("a", "b"), ("c", "d"), ("e",))
    assert results[5] == results[2]
    assert results[0].looks[0].merged in {(("a",), ("b",)), (("c",), ("d",))}
    last = results[2].look
    assert last is not None
    assert last.merged is None
    assert last.level == pytest.approx(0.05 / 5)
    assert last.pvalue < last.level
    assert last.adjusted == results[2].pvalue == pytest.approx(5 * last.pvalue)


def test_groups_with_equal_effects_end_as_one() -> None:
    daily = folds()
    for day in range(4):
        result = daily.update(batch(day, effects=[0] * 5))
    assert result.verdict == "ended"
    assert result.n_clusters == 1


def test_saved_and_resumed_every_day(tmp_path: Path) -> None:
    straight, path = folds(alpha=0.01, tolerance=0.5), tmp_path / "state.json"
    folds(alpha=0.01, tolerance=0.5).save(path)
    for day in range(4):
        resumed = fl.Monitor.load(path)
        assert resumed.update(batch(day)) == straight.update(batch(day))
        resumed.save(path)
    assert fl.Monitor.load(path).result == straight.result
    assert json.loads(path.read_text())["alpha"] == 0.01
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "labels",
    [
        [("x", 1), ("x", 2), ("y", 1), ("y", 2), ("z", 1)],
        [1, 2, 3, 4, 5],
        ["1.1", "1.10", "7", "2.0", "true"],
        ["\ud800", "\udfff", "a", "?", "\ufffd"],
    ],
)
def test_labels_survive_a_file(labels: list[Any], tmp_path: Path) -> None:
    daily = begun(labels)
    daily.save(tmp_path / "s.json")
    again = fl.Monitor.load(tmp_path / "s.json")
    assert again.result == daily.result
    assert again.update(batch(1, labels)).n_clusters == 3


def test_ranges_survive_a_file() -> None:
    ranges = [fl.Range(20.0 * i, 20.0 * (i + 1), True) for i in range(5)]
    again = fl.Monitor.from_json(begun(ranges).to_json())
    assert again.update(batch(1, ranges)).n_clusters == 3


def test_changed_groups_are_refused_unless_a_treatment_is_set() -> None:
    daily = begun()
    fewer, more = batch(1, ["a", "b", "c", "d"], (0, 0, 12, 12)), batch(1, [*LABELS, "f"], (0, 0, 12, 12, 30, 1))
    with refused("mismatch: estimates"):
        daily.update(fewer)
    with refused("mismatch: estimates"):
        daily.update(more)
    assert len(daily.result.looks) == 1
    result = daily.update(fewer, missing="ignore")
    assert result.ignored == {"missing": 1}
    assert result.verdict == "continue"  # a cluster without data cannot be distinguished from the rest
    assert result.looks[-1].pvalue == 1.0
    result = daily.update(more, new="ignore")
    assert result.ignored == {"new": 1}
    assert [note.code for note in result.notes] == ["look", "ignored", "assumption", "next"]
    with refused("not found: estimates"):
        begun().update(batch(0, list("vwxyz")), missing="ignore", new="ignore")


def test_other_comparisons_can_be_fed_too() -> None:
    rng = np.random.default_rng(0)
    daily = folds()
    for _ in range(4):
        result = daily.update(fl.binomial(rng.binomial(500, [0.1, 0.1, 0.5, 0.5]), [500] * 4, list("abcd")))
    assert result.verdict == "differ"
    assert result.clusters == (("a", "b"), ("c", "d"))


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: folds(alpha=2), "out of range: alpha"),
        (lambda: folds(tolerance=-1), "out of range: tolerance"),
        (lambda: folds(tolerance=float("inf")), "out of range: tolerance"),
        (lambda: folds(looks=3), "conflict: looks"),
        (lambda: folds(dependence="any"), "conflict: dependence"),
        (lambda: fl.Monitor(tolerance=1.0), "conflict: tolerance"),
        (lambda: fl.Monitor(rule="bayes"), "unknown: rule"),  # type: ignore[arg-type]
        (lambda: folds().update([1, 2]), "wrong type: estimates"),
        (lambda: folds().update(fl.Estimates([1], [1])), "too few: estimates"),
        (lambda: folds().update(batch(0), missing="keep"), "unknown: missing"),
        (lambda: folds().update(batch(0), new=[]), "unknown: new"),  # type: ignore[arg-type]
        (lambda: folds().update(batch(0), final=True), "conflict: final"),
    ],
)
def test_bad_use(act: Any, words: str) -> None:
    with refused(words):
        act()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("labels", ["b", "b", "c", "d", "e"]),
        ("labels", []),
        ("steps", []),
        ("steps", [{"pvalue": -1.0, "merged": None}]),
        ("steps", [{"pvalue": 1e-9, "merged": [["a"], ["b"]]}]),
        ("steps", [{"pvalue": 1.0, "merged": [["b"], ["a"]]}]),
        ("ignored", {"missing": 0}),
        ("ignored", {"gone": 1}),
        ("rule", "boundary"),
        ("alpha", 5),
    ],
)
def test_states_whose_parts_do_not_fit_are_refused(name: str, value: Any) -> None:
    from faultlines.guarantees.state import CHECKSUM, dump_state

    state = json.loads(begun().to_json())
    del state[CHECKSUM]
    with pytest.raises(fl.InputError):
        fl.Monitor.from_json(dump_state(state | {name: value}))


def test_the_clusters_of_batches_are_shown() -> None:
    daily = folds()
    for _ in range(2):
        look = daily.update(fl.Estimates([0.0, 0.1, 9.0], [0.5] * 3, ["DE", "FR", "IN"]))
    assert [row["members"] for row in look.to_dicts("clusters")] == [["DE", "FR"], ["IN"]]
    assert "DE, FR" in str(look)
    assert "DE, FR" in look.to_markdown()
