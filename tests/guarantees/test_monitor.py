"""Looks at all data so far: boundaries by brute force and from the literature, the same day by day and after a file."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import faultlines as fl
from faultlines.analyses.monitor import NullPaths
from faultlines.estimates.labels import key_of
from faultlines.guarantees.boundaries import (
    BY_ITSELF,
    SPENDING,
    LookRecord,
    Spending,
    compute_boundaries,
    is_rejected,
    pvalue_so_far,
)
from faultlines.guarantees.state import CHECKSUM, dump_state
from faultlines.types import FloatArray
from tests.refused import refused

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


LABELS = ["a", "b", "c", "d", "e"]
NONE = [0.0] * 5
FAR = [0.0, 0.0, 4.5, 4.5, 4.5]


def looks(
    effects: Sequence[float] = NONE, days: int = 6, seed: int = 0, labels: Sequence[Any] | None = None, **more: Any
) -> list[fl.Estimates]:
    """Estimates after 1, 2, … days with 50 people a day in each group, whose mean has a standard error of 1 a day."""
    daily = np.array(effects) + np.random.default_rng(seed).standard_normal((days, len(effects)))
    estimates = []
    for day in range(1, days + 1):
        sizes: dict[str, Any] = {"n": 50.0 * day} | more
        se = np.full(len(effects), day**-0.5)
        estimates.append(fl.Estimates(daily[:day].mean(axis=0), se, labels or LABELS[: len(effects)], **sizes))
    return estimates


# ------------------------------------------------------------------------------------------------------------ spending


def test_spending_functions_begin_with_nothing_and_end_with_all() -> None:
    fractions = np.linspace(0, 1, 11)
    for name in SPENDING:
        for alpha in (1e-6, 0.05, 0.5):
            spent = Spending.of(name).spent(alpha, fractions)
            assert spent[0] == 0
            assert spent[-1] == pytest.approx(alpha, rel=1e-12)
            assert np.all(np.diff(spent) >= 0)
    half = Spending.of("obrien-fleming").spent(0.05, np.array([0.5]))[0]
    assert half == pytest.approx(2 * (1 - ndtr(1.959964 / math.sqrt(0.5))), rel=1e-5)
    assert Spending.of("pocock").spent(0.05, np.array([0.5]))[0] == pytest.approx(0.05 * math.log(1 + (math.e - 1) / 2))
    assert Spending.of("reserve").spent(0.05, np.array([0.5]))[0] == pytest.approx(0.7 * half)


# Boundaries of five even looks, two-sided α = 0.05, as group-sequential software has them (Lan–DeMets).
PUBLISHED: dict[str, list[float | None]] = {
    "obrien-fleming": [None, 3.357, 2.680, 2.290, 2.031],
    "pocock": [2.438, 2.427, 2.410, 2.397, 2.386],
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_two_groups_have_the_boundaries_of_the_literature(name: str) -> None:
    """Whatever is looked at in two groups rises with |z| alone, so levels of looks are those of a two-sided z test."""
    monitor = fl.Monitor(looks=5, spending=name, draws=40_000, dependence="independent")
    for day in range(1, 6):
        result = monitor.update(fl.Estimates([0.0, 0.1 / day], np.full(2, day**-0.5), n=[day, day]))
    for look, z in zip(result.looks, PUBLISHED[name], strict=True):
        if z is not None:
            allowed = 2 * ndtr(-z)
            error = 3.5 * math.sqrt(0.05 / 40_000) + 2 * BY_ITSELF * allowed
            assert look.level == pytest.approx(allowed, abs=error), look


def _slowly(own: list[float], null: FloatArray, spent: FloatArray) -> bool:
    """The rule in words: at each look the most extreme paths that are still going stop, the data's own among them."""
    paths = [*null.tolist(), own]
    going, stopped = set(range(len(paths))), 0
    for look, share in enumerate(spent.tolist()):
        allowed = int((1 - BY_ITSELF) * share * len(paths)) - stopped
        ranked = sorted(going, key=lambda i: -paths[i][look])
        for i in ranked[: max(allowed, 0)]:
            going.discard(i)
            stopped += 1
    return len(paths) - 1 not in going


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.floats(0.01, 0.9), st.sampled_from(sorted(SPENDING)))
def test_boundaries_are_those_of_the_rule_in_words(seed: int, count: int, alpha: float, name: str) -> None:
    rng = np.random.default_rng(seed)
    paths = np.cumsum(rng.standard_normal((40, count)), axis=1)
    spent = Spending.of(name).spent(alpha, np.arange(1, count + 1) / count)
    claimed = 0
    for i in range(40):
        null = np.delete(paths, i, axis=0)
        record = LookRecord(paths[i].tolist(), [0.0] * count, list(null.T))
        assert is_rejected(record, spent) == _slowly(paths[i].tolist(), null, spent)
        claimed += is_rejected(record, spent)
    # Whichever path the data are, no more than the spent share of all is claimed: that is the guarantee, exactly.
    assert claimed <= alpha * 40


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 0.3), st.sampled_from(sorted(SPENDING)))
def test_p_so_far_is_the_level_at_which_it_turns(seed: int, alpha: float, name: str) -> None:
    rng = np.random.default_rng(seed)
    paths = np.cumsum(rng.standard_normal((300, 4)), axis=1)
    spending, fractions = Spending.of(name), np.arange(1, 5) / 4
    before = 1.0
    for look in range(1, 5):
        record = LookRecord(paths[0, :look].tolist(), [0.0] * look, list(paths[1:, :look].T))
        p = pvalue_so_far(record, spending, fractions[:look], alpha)
        claimed = is_rejected(record, spending.spent(alpha, fractions[:look]))
        assert (p <= alpha) == claimed
        assert is_rejected(record, spending.spent(p, fractions[:look])) or p == 1
        assert p <= before * (1 + 1e-3) or claimed
        before = p


