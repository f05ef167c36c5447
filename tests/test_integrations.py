"""MetricFrames of Fairlearn: what they keep is enough where they count, or were bootstrapped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import (
    MetricFrame,
    count,
    demographic_parity_difference,
    demographic_parity_ratio,
    false_positive_rate,
    selection_rate,
)
from sklearn.metrics import accuracy_score, mean_absolute_error, recall_score

import faultlines as fl
from tests.refused import refused

QUICK = fl.Calibrated(draws=200)


def scored(size: int = 3_000) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"sex": rng.choice(["f", "m"], size), "land": rng.choice(["DE", "FR", "IT"], size)})
    frame["truth"] = (rng.random(size) < 0.4).astype(int)
    right = rng.random(size) < np.where(frame.land == "IT", 0.6, 0.85)
    frame["predicted"] = np.where(right, frame.truth, 1 - frame.truth)
    return frame


def positives(y_true: Any, y_pred: Any) -> int:
    return int(np.sum(y_true))


METRICS = {"accuracy": accuracy_score, "count": count, "recall": recall_score, "positives": positives}


def frame_of(data: pd.DataFrame, metrics: Any = METRICS, **options: Any) -> MetricFrame:
    features = {"sensitive_features": data[["land"]]} | options
    return MetricFrame(metrics=metrics, y_true=data.truth, y_pred=data.predicted, **features)


def test_rates_with_a_count_are_those_of_the_rows() -> None:
    data = scored()
    result = fl.cluster(fl.from_metric_frame(frame_of(data), "accuracy"), guarantee=QUICK)
    rows = fl.cluster(data, "land", fl.accuracy("truth", "predicted"), guarantee=QUICK)
    assert result.estimates.attributes == ("land",)
    assert result.estimates.labels == rows.estimates.labels
    np.testing.assert_allclose(result.estimates.theta, rows.estimates.theta, rtol=1e-12)
    np.testing.assert_allclose(result.estimates.se, rows.estimates.se, rtol=1e-12)
    assert result.pvalue == pytest.approx(rows.pvalue)
    assert result.clusters[0].members == ("IT",)


def test_shares_of_other_rows_need_their_own_count() -> None:
    data = scored()
    estimates = fl.from_metric_frame(frame_of(data), "recall", count="positives")
    rows = fl.measure(data, "land", fl.true_positive_rate("truth", "predicted")).estimates
    np.testing.assert_allclose(estimates.theta, rows.theta, rtol=1e-12)
    with refused("ambiguous: metric"):
        fl.from_metric_frame(frame_of(data), "recall")
    with refused("invalid data: metric"):
        fl.from_metric_frame(frame_of(data), "recall", count="count")
    other = frame_of(data, {"fallout": false_positive_rate, "count": count})
    with refused("ambiguous: metric"):
        fl.from_metric_frame(other)


@pytest.mark.parametrize("name", ["recall", "hit rate", "tp_share", "quality", "rate"])
def test_a_rate_is_a_share_of_all_rows_by_its_name_or_by_the_word_of_the_user(name: str) -> None:
    """40 of 50 positives among 100 rows: 0.8 × 100 is a whole number, and a standard error from it too small by √2."""
    truth = ([1] * 50 + [0] * 50) * 2
    predicted = [1] * 40 + [0] * 60 + [1] * 20 + [0] * 80
    data = pd.DataFrame({"land": ["a"] * 100 + ["b"] * 100, "truth": truth, "predicted": predicted})
    frame = frame_of(data, {name: recall_score, "count": count, "positives": positives})
    with refused("ambiguous: metric"):
        fl.from_metric_frame(frame, name)
    rows = fl.measure(data, "land", fl.true_positive_rate("truth", "predicted")).estimates
    np.testing.assert_allclose(fl.from_metric_frame(frame, name, count="positives").se, rows.se, rtol=1e-12)
    named = frame_of(data, {"accuracy score": accuracy_score, "share": accuracy_score, "count": count})
    by_name, by_word = (
        fl.from_metric_frame(named, "accuracy score"),
        fl.from_metric_frame(named, "share", count="count"),
    )
    np.testing.assert_array_equal(by_name.se, by_word.se)


def test_intersections_are_attributes_and_empty_ones_no_groups() -> None:
    data = scored()
    data = data[~((data.sex == "f") & (data.land == "DE"))]
    estimates = fl.from_metric_frame(frame_of(data, sensitive_features=data[["land", "sex"]]), "accuracy")
    assert estimates.attributes == ("land", "sex")
    assert len(estimates) == 5
    rows = fl.measure(data, ["land", "sex"], fl.accuracy("truth", "predicted")).estimates
    assert dict(zip(estimates.labels, estimates.natural.tolist(), strict=True)) == pytest.approx(
        dict(zip(rows.labels, rows.natural.tolist(), strict=True))
    )


def test_groups_are_compared_within_a_stratum_of_control_features() -> None:
    data = scored()
    frame = frame_of(data, sensitive_features=data[["sex"]], control_features=data[["land"]])
    with refused("not found: stratum"):
        fl.from_metric_frame(frame, "accuracy")
    estimates = fl.from_metric_frame(frame, "accuracy", stratum="IT")
    rows = fl.measure(data[data.land == "IT"], "sex", fl.accuracy("truth", "predicted")).estimates
    assert estimates.attributes == ("sex",)
    assert estimates.labels == rows.labels
    np.testing.assert_allclose(estimates.theta, rows.theta)
    two = frame_of(data, sensitive_features=data[["sex"]], control_features=data.assign(one="x")[["land", "one"]])
    np.testing.assert_allclose(fl.from_metric_frame(two, "accuracy", stratum=("IT", "x")).theta, rows.theta)
    with refused("conflict: stratum"):
        fl.from_metric_frame(frame_of(data), "accuracy", stratum="IT")


def test_a_bootstrap_gives_standard_errors_of_any_metric() -> None:
    data = scored(600)
    frame = frame_of(data, mean_absolute_error, n_boot=40, ci_quantiles=[0.025, 0.5, 0.975], random_state=3)
    estimates = fl.from_metric_frame(frame)
    own = data.assign(off=(data.truth - data.predicted).abs()).groupby("land").off.agg(["mean", "var", "count"])
    np.testing.assert_allclose(estimates.theta, own["mean"])
    np.testing.assert_allclose(estimates.se, np.sqrt(own["var"] / own["count"]), rtol=0.5)
    assert estimates.dof is not None
    assert 12 < estimates.dof[0] < 40  # quantiles of 40 draws are known to about a sixth
    assert estimates.metric == "mean_absolute_error"
    # A count that another metric is no share of does not stand in the way.
    both = frame_of(data, {"recall": recall_score, "count": count}, n_boot=5, ci_quantiles=[0.1, 0.9], random_state=3)
    assert fl.from_metric_frame(both, "recall").n is not None


def test_the_degrees_of_freedom_of_a_bootstrap_are_what_repeats_show() -> None:
    """Distances of quantiles of B normal draws spread as 1/√(2·dof)."""
    from types import SimpleNamespace

    from faultlines.integrations import _bootstrapped

    rng = np.random.default_rng(0)
    drawn = np.quantile(rng.standard_normal((4_000, 200)), [0.025, 0.975], axis=1)
    ends = [pd.DataFrame({"x": side}) for side in drawn]
    frame = SimpleNamespace(n_boot=200, ci_quantiles=[0.025, 0.975], by_group_ci=ends)
    se, dof = _bootstrapped(frame, ["x"], "x")
    assert se.mean() == pytest.approx(1, abs=0.03)
    assert np.std(se) / se.mean() == pytest.approx(1 / np.sqrt(2 * dof), rel=0.15)


def test_out_and_in_again() -> None:
    data = scored()
    result = fl.cluster(data, ["land", "sex"], fl.accuracy("truth", "predicted"), guarantee=QUICK)
    frame = fl.to_metric_frame(result)
    theirs = frame_of(data, sensitive_features=data[["land", "sex"]])
    pd.testing.assert_series_equal(frame.by_group["accuracy"], theirs.by_group["accuracy"])
    pd.testing.assert_series_equal(frame.by_group["count"], theirs.by_group["count"])
    assert frame.overall["accuracy"] == pytest.approx(theirs.overall["accuracy"])
    assert frame.overall["count"] == len(data)
    assert frame.difference()["accuracy"] == pytest.approx(theirs.difference()["accuracy"])
    assert frame.group_min()["accuracy"] == pytest.approx(theirs.group_min()["accuracy"])
    assert set(frame.by_group["cluster"]) == {1.0, 2.0}
    again = fl.from_metric_frame(frame, "accuracy")
    np.testing.assert_allclose(again.theta, result.estimates.theta)
    # What is no rate comes back by its standard errors, and so does one of several effects.
    f1 = fl.cluster(data, "land", fl.f1("truth", "predicted"), guarantee=QUICK)
    odds = fl.cluster(data, "land", fl.equalized_odds("truth", "predicted"), guarantee=QUICK)
    for estimates in (fl.from_metric_frame(fl.to_metric_frame(f1)), fl.from_metric_frame(fl.to_metric_frame(f1), "F1")):
        np.testing.assert_allclose(estimates.theta, f1.estimates.natural)
        np.testing.assert_allclose(estimates.se, fl.to_metric_frame(f1).by_group["standard_error"])
        assert estimates.metric == "F1"
    frame = fl.to_metric_frame(odds)
    recalls = fl.from_metric_frame(frame, "true positive rate")
    np.testing.assert_allclose(recalls.se, frame.by_group["standard_error of true positive rate"])
    with refused("ambiguous: metric"):
        fl.from_metric_frame(frame)


def test_groups_left_out_and_several_effects() -> None:
    data = pd.concat([scored(), pd.DataFrame({"sex": ["f"], "land": ["XX"], "truth": [1], "predicted": [1]})])
    result = fl.cluster(data, "land", fl.equalized_odds("truth", "predicted"), guarantee=QUICK)
    table = fl.to_metric_frame(result).by_group
    assert table.loc["XX"].drop("count").isna().all()
    assert {"true positive rate", "false positive rate", "standard_error of true positive rate"} <= set(table.columns)
    assert table["cluster"].notna().sum() == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"frame": scored()}, "wrong type: frame"),
        ({"frame": None}, "wrong type: frame"),
        ({}, "ambiguous: metric"),
        ({"metric": "acuracy"}, "not found: metric"),
        ({"metric": "accuracy", "count": "n"}, "not found: count"),
        ({"frame": frame_of(scored(50), accuracy_score)}, "invalid data: metric"),
        (
            {"frame": frame_of(scored(90), accuracy_score, n_boot=5, ci_quantiles=[0.6, 0.9], random_state=0)},
            "out of range: ci_quantiles",
        ),
    ],
)
def test_bad_input(options: dict[str, Any], words: str) -> None:
    with refused(words):
        fl.from_metric_frame(**({"frame": frame_of(scored(50))} | options))


def test_what_is_no_result_does_not_go_out() -> None:
    with refused("wrong type: result"):
        fl.to_metric_frame(5)  # type: ignore[arg-type]
    bare = fl.Similarity([[1.0], [2.0]], lambda a, b: np.ones(len(a)))
    with refused("unsupported: result"):
        fl.to_metric_frame(fl.cluster(bare, guarantee="bonferroni"))


# ------------------------------------------------------------------------------------ numbers of Fairlearn and Aequitas


def counts_of(rows: pd.DataFrame) -> dict[str, int]:
    """The confusion matrix of some rows, as Aequitas counts it: pp and pn are predicted positives and negatives."""
    pairs = {"tp": (1, 1), "fp": (0, 1), "fn": (1, 0), "tn": (0, 0)}
    counts = {name: int(((rows.truth == t) & (rows.predicted == p)).sum()) for name, (t, p) in pairs.items()}
    return counts | {"pp": counts["tp"] + counts["fp"], "pn": counts["fn"] + counts["tn"], "k": len(rows)}


# Aequitas' names and definitions (Saleiro and others, 2018, table 1; `Group.get_crosstabs`), and ours.
AEQUITAS: dict[str, tuple[str, Any]] = {
    "tpr": ("tpr", lambda c: c["tp"] / (c["tp"] + c["fn"])),
    "tnr": ("tnr", lambda c: c["tn"] / (c["tn"] + c["fp"])),
    "fpr": ("fpr", lambda c: c["fp"] / (c["tn"] + c["fp"])),
    "fnr": ("fnr", lambda c: c["fn"] / (c["tp"] + c["fn"])),
    "precision": ("precision", lambda c: c["tp"] / c["pp"]),
    "npv": ("npv", lambda c: c["tn"] / c["pn"]),
    "pprev": ("pprev", lambda c: c["pp"] / c["k"]),
}


@pytest.mark.parametrize("name", AEQUITAS)
def test_rates_and_disparities_are_those_of_aequitas(name: str) -> None:
    """Group rates, and their ratios to a reference group, by the definitions of Aequitas computed by hand."""
    data, (own, rate_of) = scored(), AEQUITAS[name]
    rates = {land: rate_of(counts_of(rows)) for land, rows in data.groupby("land")}
    audit = fl.audit(data.truth, data.predicted, sensitive_features={"land": data.land}, metrics=own)
    values = {row["land"]: row["estimate"] for row in audit.to_dicts("groups")}
    assert values == pytest.approx(rates)
    reference = max(rates, key=lambda land: rates[land])
    metric = audit.comparisons[0].result.readout.metric  # type: ignore[union-attr]
    certificate = fl.certify(
        data.rename(columns={"truth": "y_true", "predicted": "y_pred"}),
        "land",
        metric,
        gap=0.1,
        against=reference,
        ratio=True,
    )
    disparities = {land: rate / rates[reference] for land, rate in rates.items() if land != reference}
    assert {group.label: group.distance for group in certificate.groups} == pytest.approx(disparities)


def test_differences_and_ratios_are_those_of_fairlearn() -> None:
    data = scored()
    sensitive = {"sensitive_features": data.land}
    frame = MetricFrame(metrics=selection_rate, y_true=data.truth, y_pred=data.predicted, **sensitive)
    audit = fl.audit(data.truth, data.predicted, sensitive_features={"land": data.land}, metrics="selection_rate")
    values = {row["land"]: row["estimate"] for row in audit.to_dicts("groups")}
    assert values == pytest.approx(frame.by_group.to_dict())
    assert audit.groups[0].overall == pytest.approx(frame.overall)
    spread = max(values.values()) - min(values.values())
    assert spread == pytest.approx(demographic_parity_difference(data.truth, data.predicted, **sensitive))
    rows = data.rename(columns={"predicted": "selected"})
    compared = fl.impact_ratios(rows, "land", selected="selected").tables[0].compared
    assert min(category.ratio for category in compared if category.ratio is not None) == pytest.approx(
        demographic_parity_ratio(data.truth, data.predicted, **sensitive)
    )
