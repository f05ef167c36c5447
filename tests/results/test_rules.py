from __future__ import annotations

import datetime
import itertools
import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import faultlines as fl
from faultlines.estimates.labels import keys_of
from faultlines.results.rules import NO_RULE, OTHERS, Population, Rule

COUNTRIES, DEVICES = "IN PK BD US DE".split(), ["mobile", "web", "app"]
AGES = [fl.Range(low, low + 5, True) for low in range(20, 70, 5)]
CELLS = list(itertools.product(COUNTRIES, DEVICES, AGES))
NAMES = ["country", "device", "age"]


def rule(labels: list[object], names: list[str], wanted: list[object], sizes: list[float] | None = None) -> Rule:
    """The rule of some groups, where all others are the only other cluster."""
    chosen = set(wanted)
    clusters = np.array([1 if label in chosen else 2 for label in labels])
    return rules(labels, names, clusters, sizes)[0]


def rules(
    labels: list[object], names: list[str], clusters: np.ndarray, sizes: list[float] | None = None
) -> tuple[Rule, ...]:
    return Population(keys_of(labels), names, None if sizes is None else np.array(sizes, dtype=float)).rules(clusters)


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (lambda c, d, a: c in {"IN", "PK", "BD"} and d == "mobile", "country in {BD, IN, PK} and device = mobile"),
        (lambda c, d, a: 45 <= a.lower < 65, "age 45–64"),
        (lambda c, d, a: a.lower < 30 and d != "app", "device ≠ app and age 20–29"),
        (lambda c, d, a: a.lower < 30 or a.lower >= 60, "age 20–29 or 60–69"),
        (lambda c, d, a: c == "US" and 30 <= a.lower < 35, "country = US and age 30–34"),
        (
            lambda c, d, a: (c in {"IN", "PK"} and d == "mobile") or (c == "US" and a.lower >= 50),
            "country in {IN, PK} and device = mobile, or country = US and age 50–69",
        ),
        (
            lambda c, d, a: not ((c in {"IN", "PK"} and d == "mobile") or (c == "US" and a.lower >= 50)),
            "neither (country in {IN, PK} and device = mobile) nor (country = US and age 50–69)",
        ),
    ],
)
def test_planted_rules_come_back_word_by_word(condition: object, words: str) -> None:
    description = rule(list(CELLS), NAMES, [cell for cell in CELLS if condition(*cell)])  # type: ignore[operator]
    assert description == words
    assert description.exact


@pytest.mark.parametrize(
    ("values", "wanted", "words"),
    [
        (["18-24", "25-34", "35-44", "45-54", "55-64", "65+"], ["45-54", "55-64"], "x 45–64"),
        (["18-24", "25-34", "35-44", "45-54", "55-64", "65+"], ["65+", "55-64"], "x 55+"),
        (["Less than 25", "25 - 45", "Greater than 45"], ["Less than 25", "25 - 45"], "x up to 45"),
        (["18-24", "25-34", "65+"], ["65+"], "x = 65+"),
        ([2018, 2019, 2020, 2021], [2020, 2021], "x 2020–2021"),
        ([2018, 2019, 2020, 2021], [2019], "x = 2019"),
        ([-2.5, -1.0, 0.5], [-1.0, 0.5], "x -1.0 to 0.5"),
        (["2026-01-01", "2026-02-01", "2026-03-01"], ["2026-01-01", "2026-02-01"], "x 2026-01-01 to 2026-02-01"),
        ([1, 2, 3, "(missing)"], [1, 2, 3], "x ≠ (missing)"),
        ([1, 2, 3, "(missing)"], ["(missing)", 3], "x 3 or (missing)"),
        ([1, 2, 3, "(missing)"], ["(missing)"], "x = (missing)"),
        (["a", "b", "c, d", ""], ["c, d", ""], 'x in {"", "c, d"}'),
        (["a", "b", "US and CA", 'q"'], ["US and CA", 'q"'], 'x in {"US and CA", "q\\""}'),
        (["1", "2", "3", "10"], ["3", "10"], "x 3–10"),
        (["01", "02", "03", "10"], ["03", "10"], "x in {03, 10}"),
        ([1, 2, 3.5, 4], [3.5, 4], "x 3.5 to 4"),
        ([np.int64(1), np.int64(2), np.int64(3)], [np.int64(2), np.int64(3)], "x 2–3"),
        (list("abcdef"), list("abcde"), "x ≠ f"),
        (list("abcdefgh"), list("abcdef"), "x not in {g, h}"),
        ([True, False], [True], "x = True"),
        # Overlapping ranges and mixed types have no order.
        (["10-20", "15-30", "40-50", "60-70"], ["10-20", "40-50"], "x in {10-20, 40-50}"),
        ([1, "1", 2.5, "b"], [1, "b"], "x in {1, b}"),
        (
            [datetime.datetime(2024, 1, day, 0, 0, 0, day % 2) for day in (1, 2, 3, 4)],
            [datetime.datetime(2024, 1, 1, 0, 0, 0, 1), datetime.datetime(2024, 1, 3, 0, 0, 0, 1)],
            "x 2024-01-01 00:00:00.000001 or 2024-01-03 00:00:00.000001",
        ),
    ],
)
def test_one_attribute(values: list[object], wanted: list[object], words: str) -> None:
    description = rule(values, ["x"], wanted)
    assert description == words
    assert description.exact