def test_boundaries_without_draws_to_stop_are_infinite() -> None:
    values = np.arange(99.0)
    assert compute_boundaries(LookRecord([], [], [values]), np.array([1e-5])).tolist() == [np.inf]
    assert compute_boundaries(LookRecord([], [], [values]), np.array([0.5])).tolist() == [99.0 - 49]


# --------------------------------------------------------------------------------------------------------------- paths


def test_paths_have_the_correlations_of_growing_data() -> None:
    paths, seen = NullPaths(20_000, 3), []
    for clock in ([1.0, 5.0], [4.0, 5.0], [16.0, 20.0, 7.0]):
        paths.advance(np.array(clock), np.full(len(clock), np.inf))
        seen.append(paths._score / np.sqrt(clock))
    for path in seen:
        assert path.std(axis=0) == pytest.approx(1, abs=0.03)
    for (early, late), column, expected in [((0, 1), 0, 0.5), ((0, 2), 0, 0.25), ((0, 1), 1, 1.0), ((1, 2), 1, 0.5)]:
        correlation = np.corrcoef(seen[early][:, column], seen[late][:, column])[0, 1]
        assert correlation == pytest.approx(expected, abs=0.03)
    assert abs(np.corrcoef(seen[2].T) - np.eye(3)).max() < 0.03


def test_estimated_variances_grow_with_their_degrees_of_freedom() -> None:
    paths = NullPaths(20_000, 3)
    for dof in ([4.0, np.inf], [10.0, np.inf], [6.0, np.inf], [30.0, np.inf]):
        paths.advance(np.array([1.0, 1.0]) * paths.looks + 1, np.array(dof))
        ratio = paths._squares[:, 0] / dof[0]
        assert ratio.mean() == pytest.approx(1, abs=0.03)
        assert ratio.var() == pytest.approx(2 / dof[0], rel=0.1)


# ----------------------------------------------------------------------------------------------------------- decisions


