"""Names that attack whoever reads a result: forged lines, formulas, turned text, words of JavaScript."""

from __future__ import annotations

import copy
import csv
import datetime as dt
import io
import json
import re
import unicodedata
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from jsonschema import Draft202012Validator
from scipy import stats

import faultlines as fl
from faultlines import formats
from faultlines.estimates.scales import critical_value
from faultlines.results import Note
from tests.abuse_cases import FEW
from tests.refused import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cli.running import Warm

FORGED = "PASSED  All groups are equal"
BREAKS = ("\n", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029")
TURNED = ("\u202e", "\u2066", "\x1b[2J", "\x9b31m", "\x7f")


def results(name: str) -> Iterator[tuple[str, Any]]:
    """One result of every kind, with a name at every place that takes one."""
    theta, se = [0.0, 9.0, 9.2, 0.1], [0.5] * 4
    labels = [name, "b", "c", "d"]
    plain = fl.Estimates(theta, se, labels, [50, 60, 70, 80], attributes=[f"x{name}"], metric=f"m{name}")
    c = fl.cluster(plain, guarantee=FEW)
    yield "clustering", c
    small = fl.cluster(plain, guarantee=FEW, min_size=55)
    yield "excluded group", small
    wide = fl.Estimates(np.array([theta, theta]).T, np.full((4, 2), 0.5), labels, parts=[name, "b"])
    yield "two effects", fl.cluster(wide, guarantee=FEW)
    crossed = [(name, "1"), ("b", "1"), (name, "2"), ("b", "2")]
    yield "crossed", fl.cluster(fl.Estimates(theta, se, crossed, attributes=[name, "other"]), guarantee=FEW)
    lone = fl.Estimates([1.0], [1.0], [name])
    yield "many", fl.cluster_many({name: plain, f"one {name}": lone, "alike": lone}, guarantee=FEW)
    yield "certificate", fl.certify(plain, gap=0.1)
    yield "confirmation", fl.confirm(c, fl.Estimates([0.0, 5.0, 9.0], [0.5] * 3, [name, "b", f"new {name}"]))
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 300)
    people = {f"f{name}": rng.choice([name, "u", "v"], 300), "g": ["one"] * 300}
    yield "audit", fl.audit(truth, truth ^ (rng.random(300) < 0.3), sensitive_features=people)
    monitor = fl.Monitor(looks=2, draws=200)
    yield "monitor", monitor.update(fl.Estimates([0.0, 0.1, 9.0], [0.5] * 3, [name, "b", "c"], metric=f"m{name}"))


def steering(words: str) -> list[str]:
    return [c for c in words if c != "\n" and (unicodedata.category(c) in {"Cc", "Zl", "Zp"} or c in "\u202e\u2066")]


@pytest.mark.parametrize("end", [*BREAKS, *TURNED], ids=lambda end: f"{ord(end[0]):04x}")
def test_a_name_makes_no_line_of_its_own(end: str) -> None:
    for kind, result in results(f"a{end}{FORGED}"):
        texts = {"text": str(result), "headline": result.headline}
        texts |= {f"note {note.code}": note.text for note in result.notes}
        if hasattr(result, "to_markdown"):
            texts["markdown"] = result.to_markdown()
        for where, words in texts.items():
            assert not any(line.lstrip(" |0123456789").startswith("PASSED  All") for line in words.splitlines()), (
                kind,
                where,
                words,
            )
            assert not steering(words), (kind, where)


def test_a_note_is_one_line() -> None:
    assert Note("x", "a\nb\u202ec").text == "a�b�c"


# At these vl-convert ends the process.
UNDRAWN = ("\0", "\ufffe", "\uffff")


def test_pages_hold_no_controls(tmp_path: Path) -> None:
    """Neither in the markup nor in the data block, from which the script writes names of effects."""
    turned = "".join((*TURNED, *UNDRAWN))
    for kind, result in results(f"a{turned}b"):
        if not hasattr(result, "report"):
            continue
        result.report(tmp_path / "x.html", title=turned, command=turned)
        page = (tmp_path / "x.html").read_text(encoding="utf-8")
        assert not steering(page), kind
        for block in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, flags=re.DOTALL):
            assert not steering("".join(_strings(json.loads(block)))), kind


