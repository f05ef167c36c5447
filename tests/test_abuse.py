"""Thousands of bad inputs: each is refused in one clear line that names the parameter, or answered without a NaN.

What is given is in `abuse_cases` (Python), `abuse_rows` (frames, files, conditions of the data) and `abuse_commands`.
No input may end in another exception, a warning, a NaN, rows that are gone without a word, or a wrong exit code.
"""

# ruff: noqa: E501 - a table of bad inputs reads better in long rows

from __future__ import annotations

import copy
import html
import io
import json
import math
import os
import pickle
import random
import re
import subprocess
import sys
import unicodedata
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import faultlines as fl
from faultlines import formats
from faultlines.analyses import power
from faultlines.estimates import scales
from faultlines.estimates.validation import _LARGEST, _SMALLEST
from faultlines.metrics.measure import measure_all
from faultlines.metrics.table import METRICS
from faultlines.results import Clustering, Experiments, Power
from tests import abuse_cases, abuse_commands, abuse_rows
from tests.abuse_cases import FEW, ODD_NAMES, Case, metric, three
from tests.abuse_rows import SOUND, RowCase, people, write_files
from tests.browsers import chromium
from tests.cli.running import run_here
from tests.refused import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

WEB = "://".join(["http", ""])  # no file of the repository names an address
LONGEST = 900  # characters of a message
ALL = os.environ.get("FAULTLINES_ABUSE") == "all"  # `make stats`; a fixed tenth in the everyday suite
TENTH = 0.1
SEED = 20_240_229  # of the tenth, so that a failure comes back


def sample(cases: Sequence[Any]) -> list[Any]:
    """A fixed tenth of the cases, one at least; all of them with FAULTLINES_ABUSE=all."""
    size = max(1, round(TENTH * len(cases)))
    if ALL or size >= len(cases):
        return list(cases)
    return [cases[i] for i in sorted(random.Random(SEED).sample(range(len(cases)), size))]


@pytest.fixture(scope="module", autouse=True)
def few_simulations() -> Iterator[None]:
    """Five simulated experiments behind a detection limit, not forty: nothing here depends on its value."""
    with pytest.MonkeyPatch.context() as patch:
        if not ALL:
            patch.setattr(power, "_RUNS_FOLLOWED", 5)
        yield


API = abuse_cases.api()


# ----------------------------------------------------------------------------------------------------------- the judge


def complaints(call: Callable[[], Any], parameter: str, must: str, check: Callable[[Any], str] = lambda _: "") -> str:
    """What is wrong with how a call ended; "" where nothing is."""
    try:
        result = call()
    except fl.InputError as error:
        if must == "hold":
            return f"was refused: {error}"
        return of_message(error, parameter)
    except Exception as error:  # a warning too, which pytest makes an error
        return f"ended in {type(error).__name__}: {str(error)[:200]}"
    if must == "refuse":
        return "was accepted"
    try:
        return of_result(result) or check(result)
    except Exception as error:
        return f"its result cannot be used, {type(error).__name__}: {str(error)[:200]}"


def of_message(error: fl.InputError, parameter: str) -> str:
    words = str(error)
    if not (error.parameter and error.problem and error.remedy):
        return f"says too little: {words}"
    if unseen(words):
        return f"its message holds control characters: {words!r}"
    if len(words) > LONGEST:
        return f"its message has {len(words)} characters"
    return "" if parameter in words else f"does not name {parameter}: {words}"