@pytest.mark.parametrize("dof", [None, 8.0])
def test_one_look_is_the_default_test(dof: float | None) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        se = np.exp(0.5 * rng.standard_normal(12))
        data = fl.Estimates(np.repeat([0.0, 1.5], 6) + se * rng.standard_normal(12), se, dof=dof)
        once, result = fl.Monitor(looks=1, draws=4000).update(data), fl.cluster(data.changed(recipe="measured"))
        assert once.finished
        error = 4 * math.sqrt(result.pvalue / 4000) + 0.15 * result.pvalue
        assert once.pvalue == pytest.approx(result.pvalue / (1 - BY_ITSELF), abs=error)
        assert once.looks[0].level == pytest.approx(0.05, rel=0.3)


def crossed(seed: int, effect: float = 0.0, dof: float | None = None, share: float = 1.0) -> fl.Estimates:
    """Cells of country × device × type, of which the types differ; `share` of the data of the end."""
    labels = [(f"c{i}", f"d{j}", f"t{k}") for i in range(5) for j in range(4) for k in range(2)]
    rng = np.random.default_rng(seed)
    se = np.exp(0.3 * rng.standard_normal(40)) / math.sqrt(share)
    theta = effect * np.array([label[2] == "t1" for label in labels]) + se * rng.standard_normal(40)
    names = ["country", "device", "type"]
    return fl.Estimates(theta, se, labels, n=np.round(1000 / se**2), dof=dof, attributes=names)


@pytest.mark.parametrize("dof", [None, 20.0])
@pytest.mark.parametrize("effect", [0.0, 0.8])
def test_one_look_at_crossed_attributes_is_the_default_test(effect: float, dof: float | None) -> None:
    for seed in range(3):
        data = crossed(seed, effect, dof)
        once, result = fl.Monitor(looks=1, draws=4000).update(data), fl.cluster(data.changed(recipe="measured"))
        error = 4 * math.sqrt(result.pvalue / 4000) + 0.25 * result.pvalue
        assert once.pvalue == pytest.approx(result.pvalue / (1 - BY_ITSELF), abs=error)
        assert once.looks[0].level == pytest.approx(0.05, rel=0.3)


@pytest.mark.parametrize("dependence", ["independent", "any"])
def test_a_difference_along_one_attribute_is_named_by_it(dependence: Any) -> None:
    """Clusters are the levels of the attribute, with intervals for a choice among those, not among sets of cells."""
    monitor, alone = (fl.Monitor(looks=2, draws=2000, dependence=dependence, margins=m) for m in (True, False))
    for monitored in (monitor, alone):
        monitored.update(crossed(1, 0.0, share=0.1))
        monitored.update(crossed(0, 1.2))
    now, cells = monitor.result, alone.result
    assert now.verdict == "differ"
    assert now.along == ("type",)
    assert cells.along == ()
    assert [{key_of(label)[2] for label in cluster} for cluster in now.clusters] == [{"t0"}, {"t1"}]
    width = [effect.upper - effect.lower for effect in now.cluster_effects]
    assert max(width) < 2
    assert fl.Monitor.from_json(monitor.to_json()).result == now
    assert "type t1" in str(now)
    assert cells.pvalue > 3 * now.pvalue


def test_a_state_with_attributes_that_groups_do_not_have_is_refused() -> None:
    monitor = fl.Monitor(looks=1, draws=1000)
    monitor.update(crossed(0, 1.2))
    edited = json.loads(monitor.to_json())
    del edited[CHECKSUM]
    with refused("unreadable file: state"):
        fl.Monitor.from_json(dump_state(edited | {"along": ["browser"]}))