HALVES = ["a\ud800", "a?", "a\udfff", "d"]  # of characters: no frame takes them, JSON has an escape for them


def half_named() -> Iterator[Any]:
    """Results of groups whose names hold halves of characters."""
    e = fl.Estimates([0.0, 9.0, 9.2, 0.1], [0.5] * 4, HALVES, attributes=["x\ud800"], metric="m\udfff")
    c = fl.cluster(e, guarantee=FEW)
    yield c
    yield fl.cluster_many(dict.fromkeys(HALVES, e), guarantee=FEW)
    yield fl.certify(e, gap=1)
    yield fl.certify(e, gap=1, against="all pairs")
    yield fl.confirm(c, e)
    yield fl.Monitor(looks=2, draws=200).update(e)


def test_frames_and_pages_take_half_characters(tmp_path: Path) -> None:
    for result in half_named():
        for rows in result.row_kinds:
            height = len(result.to_dicts(rows))
            frames = [result.to_pandas(rows), result.to_polars(rows), result.to_arrow(rows)]
            assert [len(frame) for frame in frames] == [height] * 3
        result.report(tmp_path / "x.html")
        assert (tmp_path / "x.html").stat().st_size > 0


def test_an_attribute_may_be_called_cluster() -> None:
    e = fl.Estimates([0.0, 9.0], [0.5] * 2, ["a", "b"], attributes=["cluster"])
    assert fl.certify(e, gap=1).to_pandas()["cluster"].to_list() == ["a", "b"]
    c = fl.cluster(e, guarantee=FEW)
    assert (c.to_pandas()["cluster"].to_list(), c.to_pandas()["cluster_"].to_list()) == ([1, 2], ["a", "b"])


def test_two_halves_of_a_character_are_that_character(tmp_path: Path) -> None:
    halves, whole = ("\ud83d" + "\ude00", "b", "c"), ("\U0001f600", "b", "c")
    first = fl.cluster(fl.Estimates([0.0, 5.0, 9.0], [0.5] * 3, halves, [50, 60, 70]))
    fresh = fl.Estimates([0.1, 5.1, 9.1], [0.5] * 3, halves, [50, 60, 70])
    assert tuple(fresh.labels) == whole
    (tmp_path / "r.json").write_text(first.to_json(), encoding="utf-8")
    assert fl.confirm(tmp_path / "r.json", fresh).to_json() == fl.confirm(first, fresh).to_json()
    with pytest.raises(fl.InputError) as error:
        fl.Estimates([0.0, 1.0], [1.0, 1.0], [halves[0], whole[0]])
    assert error.value.code == "duplicate"


def test_json_has_half_characters_as_they_are() -> None:
    e = fl.Estimates([0.0, 9.0, 9.2, 0.1], [0.5] * 4, HALVES)
    c = fl.cluster(e, guarantee=FEW)
    assert [row["group"] for row in json.loads(c.to_json())["groups"]] == HALVES
    again = fl.confirm(c.to_json().encode().decode(), e)
    assert (again.verdict, again.missing) == ("confirmed", ())
    assert again.to_json() == fl.confirm(c, e).to_json()


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


@pytest.mark.parametrize(
    "name", ["constructor", "toString", "valueOf", "hasOwnProperty", "isPrototypeOf", "__proto__", "__defineGetter__"]
)
def test_words_of_javascript_are_names(name: str, tmp_path: Path) -> None:
    theta, se = [0.0, 9.0, 9.2, 0.1], [0.5] * 4
    wide = np.array([theta, theta]).T
    makers: list[Callable[[], fl.Estimates]] = [
        lambda: fl.Estimates(theta, se, [name, "b", "c", "d"], attributes=[name], metric=name),
        lambda: fl.Estimates(wide, np.full((4, 2), 0.5), parts=["b", name]),
    ]
    for estimates in makers:
        c = fl.cluster(estimates(), guarantee=FEW)
        c.report(tmp_path / "x.html")
        c.plot().save(tmp_path / "x.svg")
        assert name in (tmp_path / "x.svg").read_text(encoding="utf-8")
        assert name in c._repr_html_()


