"""The words of a clustering: which clusters, by how much, how sure, what is uncertain; groups are named."""

from __future__ import annotations

import itertools
import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import faultlines as fl
from faultlines import simulate
from faultlines.estimates.labels import keys_of
from faultlines.metrics.names import is_plural, recipe_of
from faultlines.render.clustering import (
    contrast,
    decide,
    describe_cluster,
    evidence_notes,
    harm_statuses,
    nothing_added,
    outlier_group,
)
from faultlines.render.data import adverse_sides
from faultlines.render.text import document, hidden_lines, name_groups
from faultlines.results.rules import Population
from tests.refused import refused

if TYPE_CHECKING:
    from faultlines.results import Clustering

AGES = [fl.Range(low, low + 10, True) for low in (20, 30, 40, 50)]
LABELS = list(itertools.product(["Black", "White", "Asian"], ["men", "women"], AGES))
ATTRIBUTES = ("race", "sex", "age")


@pytest.fixture(scope="module")
def demo() -> Clustering:
    return fl.cluster(simulate.onboarding().estimates)


def population(sizes: Any = None) -> Population:
    return Population(keys_of(LABELS), ATTRIBUTES, None if sizes is None else np.asarray(sizes, dtype=float))


def places(*wanted: tuple[str, str, int]) -> np.ndarray:
    return np.array([i for i, (race, sex, age) in enumerate(LABELS) if (race, sex, int(age.lower)) in wanted])


# -------------------------------------------------------------------------------------------------------------- who


def test_a_cluster_with_most_of_the_units_is_not_the_exception() -> None:
    labels = list(itertools.product("abcdef", "xy"))
    first = np.array([label[0] == "a" for label in labels])
    estimates = [fl.Estimates(9.0 * first, [1.0] * 12, labels, n) for n in (None, [50] * 12, 50 + 950 * first)]
    assert ["elsewhere" in contrast(fl.cluster(each)) for each in estimates] == [True, True, False]


def test_groups_that_share_values_are_named_together_and_by_their_attributes() -> None:
    chosen = places(("Black", "men", 20), ("Black", "men", 40), ("Black", "men", 50))
    assert name_groups(population(), chosen, 80)[:2] == ("race Black, sex men, age 20–29 or 40–59", True)
    both = places(("Black", "men", 20), ("Black", "women", 20), ("White", "men", 20), ("White", "women", 20))
    assert name_groups(population(), both, 80).text == "race Black or White, age 20–29"  # both sexes are all there are
    assert name_groups(population(), np.arange(len(LABELS)), 80).text == "all 24 groups"


def test_the_largest_come_first_and_the_rest_is_counted() -> None:
    chosen = places(("Black", "men", 20), ("Asian", "women", 50), ("White", "men", 40))
    sizes = np.ones(len(LABELS))
    sizes[chosen] = [5, 30, 90]
    assert name_groups(population(sizes), chosen, 500).text == (
        "race Asian, sex women, age 50–59; race White, sex men, age 40–49; race Black, sex men, age 20–29"
    )
    assert name_groups(population(sizes), chosen, 40)[:2] == ("race Asian, sex women, age 50–59; … +2", False)
    plain = Population(keys_of(["DE", "FR", "IN", "PK"]), ("country",), np.array([10.0, 900, 20, 5]))
    assert name_groups(plain, np.array([0, 1, 2]), 40)[:2] == ("FR, IN, DE", True)
    assert name_groups(plain, np.array([0, 1, 2]), 8)[:2] == ("FR, … +2", False)
    ordered = Population(keys_of(AGES), ("age",), None)
    assert name_groups(ordered, np.array([0, 1, 3]), 40).text == "age 20–39 or 50–59"


