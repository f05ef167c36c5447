"""Missing values and unknown attributes: bounds against all ways to fill them in, and what passes in spite of them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics as sk

import faultlines as fl
from faultlines.analyses.groups import groups_from
from faultlines.analyses.missing import possible_shifts
from faultlines.errors import NoGroupsError
from faultlines.rows.possible import count_possible

RATES = {
    "rate": (fl.rate("t"), lambda t, p: t),
    "selection": (fl.selection_rate("p"), lambda t, p: p),
    "tpr": (fl.true_positive_rate("t", "p"), lambda t, p: p if t else None),
    "fnr": (fl.false_negative_rate("t", "p"), lambda t, p: 1 - p if t else None),
    "fpr": (fl.false_positive_rate("t", "p"), lambda t, p: None if t else p),
    "tnr": (fl.true_negative_rate("t", "p"), lambda t, p: None if t else 1 - p),
    "precision": (fl.precision("t", "p"), lambda t, p: t if p else None),
    "npv": (fl.negative_predictive_value("t", "p"), lambda t, p: None if p else 1 - t),
    "accuracy": (fl.accuracy("t", "p"), lambda t, p: int(t == p)),
    "error": (fl.error_rate("t", "p"), lambda t, p: int(t != p)),
}


def filled_rates(rows: pd.DataFrame, outcome: Any) -> list[float]:
    """The rate under every way to fill in what is missing."""
    holes = [(i, c) for c in ("t", "p") for i in np.flatnonzero(rows[c].isna())]
    rates = []
    for values in itertools.product((0, 1), repeat=len(holes)):
        full = rows.copy()
        for (i, column), value in zip(holes, values, strict=True):
            full.iloc[i, full.columns.get_loc(column)] = value
        outcomes = [outcome(int(t), int(p)) for t, p in zip(full.t, full.p, strict=True)]
        counted = [value for value in outcomes if value is not None]
        if counted:
            rates.append(float(np.mean(counted)))
    return rates


@pytest.mark.parametrize("name", RATES)
@pytest.mark.parametrize("seed", range(4))
def test_bounds_are_the_extremes_of_all_ways_to_fill_in(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame(
        {"g": "a", "t": rng.integers(0, 2, 14).astype(float), "p": rng.integers(0, 2, 14).astype(float)}
    )
    rows.loc[rng.choice(14, 4, replace=False), "t"] = np.nan
    rows.loc[rng.choice(14, 3, replace=False), "p"] = np.nan
    metric, outcome = RATES[name]
    counts = count_possible(rows, "g", metric)
    positives, only_one, zero, only_zero = (float(part[0, 0]) for part in counts[1:5])
    rates = filled_rates(rows, outcome)
    assert positives / (positives + only_zero) == pytest.approx(max(rates))
    assert only_one / (zero + only_one) == pytest.approx(min(rates))


def test_scores_and_weights_have_bounds_too() -> None:
    rows = pd.DataFrame({"g": "a", "t": [1, 1, np.nan, 0], "s": [0.9, np.nan, 0.8, 0.1], "w": [1.0, 2.0, 3.0, 4.0]})
    counts = count_possible(rows, "g", fl.true_positive_rate("t", score="s", threshold=0.5, weight="w"))
    assert counts.one[0, 0] == 1 + 2 + 3
    assert counts.only_one[0, 0] == 1
    assert counts.zero[0, 0] == 2
    assert counts.certain[0, 0] == 3


def labels_where_selected(seed: int = 0, size: int = 16_000) -> pd.DataFrame:
    """A model whose labels exist only where it said yes, and which finds fewer of one group."""
    rng = np.random.default_rng(seed)
    g = rng.choice(["a", "b", "c"], size, p=[0.5, 0.3, 0.2])
    truth = rng.random(size) < 0.3
    predicted = rng.random(size) < np.where(truth, np.where(g == "c", 0.55, 0.62), 0.05)
    return pd.DataFrame({"g": g, "t": np.where(predicted, truth, np.nan), "p": predicted.astype(int), "truth": truth})


def test_labels_that_exist_only_where_the_model_said_yes_do_not_pass() -> None:
    rows, metric = labels_where_selected(), fl.true_positive_rate("t", "p")
    assert rows.t.isna().mean() > 0.7
    certificate = fl.certify(rows, "g", metric, gap=0.05)
    assert (certificate.verdict, certificate.missing) == ("inconclusive", "bounds")
    ignoring = fl.certify(rows, "g", metric, gap=0.05, missing="ignore")
    assert (ignoring.verdict, ignoring.missing) == ("passed", "ignore")
    assert certificate.certifiable_ignoring == ignoring.certifiable
    (note,) = [note for note in certificate.notes if note.code == "missing bounds"]
    assert note.severity == "warning"
    assert note.fields["share"] == pytest.approx(rows.t.isna().mean())
    assert "missing values" in [note.code for note in certificate.notes]
    assert "missing ignored" in [note.code for note in ignoring.notes]
    true = rows[rows.truth].groupby("g").p.mean()
    for row in certificate.to_dicts():
        assert row["possible_lower"] <= true[row["g"]] <= row["possible_upper"]
        assert row["dropped_share"] == pytest.approx(rows[rows.g == row["g"]].t.isna().mean())


def test_a_result_without_its_rows_has_bounds_that_are_no_narrower() -> None:
    rows, metric = labels_where_selected(), fl.true_positive_rate("t", "p")
    certificate = fl.certify(rows, "g", metric, gap=0.05)
    part = fl.certify(fl.cluster(rows, "g", metric), gap=0.05)
    assert part.verdict == "inconclusive"
    assert part.certifiable >= certificate.certifiable - 1e-9


@pytest.mark.parametrize("against", ["overall", "highest", "all pairs", "a"])
@pytest.mark.parametrize("ratio", [False, True])
def test_few_missing_values_move_a_certificate_little_and_never_inwards(against: str, ratio: bool) -> None:
    rng = np.random.default_rng(5)
    rows = pd.DataFrame({"g": rng.choice(["a", "b", "c"], 9000), "x": (rng.random(9000) < 0.4).astype(float)})
    gap: dict[str, Any] = {"gap": 0.7 if ratio else 0.15, "ratio": ratio, "against": against}
    certificate = fl.certify(rows, "g", fl.rate("x"), **gap)
    rows.loc[rng.choice(9000, 90, replace=False), "x"] = np.nan
    some = fl.certify(rows, "g", fl.rate("x"), **gap)
    ignoring = fl.certify(rows, "g", fl.rate("x"), **gap, missing="ignore")
    assert certificate.verdict == some.verdict == "passed"
    worse = ignoring.certifiable - some.certifiable if ratio else some.certifiable - ignoring.certifiable
    assert 0.005 < worse < 0.06


def test_nothing_missing_changes_nothing() -> None:
    rows = labels_where_selected().assign(t=lambda rows: rows.truth)
    metric = fl.true_positive_rate("t", "p")
    bounds, ignore = (
        fl.certify(rows, "g", metric, gap=0.2),
        fl.certify(rows, "g", metric, gap=0.2, missing="ignore"),
    )
    assert bounds.missing == ignore.missing == "none"
    assert bounds.certifiable == ignore.certifiable
    assert bounds.possible is None


def test_a_mean_passes_only_where_few_rows_lack_a_value() -> None:
    rng = np.random.default_rng(2)
    rows = pd.DataFrame({"g": rng.choice(["a", "b"], 4000), "x": rng.normal(10, 1, 4000)})
    rows.loc[rng.choice(4000, 80, replace=False), "x"] = np.nan
    few = fl.certify(rows, "g", fl.mean("x"), gap=0.5)
    assert (few.verdict, few.missing) == ("passed", "range")
    rows.loc[rng.choice(4000, 400, replace=False), "x"] = np.nan
    many = fl.certify(rows, "g", fl.mean("x"), gap=0.5)
    assert (many.verdict, many.missing) == ("inconclusive", "range")
    assert "missing bounds" in [note.code for note in many.notes]
    assert fl.certify(rows, "g", fl.mean("x"), gap=0.5, missing="ignore").verdict == "passed"


# ------------------------------------------------------------------------------- metrics that are bounded, but no rates


def f1(rows: pd.DataFrame) -> float:
    return float(2 * (rows.t * rows.p).sum() / (rows.t.sum() + rows.p.sum()))


def balanced(rows: pd.DataFrame) -> float:
    return float(rows.p[rows.t == 1].mean() + (1 - rows.p[rows.t == 0]).mean()) / 2


def area(rows: pd.DataFrame, score: str = "p") -> float:
    above = rows[score][rows.t == 1].to_numpy()[:, None] - rows[score][rows.t == 0].to_numpy()
    return float((np.sign(above) / 2 + 0.5).mean())


SHIFTED: dict[str, tuple[fl.Metric, Any]] = {
    "f1": (fl.f1("t", "p"), f1),
    "balanced accuracy": (fl.balanced_accuracy("t", "p"), balanced),
    "auc": (fl.auc("t", "p"), area),
    "change of tpr": (
        fl.paired(fl.true_positive_rate("t", "q"), fl.true_positive_rate("t", "p")),
        lambda rows: float((rows.p - rows.q)[rows.t == 1].mean()),
    ),
    "change of precision": (
        fl.paired(fl.precision("t", "q"), fl.precision("t", "p")),
        lambda rows: float(rows.t[rows.p == 1].mean() - rows.t[rows.q == 1].mean()),
    ),
    "change of auc": (fl.paired(fl.auc("t", "q"), fl.auc("t", "p")), lambda rows: area(rows) - area(rows, "q")),
}


@pytest.mark.parametrize("name", SHIFTED)
@pytest.mark.parametrize("common", [0.5, 0.15])
def test_no_way_to_fill_in_moves_a_metric_farther_than_its_bounds(name: str, common: float) -> None:
    metric, value = SHIFTED[name]
    for seed in range(5):
        rng = np.random.default_rng(seed)
        rows = pd.DataFrame({"g": rng.choice(["a", "b"], 400), "t": (rng.random(400) < common).astype(float)})
        for column in ("p", "q"):
            rows[column] = np.where(rng.random(400) < 0.25, 1 - rows.t, rows.t)
        lost = rng.choice(400, 40, replace=False)
        holes = rows.copy()
        holes.loc[lost, ["t", "p", "q"]] = np.nan
        shifts = possible_shifts(groups_from(holes, "g", [metric])[0], holes, metric)
        assert shifts is not None
        assert shifts.complete
        fills = [np.array(fill, dtype=float)[None].repeat(40, 0) for fill in itertools.product((0, 1), repeat=3)]
        fills += [rng.integers(0, 2, (40, 3)).astype(float) for _ in range(20)]
        at_hand = holes.dropna()
        for i, group in enumerate(("a", "b")):
            here = value(at_hand[at_hand.g == group])
            for fill in fills:
                full = holes.copy()
                full.loc[lost, ["t", "p", "q"]] = fill
                moved = value(full[full.g == group]) - here
                assert -shifts.down[i, 0] - 1e-9 <= moved <= shifts.up[i, 0] + 1e-9


def failing_rows(metric: str, seed: int) -> pd.DataFrame:
    """A quarter of the rows, group D, is served worse; nine in ten rows that show it lack a prediction."""
    rng = np.random.default_rng(seed)
    g, t = rng.choice(list("ABCD"), 4000), (rng.random(4000) < 0.5).astype(float)
    q = (rng.random(4000) < np.where(t == 1, 0.7, 0.3)).astype(float)
    missed = (g == "D") & (t == 1) & (q == 1) & (rng.random(4000) < 0.2)
    p = np.where(missed, 0.0, q)
    if metric == "f1":
        missed = (g == "D") & (t == 1) & (rng.random(4000) < 0.3)
        p = np.where(missed, 0.0, q)
    hidden = missed & (p == 0) & (rng.random(4000) < 0.9)
    return pd.DataFrame({"g": g, "t": t, "p": np.where(hidden, np.nan, p), "q": q})


@pytest.mark.parametrize(("metric", "gap"), [("f1", 0.08), ("change of tpr", 0.05)])
def test_predictions_that_are_missing_where_a_group_is_served_worse_do_not_pass(metric: str, gap: float) -> None:
    for seed in range(5):
        rows = failing_rows(metric, seed)
        asked: dict[str, Any] = {"gap": gap} | ({} if metric == "f1" else {"against": 0})
        certificate = fl.certify(rows, "g", SHIFTED[metric][0], **asked)
        assert (certificate.verdict, certificate.missing) == ("inconclusive", "bounds")
        assert certificate.certifiable > certificate.certifiable_ignoring
        clusters = fl.cluster(rows, "g", SHIFTED[metric][0])
        assert fl.certify(clusters, **asked).certifiable == pytest.approx(certificate.certifiable)
    assert fl.certify(rows, "g", SHIFTED[metric][0], **asked, missing="ignore").verdict == "passed"
    ratios = fl.certify(rows, "g", fl.f1("t", "p"), gap=0.3, ratio=True)
    assert (ratios.verdict, ratios.certifiable) == ("inconclusive", 0.0)


def test_a_wide_gap_passes_in_spite_of_few_missing_values() -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"g": rng.choice(["a", "b"], 8000), "t": (rng.random(8000) < 0.5).astype(float)})
    rows["p"] = np.where(rng.random(8000) < 0.2, 1 - rows.t, rows.t)
    rows.loc[rng.choice(8000, 40, replace=False), "p"] = np.nan
    for metric in (fl.f1("t", "p"), fl.balanced_accuracy("t", "p"), fl.auc("t", "p")):
        certificate = fl.certify(rows, "g", metric, gap=0.1)
        assert (certificate.verdict, certificate.missing) == ("passed", "bounds")
        assert certificate.certifiable > certificate.certifiable_ignoring


# ------------------------------------------------------------------------------------------------- unknown attributes


def unknown_rows(share: float = 0.1, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame({"race": rng.choice(["x", "y", "z"], 12_000), "sex": rng.choice(["f", "m"], 12_000)})
    rows["hired"] = (rng.random(12_000) < 0.4).astype(int)
    rows.loc[rng.random(12_000) < share, "race"] = None
    return rows


def test_unknown_attributes_count_against_a_certificate() -> None:
    rows, metric = unknown_rows(), fl.rate("hired")
    bounds = fl.certify(rows, "race", metric, gap=0.05)
    assert (bounds.verdict, bounds.unknown, bounds.missing) == ("inconclusive", "bounds", "none")
    assert {group.label for group in bounds.groups} == {"x", "y", "z"}
    exclude = fl.certify(rows, "race", metric, gap=0.05, unknown="exclude")
    assert (exclude.verdict, len(exclude.groups)) == ("passed", 3)
    category = fl.certify(rows, "race", metric, gap=0.05, unknown="category")
    assert (category.verdict, len(category.groups)) == ("passed", 4)
    codes = [{note.code for note in result.notes} for result in (exclude, category)]
    assert all("unknown attributes" in code for code in codes)


def test_bounds_of_unknown_attributes_are_those_of_all_ones_or_all_zeros_in_one_group() -> None:
    rows = unknown_rows()
    certificate = fl.certify(rows, "race", fl.rate("hired"), gap=0.5)
    lost = rows[rows.race.isna()].hired
    for row in certificate.to_dicts():
        own = rows[rows.race == row["race"]].hired
        assert row["possible_upper"] == pytest.approx((own.sum() + lost.sum()) / (len(own) + lost.sum()))
        assert row["possible_lower"] == pytest.approx(own.sum() / (len(own) + (1 - lost).sum()))


def test_someone_of_unknown_race_and_known_sex_may_belong_to_groups_of_that_sex() -> None:
    rows = unknown_rows()
    certificate = fl.certify(rows, ["race", "sex"], fl.rate("hired"), gap=0.5)
    row = next(row for row in certificate.to_dicts() if (row["race"], row["sex"]) == ("x", "f"))
    own = rows[(rows.race == "x") & (rows.sex == "f")].hired
    lost = rows[rows.race.isna() & (rows.sex == "f")].hired
    assert row["possible_upper"] == pytest.approx((own.sum() + lost.sum()) / (len(own) + lost.sum()))


def test_what_cannot_be_done_about_missing_values_is_refused() -> None:
    rows = unknown_rows().assign(x=1.5)
    wrong: list[tuple[dict[str, Any], str]] = [({"missing": "drop"}, "missing"), ({"unknown": "any"}, "unknown")]
    for options, parameter in wrong:
        with pytest.raises(fl.InputError) as caught:
            fl.certify(rows, "race", fl.rate("hired"), gap=0.1, **options)
        assert caught.value.parameter == parameter
    rows["x"] = np.random.default_rng(0).normal(size=len(rows))
    with pytest.raises(fl.InputError) as caught:
        fl.certify(rows, "race", fl.mean("x"), gap=0.1, unknown="bounds")
    assert caught.value.parameter == "unknown"


def test_units_have_the_bounds_of_their_rows() -> None:
    rows = labels_where_selected()
    rows["user"] = np.arange(len(rows))
    single, units = (
        fl.certify(rows, "g", metric, gap=0.05)
        for metric in (fl.true_positive_rate("t", "p"), fl.true_positive_rate("t", "p", unit="user"))
    )
    assert units.verdict == "inconclusive"
    assert units.possible == pytest.approx(np.array(single.possible))


# --------------------------------------------------------------------------------------------- means of missing values


MEANS: dict[str, tuple[Any, Any]] = {
    "mean": (fl.mean("x"), lambda rows: rows.x.mean()),
    "weighted mean": (fl.mean("x", weight="w"), lambda rows: np.average(rows.x, weights=rows.w)),
    "mean absolute error": (fl.mean_absolute_error("t", "x"), lambda rows: (rows.t - rows.x).abs().mean()),
    "weighted Brier score": (
        fl.brier("t", "s", weight="w"),
        lambda rows: np.average((rows.t - rows.s) ** 2, weights=rows.w),
    ),
    "weighted F1": (
        fl.f1("t", "p", weight="w"),
        lambda rows: sk.f1_score(rows.t, rows.p, sample_weight=rows.w),
    ),
    "difference": (
        fl.difference("x", variant="arm", control="A"),
        lambda rows: rows[rows.arm == "B"].x.mean() - rows[rows.arm == "A"].x.mean(),
    ),
    "lift": (
        fl.lift("x", variant="arm", control="A"),
        lambda rows: rows[rows.arm == "B"].x.mean() / rows[rows.arm == "A"].x.mean() - 1,
    ),
}


def valued(seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Complete rows with values from 1 to 5, and the same with the highest or lowest missing in some groups."""
    rng = np.random.default_rng(seed)
    size = 3000
    frame = pd.DataFrame({"g": rng.choice(list("abc"), size), "x": rng.integers(1, 6, size).astype(float)})
    frame = frame.assign(t=rng.integers(0, 2, size), s=rng.random(size), w=rng.uniform(0.2, 3, size))
    frame = frame.assign(p=(frame.s > 0.5).astype(float), arm=rng.choice(["A", "B"], size))
    high = (frame.x >= 4) & (frame.g == "a") & (frame.arm == "B") & (rng.random(size) < 0.2)
    lost = high | ((frame.x <= 2) & (frame.g == "b") & (rng.random(size) < 0.08))
    holes = frame.copy()
    holes.loc[lost, ["x", "s", "p"]] = np.nan
    return frame, holes


