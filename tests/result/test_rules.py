from __future__ import annotations

import datetime
import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import faultlines as fl
from faultlines.estimates.labels import keys_of
from faultlines.result.explained import explained
from faultlines.result.rules import Population, Rule

COUNTRIES, DEVICES = "IN PK BD US DE".split(), ["mobile", "web", "app"]
AGES = [fl.Range(low, low + 5, True) for low in range(20, 70, 5)]
CELLS = list(itertools.product(COUNTRIES, DEVICES, AGES))
NAMES = ["country", "device", "age"]


def rule(labels: list[object], names: list[str], wanted: list[object]) -> Rule:
    return Population(keys_of(labels), names).rule(tuple(wanted))


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
    found = rule(list(CELLS), NAMES, [cell for cell in CELLS if condition(*cell)])  # type: ignore[operator]
    assert found == words
    assert found.exact


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
    found = rule(values, ["x"], wanted)
    assert found == words
    assert found.exact


def test_long_lists_are_counted_and_all_groups_need_no_rule() -> None:
    values: list[object] = [f"v{i:02}" for i in range(60)]
    assert rule(values, ["x"], values[:20]).endswith("v11, … +8}")
    assert rule(values, ["x"], values) == "all groups"


def test_a_rule_is_text_that_knows_its_fit() -> None:
    made = Rule("age 45–64", 0.92, 0.857)
    assert made == "age 45–64 (precision 92%, recall 86%)"
    assert not made.exact
    assert Rule("x = 1", 0.999, 1.0) == "x = 1 (precision 99%, recall 100%)"
    again = pickle.loads(pickle.dumps(made))
    assert (again, again.precision, again.recall) == (made, 0.92, 0.857)


cells = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 5), st.sampled_from([True, False])), min_size=2, unique=True
)


@settings(deadline=None, max_examples=60)
@given(cells, st.data())
def test_precision_and_recall_are_those_of_the_words(labels: list[tuple[str, int, bool]], data: st.DataObject) -> None:
    """An independent reader of rules evaluates the text itself."""
    chosen = data.draw(st.lists(st.sampled_from(labels), min_size=1, unique=True))
    found = rule(list(labels), ["c", "i", "b"], list(chosen))
    if found.startswith(("all groups", "no short description")):
        described = set(labels)
    else:
        described = {label for label in labels if reads(str(found), dict(zip("cib", label, strict=True)))}
    right = described & set(chosen)
    assert found.precision == pytest.approx(len(right) / max(len(described), 1))
    assert found.recall == pytest.approx(len(right) / len(chosen))


def reads(words: str, label: dict[str, object]) -> bool:
    """Whether a rule in words describes a group."""
    words = words.partition(" (precision")[0]
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
        found = rule(list(labels), ["c", "i", "b"], list(chosen))
        assert found.exact
        assert found.count(" and ") <= 2


def test_the_order_of_groups_does_not_matter() -> None:
    wanted = [cell for cell in CELLS if cell[0] == "US" or (cell[1] == "web" and cell[2].lower > 40)]
    shuffled = [CELLS[i] for i in np.random.default_rng(0).permutation(len(CELLS))]
    assert rule(list(CELLS), NAMES, list(wanted)) == rule(list(shuffled), NAMES, list(reversed(wanted)))


