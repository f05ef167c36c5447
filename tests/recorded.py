"""Results of some sixty inputs as JSON files, to compare two versions of the library to the last digit.

`python -m tests.recorded FOLDER` writes one file per input, over all metrics, guarantees, comparisons and frames;
`diff -r` of the folders of two versions shows what a change of the code has changed in its answers.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import faultlines as fl
from faultlines import simulate
from tests.engine_matrix import in_engine, rows

Case = Callable[[], Any]


def estimates(groups: int = 30, *, dof: float | None = None, d: int = 1, seed: int = 1, cov: bool = False) -> Any:
    """Three planted clusters of groups by two attributes, with unequal standard errors."""
    rng = np.random.default_rng(seed)
    se = rng.uniform(0.5, 1.5, (groups, d))
    theta = np.repeat([0.0, 4.0, 9.0], -(-groups // 3))[:groups, None] + se * rng.standard_normal((groups, d))
    labels = [(f"c{i % 6}", i // 6) for i in range(groups)]
    options: dict[str, Any] = {"labels": labels, "n": rng.integers(50, 500, groups), "dof": dof}
    options["attributes"] = ["country", "age"]
    if d == 1:
        return fl.Estimates(theta[:, 0], se[:, 0], **options)
    if not cov:
        return fl.Estimates(theta, se, **options)
    matrices = se[:, :, None] * se[:, None, :] * (0.6 * np.eye(d) + 0.4)
    return fl.Estimates(theta, None, effect_covariance=matrices, **options)


def tables() -> Iterator[tuple[str, Case]]:
    """Estimates under every guarantee, and other comparisons."""
    for name in ("calibrated", "holdout", "folds", "bonferroni"):
        yield f"estimates-{name}", partial(fl.cluster, estimates(), guarantee=name)
        yield f"dof-{name}", partial(fl.cluster, estimates(dof=90), guarantee=name)
        yield f"plane-{name}", partial(fl.cluster, estimates(d=2), guarantee=name)
        yield f"correlated-{name}", partial(fl.cluster, estimates(d=2, cov=True), guarantee=name)
        counts = np.random.default_rng(3).binomial(400, np.repeat([0.1, 0.3], 12))
        yield f"binomial-{name}", partial(fl.cluster, fl.binomial(counts, 400), guarantee=name)
        yield f"poisson-{name}", partial(fl.cluster, fl.poisson(counts, 400.0), guarantee=name)
    yield "draws", lambda: fl.cluster(estimates(), guarantee=fl.Calibrated(draws=2000), alpha=0.01, seed=7)
    yield "tolerance", lambda: fl.cluster(estimates(), tolerance=1.0)
    yield "unrefined", lambda: fl.cluster(estimates(), refine=False)
    yield "min-size", lambda: fl.cluster(estimates(), min_size=200)
    yield "three-effects", lambda: fl.cluster(estimates(d=3, cov=True))
    yield "folds-10", lambda: fl.cluster(estimates(), guarantee=fl.Folds(n=10))
    yield "null", lambda: fl.cluster(simulate.null(50, profile="lognormal").estimates)
    yield "one-group", lambda: fl.cluster(fl.Estimates([1.0], [0.5]))
    yield "many-groups", lambda: fl.cluster(simulate.planted([0, 3], [1500, 1500]).estimates)
    yield "asia", lambda: fl.cluster(simulate.asia_africa(0.2).estimates).at(1e-6)
    yield "demo", lambda: fl.cluster(simulate.onboarding().estimates)


def metrics() -> dict[str, Any]:
    """Every metric on the rows of the engine tests."""
    arms: dict[str, Any] = {"variant": "arm", "control": "A"}
    units: dict[str, Any] = {"variant": "arm_of_user", "control": "A", "unit": "user"}
    metrics: dict[str, Any] = {
        "difference": fl.difference("revenue", **arms),
        "difference-cuped": fl.difference("revenue", **arms, covariate="before"),
        "difference-weight": fl.difference("revenue", **arms, weight="weight"),
        "lift": fl.lift("revenue", **arms),
        "ratio-difference": fl.ratio_difference("revenue", "visits", **arms),
        "ratio-lift": fl.ratio_lift("revenue", "visits", **arms, weight="weight"),
        "mean": fl.mean("noisy"),
        "mean-weight": fl.mean("revenue", weight="weight"),
        "rate": fl.rate("outcome", positive="yes"),
        "rate-weight": fl.rate("label", weight="weight"),
        "ratio": fl.ratio("revenue", "visits"),
        "selection-rate": fl.selection_rate("predicted"),
        "equalized-odds": fl.equalized_odds("label", score="score", threshold=0.5),
        "auc": fl.auc("label", "score"),
        "joint": fl.joint(fl.rate("label"), fl.mean("revenue")),
        "mean-squared-error": fl.mean_squared_error("revenue", "before"),
    }
    names = "true_positive_rate false_positive_rate precision accuracy".split()
    metrics |= {name: getattr(fl, name)("label", "predicted") for name in names}
    metrics |= {name: getattr(fl, name)("label", "score") for name in ("log_loss", "brier", "calibration_gap")}
    metrics |= {name: getattr(fl, name)("revenue", "before") for name in ("mean_error", "mean_absolute_error")}
    return metrics | {"unit": fl.lift("revenue", **units)}


def of_rows(folder: Path) -> Iterator[tuple[str, Case]]:
    """Every metric from a parquet file; a few of them from every kind of frame."""
    table = rows()
    path = in_engine(table, "parquet", folder)
    for name, metric in metrics().items():
        by: Any = "device_of_user" if name == "unit" else ["device", "premium"]
        yield f"rows-{name}", partial(fl.cluster, path, by=by, metric=metric)
    arms: dict[str, Any] = {"variant": "arm", "control": "A"}
    for engine in ("pandas", "pandas nullable", "polars", "polars lazy", "pyarrow", "duckdb", "csv", "parquet glob"):
        home = folder / engine.replace(" ", "-")
        home.mkdir()
        data = in_engine(table, engine, home)
        by = ["country", fl.bins("age", width=20)]
        metric = fl.lift("revenue", **arms)
        yield f"{engine}-lift", partial(fl.cluster, data, by=by, metric=metric)
    yield "rows-quantiles", lambda: fl.cluster(path, by=fl.bins("income", quantiles=10), metric=fl.mean("revenue"))


def record(folder: Path) -> int:
    """Write the JSON of every case; how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    with tempfile.TemporaryDirectory() as temporary:
        for name, case in [*tables(), *of_rows(Path(temporary))]:
            (folder / f"{name.replace(' ', '-')}.json").write_text(case().to_json() + "\n", encoding="utf-8")
            count += 1
        many = fl.cluster_many({f"e{i}": simulate.null(21, seed=i).estimates for i in range(30)}, correction="bh")
        (folder / "many.json").write_text(json.dumps(many.to_dicts(), indent=2), encoding="utf-8")
    return count + 1


if __name__ == "__main__":
    print(record(Path(sys.argv[1])), "results written")