def test_a_decision_is_reached_and_stays() -> None:
    monitor = fl.Monitor(looks=6, draws=500)
    seen = [monitor.update(look) for look in looks(FAR)]
    assert [result.rejected for result in seen] == [False, True, True, True, True, True]
    assert seen[1].clusters == (("a", "b"), ("c", "d", "e"))
    assert {result.pvalue for result in seen[1:]} == {seen[1].pvalue}
    assert [result.look.number for result in seen if result.look] == [1, 2, 3, 4, 5, 6]
    assert seen[5].decided == seen[1].look
    assert {n.code for n in seen[5].notes} - {n.code for n in seen[1].notes} == {"after the end"}
    widths = [r.groups[0].effect.upper - r.groups[0].effect.lower for r in seen[1:]]
    assert widths == sorted(widths, reverse=True)
    assert len(seen[5].cluster_effects) == seen[5].n_clusters >= 2
    assert fl.Monitor.from_json(monitor.to_json()).result == seen[5]
    assert monitor.update(looks(FAR)[-1]) == seen[5]  # the same data once more
    assert seen[1].n_clusters == 2
    assert seen[1].look is not None
    assert seen[1].look.number == 2
    assert seen[0].pvalue > 0.05 >= seen[1].pvalue
    assert seen[1].verdict == "differ"
    assert [note.code for note in seen[1].notes] == ["changes", "look", "intervals", "assumption", "next"]
    assert seen[1].headline in str(seen[1])
    assert seen[0].n_clusters == 1
    assert seen[0].clusters == (tuple(LABELS),)
    assert seen[0].verdict == "continue"


def test_the_end_without_a_claim() -> None:
    monitor = fl.Monitor(looks=3, draws=500)
    seen = [monitor.update(look) for look in looks(days=4)]
    assert [result.finished for result in seen] == [False, False, True, True]
    assert seen[3].verdict == "ended"
    assert seen[3].pvalue == seen[2].pvalue
    assert (seen[3].looks[3].information or 0) > (seen[2].looks[2].information or 0)
    assert seen[3].decided == seen[2].look
    assert fl.Monitor.from_json(monitor.to_json()).result == seen[3]
    assert [result.looks[-1].fraction for result in seen[:3]] == pytest.approx([1 / 3, 2 / 3, 1])
    assert seen[2].looks[-1].spent == 0.05
    p = [result.pvalue for result in seen]
    assert p == sorted(p, reverse=True)


def test_what_is_beyond_all_draws_is_seen_at_the_first_look() -> None:
    """O'Brien and Fleming spend 1e-18 at look 1 of 20: no number of draws gets there, the look's own p does."""
    look = fl.Monitor(looks=20, draws=500).update(looks([0, 0, 0, 0, 30.0])[0])
    assert look.rejected
    assert look.looks[0].boundary is None
    assert look.pvalue < 1e-6
    assert look.clusters == (("a", "b", "c", "d"), ("e",))
    assert not fl.Monitor(looks=20, draws=500).update(looks([0, 0, 0, 0, 7.0])[0]).rejected


def test_information_may_be_planned_and_need_not_be_even() -> None:
    by_size = fl.Monitor(information=1000, draws=500)
    results = [by_size.update(look) for look in looks(days=6)[::2]]
    assert [result.looks[-1].fraction for result in results] == pytest.approx([0.25, 0.75, 1.0])
    assert results[-1].finished
    by_precision = fl.Monitor(information=20, draws=500)
    results = [by_precision.update(look) for look in looks(days=2, n=None)]
    assert [result.looks[-1].fraction for result in results] == pytest.approx([0.25, 0.5])
    assert results[-1].looks[-1].information == pytest.approx(10)
    assert results[-1].dependence == "independent"


def test_without_a_plan_it_never_ends_unless_told() -> None:
    monitor = fl.Monitor(draws=500)
    results = [monitor.update(look, final=i == 5) for i, look in enumerate(looks(days=6))]
    assert [result.looks[-1].fraction for result in results] == pytest.approx([1 / 6, 2 / 7, 3 / 8, 4 / 9, 5 / 10, 1])
    assert [result.finished for result in results] == [False] * 5 + [True]
    assert monitor.spending == "obrien-fleming"
    assert fl.Monitor(looks=3).spending == "reserve"
    assert fl.Monitor(looks=3, dependence="any").spending == "haybittle-peto"


