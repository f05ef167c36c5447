"""What is found in one part of real rows, seen again in the other: do findings replicate, and what predicts best?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import altair as alt
import numpy as np
import polars as pl
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

from faultlines.types import FloatArray

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that the script also runs by its path

import faultlines as fl
from experiments.common import FIELD, Numbers, Run, Study, chart, markdown
from experiments.field_data import ACS, ACS_GROUPS, CASES, COMPAS, HILLSTROM, MODELS, RATES, TABLES, acs_case, halved

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from experiments.field_data import Case
    from faultlines.results import Clustering


ALPHA = 0.05
SMALL = 0.03  # the share of ACS rows in a small sample: about 10,000 of 333,000
METHODS = ("one mean", "each group alone", "mixed model", "means of clusters", "shrunken effects", "causal forest")
FLAGS = ("Holm", "p < 0.05")


class Task(NamedTuple):
    """One split: which question, how much of the rows to find in, and whether a forest is grown too."""

    case: int | tuple[int, str, str]  # a number in CASES, or model, groups and rate of ACS
    share: float
    seed: int
    forest: bool = False

    def question(self) -> Case:
        return CASES[self.case] if isinstance(self.case, int) else acs_case(*self.case)


class Seen(NamedTuple):
    """The groups of one part, on the scale of the comparison and as they are read."""

    theta: FloatArray
    se: FloatArray
    natural: FloatArray
    error: FloatArray
    n: FloatArray


def seen(estimates: fl.Estimates, labels: Sequence[Any]) -> Seen:
    """The named groups of estimates, in that order."""
    place = {label: i for i, label in enumerate(estimates.labels)}
    at = np.array([place[label] for label in labels])
    error = estimates.readable_errors(estimates.values, estimates.errors)[:, 0]
    size = np.ones(len(estimates)) if estimates.n is None else estimates.n
    return Seen(estimates.values[at, 0], estimates.errors[at, 0], estimates.natural[at], error[at], size[at])


def one_split(task: Task) -> dict[str, Any]:
    """Everything that is measured of one split."""
    case = task.question()
    first, second = halved(case.rows(), task.share, task.seed)
    before, after = (fl.measure(rows, list(case.by), case.metric).estimates for rows in (first, second))
    result = fl.cluster(before, seed=task.seed, alpha=ALPHA)
    labels_after = set(after.labels)
    labels = [label for label in before.labels if label in labels_after]
    old, new = seen(before, labels), seen(after, labels)
    numbers: dict[str, Any] = {"groups": len(before), "shared": len(labels)}
    numbers |= claims(result, after) | flagged(old, new)
    predicted = predictions(result, before, labels, old)
    if task.forest:
        predicted["causal forest"] = forest(case, first, labels, task.seed)
    numbers["errors"] = {name: case.unit**2 * error(values, new) for name, values in predicted.items()}
    return numbers


# --------------------------------------------------------------------------------------------------------- replication


def claims(result: Clustering, after: fl.Estimates) -> dict[str, Any]:
    """Whether clusters are reported, and what of their differences is there in other rows."""
    numbers = {
        "claimed": result.rejected,
        "pairs": 0,
        "confirmed": 0,
        "reversed": 0,
        "level": 0.0,
        "plain": 0.0,
        "back": 0.0,
    }
    if not result.rejected:
        return numbers
    again = fl.confirm(result, after, alpha=ALPHA)
    for pair in again.pairs:
        numbers["pairs"] += 1
        numbers["confirmed"] += pair.verdict == "confirmed"
        numbers["reversed"] += bool(pair.differences) and pair.differences[0].estimate < 0
    came = [cluster.effects[0].estimate for cluster in again.clusters if cluster.effects]
    if len(came) == result.n_clusters:
        own = result.estimates
        plain = [mean_of(own, result.labels == i) for i in (1, result.n_clusters)]
        numbers["level"] = result.clusters[-1].effects[0].estimate - result.clusters[0].effects[0].estimate
        numbers["plain"], numbers["back"] = plain[1] - plain[0], came[-1] - came[0]
    return numbers


def mean_of(estimates: fl.Estimates, members: npt.NDArray[np.bool_]) -> float:
    """The plain mean of the groups of a cluster, as it is read."""
    mean = np.average(estimates.values[members], axis=0, weights=estimates.errors[members, 0] ** -2.0)
    return float(estimates.readable(mean[None])[0, 0])


def against_rest(part: Seen) -> tuple[FloatArray, FloatArray]:
    """How far each group is from the mean of the others, on the scale of the comparison, and its z."""
    weight = part.se**-2.0
    rest = (np.sum(weight * part.theta) - weight * part.theta) / (weight.sum() - weight)
    return part.theta - rest, (part.theta - rest) / np.sqrt(part.se**2 + 1 / (weight.sum() - weight))


def flagged(old: Seen, new: Seen) -> dict[str, Any]:
    """What one against the rest flags, with Holm's correction and without any, and how much of it comes back."""
    (far, z), (later, again) = against_rest(old), against_rest(new)
    p = 2 * ndtr(-np.abs(z))
    order = np.argsort(p)
    steps = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    holm = np.zeros(p.size, dtype=bool)
    holm[order] = steps <= ALPHA
    numbers: dict[str, Any] = {}
    for name, chosen in zip(FLAGS, (holm, p <= ALPHA), strict=True):
        same = np.sign(far) == np.sign(later)
        numbers[f"{name} flagged"] = int(chosen.sum())
        numbers[f"{name} confirmed"] = int(np.sum(chosen & same & (2 * ndtr(-np.abs(again)) <= ALPHA)))
        numbers[f"{name} reversed"] = int(np.sum(chosen & ~same))
        numbers[f"{name} found"] = float(np.abs(far[chosen]).sum())
        numbers[f"{name} back"] = float((np.sign(far) * later)[chosen].sum())
    return numbers