def test_labels_in_a_regular_order_are_sampled_fairly() -> None:
    labels = [(f"c{i % 10}", i // 10 % 50, f"d{i // 500}") for i in range(20_000)]
    flipped = set(np.random.default_rng(0).permutation(20_000)[:200].tolist())
    wanted = [label for i, label in enumerate(labels) if (label[0] in {"c7", "c8", "c9"}) != (i in flipped)]
    found = rule(list(labels), ["c", "i", "d"], list(wanted))
    assert found.startswith("c in {c7, c8, c9} (precision 9")


def test_of_very_many_groups_a_sample_is_searched_and_all_are_judged() -> None:
    labels = list(itertools.product(range(100), "abcd", range(30), "xyz"))
    wanted = [label for label in labels if label[0] < 50 and label[1] == "a" and label != (3, "a", 3, "x")]
    found = rule(list(labels), ["p", "q", "r", "s"], list(wanted))
    assert found.startswith("p 0–49 and q = a")
    assert found.recall == 1
    assert found.precision == pytest.approx(len(wanted) / (len(wanted) + 1))


# --------------------------------------------------------------------------------------------- which attributes matter


def additive(noise: float, seed: int = 0) -> tuple[fl.Estimates, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = list(itertools.product(range(8), range(5), range(4)))
    rng.shuffle(labels)
    labels = labels[:120]  # some cells are missing, so the attributes overlap a little
    a, b, c = np.array(labels).T
    se = rng.uniform(0.5, 2.0, len(labels)) * noise
    theta = 3 * rng.normal(size=8)[a] + rng.normal(size=5)[b] + se * rng.normal(size=len(labels))
    return fl.Estimates(theta, se, labels, attributes=["a", "b", "c"]), np.column_stack([a, b, c])


def test_shares_of_variation_are_those_of_weighted_regressions() -> None:
    statsmodels = pytest.importorskip("statsmodels.api")
    estimates, codes = additive(0.1)
    weight = 1 / estimates.se**2

    def left(columns: list[int]) -> float:
        parts = [np.ones((len(estimates), 1))] + [np.eye(codes[:, i].max() + 1)[codes[:, i]][:, 1:] for i in columns]
        return float(statsmodels.WLS(estimates.theta, np.hstack(parts), weights=weight).fit().ssr)

    found = explained(estimates, Population(keys_of(estimates.labels), estimates.attributes))
    real = left([]) - (len(estimates) - 1)
    assert found[3].alone == pytest.approx(1 - (left([]) - left([0, 1, 2]) - 7 - 4 - 3) / real, abs=1e-6)
    for i, row in enumerate(found[:3]):
        others = [j for j in range(3) if j != i]
        size = row.values - 1
        assert row.alone == pytest.approx(np.clip((left([]) - left([i]) - size) / real, 0, 1), abs=1e-6)
        assert row.beyond == pytest.approx(np.clip((left(others) - left([0, 1, 2]) - size) / real, 0, 1), abs=1e-6)
    assert found[0].alone > 0.7
    assert found[2].beyond < 0.01


def test_an_attribute_of_many_values_gains_nothing_from_noise() -> None:
    shares = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        labels = list(itertools.product(range(40), range(3)))
        theta = np.array([3.0 * b for _, b in labels]) + rng.normal(size=len(labels))
        estimates = fl.Estimates(theta, np.ones(len(labels)), labels, attributes=["many", "few"])
        shares.append([row.alone for row in explained(estimates, Population(keys_of(labels), ["many", "few"]))[:2]])
    many, few = np.mean(shares, axis=0)
    assert many < 0.05  # without the correction it would be a third of the noise, 0.1
    assert few > 0.9


def test_nested_attributes_lose_no_more_than_they_have() -> None:
    """Forty cities in eight countries: once the country is known, a city has 32 effects left, not 39."""
    rng = np.random.default_rng(3)
    labels = [(f"c{city % 8}", f"t{city}", device) for city in range(40) for device in range(2)]
    theta = np.repeat(rng.normal(0, 3, 40), 2) + rng.normal(size=80)
    estimates = fl.Estimates(theta, np.ones(80), labels, attributes=["country", "city", "device"])
    city = explained(estimates, Population(keys_of(labels), estimates.attributes))[1]

    def left(codes: list[int]) -> float:
        means = np.bincount(codes, theta) / np.bincount(codes)
        return float(np.sum((theta - means[codes]) ** 2))

    # Devices are balanced, so they take the same off either side.
    gained = left([i // 2 % 8 for i in range(80)]) - left([i // 2 for i in range(80)]) - 32
    assert city.beyond == pytest.approx(gained / (left([0] * 80) - 79), abs=1e-6)


def test_noise_is_not_shared_out() -> None:
    labels = list(itertools.product(range(4), range(6)))
    shares = [
        row.alone
        for seed in range(100)
        for row in fl.cluster(
            fl.Estimates(np.random.default_rng(seed).normal(size=24), np.ones(24), labels, attributes=["a", "b"]),
            guarantee="bonferroni",
        ).explained()
    ]
    assert len(shares) <= 3 * 10  # Cochran's Q finds something in about 5 of 100


def test_one_attribute_or_no_estimates_explain_nothing() -> None:
    assert fl.cluster(fl.Estimates([0.0, 9.0, 9.1], [1, 1, 1])).explained() == ()
    plain = fl.Similarity(np.array([[1.0], [9.0]]), lambda a, b: np.ones(len(b)), null=lambda s, r: s)
    assert fl.cluster(plain, guarantee="bonferroni").explained() == ()


def test_rules_stand_in_every_output() -> None:
    labels = list(itertools.product(["DE", "FR"], ["app", "web"]))
    found = fl.cluster(fl.Estimates([0, 0.1, 9, 9.2], [1.0] * 4, labels, attributes=["country", "device"]))
    assert [cluster.rule for cluster in found.clusters] == ["country = DE", "country = FR"]
    assert [row["rule"] for row in found.to_dicts("clusters")] == ["country = DE", "country = FR"]
    assert "country = FR" in str(found)
    assert "country = FR" in found.to_markdown()
    assert found.to_polars("clusters")["rule_precision"].to_list() == [1.0, 1.0]
    one = fl.cluster(fl.Estimates([0, 0.1, 9, 9.2], [1.0] * 4, ["18-24", "25-34", "35-44", "45+"], attributes=["age"]))
    assert "age 18–34" in str(one)
    assert "members" in str(fl.cluster(fl.Estimates([0, 9, 0.1, 9.2, 0.2, 9.1], [1.0] * 6)))