def unseen(words: str) -> list[str]:
    """Characters that steer a terminal, break a line or cannot be written."""
    return [c for c in words if unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"} or c in "\u202e\u2066\u2067"]


def of_result(result: Any) -> str:
    if isinstance(result, Clustering):
        return of_clustering(result)
    if isinstance(result, Experiments):
        return "NaN in a row" if has_nan(result.to_dicts()) else ""
    if isinstance(result, Power):
        return "NaN in a figure" if has_nan(result.to_dict()) else ""
    if isinstance(result, fl.Estimates):
        arrays = (result.theta, result.se, result.natural)
        return "" if all(np.isfinite(array).all() for array in arrays) else "holds NaN"
    return ""


def of_clustering(result: Clustering) -> str:
    if not 0 < result.pvalue <= 1:
        return f"p = {result.pvalue}"
    plain = json.loads(result.to_json(), parse_constant=lambda word: pytest.fail(f"{word} in JSON"))
    rows = [*result.to_dicts(), *result.to_dicts("clusters")]
    if has_nan(plain) or has_nan(rows):
        return "NaN in a row"
    if sorted(set(result.labels.tolist())) != list(range(1, result.n_clusters + 1)):
        return f"clusters are numbered {set(result.labels.tolist())}"
    if len(result.to_dicts()) != len(result.groups) + len(result.excluded):
        return "a group is gone"
    for words in (str(result), result.to_markdown(), repr(result)):
        if odd := unseen(words.replace("\n", "")):
            return f"prints {odd!r}"
        if "nan" in words.lower().split() and "nan" not in words_in(result):
            return "prints nan"
    return ""


def words_in(result: Clustering) -> list[str]:
    """What was named by whoever gave the data."""
    groups = result.groups
    keys = [str(part) for key in groups.keys for part in key]
    parts = groups.estimates.parts if groups.estimates is not None else ()
    arms = [str(arm) for arm in result.readout.arms] if result.readout is not None else []
    return [word for name in (groups.metric, *groups.attributes, *keys, *parts, *arms) for word in name.split()]


def has_nan(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(has_nan, value.values()))
    if isinstance(value, list | tuple):
        return any(map(has_nan, value))
    return isinstance(value, float) and not math.isfinite(value)


def reported(failures: dict[str, str]) -> None:
    """Fail with every case that ended badly."""
    assert not failures, "\n".join(["", *(formats.printable(f"{name}: {why}") for name, why in failures.items())])


# ------------------------------------------------------------------------------------------------------ Python interface


def by_parameter(cases: Sequence[Case]) -> dict[str, list[Case]]:
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.name.split(": ")[0], []).append(case)
    return groups


def judged(case: Case) -> str:
    return complaints(case.call, case.parameter, "either" if case.may_hold else "refuse")


@pytest.mark.parametrize(("parameter", "cases"), by_parameter(sample(API)).items(), ids=by_parameter(sample(API)))
def test_wrong_arguments(parameter: str, cases: list[Case]) -> None:
    reported({case.name: why for case in cases if (why := judged(case))})


def test_there_are_many_of_them() -> None:
    names = [case.name for case in API]
    assert len(set(names)) == len(names) > 3000


# ---------------------------------------------------------------------------------------------- rows, frames and files

ROWS = sample([*abuse_rows.conditions(), *abuse_rows.frames()])


def by_kind(cases: Sequence[RowCase]) -> dict[str, list[RowCase]]:
    kinds: dict[str, list[RowCase]] = {}
    for case in cases:
        kinds.setdefault(re.split(r"[:,]| called| in ", case.name)[0], []).append(case)
    return kinds


def kept_all(result: Any, rows: int, groups: int | None) -> str:
    """Whether every row and every group that went in is accounted for."""
    if not isinstance(result, Clustering) or result.guarantee.shares(3):
        return ""
    sizes = [*(result.groups.n if result.groups.n is not None else []), *(left.n or 0 for left in result.excluded)]
    total = sum(sizes) + sum(result.dropped.values())
    if total != rows:
        return f"{rows} rows went in, {total:g} are accounted for ({result.dropped}, {result.excluded})"
    count = len(result.groups) + len(result.excluded)
    return "" if groups in (None, count) else f"{groups} groups went in, {count} are accounted for"


@pytest.mark.parametrize(("kind", "cases"), by_kind(ROWS).items(), ids=by_kind(ROWS))
def test_odd_rows(kind: str, cases: list[RowCase]) -> None:
    failures = {}
    for case in cases:
        check = lambda result, case=case: kept_all(result, case.rows, case.groups)  # noqa: E731
        if why := complaints(case.call, case.parameter, case.must, check):
            failures[case.name] = why
    reported(failures)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files")
    write_files(path)
    return path


def test_odd_files(folder: Path) -> None:
    failures = {}
    for path in sample(sorted(folder.rglob("*"))):
        must = "hold" if path.name in SOUND else "either"
        check = lambda result: kept_all(result, abuse_rows.ROWS, None)  # noqa: E731
        for case in abuse_rows.cases_of(path):
            if why := complaints(case.call, case.parameter, must, check):
                failures[case.name] = why
    reported(failures)