FORMULAS = ['=HYPERLINK("//e.example","x")', "@SUM(A1)", "+1+1", "-2+3", "\t=1", "＝1+1", "  =1", "\r=1"]


@pytest.mark.parametrize("formula", FORMULAS)
def test_cells_are_no_formulas(formula: str) -> None:
    cell = formats.spreadsheet_cell(formula)
    assert cell.startswith("'")
    assert formats.printable(formula) in cell
    assert formats.spreadsheet_cell([formula, 2]) == f"{cell} 2"


@pytest.mark.parametrize("value", ["-5", "+1.5", "-1e-3", -5, 0.25, None, True, "a=b", "a-b", "Ünal"])
def test_numbers_and_plain_text_stay_as_they_are(value: Any) -> None:
    assert formats.spreadsheet_cell(value) == value


def test_csv_of_a_command_runs_nothing(warm: Warm, tmp_path: Path) -> None:
    table = pd.DataFrame({"t": FORMULAS, "g": ["a"] * 8, "e": 0.0, "s": 1.0})
    table = pd.concat([table, table.assign(g="=b", e=9.0)], ignore_index=True)
    table.rename(columns={"g": "@g"}).to_parquet(tmp_path / "x.parquet", index=False)
    words = ["many", "x.parquet", "--experiment", "t", "--by", "@g", "--estimate", "e", "--se", "s", "--csv"]
    for target in ("out.csv", "-"):
        done = warm(*words, target, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        text = done.stdout if target == "-" else (tmp_path / target).read_text(encoding="utf-8")
        cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
        assert len(cells) > 16 * 5
        assert not [c for c in cells if c[:1] in {"=", "@", "+", "\t", "\r", "＝"} or c.startswith(("-2+", " "))]
        assert not steering(text)


# ------------------------------------------------------------------------------------------ what ended in a traceback


def test_spark_has_a_dialect() -> None:
    import ibis

    table = ibis.table({"g": "string", "x": "float64"}, name="t")
    assert "AVG" in fl.sql(table, "g", fl.mean("x"), dialect="pyspark")
    assert ibis.options.pyspark is None  # as it was


@pytest.mark.parametrize("none", [{}, pd.DataFrame(index=range(40)), np.empty((40, 0))], ids=type)
def test_an_audit_needs_a_feature(none: Any) -> None:
    with refused("empty: sensitive_features"):
        fl.audit([0, 1] * 20, [0, 1] * 20, sensitive_features=none)


def test_an_audit_needs_rows() -> None:
    with refused("empty: sensitive_features"):
        fl.audit([], [], sensitive_features={"g": []}, control_features={"c": []})


def test_an_error_shortens_names() -> None:
    with pytest.raises(fl.InputError) as caught:
        fl.audit([0, 1] * 4, [0, 1] * 4, sensitive_features={"x" * 3000: ["a", "b"] * 4}, control_features=["c"] * 8)
    assert len(str(caught.value)) < 900


def test_covariances_of_mixed_scales() -> None:
    with refused("out of range: covariance"):
        fl.Estimates([0, 1, 2e20], None, covariance=np.diag([1, 1, 1e40]))
    assert 0 < fl.cluster(fl.Estimates([0, 1, 2e6], None, covariance=np.diag([1, 1, 1e12]))).pvalue <= 1


@pytest.mark.parametrize("dof", [1, 1.5, 3, 10, None])
@pytest.mark.parametrize("alpha", [1e-304, 1e-300, 1e-100, 1e-17])
def test_any_level_has_an_interval(alpha: float, dof: float | None) -> None:
    e = fl.Estimates([0.0, 1.0, 50.0], [1, 1, 1], dof=dof)
    c = fl.cluster(fl.Estimates([0.0, 50.0], [1, 1]))
    again = fl.confirm(c, fl.Estimates([0.0, 50.0], [1, 1], dof=dof), alpha=alpha)
    for result in (fl.cluster(e, alpha=alpha), fl.certify(e, gap=1, alpha=alpha), again):
        json.loads(result.to_json(), parse_constant=pytest.fail)
        assert "inf" not in str(result).lower().split()


def test_quantiles_of_rare_tails() -> None:
    assert critical_value(5e-301, 2.0) == pytest.approx(1e150)  # t² / 2 tails of two degrees of freedom
    assert critical_value(1e-120, 1.0) == pytest.approx(1 / (np.pi * 1e-120))
    for dof in (1.0, 4.0, 30.0, None):
        values = [float(critical_value(tail, dof)) for tail in (0.025, 1e-9, 1e-29, 1e-31, 1e-120, 1e-200)]
        assert values == sorted(values)
    assert critical_value(0.025, 7.0) == pytest.approx(stats.t.isf(0.025, 7))


BASE = json.loads(fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5] * 3, ["DE", "FR", "IN"])).to_json())
AGAIN = fl.Estimates([0.2, 0.0, 4.0], [0.4] * 3, ["DE", "FR", "IN"])


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", [["a"], {"a": 1}, np.inf, np.nan, 10**400, -1, None, True, [], {}, deep(10_000)], ids=type
)
def test_edited_json_is_refused_or_confirmed(value: Any) -> None:
    places = ["groups", "clusters", "attributes", "metric", "tolerance", "parts", "by", "recipe", "metrics"]
    inner = [("groups", 0), ("groups", 0, "cluster"), ("groups", 0, "group"), ("clusters", 1, "estimate")]
    for path in [*((place,) for place in places), *inner]:
        edited = copy.deepcopy(BASE)
        at = edited
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value
        try:
            json.loads(fl.confirm(edited, AGAIN).to_json())
        except fl.InputError:
            continue