def test_nothing_assumed_is_a_p_for_every_look() -> None:
    monitor = fl.Monitor(looks=4, dependence="any", spending=lambda fraction: fraction)
    p = []
    for look in looks(days=4):
        result = monitor.update(look)
        p.append(fl.cluster(look).pvalue)
        assert result.looks[-1].pvalue == pytest.approx(p[-1], rel=1e-9)
        assert result.looks[-1].level == pytest.approx(0.05 / 4)
        assert result.pvalue == pytest.approx(min(1.0, 4 * min(p)), rel=1e-3)
    assert (result.dependence, result.verdict) == ("any", "ended")


def test_returning_users_make_the_boundary_stricter() -> None:
    """The same people bring more data: sizes stand still, standard errors of their totals do not."""
    how: dict[str, Any] = {"looks": 5, "draws": 2000, "spending": "pocock"}
    independent, other = fl.Monitor(dependence="independent", **how), fl.Monitor(dependence="returning", **how)
    for day, look in enumerate(looks(days=5), start=1):
        same = look.changed(n=np.full(5, 1000.0 + day), se=np.full(5, day**0.5))
        plain, careful = independent.update(same), other.update(same)
    assert careful.looks[-1].level < 0.8 * plain.looks[-1].level
    fresh = [fl.Monitor(looks=5, draws=500, dependence=d) for d in ("independent", "returning")]
    for look in looks(days=5):
        alike = [monitor.update(look).looks[-1] for monitor in fresh]
        assert alike[0].statistic == alike[1].statistic
        assert (alike[0].boundary or 0) == pytest.approx(alike[1].boundary or 0, rel=1e-9)


def test_the_order_of_groups_does_not_matter() -> None:
    straight, mixed = (fl.Monitor(looks=6, draws=500) for _ in range(2))
    for i, look in enumerate(looks([0, 0, 1.0, 1.0, 3.0])):
        places = np.random.default_rng(i).permutation(5) if i else np.arange(5)
        turned = fl.Estimates(look.theta[places], look.se[places], [LABELS[p] for p in places], n=look.n)
        assert straight.update(look) == mixed.update(turned)


def test_rates_on_their_scale(tmp_path: Path) -> None:
    import pandas as pd

    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"group": rng.choice(list("abcdef"), 6000), "day": np.sort(rng.integers(0, 4, 6000))})
    rows["bought"] = (rng.random(6000) < np.where(rows.group == "c", 0.3, 0.1)).astype(int)
    monitor = fl.Monitor(looks=4, draws=500)
    for day in range(4):
        measured = fl.measure(rows[rows.day <= day], by="group", metric=fl.rate("bought"))
        look = monitor.update(measured.estimates)
        monitor = fl.Monitor.from_json(monitor.to_json())
    assert look.clusters == (("a", "b", "d", "e", "f"), ("c",))
    assert look.dependence == "returning"


# -------------------------------------------------------------------------------------------------------- groups change


def test_groups_that_appear_later_and_groups_that_stop() -> None:
    all_looks = looks([0, 0, 0, 0, 9.0], days=4, seed=2)
    first = all_looks[0].subset(np.arange(5) < 4)
    later = all_looks[1].subset(np.arange(5) > 0)

    def begun() -> fl.Monitor:
        monitor = fl.Monitor(looks=4, draws=500)
        monitor.update(first)
        return monitor

    with refused("mismatch: estimates"):
        begun().update(all_looks[1], new="error")
    with refused("mismatch: estimates"):
        begun().update(later)
    added = begun().update(all_looks[1])
    assert [group.status for group in added.groups] == ["measured"] * 4 + ["new"]
    assert added.changes is not None
    assert added.changes.new == ("e",)
    look = begun().update(later, missing="keep")
    assert look.clusters == (("a", "b", "c", "d"), ("e",))
    assert look.ignored == {"stopped": 1}
    assert look.looks[-1].information == 50 + 4 * 100
    assert [group.label for group in look.groups if group.status == "stopped"] == ["a"]
    left = begun().update(later, new="add", missing="ignore")
    assert left.clusters == (("b", "c", "d"), ("e",))
    only = begun().update(later, new="ignore", missing="ignore")
    assert not only.rejected
    assert only.clusters == (("b", "c", "d"),)
    assert only.ignored == {"new": 1, "missing": 1}