# ---------------------------------------------------------------------------------------------------------- prediction


def predictions(result: Clustering, before: fl.Estimates, labels: Sequence[Any], old: Seen) -> dict[str, FloatArray]:
    """What each method says of the groups from the first part, as it is read."""
    place = {label: i for i, label in enumerate(before.labels)}
    at = np.array([place[label] for label in labels])
    rows = result.to_dicts("groups")[: len(before)]
    values, errors = before.values[:, 0], before.errors[:, 0]
    mean = np.full(values.size, np.average(values, weights=errors**-2.0))
    return {
        "one mean": before.readable(mean[:, None])[at, 0],
        "each group alone": old.natural,
        "mixed model": before.readable(mixed_model(values, errors)[:, None])[at, 0],
        "means of clusters": np.array([float(row["cluster_estimate"]) for row in rows])[at],
        "shrunken effects": np.array([float(row["shrunken"]) for row in rows])[at],
    }


def mixed_model(theta: FloatArray, se: FloatArray) -> FloatArray:
    """Effects of groups that are normal around one mean, by restricted maximum likelihood: their best predictions."""

    def loss(variance: float) -> float:
        weight = 1 / (se**2 + variance)
        mean = np.sum(weight * theta) / weight.sum()
        return float(-np.log(weight).sum() + np.log(weight.sum()) + np.sum(weight * (theta - mean) ** 2)) / 2

    most = float(np.var(theta) + np.median(se) ** 2)
    fitted = minimize_scalar(loss, bounds=(0.0, 4 * most), method="bounded", options={"xatol": 1e-8 * most})
    variance = 0.0 if loss(0.0) <= fitted.fun else float(fitted.x)
    weight = 1 / (se**2 + variance)
    mean = np.sum(weight * theta) / weight.sum()
    return np.asarray(mean + variance * weight * (theta - mean))


def forest(case: Case, rows: pl.DataFrame, labels: Sequence[Any], seed: int) -> FloatArray:
    """EconML's honest causal forest (as in grf), which sees what the groups are made of."""
    from econml.grf import CausalForest

    if case.arms is None:
        raise ValueError("a forest needs the arms of an experiment")
    arms, by = case.arms, list(case.by)
    rows = rows.filter(pl.col(arms.variant).is_in([arms.control, arms.treatment])).drop_nulls([arms.outcome, *by])
    groups = pl.DataFrame(
        [label if isinstance(label, tuple) else (label,) for label in labels], schema=by, orient="row"
    )
    both = pl.concat([frame.select(pl.col(by).cast(pl.String)) for frame in (rows, groups)])
    features = both.to_dummies().to_numpy().astype(float)
    treated = (rows[arms.variant] == arms.treatment).cast(pl.Int64).to_numpy()
    grown = CausalForest(random_state=seed, n_jobs=1).fit(
        features[: len(rows)], treated, rows[arms.outcome].to_numpy().astype(float)
    )
    return np.asarray(grown.predict(features[len(rows) :]), dtype=float).ravel()


def error(predicted: FloatArray, new: Seen) -> float:
    """Mean squared error per person, without the noise of the rows it is measured on."""
    return float(np.average((new.natural - predicted) ** 2 - new.error**2, weights=new.n))


