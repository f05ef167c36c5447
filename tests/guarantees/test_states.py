"""States of monitors: one run at a time, safe between threads, refused when edited, written before a look is shown."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import faultlines as fl
from faultlines.guarantees.state import CHECKSUM, dump_state, lock_state, stage_state
from tests.refused import refused

if TYPE_CHECKING:
    from pathlib import Path

LABELS = ["a", "b", "c", "d"]


def look(day: int, labels: list[Any] | None = None) -> fl.Estimates:
    noise = np.random.default_rng(day).standard_normal(4) * day**-0.5
    return fl.Estimates(noise, np.full(4, day**-0.5), labels or LABELS, n=50.0 * day)


def begun() -> fl.Monitor:
    monitor = fl.Monitor(looks=50, draws=300)
    for day in (1, 2):
        monitor.update(look(day))
    return monitor


def test_a_held_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    with lock_state(path), refused("conflict: state"), lock_state(path):
        pass
    with lock_state(path):
        pass
    assert list(tmp_path.iterdir()) == []


def _update(path: str, day: int) -> int:
    try:
        with fl.Monitor.open(path, looks=50, draws=300) as monitor:
            return len(monitor.update(look(day)).looks)
    except fl.InputError:
        return 0


def test_no_look_is_lost_between_processes(tmp_path: Path) -> None:
    path = str(tmp_path / "state.json")
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        numbers = [number for number in pool.starmap(_update, [(path, day) for day in range(1, 7)]) if number]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
    assert len(fl.Monitor.load(path).result.looks) == len(numbers)


def test_a_killed_run_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    child = os.fork()
    if child == 0:
        with lock_state(path):
            os._exit(1)  # nothing is cleaned up
    os.waitpid(child, 0)
    with lock_state(path):
        pass


def test_a_failed_run_has_not_looked(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    begun().save(path)
    before = path.read_bytes()
    with pytest.raises(fl.InputError), fl.Monitor.open(path) as monitor:
        _look_and_fail(monitor)
    assert path.read_bytes() == before
    with refused("conflict: looks"), fl.Monitor.open(path, looks=9):
        pass


def _look_and_fail(monitor: fl.Monitor) -> None:
    assert len(monitor.update(look(3)).looks) == 3
    monitor.update(look(1))


def test_threads_update_one_monitor(tmp_path: Path) -> None:
    monitor = fl.Monitor(looks=50, draws=300)

    def update(day: int) -> bool:
        try:
            monitor.update(look(day))
            monitor.save(tmp_path / f"{day}.json")
        except fl.InputError:  # a later day came first
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(update, range(1, 17)))
    assert len(monitor.result.looks) == sum(taken)
    for path in tmp_path.iterdir():
        fl.Monitor.load(path)
    assert fl.Monitor.from_json(monitor.to_json()).result == monitor.result


def _changed(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return "x"
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, int | float):
        return value + 1
    return [*value, 1] if isinstance(value, list) else value | {"x": 1}


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a state, inner ones too."""
    inner = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    return [(*path, key) for key, _ in inner] + [place for key, part in inner for place in _places(part, (*path, key))]


def test_every_edit_by_hand_is_refused() -> None:
    saved = begun().to_json()
    places = _places(json.loads(saved))
    assert len(places) > 80
    for place in places:
        state = json.loads(saved)
        part = state
        for key in place[:-1]:
            part = part[key]
        part[place[-1]] = _changed(part[place[-1]])
        with pytest.raises(fl.InputError):
            fl.Monitor.from_json(json.dumps(state))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("subject", None),
        ("subject", {"measure": "m", "attributes": ["a", "b"], "scale": "", "metric": ""}),
        ("subject", {"measure": 1, "attributes": ["group"], "scale": "", "metric": ""}),
        ("subject", {"measure": "m", "attributes": ["group"], "scale": "", "metric": "", "more": 1}),
        ("labels", ["a", "b", "c", "c"]),
        ("labels", ["a", "b", "c"]),
        ("data", []),
        ("results", []),
        ("clusters", [["a"], ["b", "c", "d"]]),
        ("ignored", {"left out": 2}),
        ("rule", "folds"),
        ("draws", None),
        ("spending", "pocock"),
    ],
)
def test_parts_that_do_not_fit_are_refused_also_with_a_checksum(name: str, value: Any) -> None:
    state = json.loads(begun().to_json())
    del state[CHECKSUM]
    assert fl.Monitor.from_json(dump_state(state)).result == begun().result
    with pytest.raises(fl.InputError):
        fl.Monitor.from_json(dump_state(state | {name: value}))