def test_long_lists_are_counted_and_all_groups_need_no_rule() -> None:
    values: list[object] = [f"v{i:02}" for i in range(60)]
    assert rule(values, ["x"], values[:20]).endswith("v11, … +8}")
    assert rule(values, ["x"], values) == "all groups"


def test_a_rule_is_text_that_knows_its_fit() -> None:
    description = Rule("age 45–64", 0.92, 0.857, "units")
    assert description == "age 45–64 (matches 92% of its units, covers 86%)"
    assert description.fits
    assert not description.exact
    assert Rule("x = 1", 0.999, 1.0) == "x = 1 (matches 99% of its groups, covers 100%)"
    again = pickle.loads(pickle.dumps(description))
    assert (again, again.matches, again.covers) == (description, 0.92, 0.857)
    none = Rule(NO_RULE, 0.4, 0.9)
    assert (str(none), none.fits, none.exact, none.matches) == ("no short rule", False, False, 0.4)


cells = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 5), st.sampled_from([True, False])), min_size=2, unique=True
)


@settings(deadline=None, max_examples=60)
@given(cells, st.data())
def test_the_fit_is_that_of_the_words(labels: list[tuple[str, int, bool]], data: st.DataObject) -> None:
    """An independent reader of rules evaluates the text itself, and counts people."""
    chosen = data.draw(st.lists(st.sampled_from(labels), min_size=1, unique=True))
    sizes = data.draw(st.lists(st.integers(1, 1000), min_size=len(labels), max_size=len(labels)))
    description = rule(list(labels), ["c", "i", "b"], list(chosen), list(map(float, sizes)))
    if description != "all groups" and description.fits:
        described = {label for label in labels if reads(str(description), dict(zip("cib", label, strict=True)))}
        n = dict(zip(labels, sizes, strict=True))
        right = sum(n[label] for label in described & set(chosen))
        assert description.matches == pytest.approx(right / sum(n[label] for label in described))
        assert description.covers == pytest.approx(right / sum(n[label] for label in chosen))
        assert description.exact == (described == set(chosen))
        assert min(description.matches, description.covers) >= 0.5


@settings(deadline=None, max_examples=80)
@given(cells, st.data())
def test_no_group_is_in_two_rules_of_a_partition(labels: list[tuple[str, int, bool]], data: st.DataObject) -> None:
    count = data.draw(st.integers(2, min(6, len(labels))))
    drawn = data.draw(st.lists(st.integers(1, count), min_size=len(labels), max_size=len(labels)))
    clusters = np.array([*range(1, count + 1), *drawn[count:]])  # each has a group at least
    sizes = data.draw(st.none() | st.lists(st.floats(0, 1e6), min_size=len(labels), max_size=len(labels)))
    descriptions = rules(list(labels), ["c", "i", "b"], clusters, sizes)
    named = [description for description in descriptions if description.fits and not description.startswith(OTHERS)]
    assert sum(description.startswith(OTHERS) for description in descriptions) <= 1
    for label in labels:
        levels = dict(zip("cib", label, strict=True))
        assert sum(description == "all groups" or reads(str(description), levels) for description in named) <= 1
    if count == 2:  # each is what the other is not
        assert descriptions[0].fits == descriptions[1].fits
        if descriptions[0].fits:
            assert all(
                reads(str(descriptions[0]), dict(zip("cib", label, strict=True)))
                != reads(str(descriptions[1]), dict(zip("cib", label, strict=True)))
                for label in labels
            )