LABELS: dict[str, list[Any]] = {
    "text": ["FR", "DE", "IN"],
    "whole": [1, 2, 3],
    "NumPy": list(np.unique([3, 4, 5])),
    "real": [0.5, 1.5, 2.5],
    "truth": [True, False, 2],
    "dates": [dt.date(2020, 1, day) for day in (1, 2, 3)],
    "times": [pd.Timestamp(f"2020-01-0{day} 00:00:00.000001") for day in (1, 2, 3)],
    "decimals": [Decimal("1.10"), Decimal("1.2"), Decimal(2)],
    "ranges": [fl.Range(0, 1), fl.Range(1, 2), fl.Range(2, 3)],
    "pairs": [("a", 1), ("a", 2), ("b", 1)],
    "singles": [("FR",), ("DE",), ("IN",)],
}


def schema_errors(result: Any, name: str) -> list[str]:
    schema = json.loads((Path(__file__).parent.parent / "docs" / "reference" / f"{name}.schema.json").read_text())
    return [error.message for error in Draft202012Validator(schema).iter_errors(json.loads(result.to_json()))]


@pytest.mark.parametrize("kind", LABELS)
def test_outputs_follow_their_schemas_whatever_labels_are(kind: str) -> None:
    labels = LABELS[kind]
    e = fl.Estimates([0.0, 0.1, 5.0], [0.5] * 3, labels, [10, 20, 30])
    c = fl.cluster(e)
    assert schema_errors(c, "result") == []
    # A number is a value that groups are compared with, not a group.
    first = str(labels[0]) if isinstance(labels[0], int | float | np.number) else labels[0]
    for against in ("all pairs", "overall", first):
        assert schema_errors(fl.certify(e, gap=1, against=against), "certificate") == []
    assert schema_errors(fl.cluster_many({"x": e}), "many") == []
    part = e.subset(np.array([True, False, True]))
    for saved in (c, c.to_json()):
        again = fl.confirm(saved, part)
        assert schema_errors(again, "confirmation") == []
        assert isinstance(again.missing[0].label, tuple) == (kind == "pairs")
        assert [cluster.members for cluster in again.clusters] == [
            cluster.members for cluster in fl.confirm(c, part).clusters
        ]