# ------------------------------------------------------------------------------------------------------------- numbers


def measure(run: Run) -> Numbers:
    from experiments.baselines.trees import is_installed

    splits, halves, samples, models = run.either((20, 1, 1, MODELS), (2, 1, 1, 1))
    grows = is_installed("econml") and not run.quick
    tasks: dict[str, list[Task]] = {}
    for share, what, times in ((0.5, "halves", halves), (SMALL, "a sample of 3%", samples)):
        for groups in ACS_GROUPS:
            tasks[f"ACS, {groups}, {what}"] = [
                Task((model, groups, rate), share, 100 * seed + model)
                for model in range(models)
                for rate in (RATES if share == SMALL else RATES[model % 3 : model % 3 + 1])
                for seed in range(times)
            ]
    for i, case in enumerate(CASES):
        tasks[f"{case.data}, {case.name}"] = [
            Task(i, 0.5, seed, grows and case.arms is not None and seed < splits // 5) for seed in range(splits)
        ]
    results = iter(run.each("halves", one_split, [task for own in tasks.values() for task in own]))
    return {"cases": {name: summary([next(results) for _ in own]) for name, own in tasks.items()}}


def summary(splits: Sequence[dict[str, Any]]) -> Numbers:
    """One case over its splits: sums of counts and distances, mean errors with their standard errors."""
    sums = [key for key in splits[0] if key not in {"errors", "groups", "shared"}]
    numbers: Numbers = {key: sum(split[key] for split in splits) for key in sums}
    numbers |= {"splits": len(splits), "groups": float(np.mean([split["groups"] for split in splits]))}
    numbers["level back"] = ratio([split["back"] for split in splits], [split["level"] for split in splits])
    numbers["plain back"] = ratio([split["back"] for split in splits], [split["plain"] for split in splits])
    for flag in FLAGS:
        numbers[f"{flag} came back"] = ratio(
            [split[f"{flag} back"] for split in splits], [split[f"{flag} found"] for split in splits]
        )
    numbers["errors"] = {
        name: mean_and_error([split["errors"][name] for split in splits if name in split["errors"]])
        for name in METHODS
        if name in splits[0]["errors"]
    }
    numbers["better"] = {
        name: mean_and_error(
            [split["errors"]["shrunken effects"] - split["errors"][name] for split in splits if name in split["errors"]]
        )
        for name in numbers["errors"]
        if name != "shrunken effects"
    }
    return numbers


def ratio(above: Sequence[float], below: Sequence[float]) -> list[float] | None:
    """A ratio of sums and its standard error between splits."""
    a, b = np.array(above), np.array(below)
    if b.sum() == 0:
        return None
    value = a.sum() / b.sum()
    return [float(value), float(np.sqrt(np.sum((a - value * b) ** 2)) / abs(b.sum()))]


def mean_and_error(values: Sequence[float]) -> list[float]:
    spread = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
    return [float(np.mean(values)), spread]


# ------------------------------------------------------------------------------------------------------- what is shown


def per_cent(value: Sequence[float] | None) -> str:
    return "–" if value is None else f"{100 * value[0]:.0f} ± {100 * value[1]:.0f}"


def part_of(count: float, total: float) -> str:
    return "–" if not total else f"{count / total:.2f}"


def replicated(name: str, case: Numbers) -> list[str]:
    cells = [name, f"{case['groups']:.0f}", str(case["splits"]), part_of(case["claimed"], case["splits"])]
    cells += [str(case["pairs"]), part_of(case["confirmed"], case["pairs"]), part_of(case["reversed"], case["pairs"])]
    cells += [per_cent(case["level back"]), per_cent(case["plain back"])]
    for flag in FLAGS:
        total = case[f"{flag} flagged"]
        cells += [f"{total / case['splits']:.1f}", part_of(case[f"{flag} confirmed"], total)]
        cells += [part_of(case[f"{flag} reversed"], total), per_cent(case[f"{flag} came back"])]
    return cells


def predicted(name: str, case: Numbers) -> list[str]:
    errors = case["errors"]
    cells = [f"{errors[m][0]:.3g} ± {errors[m][1]:.2g}" if m in errors else "–" for m in METHODS]
    rival = best_rival(case)
    lead, spread = case["better"][rival]
    return [name, *cells, f"{lead:+.2g} ± {spread:.2g} ({rival})"]


def best_rival(case: Numbers) -> str:
    errors: dict[str, list[float]] = {name: case["errors"][name] for name in case["better"]}
    return min(errors, key=lambda name: errors[name][0])


def tables(numbers: Numbers) -> dict[str, str]:
    cases = numbers["cases"]
    header = ["", "groups", "splits", "splits with clusters", "pairs of neighbors", "confirmed", "reversed"]
    header += ["came back of levels, %", "of plain means, %"]
    for name in ("Holm", "uncorrected"):
        header += [f"{name}: groups flagged per split", "confirmed", "reversed", "came back, %"]
    return {
        "": markdown(header, [replicated(name, case) for name, case in cases.items()]),
        "-errors": markdown(
            ["mean squared error", *METHODS, "shrunken effects less the best other"],
            [predicted(name, case) for name, case in cases.items()],
        ),
    }


def facts(numbers: Numbers) -> dict[str, str]:
    cases = numbers["cases"]
    small = [case for name, case in cases.items() if name.endswith("a sample of 3%")]
    half = [case for name, case in cases.items() if name.endswith("halves")]
    texts = {"forests": str(cases[f"{CASES[-1].data}, {CASES[-1].name}"]["splits"] // 5)}
    for word, own in (("small", small), ("half", half)):
        texts[f"{word}.pairs"] = f"{sum(case['pairs'] for case in own):,}"
        texts[f"{word}.confirmed"] = f"{sum(c['confirmed'] for c in own) / sum(c['pairs'] for c in own):.1%}"
        texts[f"{word}.reversed"] = f"{sum(c['reversed'] for c in own) / sum(c['pairs'] for c in own):.1%}"
        for flag in FLAGS:
            total = sum(case[f"{flag} flagged"] for case in own)
            texts[f"{word}.{flag}.reversed"] = f"{sum(case[f'{flag} reversed'] for case in own) / total:.1%}"
            back = sum(case[f"{flag} back"] for case in own) / sum(case[f"{flag} found"] for case in own)
            texts[f"{word}.{flag}.back"] = f"{back:.0%}"
        texts[f"{word}.level"] = f"{sum(c['back'] for c in own) / sum(c['level'] for c in own):.0%}"
        texts[f"{word}.plain"] = f"{sum(c['back'] for c in own) / sum(c['plain'] for c in own):.0%}"
    texts["best"] = str(sum(case["better"][best_rival(case)][0] <= 0 for case in cases.values()))
    texts["cases"] = str(len(cases))
    return texts


BACK = {"level back": "levels of clusters", "plain back": "plain means of clusters"}
BACK |= {"Holm came back": "groups, Holm", "p < 0.05 came back": "groups, uncorrected"}


# The name of a case, what comes behind its last comma in a line of its own.
_LAST = "lastindexof(datum.label, ', ')"
_TWO_LINES = f"[slice(datum.label, 0, {_LAST} + 1), slice(datum.label, {_LAST} + 2)]"


def figure(numbers: Numbers) -> Any:
    """How much of what was found came back."""
    rows = [
        {"case": name, "what": shown, "back": 100 * case[key][0], "low": 100 * (case[key][0] - 2 * case[key][1]),
         "high": 100 * (case[key][0] + 2 * case[key][1])}
        for name, case in numbers["cases"].items()
        for key, shown in BACK.items()
        if case[key] is not None and case["claimed"] >= case["splits"] / 4
    ]  # fmt: skip
    colours = ["#0072B2", "#56B4E9", "#E69F00", "#D55E00"]
    base = chart(rows, "how much of a difference found in one part came back in the other, ± 2 standard errors").encode(
        y=alt.Y(
            "case:N",
            title=None,
            sort=list(numbers["cases"]),
            axis=alt.Axis(labelExpr=_TWO_LINES, labelLimit=300, minExtent=280),
        ),
        yOffset=alt.YOffset("what:N", sort=list(BACK.values())),
        color=alt.Color("what:N", scale=alt.Scale(domain=list(BACK.values()), range=colours), title=None),
    )
    shown = alt.Scale(domain=[0, 140], clamp=True)
    hundred = chart([{"whole": 100}]).mark_rule(strokeDash=[2, 3]).encode(x="whole:Q")
    return alt.layer(
        hundred,
        base.mark_rule().encode(x=alt.X("low:Q", scale=shown, title="%"), x2="high:Q"),
        base.mark_point(filled=True, size=40, opacity=1).encode(x=alt.X("back:Q", scale=shown)),
    ).properties(width=420, height={"step": 9}, padding={"left": 5, "top": 5, "right": 40, "bottom": 5})


STUDY = Study("halves", measure, tables, facts, figure, FIELD, (ACS, COMPAS, HILLSTROM, TABLES))

if __name__ == "__main__":
    STUDY.main()
