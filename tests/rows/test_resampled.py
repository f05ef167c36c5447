"""Any statistic of columns, by a bootstrap: the right standard error, the same draws wherever rows come from."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score

import faultlines as fl
from faultlines.estimates.reasons import DropCode
from tests.engine_matrix import in_engine, rows
from tests.refused import refused

if TYPE_CHECKING:
    from pathlib import Path

RNG = np.random.default_rng(0)
ROWS = pd.DataFrame({"g": RNG.choice(list("abc"), 3000), "x": RNG.exponential(1, 3000), "t": RNG.integers(0, 2, 3000)})
ROWS["p"] = np.where(RNG.random(3000) < 0.8, ROWS.t, 1 - ROWS.t)


def mean(x: Any) -> float:
    return float(np.mean(x))


def test_the_standard_error_of_a_mean_is_the_usual_one() -> None:
    estimates = fl.measure(ROWS, "g", fl.bootstrapped(mean, "x", draws=1000)).estimates
    of_group = ROWS.groupby("g")["x"]
    np.testing.assert_allclose(estimates.theta, of_group.mean(), rtol=1e-12)
    np.testing.assert_allclose(estimates.se, of_group.sem(), rtol=0.1)
    assert estimates.metric == "mean of x"
    assert estimates.n is not None
    np.testing.assert_array_equal(estimates.n, of_group.count())


def test_weights_and_repeated_rows_are_the_same() -> None:
    def repeated(t: Any, p: Any) -> float:
        return float(f1_score(t, p))

    few = ROWS[:300]
    by_weight, by_rows = (
        fl.measure(few, "g", fl.bootstrapped(f, "t", "p", draws=60)).estimates for f in (f1_score, repeated)
    )
    np.testing.assert_allclose(by_weight.theta, by_rows.theta, rtol=1e-12)
    np.testing.assert_allclose(by_weight.se, by_rows.se, rtol=1e-9)
    sums = fl.measure(few, "g", fl.f1("t", "p")).estimates
    np.testing.assert_allclose(by_rows.natural, sums.natural, rtol=1e-12)
    np.testing.assert_allclose(by_rows.se, sums.se, rtol=0.35)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["pandas", "polars", "polars lazy", "pyarrow", "duckdb", "ibis", "parquet", "csv"])
def test_the_same_draws_on_every_engine(engine: str, tmp_path: Path) -> None:
    metric = fl.bootstrapped(np.median, "noisy", draws=50)
    expected = fl.measure(rows(), ["country", "device"], metric)
    shuffled = rows().take(np.random.default_rng(1).permutation(rows().num_rows))
    measurement = fl.measure(in_engine(shuffled, engine, tmp_path, None), ["country", "device"], metric)
    np.testing.assert_allclose(measurement.estimates.theta, expected.estimates.theta, rtol=1e-12)
    np.testing.assert_allclose(measurement.estimates.se, expected.estimates.se, rtol=1e-12)
    assert measurement.dropped == expected.dropped
    assert measurement.dropped[DropCode.MISSING_VALUE] > 0


def test_a_group_has_draws_of_its_own() -> None:
    metric = fl.bootstrapped(np.median, "x", draws=50)
    everyone, some = fl.measure(ROWS, "g", metric).estimates, fl.measure(ROWS[ROWS.g != "a"], "g", metric).estimates
    other = fl.measure(ROWS, "g", fl.bootstrapped(np.median, "x", draws=50, seed=1)).estimates
    assert everyone.theta[1:].tolist() == some.theta.tolist()
    assert fl.measure(ROWS, "g", pickle.loads(pickle.dumps(metric))).estimates.se.tolist() == everyone.se.tolist()
    assert other.theta.tolist() == everyone.theta.tolist()
    assert other.se.tolist() != everyone.se.tolist()


def test_text_is_given_as_text() -> None:
    def share_of_yes(answers: Any) -> float:
        return float(np.mean(answers == "yes"))

    data = ROWS.assign(answer=np.where(ROWS.t == 1, "yes", "no"))
    estimates = fl.measure(data, "g", fl.bootstrapped(share_of_yes, "answer", draws=50)).estimates
    np.testing.assert_allclose(estimates.theta, ROWS.groupby("g")["t"].mean())


def test_statistics_that_fail() -> None:
    def picky(x: Any) -> float:
        if x.max() > 4:
            raise ValueError("too large for me")
        return float(x.mean())

    small = ROWS.assign(x=np.where(ROWS.g == "a", ROWS.x, np.minimum(ROWS.x, 3)))
    measurement = fl.measure(small, "g", fl.bootstrapped(picky, "x", draws=30))
    assert [(left.label, left.code) for left in measurement.excluded] == [("a", "no value")]
    with refused("no groups: statistic"):
        fl.measure(ROWS, "g", fl.bootstrapped(picky, "x", draws=30))
    with refused("no groups: by"):
        fl.measure(ROWS, "g", fl.bootstrapped(lambda x: 1.0, "x", draws=30, name="one"))


def test_what_is_refused() -> None:
    metric = fl.bootstrapped(np.median, "x", draws=30)
    for call, words in (
        (lambda: fl.bootstrapped("median", "x"), "wrong type: statistic"),  # type: ignore[arg-type]
        (lambda: fl.bootstrapped(np.median), "empty: columns"),
        (lambda: fl.bootstrapped(np.median, "x", draws=5), "out of range: draws"),
        (lambda: fl.bootstrapped(np.median, 5), "wrong type: columns"),  # type: ignore[arg-type]
        (lambda: fl.measure(ROWS, "g", fl.bootstrapped(np.median, "y")), "column not found: columns"),
        (lambda: fl.joint(metric, fl.mean("x")), "unsupported: metric"),
        (lambda: fl.self_check(ROWS, "g", metric), "unsupported: metric"),
        (lambda: fl.cluster(ROWS, "g", metric, guarantee=fl.Holdout(unit="t")), "unsupported: unit"),
    ):
        with refused(words):
            call()


def test_it_can_be_clustered() -> None:
    apart = ROWS.assign(x=np.random.default_rng(5).exponential(1, 3000) + 3 * (ROWS.g == "b"))
    result = fl.cluster(apart, "g", fl.bootstrapped(np.median, "x", draws=50, name="median"))
    assert [cluster.members for cluster in result.clusters] == [("a", "c"), ("b",)]
    assert result.groups.metric == "median"
