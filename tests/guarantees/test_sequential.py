"""One step a batch, saved between runs, and no batch whose groups have silently changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import faultlines as fl
from faultlines.comparison.choose import equal_effects
from faultlines.guarantees.base import splitter

if TYPE_CHECKING:
    from pathlib import Path

LABELS = ["a", "b", "c", "d", "e"]


def batch(seed: int, labels: list[Any] | None = None, effects: Any = (0, 0, 12, 12, 30)) -> fl.Estimates:
    rng = np.random.default_rng(seed)
    return fl.Estimates(np.array(effects) + rng.standard_normal(len(effects)), np.ones(len(effects)), labels or LABELS)


def test_batches_are_folds_in_time() -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        effects = np.repeat([0.0, 9.0], [3, 4])
        estimates = fl.Estimates(effects + rng.standard_normal(7), np.ones(7))
        together = fl.cluster(estimates, guarantee="folds", refine=False, seed=seed)
        parts = equal_effects(estimates).divided((1 / 7,) * 7, splitter(seed))
        daily = fl.Sequential()
        for part in parts:
            decision = daily.update(part.estimates)
        assert decision.rejected == together.rejected
        if together.rejected:
            found = {frozenset(cluster) for cluster in decision.clusters}
            assert found == {frozenset(cluster.members) for cluster in together.clusters}


def test_a_decision_is_reached_and_stays() -> None:
    daily = fl.Sequential()
    seen = [daily.update(batch(day)) for day in range(6)]
    assert [decision.n_clusters for decision in seen[:3]] == [4, 3, 3]
    assert seen[2].rejected
    assert seen[2].finished
    assert seen[2].clusters == (("a", "b"), ("c", "d"), ("e",))
    assert seen[5] == seen[2]
    assert "3 clusters of 5 groups differ" in str(seen[2])
    assert seen[0].steps[0].merged in {(("a",), ("b",)), (("c",), ("d",))}
    assert "no decision yet" in str(seen[0])


def test_groups_that_are_alike_end_as_one() -> None:
    daily = fl.Sequential()
    for day in range(4):
        decision = daily.update(batch(day, effects=[0] * 5))
    assert decision.finished
    assert not decision.rejected
    assert decision.n_clusters == 1
    assert "all are merged" in str(decision)


def test_saved_and_resumed_every_day(tmp_path: Path) -> None:
    straight, path = fl.Sequential(alpha=0.01, tolerance=0.5), tmp_path / "state.json"
    fl.Sequential(alpha=0.01, tolerance=0.5).save(path)
    for day in range(4):
        resumed = fl.Sequential.load(path)
        assert resumed.update(batch(day)) == straight.update(batch(day))
        resumed.save(path)
    assert fl.Sequential.load(path).decision == straight.decision
    assert json.loads(path.read_text())["alpha"] == 0.01
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("labels", [[("x", 1), ("x", 2), ("y", 1), ("y", 2), ("z", 1)], [1, 2, 3, 4, 5]])
def test_labels_survive_a_file(labels: list[Any], tmp_path: Path) -> None:
    daily = fl.Sequential()
    daily.update(batch(0, labels))
    daily.save(tmp_path / "s.json")
    again = fl.Sequential.load(tmp_path / "s.json")
    assert again.decision == daily.decision
    again.update(batch(1, labels))


def test_ranges_survive_a_file() -> None:
    ranges = [fl.Range(20.0 * i, 20.0 * (i + 1), True) for i in range(5)]
    daily = fl.Sequential()
    daily.update(batch(0, ranges))
    again = fl.Sequential.from_json(daily.to_json())
    assert again.update(batch(1, ranges)).n_clusters == 3


def test_changed_groups_are_refused_unless_told_how_to_treat_them() -> None:
    daily = fl.Sequential()
    daily.update(batch(0))
    fewer, more = batch(1, ["a", "b", "c", "d"], (0, 0, 12, 12)), batch(1, [*LABELS, "f"], (0, 0, 12, 12, 30, 1))
    with pytest.raises(fl.InputError, match=r"1 missing groups \('e'\).*missing='ignore'"):
        daily.update(fewer)
    with pytest.raises(fl.InputError, match=r"1 new groups \('f'\).*new='ignore'"):
        daily.update(more)
    assert len(daily.decision.steps) == 1
    decision = daily.update(fewer, missing="ignore")
    assert decision.ignored == {"missing groups": 1}
    assert not decision.rejected  # a cluster without data cannot be told from the rest
    assert decision.steps[-1].pvalue == 1.0
    decision = daily.update(more, new="ignore")
    assert decision.ignored == {"new groups": 1}
    assert "Left out of this batch: 1 new groups" in str(decision)
    with pytest.raises(fl.InputError, match="has none of the known groups"):
        fl.Sequential.from_json(daily.to_json()).update(
            batch(0, list("vwxyz")), missing="ignore", new="ignore"
        ) if not daily.decision.finished else fl.Sequential.from_json(fresh()).update(
            batch(0, list("vwxyz")), missing="ignore", new="ignore"
        )


def fresh() -> str:
    daily = fl.Sequential()
    daily.update(batch(0))
    return daily.to_json()


def test_labels_that_look_alike_are_different() -> None:
    labels = ["1.1", "1.10", "1", "1.0", "true"]
    daily = fl.Sequential()
    daily.update(batch(0, labels))
    assert fl.Sequential.from_json(daily.to_json()).update(batch(1, labels)).n_clusters == 3


def test_other_comparisons_can_be_fed_too() -> None:
    rng = np.random.default_rng(0)
    daily = fl.Sequential()
    for _ in range(4):
        decision = daily.update(fl.binomial(rng.binomial(500, [0.1, 0.1, 0.5, 0.5]), [500] * 4, list("abcd")))
    assert decision.rejected
    assert decision.clusters == (("a", "b"), ("c", "d"))


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: fl.Sequential(alpha=2), "alpha=2"),
        (lambda: fl.Sequential(tolerance=-1), "tolerance=-1"),
        (lambda: fl.Sequential().update([1, 2]), "is not an Estimates"),  # type: ignore[arg-type]
        (lambda: fl.Sequential().update(fl.Estimates([1], [1])), "nothing to compare"),
        (lambda: fl.Sequential().update(batch(0), missing="drop"), "missing='drop'"),  # type: ignore[arg-type]
        (lambda: fl.Sequential.from_json("{"), "is not a saved Sequential"),
        (lambda: fl.Sequential.from_json("[]"), "is not a saved Sequential"),
        (lambda: fl.Sequential.from_json(fresh().replace('"a"', '"b"', 1)), "is not a saved Sequential"),
        (lambda: fl.Sequential.from_json(fresh().replace('_sequential": 1', '_sequential": 9')), "another version"),
        (lambda: fl.Sequential.from_json(fresh().replace("1.0", "-1.0", 1)), "a p-value is none"),
        (
            lambda: fl.Sequential.from_json(fresh().replace('"clusters": [', '"clusters": [' + "9" * 99 + ",")),
            "do not fit",
        ),
        (lambda: fl.Sequential(tolerance=float("inf")), "tolerance=inf"),
        (lambda: fl.Sequential().update(batch(0), new=[]), r"new=\[\]"),  # type: ignore[arg-type]
        (lambda: fl.Sequential.load(None), "cannot be read"),  # type: ignore[arg-type]
        (lambda: fl.Sequential().save(""), "is a folder"),
        (lambda: fl.Sequential.load("no/such/file"), "cannot be read"),
        (lambda: fl.Sequential().save("no/such/folder/file"), "there is no such folder"),
    ],
)
def test_bad_use(act: Any, words: str) -> None:
    with pytest.raises(fl.InputError, match=words):
        act()