@pytest.mark.parametrize("name", sample(abuse_rows.ODD_COLUMNS))
def test_a_column_is_found_by_its_name_and_no_other(name: str) -> None:
    plain = fl.measure(people(), "g", fl.mean("x"))
    values = abuse_rows.frames_of(people().assign(**{name: people()["x"] * 2}))
    groups = abuse_rows.frames_of(people().assign(**{name: people()["g"].str.upper()}))
    place = abuse_rows.ODD_COLUMNS.index(name)
    for kind in values if place < 5 else list(values)[place % 4 :][:1]:  # those of old defects everywhere
        measurement = fl.measure(values[kind], "g", fl.mean(name))
        assert measurement.estimates.theta.tolist() == pytest.approx((2 * plain.estimates.theta).tolist()), kind
        measurement = fl.measure(groups[kind], name, fl.mean("x"))
        assert list(measurement.estimates.labels) == ["A", "B", "C"], kind


@pytest.mark.parametrize("name", ["country=XX/part.csv", "x=0/part.parquet", "g=zz/part.csv"])
def test_the_name_of_a_folder_is_not_a_column(name: str, folder: Path) -> None:
    result = abuse_rows.clustered(folder / name)
    assert sorted(map(str, result.estimates.labels)) == ["a", "b", "c"]
    assert result.to_json() == abuse_rows.clustered(folder / "good.csv").to_json()


def test_unreadable_files(folder: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    closed = folder / "closed.csv"
    closed.write_text("g,x\n")
    closed.chmod(0)
    with refused("unreadable file: file"):
        abuse_rows.clustered(closed)


# --------------------------------------------------------------------------------------------------------- command line


def of_command(command: abuse_commands.Command, code: int, out: str, err: str) -> str:
    if code != command.code:
        return f"ended with {code}, not {command.code}: {err.strip()[:200]}"
    if "Traceback" in out + err or unseen((out + err).replace("\n", "")):
        return f"printed {err!r}"
    if code in (2, 3) and (err.count("\n") != 1 or not err.startswith("faultlines: ") or len(err) > LONGEST):
        return f"printed {len(err)} characters in {err.count(chr(10))} lines: {err[:200]}"
    if code == 2 and out:
        return f"printed to stdout as well: {out[:100]}"
    return "printed nan" if "nan" in out.lower().split() else ""


COMMANDS = sample(list(abuse_commands.commands()))


@pytest.mark.parametrize("part", range(8))
def test_bad_commands(part: int, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in folder.iterdir():
        if path.suffix not in {".txt"} and not path.is_dir():
            (tmp_path / path.name).symlink_to(path)
    for name in ("good.csv", "lifts.csv", "link.csv", "hard.csv"):
        (tmp_path / name).unlink()
    for name in ("good.csv", "lifts.csv"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "link.csv").symlink_to("good.csv")
    (tmp_path / "hard.csv").hardlink_to(tmp_path / "good.csv")
    (tmp_path / "folder.csv").mkdir()
    monkeypatch.chdir(tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in ("good.csv", "lifts.csv")}
    failures = {}
    for command in COMMANDS[part::8]:
        done = run_here(*command.words)
        if why := of_command(command, done.returncode, done.stdout, done.stderr):
            failures[command.name] = why
    assert {name: (tmp_path / name).read_bytes() for name in before} == before  # no input was written over
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".faultlines")]
    reported(failures)


# -------------------------------------------------------------------------------------------------- numbers at the edges

GUARANTEES: list[Any] = [FEW, fl.Calibrated(draws=20), fl.Bonferroni(), fl.Holdout(splits=3), fl.Folds()]