@pytest.mark.parametrize("name", MEANS)
def test_bounds_hold_the_effects_of_the_complete_rows(name: str) -> None:
    metric, of_rows = MEANS[name]
    for seed in range(5):
        complete, holes = valued(seed)
        groups = groups_from(holes, "g", [metric])[0]
        shifts = possible_shifts(groups, holes, metric)
        assert shifts is not None
        assert shifts.complete
        estimates = groups.comparison.estimates
        assert estimates is not None
        for i, (key,) in enumerate(estimates.keys):
            truth, shown = of_rows(complete[complete.g == key]), estimates.shown[i, 0]
            assert shown - shifts.down[i, 0] - 1e-9 <= truth <= shown + shifts.up[i, 0] + 1e-9


@pytest.mark.parametrize("name", MEANS)
def test_missing_values_count_against_the_certificate_of_a_mean(name: str) -> None:
    metric, _ = MEANS[name]
    _, holes = valued(0)
    asked: Any = {"against": 0, "adverse": "low"} if name in ("difference", "lift") else {}
    ignored = fl.certify(holes, "g", metric, gap=0.4, missing="ignore", **asked)
    gap = 1.05 * ignored.certifiable
    assert fl.certify(holes, "g", metric, gap=gap, missing="ignore", **asked).verdict == "passed"
    certificate = fl.certify(holes, "g", metric, gap=gap, **asked)
    assert certificate.verdict == "inconclusive"
    assert certificate.certifiable_ignoring == pytest.approx(ignored.certifiable)
    (note,) = [note for note in certificate.notes if note.code == "missing bounds"]
    assert set(note.fields["groups"]) == {"a", "b", "c"}
    assert certificate.missing == ("bounds" if "weighted" in name and "mean" not in name else "range")
    if certificate.missing == "range" and name != "mean absolute error":
        assert certificate.missing_range == (1, 5)