@settings(deadline=None, max_examples=60)
@given(cells, st.data())
def test_rules_do_not_depend_on_the_unit_of_sizes(labels: list[tuple[str, int, bool]], data: st.DataObject) -> None:
    clusters = np.array(data.draw(st.lists(st.integers(1, 3), min_size=len(labels), max_size=len(labels))))
    clusters = np.unique(clusters, return_inverse=True)[1] + 1
    sizes = data.draw(st.lists(st.integers(0, 1000), min_size=len(labels), max_size=len(labels)))
    shift = data.draw(st.integers(-20, 20))
    descriptions = rules(list(labels), ["c", "i", "b"], clusters, list(map(float, sizes)))
    scaled = rules(list(labels), ["c", "i", "b"], clusters, [size * 2.0**shift for size in sizes])
    assert [(str(description), description.matches) for description in descriptions] == [
        (str(description), description.matches) for description in scaled
    ]


def test_rules_are_about_people() -> None:
    """Four large groups of the web and one small one that is not: few people, so the rule is nearly right."""
    labels = list(itertools.product(["web", "app"], range(5)))
    clusters = np.array([1, 1, 1, 1, 2, 2, 2, 2, 2, 1])
    sizes = [1000.0] * 4 + [1.0] + [1000.0] * 4 + [1.0]
    descriptions = rules(list(labels), ["device", "country"], clusters, sizes)
    assert [str(description) for description in descriptions] == [
        "device = web (matches 99% of its units, covers 99%)",
        "device = app (matches 99% of its units, covers 99%)",
    ]
    counted = rules(list(labels), ["device", "country"], clusters)[0]  # by groups, the two small ones are worth saying
    assert counted == "device = web and country 0–3, or device = app and country = 4"


def test_a_group_of_nobody_is_still_a_group() -> None:
    labels = [("web", 1), ("web", 2), ("app", 1), ("app", 2)]
    descriptions = rules(list(labels), ["device", "age"], np.array([1, 1, 2, 1]), [5.0, 5.0, 5.0, 0.0])
    assert descriptions[1] == "device = app and age = 1"
    assert descriptions[0].exact
    nobody = rules(list(labels), ["device", "age"], np.array([1, 1, 2, 2]), [0.0] * 4)
    assert nobody == ("device = web", "device = app")


def test_of_two_clusters_each_is_what_the_other_is_not() -> None:
    corner = [cell for cell in CELLS if cell[0] == "US" and cell[1] == "web"]
    clusters = np.array([1 if cell in corner else 2 for cell in CELLS])
    descriptions = rules(list(CELLS), NAMES, clusters)
    assert descriptions == ("country = US and device = web", "all but (country = US and device = web)")


def test_no_rule_has_a_condition_without_values() -> None:
    """One large group and two small ones that are not worth reading."""
    cells: list[object] = list(itertools.product(range(5), "fm", [10, 20, 30, 40]))
    for seed in range(50):
        rng = np.random.default_rng(seed)
        clusters = rng.integers(1, 3, len(cells))
        clusters[rng.permutation(len(cells))[:3]] = 3
        sizes = np.exp(2 * rng.standard_normal(len(cells))).tolist()
        for description in rules(cells, ["race", "sex", "age"], clusters, sizes):
            assert not re.search(r"(race|sex|age) *($|[(),]|and|or)", description.condition)


def test_a_search_ends_where_every_box_holds_groups_of_other_rules() -> None:
    """Cells of 2 × 3 levels, four of each, in three clusters that run along these levels."""
    cells: list[object] = [cell for cell in itertools.product("ab", "xyz") for _ in range(4)]
    clusters = np.repeat([2, 3, 3, 1, 1, 2], 4)
    assert [bool(rule.fits) for rule in rules(cells, ["p", "q"], clusters)] == [True, True, True]


def test_the_largest_cluster_may_be_all_others() -> None:
    """Where it is what five exact rules leave, no three boxes say so as well."""
    small = {(country, DEVICES[i % 3]): i + 1 for i, country in enumerate(COUNTRIES)}
    clusters = np.array([small.get((c, d), 6) for c, d, _ in CELLS])
    descriptions = rules(list(CELLS), NAMES, clusters)
    assert descriptions[0] == "country = IN and device = mobile"
    assert descriptions[5] == OTHERS
    assert all(description.exact for description in descriptions)


def test_rules_that_are_mostly_wrong_are_not_shown() -> None:
    rng = np.random.default_rng(3)
    labels = list(itertools.product(range(12), "abcdefghijkl"))
    theta = np.where(rng.random(144) < 0.3, 20.0, 0.0) + rng.normal(0, 0.1, 144)
    result = fl.cluster(fl.Estimates(theta, [1.0] * 144, labels, attributes=["number", "letter"]))
    assert [cluster.rule for cluster in result.clusters] == [NO_RULE, NO_RULE]
    rows = result.to_dicts("clusters")
    assert [row["rule"] for row in rows] == [None, None]
    assert min(rows[1]["rule_matches"], rows[1]["rule_covers"]) < 0.5
    assert re.search(r"no short rule: number \S+, letter \S+", str(result))
    assert "| no short rule |" in result.to_markdown()
    assert '"rule": null' in result.to_json()