# ------------------------------------------------------------------------------------------------------ between runs


@pytest.mark.parametrize("dependence", ["independent", "returning", "any"])
@pytest.mark.parametrize("dof", [None, 9.0])
def test_saved_and_resumed_every_day(tmp_path: Path, dependence: Any, dof: float | None) -> None:
    settings: dict[str, Any] = {"looks": 5, "alpha": 0.02, "draws": 400, "seed": 7, "dependence": dependence}
    straight, path = fl.Monitor(**settings), tmp_path / "state.json"
    fl.Monitor(**settings).save(path)
    for day, look in enumerate(looks([0, 0, 0, 0.6, 1.0], days=5, seed=4), start=1):
        freedom, pairs = None if dof is None else dof * day, [(label, 1) for label in LABELS]
        today = look.changed(dof=freedom, labels=pairs, attributes=["g", "x"])
        resumed = fl.Monitor.load(path)
        assert resumed.update(today) == straight.update(today)
        assert resumed.to_json() == straight.to_json()
        resumed.save(path)
        assert fl.Monitor.load(path).result == straight.result
    assert list(tmp_path.iterdir()) == [path]
    assert "draws" in json.loads(path.read_text())
    assert len(path.read_text()) < 10_000  # what was observed, not what was drawn


def test_a_spending_function_of_ones_own_is_asked_for_again() -> None:
    monitor = fl.Monitor(looks=3, draws=500, spending=lambda fraction: fraction**2)
    monitor.update(looks()[0])
    state = monitor.to_json()
    with refused("missing: spending"):
        fl.Monitor.from_json(state)
    with refused("unreadable file: state"):
        fl.Monitor.from_json(state, spending=lambda fraction: fraction)
    again = fl.Monitor.from_json(state, spending=lambda fraction: fraction**2)
    assert again.update(looks()[1]) == monitor.update(looks()[1])
    with refused("conflict: spending"):
        fl.Monitor.from_json(fl.Monitor(looks=3).to_json(), spending=lambda fraction: fraction)
    shares: list[Any] = [lambda fraction: 2.0, lambda fraction: "x", lambda fraction: math.nan]
    for share in shares:
        with refused("wrong return value: spending"):
            fl.Monitor(looks=3, draws=500, spending=share).update(looks()[0])


def test_draws_that_do_not_come_back_are_noticed() -> None:
    monitor = fl.Monitor(looks=6, draws=500, spending="pocock")
    monitor.update(looks()[0])
    plain = json.loads(monitor.to_json())
    del plain[CHECKSUM]
    plain["results"][0]["boundary"] *= 1.01
    changed = fl.Monitor.from_json(dump_state(plain))
    with refused("invalid data: state"):
        changed.update(looks()[1])


