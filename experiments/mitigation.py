"""What reduces the differences that a model shows between groups: weights, thresholds, segmented models, on ACS rows.

A model is trained on one part of the rows, clusters are found and thresholds chosen on a second, and everything is
measured on the rest, by `fl.cluster` and by group.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import altair as alt
import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that the script also runs by its path

import faultlines as fl
from experiments.common import MITIGATION, Numbers, Run, Study, chart, data_file, markdown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faultlines.results import Cluster, Clustering


DATA = "acs_income_with_model_preds.parquet"
CATEGORIES = "RAC1P COW MAR RELP".split()
FEATURES = [*CATEGORIES, *"SEX SCHL POBP OCCP WKHP AGEP".split()]
BY = ["race", "sex", "age"]
AGES = (25, 65)  # working ages: below, hardly anyone earns as much as is asked about
BAND = 5
PARTS = (0.3, 0.2)  # of the rows, to train on and to find clusters and thresholds on; the rest is measured on
RATES = {
    "selection_rate": ("selection rate", None),
    "true_positive_rate": ("true positive rate", 1),
    "false_positive_rate": ("false positive rate", 0),
}
LARGE = 300  # rows behind a rate of a group, for the largest gap between groups
FEW = 50  # rows to choose a threshold of a group from, below which it is a small group
LEAST = 200  # rows to train a model of its own on
NONE, AS_IS = "no mitigation", "weights without outcomes"
THRESHOLDS = [f"thresholds for {name} by {whose}" for name, _ in RATES.values() for whose in ("cluster", "group")]
METHODS = [
    NONE,
    AS_IS,
    "reweighing by cluster",
    "reweighing by group",
    *THRESHOLDS,
    "a model for each cluster",
    "a model for each group",
]


def people() -> pl.DataFrame:
    """Rows with features, the outcome (an income above 50,000 dollars) and what the groups are made of."""
    path = data_file(DATA)
    if path is None:
        raise FileNotFoundError(STUDY.skipped())
    age = pl.col("AGEP")
    rows = pl.read_parquet(path).filter((age >= AGES[0]) & (age < AGES[1]))
    return rows.select(*FEATURES, y="PINCP", race="RAC1P", sex="SEX", age=age // BAND * BAND)


# ---------------------------------------------------------------------------------------------------------- one split


class Parts(NamedTuple):
    """One split of the rows, with the scores of the model that knows nothing of clusters."""

    train: pl.DataFrame
    tune: pl.DataFrame
    held: pl.DataFrame
    trees: int


def split(rows: pl.DataFrame, seed: int, trees: int) -> Parts:
    order = np.random.default_rng(seed).permutation(len(rows))
    ends = np.cumsum([0, *PARTS, 1 - sum(PARTS)]) * len(rows)
    train, tune, held = (rows[order[int(a) : int(b)]] for a, b in itertools.pairwise(ends))
    model = trained(train, trees)
    tune, held = (part.with_columns(score=scores(model, part)) for part in (tune, held))
    return Parts(train, tune, held, trees)


def trained(rows: pl.DataFrame, trees: int, weights: pl.Series | None = None) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(max_iter=trees, categorical_features=CATEGORIES, random_state=0)
    return model.fit(rows[FEATURES].to_pandas(), rows["y"].to_numpy(), None if weights is None else weights.to_numpy())


def scores(model: Any, rows: pl.DataFrame) -> pl.Series:
    """Probabilities; a model of rows with one outcome has one column of them."""
    return pl.Series(model.predict_proba(rows[FEATURES].to_pandas())[:, -1], dtype=pl.Float64)


def metric(rate: str, **columns: Any) -> fl.Metric:
    build: Callable[..., fl.Metric] = getattr(fl, rate)
    return build(**columns) if rate == "selection_rate" else build("y", **columns)


def each_group(result: Clustering, rows: pl.DataFrame | None = None) -> Clustering:
    """The groups of a result, every one as a cluster of its own: those with both outcomes, where rows are given."""
    labels = list(result.estimates.labels)
    if rows is not None:
        both = rows.group_by(BY).agg(pl.col("y").n_unique()).filter(pl.col("y") == 2)
        labels = [label for label in labels if label in set(both[BY].rows())]
    apart = fl.Estimates(100.0 * np.arange(len(labels)), np.ones(len(labels)), labels, attributes=BY)
    return fl.cluster(apart, guarantee="bonferroni")


def segmented(parts: Parts, result: Clustering) -> pl.DataFrame:
    """Predictions of a model for every cluster; those with too few rows keep the model of all."""
    train, held = result.assign(parts.train), result.assign(parts.held)
    score = held["score"].to_numpy().copy()
    for number in range(1, result.n_clusters + 1):
        own, whose = train.filter(pl.col("cluster") == number), (held["cluster"] == number).fill_null(False)
        if len(own) >= LEAST and own["y"].n_unique() == 2 and whose.any():
            score[whose.to_numpy()] = scores(trained(own, parts.trees), held.filter(whose)).to_numpy()
    return parts.held.with_columns(prediction=pl.Series(score >= 0.5).cast(pl.Int64))


def reweighed(parts: Parts, result: Clustering, groups: Clustering) -> dict[str, pl.DataFrame]:
    """Predictions of models trained with weights."""
    train, held = parts.train, parts.held
    weights = {
        AS_IS: result.weights(train),
        "reweighing by cluster": result.weights(train, label="y"),
        "reweighing by group": groups.weights(train, label="y"),
    }
    predictions = {method: scores(trained(train, parts.trees, own["weight"]), held) for method, own in weights.items()}
    return {
        method: held.with_columns(prediction=(score >= 0.5).cast(pl.Int64)) for method, score in predictions.items()
    }


def cut(held: pl.DataFrame, tune: pl.DataFrame, results: dict[str, Clustering]) -> dict[str, pl.DataFrame]:
    """Predictions with one threshold, and with those of clusters and groups."""
    predictions = {NONE: held.with_columns(prediction=(pl.col("score") >= 0.5).cast(pl.Int64))}
    for rate, (name, _) in RATES.items():
        for whose, clusters in (("cluster", results[rate]), ("group", each_group(results[rate]))):
            predictions[f"thresholds for {name} by {whose}"] = with_thresholds(
                clusters.assign(held), clusters.assign(tune), rate
            )
    return predictions


def with_thresholds(held: pl.DataFrame, tune: pl.DataFrame, rate: str) -> pl.DataFrame:
    """Predictions with the threshold of each cluster at which it has the rate that all rows have at one half.

    This is Fairlearn's `ThresholdOptimizer` without its random choice between two thresholds; rows of no cluster, and
    of clusters without rows to choose from, keep one half.
    """
    rows = of_outcome(tune, rate)
    target = float(np.mean(rows["score"].to_numpy() >= 0.5))
    thresholds = {
        number: float(np.quantile(rows.filter(pl.col("cluster") == number)["score"].to_numpy(), 1 - target))
        for number in rows["cluster"].drop_nulls().unique().to_list()
    }
    whose = pl.col("cluster").replace_strict(thresholds, default=0.5, return_dtype=pl.Float64).fill_null(0.5)
    return held.with_columns(prediction=(pl.col("score") >= whose).cast(pl.Int64)).drop("cluster")


Measured = dict[str, dict[str, float]]  # method → name → number


def one_split(task: tuple[int, int, int]) -> Measured:
    """Everything that is measured of one split."""
    seed, size, trees = task
    rows = people()
    with one_core():
        parts = split(rows.sample(min(size, len(rows)), seed=0), seed, trees)
        result = clustered(parts.tune)
        selected, groups = result["selection_rate"], each_group(result["selection_rate"], parts.train)
        predictions = cut(parts.held, parts.tune, result) | reweighed(parts, selected, groups)
        predictions |= {"a model for each cluster": segmented(parts, selected)}
        predictions |= {"a model for each group": segmented(parts, groups)}
        return {
            m: measured(predictions[m], parts.tune, result) | found_again(predictions[m], result, seed) for m in METHODS
        }


def one_core() -> Any:
    """Studies work on several splits at once, each on one core."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)


