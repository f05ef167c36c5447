"""Rows of a unit go together: estimates stay those of the rows, standard errors are clustered by unit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import statsmodels.api as sm

import faultlines as fl
from faultlines.estimates.reasons import RowWarning
from faultlines.metrics.table import METRICS
from tests.engine_matrix import in_engine
from tests.refused import refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.running import Warm


def prompts(seed: int = 0, count: int = 240, groups: int = 1) -> pd.DataFrame:
    """Prompts of one to eleven answers, some of which a model always gets right."""
    rng = np.random.default_rng(seed)
    prompt = np.repeat(np.arange(count), rng.integers(1, 12, count))
    ability, size = rng.beta(1, 1.5, count)[prompt], prompt.size
    rows = pd.DataFrame({"prompt": prompt, "lang": [f"l{i}" for i in prompt % groups]})
    rows["y"], rows["t"] = (rng.random(size) < ability).astype(int), rng.integers(0, 2, size)
    rows["second"] = (rng.random(size) < ability).astype(int)
    rows["s"] = np.round(np.clip(ability + 0.2 * rng.standard_normal(size), 0, 1), 2)
    rows["w"], rows["views"] = rng.uniform(0.5, 2, size), rng.integers(1, 5, size)
    return rows


def clustered(outcome: Any, inputs: Any, unit: Any, weight: Any = None) -> tuple[float, float]:
    """Last coefficient of a regression, with its standard error clustered by unit; factor G/(G − 1) alone."""
    model = sm.WLS(outcome, inputs, weights=np.ones(len(outcome)) if weight is None else weight)
    fit = model.fit(cov_type="cluster", cov_kwds={"groups": unit})
    rows, columns = np.asarray(inputs).reshape(len(outcome), -1).shape
    return float(np.asarray(fit.params)[-1]), float(np.asarray(fit.bse)[-1] * np.sqrt((rows - columns) / (rows - 1)))


def of_constant(value: Callable[[pd.DataFrame], Any], only: Callable[[pd.DataFrame], Any] | None = None) -> Any:
    def reference(rows: pd.DataFrame, weight: str | None) -> tuple[float, float]:
        rows = rows if only is None else rows[only(rows)]
        return clustered(value(rows), np.ones(len(rows)), rows.prompt, None if weight is None else rows[weight])

    return reference


REFERENCES: dict[str, tuple[tuple[str, ...], Any]] = {
    "mean": (("s",), of_constant(lambda r: r.s)),
    "rate": (("y",), of_constant(lambda r: r.y)),
    "true_positive_rate": (("t", "y"), of_constant(lambda r: r.y, lambda r: r.t == 1)),
    "false_positive_rate": (("t", "y"), of_constant(lambda r: r.y, lambda r: r.t == 0)),
    "precision": (("t", "y"), of_constant(lambda r: r.t, lambda r: r.y == 1)),
    "accuracy": (("t", "y"), of_constant(lambda r: (r.t == r.y) * 1.0)),
    "selection_rate": (("y",), of_constant(lambda r: r.y)),
    "brier": (("t", "s"), of_constant(lambda r: (r.s - r.t) ** 2)),
    "calibration_gap": (("t", "s"), of_constant(lambda r: r.s - r.t)),
    "mean_error": (("t", "s"), of_constant(lambda r: r.s - r.t)),
}


@pytest.mark.parametrize("weight", [None, "w"])
@pytest.mark.parametrize("name", REFERENCES)
def test_standard_errors_are_those_of_a_clustered_regression(name: str, weight: str | None) -> None:
    columns, reference = REFERENCES[name]
    rows = prompts()
    estimates = fl.measure(rows, "lang", METRICS[name].function(*columns, unit="prompt", weight=weight)).estimates
    value, error = reference(rows, weight)
    assert estimates.natural[0] == pytest.approx(value, rel=1e-9)
    share = estimates.scale.is_share
    # On Anscombe's scale the standard error is that of as many independent rows as have the variance of the units.
    own = np.sqrt(value * (1 - value) / ((estimates.se[0] ** -2 - 2) / 4)) if share else estimates.se[0]
    assert own == pytest.approx(error, rel=1e-9)
    assert estimates.dof is not None
    assert estimates.n is not None
    assert estimates.dof[0] == pytest.approx(estimates.n[0] - 1)  # units, not rows
    assert estimates.n[0] <= 240


def test_slope_and_balanced_accuracy_are_regressions_too() -> None:
    rows = prompts()
    slope = fl.measure(rows, "lang", fl.calibration_slope("t", "s", unit="prompt")).estimates
    value, error = clustered(rows.t, sm.add_constant(rows.s), rows.prompt)
    assert (slope.theta[0], slope.se[0]) == (pytest.approx(value), pytest.approx(error, rel=1e-9))
    balanced = fl.measure(rows, "lang", fl.balanced_accuracy("t", "y", unit="prompt")).estimates
    value, error = clustered(rows.y, sm.add_constant(rows.t), rows.prompt)
    assert balanced.theta[0] == pytest.approx((1 + value) / 2)
    assert balanced.se[0] == pytest.approx(error / 2, rel=1e-9)


def jackknife(statistic: Callable[[pd.DataFrame], float], rows: pd.DataFrame) -> float:
    """Standard error from leaving out one unit at a time."""
    values = np.array([statistic(rows[rows.prompt != unit]) for unit in rows.prompt.unique()])
    return float(np.sqrt((values.size - 1) / values.size * np.sum((values - values.mean()) ** 2)))


def test_ratios_agree_with_leaving_out_units() -> None:
    rows = prompts()
    cases: dict[str, tuple[fl.Metric, Callable[[pd.DataFrame], float]]] = {
        "ratio": (fl.ratio("y", "views", unit="prompt"), lambda r: r.y.sum() / r.views.sum()),
        "f1": (fl.f1("t", "y", unit="prompt"), lambda r: 2 * (r.t * r.y).sum() / (r.t + r.y).sum()),
        "paired precision": (
            fl.paired(fl.precision("t", "y", unit="prompt"), fl.precision("t", "second", unit="prompt")),
            lambda r: r.t[r.second == 1].mean() - r.t[r.y == 1].mean(),
        ),
        "paired accuracy": (
            fl.paired(fl.accuracy("t", "y", unit="prompt"), fl.accuracy("t", "second", unit="prompt")),
            lambda r: float(np.mean((r.t == r.second) * 1.0 - (r.t == r.y) * 1.0)),
        ),
    }
    for name, (metric, statistic) in cases.items():
        estimates = fl.measure(rows, "lang", metric).estimates
        assert estimates.theta[0] == pytest.approx(statistic(rows)), name
        assert estimates.se[0] == pytest.approx(jackknife(statistic, rows), rel=0.01), name


def obuchowski(rows: pd.DataFrame, weight: Any) -> tuple[float, float]:
    """Area and standard error by all pairs."""
    is_positive = (rows.t == 1).to_numpy()
    score, unit = rows.s.to_numpy(), rows.prompt.to_numpy()
    above = np.sign(score[is_positive][:, None] - score[~is_positive]) / 2 + 0.5
    shares = [weight[side] / weight[side].sum() for side in (is_positive, ~is_positive)]
    placements = above @ shares[1], shares[0] @ above
    area = float(shares[0] @ placements[0])
    terms = np.zeros(unit.max() + 1)
    for side, share, placed in zip((is_positive, ~is_positive), shares, placements, strict=True):
        np.add.at(terms, unit[side], share * (placed - area))
    units = len(np.unique(unit))
    return area, float(np.sqrt(units / (units - 1) * np.sum(terms**2)))


@pytest.mark.parametrize("weight", [None, "w"])
def test_area_of_units_is_obuchowskis(weight: str | None) -> None:
    rows = prompts()
    estimates = fl.measure(rows, "lang", fl.auc("t", "s", unit="prompt", weight=weight)).estimates
    area, error = obuchowski(rows, np.ones(len(rows)) if weight is None else rows.w.to_numpy())
    assert estimates.n is not None
    assert (estimates.theta[0], estimates.se[0]) == (pytest.approx(area), pytest.approx(error, rel=1e-9))
    assert estimates.n[0] == 240


def test_one_row_per_unit_changes_next_to_nothing() -> None:
    rows = prompts().drop_duplicates("prompt")
    for name, columns in (("auc", ("t", "s")), ("mean", ("s",)), ("brier", ("t", "s"))):
        plain = fl.measure(rows, "lang", METRICS[name].function(*columns)).estimates
        units = fl.measure(rows, "lang", METRICS[name].function(*columns, unit="prompt")).estimates
        assert units.theta[0] == pytest.approx(plain.theta[0])
        assert units.se[0] == pytest.approx(plain.se[0], rel=0.01), name


def test_units_of_a_bootstrap_are_drawn_whole() -> None:
    rows = prompts()
    estimates = fl.measure(rows, "lang", fl.bootstrapped(np.mean, "s", unit="prompt", draws=400)).estimates
    _, error = clustered(rows.s, np.ones(len(rows)), rows.prompt)
    assert estimates.se[0] == pytest.approx(error, rel=0.15)
    assert estimates.n is not None
    assert estimates.n[0] == 240


def test_positives_and_negatives_of_a_unit_go_together() -> None:
    odds = fl.measure(prompts(), "lang", fl.equalized_odds("t", "y", unit="prompt")).estimates
    assert odds.effect_covariance is not None
    correlation = odds.effect_covariance[0, 0, 1] / np.sqrt(np.prod(np.diag(odds.effect_covariance[0])))
    assert correlation > 0.3  # a prompt that is easy is easy for both


def test_units_in_several_groups() -> None:
    rows = prompts()
    rows["half"] = np.where(np.arange(len(rows)) % 2, "p", "q")
    for metric in (fl.rate("y", unit="prompt"), fl.auc("t", "s", unit="prompt"), fl.f1("t", "y", unit="prompt")):
        with refused("invalid data: unit"):
            fl.measure(rows, "half", metric)
    shared = fl.measure(rows, "half", fl.rate("y", unit="prompt", overlap="covariance")).estimates
    assert shared.covariance is not None
    # Var(p̂ − q̂) of rows that share units, from a regression on the half with errors clustered by unit.
    value, error = clustered(rows.y, sm.add_constant((rows.half == "q") * 1.0), rows.prompt)
    slope = shared.scale.slope(shared.theta)
    contrast = np.array([-1.0, 1.0]) * slope
    assert shared.natural[1] - shared.natural[0] == pytest.approx(value)
    assert np.sqrt(contrast @ shared.covariance @ contrast) == pytest.approx(error, rel=0.03)


def test_audit_takes_units() -> None:
    rows = prompts(groups=4)
    audit = fl.audit(
        rows.t, rows.y, score=rows.s, sensitive_features=rows[["lang"]], unit=rows.prompt, metrics=["tpr", "auc"]
    )
    for comparison, metric in zip(
        audit.comparisons,
        (fl.true_positive_rate("t", "y", unit="prompt"), fl.auc("t", "s", unit="prompt")),
        strict=True,
    ):
        estimates = fl.measure(rows, "lang", metric).estimates
        assert comparison.result.groups.estimates is not None
        np.testing.assert_allclose(comparison.result.groups.estimates.se, estimates.se)


def test_the_command_line_takes_units(warm: Warm, tmp_path: Path) -> None:
    prompts(groups=4).to_csv(tmp_path / "answers.csv", index=False)
    options: list[str | Path] = [
        "--by",
        "lang",
        "--y-pred",
        "y",
        "--metric",
        "selection_rate",
        "--json",
        tmp_path / "out.json",
    ]
    results = []
    for more in ([], ["--unit", "prompt"]):
        done = warm("model", tmp_path / "answers.csv", *options, *more)
        assert done.returncode == 0, done.stderr
        results.append(json.loads((tmp_path / "out.json").read_text()))
    plain, units = results
    assert sum(group["n"] for group in units["groups"]) == 240
    for group, of_rows in zip(units["groups"], plain["groups"], strict=True):
        assert group["se"] > of_rows["se"]
    named = ["no unit" in [note["code"] for note in result["notes"]] for result in results]
    assert named == [True, False]


@pytest.mark.parametrize("engine", ["pandas", "polars", "pyarrow", "parquet", "csv"])
def test_a_column_of_units_that_repeats_is_named(engine: str, tmp_path: Path) -> None:
    import pyarrow as pa

    rows = prompts(groups=3).rename(columns={"prompt": "prompt_id"})
    rows["row_id"], rows["shop_id"] = np.arange(len(rows)), np.arange(len(rows)) % 3
    data = in_engine(pa.Table.from_pandas(rows, preserve_index=False).set_column(1, "country", pa.array(rows.lang)),
                     engine, tmp_path)  # fmt: skip
    warned = fl.measure(data, "country", fl.accuracy("t", "y")).readout
    assert warned is not None
    columns = [warning.fields.get("column") for warning in warned.warnings if isinstance(warning, RowWarning)]
    assert columns == ["prompt_id"]
    named = fl.measure(data, "country", fl.accuracy("t", "y", unit="prompt_id")).readout
    assert named is not None
    assert named.warnings == ()


@pytest.mark.parametrize("engine", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
def test_units_in_both_arms_are_paired_samples_or_a_slip(engine: Any) -> None:
    """Where most units are in both arms that is the design; where few are, these are left out."""
    rows = pd.DataFrame({"prompt": np.repeat(np.arange(300), 2), "model": ["old", "new"] * 300})
    rows["task"], rows["grade"] = np.where(rows.prompt % 2, "math", "code"), np.arange(600) % 3 / 2
    metric = fl.difference("grade", variant="model", control="old", unit="prompt")
    few = rows[(rows.prompt < 140) | (rows.model == "old")]
    for some, is_paired in ((rows, True), (few, False)):
        with refused("invalid data: unit") as caught:
            fl.measure(engine(some), "task", metric)
        assert ("fl.paired" in caught.value.remedy) == is_paired