def test_an_interrupted_look_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    straight, broken = (fl.Monitor(looks=6, draws=500) for _ in range(2))
    for monitor in (straight, broken):
        monitor.update(looks()[0])
    with monkeypatch.context() as patch:
        patch.setattr("faultlines.analyses.monitor.pvalue_so_far", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            broken.update(looks()[1])
    assert broken.update(looks()[1]) == straight.update(looks()[1])


def _interrupt(*_: Any) -> float:
    raise KeyboardInterrupt


# ------------------------------------------------------------------------------------------------------------ bad input


def begun(**settings: Any) -> fl.Monitor:
    monitor = fl.Monitor(**{"looks": 6, "draws": 500} | settings)
    monitor.update(looks()[1])
    return monitor


BARE: dict[str, Any] = {"n": None}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fl.Monitor(alpha=2), "out of range: alpha"),
        (lambda: fl.Monitor(looks=0), "out of range: looks"),
        (lambda: fl.Monitor(looks=3, information=5), "conflict: looks, information"),
        (lambda: fl.Monitor(information=-1), "out of range: information"),
        (lambda: fl.Monitor(spending="pocok"), "unknown: spending"),
        (lambda: fl.Monitor(dependence="none"), "unknown: dependence"),  # type: ignore[arg-type]
        (lambda: fl.Monitor(draws=50), "too few: draws"),
        (lambda: fl.Monitor(seed=-1), "out of range: seed"),
        (lambda: fl.Monitor().update([1, 2]), "wrong type: estimates"),
        (lambda: fl.Monitor().update(fl.Estimates([1], [1])), "too few: estimates"),
        (lambda: fl.Monitor().update(fl.Estimates([[1, 2], [1, 2]], [[1, 1], [1, 1]])), "unsupported: estimates"),
        (lambda: begun().update(looks()[1]), "duplicate: estimates"),
        (lambda: begun().update(looks()[0]), "mismatch: estimates"),
        (lambda: begun(dependence="any").update(looks()[0]), "mismatch: estimates"),
        (lambda: begun().update(looks(seed=5)[1]), "mismatch: estimates"),
        (lambda: begun(dependence="independent").update(looks(seed=5)[1]), "mismatch: estimates"),
        (lambda: begun().update(looks()[2].changed(n=None)), "mismatch: estimates"),
        (lambda: begun().update(looks()[2].changed(metric="lift")), "mismatch: estimates"),
        (lambda: begun().update(looks()[2], missing="drop"), "unknown: missing"),  # type: ignore[arg-type]
        (lambda: begun().update(looks()[2], new="drop"), "unknown: new"),  # type: ignore[arg-type]
        (lambda: begun().update(looks()[2], final=1), "wrong type: final"),  # type: ignore[arg-type]
        (lambda: begun().update(looks(labels=list("vwxyz"))[2], new="ignore", missing="ignore"), "too few: estimates"),
        (lambda: fl.Monitor(dependence="returning").update(looks(**BARE)[0]), "missing: dependence"),
        (lambda: fl.Monitor(draws=100_000_000).update(looks()[0]), "out of range: draws"),
        (lambda: fl.Monitor.from_json("{"), "unreadable file: state"),
        (
            lambda: fl.Monitor.from_json(begun().to_json().replace('_monitor": 6', '_monitor": 9')),
            "unsupported: state",
        ),
        (lambda: fl.Monitor.from_json(begun().to_json().replace("100.0", "101.0", 1)), "invalid data: state"),
        (lambda: fl.Monitor.load("no/such/file"), "unreadable file: path"),
        (lambda: fl.Monitor().save("no/such/folder/file"), "unwritable file: path"),
    ],
)
def test_bad_input(call: Any, words: str) -> None:
    with refused(words):
        call()


def test_information_that_falls() -> None:
    """Standard errors given as known may not rise; estimated ones may a little, and nothing is gained by it."""

    def first(dof: float | None = None, **settings: Any) -> fl.Monitor:
        monitor = fl.Monitor(looks=6, draws=500, **settings)
        monitor.update(looks(n=None, dof=dof)[1])
        return monitor

    worse = looks(n=None, seed=1)[1].changed(se=np.array([0.72, 0.6, 0.6, 0.6, 0.6]))
    with refused("mismatch: estimates"):
        first().update(worse)
    look = first(dof=20.0).update(worse.changed(dof=30.0))
    assert look.looks[-1].information == pytest.approx(2 + 4 / 0.36)
    assert len(first(dependence="any").update(worse).looks) == 2
    with refused("mismatch: estimates"):
        first(dof=20.0).update(worse.changed(dof=30.0, se=np.full(5, 0.8)))