@st.composite
def edge_estimates(draw: Any) -> fl.Estimates | None:
    """Estimates anywhere in the range that is accepted; None where it is not."""
    groups = draw(st.integers(1, 5))
    unit = 10.0 ** draw(st.floats(math.log10(_SMALLEST), math.log10(_LARGEST)))
    wide = draw(st.sampled_from([0.0, 1.0, 7.0, 14.9]))
    se = [unit * 10.0 ** draw(st.floats(0, wide)) for _ in range(groups)]
    far = draw(st.sampled_from([0.0, 1e-9, 1.0, 10.0, 1e5, 1e20, 1e49]))
    theta = [unit * far * draw(st.floats(-1, 1)) for _ in range(groups)]
    dof = draw(st.none() | st.lists(st.sampled_from([1, 1.5, 3, 10, 1e6, np.inf]), min_size=groups, max_size=groups))
    try:
        return fl.Estimates(theta, se, dof=dof)
    except fl.InputError:
        return None


@settings(max_examples=50, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(edge_estimates(), st.sampled_from(GUARANTEES), st.sampled_from([0.0, 1e-300, 1e-3, 1.0, 1e3, 1e300]))
def test_p_is_a_number_wherever_estimates_are_accepted(e: fl.Estimates | None, g: Any, tolerance: float) -> None:
    if e is None:
        return
    try:
        result = fl.cluster(e, guarantee=g, tolerance=tolerance)
    except fl.InputError:
        return  # parts that leave too little to estimate from, and the like
    assert 0 < result.pvalue <= 1
    assert not has_nan(result.judged.path.log_pvalues.tolist())
    assert of_clustering(result) == ""


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=lambda g: g.name)
@pytest.mark.parametrize("tolerance", [0.0, 0.01])
def test_numbers_that_had_no_p(guarantee: Any, tolerance: float) -> None:
    small, large = 10 * _SMALLEST, 0.01 * _LARGEST
    numbers = (
        ([-0.79, 0.672], [0.0003, 3e5]),
        ([0, 1e49], [1, 1]),
        ([0.0] * 3, [small] * 3),
        ([large, -large], [large / 2] * 2),
        ([0.0, 0.0, 1.0], [1e-14, 1.0, 9.0]),
    )
    for theta, se in numbers:
        result = fl.cluster(fl.Estimates(theta, se), guarantee=guarantee, tolerance=tolerance)
        assert of_clustering(result) == ""


@pytest.mark.parametrize("unit", [1000 * _SMALLEST, 1e-30, 1.0, 1e30, _LARGEST / 20])
def test_estimated_errors_of_any_unit_have_a_p(unit: float) -> None:
    failures: dict[str, str] = {}
    e = fl.Estimates([0.0, unit, 3 * unit], [unit / 9, unit / 9, unit / 9], dof=[10, 12, np.inf])
    for guarantee in GUARANTEES:
        why = complaints(partial(fl.cluster, e, guarantee=guarantee), "", "hold")
        failures |= {f"dof at {unit:g} by {guarantee.name}": why} if why else {}
    reported(failures)


@pytest.mark.parametrize("name", ["one group", "a plane"])
def test_pages_of_numbers_far_from_zero(name: str, tmp_path: Path) -> None:
    e = fl.Estimates([1e40], [1.0]) if name == "one group" else fl.Estimates([[1e40, 1e40]], [[1.0, 1.0]])
    why = complaints(partial(fl.cluster(e).report, tmp_path / "x.html"), "", "hold")
    reported({f"page of {name} far from zero": why} if why else {})


def test_log_ratios_beyond_all_numbers() -> None:
    def call() -> Clustering:
        e = fl.Estimates([0.0, 800.0], [1.0, 1.0], scale=scales.LOG_RATIO, natural=[0.0, 1e300])
        return fl.cluster(e, guarantee=FEW)

    why = complaints(call, "theta", "either")
    reported({"log ratio of 800": why} if why else {})


