"""What a reader decides by: who, how much, how sure, what cannot be seen; in words that name people."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import faultlines as fl
from faultlines import simulate
from faultlines.estimates.labels import keys_of
from faultlines.result.decision import contrast, decide, harms_of, standings
from faultlines.result.rules import Population
from faultlines.result.who import who

AGES = [fl.Range(low, low + 10, True) for low in (20, 30, 40, 50)]
LABELS = list(itertools.product(["Black", "White", "Asian"], ["men", "women"], AGES))
ATTRIBUTES = ("race", "sex", "age")


@pytest.fixture(scope="module")
def demo() -> fl.Clustering:
    return fl.cluster(simulate.onboarding().estimates)


def population(sizes: Any = None) -> Population:
    return Population(keys_of(LABELS), ATTRIBUTES, None if sizes is None else np.asarray(sizes, dtype=float))


def places(*wanted: tuple[str, str, int]) -> np.ndarray:
    return np.array([i for i, (race, sex, age) in enumerate(LABELS) if (race, sex, int(age.lower)) in wanted])


# -------------------------------------------------------------------------------------------------------------- who


def test_groups_that_share_values_are_named_together_and_by_their_attributes() -> None:
    chosen = places(("Black", "men", 20), ("Black", "men", 40), ("Black", "men", 50))
    assert who(population(), chosen, 80) == ("race Black, sex men, age 20–29 or 40–59", True)
    both = places(("Black", "men", 20), ("Black", "women", 20), ("White", "men", 20), ("White", "women", 20))
    assert who(population(), both, 80).words == "race Black or White, age 20–29"  # both sexes are all there are
    assert who(population(), np.arange(len(LABELS)), 80).words == "all 24 groups"


def test_the_largest_come_first_and_the_rest_is_counted() -> None:
    chosen = places(("Black", "men", 20), ("Asian", "women", 50), ("White", "men", 40))
    sizes = np.ones(len(LABELS))
    sizes[chosen] = [5, 30, 90]
    assert who(population(sizes), chosen, 500).words == (
        "race Asian, sex women, age 50–59; race White, sex men, age 40–49; race Black, sex men, age 20–29"
    )
    assert who(population(sizes), chosen, 40) == ("race Asian, sex women, age 50–59; … +2", False)
    plain = Population(keys_of(["DE", "FR", "IN", "PK"]), ("country",), np.array([10.0, 900, 20, 5]))
    assert who(plain, np.array([0, 1, 2]), 40) == ("FR, IN, DE", True)
    assert who(plain, np.array([0, 1, 2]), 8) == ("FR, … +2", False)
    ordered = Population(keys_of(AGES), ("age",), None)
    assert who(ordered, np.array([0, 1, 3]), 40).words == "age 20–39 or 50–59"


@given(st.lists(st.booleans(), min_size=24, max_size=24).filter(any), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_whatever_is_named_describes_just_these_groups(chosen: list[bool], seed: int) -> None:
    """The words are read back: what they describe are the groups that were asked for, no others."""
    wanted = np.flatnonzero(chosen)
    told = who(population(np.random.default_rng(seed).integers(1, 100, 24)), wanted, 10_000)
    assert told.whole
    assert {i for i, key in enumerate(LABELS) if any(holds(part, key) for part in told.words.split("; "))} == set(
        wanted
    )


def holds(part: str, key: tuple[str, str, fl.Range]) -> bool:
    """Whether conditions such as ``race Black or White, age 20–29 or 40–59`` hold for a group."""
    if part == "all 24 groups":
        return True
    conditions = dict(re.findall(r"(race|sex|age) (.*?)(?=, (?:race|sex|age) |$)", part))
    for name, value in zip(ATTRIBUTES, key, strict=True):
        words = re.split(", | or ", conditions.get(name, ""))
        if not conditions.get(name):
            continue
        if isinstance(value, fl.Range):
            ends = [list(map(int, one.split("–"))) for one in words]
            if not any(low <= value.lower and value.upper <= high + 1 for low, high in ends):
                return False
        elif value not in words:
            return False
    return True


# --------------------------------------------------------------------------------------------------------- decision


def test_the_lead_names_who_and_how_much(demo: fl.Clustering) -> None:
    told = decide(demo._summary)
    assert told.lead == (
        "The lift of returning users is 15 points higher for IN, EG, BR, KE, PH, ZA, MX, VN, … +4 (246,290 people) "
        "than for JP, KR, DE, AT, SE, FI, DK, CH (295,452 people)."
    )
    assert [side.cluster for side in told.sides] == [1, 2, 3]
    for side, cluster in zip(told.sides, demo.clusters, strict=True):
        assert cluster.n is not None
        assert side.size == f"{len(cluster.members)} groups, {cluster.n:,.0f} people"
        assert side.effect.startswith(f"{cluster.estimate:+.2%} (")
    assert told.sure[0] == demo.verdict
    assert demo.belief is not None
    assert told.unseen[0].startswith(f"Could be in another cluster too ({int(np.sum(~demo.belief.sure))} of 40 groups")
    assert told.unseen[1] == "No group and no row was left out."
    assert json.loads(demo.to_json())["decision"] == told.to_dict()
    assert told.lead in str(demo)
    assert told.lead in demo.to_markdown()
    assert told.lead in demo._repr_html_()


def test_clusters_are_never_described_by_how_many_groups_they_have() -> None:
    rng = np.random.default_rng(0)
    effect = rng.permutation(np.repeat([0.0, 9.0], 12))  # no rule fits this
    c = fl.cluster(fl.Estimates(effect, [0.5] * 24, LABELS, rng.integers(50, 900, 24), attributes=ATTRIBUTES))
    lead = contrast(c._summary)
    assert not re.search(r"for \d+ groups", lead)
    assert re.search(
        r"^The effect is 9.*higher for race .*\([\d,]+ people\) than for race .*\([\d,]+ people\)\.$", lead
    )


def test_the_rest_of_two_is_the_others_and_a_lone_group_has_its_attributes() -> None:
    effect = [8.0] + [0.0] * 23
    c = fl.cluster(fl.Estimates(effect, [0.5] * 24, LABELS, attributes=ATTRIBUTES))
    assert c.verdict.startswith("race Black, sex men, age 20–29 stands apart from 23 others")
    assert "for race Black, sex men, age 20–29 (1 group) than for the other 23 groups." in str(c)


def test_several_effects_have_a_clause_each_and_amounts_are_told_in_per_cent_too() -> None:
    theta = np.array([[0.0, 5], [0.1, 5], [9, 5], [9.1, 15.1]])
    c = fl.cluster(fl.Estimates(theta, np.full((4, 2), 0.2), ["a", "b", "c", "d"], parts=["x", "y"]))
    assert contrast(c._summary).startswith("The x is 9.05 higher for d than for a, b")
    assert "; the y is 10.10 higher for d than for " in contrast(c._summary)
    import polars as pl

    rng = np.random.default_rng(1)
    group = np.repeat(["a", "b", "c"], 500)
    frame = pl.DataFrame({"g": group, "spend": rng.normal(np.where(group == "c", 15.0, 10.0), 1.0)})
    found = fl.cluster(frame, by="g", metric=fl.mean("spend"))
    assert re.search(r"is [45]\.\d+ \((49|50|51)%\) higher for c \(500 rows\) than for", contrast(found._summary))


def test_nothing_found_leads_with_the_verdict() -> None:
    c = fl.cluster(simulate.null(8).estimates)
    told = decide(c._summary)
    assert told.lead == c.verdict
    assert told.sides == ()
    assert contrast(c._summary) == ""


# -------------------------------------------------------------------------------------------------------------- harm


def test_who_is_worse_off_is_said_by_the_side_that_is_adverse(demo: fl.Clustering) -> None:
    assert standings(demo._summary, ("low",)) == ["worse off", "better off", "better off"]
    assert standings(demo._summary, ("high",)) == ["better off", "worse off", "worse off"]
    assert standings(demo._summary, (None,)) == ["", "", ""]
    assert contrast(demo._summary, ("low",)).startswith(
        "Worse off: the lift of returning users is 15 points lower for JP"
    )
    assert contrast(demo._summary, ("high",)).startswith(
        "Worse off: the lift of returning users is 15 points higher for IN"
    )
    overall = float(demo.overall.estimate)  # type: ignore[arg-type]
    for cluster, told in zip(demo.clusters, standings(demo._summary, ("low",)), strict=True):
        effect = cluster.effects[0]
        assert told == ("worse off" if effect.upper < overall else "better off" if effect.lower > overall else "")
    nothing = fl.cluster(simulate.null(8).estimates)
    assert standings(nothing._summary, ("low",)) == [""]


def test_every_effect_has_its_side_by_name(demo: fl.Clustering) -> None:
    s = demo._summary
    theta = np.array([[0.0, 5], [0.1, 5], [9, 5], [9.1, 15.1]])
    both = fl.cluster(fl.Estimates(theta, np.full((4, 2), 0.2), parts=["x", "y"]))._summary
    assert harms_of(None, [s], ["a"]) == [(None,)]
    assert harms_of("low", [s, both], ["a", "b"]) == [("low",), ("low", "low")]
    assert harms_of({"x": "low", "a": "high"}, [s, both], ["a", "b"]) == [("high",), ("low", None)]
    assert harms_of({"lift of returning users": "low"}, [s], ["a"]) == [("low",)]
    assert standings(both, ("low", None))[0] == "worse off in x"
    for wrong, problem in (
        ("down", "adverse='down'"),
        ({"z": "low"}, "no|not known"),
        ({"a": 3}, "adverse\\['a'\\]=3"),
        (5, "adverse=5"),
    ):
        with pytest.raises(fl.InputError, match=problem):
            harms_of(wrong, [s], ["a"])  # type: ignore[arg-type]
