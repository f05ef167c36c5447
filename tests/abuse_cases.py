"""Bad inputs for `test_abuse`: what is given, what an error has to name, and whether an answer is allowed instead."""

# ruff: noqa: E501 - a table of bad inputs reads better in long rows

from __future__ import annotations

import datetime
import inspect
import json
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

import faultlines as fl
from faultlines import simulate
from faultlines.metrics.table import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from faultlines.results import Clustering

FEW = fl.Calibrated(draws=50)


class Case(NamedTuple):
    """One bad input.

    Args:
        name: What the test is called.
        parameter: What an error has to name.
        call: What is done.
        may_hold: Whether a valid answer is as good as an error.
    """

    name: str
    parameter: str
    call: Callable[..., Any]
    may_hold: bool = False


class Rude:
    """An object that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class Lines:
    """An object whose repr has lines and escapes in it."""

    def __repr__(self) -> str:
        return "<Lines\n\x1b[31mred\x1b[0m\u202egnol>"


# Nothing here is a number, a name, a sequence of numbers or anything else that a parameter could mean.
NONSENSE: dict[str, Any] = {
    "true": True,
    "bytes": b"0.5",
    "dict": {"a": 0.5},
    "set": {0.5},
    "complex": 0.5 + 1j,
    "datetime": datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
    "timedelta": datetime.timedelta(1),
    "NA": pd.NA,
    "NaT": pd.NaT,
    "object": object(),
    "function": len,
    "class": int,
    "ellipsis": ...,
    "rude": Rude(),
    "lines": Lines(),
    "numpy bool": np.bool_(True),
    "datetime64": np.datetime64("2020-01-01"),
    "nested": [[0.5], [0.1, 0.2]],
    "range": range(0),
    "frame": pd.DataFrame({"a": [1]}),
}
# What is not even a number; and numbers that make no sense where one above zero and of ordinary size is asked for.
NOT_A_NUMBER: dict[str, Any] = NONSENSE | {
    "text": "0.5",
    "empty text": "",
    "empty list": [],
    "list": [0.5],
    "array": np.array([0.5]),
    "array of none": np.array(0.5),
    "masked": np.ma.masked,
    "decimal": Decimal("0.5"),
    "nan": np.nan,
    "inf": np.inf,
    "minus inf": -np.inf,
    "float32 nan": np.float32("nan"),
    "huge int": 10**400,
    "minus huge int": -(10**400),
    "huge fraction": Fraction(10**400),
}
NOT_POSITIVE: dict[str, Any] = NOT_A_NUMBER | {"zero": 0, "minus": -1.0, "minus zero": -0.0, "numpy minus": np.int8(-3)}
NOT_A_LEVEL: dict[str, Any] = NOT_POSITIVE | {
    "none": None,
    "one": 1,
    "one float": 1.0,
    "two": 2,
    "denormal": 5e-324,
    "tiny fraction": Fraction(1, 10**400),
}
NOT_A_COUNT: dict[str, Any] = NOT_A_NUMBER | {
    "half": 0.5,
    "whole float": 3.0,
    "minus": -1,
    "numpy float": np.float64(2),
}
NOT_TEXT: dict[str, Any] = NONSENSE | {"number": 0.5, "list": ["a"], "zero": 0, "nan": np.nan, "array": np.array(["a"])}
NOT_A_COLUMN: dict[str, Any] = NOT_TEXT | {"empty": ""}
NOT_A_FLAG: dict[str, Any] = {
    key: value for key, value in NOT_A_NUMBER.items() if key not in {"true", "numpy bool", "huge fraction"}
} | {"none": None, "one": 1, "zero": 0, "yes": "yes", "numpy one": np.int64(1), "0-d": np.array(True)}
NOT_A_PATH: dict[str, Any] = {key: value for key, value in NONSENSE.items() if key not in {"bytes"}} | {
    "none": None,
    "number": 5,
    "list": ["a.html"],
    "nul": "a\0b.html",
    "empty": "",
    "folder": "/",
    "no such folder": "/no/such/folder/x.html",
    "too long": "x" * 300 + ".html",
    "surrogate": "\ud800/x.html",
    "no user": "~nobody-of-this-name/x.html",
}
ODD_NAMES = {
    "rtl": "\u202eabc",
    "nul": "a\0b",
    "escape": "\x1b[31mred\x1b[0m",
    "bell and lines": "a\r\n\x07\tb",
    "surrogate": "a\ud800",
    "long": "x" * 5_000,
    "empty": "",
    "space": " ",
    "zero width": "\u200b\u200d\ufeff",
    "combining": "e\u0301" * 30,
    "emoji": "👩‍👩‍👧‍👦",
    "arabic": "العربية",
    "separator": "a · b",
    "unit separator": "a\x1fb",
    "html": "</script><svg onload=alert(1)>",
    "link": "[x](javascript:alert(1))",
    "address": "://".join(["https", "evil.example www.evil.example a@evil.example"]),
    "table": "a | b\n|---|",
    "braces": "{{ 7 * 7 }} ${x} %s {0}",
    "quote": "\"'`\\",
    "nan": "nan",
    "null": "null",
    "missing": "(missing)",
    "number": "1e5",
    "private": "\ue000\U0010ffff",
}


def three(**changes: Any) -> fl.Estimates:
    """Three groups, the last of them far from the others."""
    arguments: dict[str, Any] = {"theta": [0.0, 0.1, 5.0], "se": [0.5, 0.5, 0.5], "labels": ["a", "b", "c"], "n": 100}
    return fl.Estimates(**(arguments | changes))


def clustered(**changes: Any) -> Clustering:
    arguments: dict[str, Any] = {"data": three(), "guarantee": FEW}
    return fl.cluster(**(arguments | changes))


def cases(where: str, parameter: str, call: Callable[..., Any], wrong: dict[str, Any], **more: Any) -> Iterator[Case]:
    """One case per wrong value of a parameter."""
    for name, value in wrong.items():

        def bad(value: Any = value) -> Any:
            return call(**{parameter: value})

        yield Case(f"{where} {parameter}: {name}", parameter, bad, **more)


# ----------------------------------------------------------------------------------------------------------- estimates

_SHAPES: dict[str, Any] = {
    "none": None,
    "text": "abc",
    "texts": ["a", "b", "c"],
    "numbers as text": ["0", "1", "2"],
    "too few": [0.1, 0.2],
    "too many": [0.1] * 4,
    "empty": [],
    "cube": np.ones((3, 1, 1)),
    "no columns": np.ones((3, 0)),
    "ragged": [[1], [1, 2], [3]],
    "holds none": [0.1, None, 0.3],
    "holds NA": [0.1, pd.NA, 0.3],
    "holds nan": [0.1, np.nan, 0.3],
    "holds inf": [0.1, np.inf, 0.3],
    "booleans": [True, False, True],
    "objects": np.array([0.1, "b", 0.3], dtype=object),
    "all complex": np.array([1 + 1j, 2, 3]),
    "dates": np.array(["2020-01-01"] * 3, dtype="datetime64[D]"),
    "generator": (x for x in [0.1, 0.2, 0.3]),
    "map": {"a": 0.1, "b": 0.2, "c": 0.3},
    "masked": np.ma.masked_array([0.1, 0.2, 0.3], [False, True, False]),
    "huge ints": [10**400, 1, 2],
    "strings array": np.array(["a", "b", "c"]),
    "structured": np.array([(1.0,), (2.0,), (3.0,)], dtype=[("x", "f8")]),
    "decimals and text": [Decimal(1), "x", Decimal(2)],
    "pandas NA": pd.Series([0.1, pd.NA, 0.3], dtype="Float64"),
    "pandas text": pd.Series(["a", "b", "c"]),
    "too large": [1e300, -1e300, 0.5],
    "bytes array": np.array([b"1", b"2", b"3"]),
    "timedeltas": pd.Series(pd.to_timedelta([1, 2, 3])),
    "categorical": pd.Categorical(["a", "b", "a"]),
    "set": {0.1, 0.2, 0.3},
    "rude": Rude(),
}
_NOT_ERRORS = _SHAPES | {
    "zero": 0.0,
    "one zero": [0.1, 0.0, 0.3],
    "minus": [0.1, -0.2, 0.3],
    "too wide": [1e-10, 1.0, 1e10],
}
_TOO_SMALL = {"too small": [1e-200, 1e-200, 1e-200], "tiny": [5e-324] * 3}
_LABELS: dict[str, Any] = {
    "text": "abc",
    "number": 5,
    "set": {"a", "b", "c"},
    "dict": {"a": 1, "b": 2, "c": 3},
    "too few": ["a", "b"],
    "too many": list("abcd"),
    "empty": [],
    "twice": ["a", "a", "b"],
    "equal numbers": [1, 1.0, 2],
    "true and one": [True, 1, 2],
    "unhashable": [["a"], {"b": 1}, {1}],
    "unhashable in tuples": [("a", []), ("b", []), ("c", [])],
    "mixed": ["a", ("b", "c"), "d"],
    "lengths": [("a",), ("b", "c"), ("d",)],
    "empty tuples": [(), (), ()],
    "holds none": ["a", None, "b"],
    "holds NA": ["a", pd.NA, "b"],
    "holds NaT": [pd.NaT, "a", "b"],
    "holds nan": ["a", np.nan, "b"],
    "holds numpy nan": ["a", np.float32("nan"), "b"],
    "holds inf": [1.0, np.inf, 2.0],
    "none in tuples": [("a", 1), ("b", None), ("c", 2)],
    "nan in tuples": [("a", 1), ("b", np.nan), ("c", 2)],
    "datetime64 NaT": np.array(["2020-01-01", "NaT", "2020-01-03"], dtype="datetime64[D]"),
    "matrix": np.array([[1, 2], [1, 2], [3, 4]]),
    "bytes": b"abc",
    "rude": Rude(),
    "masked": np.ma.masked_array(["a", "b", "c"], [False, True, False]),
    "nan text in series": pd.Series(["a", np.nan, "c"]),
}
_ATTRIBUTES: dict[str, Any] = {
    "text": "group",
    "empty": [],
    "two": ["a", "b"],
    "number": 5,
    "none in it": [None],
    "number in it": [5],
    "set": {"a"},
    "dict": {"a": 1},
    "empty name": [""],
    "rude": [Rude()],
    "nan": [np.nan],
    "generator": (x for x in ["a"]),
}


def of_estimates() -> Iterator[Case]:
    where = "Estimates"
    yield from cases(where, "theta", three, NONSENSE | _SHAPES)
    yield from cases(where, "se", three, NONSENSE | _NOT_ERRORS)
    yield from cases(where, "standard errors", lambda **bad: three(se=bad["standard errors"]), _TOO_SMALL)
    sizes = {k: v for k, v in (NOT_POSITIVE | _SHAPES).items() if k not in {"none", "array of none", "decimal"}}
    yield from cases(where, "n", three, sizes | {"too large": 2.0**54, "minus": [1, -1, 1], "zero in it": [1, 0, 1]})
    low = {k: v for k, v in sizes.items() if k not in {"inf", "holds inf"}} | {"below one": 0.5, "minus inf": -np.inf}
    yield from cases(where, "dof", three, low)
    plane = {"theta": np.zeros((3, 2)), "se": np.ones((3, 2))}
    yield from cases(where, "dof", lambda dof: three(**plane, dof=dof), {"below d": 1, "one below d": [9, 1.5, 9]})
    yield from cases(where, "labels", three, _LABELS)
    yield from cases(where, "attributes", three, _ATTRIBUTES)
    shown = {k: v for k, v in (NONSENSE | _SHAPES).items() if k not in {"none", "too large"}}
    yield from cases(where, "natural", three, shown)
    scales = {k: v for k, v in NOT_TEXT.items() if k != "none"} | {"none": None, "name": "log ratio", "class": fl.Scale}
    yield from cases(where, "scale", three, scales)
    yield from cases(where, "metric", three, NOT_TEXT | {"none": None})
    matrices = _SHAPES | {
        "of one": np.ones((3, 1)),
        "not symmetric": np.array([[[1.0, 0.5], [0.1, 1.0]]] * 3),
        "singular": np.ones((3, 2, 2)),
        "negative": -np.array([np.eye(2)] * 3),
        "zero": np.zeros((3, 2, 2)),
        "nan": np.full((3, 2, 2), np.nan),
        "complex": np.array([np.eye(2) * 1j] * 3),
        "text": np.full((3, 2, 2), "x"),
        "booleans": np.array([np.eye(2, dtype=bool)] * 3),
        "too many": np.array([np.eye(2)] * 4),
    }
    matrices.pop("none")
    yield from cases(
        where,
        "effect_covariance",
        lambda effect_covariance: three(theta=np.zeros((3, 2)), se=None, effect_covariance=effect_covariance),
        NONSENSE | matrices,
    )
    for name, scale in (("huge", 1e300), ("tiny", 1e-300)):
        scaled = np.array([np.eye(2) * scale] * 3)
        build = partial(three, theta=np.zeros((3, 2)), se=None, effect_covariance=scaled)
        yield Case(f"Estimates cov: {name}", "se", build)
    parts: dict[str, Any] = {
        "too few": ["a"], "twice": ["a", "a"], "numbers": [1, 2], "text": "ab", "set": {"a", "b"}, "number": 5,
        "none": [None, None], "empty names": ["", ""], "dict": {"a": 1, "b": 2}, "rude": [Rude(), Rude()],
    }  # fmt: skip
    yield from cases(where, "parts", lambda parts: three(**plane, parts=parts), parts)
    yield from cases(
        where, "parts", lambda parts: three(parts=parts), {"two of one effect": ["a", "b"], "number for one": 5}
    )
    yield from cases(where + ".intervals", "alpha", three().intervals, NOT_A_LEVEL)


# ----------------------------------------------------------------------------------------------------- what takes them

_GUARANTEES: dict[str, Any] = NOT_TEXT | {
    "none": None, "unknown": "magic", "empty": "", "case": "Calibrated", "class": fl.Calibrated, "space": " folds",
    "nul": "a\0b", "long": "x" * 10_000,
}  # fmt: skip
_NOT_GROUPS: dict[str, Any] = {k: v for k, v in NOT_A_NUMBER.items() if k != "frame"} | {
    "none": None,
    "number": 5,
    "arrays": ([1.0, 2.0], [1.0, 1.0]),
    "series": pd.Series([1.0]),
    "clustering": clustered(),
    "class of estimates": fl.Estimates,
    "frame": pd.DataFrame({"a": [1.0]}),
    "no file": "no/such/file.csv",
    "nul": "a\0b.csv",
    "long": "x" * 5000,
}
_TOLERANCES: dict[str, Any] = {
    k: v for k, v in NOT_POSITIVE.items() if k not in {"zero", "minus zero"}
} | {"none": None}  # fmt: skip
_SEEDS: dict[str, Any] = NOT_A_COUNT | {"none": None, "generator": np.random.default_rng(0)}
_SEEDS = {k: v for k, v in _SEEDS.items() if k != "huge int"}


def _plain(call: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    return lambda **bad: call(**(fixed | bad))


def _first(call: Callable[..., Any]) -> Callable[..., Any]:
    """A call whose first argument is named otherwise in errors."""
    return lambda **arguments: call(*arguments.values())


def of_clustering() -> Iterator[Case]:
    where, call = "cluster", clustered
    yield from cases(where, "alpha", call, NOT_A_LEVEL)
    yield from cases(where, "guarantee", call, _GUARANTEES)
    yield from cases(where, "tolerance", call, _TOLERANCES)
    yield from cases(where, "refine", call, NOT_A_FLAG)
    sizes = dict(NOT_A_NUMBER.items()) | {"minus": -1, "too large": 101}
    yield from cases(where, "min_size", call, sizes)
    yield from cases(where, "seed", call, _SEEDS)
    yield Case("cluster seed: huge int", "seed", lambda: call(seed=10**400), may_hold=True)
    for name, value in _NOT_GROUPS.items():
        yield Case(f"cluster data: {name}", "", lambda value=value: fl.cluster(value))
        yield Case(f"agglomerate estimates: {name}", "estimates", lambda value=value: fl.agglomerate(value))
        yield Case(f"welch estimates: {name}", "estimates", lambda value=value: fl.welch(value))
    yield from cases(where, "by", call, {"with estimates": "a", "list": ["a"]})
    yield from cases(where, "metric", call, {"with estimates": fl.mean("a"), "text": "lift"})
    yield Case("cluster min_size: no n", "min_size", lambda: clustered(data=three(n=None), min_size=5))
    yield from cases("agglomerate", "tolerance", _plain(fl.agglomerate, estimates=three()), _TOLERANCES)
    wide = fl.Estimates(np.zeros((3, 2)), np.ones((3, 2)))
    yield Case("cluster tolerance: two effects", "tolerance", lambda: fl.cluster(wide, tolerance=0.1))
    yield Case("agglomerate tolerance: two effects", "tolerance", lambda: fl.agglomerate(wide, tolerance=0.1))
    counts = fl.binomial([1, 5, 9], 10)
    for name, value in _TOLERANCES.items():
        yield Case(
            f"cluster counts tolerance: {name}", "tolerance", lambda value=value: fl.cluster(counts, tolerance=value)
        )
    yield Case("cluster counts tolerance: 0.1", "tolerance", lambda: fl.cluster(counts, tolerance=0.1))
    yield Case("cluster rates tolerance: 1", "tolerance", lambda: fl.cluster(counts.estimates, tolerance=1.0))
    yield Case("cluster counts alpha: out of reach", "alpha", lambda: fl.cluster(counts, alpha=1e-9, guarantee=FEW))
    yield Case("cluster unit: estimates", "unit", lambda: fl.cluster(three(), guarantee=fl.Holdout(unit="u")))
    yield Case("to_linkage: one group", "group", lambda: fl.agglomerate(fl.Estimates([1], [1])).to_linkage())


def of_guarantees() -> Iterator[Case]:
    yield from cases("Calibrated", "draws", fl.Calibrated, NOT_A_COUNT | {"zero": 0})
    yield from cases("Calibrated", "scan", fl.Calibrated, NOT_A_FLAG)
    tiny = {"denormal", "tiny fraction"}
    levels = {k: v for k, v in NOT_A_LEVEL.items() if k not in tiny}
    yield from cases("Holdout", "fraction", fl.Holdout, levels)
    for name in tiny:
        guarantee = lambda name=name: clustered(guarantee=fl.Holdout(NOT_A_LEVEL[name]))  # noqa: E731
        yield Case(f"Holdout judging: {name}", "", guarantee, may_hold=True)
    yield from cases("Holdout", "unit", fl.Holdout, NOT_A_COLUMN)
    yield from cases("Holdout", "splits", fl.Holdout, NOT_A_COUNT | {"none": None, "zero": 0, "many": 10**5})
    yield from cases("Folds", "n", fl.Folds, NOT_A_COUNT | {"zero": 0, "one": 1})
    yield from cases("Folds", "unit", fl.Folds, NOT_A_COLUMN)
    too_many = fl.Folds(n=10**6)
    yield Case("Folds n: more than units", "n", lambda: clustered(guarantee=too_many))
    yield Case("Folds n: huge", "n", lambda: clustered(guarantee=fl.Folds(n=10**30)))
    yield Case("Holdout fraction: tiny", "", lambda: clustered(guarantee=fl.Holdout(1e-300)), may_hold=True)
    yield Case("Holdout fraction: nearly all", "", lambda: clustered(guarantee=fl.Holdout(1 - 1e-16)), may_hold=True)


def of_many() -> Iterator[Case]:
    call = _plain(fl.cluster_many, estimates_by_name={"x": three()}, guarantee=FEW)
    groups: dict[str, Any] = NOT_A_NUMBER | {
        "none": None, "no experiment": {}, "numbers as names": {1: three()}, "no estimates": {"x": 5},
        "none as estimates": {"x": None}, "clusterings": {"x": clustered()}, "frames": {"x": pd.DataFrame()},
        "class": {"x": fl.Estimates}, "bytes names": {b"x": three()}, "tuple names": {("x",): three()},
        "pairs": [("x", three())], "rude": {"x": Rude()},
    }  # fmt: skip
    groups.pop("dict")
    yield from cases("cluster_many", "estimates", lambda estimates: call(estimates_by_name=estimates), groups)
    yield from cases("cluster_many", "alpha", call, NOT_A_LEVEL)
    yield from cases("cluster_many", "guarantee", call, _GUARANTEES)
    yield from cases(
        "cluster_many", "correction", call, NOT_TEXT | {"none": None, "unknown": "bonferroni", "empty": ""}
    )
    yield from cases("cluster_many", "tolerance", call, _TOLERANCES)
    yield from cases("cluster_many", "refine", call, NOT_A_FLAG)
    yield from cases("cluster_many", "seed", call, _SEEDS)
    table = pd.DataFrame({"e": ["a", "a", "b"], "g": ["x", "y", "x"], "v": [0.0, 1.0, 2.0], "s": [1.0, 1.0, 1.0]})
    of_table = _plain(
        fl.cluster_many, estimates_by_name=table, experiment="e", by="g", estimate="v", se="s", guarantee=FEW
    )
    for parameter in ("experiment", "estimate", "se", "n", "dof"):
        bad = {k: v for k, v in NOT_A_COLUMN.items() if not (parameter in {"n", "dof"} and v is None)}
        yield from cases("cluster_many of a table", parameter, of_table, bad | {"unknown": "zz"})
    yield from cases("cluster_many of a table", "by", of_table, {"unknown": "zz", "none": None})
    yield from cases("cluster_many of a table", "metric", of_table, {"both": fl.mean("v"), "text": "mean"})
    result = call()
    for name, value in (NOT_TEXT | {"unknown": "y", "none": None, "empty": ""}).items():
        yield Case(f"Many[]: {name}", "name", lambda value=value: result[value])
    yield from cases("Many.report", "report", _first(result.report), NOT_A_PATH | {"ending": "x.pdf"})
    yield from cases("Many.to_dicts", "rows", result.to_dicts, NOT_TEXT | {"unknown": "people", "empty": ""})


def of_confirm() -> Iterator[Case]:
    result = fl.cluster(fl.Estimates([0.0, 0.1, 9.0], [1.0] * 3, ["a", "b", "c"]))
    call = _plain(fl.confirm, clusters=result, data=three())
    text = result.to_json()
    damaged: dict[str, Any] = {key: value for key, value in NOT_A_PATH.items() if key != "dict"} | {
        "half": text[: len(text) // 2], "list": "[]", "null": "{}", "other": '{"groups": [{}], "clusters": [{}]}',
        "empty dict": {}, "estimates": three(), "one cluster": fl.cluster(fl.Estimates([1], [1])),
        "deep": "[" * 100_000,
    }  # fmt: skip
    yield from cases("confirm", "clusters", call, damaged)
    yield from cases("confirm", "alpha", call, NOT_A_LEVEL)
    yield from cases("confirm", "seed", call, _SEEDS)
    yield from cases("confirm", "min_size", call, NOT_A_NUMBER | {"minus": -1})
    yield from cases("confirm", "metric", call, NOT_TEXT | {"other": "clicks"})
    yield from cases("confirm", "by", call, NOT_TEXT | {"text": "g"})
    yield Case("confirm data: other groups", "data", lambda: fl.confirm(result, fl.Estimates([1, 2], [1, 1])))
    again = call()
    yield from cases("Confirmation.to_dicts", "rows", again.to_dicts, NOT_TEXT | {"unknown": "people", "empty": ""})


def of_power() -> Iterator[Case]:
    call = _plain(fl.power, data=[1.0, 1.0, 2.0], runs=20, guarantee="bonferroni")
    yield from cases("power", "data", call, NOT_A_NUMBER | _SHAPES_OF_POWER)
    gaps = {
        key: value for key, value in NOT_POSITIVE.items() if "minus" not in key
    }  # below zero: groups that are lower
    yield from cases("power", "gap", call, gaps)
    splits: dict[str, Any] = NONSENSE | {
        "none": None, "zero": 0, "one": 1, "minus": -0.5, "nan": np.nan, "inf": np.inf, "text": "a", "unknown": ["zz"],
        "empty": [], "all the same": [1, 1, 1], "holds nan": [0, np.nan, 1], "holds inf": [0, 1, np.inf],
        "holds none": [0, None, 1], "nested": [[0], [1], [2]], "huge": [10**400, 0, 1],
        "every group": [0, 1, 2, 0], "matrix": np.ones((3, 2)), "holds text": [0, "x", 1], "far apart": [0, 1e300, -1e300],
        "rude": [Rude()], "complex": [0, 1j, 1], "generator": (x for x in [0, 1]),
    }  # fmt: skip
    yield from cases("power", "split", call, splits)
    yield from cases("power", "spread", call, dict(NOT_POSITIVE.items()))
    arms = NOT_A_COUNT | {"zero": 0, "three": 3, "none": None}
    yield from cases("power", "arms", _plain(call, spread=1.0), arms)
    yield from cases("power", "alpha", call, NOT_A_LEVEL)
    yield from cases("power", "guarantee", call, _GUARANTEES)
    yield from cases("power", "tolerance", call, _TOLERANCES)
    yield from cases("power", "target", call, NOT_A_LEVEL | {"below alpha": 0.01, "alpha": 0.05})
    yield from cases("power", "runs", call, NOT_A_COUNT | {"none": None, "zero": 0, "too few": 19})
    yield from cases("power", "seed", call, _SEEDS)
    rates: Any = fl.binomial([1, 5, 9], 10).estimates
    yield Case("power gap: beyond rates", "gap", lambda: fl.power(rates, gap=1.0, runs=20))
    wide = fl.Estimates(np.zeros((3, 2)), np.ones((3, 2)), n=9)
    yield Case("power spread: two effects", "effects", lambda: fl.power(wide, spread=1.0, runs=20))
    rows = _plain(
        fl.power, data=pd.DataFrame({"g": ["a", "b"] * 9, "x": range(18)}), by="g", metric=fl.mean("x"), runs=20
    )
    yield from cases("power", "by", rows, NOT_A_COLUMN | {"unknown": "zz"})
    yield from cases("power", "metric", rows, NOT_TEXT | {"text": "mean"})
    yield from cases("power", "min_size", rows, NOT_A_NUMBER | {"minus": -1, "large": 10})
    yield from cases("power", "min_size", call, {"without rows": 5})
    yield Case("power spread: no n", "spread", lambda: fl.power(three(n=None), spread=1.0, runs=20))
    for scale in (1e-90, 1e90, 1e-300, 1e300):
        for gap in (None, 1e-300, 1e300):
            yield Case(
                f"power data: {scale:g}, gap {gap}",
                "",
                lambda scale=scale, gap=gap: call(data=[scale, scale], gap=gap),
                may_hold=True,
            )


_SHAPES_OF_POWER: dict[str, Any] = {
    "none": None, "one group": [1.0], "zero": [1.0, 0.0], "minus": [1.0, -1.0], "nan in it": [1.0, np.nan],
    "inf in it": [1.0, np.inf], "text in it": ["a", "b"], "matrix": np.ones((2, 2)), "ragged": [[1], [1, 2]],
    "none in it": [None, 1.0], "similarity": fl.binomial([1, 5], 10), "frame": pd.DataFrame({"a": [1.0, 2.0]}),
    "booleans": [True, False], "generator": (x for x in [1.0, 2.0]), "texts": np.array(["1", "2"]),
}  # fmt: skip


# ----------------------------------------------------------------------------------------------------- other comparisons


def of_comparisons() -> Iterator[Case]:
    test = _p_half
    call = _plain(fl.Similarity, statistics=[[1.0], [2.0], [3.0]], pvalue=test)
    tables = {k: v for k, v in (NONSENSE | _SHAPES).items() if k not in {"nested", "ragged", "frame"}} | {
        "flat": [1.0, 2.0, 3.0], "no columns": np.ones((3, 0)), "no rows": np.ones((0, 3)), "nan": [[np.nan], [1], [2]],
        "inf": [[np.inf], [1], [2]], "overflow": [[1e308], [1e308], [1e308]], "texts": [["a"], ["b"], ["c"]],
        "text numbers": [["1"], ["2"], ["3"]], "none in it": [[None], [1], [2]],
        "complex": [[1j], [1], [2]],
    }  # fmt: skip
    yield from cases("Similarity", "statistics", call, tables)
    not_functions = {k: v for k, v in NOT_TEXT.items() if k not in {"function", "class"}}
    yield from cases("Similarity", "pvalue", call, not_functions | {"none": None, "text": "x"})
    for optional in ("null", "divide", "estimate"):
        yield from cases("Similarity", optional, call, not_functions | {"text": "x"})
    yield from cases("Similarity", "labels", call, _LABELS)
    yield from cases("Similarity", "log", call, NOT_A_FLAG)
    yield from cases(
        "Similarity", "n", call, {"minus": -1, "zero": [1, 0, 1], "text": "x", "nan": np.nan, "two": [1, 2]}
    )
    yield from cases("Similarity", "attributes", call, _ATTRIBUTES)
    yield from cases("Similarity", "metric", call, NOT_TEXT | {"none": None})
    for name, answer in _ANSWERS.items():
        for log in (False, True):
            yield Case(f"Similarity pvalue returns {name}{' log' * log}", "pvalue", _misjudged(answer, log))
        yield Case(f"Similarity null returns {name}", "null", _misdrawn(answer))
        yield Case(f"Similarity divide returns {name}", "divide", _misdivided(answer))
        yield Case(f"Similarity estimate returns {name}", "estimate", _misestimated(answer))
    for guarantee in ("calibrated", "holdout", "folds"):
        yield Case(
            f"Similarity without functions: {guarantee}", "", lambda g=guarantee: fl.cluster(call(), guarantee=g)
        )
    yield from of_counts()
    check = _plain(fl.check_merge_invariance, comparison=three(), runs=100)
    yield from cases("check_merge_invariance", "estimates", lambda estimates: check(comparison=estimates), _NOT_GROUPS)
    yield from cases("check_merge_invariance", "alpha", check, NOT_A_LEVEL)
    yield from cases("check_merge_invariance", "runs", check, NOT_A_COUNT | {"none": None, "zero": 0, "few": 99})
    yield from cases("check_merge_invariance", "seed", check, _SEEDS)
    yield from cases("check_merge_invariance", "tolerance", check, _TOLERANCES)
    yield Case("check_merge_invariance: no null", "null", lambda: check(comparison=call()))
    yield Case("check_merge_invariance: two groups", "groups", lambda: check(comparison=fl.Estimates([0, 1], [1, 1])))
    wide = fl.Estimates(np.zeros((3, 2)), np.ones((3, 2)))
    yield Case("welch: two effects", "estimates", lambda: fl.welch(wide))


def of_counts() -> Iterator[Case]:
    for make, first, second in ((fl.binomial, "successes", "trials"), (fl.poisson, "events", "exposure")):
        where, call = make.__name__, _plain(make, **{first: [1, 5, 9], second: 10})
        counts = dict((NONSENSE | _SHAPES).items()) | {
            "minus": [1, -1, 2], "half": [1, 0.5, 2], "too large": [2.0**53, 1, 1], "flat number": 5, "true": [True] * 3,
            "numbers as text": ["1", "5", "9"],
        }  # fmt: skip
        yield from cases(where, first, call, counts)
        sizes = counts | {
            "zero": 0,
            "zero in it": [10, 0, 10],
            "minus": -10,
            "nan": np.nan,
            "huge": 1e300,
            "tiny": 1e-300,
        }
        for no_error in ("half", "flat number") if second == "exposure" else ():
            sizes.pop(no_error)
        sizes.pop("too large")
        yield from cases(where, second, call, sizes | ({"none": None}))
        yield from cases(where, "labels", call, _LABELS)
        yield from cases(where, "attributes", call, _ATTRIBUTES)
        yield from cases(where, "metric", call, NOT_TEXT | {"none": None})
    yield Case("binomial: more successes than trials", "successes", lambda: fl.binomial([11], [10]))


def _p_half(a: Any, b: Any) -> Any:
    return np.full(len(a), 0.5)


_ANSWERS: dict[str, Any] = {
    "none": lambda a: None,
    "nan": lambda a: np.full(len(a), np.nan),
    "inf": lambda a: np.full(len(a), np.inf),
    "two": lambda a: np.full(len(a), 2.0),
    "text": lambda a: ["x"] * len(a),
    "text numbers": lambda a: ["0.5"] * len(a),
    "one number": lambda a: 0.5,
    "too many": lambda a: np.full(len(a) + 1, 0.5),
    "empty": lambda a: [],
    "matrix": lambda a: np.full((len(a), len(a) + 1), 0.5),
    "ragged": lambda a: [[1], [1, 2]],
    "complex": lambda a: np.full(len(a), 0.5j),
    "objects": lambda a: [object()] * len(a),
    "booleans": lambda a: np.full(len(a), True),
    "generator": lambda a: (x for x in [0.5] * len(a)),
    "dict": lambda a: {0: 0.5},
    "rude": lambda a: Rude(),
}


def _misjudged(answer: Callable[[Any], Any], log: bool) -> Callable[[], Any]:
    pvalue = lambda a, b: answer(a)  # noqa: E731
    return lambda: fl.cluster(fl.Similarity([[1.0], [2.0], [9.0]], pvalue, log=log), guarantee="bonferroni")


def _misdrawn(answer: Callable[[Any], Any]) -> Callable[[], Any]:
    draw = lambda s, rng: answer(s)  # noqa: E731
    return lambda: fl.cluster(fl.Similarity([[1.0], [2.0], [9.0]], _p_half, null=draw), guarantee=FEW)


def _misdivided(answer: Callable[[Any], Any]) -> Callable[[], Any]:
    divide = lambda s, shares, rng: answer(s)  # noqa: E731
    return lambda: fl.cluster(fl.Similarity([[1.0], [2.0], [9.0]], _p_half, divide=divide), guarantee="holdout")


def _misestimated(answer: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: fl.Similarity([[1.0], [2.0], [9.0]], _p_half, estimate=answer)


# ------------------------------------------------------------------------------------------------------------- metrics

# Columns of `people` that a metric can be made of, by parameter.
GOOD = {
    "value": "x", "numer": "x", "denom": "y", "variant": "arm", "control": "A", "y_true": "t", "y_pred": "p",
    "score": "s", "threshold": 0.5,
}  # fmt: skip


def metric(name: str, **changes: Any) -> fl.Metric:
    """A metric with good columns, some of them changed."""
    entry = METRICS[name]
    columns = {names[0]: GOOD[names[0]] for names in entry.columns}
    columns |= {option: GOOD[option] for option in ("variant", "control") if option in entry.options}
    if name == "rate":
        columns["value"] = "p"
    return entry.function(**(columns | changes))


def of_metrics() -> Iterator[Case]:
    for name, entry in METRICS.items():
        needed = [names[0] for names in entry.columns]
        optional = [option for option in ("unit", "covariate", "weight") if option in entry.options]
        for parameter in [*needed, *optional, *(["variant"] if "variant" in entry.options else [])]:
            wrong = NOT_A_COLUMN | ({} if parameter in optional else {"none": None})
            yield from cases(name, parameter, _plain(metric, name=name), wrong)
        if "threshold" in entry.options:
            call = _plain(metric, name=name, y_pred=None, score="s")
            yield from cases(name, "threshold", call, NOT_A_NUMBER | {"none": None})
            yield Case(f"{name}: threshold of predictions", "threshold", lambda n=name: metric(n, threshold=0.5))
            yield Case(f"{name}: score and y_pred", "score", lambda n=name: metric(n, score="s"))
        labels = {
            "list": [1],
            "dict": {},
            "set": {1},
            "nan": np.nan,
            "NA": pd.NA,
            "array": np.array([1]),
            "rude": Rude(),
        }
        for parameter in ("positive", "control", "treatment"):
            if parameter in entry.options:
                several = {"list": [], "in a list": [[1]], "twice": ["B", "B"]} if parameter == "treatment" else {}
                yield from cases(name, parameter, _plain(metric, name=name), labels | several)
        if "control" in entry.options:
            yield Case(f"{name} control: none", "control", lambda n=name: metric(n, control=None))
            yield Case(f"{name} treatment: control", "treatment", lambda n=name: metric(n, treatment="A"))
    yield from cases("auc", "bins", _plain(metric, name="auc"), NOT_A_COUNT | {"one": 1, "none": None})
    yield from cases("atkinson", "epsilon", _plain(metric, name="atkinson"), NOT_POSITIVE | {"none": None, "six": 6})
    yield from cases("f1", "classes", _plain(metric, name="f1"), NOT_A_FLAG | {"no label": True})
    not_called = {name: value for name, value in NONSENSE.items() if not callable(value)} | {"text": "median"}
    yield from cases(
        "bootstrapped", "draws", lambda draws: fl.bootstrapped(np.median, "x", draws=draws), NOT_A_COUNT | {"few": 19}
    )
    yield from cases("bootstrapped", "statistic", lambda statistic: fl.bootstrapped(statistic, "x"), not_called)
    yield from cases("bootstrapped", "columns", lambda columns: fl.bootstrapped(np.median, columns), NOT_A_COLUMN)
    for option in ("n", "mean", "sum", "variance", "sum_squares"):
        good = {"n": "n", "mean": "m", "variance": "v"}
        swap = {"sum": "mean", "sum_squares": "variance"}
        left = {k: v for k, v in good.items() if k != swap.get(option)}
        yield from cases("aggregated", option, _plain(fl.aggregated, **left), NOT_A_COLUMN)
    yield Case("aggregated: both", "sum", lambda: fl.aggregated("n", mean="m", sum="s"))
    yield Case("aggregated: neither", "mean", lambda: fl.aggregated("n"))
    yield Case(
        "aggregated: both variances", "variance", lambda: fl.aggregated("n", mean="m", variance="v", sum_squares="q")
    )
    table = fl.aggregated("n", mean="m", variance="v")
    bare = fl.aggregated("n", mean="m")
    for build in (fl.mean, fl.rate):
        yield from cases(f"{build.__name__} of aggregates", "weight", _plain(build, value=table), {"given": "w"})
    yield Case("mean of aggregates: no variance", "variance", lambda: fl.mean(bare))
    yield Case("rate of aggregates: positive", "positive", lambda: fl.rate(table, positive=1))
    for option in ("unit", "covariate", "weight"):
        yield Case(f"lift of aggregates: {option}", option, lambda o=option: metric("lift", value=table, **{o: "x"}))
    for name in ("ratio", "log_loss", "accuracy"):
        parameter = METRICS[name].columns[0][0]
        named = "denom" if name == "ratio" else parameter  # aggregates name it, and nothing is wrong with `numer`
        yield Case(f"{name} of aggregates", named, lambda n=name, p=parameter: metric(n, **{p: table}))
    yield from of_bins()
    yield from of_joint()
    yield from of_own_metrics()


def of_bins() -> Iterator[Case]:
    yield from cases("bins", "column", _plain(fl.bins, width=5), NOT_A_COLUMN | {"none": None})
    yield from cases("bins", "width", _plain(fl.bins, column="x"), NOT_POSITIVE)
    counts = NOT_A_COUNT | {"one": 1, "zero": 0, "many": 201}
    yield from cases("bins", "quantiles", _plain(fl.bins, column="x"), counts)
    edges: dict[str, Any] = {k: v for k, v in NOT_A_NUMBER.items() if k not in {"list", "array"}} | {
        "number": 5, "falling": [2, 1], "equal": [1, 1], "nan in it": [1, np.nan], "inf in it": [1, np.inf],
        "text in it": ["a"], "none in it": [None], "true in it": [True], "matrix": np.ones((2, 2)), "many": list(range(201)),
        "huge": [1, 10**400], "rude": [Rude()], "generator": (x for x in [1, 2]),
    }  # fmt: skip
    yield from cases("bins", "edges", _plain(fl.bins, column="x"), edges)
    yield Case("bins: nothing", "width", lambda: fl.bins("x"))
    yield Case("bins: two ways", "width", lambda: fl.bins("x", width=1, quantiles=3))


def of_joint() -> Iterator[Case]:
    rate, mean = fl.rate("p"), fl.mean("x")
    wrong: dict[str, tuple[Any, ...]] = {
        "none": (), "one": (rate,), "twice": (rate, rate), "text": (rate, "lift"), "none in it": (rate, None),
        "list": ([rate, mean],), "auc": (rate, metric("auc")), "joint": (fl.joint(rate, mean), rate),
        "arms": (mean, metric("lift")), "units": (metric("lift"), metric("difference", unit="u")),
        "aggregated": (rate, fl.mean(fl.aggregated("n", mean="m", variance="v"))), "rude": (rate, Rude()),
        "function": (fl.rate, fl.mean),
    }  # fmt: skip
    for name, metrics in wrong.items():
        yield Case(f"joint: {name}", "", lambda metrics=metrics: fl.joint(*metrics))


def of_own_metrics() -> Iterator[Case]:
    own = _plain(
        fl.Metric,
        name="mine",
        inputs={"x": fl.Input("x")},
        variables=lambda c: {"x": c["x"]},
        estimate=fl.mean("x").estimate,
    )
    yield from cases("Metric", "name", own, NOT_TEXT | {"none": None})
    inputs: dict[str, Any] = NONSENSE | {
        "none": None, "no input": {}, "texts": {"x": "x"}, "none in it": {"x": None}, "list": [fl.Input("x")],
        "number": 5, "roles": {1: fl.Input("x")}, "class": {"x": fl.Input},
    }  # fmt: skip
    yield from cases("Metric", "inputs", own, inputs)
    not_functions = {k: v for k, v in NOT_TEXT.items() if k not in {"function", "class"}} | {"none": None, "text": "x"}
    yield from cases("Metric", "variables", own, not_functions)
    yield from cases("Metric", "estimate", own, not_functions)
    yield from cases("Metric", "unit", own, NOT_A_COLUMN)
    yield from cases("Metric", "arms", own, NOT_TEXT | {"text": "arm"})
    yield from cases("Metric", "scale", own, NOT_TEXT | {"none": None, "text": "log ratio"})
    yield from cases("Metric", "ranking", own, NOT_A_COUNT)
    yield from cases("Metric", "aggregated", own, NOT_TEXT | {"text": "n"})
    yield from cases("Metric", "centred", own, {"number": 5, "text": "x", "unknown": {"c": "zz"}, "none": None})
    yield from cases("Metric", "parts", own, {"number": 5, "text": "ab", "numbers": (1, 2), "none": None})
    yield from cases("Metric", "size_variables", own, {"text": "x", "beyond": (5,), "number": 5})
    yield from cases("Metric", "pairs", own, {"text": "x", "beyond": ((0, 5),), "number": 5})
    yield from cases("Metric", "size_unit", own, NOT_TEXT | {"none": None})
    yield from cases("Metric", "needs_covariance", own, NOT_A_FLAG)
    yield from cases("Input", "column", fl.Input, NOT_A_COLUMN | {"none": None})
    yield from cases("Input", "kind", _plain(fl.Input, column="x"), NOT_TEXT | {"none": None, "unknown": "date"})
    yield from cases("Input", "per_unit", _plain(fl.Input, column="x"), NOT_A_FLAG)
    yield from cases("Input", "positive", _plain(fl.Input, column="x"), {"list": [1], "dict": {}, "set": {1}})
    yield from cases("Arms", "column", _plain(fl.Arms, control="A"), NOT_A_COLUMN | {"none": None})


# ------------------------------------------------------------------------------------------------------------- results


def of_results() -> Iterator[Case]:
    result = clustered()
    yield from cases("at", "alpha", result.at, NOT_A_LEVEL)
    for method in (result.to_dicts, result.to_pandas, result.to_polars, result.to_arrow):
        where = method.__name__
        yield from cases(where, "rows", method, NOT_TEXT | {"unknown": "people", "empty": ""})
    yield from cases(
        "to_json",
        "indent",
        result.to_json,
        {k: v for k, v in NOT_A_COUNT.items() if k not in {"true", "empty text", "minus"}},
    )
    yield from cases("plot", "kind", result.plot, NOT_TEXT | {"none": None, "unknown": "pie", "empty": ""})
    yield from cases("plot", "theme", result.plot, NOT_TEXT | {"none": None, "unknown": "pink", "empty": ""})
    yield Case("plot: tree of one group", "kind", lambda: fl.cluster(fl.Estimates([1], [1])).plot("tree"))
    no_estimates = fl.cluster(fl.Similarity([[1.0], [2.0]], _p_half), guarantee="bonferroni")
    yield Case("plot: no estimates", "kind", no_estimates.plot)
    yield Case("estimates: none", "estimates", lambda: no_estimates.estimates)
    drawn = result.plot()
    yield from cases("plot.save", "plot", _first(drawn.save), NOT_A_PATH | {"ending": "x.gif"})
    yield from cases("report", "report", _first(result.report), NOT_A_PATH | {"ending": "x.pdf"})
    page = _plain(result.report, path="/no/such/folder/x.html")
    for parameter in ("title", "note", "command"):
        yield from cases("report", parameter, page, NOT_TEXT)
    also: dict[str, Any] = NONSENSE | {"text": ["x"], "none": [None], "one": result, "estimates": [three()]}
    also.pop("range")
    yield from cases("report", "also", page, also)
    names: dict[str, Any] = NONSENSE | {"text": "x", "two": ["a", "b"], "number": 5}
    yield from cases("report", "names", page, names | {"rude": [Rude()]})
    yield from cases("holm", "alpha", _plain(fl.holm, results=[result]), NOT_A_LEVEL)
    results: dict[str, Any] = NONSENSE | {"none": None, "text": ["x"], "one": result, "estimates": [three()]}
    results.pop("range")
    yield from cases("holm", "results", _plain(fl.holm, alpha=0.05), results)
    for parameter in ("frame", "column"):
        wrong = (
            _NOT_FRAMES if parameter == "frame" else NOT_A_COLUMN | {"none": None, "taken": "group", "case": "GROUP"}
        )
        frame = pd.DataFrame({"group": ["a", "b", "c"]})
        yield from cases("assign", parameter, _plain(result.assign, frame=frame), wrong)
        yield from cases("weights", parameter, _plain(result.weights, frame=frame), wrong)
    scored = pd.DataFrame(
        {"group": ["a", "b", "c"] * 2, "s": [0.1, 0.9] * 3, "y": [0, 0, 0, 1, 1, 1], "t": list("abcdef")}
    )
    yield from cases(
        "weights", "label", _plain(result.weights, frame=scored), NOT_A_COLUMN | {"by": "group", "none": "z"}
    )
    for name, frame in _OTHER_FRAMES.items():
        yield Case(f"assign frame: {name}", "group", lambda frame=frame: result.assign(frame))
        yield Case(f"weights frame: {name}", "group", lambda frame=frame: result.weights(frame))


_NOT_FRAMES: dict[str, Any] = {k: v for k, v in NOT_A_NUMBER.items() if k != "frame"} | {
    "none": None,
    "path": "no/such/file.csv",
    "series": pd.Series(["a"]),
    "other groups": pd.DataFrame({"group": ["zz", "yy"]}),
    "two of a name": pd.DataFrame([["a", "b"]], columns=["group", "group"]),
    "estimates": three(),
}
_OTHER_FRAMES: dict[str, Any] = {
    "other columns": pd.DataFrame({"x": ["a"]}),
    "lists": pd.DataFrame({"group": [["a"], ["b"]]}),
    "many levels": pd.DataFrame([["a"]], columns=pd.MultiIndex.from_tuples([("group", "x")])),
    "numbers as columns": pd.DataFrame([["a"]]),
}


def of_sequential() -> Iterator[Case]:
    yield from cases("Monitor by folds", "alpha", partial(fl.Monitor, rule="folds"), NOT_A_LEVEL)
    yield from cases("Monitor by folds", "tolerance", partial(fl.Monitor, rule="folds"), _TOLERANCES)

    def update(**bad: Any) -> Any:
        return fl.Monitor(rule="folds").update(bad.pop("estimates", three()), **bad)

    for name, value in _NOT_GROUPS.items():
        yield Case(f"Monitor by folds.update batch: {name}", "estimates", lambda value=value: update(estimates=value))
    for option in ("missing", "new"):
        yield from cases("Monitor by folds.update", option, update, NOT_TEXT | {"unknown": "drop", "empty": ""})
    yield Case("Monitor by folds.update: one group", "estimates", lambda: update(estimates=fl.Estimates([1], [1])))
    state = fl.Monitor(rule="folds")
    state.update(three(theta=[0.0, 0.1, 0.2]))
    saved = state.to_json()
    for name, value in (NONSENSE | {"none": None, "number": 5, "list": [1], "nan": np.nan}).items():
        yield Case(
            f"Monitor by folds.from_json state: {name}", "state", lambda value=value: fl.Monitor.from_json(value)
        )
    for name, damaged in _damaged(saved).items():
        yield Case(f"Monitor by folds.from_json damaged: {name}", "", lambda text=damaged: fl.Monitor.from_json(text))


def of_monitors() -> Iterator[Case]:
    yield from cases("Monitor", "alpha", fl.Monitor, NOT_A_LEVEL)
    yield from cases("Monitor", "looks", fl.Monitor, NOT_A_COUNT | {"zero": 0, "many": 10**6})
    yield from cases("Monitor", "information", fl.Monitor, NOT_POSITIVE)
    words = {name: value for name, value in NOT_TEXT.items() if not callable(value)}
    yield from cases("Monitor", "spending", fl.Monitor, words | {"unknown": "even", "empty": "", "custom": "custom"})
    yield from cases("Monitor", "dependence", fl.Monitor, NOT_TEXT | {"unknown": "none", "empty": ""})
    yield from cases("Monitor", "draws", fl.Monitor, NOT_A_COUNT | {"zero": 0, "few": 5, "many": 10**9})
    yield from cases("Monitor", "seed", fl.Monitor, _SEEDS)

    def update(**bad: Any) -> Any:
        return fl.Monitor(draws=200).update(bad.pop("estimates", three()), **bad)

    yield from cases("Monitor.update", "estimates", update, _NOT_GROUPS)
    for option in ("missing", "new"):
        yield from cases("Monitor.update", option, update, NOT_TEXT | {"unknown": "drop", "empty": ""})
    yield from cases("Monitor.update", "final", update, NOT_A_FLAG)
    yield Case("Monitor.update: one group", "estimates", lambda: update(estimates=fl.Estimates([1], [1])))
    for kind, word in (("counts", fl.binomial([1, 5], 10)), ("welch", fl.welch(three(dof=9)))):
        yield Case(f"Monitor.update: {kind}", "estimates", lambda word=word: update(estimates=word))
    yield from cases("Monitor.load", "path", fl.Monitor.load, NOT_A_PATH | {"no file": "no/such.json"})
    yield from cases("Monitor.save", "path", fl.Monitor().save, NOT_A_PATH)
    monitor = fl.Monitor(looks=3, draws=200)
    monitor.update(three(theta=[0.0, 0.1, 0.2]))
    for name, value in (NONSENSE | {"none": None, "number": 5, "list": [1], "nan": np.nan}).items():
        yield Case(f"Monitor.from_json state: {name}", "state", lambda value=value: fl.Monitor.from_json(value))
    for name, damaged in _damaged_monitor(monitor.to_json()).items():
        yield Case(f"Monitor.from_json damaged: {name}", "", lambda text=damaged: fl.Monitor.from_json(text))


def _damaged_monitor(saved: str) -> dict[str, str]:
    good = json.loads(saved)
    look, seen = good["results"][0], good["data"][0]
    changes: dict[str, list[Any]] = {
        "faultlines_monitor": [None, 1, "2", [], True, 1.5],
        "alpha": [None, "x", 0, 1, 2, True, [], 1e400, -1, 0.06],
        "looks": ["x", 0, -1, True, [], 1.5, 1e400, 4, None],
        "information": ["x", 0, -1, True, [], 1e400, 5.0],
        "spending": [None, 5, "x", "custom", [], "pocock"],
        "dependence": [None, 5, "x", []],
        "draws": [None, "x", 0, 3, True, 1.5, []],
        "seed": [None, "x", -1, True, 1.5],
        "subject": [None, 5, [], {}, good["subject"] | {"metric": 5}, good["subject"] | {"attributes": "group"}],
        "labels": [None, 5, "abc", {}, [], ["a"], ["a", "a", "b"], [None, "b", "c"], [["a"], "b", "c"], [{}, "b", "c"],
                   ["a", "b", "c", "d"], [1e400, "b", "c"]],
        "data": [None, 5, {}, [], [None], [{}], [seen, seen]] + [[seen | {key: value}] for key, value in (
            ("groups", [0, 1]), ("groups", [0, 1, 1]), ("groups", [0, 1, 9]), ("groups", [-1, 1, 2]), ("groups", ["0", 1, 2]),
            ("groups", [0]), ("theta", [1, 2]), ("theta", None), ("theta", ["x", 1, 2]), ("theta", [1e400, 1, 2]), ("se", [0, 1, 1]),
            ("se", [-1, 1, 1]), ("se", None), ("se", [True, 1, 1]), ("n", [1, 1]), ("n", [0, 1, 1]), ("n", [50.0, 1, 1]),
            ("dof", [0.5, 1, 1]), ("dof", ["x", 1, 1]))],
        "results": [None, 5, {}, [], [None], [{}], [look, look]] + [[look | {key: value}] for key, value in (
            ("number", 2), ("number", True), ("information", -1), ("information", 5), ("fraction", 2), ("fraction", 0.5),
            ("spent", 0.01), ("spent", None), ("statistic", "x"), ("statistic", None), ("boundary", "x"), ("pvalue", 2), ("level", -1),
            ("adjusted", 0.01), ("adjusted", 2), ("adjusted", None), ("overall", None), ("overall", {}), ("arms", []))],
        "overall": [None, 5, {}, [], [None], [{}]],
        "cluster_effects": [None, 5, {}, [None], [{}]],
        "small": [None, 5, {}, [None], [{}]],
        "warnings": [None, 5, {}, [None], [{}]],
        "dropped": [None, 5, []],
        "clusters": [None, 5, [["a", "b"], ["c"]], [["a"]], "abc", [[]]],
        "ignored": [None, 5, [], {"x": None}, {"x": "y"}, {"x": -1}, {"x": 0}, {"x": True}],
    }  # fmt: skip
    return _changed(saved, changes)


def _damaged(saved: str) -> dict[str, str]:
    changes: dict[str, list[Any]] = {
        "faultlines_monitor": [None, 1, "1", [], True, 1.5],
        "rule": [None, 5, "x", [], "boundary"],
        "alpha": [None, "x", 0, 1, 2, True, [], 1e400, -1],
        "tolerance": [None, "x", -1, True, [], 1e400],
        "labels": [None, 5, "abc", {}, [], ["a"], ["a", "a", "b"], [None, "b", "c"], [["a"], "b", "c"], [{}, "b", "c"],
                   [["a", []], ["b", []], ["c", []]], [1e400, "b", "c"]],
        "steps": [None, 5, {}, [None], [{}], [{"pvalue": 2, "merged": None}], [{"pvalue": 0, "merged": None}],
                  [{"pvalue": 0.5, "merged": 5}], [{"pvalue": "0.5", "merged": None}], [{"pvalue": True, "merged": None}],
                  [{"pvalue": None, "merged": None}], [{"pvalue": 0.5, "merged": [["a"]]}], [],
                  [{"pvalue": 0.5, "merged": [["zz"], ["yy"]]}], [{"pvalue": 0.5, "merged": None}] * 5,
                  [{"pvalue": 0.5, "merged": "ab"}]],
        "ignored": [None, 5, [], {"x": None}, {"x": "y"}, {"x": -1}, {"x": 1e400}, {"x": 0.5}, {"x": True}],
    }  # fmt: skip
    deep = {"deep in it": saved.replace('"labels": [', '"labels": [' + "[" * 5000, 1)}
    return _changed(saved, changes) | deep


def _changed(saved: str, changes: dict[str, list[Any]]) -> dict[str, str]:
    """What is no JSON or no object, and a saved state without a key or with another value."""
    good = json.loads(saved)
    damaged = {
        "empty": "", "space": " ", "null": "null", "list": "[]", "number": "5", "text": '"x"', "empty object": "{}",
        "half": saved[: len(saved) // 2], "twice": saved + saved, "nul": "\0" + saved, "bom": "\ufeff" + saved,
        "deep": "[" * 100_000, "nan alpha": saved.replace('"alpha": 0.05', '"alpha": NaN'),
    }  # fmt: skip
    for key, values in changes.items():
        damaged[f"no {key}"] = json.dumps({k: v for k, v in good.items() if k != key})
        for i, value in enumerate(values):
            damaged[f"{key} {i}"] = json.dumps(good | {key: value})
    return damaged


def of_simulations() -> Iterator[Case]:
    planted = _plain(simulate.planted, effects=[0.0, 5.0], sizes=[2, 2])
    yield from cases("planted", "profile", planted, NOT_TEXT | {"none": None, "unknown": "flat"})
    yield from cases(
        "planted", "sizes", planted, {"minus": [2, -1], "half": [1.5, 2], "few": [2], "zero": [0, 0], "none": None}
    )
    yield from cases("planted", "effects", planted, {"text": ["a", "b"], "nan": [0, np.nan], "none": None})
    yield from cases("planted", "dof", planted, {"zero": 0, "minus": -1, "nan": np.nan, "text": "x"})
    yield from cases("planted", "seed", planted, {"text": "x", "minus": -1, "half": 0.5})
    yield from cases("null", "groups", simulate.null, {"zero": 0, "minus": -1, "half": 1.5, "text": "x", "none": None})
    yield from cases("asia_africa", "mu", simulate.asia_africa, {"nan": np.nan, "text": "x", "none": None})
    yield from cases("onboarding", "seed", simulate.onboarding, {"text": "x", "minus": -1, "half": 0.5})


def of_self_checks() -> Iterator[Case]:
    rows = pd.DataFrame({"g": ["a", "b"] * 30, "x": np.arange(60.0) % 7})
    call = _plain(fl.self_check, data=rows, by="g", metric=fl.mean("x"), runs=2, guarantee=FEW)
    yield from cases("self_check", "runs", call, NOT_A_COUNT | {"none": None, "zero": 0, "too many": 100_001})
    flags = {name: value for name, value in NOT_A_FLAG.items() if value is not None}  # None: arms where there are any
    yield from cases("self_check", "arms", call, flags | {"without arms": True})
    yield from cases("self_check", "unit", call, NOT_A_COLUMN | {"unknown": "zz"})
    yield from cases("self_check", "alpha", call, NOT_A_LEVEL)
    yield from cases("self_check", "guarantee", call, _GUARANTEES)
    yield from cases("self_check", "tolerance", call, _TOLERANCES)
    yield from cases("self_check", "min_size", call, NOT_A_NUMBER | {"minus": -1})
    yield from cases("self_check", "seed", call, _SEEDS)
    yield from cases("self_check", "metric", call, NOT_TEXT | {"none": None, "text": "mean"})
    yield from cases("self_check", "by", call, NOT_A_COLUMN | {"none": None, "unknown": "zz"})
    not_rows = {key: value for key, value in NONSENSE.items() if key != "frame"}
    yield from cases("self_check", "data", call, not_rows | {"none": None, "estimates": three()})


def of_certificates() -> Iterator[Case]:
    call = _plain(fl.certify, data=three(), gap=1.0)
    gaps = {key: value for key, value in NOT_A_NUMBER.items() if key not in {"list", "array", "range"}}
    yield from cases("certify", "gap", call, gaps | {"none": None, "minus": -1, "two": [1.0, 2.0], "range": range(2)})
    ratios = {key: value for key, value in NOT_POSITIVE.items() if key not in {"list", "array"}}
    above = fl.Estimates([1.0, 2.0], [0.1, 0.1])
    yield from cases("certify as ratio", "gap", _plain(call, data=above, ratio=True), ratios | {"one": 1, "two": 2.0})
    against = {key: value for key, value in NOT_TEXT.items() if key not in {"number", "zero"}}  # fixed values
    against |= {"unknown": "zz", "empty": "", "tuple": ("a", "b"), "list in tuple": (["a"],), "near": "over all"}
    against |= {"no number": np.nan, "no end": -np.inf}
    yield from cases("certify", "against", call, against)
    yield from cases("certify", "ratio", call, NOT_A_FLAG)
    yield from cases("certify", "adverse", call, NOT_TEXT | {"unknown": "worse", "empty": "", "capital": "Low"})
    yield from cases("certify", "alpha", call, NOT_A_LEVEL)
    yield from cases("certify", "seed", call, _SEEDS)
    yield from cases("certify", "min_size", call, NOT_A_NUMBER | {"minus": -1, "large": 101})
    not_rows = {key: value for key, value in NONSENSE.items() if key != "frame"}
    yield from cases("certify", "data", call, not_rows | {"none": None, "one": fl.Estimates([1.0], [1.0])})
    rows = _plain(
        fl.certify, data=pd.DataFrame({"g": ["a", "b"] * 9, "x": range(18)}), by="g", metric=fl.mean("x"), gap=1
    )
    yield from cases("certify", "by", rows, NOT_A_COLUMN | {"none": None, "unknown": "zz"})
    yield from cases("certify", "metric", rows, NOT_TEXT | {"none": None, "text": "mean"})
    for scale in (1e-90, 1e90, 1e-300, 1e300):
        yield Case(
            f"certify data: {scale:g}",
            "",
            lambda scale=scale: fl.certify(fl.Estimates([scale, -scale], [scale, scale]), gap=scale),
            may_hold=True,
        )


def api() -> list[Case]:
    """All cases of the Python interface."""
    sources = (
        of_estimates, of_clustering, of_guarantees, of_many, of_power, of_comparisons, of_metrics, of_results,
        of_sequential, of_monitors, of_simulations, of_self_checks, of_confirm, of_certificates,
    )  # fmt: skip
    return [case for source in sources for case in source()]


def public_parameters() -> Iterator[tuple[str, str]]:
    """Every parameter of every public function and class."""
    for name in fl.__all__:
        thing = getattr(fl, name)
        if callable(thing):
            for parameter in inspect.signature(thing).parameters:
                yield name, parameter
