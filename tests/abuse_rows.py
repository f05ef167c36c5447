"""Bad rows for `test_abuse`: frames, files and conditions of the data; each with the number of rows that went in."""

# ruff: noqa: E501 - a table of bad inputs reads better in long rows

from __future__ import annotations

import datetime
import gzip
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import faultlines as fl
from tests.abuse_cases import FEW, NONSENSE, NOT_A_NUMBER, ODD_NAMES, Case, Rude, metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from faultlines.results import Clustering

ROWS = 240


class RowCase(NamedTuple):
    """Rows that are odd.

    Args:
        name: What the test is called.
        parameter: What an error has to name.
        call: Clusters or measures the rows.
        rows: How many rows went in; all of them have to be kept, excluded with their group, or dropped.
        must: ``"refuse"``, ``"hold"`` or ``"either"``.
        groups: How many groups went in.
    """

    name: str
    parameter: str
    call: Callable[..., Any]
    rows: int = ROWS
    must: str = "either"
    groups: int | None = 3


def people(**changes: Any) -> pd.DataFrame:
    """Three groups of eighty rows, the last with a higher x; the same for all tests."""
    k = np.arange(ROWS)
    columns: dict[str, Any] = {
        "g": np.array(list("abc"))[k % 3],
        "arm": np.where(k // 3 % 2, "B", "A"),
        "u": k,
        "x": np.sin(k) + (k % 3 == 2) * 3.0 + 5,
        "y": 1.0 + k % 7,
        "p": (k * 7 % 11 < 5).astype(int),
        "t": (k * 5 % 13 < 6).astype(int),
        "s": (k * 37 % 101) / 101,
        "w": 1.0 + k % 3,
    }
    return pd.DataFrame(columns | changes)


def spoilt(column: str, value: Any, count: int = 5) -> pd.DataFrame:
    """The same with a wrong value in the first rows of a column."""
    values = people()[column].astype(object).tolist()
    values[:count] = [value] * count
    return people(**{column: pd.Series(values, dtype=object).infer_objects()})


def objects(value: Any, other: Any, where: Any) -> Any:
    """A column of two values as they are: NumPy cuts text at NUL, pandas' own text holds no surrogates."""
    values = [value if yes else other for yes in where.tolist()]
    return pd.Series(values, dtype=object) if "\ud800" in value or "\0" in value else values


def clustered(data: Any, by: Any = "g", measured: fl.Metric | None = None, **more: Any) -> Clustering:
    return fl.cluster(data, by, measured or fl.mean("x"), **({"guarantee": FEW} | more))


def quick(data: Any) -> Any:
    """Plain pandas frames as Polars: DuckDB, which reads pandas, takes ten times as long to start."""
    if type(data) is not pd.DataFrame or not isinstance(data.index, pd.RangeIndex) or data.columns.nlevels > 1:
        return data
    kinds = set(data.dtypes.astype(str))
    names = data.columns.is_unique and all(isinstance(name, str) and "\0" not in name for name in data.columns)
    plain = names and bool(kinds) and kinds <= {"int64", "float64", "str"}
    return pl.from_pandas(data, nan_to_null=False) if plain else data


def condition(name: str, data: Any, measured: fl.Metric | None = None, parameter: str = "", **more: Any) -> RowCase:
    options = {key: more.pop(key) for key in ("by", "guarantee", "min_size") if key in more}
    data = quick(data)
    return RowCase(name, parameter, lambda: clustered(data, measured=measured, **options), **more)


# Names that engines read as something else.
ODD_COLUMNS = [
    "*", "^abc$", "a.b", 'quo"te', "X", "c0", "k0", "rows", "null", "select", "%s", "a\\b", "a[0]", "ä\u0301", " x ", "a\nb", "a;b",
]  # fmt: skip


def frames_of(frame: pd.DataFrame) -> dict[str, Any]:
    """The same rows in several libraries."""
    polars = pl.from_pandas(frame)
    return {"pandas": frame, "polars": polars, "lazy": polars.lazy(), "arrow": pa.Table.from_pandas(frame)}


# ---------------------------------------------------------------------------------------------- what the rows are like


def conditions() -> Iterator[RowCase]:
    """All conditions of the data."""
    yield from _of_metrics()
    yield from _of_values()
    yield from _calls()


def _of_metrics() -> Iterator[RowCase]:
    k = np.arange(ROWS)
    lift = metric("lift")
    yield condition("one group", people(g="a"), groups=1)
    yield condition("one row", people().head(1), rows=1, must="refuse", parameter="by")
    yield condition("no rows", people().head(0), rows=0, must="refuse", parameter="data")
    yield condition("no variance at all", people(x=1.0))
    yield condition("no variance in a group", people(x=np.where(k % 3 == 0, 1.0, np.sin(k))), must="hold")
    for name in ("rate", "true_positive_rate", "lift", "difference"):
        for what, value in (("all events", 1), ("no events", 0)):
            built = metric(name, value="p") if name in ("lift", "difference") else metric(name)
            yield condition(f"{name}: {what}", people(p=value), built, rows=_of(name, value))
    yield condition("negative weights", people(w=-1.0), fl.mean("x", weight="w"), "weight", must="refuse")
    yield condition("one negative weight", spoilt("w", -1.0, 1), fl.mean("x", weight="w"), "weight", must="refuse")
    yield condition("zero weights", people(w=0.0), fl.mean("x", weight="w"), "by")
    yield condition("zero weights in a group", people(w=(k % 3 > 0) * 1.0), fl.mean("x", weight="w"), must="hold")
    yield condition("huge weights", people(w=1e300), fl.mean("x", weight="w"))
    yield condition("tiny weights", people(w=1e-300), fl.mean("x", weight="w"))
    yield condition("weights far apart", people(w=10.0 ** (k % 30 * 10 - 150)), fl.mean("x", weight="w"))
    yield condition("one arm", people(arm="A"), lift, "variant", must="refuse")
    yield condition("no control", people(arm="B"), lift, "control", must="refuse")
    yield condition("three arms", people(arm=np.array(list("ABC"))[k // 3 % 3]), lift, "treatment", must="refuse")
    yield condition(
        "three arms, two named", people(arm=np.array(list("ABC"))[k // 3 % 3]), metric("lift", treatment="B")
    )
    yield condition("no such control", people(), metric("lift", control="Z"), "control", must="refuse")
    yield condition("no such treatment", people(), metric("lift", treatment="Z"), "treatment", must="refuse")
    yield condition("control of another type", people(arm=k // 3 % 2), metric("lift", control="0"))
    yield condition("an arm in one group only", people(arm=np.where((k % 3 == 0) & (k // 3 % 2 == 1), "B", "A")), lift)
    yield condition("null arms", spoilt("arm", None), lift, must="hold")
    yield condition("unit in two groups", people(u=k // 6), metric("lift", unit="u"), "unit")
    yield condition("unit in two arms", people(u=k % 3), metric("lift", unit="u"), "unit")
    yield condition("null units", spoilt("u", None), metric("lift", unit="u"), must="hold")
    yield condition("all units null", people(u=None), metric("lift", unit="u"))
    yield condition("one unit", people(u=1), metric("lift", unit="u"))
    for name in ("log_loss", "brier", "calibration_gap"):
        for score in (1.5, -0.1, np.inf):
            yield condition(f"{name}: score of {score}", spoilt("s", score), metric(name), "score")
        yield condition(f"{name}: all scores 0", people(s=0.0), metric(name))
        yield condition(f"{name}: all scores nan", people(s=np.nan), metric(name))
    yield condition("auc: all scores equal", people(s=0.5), metric("auc"))
    yield condition("auc: nan scores", spoilt("s", np.nan), metric("auc"), must="hold")
    yield condition("auc: infinite scores", spoilt("s", np.inf), metric("auc"))
    yield condition("auc: one class", people(t=1), metric("auc"))
    yield condition("auc: bins of scores beyond 1", people(s=2.0), metric("auc", bins=10), "score", must="refuse")
    yield condition("zero denominators", people(y=0.0), fl.ratio("x", "y"))
    yield condition("denominators around zero", people(y=np.sin(k)), fl.ratio("x", "y"))
    yield condition("control around zero", people(x=np.sin(k)), lift)
    yield condition("constant covariate", people(y=1.0), metric("lift", covariate="y"))
    yield condition("joint of a constant", people(p=1), fl.joint(fl.rate("p"), fl.rate("t")))
    for size in (0, 1, 80, 81, 1e300):
        yield condition(f"min_size {size:g}", people(), min_size=size)


_ODD_LABELS: dict[str, Any] = {
    "two": 2, "half": 0.5, "minus": -1, "text": "maybe", "nan": np.nan, "none": None, "inf": np.inf, "big": 10**30,
    "date": datetime.date(2020, 1, 1), "bytes": b"1",
}  # fmt: skip
_ODD_VALUES: dict[str, Any] = {
    "nan": np.nan, "none": None, "inf": np.inf, "minus inf": -np.inf, "NA": pd.NA, "huge": 1e308, "tiny": 5e-324,
    "text": "x", "true": True, "decimal": Decimal("1.5"), "date": datetime.date(2020, 1, 1), "list": [1], "dict": {},
    "complex": 1j, "bytes": b"1", "object": object(), "empty text": "", "big": 10**30, "nul": "a\0",
}  # fmt: skip


def _of_values() -> Iterator[RowCase]:
    k = np.arange(ROWS)
    lift = metric("lift")
    for column, name in (("t", "y_true"), ("p", "y_pred")):
        for what, value in _ODD_LABELS.items():
            yield condition(f"accuracy: {what} in {name}", spoilt(column, value), metric("accuracy"), column)
    three = np.array(["yes", "no", "maybe"])[k % 3]
    yield condition("labels: three", people(t=three, p=three), metric("accuracy", positive="yes"), "t")
    yield condition("labels: no positive", people(t=three, p=three), metric("accuracy"), "positive", must="refuse")
    yield condition("labels: unknown positive", people(t=three, p=three), metric("accuracy", positive="zz"), "positive")
    for what, value in _ODD_VALUES.items():
        yield condition(f"mean: {what} in x", spoilt("x", value))
        yield condition(f"keys: {what} in g", spoilt("g", value), groups=None)
    for what, values in {
        "all nan": np.full(ROWS, np.nan), "all none": pd.Series([None] * ROWS, dtype=object), "all inf": np.full(ROWS, np.inf),
        "huge": np.where(k % 2, 1e308, -1e308), "tiny": 5e-324 * (k % 5), "large": 1e15 + np.sin(k), "text": ["x"] * ROWS,
        "booleans": k % 2 == 0, "int8": (k % 7).astype("int8"), "uint64": np.full(ROWS, 2**64 - 1, "uint64") - k.astype("uint64"),
        "float16": np.sin(k).astype("float16"), "categorical": pd.Categorical(["1"] * ROWS), "datetimes": pd.date_range("2020", periods=ROWS),
        "timedeltas": pd.to_timedelta(k, unit="s"), "complex": np.sin(k) * 1j, "periods": pd.period_range("2020", periods=ROWS),
        "intervals": pd.interval_range(0, ROWS), "sparse": pd.arrays.SparseArray(np.sin(k)), "Float64 NA": pd.array([pd.NA] * ROWS, "Float64"),
        "boolean NA": pd.array([True, None] * (ROWS // 2), "boolean"), "text numbers": [str(v) for v in np.sin(k)],
        "decimals": [Decimal(int(v)) for v in k], "lists": [[1]] * ROWS, "dicts": [{"a": 1}] * ROWS, "tuples": [(1,)] * ROWS,
    }.items():  # fmt: skip
        number = people(x=values)
        yield condition(f"x: {what}", number)
        # Keys of 240 groups are slow; every kind is a key once, and some are everything else as well.
        yield condition(f"g: {what}", people(g=values).head(9), min_size=2, rows=9, groups=None)
        if what in {"all none", "huge", "text", "booleans", "uint64", "complex", "lists", "dicts", "text numbers"}:
            yield condition(f"w: {what}", people(w=values), fl.mean("x", weight="w"))
            yield condition(f"p: {what}", people(p=values), fl.rate("p"))
            yield condition(f"bins: {what}", people(g=values), by=fl.bins("g", quantiles=3), groups=None)
            yield condition(
                f"widths: {what}", people(g=values).head(9), by=fl.bins("g", width=5e307), rows=9, groups=None
            )
            yield condition(f"edges: {what}", people(g=values), by=fl.bins("g", edges=[0.0, 1.0]), groups=None)
            yield condition(f"u: {what}", people(u=values), metric("lift", unit="u"))
            yield condition(f"u split: {what}", people(u=values), guarantee=fl.Holdout(unit="u"))
    for what, name in ODD_NAMES.items():
        yield condition(f"group called {what}", people(g=objects(name, "b", k % 3 == 0)), groups=2)
        if what in {"nul", "surrogate", "quote", "empty", "nan", "long"}:
            yield condition(f"arm called {what}", people(arm=objects(name, "A", k // 3 % 2)), lift)
        if what in {"nul", "quote", "html", "number", "space", "long"}:
            frame = people().rename(columns={"g": name, "x": name + "2"})
            yield condition(f"columns called {what}", frame, fl.mean(name + "2"), by=name)
    for guarantee in (
        fl.Holdout(unit="u"),
        fl.Folds(unit="u"),
        fl.Holdout(unit="zz"),
        fl.Folds(unit="g"),
        fl.Holdout(unit="g"),
    ):
        yield condition(f"split by unit: {guarantee}", people(), guarantee=guarantee)


def _of(name: str, value: int) -> int:
    """Rows behind a rate: of true positives, the positives."""
    return int(people()["t"].sum()) if name == "true_positive_rate" else ROWS


def _calls() -> Iterator[RowCase]:
    """Wrong arguments that go with rows."""
    wrong_by: dict[str, Any] = NONSENSE | {
        "none": None, "empty": "", "no column": [], "number": 5, "unknown": "zz", "one unknown": ["g", "zz"], "twice": ["g", "g"],
        "none in it": [None], "number in it": [5], "empty in it": [""], "nested": [["g"]], "set": {"g"}, "rude": [Rude()],
        "bins twice": ["g", fl.bins("g", width=1)], "star": "*", "pattern": "^.*$",
        "long": "x" * 10_000, "nul": "a\0b", "surrogate": "\ud800", "case": "G", "generator": (c for c in "g"),
    }  # fmt: skip
    for name, by in wrong_by.items():
        yield RowCase(f"by: {name}", "by", lambda by=by: clustered(quick(people()), by), must="refuse")
    wrong_bins: dict[str, dict[str, Any]] = {
        "no bins": {}, "nan bins": {"width": float("nan")}, "zero bins": {"width": 0.0}, "two ways": {"width": 1.0, "quantiles": 3},
        "one quantile": {"quantiles": 1}, "falling": {"edges": (2.0, 1.0)},
    }  # fmt: skip
    for name, limits in wrong_bins.items():
        parameter = next(iter(limits), "width")
        call = lambda limits=limits: clustered(quick(people()), fl.Bins("x", **limits))  # noqa: E731
        yield RowCase(f"by: {name}", parameter, call, must="refuse")
    wrong_metrics: dict[str, Any] = NOT_A_NUMBER | {
        "none": None, "function": fl.mean, "list of metrics": [fl.mean("x")], "class": fl.Metric, "number": 5,
    }  # fmt: skip
    for name, limits in wrong_metrics.items():
        yield RowCase(
            f"metric: {name}",
            "metric",
            lambda m=limits: fl.cluster(quick(people()), "g", m, guarantee=FEW),
            must="refuse",
        )
        yield RowCase(
            f"measure metric: {name}", "metric", lambda m=limits: fl.measure(quick(people()), "g", m), must="refuse"
        )
    for name, size in (NOT_A_NUMBER | {"minus": -1}).items():
        yield RowCase(
            f"measure min_size: {name}",
            "min_size",
            lambda s=size: fl.measure(quick(people()), "g", fl.mean("x"), min_size=s),
            must="refuse",
        )
    for name, data in (
        NONSENSE
        | {
            "none": None,
            "number": 5,
            "list": [1, 2],
            "empty list": [],
            "dict of lists": {"g": ["a"], "x": [1]},
            "series": people()["x"],
            "array": people().to_numpy(),
            "clustering": fl.cluster(fl.Estimates([1], [1])),
        }
    ).items():
        if name != "frame":
            yield RowCase(f"data: {name}", "data", lambda d=data: clustered(d), must="refuse")
    for column in (
        "zz",
        "*",
        "^.*$",
        "x ",
        "X",
        "x" * 1000,
        "a\0",
        "\ud800",
        "x.y",
        'x"',
        "x'; drop table t; --",
        "1",
        "(select 1)",
    ):
        shown = column[:12].encode("unicode_escape").decode()
        yield RowCase(
            f"no such column: {shown}",
            "value",
            lambda c=column: clustered(quick(people()), measured=fl.mean(c)),
            must="refuse",
        )
    yield from _own_metrics()


def _own_metrics() -> Iterator[RowCase]:
    """Metrics of one's own that misbehave."""

    def own(**changes: Any) -> fl.Metric:
        good: dict[str, Any] = {
            "name": "mine",
            "inputs": {"x": fl.Input("x")},
            "variables": lambda c: {"x": c["x"]},
            "estimate": fl.mean("x").estimate,
        }
        return fl.Metric(**(good | changes))

    def boom(*_: Any) -> Any:
        raise ZeroDivisionError("mine")

    forms: dict[str, Any] = {
        "none": lambda c: None, "list": lambda c: [c["x"]], "no variable": lambda c: {}, "text": lambda c: {"x": "x"}, "number": lambda c: {"x": 1.0},
        "unknown role": lambda c: {"x": c["zz"]}, "none in it": lambda c: {"x": None}, "division by zero": lambda c: {"x": c["x"] / 0},
        "nan": lambda c: {"x": c["x"] * float("nan")}, "huge": lambda c: {"x": c["x"] * 1e308}, "log of minus": lambda c: {"x": c.log(-c["x"])},
        "comparison": lambda c: {"x": c["x"] > 5}, "where": lambda c: {"x": c.where(c["x"] > 1e9, c["x"])},
        "names": lambda c: {1: c["x"]}, "odd name": lambda c: {"a b\0": c["x"]}, "threshold of nothing": lambda c: {"x": c.at_least("zz", 1.0)},
    }  # fmt: skip
    for name, form in forms.items():
        yield RowCase(
            f"own metric, variables: {name}", "", lambda f=form: clustered(quick(people()), measured=own(variables=f))
        )
    size = np.full(3, 80.0)
    good = {
        "theta": np.zeros(3),
        "se": np.ones(3),
        "dof": None,
        "n": size,
        "natural": np.zeros(3),
        "reason": np.full(3, "", dtype=object),
    }
    answers: dict[str, list[Any]] = {
        "theta": [None, 5, np.zeros(2), np.full(3, np.nan), np.full(3, np.inf), np.full(3, "x"), [0, 0, 0], np.zeros((3, 2))],
        "se": [None, 5, np.zeros(3), -np.ones(3), np.full(3, np.nan), np.ones(2), np.full(3, 1e300)],
        "dof": [5, np.zeros(3), np.full(3, np.nan), np.ones(2), "x"],
        "n": [None, np.zeros(3), -size, np.full(3, np.nan), np.ones(2), "x"],
        "natural": [None, np.full(3, np.nan), np.zeros(2), "x"],
        "reason": [None, np.full(2, ""), np.full(3, None), ["", "", ""], np.full(3, 5)],
        "effect_covariance": [np.zeros((3, 1, 1)), "x"],
    }  # fmt: skip
    for field, values in answers.items():
        for i, value in enumerate(values):
            function = lambda m, c={field: value}: fl.Measured(**(good | c))  # noqa: E731
            yield RowCase(
                f"own metric, estimate: {field} {i}",
                "",
                lambda m=function: clustered(quick(people()), measured=own(estimate=m)),
            )
    for name, answer in {
        "none": lambda m: None,
        "number": lambda m: 5,
        "tuple": lambda m: (1, 2),
        "moments": lambda m: m,
    }.items():
        yield RowCase(
            f"own metric, estimate: {name}",
            "",
            lambda a=answer: clustered(quick(people()), measured=own(estimate=a)),
            must="refuse",
        )
    yield RowCase("own metric: unit without arms", "unit", lambda: clustered(quick(people()), measured=own(unit="u")))
    yield RowCase(
        "own metric: input called w",
        "",
        lambda: clustered(
            quick(people()), measured=own(inputs={"w": fl.Input("x")}, variables=lambda c: {"x": c["w"]})
        ),
        must="hold",
    )
    yield RowCase(
        "own metric: centred on nothing",
        "centred",
        lambda: clustered(quick(people()), measured=own(centred={"c": "zz"})),
    )


# -------------------------------------------------------------------------------------------------------------- frames


def frames() -> Iterator[RowCase]:
    """Odd frames of every library."""
    good = people()
    doubled = pd.concat([good, good[["x"]]], axis=1)
    yield condition("pandas: a column twice", doubled, parameter="x", must="refuse")
    yield condition("pandas: another column twice", pd.concat([good, good[["y"]]], axis=1))
    yield condition(
        "pandas: levels", good.set_axis(pd.MultiIndex.from_product([["l"], good.columns]), axis=1), must="refuse"
    )
    yield condition("pandas: numbers as names", good.rename(columns={"y": 5, "w": 5.5}))
    yield condition("pandas: none as name", good.rename(columns={"y": None}))
    yield condition("pandas: index twice", good.set_axis([0] * ROWS), must="hold")
    yield condition("pandas: index of levels", good.set_index(["u", "y"], drop=False), must="hold")
    yield condition("pandas: group in the index", good.set_index("g"), parameter="by", must="refuse")
    yield condition("pandas: subclass", type("Mine", (pd.DataFrame,), {})(good))
    yield condition("pandas: no columns", pd.DataFrame(index=range(5)), must="refuse", rows=0)
    yield condition("pandas: no rows, no types", pd.DataFrame({"g": [], "x": []}), rows=0, must="refuse")
    yield condition("pandas: strings of arrow", good.astype({"g": "string[pyarrow]"}), must="hold")
    yield condition("pandas: arrow types", good.convert_dtypes(dtype_backend="pyarrow"), must="hold")
    yield condition(
        "pandas: categories not used", good.assign(g=pd.Categorical(good["g"], list("abcdef"))), must="hold"
    )
    yield condition(
        "pandas: ordered categories", good.assign(g=pd.Categorical(good["g"], list("cba"), ordered=True)), must="hold"
    )
    polars = pl.from_pandas(good)
    for what, expression in {
        "nested": pl.concat_list("g"), "struct": pl.struct("g"), "null": pl.lit(None), "categorical": pl.col("g").cast(pl.Categorical),
        "enum": pl.col("g").cast(pl.Enum(list("abc"))), "decimal": pl.col("u").cast(pl.Decimal(20, 2)), "binary": pl.col("g").cast(pl.Binary),
        "zoned": pl.datetime(2020, 1, 1 + pl.col("u") % 3, time_zone="Europe/Berlin"), "date": pl.date(2020, 1, 1 + pl.col("u") % 3),
        "time": pl.time(pl.col("u") % 3), "duration": pl.duration(hours=pl.col("u") % 3), "float32": (pl.col("u") % 3).cast(pl.Float32),
        "int128": (pl.col("u") % 3).cast(pl.Int128), "object": pl.lit(1, dtype=pl.Int8), "nan": pl.lit(float("nan")),
    }.items():  # fmt: skip
        changed = polars.with_columns(expression.alias("g"))
        yield condition(f"polars key: {what}", changed, groups=None)
        number = polars.with_columns(expression.alias("x"))
        yield condition(f"polars number: {what}", number)
        if what in {"nested", "struct", "null", "enum", "decimal", "zoned", "duration"}:
            yield condition(f"arrow key: {what}", changed.to_arrow(), groups=None)
            yield condition(f"arrow number: {what}", number.to_arrow())
    yield condition("polars: empty", polars.head(0), rows=0, must="refuse")
    yield condition("polars: broken query", polars.lazy().select(pl.col("zz")), must="refuse", parameter="data")
    yield condition("polars: series", polars["x"], must="refuse", parameter="data")
    yield condition("arrow: array", pa.array([1, 2]), must="refuse", parameter="data")
    yield condition(
        "arrow: a column twice",
        pa.table([pa.array(["a"] * 9), pa.array([1.0] * 9), pa.array([1.0] * 9)], names=["g", "x", "x"]),
        must="refuse",
        parameter="x",
    )
    yield condition("arrow: no columns", pa.table({}), rows=0, must="refuse")
    yield from _tables()


def _tables() -> Iterator[RowCase]:
    """Tables with one row per group."""
    good = {"g": ["a", "b", "c"], "e": [0.0, 0.1, 5.0], "s": [0.5] * 3, "n": [9, 9, 9], "d": [5, 5, 5]}

    def read(frame: Any, **more: Any) -> Any:
        return fl.Estimates.from_frame(frame, **({"by": "g", "estimate": "e", "se": "s"} | more))

    for column in ("by", "estimate", "se", "n", "dof"):
        wrong: dict[str, Any] = NONSENSE | {
            "unknown": "zz",
            "empty": "",
            "number": 5,
            "star": "*",
            "nul": "a\0",
            "long": "x" * 9999,
            "list": ["zz"],
        }
        wrong |= {"none": None} if column in ("by", "estimate", "se") else {}
        for name, value in wrong.items():
            yield RowCase(
                f"from_frame {column}: {name}",
                column,
                lambda c=column, v=value: read(pd.DataFrame(good), **{c: v}),
                must="refuse",
            )
    for name, frame in (
        NONSENSE
        | {
            "none": None,
            "number": 5,
            "dict of lists": good,
            "list": [1],
            "series": pd.Series([1]),
            "no file": "no/such.csv",
            "folder": "/",
            "glob": "/no/*.csv",
        }
    ).items():
        if name != "frame":
            yield RowCase(f"from_frame frame: {name}", "", lambda f=frame: read(f), must="refuse")
    for column, values in {
        "e": {"text": ["a", "b", "c"], "none": [0, None, 1], "nan": [0, np.nan, 1], "inf": [0, np.inf, 1], "booleans": [True, False, True], "dates": pd.to_datetime(["2020"] * 3), "decimals": [Decimal(1)] * 3, "lists": [[1]] * 3, "complex": [1j] * 3, "all none": [None] * 3},
        "s": {"zero": [0.5, 0, 0.5], "minus": [0.5, -1, 0.5], "none": [0.5, None, 0.5], "text": ["0.5"] * 3, "timedelta": pd.to_timedelta([1] * 3)},
        "n": {"zero": [0, 1, 1], "minus": [-1, 1, 1], "none": [None, 1, 1], "text": ["x"] * 3},
        "d": {"zero": [0, 1, 1], "minus": [-1, 1, 1], "none": [None, 1, 1], "text": ["x"] * 3},
        "g": {"twice": ["a", "a", "b"], "none twice": [None, None, "a"], "lists": [["a"], ["b"], ["c"]], "dicts": [{}, {}, {}], "none and name": [None, "(missing)", "a"]},
    }.items():  # fmt: skip
        parameter = {"e": "estimate", "s": "se", "n": "n", "d": "dof", "g": "group"}[column]
        for name, value in values.items():
            frame = pd.DataFrame(good | {column: value})
            yield RowCase(
                f"from_frame: {name} in {parameter}", "", lambda f=frame: read(f, n="n", dof="d"), rows=0, groups=None
            )
    yield RowCase("from_frame: no rows", "", lambda: read(pd.DataFrame(good).head(0)), must="refuse")
    yield RowCase("from_frame: same column for both", "", lambda: read(pd.DataFrame(good), se="e"), must="refuse")
    yield RowCase("from_frame: twice in by", "by", lambda: read(pd.DataFrame(good), by=["g", "g"]), must="refuse")
    yield RowCase("from_frame: tuple columns", "", lambda: read(pd.DataFrame({("g", 1): ["a"]})), must="refuse")


# --------------------------------------------------------------------------------------------------------------- files

CSV = people().to_csv(index=False)
LIFTS = "g,e,s,n\na,0,0.5,100\nb,0.1,0.5,100\nc,5,0.5,100\n"


def write_files(folder: Path) -> dict[str, Path]:
    """Damaged and odd files, by what is wrong with them."""
    files: dict[str, bytes] = {
        "empty.csv": b"", "header.csv": CSV.splitlines()[0].encode() + b"\n", "no-newline.csv": CSV.splitlines()[0].encode(),
        "header-twice.csv": (CSV.splitlines()[0] + "\n" + CSV).encode(), "header-again.csv": (CSV + CSV).encode(),
        "column-twice.csv": CSV.replace("y,p", "x,p", 1).encode(), "ragged-long.csv": (CSV + "a,A,1,1,1,1,1,1,1,1,1\n").encode(),
        "ragged-short.csv": (CSV + "a,A\n").encode(), "blank-lines.csv": CSV.replace("\n", "\n\n").encode(), "blank-first.csv": b"\n" + CSV.encode(),
        "utf16.csv": CSV.encode("utf-16"), "utf32.csv": CSV.encode("utf-32"), "bom.csv": b"\xef\xbb\xbf" + CSV.encode(),
        "latin1.csv": CSV.replace("a,A", "\xe4,A").encode("latin-1"), "not-utf8.csv": CSV.encode() + b"\xff\xfe\xfd\n",
        "nul.csv": CSV.encode().replace(b"a,A", b"a\0,A", 3), "all-nul.csv": b"\0" * 4096, "nul-header.csv": b"\0" + CSV.encode(),
        "open-quote.csv": CSV.replace("a,A", '"a,A', 1).encode(), "quotes.csv": CSV.replace("a,A", '"a",A').encode(),
        "stray-quote.csv": CSV.replace("a,A", 'a"b,A').encode(), "quoted-lines.csv": CSV.replace("a,A", '"a\nb",A').encode(),
        "cr.csv": CSV.replace("\n", "\r").encode(), "crlf.csv": CSV.replace("\n", "\r\n").encode(), "semicolon.csv": CSV.replace(",", ";").encode(),
        "tabs.tsv": CSV.replace(",", "\t").encode(), "pipes.csv": CSV.replace(",", "|").encode(), "one-column.csv": b"g\na\nb\n",
        "text-in-number.csv": CSV.replace("1.0,", "one,", 5).encode(), "comma-decimals.csv": CSV.replace(".", ",").encode(),
        "binary.csv": bytes(range(256)) * 16, "png.csv": b"\x89PNG\r\n\x1a\n" + b"\0" * 100, "zip.csv": b"PK\x03\x04" + b"\0" * 100,
        "json.csv": b'[{"g": "a", "x": 1}]', "html.csv": b"<html><body>404</body></html>\n", "escape.csv": CSV.replace("a,A", "\x1b[31ma,A").encode(),
        "not-gz.csv.gz": CSV.encode(), "good.csv.gz": gzip.compress(CSV.encode()), "half.csv.gz": gzip.compress(CSV.encode())[:200], "empty.csv.gz": b"",
        "gz-of-nothing.csv.gz": gzip.compress(b""), "upper.CSV.GZ": gzip.compress(CSV.encode()), "gz-without-name.csv": gzip.compress(CSV.encode()),
        "damaged.parquet": b"PAR1" + b"\0" * 100 + b"PAR1", "text.parquet": CSV.encode(), "empty.parquet": b"", "magic.parquet": b"PAR1PAR1", "short.parquet": b"PAR1",
        "good.csv": CSV.encode(), "other.xlsx": b"PK", "none": CSV.encode(), "good.txt": CSV.encode(), "lifts.csv": LIFTS.encode(),
        "huge-number.csv": CSV.replace("1.0,", "1e999,", 3).encode(), "nan.csv": CSV.replace("1.0,", "nan,", 3).encode(), "long-cell.csv": CSV.replace("a,A", "x" * 100_000 + ",A", 1).encode(),
        "many-columns.csv": (",".join(f"c{i}" for i in range(3000)) + "\n" + ",".join("1" for _ in range(3000)) + "\n").encode(),
        "empty-header.csv": b",,,\n1,2,3,4\n", "only-commas.csv": b",\n,\n,\n", "spaces.csv": CSV.replace(",", " , ").encode(), "one-byte.csv": b"x",
    }  # fmt: skip
    for name, content in files.items():
        (folder / name).write_bytes(content)
    good = people()
    good.to_parquet(folder / "good.parquet")
    parquet = (folder / "good.parquet").read_bytes()
    (folder / "half.parquet").write_bytes(parquet[: len(parquet) // 2])
    (folder / "flipped.parquet").write_bytes(parquet[:200] + bytes(b ^ 255 for b in parquet[200:400]) + parquet[400:])
    (folder / "footer.parquet").write_bytes(parquet[:-20] + b"\xff" * 12 + parquet[-8:])
    good.head(0).to_parquet(folder / "no-rows.parquet")
    pd.DataFrame({"g": [["a"]] * 30, "x": [1.0] * 30}).to_parquet(folder / "lists.parquet")
    pd.DataFrame({"g": [{"a": 1}] * 30, "x": [{"b": 2.0}] * 30}).to_parquet(folder / "structs.parquet")
    good.rename(columns={"x": "X"}).to_parquet(folder / "other-columns.parquet")
    good.drop(columns="x").to_parquet(folder / "no-x.parquet")
    (folder / "folder.csv").mkdir()
    (folder / "folder.parquet").mkdir()
    (folder / "country=XX").mkdir()
    (folder / "country=XX" / "part.csv").write_bytes(CSV.encode())
    (folder / "x=0").mkdir()
    good.to_parquet(folder / "x=0" / "part.parquet")
    (folder / "g=zz").mkdir()
    (folder / "g=zz" / "part.csv").write_bytes(CSV.encode())
    (folder / "[odd].csv").write_bytes(CSV.encode())
    (folder / "quo'te\".csv").write_bytes(CSV.encode())
    (folder / "line\nbreak.csv").write_bytes(CSV.encode())
    (folder / "\x1b[31m.csv").write_bytes(CSV.encode())
    (folder / "link.csv").symlink_to(folder / "good.csv")
    (folder / "gone.csv").symlink_to(folder / "nothing.csv")
    (folder / "loop.csv").symlink_to(folder / "loop.csv")
    (folder / "hard.csv").hardlink_to(folder / "good.csv")
    return {path.name: path for path in folder.rglob("*") if path.is_file() or path.is_symlink() or path.is_dir()}


# What stays usable, and how many rows it has.
SOUND = {
    "good.csv": ROWS, "good.parquet": ROWS, "good.csv.gz": ROWS, "upper.CSV.GZ": ROWS, "bom.csv": ROWS, "crlf.csv": ROWS, "quotes.csv": ROWS,
    "[odd].csv": ROWS, "quo'te\".csv": ROWS, "link.csv": ROWS, "hard.csv": ROWS, "semicolon.csv": ROWS, "tabs.tsv": ROWS, "quoted-lines.csv": ROWS,
}  # fmt: skip


def cases_of(path: Path) -> Iterator[Case]:
    """One file as rows, and some as a table too, which is read by the same code."""
    yield Case(f"rows of {path.name}", "", lambda: clustered(path), may_hold=True)
    if "gz" in path.name or "q" in path.name:
        table = lambda: fl.Estimates.from_frame(path, by="u", estimate="x", se="w")  # noqa: E731
        yield Case(f"table of {path.name}", "", table, may_hold=True)