def test_draws_without_end_are_refused() -> None:
    """In a process of its own, with a limit: it filled the memory."""
    code = (
        "import faultlines as fl, resource, time; groups = fl.Estimates([0.0, 3.0], [1, 1]); fl.cluster(groups)\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 2,) * 2)\n"
        "fl.cluster(groups, guarantee=fl.Calibrated(draws=10**20))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    reported({} if "InputError: draws " in done.stderr else {"draws of 1e20": f"ended with {done.returncode}"})


def test_rates_without_any_spread_do_not_break_memory() -> None:
    """In a process of its own: the kernel wrote beyond its arrays."""
    code = (
        "import faultlines as fl; from faultlines.estimates.scales import ANSCOMBE\n"
        "e = fl.Estimates([0.0] * 3, [4e-85, 5e-85, 9e-85], scale=ANSCOMBE, natural=[0.0] * 3)\n"
        "for seed in range(5): fl.cluster(e, tolerance=1e-3, guarantee=fl.Calibrated(draws=30), seed=seed)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "MALLOC_CHECK_": "3"},
    )
    good = done.returncode == 0 or "InputError" in done.stderr
    reported({} if good else {"memory": f"the process ended with {done.returncode}: {done.stderr[-200:]}"})


# ------------------------------------------------------------------------------------------------------------ round trips


def by_joblib(thing: Any) -> Any:
    held = io.BytesIO()
    joblib.dump(thing, held)
    held.seek(0)
    return joblib.load(held)


WAYS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),
    "copy": copy.deepcopy,
    "joblib": by_joblib,
}


def whole(result: Clustering) -> Any:
    return result.to_json(), str(result), result.at(0.2).to_json(), result.fingerprint


def all_measured(metrics: list[fl.Metric]) -> Any:
    return [parts[0].estimates.theta.tolist() for parts in measure_all(people(), "g", metrics, min_size=5)]


def things() -> Iterator[tuple[str, Any, Callable[[Any], Any]]]:
    """Everything that may be sent to another process, and what has to be the same there."""
    rates = fl.binomial([10, 12, 60], 200)
    for name, scale in {
        "plain": fl.Scale("mine"),
        "percent": scales.PERCENT,
        "rates": scales.ANSCOMBE,
        "counts": scales.COUNTS,
        "ratios": scales.LOG_RATIO,
        "two": scales.Scales("x", parts=(scales.ANSCOMBE, scales.LOG_RATIO)),
    }.items():
        yield f"scale {name}", scale, lambda s: (s, s.name, s.is_percent, s.is_share, s.bends, s.is_straight)
    near: dict[str, Any] = {"guarantee": FEW, "tolerance": 0.02}
    yield "rates with a tolerance", rates.estimates, lambda e: fl.cluster(e, **near).log_pvalue
    yield "estimates", three(dof=9), lambda e: whole(fl.cluster(e, guarantee=FEW))
    wide = fl.Estimates(np.eye(3)[:, :2], None, effect_covariance=[np.eye(2)] * 3, parts=["a", "b"])
    yield "two effects", wide, lambda e: whole(fl.cluster(e, guarantee=FEW))
    for name, comparison in {
        "binomial": rates,
        "poisson": fl.poisson([1, 2, 30], 2.0),
        "welch": fl.welch(three(dof=9)),
    }.items():
        yield f"comparison {name}", comparison, lambda c: whole(fl.cluster(c, guarantee=FEW))
        yield f"result of {name}", fl.cluster(comparison, guarantee=FEW), whole
    for guarantee in (FEW, fl.Calibrated(30), fl.Bonferroni(), fl.Holdout(0.4), fl.Folds(2)):
        yield f"result by {guarantee}", fl.cluster(three(), guarantee=guarantee), whole
        yield f"guarantee {guarantee}", guarantee, lambda g: (g, whole(fl.cluster(three(), guarantee=g)))
    yield (
        "many",
        fl.cluster_many({"x": three(), "y": rates}, guarantee=FEW),
        lambda m: (m.to_dicts(), str(m), whole(m["x"])),
    )
    apart = fl.cluster(fl.Estimates([0.0, 9.0], [1.0, 1.0]))
    yield "confirmation", fl.confirm(apart, fl.Estimates([0.0, 5.0], [1.0, 1.0])), lambda c: (str(c), c.to_json())
    yield "power", fl.power([1, 1, 1], runs=20, guarantee="bonferroni"), lambda p: p.to_dict()
    yield "invariance", fl.check_merge_invariance(three(), runs=100), str
    yield "hierarchy", fl.agglomerate(three()), lambda h: h.to_linkage().tolist()
    sequential = fl.Monitor(rule="folds")
    yield "decision", sequential.update(three()), str
    yield "sequential", sequential, lambda s: s.to_json()
    monitor = fl.Monitor(looks=3, draws=200)
    yield "monitored", monitor.update(three()), lambda m: (str(m), m.to_dict())
    yield "monitor", monitor, lambda m: (m.to_json(), str(copy.deepcopy(m).update(three(n=200, se=[0.5, 0.5, 0.5]))))
    yield "error", fl.InputError("a", "is b", "Do c.", value=1), lambda e: (str(e), e.parameter, e.problem, e.remedy)
    yield "metrics", [metric(name) for name in METRICS], all_measured
    yield "joint", fl.joint(fl.rate("p"), fl.mean("x")), lambda m: fl.measure(people(), "g", m).estimates.theta.tolist()
    binned = abuse_rows.clustered(people(), fl.bins("x", quantiles=3))
    yield "binned", binned, lambda c: (whole(c), c.assign(people())["cluster"].tolist())
    yield "rule", binned.clusters[0].rule, lambda r: (str(r), r.matches, r.covers)
    yield "cluster", binned.clusters[0], lambda c: (c.members, c.estimate, c.se, c.ci, str(c.rule))
    yield "level", binned.path()[0], lambda level: level.labels.tolist()
    yield (
        "measurement",
        fl.measure(people(), "g", fl.mean("x")),
        lambda m: (m.estimates.theta.tolist(), m.excluded, m.dropped),
    )
    yield "small things", (fl.bins("x", width=5), fl.aggregated("n", mean="m"), fl.Range(1, 2), fl.Input("x")), repr