def clustered(rows: pl.DataFrame) -> dict[str, Clustering]:
    return {rate: fl.cluster(rows, BY, metric(rate, score="score", threshold=0.5)) for rate in RATES}


def of_outcome(rows: pl.DataFrame, rate: str) -> pl.DataFrame:
    """The rows a rate is of."""
    outcome = RATES[rate][1]
    return rows if outcome is None else rows.filter(pl.col("y") == outcome)


def found_again(held: pl.DataFrame, before: dict[str, Clustering], seed: int) -> dict[str, float]:
    """The clusters that are found in the predictions, and what is left between those found before."""
    numbers: dict[str, float] = {}
    for rate in RATES:
        after = fl.cluster(held, BY, metric(rate, y_pred="prediction"), seed=seed)
        numbers[f"{rate} clusters_before"] = before[rate].n_clusters
        numbers[f"{rate} clusters"] = after.n_clusters
        numbers[f"{rate} found"] = observed(after.clusters[-1]) - observed(after.clusters[0])
        rows = before[rate].assign(of_outcome(held, rate)).drop_nulls("cluster")
        fixed = rows.group_by("cluster").agg(pl.col("prediction").mean())["prediction"]
        numbers[f"{rate} fixed"] = float(np.ptp(fixed.to_numpy()))
    return numbers


