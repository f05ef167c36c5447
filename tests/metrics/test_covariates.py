"""CUPED keeps rows without the covariate: the regression on arm, covariate and an indicator that it is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import faultlines as fl
from faultlines.estimates.reasons import RowWarning

ARMS: dict[str, Any] = {"variant": "arm", "control": "A"}


def users(seed: int = 0, size: int = 900, centre: float = 1e4) -> pd.DataFrame:
    """Users of whom some three in ten are new: they have no earlier value, and others than the rest."""
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame({"g": "a", "arm": rng.choice(["A", "B"], size), "before": centre + rng.normal(0, 2, size)})
    rows["y"] = 3 * (rows.before - centre) + rng.normal(0, 2, size) + (rows.arm == "B") + 20
    rows["visits"], rows["w"] = rng.integers(1, 5, size), rng.uniform(0.5, 2, size)
    is_new = rng.random(size) < 0.3
    rows["before"], rows["y"] = rows.before.mask(is_new), rows.y - 4 * is_new
    return rows


def reference(rows: pd.DataFrame, centre: float = 1e4) -> tuple[float, float]:
    """Effect and standard error of the regression, with the plain mean in place of what is missing."""
    filled = rows.before.fillna(rows.before.mean()) - centre
    columns = [filled, rows.before.isna() * 1.0, (rows.arm == "B") * 1.0]
    fit = sm.OLS(rows.y.to_numpy(), sm.add_constant(np.column_stack(columns))).fit()
    return float(fit.params[-1]), float(fit.bse[-1])


@pytest.mark.parametrize("seed", range(4))
def test_the_effect_is_that_of_the_regression(seed: int) -> None:
    rows = users(seed)
    measurement = fl.measure(rows, "g", fl.difference("y", **ARMS, covariate="before"))
    effect, error = reference(rows)
    assert measurement.estimates.theta[0] == pytest.approx(effect, rel=1e-9)
    assert measurement.estimates.se[0] == pytest.approx(error, rel=0.02)  # variances by arm, and not one for both
    assert measurement.estimates.n is not None
    assert measurement.estimates.n[0] == len(rows)
    assert not measurement.dropped


def test_what_is_put_in_place_of_it_does_not_matter() -> None:
    """An indicator takes up any constant: far from zero, and of one group alone."""
    near, far = (
        fl.measure(users(1, centre=centre), "g", fl.difference("y", **ARMS, covariate="before")).estimates
        for centre in (0.0, 1e6)
    )
    assert near.theta[0] == pytest.approx(far.theta[0], rel=1e-6)
    assert near.se[0] == pytest.approx(far.se[0], rel=1e-6)


def test_nobody_and_everybody_without_it() -> None:
    rows = users()
    rows["none"], rows["same"] = np.nan, 1.0
    plain = fl.measure(rows, "g", fl.difference("y", **ARMS)).estimates
    for column in ("none", "same"):
        estimates = fl.measure(rows, "g", fl.difference("y", **ARMS, covariate=column)).estimates
        assert estimates.theta[0] == pytest.approx(plain.theta[0])
        assert estimates.se[0] == pytest.approx(plain.se[0], rel=0.01)
    complete = rows.dropna(subset="before")
    estimates = fl.measure(complete, "g", fl.difference("y", **ARMS, covariate="before")).estimates
    fit = sm.OLS(
        complete.y.to_numpy(), sm.add_constant(np.column_stack([complete.before - 1e4, (complete.arm == "B") * 1.0]))
    ).fit()
    assert estimates.theta[0] == pytest.approx(fit.params[-1], rel=1e-9)


@pytest.mark.parametrize("kind", ["lift", "ratio_lift", "ratio_difference", "weighted", "weighted ratio", "unit"])
def test_every_kind_of_effect_keeps_them(kind: str) -> None:
    rows = users(2, 1200, 10.0)
    options: dict[str, str] = {"covariate": "before"}
    options |= {"weight": "w"} if kind.startswith("weighted") else {}
    options |= {"unit": "user"} if kind == "unit" else {}
    rows["user"] = np.arange(len(rows))
    if kind == "unit":  # half of the rows of a user have the covariate
        rows = pd.concat([rows, rows.assign(before=np.nan, y=0.0)])
    if "ratio" in kind:
        metric = getattr(fl, "ratio_lift" if kind == "ratio_lift" else "ratio_difference")
        adjusted, plain = (fl.measure(rows, "g", metric("y", "visits", **ARMS, **more)) for more in (options, {}))
    else:
        metric = fl.lift if kind == "lift" else fl.difference
        bare: dict[str, Any] = {"unit": "user"} if kind == "unit" else {}
        adjusted, plain = (fl.measure(rows, "g", metric("y", **ARMS, **more)) for more in (options, bare))
    assert adjusted.estimates.n is not None
    assert adjusted.estimates.n[0] == 1200
    assert adjusted.estimates.se[0] < 0.97 * plain.estimates.se[0]
    assert abs(adjusted.estimates.theta[0] - plain.estimates.theta[0]) < 3 * plain.estimates.se[0]
    assert adjusted.readout is not None
    codes = [warning.code for warning in adjusted.readout.warnings if isinstance(warning, RowWarning)]
    assert "missing covariate" in codes


def test_clusters_are_read_as_one_group_would_be() -> None:
    rows = users(3, 1500)
    rows["g"] = np.arange(len(rows)) % 3
    metric = fl.difference("y", **ARMS, covariate="before")
    result = fl.cluster(rows, "g", metric)
    assert result.n_clusters == 1
    together = fl.measure(rows.assign(g=1), "g", metric).estimates
    assert result.clusters[0].observed == pytest.approx(together.theta[0], rel=1e-9)


@pytest.mark.parametrize("offset", [1e15, 1e16, 1e17])
def test_a_covariate_that_lost_its_digits_explains_nothing(offset: float) -> None:
    """About 1e16 the mean of a covariate is off by so much that it moved effects by four standard errors."""
    rng = np.random.default_rng(3)
    away = rng.normal(0, 3, 240)
    rows = {
        "g": np.arange(240) % 3,
        "v": rng.choice(["A", "B"], 240),
        "x": rng.normal(size=240) + away,
        "z": away + offset,
    }
    frame = pd.DataFrame(rows)
    plain = fl.measure(frame, "g", fl.difference("x", variant="v", control="A")).estimates
    adjusted = fl.measure(frame, "g", fl.difference("x", variant="v", control="A", covariate="z")).estimates
    np.testing.assert_allclose(adjusted.theta, plain.theta, rtol=1e-9)
    about_zero = frame.assign(z=away)
    estimates = fl.measure(about_zero, "g", fl.difference("x", variant="v", control="A", covariate="z")).estimates
    assert estimates.se.max() < 0.5 * adjusted.se.min()