def test_a_cap_bounds_missing_values() -> None:
    _, holes = valued(0)
    assert fl.certify(holes, "g", fl.mean("x", cap=3), gap=1).missing_range == (1, 3)


def test_many_missing_values_of_a_mean_never_pass() -> None:
    """The values at hand say little about the range of the others where these are many."""
    rows = pd.DataFrame({"g": ["a", "b"] * 500, "x": [1.0, 2.0, 2.0, 1.0] * 250})
    rows.loc[rows.index % 10 == 0, "x"] = np.nan
    certificate = fl.certify(rows, "g", fl.mean("x"), gap=0.9)
    assert certificate.certifiable < 0.9
    assert certificate.verdict == "inconclusive"


def test_a_result_without_its_rows_does_not_certify_a_mean_with_missing_values() -> None:
    _, holes = valued(0)
    certificate = fl.certify(fl.cluster(holes, "g", fl.mean("x")), gap=2)
    assert certificate.verdict == "inconclusive"
    assert certificate.needs_rows
    assert fl.certify(holes, "g", fl.mean("x"), gap=2).verdict == "passed"


def test_many_rows_of_unknown_groups_do_not_pass_unless_that_is_asked_for() -> None:
    """Of a metric without bounds for them: 10% of rows may hide a group that is far away."""
    rng = np.random.default_rng(5)
    rows = pd.DataFrame({"g": rng.choice(["a", "b", "?"], 4000, p=[0.5, 0.4, 0.1]), "x": rng.normal(10, 1, 4000)})
    rows["g"] = rows.g.where(rows.g != "?")
    assert fl.certify(rows, "g", fl.mean("x"), gap=0.5).verdict == "inconclusive"
    for asked in ({"unknown": "category"}, {"unknown": "exclude"}, {"missing": "ignore"}):
        assert fl.certify(rows, "g", fl.mean("x"), gap=0.5, **asked).verdict == "passed"  # type: ignore[arg-type]
    few = rows[rows.g.notna() | (np.arange(4000) % 4 == 0)]
    assert fl.certify(few, "g", fl.mean("x"), gap=0.5).verdict == "passed"