def test_a_failed_look_changes_nothing() -> None:
    monitor = begun()
    before = monitor.to_json()
    for bad in (looks()[0], looks()[2].changed(n=None), looks(labels=list("vwxyz"))[2]):
        with pytest.raises(fl.InputError):
            monitor.update(bad)
    assert monitor.to_json() == before
    straight = begun()
    assert monitor.update(looks()[2]) == straight.update(looks()[2])


def test_plain_data() -> None:
    result = begun().result
    plain = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert plain["clusters"] == [LABELS]
    assert plain["looks"][0]["number"] == 1
    assert plain["pvalue"] == result.pvalue
    assert plain["dependence"] == "returning"
    nothing = fl.Monitor().result
    assert nothing.look is None
    assert (nothing.verdict, [note.code for note in nothing.notes]) == ("continue", ["next"])


def test_another_experiment_on_the_second_day_is_refused() -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {"g": rng.choice(list("ab"), 3000), "h": rng.choice(list("ab"), 3000), "y": rng.gamma(2, 1, 3000)}
    )
    rows["arm"] = rng.choice(list("ABC"), 3000)

    def looked(part: pd.DataFrame, by: str = "g", **change: Any) -> fl.Estimates:
        how: dict[str, Any] = {"variant": "arm", "control": "A", "treatment": "B"} | change
        return fl.measure(part, by, fl.lift("y", **how)).estimates

    for more in ({"treatment": "C"}, {"control": "C"}, {"by": "h"}):
        monitor = fl.Monitor(looks=3, draws=400)
        monitor.update(looked(rows[:1500]))
        again = fl.Monitor.from_json(monitor.to_json())
        with refused("mismatch: estimates"):
            again.update(looked(rows, **more))
        assert not again.update(looked(rows)).finished
    monitor = fl.Monitor(looks=3, draws=400)
    monitor.update(fl.Estimates([0, 1, 2], [1] * 3, list("abc")))
    with refused("mismatch: estimates"):
        monitor.update(fl.Estimates([0, 1, 2.5], [0.5] * 3, list("abc"), n=10))


@pytest.mark.parametrize(
    "function",
    [lambda alpha, fraction: alpha * fraction, lambda fraction: 1 - fraction, lambda fraction: fraction / 2],
    ids=["takes two numbers", "falls", "ends below 1"],
)
def test_a_spending_function_that_is_none_is_refused(function: Any) -> None:
    with refused("wrong return value: spending"):
        fl.Monitor(looks=3, spending=function)


def test_intervals_that_share_alpha_over_planned_looks_end_with_them() -> None:
    """With nothing assumed of looks, α is divided over those that were planned: a further one would have none."""
    monitor = fl.Monitor(looks=2, dependence="any")
    seen = [monitor.update(look) for look in looks(FAR)[:4]]
    assert [len(result.looks) for result in seen] == [1, 2, 2, 2]
    assert seen[3] == seen[1]


def test_differences_of_groups_too_small_for_a_lift_are_in_points_too() -> None:
    rng = np.random.default_rng(4)
    size = {"a": 4_000, "b": 4_000, "c": 60}
    rows = pd.DataFrame({"g": np.repeat(list(size), list(size.values()))})
    rows["arm"] = np.where(np.arange(len(rows)) % 2, "A", "B")
    rows["bought"] = (rng.random(len(rows)) < 0.1).astype(int)
    metric = fl.lift("bought", variant="arm", control="A")
    monitor = fl.Monitor(looks=5)
    now = monitor.update(rows, "g", metric)
    assert [(small.label, small.unit) for small in now.small] == [("c", " points")]
    assert fl.Monitor.from_json(monitor.to_json()).result == now