@pytest.mark.parametrize("name", ["groups", "small", "number"])
@pytest.mark.parametrize("value", [10**29, -1, 1.5, True])
def test_counts_of_a_look_are_bounded(name: str, value: Any) -> None:
    state = json.loads(begun().to_json())
    del state[CHECKSUM]
    state["results"][-1][name] = value
    with pytest.raises(fl.InputError):
        fl.Monitor.from_json(dump_state(state))


def test_a_look_has_the_groups_of_its_data() -> None:
    state = json.loads(begun().to_json())
    del state[CHECKSUM]
    state["results"][-1]["groups"] += 1
    with pytest.raises(fl.InputError):
        fl.Monitor.from_json(dump_state(state))


def test_damaged_bytes_are_refused() -> None:
    saved, rng = begun().to_json(), random.Random(0)
    for _ in range(300):
        at = rng.randrange(len(saved))
        damaged = saved[:at] + chr(rng.randrange(32, 127)) + saved[at + 1 :]
        if json.loads(saved) != _parsed(damaged):
            with pytest.raises(fl.InputError):
                fl.Monitor.from_json(damaged)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_refused_before_the_look(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with refused("unwritable file: state"), fl.Monitor.open(tmp_path / "s.json"):
        raise AssertionError


def test_a_staged_state_is_put_in_place_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    with stage_state(path, "one"):
        assert not path.exists()
    assert path.read_text() == "one\n"
    with pytest.raises(RuntimeError), stage_state(path, "two"):
        raise RuntimeError
    assert path.read_text() == "one\n"
    assert list(tmp_path.iterdir()) == [path]


def test_labels_that_are_no_text_survive(tmp_path: Path) -> None:
    labels = ["\ud800", "\udcff", "?", "é"]
    path = tmp_path / "s.json"
    with fl.Monitor.open(path, looks=5, draws=300) as monitor:
        monitor.update(look(1, labels))
    with fl.Monitor.open(path) as monitor:
        assert monitor.update(look(2, labels)).clusters == (tuple(labels),)


def test_a_state_that_cannot_be_written_is_found_before_the_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, looked = tmp_path / "state.json", []
    begun().save(path)
    before = path.read_bytes()
    monkeypatch.setattr("faultlines.files.write", _no_room)
    with refused("unwritable file: state"), fl.Monitor.open(path):
        looked.append(1)
    assert looked == []
    assert path.read_bytes() == before


def _no_room(*_: Any, **__: Any) -> None:
    raise fl.InputError.unwritable_file("state", "cannot be written (full)", "Make room.")


def test_labels_that_are_no_valid_text_survive(tmp_path: Path) -> None:
    labels = ["a\ud800", "\udfffb", "c", "d"]
    monitor = fl.Monitor(looks=50, draws=300)
    monitor.update(look(1, labels))
    monitor.save(tmp_path / "state.json")
    again = fl.Monitor.load(tmp_path / "state.json")
    assert [group.label for group in again.result.groups] == labels
    assert again.update(look(2, labels)) == monitor.update(look(2, labels))
    assert json.loads(again.result.to_json())["clusters"] == [labels]


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="has no such devices")  # noqa: PTH110
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full", "/dev/null"])
def test_a_device_that_never_ends_is_no_file(device: str) -> None:
    with pytest.raises(fl.InputError) as of_load:
        fl.Monitor.load(device)
    with pytest.raises(fl.InputError) as of_confirm:
        fl.confirm(device, look(1))
    assert {of_load.value.code, of_confirm.value.code} == {"unreadable file"}


def test_a_tilde_is_the_home_folder_to_read_as_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for folder in ("home", "~"):
        (tmp_path / folder).mkdir()
    monitor = begun()
    monitor.save("~/state.json")
    fl.Monitor(looks=3).save("./~/state.json")
    assert (tmp_path / "~" / "state.json").exists()
    assert fl.Monitor.load("~/state.json").to_json() == monitor.to_json()
    assert fl.Monitor.load("./~/state.json").looks == 3