# ------------------------------------------------------------------------------------------------- what to do next


def third_missing(column: str, share: float = 0.3) -> pd.DataFrame:
    """Rows of three equal groups, of which "a" lacks a share of a column."""
    rng = np.random.default_rng(0)
    size = 6_000
    rows = pd.DataFrame({"g": rng.choice(list("abc"), size), "w": rng.uniform(0.5, 1.5, size)})
    rows["y"], rows["p"] = ((rng.random(size) < 0.5).astype(float) for _ in range(2))
    rows.loc[(rows.g == "a") & (rng.random(size) < share), column] = np.nan
    return rows


@pytest.mark.parametrize(
    ("column", "weight", "gap", "changes", "arguments"),
    [
        ("y", None, 0.05, {"missing": "ignore"}, ("FILES",)),  # passes if they are missing at random
        ("y", None, 0.01, {"certify": "0.123"}, ("FILES",)),
        ("w", "w", 0.1, {"missing": "ignore"}, ("FILES",)),
        ("w", "w", 0.01, {}, ("COMPLETED",)),  # no gap passes while these are missing
    ],
)
def test_values_that_a_group_lacks_are_to_be_completed(
    column: str, weight: str | None, gap: float, changes: dict[str, str], arguments: tuple[str, ...]
) -> None:
    rows, metric = third_missing(column), fl.accuracy("y", "p", weight=weight)
    certificate = fl.certify(rows, "g", metric, gap=gap)
    assert certificate.verdict == "inconclusive"
    step = certificate.notes[-1]
    assert step.code == "next"
    assert f"the missing values of {column}" in step.fields["purpose"]
    assert step.fields["command"].changes == changes
    assert step.fields["command"].arguments == arguments


def test_the_gap_to_be_certified_next_passes() -> None:
    rows, metric = third_missing("y"), fl.accuracy("y", "p")
    step = fl.certify(rows, "g", metric, gap=0.01).notes[-1]
    assert fl.certify(rows, "g", metric, gap=float(step.fields["command"].changes["certify"])).verdict == "passed"


def test_a_group_without_any_label_is_not_made_larger_but_completed() -> None:
    certificate = fl.certify(third_missing("y", 1.0), "g", fl.accuracy("y", "p"), gap=0.1)
    assert certificate.verdict == "inconclusive"
    assert [group.label for group in certificate.excluded] == ["a"]
    command = certificate.notes[-1].fields["command"]
    assert (command.arguments, command.changes) == (("COMPLETED",), {})
    rows = third_missing("y", 1.0).query("g != 'b'")
    with pytest.raises(NoGroupsError) as caught:
        fl.certify(rows, "g", fl.accuracy("y", "p"), gap=0.1)
    assert "empty denominator" in str(caught.value)