def measured(held: pl.DataFrame, tune: pl.DataFrame, before: dict[str, Clustering]) -> dict[str, float]:
    """Accuracy, the share selected, and the rates of groups."""
    numbers = {"accuracy": accuracy(held), "selected": float(np.mean(held["prediction"].to_numpy()))}
    for rate in RATES:
        groups = by_group(of_outcome(held, rate), of_outcome(tune, rate), before[rate])
        small = groups["chosen_from"] < FEW
        largest = groups.filter(pl.col("n") >= LARGE)["p"].to_numpy()
        numbers[f"{rate} largest"] = float(np.ptp(largest)) if len(largest) else 0.0
        for name, own in (("small", groups.filter(small)), ("large", groups.filter(~small))):
            numbers[f"{rate} {name}"] = squared(own)
            numbers[f"{rate} {name}_groups"] = float(len(own))
    return numbers


def accuracy(held: pl.DataFrame) -> float:
    return float(np.mean(held["prediction"].to_numpy() == held["y"].to_numpy()))


def observed(cluster: Cluster) -> float:
    value = cluster.observed
    return float("nan") if value is None else float(np.ravel(value)[0])


def by_group(rows: pl.DataFrame, chosen: pl.DataFrame, result: Clustering) -> pl.DataFrame:
    """The groups that were clustered: rate, rows behind it and behind its threshold, squared distance from all.

    A group's rate p̂ of n rows has E (p̂ − p)² = (true distance)² + p̂(1 − p̂)/(n − 1), the latter unbiased; it is taken
    off, so that small groups do not look far away.
    """
    overall = rows["prediction"].mean()
    frame = pl.DataFrame(list(result.estimates.labels), schema=BY, orient="row").cast({b: rows[b].dtype for b in BY})
    groups = rows.group_by(BY).agg(pl.col("prediction").mean().alias("p"), pl.len().alias("n"))
    groups = groups.join(frame, on=BY).filter(pl.col("n") > 1)
    groups = groups.join(chosen.group_by(BY).agg(pl.len().alias("chosen_from")), on=BY, how="left")
    noise = pl.col("p") * (1 - pl.col("p")) / (pl.col("n") - 1)
    distance = (pl.col("p") - overall) ** 2 - noise
    return groups.with_columns(distance.alias("squared"), pl.col("chosen_from").fill_null(0))


def squared(groups: pl.DataFrame) -> float:
    return float(np.mean(groups["squared"].to_numpy())) if len(groups) else 0.0


# ------------------------------------------------------------------------------------------------------------ numbers


def measure(run: Run) -> Numbers:
    splits, size, trees = run.either((10, 10**9, 100), (2, 20_000, 10))
    measured = run.each("mitigation", one_split, [(seed, size, trees) for seed in range(splits)])
    rows = people()
    return {
        "splits": splits,
        "rows": min(size, len(rows)),
        "groups": rows[BY].unique().height,
        "parts": [*PARTS, 1 - sum(PARTS)],
        "methods": of_methods(measured),
        "cluster_less_group": cluster_less_group(measured),
    }


def of_methods(splits: Sequence[Measured]) -> Numbers:
    """For each method means over splits, with standard errors; and what accuracy it costs in the same split."""
    return {
        method: {name: of_splits([split[method][name] for split in splits], name) for name in splits[0][method]}
        | {"cost": of_splits([split[NONE]["accuracy"] - split[method]["accuracy"] for split in splits])}
        for method in splits[0]
    }


def cluster_less_group(splits: Sequence[Measured]) -> Numbers:
    """What a method leaves by cluster less what it leaves by group in the same split; distances stay squared."""
    methods = [method.removesuffix(" by cluster") for method in splits[0] if method.endswith(" by cluster")]
    return {
        f"{method} {name}": of_splits(
            [split[f"{method} by cluster"][name] - split[f"{method} by group"][name] for split in splits]
        )
        for method in methods
        for name in splits[0][f"{method} by cluster"]
    }


def of_splits(values: Sequence[float], name: str = "") -> list[float]:
    """Mean over splits and its standard error; squared distances become distances."""
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))
    if name.endswith((" every", " small", " large")):
        root = float(np.sqrt(max(mean, 0.0)))
        return [root, error / (2 * root) if root else error**0.5]
    return [mean, error]


# ------------------------------------------------------------------------------------------------------- what is shown


