"""Impact ratios: against counting by hand, Fairlearn's selection rates and ratios, and what is said about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import MetricFrame, demographic_parity_ratio, selection_rate

import faultlines as fl
from tests.engine_matrix import ENGINES, in_engine, rows
from tests.refused import refused

if TYPE_CHECKING:
    from pathlib import Path


def hires(seed: int = 0, size: int = 6000) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"sex": rng.choice(["f", "m"], size)})
    frame["race"] = rng.choice(list("abcd"), size, p=[0.5, 0.3, 0.19, 0.01])
    frame["hired"] = (rng.random(size) < np.where(frame.race == "b", 0.3, 0.45)).astype(int)
    frame["score"] = np.round(rng.normal(0, 1, size) + (frame.race == "a"), 1)
    return frame


def by_label(table: Any) -> dict[Any, Any]:
    return {category.label: category for category in table.categories}


def test_tables_are_those_of_counting_by_hand() -> None:
    frame = hires()
    result = fl.impact_ratios(frame, ["sex", "race"], selected="hired")
    assert [table.attributes for table in result.tables] == [("sex",), ("race",), ("sex", "race")]
    for table in result.tables:
        grouped = frame.groupby(list(table.attributes)).hired
        large = grouped.size()[grouped.size() >= 0.02 * len(frame)].index
        highest = grouped.mean()[large].max()
        for label, category in by_label(table).items():
            own = grouped.get_group(label if isinstance(label, tuple) else (label,))
            assert (category.applicants, category.selected) == (len(own), own.sum())
            assert category.rate == pytest.approx(own.mean())
            if label in large:
                assert category.ratio == pytest.approx(own.mean() / highest)
                assert category.lower <= category.ratio <= category.upper <= 1
            else:
                assert (category.ratio, category.lower, category.status) == (None, None, "too small")


def test_rates_and_ratios_are_fairlearns() -> None:
    frame = hires()
    frame = frame[frame.race != "d"]
    table = fl.impact_ratios(frame, "race", selected="hired").tables[0]
    truth = frame.hired
    metrics = MetricFrame(metrics=selection_rate, y_true=truth, y_pred=frame.hired, sensitive_features=frame.race)
    assert {label: category.rate for label, category in by_label(table).items()} == pytest.approx(
        metrics.by_group.to_dict()
    )
    lowest = min(category.ratio for category in table.categories if category.ratio is not None)
    assert lowest == pytest.approx(demographic_parity_ratio(truth, frame.hired, sensitive_features=frame.race))


def test_the_scoring_rate_is_the_share_above_the_median_of_all() -> None:
    frame = hires()
    frame.loc[:500, "race"] = None
    result = fl.impact_ratios(frame, "race", score="score")
    assert (result.kind, result.median) == ("scoring rate", frame.score.median())
    for label, category in by_label(result.tables[0]).items():
        own = frame[frame.race.isna() if label == "(missing)" else frame.race == label]
        assert category.selected == (own.score > frame.score.median()).sum()


@pytest.mark.parametrize(
    ("rates", "verdict", "statuses"),
    [
        ((0.5, 0.49), "passed", ["passed", "passed"]),
        ((0.5, 0.25), "failed", ["passed", "failed"]),
        ((0.5, 0.405), "inconclusive", ["passed", "inconclusive"]),
    ],
)
def test_verdicts(rates: tuple[float, float], verdict: str, statuses: list[str]) -> None:
    frame = pd.DataFrame({"g": np.repeat(["a", "b"], 2000)})
    frame["hired"] = np.concatenate([np.arange(2000) < 2000 * rate for rate in rates]).astype(int)
    result = fl.impact_ratios(frame, "g", selected="hired")
    assert result.verdict == verdict
    assert [category.status for category in result.tables[0].categories][1:] == statuses[1:]
    assert result.headline.startswith(verdict.upper())
    assert "compl" not in str(result).lower()


def test_the_pass_of_all_is_that_of_the_certificate() -> None:
    frame = hires()
    frame = frame[frame.race != "d"]
    result = fl.impact_ratios(frame, "sex", selected="hired")
    certificate = fl.certify(frame, "sex", fl.rate("hired"), gap=0.8, ratio=True)
    assert result.tables[0].certifiable == pytest.approx(certificate.certifiable)
    assert result.verdict == certificate.verdict


def test_small_categories_are_neither_reference_nor_compared_unless_asked() -> None:
    frame = hires()
    frame.loc[frame.race == "d", "hired"] = 1
    table = fl.impact_ratios(frame, "race", selected="hired").tables[0]
    assert table.highest != "d"
    assert by_label(table)["d"].ratio is None
    every = fl.impact_ratios(frame, "race", selected="hired", min_share=0).tables[0]
    assert every.highest == "d"
    assert by_label(every)["b"].ratio == pytest.approx(frame[frame.race == "b"].hired.mean())


def test_unknown_applicants_are_counted_apart_or_a_category_or_bounds() -> None:
    frame = hires()
    frame.loc[:599, "race"] = None
    complete = fl.impact_ratios(frame.dropna(), "race", selected="hired").tables[0]
    apart = fl.impact_ratios(frame, "race", selected="hired").tables[0]
    lost = frame[frame.race.isna()].hired
    assert (apart.unknown, by_label(apart)["(missing)"].status) == (600, "unknown")
    assert [category.ratio for category in apart.compared] == pytest.approx(
        [category.ratio for category in complete.compared]
    )
    category = fl.impact_ratios(frame, "race", selected="hired", unknown="category").tables[0]
    assert by_label(category)["(missing)"].ratio is not None
    bounds = by_label(fl.impact_ratios(frame, "race", selected="hired", unknown="bounds").tables[0])
    own = {label: frame[frame.race == label].hired for label in "abc"}
    low = own["b"].sum() / (len(own["b"]) + (1 - lost).sum())
    high = max((own[label].sum() + lost.sum()) / (len(own[label]) + lost.sum()) for label in "ac")
    assert bounds["b"].possible_lower == pytest.approx(low / high)
    assert bounds["b"].possible_lower < bounds["b"].ratio < bounds["b"].possible_upper


def test_unknown_applicants_can_overturn_a_pass() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"g": rng.choice(["a", "b"], 8000), "hired": (rng.random(8000) < 0.5).astype(int)})
    frame.loc[rng.random(8000) < 0.25, "g"] = None
    verdicts = [fl.impact_ratios(frame, "g", selected="hired", unknown=how).verdict for how in ("exclude", "bounds")]
    assert verdicts == ["passed", "inconclusive"]
    assert fl.impact_ratios(frame, "g", selected="hired").verdict == "inconclusive"


def test_missing_outcomes_can_overturn_a_pass_too() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"g": rng.choice(["a", "b"], 8000), "hired": (rng.random(8000) < 0.5).astype(float)})
    frame.loc[rng.random(8000) < 0.25, "hired"] = np.nan
    bounds, ignore = (fl.impact_ratios(frame, "g", selected="hired", missing=how) for how in ("bounds", "ignore"))
    assert (bounds.verdict, ignore.verdict) == ("inconclusive", "passed")
    assert bounds.missing_rows == frame.hired.isna().sum()
    assert "missing outcomes" in [note.code for note in ignore.notes]


@pytest.mark.parametrize("missing", ["bounds", "ignore"])
def test_a_category_of_which_no_outcome_is_known_does_not_pass(missing: Any) -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"g": rng.choice(["a", "b", "c"], 9000), "hired": (rng.random(9000) < 0.5).astype(float)})
    frame.loc[frame.g == "c", "hired"] = np.nan
    ratios = fl.impact_ratios(frame, "g", selected="hired", missing=missing)
    assert (ratios.verdict, ratios.tables[0].certifiable) == ("inconclusive", 0.0)
    assert {category.status for category in ratios.tables[0].categories} == {"inconclusive"}


def test_a_table_of_which_no_category_is_large_enough_does_not_pass() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"g": rng.choice(["a", "b"], 9000), "zip": rng.integers(0, 500, 9000).astype(str), "one": "x"})
    frame["hired"] = (rng.random(9000) < 0.5).astype(int)
    assert fl.impact_ratios(frame, "g", selected="hired").verdict == "passed"
    assert fl.impact_ratios(frame, ["g", "one"], selected="hired").verdict == "passed"
    ratios = fl.impact_ratios(frame, ["g", "zip"], selected="hired")
    assert [table.verdict for table in ratios.tables] == ["passed", "not testable", "not testable"]
    assert ratios.verdict == "inconclusive"


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if "spark" not in engine])
def test_the_same_in_every_engine(engine: str, tmp_path: Path) -> None:
    table = rows()
    frame = table.to_pandas()
    result = fl.impact_ratios(
        in_engine(table, engine, tmp_path), ["country", "device"], selected="predicted", unknown_levels=[]
    )
    countries = by_label(result.tables[0])
    assert {label: category.selected for label, category in countries.items() if label != "(missing)"} == (
        frame.groupby("country").predicted.sum().to_dict()
    )
    assert countries["(missing)"].applicants == frame.country.isna().sum()
    scored = fl.impact_ratios(in_engine(table, engine, tmp_path), "device", score="score")
    assert scored.median == frame.score.median()


def test_bins_are_categories_in_their_order() -> None:
    frame = hires().assign(age=np.arange(6000) % 40 + 20)
    table = fl.impact_ratios(frame, fl.bins("age", width=20), selected="hired").tables[0]
    assert [str(category.label) for category in table.categories] == ["20–39", "40–59"]


def test_nobody_selected_and_one_category() -> None:
    frame = hires().assign(none=0, one="x")
    nobody = fl.impact_ratios(frame, "sex", selected="none")
    assert (nobody.verdict, nobody.tables[0].categories[0].ratio) == ("inconclusive", None)
    single = fl.impact_ratios(frame, "one", selected="hired")
    assert (single.verdict, single.tables[0].highest) == ("not testable", None)


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({}, "selected, score"),
        ({"selected": "hired", "score": "score"}, "selected, score"),
        ({"selected": "hired", "least": 80}, "least"),
        ({"selected": "hired", "min_share": 2}, "min_share"),
        ({"selected": "hired", "unknown": "drop"}, "unknown"),
        ({"selected": "hired", "missing": "drop"}, "missing"),
        ({"score": "score", "positive": "yes"}, "positive"),
        ({"score": "race"}, "score"),
    ],
)
def test_what_cannot_be_used_is_refused(options: dict[str, Any], parameter: str) -> None:
    with pytest.raises(fl.InputError) as caught:
        fl.impact_ratios(hires(), "sex", **options)
    assert caught.value.parameter == parameter


def test_names_of_unknown_levels_are_no_categories() -> None:
    frame = hires(size=4000)
    names = ["Unknown ", "N/A", "?", "", "None", "prefer not to say"]
    frame.loc[:599, "race"] = np.resize(names, 600)
    result = fl.impact_ratios(frame, "race", selected="hired")
    table = result.tables[0]
    assert result.unknown_levels == {"race": ("?", "N/A", "None", "Unknown ", "prefer not to say")}
    assert set(by_label(table)) == {"a", "b", "c", "d", "(missing)"}
    assert table.unknown == 600
    none = fl.impact_ratios(frame, "race", selected="hired", unknown_levels=[])
    assert none.unknown_levels == {}
    assert "Unknown " in by_label(none.tables[0])
    own = fl.impact_ratios(frame, "race", selected="hired", unknown_levels=["A"])
    assert own.unknown_levels == {"race": ("a",)}


def test_a_numeric_attribute_is_cut() -> None:
    frame = hires(size=4000).assign(age=np.arange(4000) % 60 + 18)
    result = fl.impact_ratios(frame, "age", selected="hired")
    assert len(result.tables[0].categories) == 5
    assert [(cut.feature, cut.values) for cut in result.cut] == [("age", 60)]


def test_the_only_large_category_is_not_called_small() -> None:
    frame = hires(size=5000)
    frame["race"] = "a"
    table = fl.impact_ratios(frame, "race", selected="hired").tables[0]
    assert [category.status for category in table.categories] == ["alone"]
    assert table.verdict == "not testable"


def test_a_repeating_column_of_people_is_noted() -> None:
    frame = hires(size=2000).assign(applicant_id=np.arange(2000) // 4)
    result = fl.impact_ratios(frame, "sex", selected="hired")
    assert result.repeated is not None
    assert result.repeated.column == "applicant_id"
    assert "no unit" in {note.code for note in result.notes}


@pytest.mark.parametrize("name", ["pred.whi", "P(white)", "race_white_p", "proxy_black", "p_a"])
def test_probabilities_are_no_categories(name: str) -> None:
    frame = hires(size=1000)
    frame[name] = np.linspace(0.01, 0.99, len(frame))
    for by in (name, fl.bins(name, quantiles=4)):
        with refused("unsupported: by") as caught:
            fl.impact_ratios(frame, by, selected="hired")
        assert caught.value.value == repr(name)