@given(st.lists(st.booleans(), min_size=24, max_size=24).filter(any), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_whatever_is_named_describes_just_these_groups(chosen: list[bool], seed: int) -> None:
    """The words are read back: what they describe are the groups that were asked for, no others."""
    wanted = np.flatnonzero(chosen)
    named = name_groups(population(np.random.default_rng(seed).integers(1, 100, 24)), wanted, 10_000)
    assert named.is_complete
    assert {i for i, key in enumerate(LABELS) if any(holds(part, key) for part in named.text.split("; "))} == set(
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
            ends = [list(map(int, word.split("–"))) for word in words]
            if not any(low <= value.lower and value.upper <= high + 1 for low, high in ends):
                return False
        elif value not in words:
            return False
    return True


# --------------------------------------------------------------------------------------------------------- decision


def test_the_lead_is_the_contrast_of_the_outermost_clusters(demo: Clustering) -> None:
    decision = decide(demo)
    assert decision.lead == contrast(demo)
    assert [row.cluster for row in decision.clusters] == [1, 2, 3]
    for row, cluster in zip(decision.clusters, demo.clusters, strict=True):
        assert cluster.n is not None
        assert row.groups == describe_cluster(demo, cluster).text
        assert f"{cluster.n:,.0f}" in row.size
        assert row.effect.startswith(f"{cluster.estimate:+.2%} (")
    assert decision.evidence[0] == demo.headline
    assert json.loads(demo.to_json())["decision"] == decision.to_dict()
    for text in (str(demo), demo.to_markdown(), demo._repr_html_()):
        assert decision.lead in text


def test_clusters_are_described_by_their_groups_and_not_by_how_many_they_have() -> None:
    rng = np.random.default_rng(0)
    effect = rng.permutation(np.repeat([0.0, 9.0], 12))  # no rule fits this
    c = fl.cluster(fl.Estimates(effect, [0.5] * 24, LABELS, rng.integers(50, 900, 24), attributes=ATTRIBUTES))
    for cluster in c.clusters:
        assert describe_cluster(c, cluster).text.startswith("race ")
        assert describe_cluster(c, cluster).text in contrast(c)


def test_an_outlier_group_is_named_by_its_attributes() -> None:
    c = fl.cluster(fl.Estimates([8.0] + [0.0] * 23, [0.5] * 24, LABELS, attributes=ATTRIBUTES))
    assert outlier_group(c) == 0
    assert c.headline.startswith("race Black, sex men, age 20–29 ")
    assert outlier_group(fl.cluster(fl.Estimates([8.0, 0.0, 0.0], [0.5] * 3))) is None


def test_several_effects_have_a_clause_each_and_amounts_are_relative_too() -> None:
    theta = np.array([[0.0, 5], [0.1, 5], [9, 5], [9.1, 15.1]])
    c = fl.cluster(fl.Estimates(theta, np.full((4, 2), 0.2), ["a", "b", "c", "d"], parts=["x", "y"]))
    assert contrast(c).count(";") == 1
    assert ("9.05" in contrast(c), "10.10" in contrast(c)) == (True, True)
    rng = np.random.default_rng(1)
    group = np.repeat(["a", "b", "c"], 500)
    frame = pl.DataFrame({"g": group, "spend": rng.normal(np.where(group == "c", 15.0, 10.0), 1.0)})
    result = fl.cluster(frame, by="g", metric=fl.mean("spend"))
    assert re.search(r"[45]\.\d+ \((49|50|51)%\)", contrast(result))


def test_nothing_found_leads_with_the_headline() -> None:
    c = fl.cluster(simulate.null(8).estimates)
    decision = decide(c)
    assert decision.lead == c.headline
    assert decision.clusters == ()
    assert contrast(c) == ""


# -------------------------------------------------------------------------------------------------------------- harm


def test_who_is_worse_off_is_said_by_the_side_that_is_adverse(demo: Clustering) -> None:
    assert harm_statuses(demo, ("low",)) == ["worse off", "better off", "better off"]
    assert harm_statuses(demo, ("high",)) == ["better off", "worse off", "worse off"]
    assert harm_statuses(demo, (None,)) == ["", "", ""]
    low, high = (describe_cluster(demo, demo.clusters[i]).text for i in (0, 2))
    for side, first, second in (("low", low, high), ("high", high, low)):
        text = contrast(demo, (side,))  # type: ignore[arg-type]
        assert text.index(first) < text.index(second)
    overall = float(demo.overall.estimate)  # type: ignore[arg-type]
    for cluster, standing in zip(demo.clusters, harm_statuses(demo, ("low",)), strict=True):
        effect = cluster.effects[0]
        assert standing == ("worse off" if effect.upper < overall else "better off" if effect.lower > overall else "")
    nothing = fl.cluster(simulate.null(8).estimates)
    assert harm_statuses(nothing, ("low",)) == [""]


def test_every_effect_has_its_side_by_name(demo: Clustering) -> None:
    theta = np.array([[0.0, 5], [0.1, 5], [9, 5], [9.1, 15.1]])
    both = fl.cluster(fl.Estimates(theta, np.full((4, 2), 0.2), parts=["x", "y"]))
    assert adverse_sides(None, [demo], ["a"]) == [(None,)]
    assert adverse_sides("low", [demo, both], ["a", "b"]) == [("low",), ("low", "low")]
    assert adverse_sides({"x": "low", "a": "high"}, [demo, both], ["a", "b"]) == [("high",), ("low", None)]
    assert adverse_sides({"lift of returning users": "low"}, [demo], ["a"]) == [("low",)]
    assert harm_statuses(both, ("low", None))[0] == "worse off in x"
    for wrong, parameter in (
        ("down", "adverse"),
        ({"z": "low"}, "adverse: name"),
        ({"a": 3}, "adverse['a']"),
        (5, "adverse"),
    ):
        with refused(f"unknown: {parameter}"):
            adverse_sides(wrong, [demo], ["a"])  # type: ignore[arg-type]


def notes_of(c: Clustering) -> dict[str, dict[str, object]]:
    return {note.code: dict(note.fields) for note in c.notes}


def test_a_null_result_says_what_it_does_not_show_and_has_no_table() -> None:
    """One cluster of all groups is no table; that equality is not shown stands beneath the headline."""
    c = fl.cluster(fl.simulate.null(12, seed=1).estimates)
    parts = document(c)
    assert not parts.tables
    assert "equality" in notes_of(c)
    assert len(parts.opening) == 2
    assert decide(c).uncertain[0] == parts.opening[1]
    assert document(fl.cluster(fl.Estimates([1.0], [0.5], ["DE"]))).tables  # the effect of a single group is shown


def test_sentence_and_table_are_reconciled_wherever_they_differ(demo: Clustering) -> None:
    """A note has the distance in the table and the corrected one; the spread and the bound reach the page."""
    fields = notes_of(demo)
    gap = demo.clusters[-1].effects[0].estimate - demo.clusters[0].effects[0].estimate
    assert fields["contrast"]["observed"] == pytest.approx(gap)
    assert 0 < float(str(fields["contrast"]["corrected"])) < gap
    assert demo.spread is not None
    assert fields["spread"]["estimate"] == demo.spread.estimate
    shown = decide(demo).evidence
    assert all(note.text in shown for note in demo.notes if note.code in ("evidence", "spread", "contrast"))


@pytest.mark.parametrize(
    ("metric", "plural"),
    [
        (fl.equalized_odds("y", "p"), True),
        (fl.joint(fl.rate("bought"), fl.mean("spend")), True),
        (fl.rate("salt and pepper"), False),
        (fl.mean("odds"), False),
    ],
)
def test_the_number_of_a_metric_is_not_read_from_its_name(metric: fl.Metric, plural: bool) -> None:
    """Names that users choose are singular, whatever they contain."""
    assert is_plural(recipe_of(metric)) is plural
    assert not is_plural("salt and pepper")


def test_what_is_not_shown_is_found_in_the_spelling_of_the_reader() -> None:
    """No Python on the command line, and no options in Python."""
    assert hidden_lines({"row": 8}, "python") != hidden_lines({"row": 8}, "command")
    assert "--csv" in hidden_lines({"row": 8}, str)[0]
    assert "--csv" in hidden_lines({"row": 8}, "omit")[0]  # the command line says the next step after certificates


def test_why_outlier_groups_were_not_searched_for() -> None:
    """The reason comes from the comparison: counts have one effect and no tolerance."""
    counts, two = fl.binomial([5, 50, 6], 100, ["a", "b", "c"]), np.array([[0.0, 1.0], [5.0, 1.0], [0.0, 1.0]])
    several = fl.Estimates(two, np.full((3, 2), 0.2), parts=["x", "y"])
    results = [fl.cluster(counts), fl.cluster(several), fl.cluster(fl.Estimates([0.0, 5], [0.1, 0.1]), tolerance=1.0)]
    assert len({[note.text for note in c.notes if note.code == "method"][-1] for c in results}) == 3


def test_of_numbers_of_clusters_with_the_same_p_the_highest_is_printed() -> None:
    far = [20.0 * (i // 3) for i in range(21)]
    several = fl.cluster(fl.Estimates(far, [1.0] * 21, [f"g{i}" for i in range(21)]))
    assert several.n_clusters == 7
    text = next(evidence_notes(several)).text
    assert text.count("p < 1e-10") == 1
    assert "more than six" in text


@pytest.mark.parametrize(
    ("names", "start"), [(["further combinations"], "Further"), (["device"], "Device"), (["deviceType"], "deviceType")]
)
def test_a_sentence_begins_with_a_capital_unless_a_column_does_not(names: list[str], start: str) -> None:
    assert nothing_added(names, plural=True).split()[0] == start


def test_effects_of_experiments_have_their_sign() -> None:
    c = fl.cluster(
        pl.DataFrame(simulate.experiment_rows()), "country", fl.difference("spend", variant="arm", control="A")
    )
    assert c.number_formats[0](2.0).startswith("+")