def test_what_is_sent_to_another_process_stays_what_it_is() -> None:
    for name, thing, same in things():
        before = same(thing)
        for way, sent in WAYS.items():
            assert same(sent(thing)) == before, f"{name} by {way}"


# ---------------------------------------------------------------------------------------------------------- odd names


def named(name: str) -> Iterator[tuple[str, fl.Estimates]]:
    theta, se = [0.0, 9.0, 9.2, 0.1], [0.5] * 4
    yield "label", fl.Estimates(theta, se, [name, "b", "c", "d"])
    tuples = [(name, "1"), ("b", "1"), (name, "2"), ("b", "2")]
    yield "tuple", fl.Estimates(theta, se, tuples, attributes=["first", "second"])
    yield "measure", fl.Estimates(theta, se, metric=name)
    if name:
        yield "attribute", fl.Estimates(theta, se, attributes=[name])
        wide = np.array([theta, theta]).T
        yield "part", fl.Estimates(wide, np.full((4, 2), 0.5), parts=[name, "b"])


OUTPUTS: dict[str, Callable[[Clustering], Any]] = {
    "headline": lambda c: c.headline,
    "str": str,
    "repr": repr,
    "json": lambda c: c.to_json().encode(),
    "markdown": lambda c: c.to_markdown().encode(),
    "dicts": lambda c: (c.to_dicts(), c.to_dicts("clusters")),
    "pandas": lambda c: (c.to_pandas(), c.to_pandas("clusters")),
    "polars": lambda c: (c.to_polars(), c.to_polars("clusters")),
    "arrow": lambda c: (c.to_arrow(), c.to_arrow("clusters")),
    "rules": lambda c: [str(cluster.rule) for cluster in c.clusters],
    "explained": lambda c: [str(share) for share in c.explained()],
    "fingerprint": lambda c: c.fingerprint,
}


@pytest.mark.parametrize("name", sample(list(ODD_NAMES)))
def test_odd_names_in_every_output(name: str) -> None:
    failures = {}
    for place, estimates in named(ODD_NAMES[name]):
        result = fl.cluster(estimates, guarantee=FEW)
        if why := of_clustering(result):
            failures[f"{name} as {place}"] = why
        for what, output in OUTPUTS.items():
            try:
                printed = output(result)
            except Exception as error:
                failures[f"{name} as {place} in {what}"] = f"{type(error).__name__}: {error}"
                continue
            if what in {"headline", "repr"} and unseen(printed):
                failures[f"{name} as {place} in {what}"] = repr(printed)
    reported(failures)


@pytest.mark.parametrize("name", ["html", "surrogate", "long"])
def test_odd_names_on_pages(name: str, tmp_path: Path) -> None:
    for _, estimates in list(named(ODD_NAMES[name]))[1:3]:
        result = fl.cluster(estimates, guarantee=FEW)
        result.report(tmp_path / "x.html", title=ODD_NAMES[name], command=ODD_NAMES[name])
        page = (tmp_path / "x.html").read_text(encoding="utf-8")
        assert len(re.findall(r"<script\b", page)) == 2
        assert "<svg onload" not in page
        assert "<svg onload" not in result._repr_html_()


