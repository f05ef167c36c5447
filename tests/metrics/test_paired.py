"""Two models on the same rows: against the plain difference in each group, and against the bootstrap."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn.metrics as sk

import faultlines as fl
from faultlines.errors import NoGroupsError
from faultlines.metrics.names import metric_of, plain_recipe
from faultlines.metrics.table import METRICS
from tests.refused import refused
from tests.single import own_errors

if TYPE_CHECKING:
    from collections.abc import Callable

Share = tuple[np.ndarray, np.ndarray]


def scored(size: int = 3_000, seed: int = 0) -> pd.DataFrame:
    """Two models whose scores go together; some predictions of the second are missing."""
    rng = np.random.default_rng(seed)
    truth = (rng.random(size) < 0.4).astype(int)
    first = np.clip(0.35 + 0.3 * truth + 0.25 * rng.standard_normal(size), 0.001, 0.999)
    second = np.clip(0.7 * first + 0.3 * (0.3 + 0.4 * truth) + 0.05 * rng.standard_normal(size), 0.001, 0.999)
    frame = pd.DataFrame(
        {
            "g": rng.choice(["a", "b", "c"], size),
            "t": truth,
            "s1": first,
            "s2": second,
            "p1": (first >= 0.5).astype(float),
            "p2": (second >= 0.5).astype(float),
            "w": rng.uniform(0.5, 2, size),
            "clicks": rng.poisson(2, size),
            "views": 1 + rng.poisson(3, size),
        }
    )
    frame["clicks2"], frame["views2"] = frame.clicks + rng.poisson(0.3, size), frame.views + rng.poisson(0.3, size)
    frame.loc[::50, "p2"] = np.nan
    return frame


def parts(metric: str, d: pd.DataFrame, which: int) -> Share:
    """Numerator and denominator of a rate, row by row."""
    p, t = d[f"p{which}"].to_numpy(), d.t.to_numpy()
    return {
        "accuracy": (p == t, np.ones(len(d))),
        "error_rate": (p != t, np.ones(len(d))),
        "selection_rate": (p == 1, np.ones(len(d))),
        "true_positive_rate": ((p == 1) & (t == 1), t == 1),
        "false_positive_rate": ((p == 1) & (t == 0), t == 0),
        "true_negative_rate": ((p == 0) & (t == 0), t == 0),
        "false_negative_rate": ((p == 0) & (t == 1), t == 1),
        "precision": ((p == 1) & (t == 1), p == 1),
        "negative_predictive_value": ((p == 0) & (t == 0), p == 0),
    }[metric]


RATES = [
    "accuracy",
    "error_rate",
    "selection_rate",
    "true_positive_rate",
    "false_positive_rate",
    "true_negative_rate",
    "false_negative_rate",
    "precision",
    "negative_predictive_value",
]


def pair(name: str, weight: str | None = None) -> fl.Metric:
    make: Callable[..., fl.Metric] = getattr(fl, name)
    truth = () if name == "selection_rate" else ("t",)
    return fl.paired(make(*truth, "p1", weight=weight), make(*truth, "p2", weight=weight))


@pytest.mark.parametrize("weight", [None, "w"])
@pytest.mark.parametrize("name", RATES)
def test_the_difference_is_that_of_the_two_rates(name: str, weight: str | None) -> None:
    data = scored()
    measurement = fl.measure(data, "g", pair(name, weight))
    assert measurement.dropped == {"missing value": 60}
    complete = data.dropna()
    for label, value in zip(measurement.estimates.labels, measurement.estimates.theta, strict=True):
        d = complete[complete.g == label]
        w = np.ones(len(d)) if weight is None else d.w.to_numpy()
        rates = [(w * parts(name, d, i)[0]).sum() / (w * parts(name, d, i)[1]).sum() for i in (1, 2)]
        assert value == pytest.approx(rates[1] - rates[0], abs=1e-12)


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        (pair("accuracy"), lambda d: (d.p2 == d.t).mean() - (d.p1 == d.t).mean()),
        (pair("precision"), lambda d: d.t[d.p2 == 1].mean() - d.t[d.p1 == 1].mean()),
        (
            pair("precision", "w"),
            lambda d: (
                np.average(d.t[d.p2 == 1], weights=d.w[d.p2 == 1]) - np.average(d.t[d.p1 == 1], weights=d.w[d.p1 == 1])
            ),
        ),
        (fl.paired(fl.brier("t", "s1"), fl.brier("t", "s2")), lambda d: ((d.s2 - d.t) ** 2 - (d.s1 - d.t) ** 2).mean()),
        (
            fl.paired(fl.ratio("clicks", "views"), fl.ratio("clicks2", "views2")),
            lambda d: d.clicks2.sum() / d.views2.sum() - d.clicks.sum() / d.views.sum(),
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_standard_errors_are_those_of_the_bootstrap(metric: fl.Metric, value: Any) -> None:
    """Of all rows together: variances of groups are steadied. The bootstrap knows a standard error to 4% here."""
    data = scored().dropna().assign(all="all")
    estimates = fl.measure(data, "all", metric).estimates
    rng = np.random.default_rng(1)
    drawn = [value(data.iloc[rng.integers(0, len(data), len(data))]) for _ in range(300)]
    assert estimates.theta[0] == pytest.approx(value(data), abs=1e-12)
    assert estimates.se[0] == pytest.approx(np.std(drawn), rel=0.15)


def test_pairs_are_sharper_than_two_tables() -> None:
    data = scored().dropna()
    together = fl.measure(data, "g", pair("accuracy")).estimates.se
    right = [(data[f"p{i}"] == data.t).groupby(data.g).agg(["var", "count"]) for i in (1, 2)]
    alone = np.sqrt(sum(moments["var"] / moments["count"] for moments in right))
    assert (together < 0.8 * alone).all()


def test_a_new_model_that_is_worse_for_one_group_is_found() -> None:
    data = scored(6_000).dropna()
    worse = (data.g == "b") & (np.random.default_rng(3).random(len(data)) < 0.2)
    data["p2"] = np.where(worse, 1 - data.p2, data.p2)
    result = fl.cluster(data, "g", pair("accuracy"), guarantee=fl.Calibrated(draws=200))
    assert result.clusters[0].members == ("b",)
    assert result.groups.metric == "change in accuracy from p1 to p2"


@pytest.mark.parametrize("name", ["accuracy", "precision"])
def test_engines_agree(name: str) -> None:
    data = scored(900)
    estimates = fl.measure(data, "g", pair(name)).estimates
    other = fl.measure(pl.from_pandas(data), "g", pair(name)).estimates
    np.testing.assert_allclose(estimates.theta, other.theta, rtol=1e-9)
    np.testing.assert_allclose(estimates.se, other.se, rtol=1e-9)


@pytest.mark.parametrize("name", ["accuracy", "precision"])
def test_thresholds_pickles_and_recipes(name: str) -> None:
    make: Callable[..., fl.Metric] = getattr(fl, name)
    metric = fl.paired(make("t", score="s1", threshold=0.5), make("t", score="s1", threshold=0.7))
    assert metric.name == f"change in {name} from threshold 0.5 to threshold 0.7"
    again = metric_of(json.loads(json.dumps(plain_recipe(metric))))
    data = scored(900)
    values = [fl.measure(data, "g", version).estimates.theta.tolist() for version in (metric, again, _pickled(metric))]
    assert values[0] == values[1] == values[2]


def _pickled(metric: fl.Metric) -> fl.Metric:
    copied: fl.Metric = pickle.loads(pickle.dumps(metric))
    return copied


def test_groups_without_predicted_positives_are_left_out_with_a_reason() -> None:
    data = scored(900).dropna()
    data.loc[data.g == "c", "p2"] = 0.0
    measurement = fl.measure(data, "g", pair("precision"))
    assert [(group.label, group.code) for group in measurement.excluded] == [("c", "empty denominator")]
    few = data.assign(g=np.where(np.arange(len(data)) < 12, "few", data.g))
    measurement = fl.measure(few[few.g != "c"], "g", pair("precision"))
    assert [(group.code, group.reason.least, group.reason.unit) for group in measurement.excluded] == [
        ("too small", 10, "predicted positives")
    ]
    assert measurement.estimates.n is not None
    counted = few[few.g != "c"].groupby("g")[["p1", "p2"]].sum().min(axis=1)
    assert measurement.estimates.n.tolist() == [counted[label] for label in measurement.estimates.labels]


ACCURACY = fl.accuracy("t", "p1")


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (ACCURACY, fl.precision("t", "p2"), "mismatch: first, second"),
        (ACCURACY, ACCURACY, "duplicate: first, second"),
        (ACCURACY, fl.accuracy("other", "p2"), "mismatch: y_true"),
        (ACCURACY, fl.accuracy("t", "p2", weight="w"), "mismatch: weight"),
        (fl.auc("t", "s1"), fl.auc("t", "s2", bins=100), "mismatch: bins"),
        (fl.auc("t", "s1"), fl.auc("t", "s1"), "duplicate: first, second"),
        (fl.equalized_odds("t", "p1"), fl.equalized_odds("t", "p2"), "unsupported: first"),
        (fl.lift("a", variant="v", control="A"), fl.lift("b", variant="v", control="A"), "unsupported: first"),
        (fl.rate(fl.aggregated("n", sum="a")), fl.rate(fl.aggregated("n", sum="b")), "unsupported: first"),
        (fl.joint(ACCURACY, fl.precision("t", "p1")), ACCURACY, "unsupported: first"),
        ("accuracy", ACCURACY, "wrong type: first"),
        (ACCURACY, None, "wrong type: second"),
    ],
)
def test_what_cannot_be_paired(first: Any, second: Any, words: str) -> None:
    with refused(words):
        fl.paired(first, second)


def test_the_docs_name_what_cannot_be_paired() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "integrations.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+)`", page.partition("Cannot be paired:")[2].partition(".\n")[0])
    refused = []
    for entry in METRICS.values():
        first, *others = [names[0] for names in entry.columns]
        if entry.family == "experiment":
            continue
        both = [{first: "y" if others else column, **dict.fromkeys(others, column)} for column in ("old", "new")]
        try:
            fl.paired(*(entry.function(**columns) for columns in both))
        except fl.InputError:
            refused.append(entry.name)
    assert sorted(named) == sorted(refused)


# ------------------------------------------------------------------------------------------ areas under the curve


def delong(d: pd.DataFrame, weight: np.ndarray, unit: np.ndarray | None) -> tuple[float, float]:
    """Difference of two areas and its standard error, from all pairs of a positive and a negative row."""
    yes = d.t.to_numpy() == 1
    shares = [weight[side] / weight[side].sum() for side in (yes, ~yes)]
    placements = []
    for name in ("s1", "s2"):
        score = d[name].to_numpy()
        above = np.sign(score[yes][:, None] - score[~yes]) / 2 + 0.5
        placements.append((above @ shares[1], shares[0] @ above))
    areas = [float(shares[0] @ placed[0]) for placed in placements]
    if unit is None:
        # L S L' with L = (-1, 1), and S the covariances of both areas' structural components on either side.
        variance = 0.0
        for side, share in enumerate(shares):
            away = np.stack([placements[k][side] - areas[k] for k in (0, 1)]) * share * share.size
            kish = 1 / np.sum(share**2)
            covariance = away @ away.T / share.size * kish / (kish - 1) / share.size
            variance += covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
        return areas[1] - areas[0], float(np.sqrt(variance))
    terms = np.zeros(unit.max() + 1)
    for side, (here, share) in enumerate(zip((yes, ~yes), shares, strict=True)):
        changed = placements[1][side] - placements[0][side] - (areas[1] - areas[0])
        np.add.at(terms, unit[here], share * changed)
    units = len(np.unique(unit))
    return areas[1] - areas[0], float(np.sqrt(units / (units - 1) * np.sum(terms**2)))


def areas(weight: str | None = None, unit: str | None = None, bins: int = 0) -> fl.Metric:
    return fl.paired(*(fl.auc("t", score, weight=weight, unit=unit, bins=bins) for score in ("s1", "s2")))


@pytest.mark.parametrize("unit", [None, "person"])
@pytest.mark.parametrize("weight", [None, "w"])
def test_change_of_an_area_is_delongs(weight: str | None, unit: str | None) -> None:
    data = scored(700).dropna()
    data["s1"], data["s2"] = data.s1.round(2), data.s2.round(1)  # with ties
    data["person"] = data.groupby("g").cumcount() // 3 * 3 + data.g.map({"a": 0, "b": 1, "c": 2})
    estimates = fl.measure(data, "g", areas(weight, unit)).estimates
    own = own_errors(data, areas(weight, unit))
    for place, label in enumerate(estimates.labels):
        d = data[data.g == label]
        w = np.ones(len(d)) if weight is None else d.w.to_numpy()
        change, error = delong(d, w, None if unit is None else d.person.to_numpy())
        theirs = [sk.roc_auc_score(d.t, d[score], sample_weight=w) for score in ("s1", "s2")]
        assert estimates.theta[place] == pytest.approx(change, abs=1e-12)
        assert estimates.theta[place] == pytest.approx(theirs[1] - theirs[0], abs=1e-12)
        assert own.se[place] == pytest.approx(error, rel=1e-9)


def test_change_of_an_area_is_sharper_than_two_tables() -> None:
    data = scored().dropna()
    alone = [own_errors(data, fl.auc("t", score)).se for score in ("s1", "s2")]
    assert (own_errors(data, areas()).se < 0.8 * np.hypot(*alone)).all()


def test_scores_that_rank_alike_do_not_change_the_area() -> None:
    """Sums of weights in another order differ in the last digit: that is no change."""
    data = scored(900).dropna()
    data["s1"] = data.s1.round(1)
    data["s2"] = data.s1.rank() * 3 + 7
    with pytest.raises(NoGroupsError) as error:
        fl.measure(data, "g", areas("w"))
    assert {reason.code for reason in error.value.reasons} == {"zero variance"}
    assert error.value.parameter == "metric"  # and not the groups
    labels = data.assign(a=(data.s1 > 0).astype(int), b=(data.s1 > 0).astype(int))
    with pytest.raises(NoGroupsError) as error:
        fl.certify(labels, "g", fl.paired(fl.accuracy("t", "a"), fl.accuracy("t", "b")), gap=0.01, against=0)
    assert error.value.parameter == "metric"


@pytest.mark.parametrize(("gap", "verdict"), [(0.01, "passed"), (0.0, "failed")])
def test_no_group_loses_more_than_a_point_of_auc(gap: float, verdict: str) -> None:
    data = scored(9_000).dropna()
    data["s2"] = data.s1  # but in b, where it is a little worse
    noise = np.random.default_rng(5).standard_normal(len(data))
    data["s2"] += np.where(data.g == "b", 0.05, 0.002) * noise
    certificate = fl.certify(data, "g", areas(), gap=gap, against=0)
    assert (certificate.verdict, certificate.adverse) == (verdict, "low")
    assert certificate.beyond == (() if gap else ("b",))


def test_areas_in_bins_pickles_recipes_and_shuffles() -> None:
    data = scored(1_500).dropna()
    metric = areas(bins=20)
    again = metric_of(json.loads(json.dumps(plain_recipe(metric))))
    rounded = data.assign(s1=np.floor(data.s1 * 20), s2=np.floor(data.s2 * 20))
    values = [fl.measure(data, "g", version).estimates for version in (metric, again, _pickled(metric))]
    expected = fl.measure(rounded, "g", areas()).estimates
    for estimates in values:
        np.testing.assert_allclose(estimates.theta, expected.theta, rtol=1e-12)
        np.testing.assert_allclose(estimates.se, expected.se, rtol=1e-9)
    assert fl.self_check(data, "g", areas(), runs=3).runs == 3