def reads(words: str, label: dict[str, object]) -> bool:
    """Whether a rule in words describes a group."""
    words = words.partition(" (matches")[0]
    if words.startswith(("all but (", "neither (")):
        boxes = words.partition(" (")[2].removesuffix(")").split(") nor (")
        return not any(box_reads(box, label) for box in boxes)
    return any(box_reads(box, label) for box in words.split(", or "))


def box_reads(box: str, label: dict[str, object]) -> bool:
    return all(condition_reads(part.removeprefix("(").removesuffix(")"), label) for part in box.split(" and "))


def condition_reads(condition: str, label: dict[str, object]) -> bool:
    name, _, rest = condition.partition(" ")
    value = str(label[name])
    if rest.startswith("≠ "):
        return value != rest[2:]
    if "in {" in rest:
        return (value in rest.partition("{")[2].removesuffix("}").split(", ")) != rest.startswith("not")
    spans = [span.removeprefix("= ").split("–") for span in rest.split(" or ")]
    return any(span[0] == value if len(span) == 1 else int(span[0]) <= int(value) <= int(span[1]) for span in spans)


@settings(deadline=None, max_examples=60)
@given(cells, st.data())
def test_a_box_that_can_be_exact_is(labels: list[tuple[str, int, bool]], data: st.DataObject) -> None:
    """Groups that fill a box are described exactly, and in no more words than the values they have."""
    letters = data.draw(st.sets(st.sampled_from("abcd"), min_size=1))
    low, high = sorted(data.draw(st.tuples(st.integers(0, 5), st.integers(0, 5))))
    chosen = [label for label in labels if label[0] in letters and low <= label[1] <= high]
    if chosen:
        description = rule(list(labels), ["c", "i", "b"], list(chosen))
        assert description.exact
        assert description.count(" and ") <= 2


def test_the_order_of_groups_does_not_matter() -> None:
    wanted = [cell for cell in CELLS if cell[0] == "US" or (cell[1] == "web" and cell[2].lower > 40)]
    shuffled = [CELLS[i] for i in np.random.default_rng(0).permutation(len(CELLS))]
    assert rule(list(CELLS), NAMES, list(wanted)) == rule(list(shuffled), NAMES, list(reversed(wanted)))


def test_labels_in_a_regular_order_are_sampled_fairly() -> None:
    labels = [(f"c{i % 10}", i // 10 % 50, f"d{i // 500}") for i in range(20_000)]
    flipped = set(np.random.default_rng(0).permutation(20_000)[:200].tolist())
    wanted = [label for i, label in enumerate(labels) if (label[0] in {"c7", "c8", "c9"}) != (i in flipped)]
    description = rule(list(labels), ["c", "i", "d"], list(wanted))
    assert description.startswith("c in {c7, c8, c9} (matches 9")


def test_of_very_many_groups_a_sample_is_searched_and_all_are_judged() -> None:
    labels = list(itertools.product(range(100), "abcd", range(30), "xyz"))
    wanted = [label for label in labels if label[0] < 50 and label[1] == "a" and label != (3, "a", 3, "x")]
    description = rule(list(labels), ["p", "q", "r", "s"], list(wanted))
    assert description.startswith("p 0–49 and q = a")
    assert description.covers == 1
    assert description.matches == pytest.approx(len(wanted) / (len(wanted) + 1))


def test_rules_stand_in_every_output() -> None:
    labels = list(itertools.product(["DE", "FR"], ["app", "web"]))
    result = fl.cluster(fl.Estimates([0, 0.1, 9, 9.2], [1.0] * 4, labels, attributes=["country", "device"]))
    assert [cluster.rule for cluster in result.clusters] == ["country = DE", "country = FR"]
    assert [row["rule"] for row in result.to_dicts("clusters")] == ["country = DE", "country = FR"]
    assert "country = FR" in str(result)
    assert "country = FR" in result.to_markdown()
    assert result.to_polars("clusters")["rule_matches"].to_list() == [1.0, 1.0]
    ages = fl.cluster(fl.Estimates([0, 0.1, 9, 9.2], [1.0] * 4, ["18-24", "25-34", "35-44", "45+"], attributes=["age"]))
    assert "age 18–34" in str(ages)
    assert "members" in str(fl.cluster(fl.Estimates([0, 9, 0.1, 9.2, 0.2, 9.1], [1.0] * 6)))
