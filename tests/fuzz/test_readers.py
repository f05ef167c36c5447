"""A fuzz target for each reader of user files and states: whatever is in them, an answer or an `InputError`.

A handful of examples in the everyday suite; ``FAULTLINES_FUZZ=600`` gives each target so many seconds.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import faultlines as fl
from tests.abuse_rows import people

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECONDS = float(os.environ.get("FAULTLINES_FUZZ", "0"))
EXAMPLES = 40  # of each target in the everyday suite
ESTIMATES = fl.Estimates([0.0, 0.1, 5.0], [0.5] * 3, ["DE", "FR", "IN"], [50, 60, 70])


def _quick(result: Any) -> None:
    """Use a result as a reader would."""
    str(result)
    if hasattr(result, "to_json"):
        json.loads(result.to_json(), parse_constant=pytest.fail)


# ---------------------------------------------------------------------------------------------------- what is damaged


@st.composite
def damaged(draw: Any, good: bytes) -> bytes:
    """A good file with some bytes flipped, cut out, doubled or put in."""
    data = bytearray(good)
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        size = draw(st.integers(1, 12))
        match draw(st.sampled_from(["flip", "cut", "double", "insert", "end"])):
            case "flip" if data:
                data[place] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del data[place : place + size]
            case "double":
                data[place:place] = data[place : place + size]
            case "insert":
                data[place:place] = draw(st.binary(min_size=1, max_size=8))
            case _:
                del data[place:]
    return bytes(data)


leaves = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from(
        [10**400, -(10**400), 1e308, -1e308, 5e-324, float("inf"), float("nan"), "", "DE", "\ud800", "a\nb"]
    )
    | st.floats()
    | st.text(max_size=4)
)
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)


@st.composite
def edited(draw: Any, good: Any) -> Any:
    """Good JSON with values replaced, left out or given twice."""
    data = json.loads(json.dumps(good))
    for _ in range(draw(st.integers(1, 3))):
        at = data
        while True:
            steps = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not steps:
                break
            step = draw(st.sampled_from(steps))
            inner = at[step]
            if isinstance(inner, dict | list) and inner and draw(st.integers(0, 3)):
                at = inner
                continue
            match draw(st.sampled_from(["replace", "leave out", "twice"])):
                case "replace":
                    at[step] = draw(anything)
                case "leave out":
                    del at[step]
                case _ if isinstance(at, list):
                    at.append(inner)
            break
    return data


# --------------------------------------------------------------------------------------------------------- the readers


def csv_bytes(frame: pd.DataFrame) -> bytes:
    return str(frame.to_csv(index=False)).encode()


def parquet_bytes(frame: pd.DataFrame) -> bytes:
    held = io.BytesIO()
    pyarrow.parquet.write_table(pa.Table.from_pandas(frame, preserve_index=False), held)
    return bytes(held.getvalue())


SMALL = people().iloc[:60]
COUNTS = pd.DataFrame({"g": ["a", "b", "c"], "n": [100, 120, 90], "s": [10, 60, 11]})
RESULT = json.loads(fl.cluster(ESTIMATES).to_json())


def state() -> Any:
    monitor = fl.Monitor(looks=3, draws=200)
    monitor.update(ESTIMATES)
    return json.loads(monitor.to_json())


def read_rows(name: str) -> Callable[[Any, Path], Any]:
    def read(data: bytes, folder: Path) -> Any:
        (folder / name).write_bytes(data)
        return fl.cluster(folder / name, "g", fl.mean("x"), min_size=3, guarantee="bonferroni")

    return read


def read_aggregates(data: bytes, folder: Path) -> Any:
    (folder / "counts.csv").write_bytes(data)
    return fl.cluster(folder / "counts.csv", "g", fl.rate(fl.aggregated("n", sum="s")), guarantee="bonferroni")


def read_table(data: bytes, folder: Path) -> Any:
    (folder / "lifts.csv").write_bytes(data)
    estimates = fl.Estimates.from_frame(folder / "lifts.csv", by="g", estimate="n", se="s")
    return fl.cluster(estimates, guarantee="bonferroni")


def read_confirmed(data: Any, folder: Path) -> Any:
    return fl.confirm(data, ESTIMATES)


def read_confirmed_text(data: Any, folder: Path) -> Any:
    (folder / "result.json").write_bytes(data)
    return fl.confirm(folder / "result.json", ESTIMATES)


def read_state(data: Any, folder: Path) -> Any:
    (folder / "state.json").write_text(json.dumps(data), encoding="utf-8")
    monitor = fl.Monitor.load(folder / "state.json")
    monitor.to_json()
    return monitor.update(fl.Estimates([0.1, 0.2, 5.0], [0.3] * 3, ["DE", "FR", "IN"], [150, 160, 170]))


class Frame:
    """What `from_metric_frame` looks at of a MetricFrame."""

    sensitive_levels = ("g",)
    control_levels = None
    overall = None
    n_boot = None

    def __init__(self, values: list[Any], counts: list[Any], name: str, labels: list[Any]) -> None:
        self.by_group = pd.DataFrame({name: values, "count": counts}, index=pd.Index(labels, name="g", dtype=object))


@st.composite
def metric_frames(draw: Any) -> Frame:
    size = draw(st.integers(0, 4))
    counts: list[Any] = draw(st.lists(st.integers(1, 300), min_size=size, max_size=size))
    values: list[Any] = [draw(st.integers(0, count)) / count for count in counts]
    labels: list[Any] = [f"g{i}" for i in range(size)]
    for column in (values, counts, labels):
        if size and draw(st.integers(0, 3)) == 0:
            column[draw(st.integers(0, size - 1))] = draw(leaves | st.integers(-2, 300))
    metric = draw(st.sampled_from(["accuracy", "rate", "recall", "selection_rate"]))
    try:
        return Frame(values, counts, metric, labels)
    except UnicodeEncodeError:  # pandas holds no half characters in columns of text
        reject()


def read_metric_frame(data: Frame, folder: Path) -> Any:
    return fl.cluster(fl.from_metric_frame(data), guarantee="bonferroni")


TARGETS: dict[str, tuple[Any, Callable[[Any, Path], Any]]] = {
    "csv": (damaged(csv_bytes(SMALL)), read_rows("rows.csv")),
    "parquet": (damaged(parquet_bytes(SMALL)), read_rows("rows.parquet")),
    "aggregates": (damaged(csv_bytes(COUNTS)), read_aggregates),
    "estimates": (damaged(csv_bytes(COUNTS)), read_table),
    "result": (edited(RESULT), read_confirmed),
    "result as text": (damaged(json.dumps(RESULT).encode()), read_confirmed_text),
    "state": (edited(state()), read_state),
    "MetricFrame": (metric_frames(), read_metric_frame),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TARGETS)
def test_a_reader_answers_or_refuses(name: str, tmp_path: Path) -> None:
    inputs, read = TARGETS[name]
    outcomes: Counter[str] = Counter()
    ends = time.monotonic() + SECONDS

    def try_one(data: Any) -> None:
        try:
            _quick(read(data, tmp_path))
        except fl.InputError as error:
            outcomes[error.code.value if error.parameter and error.problem else "says too little"] += 1
        else:
            outcomes["answered"] += 1

    while True:
        how = settings(
            max_examples=EXAMPLES if not SECONDS else 200,
            deadline=None,
            database=None,
            derandomize=not SECONDS,
            suppress_health_check=list(HealthCheck),
        )
        how(given(inputs)(try_one))()  # type: ignore[no-untyped-call]
        if time.monotonic() >= ends:
            break
    print(name, sum(outcomes.values()), dict(outcomes))
    assert outcomes["answered"] > 0
    assert outcomes["says too little"] == 0
