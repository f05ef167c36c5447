"""Published answers to questions about public data, beside what faultlines says of the same rows."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

import altair as alt
import polars as pl

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that the script also runs by its path

import faultlines as fl
from experiments.common import CLUSTER_COLOURS, FIELD, Numbers, Run, Study, chart, markdown
from experiments.field_data import (
    BOUGHT,
    CASES,
    CLASS,
    COMPAS,
    HILLSTROM,
    ORIGIN,
    TABLES,
    compas,
    hillstrom,
    names,
    star,
)

if TYPE_CHECKING:
    from collections.abc import Callable

ALL = "all"  # a column with one value, for the effect on everybody
MAILING: dict[str, Any] = {"variant": "segment", "control": "No E-Mail"}


class Figure(NamedTuple):
    """A published figure, and how to compute it."""

    data: str
    what: str
    source: str
    published: float
    rows: Callable[[], pl.DataFrame]
    by: str
    group: str
    metric: fl.Metric
    unit: float = 100


def _of_race(what: str, race: str, published: float, metric: fl.Metric) -> Figure:
    return Figure("COMPAS", f"{what}, {race}", "ProPublica 2016", published, compas, "race", race, metric)


POSITIVE, NEGATIVE = fl.false_positive_rate("y", "high"), fl.false_negative_rate("y", "high")
MENS = fl.difference("visit", treatment="Mens E-Mail", **MAILING)
WOMENS = fl.difference("visit", treatment="Womens E-Mail", **MAILING)
FIGURES = [
    _of_race("false positive rate, %", "African-American", 44.9, POSITIVE),
    _of_race("false positive rate, %", "Caucasian", 23.5, POSITIVE),
    _of_race("false negative rate, %", "African-American", 28.0, NEGATIVE),
    _of_race("false negative rate, %", "Caucasian", 47.7, NEGATIVE),
    Figure("STAR", "small class, points of score", "Stock and Watson", 13.9, star, ALL, ALL, CLASS.difference(), 1),
    Figure(
        "ResumeNames",
        "call-backs, white less black, points",
        "Bertrand and Mullainathan 2004",
        3.2,
        names,
        ALL,
        ALL,
        ORIGIN.difference(),
    ),
]
# What is found in all rows of a case, and shown.
SHOWN = ("visit by " + " × ".join(BOUGHT), "by school", "by child", "call-backs")


def one_figure(figure: Figure) -> Numbers:
    rows = figure.rows().with_columns(pl.lit(ALL).alias(ALL))
    estimates = fl.measure(rows, figure.by, figure.metric).estimates
    at = list(estimates.labels).index(figure.group)
    row = {"data": figure.data, "what": figure.what, "source": figure.source, "published": figure.published}
    return row | {"found": figure.unit * float(estimates.natural[at])}


def found(data: str, what: str, rows: pl.DataFrame, by: list[str], metric: fl.Metric, unit: float) -> Numbers:
    """The clusters of all rows."""
    result = fl.cluster(rows, by, metric)
    clusters = [
        {"level": unit * float(c.estimate), "ends": [unit * float(end) for end in c.ci], "groups": len(c.members)}  # type: ignore[arg-type, union-attr]
        for c in result.clusters
    ]
    row = {
        "data": data,
        "what": what,
        "groups": len(result.estimates),
        "pvalue": result.pvalue,
        "rejected": result.rejected,
    }
    return row | {"clusters": clusters}


def measure(run: Run) -> Numbers:
    del run  # all rows, once
    cases = [case for case in CASES if any(word in case.name for word in SHOWN)]
    findings = [
        found("COMPAS", "false positive rate by race, %", compas(), ["race"], POSITIVE, 100),
        found("COMPAS", "false negative rate by race, %", compas(), ["race"], NEGATIVE, 100),
        found(
            "Hillstrom",
            "women's mailing by what was bought, visits, points",
            hillstrom(),
            ["mens", "womens"],
            WOMENS,
            100,
        ),
        found(
            "Hillstrom", "men's mailing by what was bought, visits, points", hillstrom(), ["mens", "womens"], MENS, 100
        ),
    ]
    findings += [found(case.data, case.name, case.rows(), list(case.by), case.metric, case.unit) for case in cases]
    return {"figures": [one_figure(figure) for figure in FIGURES], "found": findings}


def levels(finding: Numbers) -> str:
    shown = [
        f"{c['level']:.1f} ({c['ends'][0]:.1f} … {c['ends'][1]:.1f}), {c['groups']} group{'s' * (c['groups'] > 1)}"
        for c in finding["clusters"]
    ]
    return "; ".join(shown)


def tables(numbers: Numbers) -> dict[str, str]:
    figures = [
        [
            f"{figure['data']}: {figure['what']}",
            figure["source"],
            f"{figure['published']:.1f}",
            f"{figure['found']:.2f}",
        ]
        for figure in numbers["figures"]
    ]
    rows = [
        [
            f"{finding['data']}: {finding['what']}",
            str(finding["groups"]),
            "< 1e-10" if finding["pvalue"] < 1e-10 else f"{finding['pvalue']:.2g}",
            str(len(finding["clusters"])),
            levels(finding),
        ]
        for finding in numbers["found"]
    ]
    return {
        "": markdown(["figure", "published by", "published", "by `fl.measure`"], figures),
        "-found": markdown(["all rows", "groups", "p", "clusters", "levels (95% interval), from low to high"], rows),
    }


def facts(numbers: Numbers) -> dict[str, str]:
    women = next(finding for finding in numbers["found"] if finding["what"].startswith("women's mailing by what"))[
        "clusters"
    ]
    applications = [finding["pvalue"] for finding in numbers["found"] if finding["data"] == "ResumeNames"]
    return {
        "women.low": f"{women[0]['level']:.1f}",
        "women.high": f"{women[-1]['level']:.1f}",
        "applications": " and ".join(f"{p:.2f}" for p in applications),
        "off": f"{max(abs(figure['published'] - figure['found']) for figure in numbers['figures']):.2f}",
    }


_TITLE = 44  # characters of a line above a panel


def figure(numbers: Numbers) -> Any:
    """The levels of clusters, case by case, in units of their own."""
    panels = []
    for finding in (finding for finding in numbers["found"] if finding["rejected"]):
        rows = [
            {"level": c["level"], "low": c["ends"][0], "high": c["ends"][1], "cluster": i + 1, "groups": c["groups"]}
            for i, c in enumerate(finding["clusters"])
        ]
        base = chart(rows, wrap(f"{finding['data']}: {finding['what']}", _TITLE)).encode(
            y=alt.Y("cluster:O", title="cluster"),
            color=alt.Color("cluster:O", scale=alt.Scale(domain=list(range(1, 7)), range=CLUSTER_COLOURS), legend=None),
        )
        interval = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=None), x2="high:Q")
        point = base.mark_point(filled=True, size=70, opacity=1).encode(x="level:Q")
        panels.append(alt.layer(interval, point).properties(width=330, height={"step": 18}))
    return alt.concat(*panels, columns=2).resolve_scale(color="shared")


STUDY = Study("known", measure, tables, facts, figure, FIELD, (COMPAS, HILLSTROM, TABLES))

if __name__ == "__main__":
    STUDY.main()