def points(value: Sequence[float], digits: int = 1) -> str:
    """A share in points, with its standard error."""
    return f"{100 * value[0]:.{digits}f} ± {100 * value[1]:.{digits}f}"


def tables(numbers: Numbers) -> dict[str, str]:
    methods = numbers["methods"]
    names = [name for name, _ in RATES.values()]

    def each(own: Numbers, *what: str) -> list[str]:
        return [points(own[f"{rate} {name}"]) for rate in RATES for name in what]

    def found(own: Numbers) -> list[str]:
        counted = [f" ({own[f'{rate} clusters'][0]:.1f})" for rate in RATES]
        shown = zip(each(own, "found"), counted, each(own, "largest"), strict=True)
        return [cell for gap, count, largest in shown for cell in (gap + count, largest)]

    return {
        "": markdown(
            ["in points", "accuracy", *(h for n in names for h in (f"{n}: clusters found", "largest gap of groups"))],
            [[method, points(own["accuracy"], 2), *found(own)] for method, own in methods.items()],
        ),
        "-fixed": markdown(
            ["gap between the clusters found before, in points", *names],
            [[method, *each(own, "fixed")] for method, own in methods.items()],
        ),
        "-groups": markdown(
            ["typical distance, in points", *(h for n in names for h in (f"{n}: other groups", "small groups"))],
            [[method, *each(own, "large", "small")] for method, own in methods.items()],
        ),
    }


# Short names for what sentences say: methods by the start of theirs, rates, and what is measured.
SHORT = {NONE: "none", AS_IS: "sizes", "reweighing by cluster": "weights", "reweighing by group": "weights_group"}
SHORT |= {"a model for each cluster": "models", "a model for each group": "models_group"}
SHORT_RATES = {"selection_rate": "selection", "true_positive_rate": "tpr", "false_positive_rate": "fpr"}
SHORT |= {
    f"thresholds for {name} by {whose}": f"{SHORT_RATES[rate]}_thresholds" + ("_group" if whose == "group" else "")
    for rate, (name, _) in RATES.items()
    for whose in ("cluster", "group")
}


def facts(numbers: Numbers) -> dict[str, str]:
    first, second, last = (f"{100 * part:.0f}%" for part in numbers["parts"])
    texts = {
        "splits": str(numbers["splits"]),
        "rows": f"{numbers['rows']:,}",
        "groups": str(numbers["groups"]),
        "parts": f"{first}, {second} and {last}",
        "few": str(FEW),
        "large": str(LARGE),
        "small_groups": f"{numbers['methods'][NONE]['selection_rate small_groups'][0]:.0f}",
    }
    for method, own in numbers["methods"].items():
        texts[f"{SHORT[method]}.cost"] = f"{100 * own['cost'][0]:.1f}"
        for rate, short in SHORT_RATES.items():
            for name in ("found", "largest", "fixed", "small", "large"):
                texts[f"{SHORT[method]}.{short}.{name}"] = f"{100 * own[f'{rate} {name}'][0]:.1f}"
    return texts


def figure(numbers: Numbers) -> Any:
    """Accuracy against the typical distance of groups, for each rate."""
    kinds = [NONE, AS_IS, "reweighing", *(f"thresholds for {n}" for n, _ in RATES.values())]
    kinds.append("a model for each")
    colours = ["#333333", "#8A8A8A", "#0072B2", "#E69F00", "#D55E00", "#CC79A7", "#009E73"]
    panels = []
    for rate, (name, _) in RATES.items():
        rows = [
            {
                "kind": next(kind for kind in kinds if method.startswith(kind)),
                "of": "group" if method.endswith("group") else "cluster",
                "gap": 100 * own[f"{rate} large"][0],
                "accuracy": 100 * own["accuracy"][0],
            }
            for method, own in numbers["methods"].items()
        ]
        panel = (
            chart(rows, f"distance of groups in {name}, in points")
            .mark_point(filled=True, size=90, opacity=0.9)
            .encode(
                x=alt.X("gap:Q", title=None, scale=alt.Scale(zero=True)),
                y=alt.Y("accuracy:Q", title="accuracy, %", scale=alt.Scale(zero=False)),
                color=alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=colours), legend=alt.Legend(title=None)),
                shape=alt.Shape("of:N", scale=alt.Scale(domain=["cluster", "group"]), legend=alt.Legend(title="by")),
            )
            .properties(width=230, height=230)
        )
        panels.append(panel)
    return alt.hconcat(*panels)


STUDY = Study("mitigation", measure, tables, facts, figure, MITIGATION, (DATA,))

if __name__ == "__main__":
    STUDY.main()