ATTACK = ODD_NAMES["html"]


@cache
def attacked() -> Clustering:
    labels = [ATTACK, "a", '"><img src=x onerror=alert(2)>', "<!--", "${alert(3)}"]
    effects = [0.0, 9.0, 9.4, 0.3, 9.1]
    about: dict[str, Any] = {"attributes": ["<b>x</b>"], "metric": "</script><script>alert(4)</script>"}
    return fl.cluster(fl.Estimates(effects, [0.5] * 5, labels, **about), guarantee=FEW)


def test_markdown_makes_neither_html_nor_links() -> None:
    hostile = [
        ATTACK, "[x](javascript:alert(1))", f"![x]({WEB}e.example/x.png)", "<img src=x>", f"{WEB}evil.example",
        "WWW.evil.example", "a@evil.example", "`code`", "a|b", "a\nb\n# h", f"<{WEB}e.example>", "http&#58;//evil", "ftp://e.example",
        "mailto:a@b.c", f"\\[x]({WEB}e.example)", f"[x]: {WEB}e.example", "<!-- -->", "&lt;b&gt;", "[^1]", "\\", "\\|",
    ]  # fmt: skip
    failures = {}
    for label in hostile:
        e = fl.Estimates([0.0, 9.0, 9.1], [0.5] * 3, [label, "b", "c"], metric=label)
        result = fl.cluster(e, guarantee=FEW).to_markdown()
        table = [line for line in result.splitlines() if line.startswith("|")]
        shown = re.sub(r"\\(.)", r"\1", html.unescape(table[2]))
        if re.search(r"<|(?<!\\)\[|://|(?i:www\.)|@", result):
            failures[f"markdown of {label}"] = result
        elif len({len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in table}) != 1:
            failures[f"markdown of {label}"] = f"another number of cells: {result}"
        elif formats.printable(label.replace("\n", "�")) not in shown:
            failures[f"markdown of {label}"] = f"reads {shown}"
    reported(failures)


def chart_pages() -> dict[str, Callable[[Path], str]]:
    """Every way in which a chart becomes HTML."""

    def saved(path: Path, **options: Any) -> str:
        attacked().plot().save(path, **options)
        return path.read_text(encoding="utf-8")

    def held(path: Path) -> str:
        buffer = io.StringIO()
        attacked().plot().save(buffer, "html")
        return buffer.getvalue()

    def shown(path: Path) -> str:
        bundle = attacked().plot()._repr_mimebundle_()
        return str(bundle)

    return {
        "save": saved,
        "save with options": lambda path: saved(path, embed_options={"actions": False}),
        "save to a buffer": held,
        "to_html": lambda path: str(attacked().plot().to_html()),
        "notebook": shown,
    }


@pytest.mark.parametrize("way", chart_pages())
def test_charts_hold_no_script_from_the_data(way: str, tmp_path: Path) -> None:
    page = chart_pages()[way](tmp_path / "x.html")
    failures = {}
    if ATTACK in page or "</script><script>alert" in page:
        failures[f"chart {way}: script"] = "a name of a group ends the script"
    if way.startswith("save") and "Content-Security-Policy" not in page:
        failures[f"chart {way}: policy"] = "there is no Content-Security-Policy"
    reported(failures)


def test_a_chart_in_a_real_browser(tmp_path: Path) -> None:
    """It is drawn, and nothing of what the data say is run."""
    path = tmp_path / "chart.html"
    attacked().plot().save(path)
    said: list[str] = []
    asked: list[str] = []
    with chromium() as browser:
        page = browser.new_context(offline=True).new_page()

        def dismissed(dialog: Any) -> None:
            said.append(f"dialog {dialog.message}")
            dialog.dismiss()

        page.on("dialog", dismissed)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("svg, canvas", timeout=10_000)
        page.wait_for_timeout(200)
        drawn = page.evaluate("document.querySelector('svg, canvas').getBoundingClientRect().width")
        images = page.locator("img").count()
    assert said == []
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [path.as_uri()]
    assert drawn > 100
    assert images == 0
