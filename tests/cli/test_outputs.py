"""What commands write: checked before the work, whole or not at all, whatever happens."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.cli.running import BY, COMMAND, MODEL, Warm, is_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RATES = (*MODEL, "--y-pred", "pred", "--metric", "accuracy", "--metric", "error_rate")


@pytest.fixture
def folder(table: Path) -> Path:
    """A folder with a table, and the same table by other names."""
    here = table.parent
    (here / "link.csv").symlink_to("lifts.csv")
    (here / "hard.csv").hardlink_to(table)
    (here / "link.html").symlink_to("page.html")
    (here / "loop.json").symlink_to("loop.json")
    (here / "nowhere.json").symlink_to("no/such/file.json")
    (here / "sub").mkdir()
    return here


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        (("--json", "lifts.csv"), "conflict: json"),
        (("--json", "./lifts.csv"), "conflict: json"),
        (("--json", "sub/../lifts.csv"), "conflict: json"),
        (("--json", "link.csv"), "conflict: json"),
        (("--json", "hard.csv"), "conflict: json"),
        (("--json", "page.html", "--report", "page.html"), "duplicate: json, report"),
        (("--json", "page.html", "--report", "./page.html"), "duplicate: json, report"),
        (("--json", "link.html", "--report", "page.html"), "duplicate: json, report"),
        (("--plot", "sub/../page.html", "--report", "link.html"), "duplicate: report, plot"),
        (("--json", "a.svg", "--plot", "./a.svg"), "duplicate: json, plot"),
        (("--json", "sub"), "unwritable file: json"),
        (("--json", ""), "unwritable file: json"),
        (("--json", "no/out.json"), "unwritable file: json"),
        (("--json", "lifts.csv/out.json"), "unwritable file: json"),
        (("--json", "n" * 256), "unwritable file: json"),
        (("--json", "/proc/out.json"), "unwritable file: json"),
        (("--json", "loop.json"), "unwritable file: json"),
        (("--json", "nowhere.json"), "unwritable file: json"),
        (("--report", f"{'n' * 256}.html"), "unwritable file: report"),
        (("--report", "-"), "unwritable file: report"),
        (("--plot", f"{'n' * 256}.svg"), "unwritable file: plot"),
        (("--plot", "x"), "unwritable file: plot"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_work(
    warm: Warm, folder: Path, options: tuple[str, ...], refused: str
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    done = warm("estimates", "lifts.csv", *BY, *options, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.refused == refused
    assert is_one_line(done.stderr)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        (("--json", "shop.csv"), "conflict: json"),
        (("--plot", "a.svg", "--json", "a-2.svg"), "duplicate: json, plot"),
        (("--plot", "a.html", "--report", "a-1.html"), "duplicate: report, plot"),
        (("--plot", f"{'n' * 250}.svg"), "unwritable file: plot"),
    ],
)
def test_patterns_and_numbered_pictures_are_checked_too(
    warm: Warm, shop: Path, options: tuple[str, ...], refused: str
) -> None:
    done = warm("model", "sho?.csv", *RATES, *options, cwd=shop.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.refused == refused


def test_a_plan_does_not_replace_its_table(warm: Warm, folder: Path) -> None:
    done = warm("power", "lifts.csv", "--by", "country", "--se", "sd", "--json", "link.csv", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.refused == "conflict: json"


def test_several_metrics_share_a_page_and_have_numbered_pictures(warm: Warm, shop: Path) -> None:
    here = shop.parent
    done = warm("model", shop, *RATES, "--plot", "a.svg", "--report", "a.html", "--json", "a.json", cwd=here)
    assert done.returncode == 0, done.stderr
    assert {"a-1.svg", "a-2.svg", "a.html", "a.json"} <= {path.name for path in here.iterdir()}
    assert not (here / "a.svg").exists()
    assert "Holm" in (here / "a.html").read_text(encoding="utf-8")


def test_links_and_modes_are_kept(warm: Warm, table: Path) -> None:
    here = table.parent
    (here / "real.json").write_text("old")
    (here / "real.json").chmod(0o640)
    (here / "link.json").symlink_to("real.json")
    assert warm("estimates", table, *BY, "--json", "link.json", cwd=here).returncode == 0
    assert (here / "link.json").is_symlink()
    assert json.loads((here / "real.json").read_text(encoding="utf-8"))["n_groups"] == 40
    assert stat.S_IMODE((here / "real.json").stat().st_mode) == 0o640


def test_json_is_the_data_and_does_not_steer_a_terminal(warm: Warm, tmp_path: Path) -> None:
    names = ["A\x1b[31m", "B\x9b31m", "C\u202egnp", "D\x7f", "E\u2028"]
    path = tmp_path / "t.csv"
    path.write_text("g,x,s\n" + "".join(f"{name},{i},1\n" for i, name in enumerate(names)), encoding="utf-8")
    done = warm("estimates", path, "--by", "g", "--estimate", "x", "--se", "s", "--json", "-")
    assert done.returncode == 0, done.stderr
    assert [group["g"] for group in json.loads(done.stdout)["groups"]] == names
    assert done.stdout.replace("\n", "").isprintable()


# --------------------------------------------------------------------------------------------------------------- faults


@contextmanager
def small_disk(where: Path, size: str) -> Iterator[Path]:
    where.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(where)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no small disk can be made here: {mounted.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", str(where)], check=True)


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs root to mount a small disk")
@pytest.mark.parametrize("option", ["json", "report", "plot"])
def test_a_full_disk_leaves_the_old_file_whole(warm: Warm, table: Path, tmp_path: Path, option: str) -> None:
    with small_disk(tmp_path / "small", "16k") as disk:
        out = disk / {"json": "out.json", "report": "out.html", "plot": "out.svg"}[option]
        out.write_text("old")
        (disk / "rest").write_bytes(bytes(8192))
        done = warm("estimates", table, *BY, f"--{option}", out, "--fail-on-split")
        assert done.returncode == 2
        assert f"--{option} '{out}' cannot be written (No space left on device)" in done.stderr
        assert is_one_line(done.stderr)
        assert out.read_text() == "old"
        assert sorted(path.name for path in disk.iterdir()) == sorted([out.name, "rest"])


SLOW = """if True:
    import os, time
    def slow(number):
        os.write(1, b"writing\\n")
        time.sleep(60)
    os.fsync = slow
    from faultlines.cli import main
    main()
"""


@pytest.mark.parametrize(
    ("option", "sent"),
    [
        ("json", signal.SIGKILL),
        ("report", signal.SIGKILL),
        ("plot", signal.SIGKILL),
        ("json", signal.SIGINT),
        ("report", signal.SIGTERM),
    ],
)
def test_who_is_stopped_while_writing_leaves_the_old_file_whole(
    warm: Warm, table: Path, tmp_path: Path, option: str, sent: signal.Signals
) -> None:
    out = tmp_path / {"json": "out.json", "report": "out.html", "plot": "out.svg"}[option]
    out.write_text("old")
    words = ["estimates", str(table), *BY, f"--{option}", str(out)]
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert any(line == "writing\n" for line in process.stdout)
        assert out.read_text() == "old"
        process.send_signal(sent)
        err = process.communicate(timeout=30)[1]
    assert out.read_text() == "old"
    if sent == signal.SIGINT:
        assert (process.returncode, err) == (130, "faultlines: interrupted\n")
        assert not list(tmp_path.glob(".*.part"))
    else:
        assert process.returncode == -sent
        assert {path.suffix for path in tmp_path.glob(".*")} <= {".part"}  # what is left is not taken for a result
    assert warm("estimates", table, *BY, f"--{option}", out).returncode == 0
    assert out.read_text(encoding="utf-8") != "old"


def test_two_writers_leave_one_whole_file(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    rivals = [
        subprocess.Popen(
            [*COMMAND, "estimates", str(table), *BY, "--json", str(out), "--seed", str(seed)],
            stdout=subprocess.DEVNULL,
        )
        for seed in range(2)
    ]
    seen = set()
    while any(rival.poll() is None for rival in rivals):
        if out.exists():
            seen.add(json.loads(out.read_text(encoding="utf-8"))["guarantee"]["seed"])
        time.sleep(0.002)
    assert {rival.wait() for rival in rivals} == {0}
    assert json.loads(out.read_text(encoding="utf-8"))["guarantee"]["seed"] in {0, 1}
    assert seen <= {0, 1}
    assert not list(tmp_path.glob(".*.part"))


@pytest.fixture
def limited() -> list[str]:
    """What to put before a command so that modes of files count, for root too."""
    if os.geteuid() != 0:
        return []
    prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    if shutil.which("setpriv") is None or subprocess.run([*prefix, "true"], check=False).returncode != 0:
        pytest.skip("root cannot be made to respect the modes of files here")
    return prefix


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("estimates", "closed/t.csv", *BY), "file 'closed/t.csv' cannot be read (Permission denied)"),
        (("estimates", "secret.csv", *BY), "file 'secret.csv' cannot be read (Permission denied)"),
        (("model", "closed/t.csv", *RATES), "file 'closed/t.csv' cannot be read (Permission denied)"),
        (("model", "secret.csv", *RATES), "file 'secret.csv' cannot be read (Permission denied)"),
        (("model", "closed/*.csv", *RATES), "file 'closed/*.csv' "),
        (("estimates", "lifts.csv", *BY, "--json", "closed/out.json"), "--json 'closed/out.json' cannot be written"),
        (
            ("estimates", "lifts.csv", *BY, "--json", "old.json"),
            "--json 'old.json' cannot be written (Permission denied)",
        ),
        (("estimates", "lifts.csv", *BY, "--report", "listed/a.html"), "--report 'listed/a.html' cannot be written"),
        (("estimates", "lifts.csv", *BY, "--plot", "listed/a.svg"), "--plot 'listed/a.svg' cannot be written"),
    ],
)
def test_what_may_not_be_read_or_written(limited: list[str], table: Path, words: tuple[str, ...], problem: str) -> None:
    here = table.parent
    (here / "closed").mkdir()
    (here / "listed").mkdir()
    for name in ("closed/t.csv", "secret.csv"):
        (here / name).write_bytes(table.read_bytes())
    (here / "old.json").write_text("old")
    modes = {"closed": 0, "listed": 0o500, "secret.csv": 0, "old.json": 0o400}
    for name, mode in modes.items():
        (here / name).chmod(mode)
    try:
        done = subprocess.run(
            [*limited, *COMMAND, *words], cwd=here, capture_output=True, text=True, check=False, timeout=60
        )
    finally:
        for name in modes:
            (here / name).chmod(0o700)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr
    assert is_one_line(done.stderr)


def test_the_next_command_repeats_what_was_typed(warm: Warm, tmp_path: Path) -> None:
    rows = ["g,lift,se\n", *(f"g{i},{5 * (i % 2)},{0.5 + i / 100}\n" for i in range(8))]
    (tmp_path / "lifts.csv").write_text("".join(rows), encoding="utf-8")
    (tmp_path / "even.csv").write_text("".join(rows).replace(",5,", ",0,"), encoding="utf-8")
    columns = ("--by", "g", "--estimate", "lift", "--se", "se")

    def next_command(*words: str) -> str:
        lines = [line for line in warm(*words, cwd=tmp_path).stdout.splitlines() if line.startswith("Next: ")]
        return lines[-1].partition("faultlines ")[2] if lines else ""

    confirm = next_command("estimates", "lifts.csv", *columns, "--json", "found.json")
    assert confirm == f"confirm found.json NEW.csv {' '.join(columns)}"
    done = warm(*confirm.replace("NEW.csv", "lifts.csv").split(), cwd=tmp_path)  # runs as it is printed
    assert done.returncode == 0
    assert next_command("estimates", "even.csv", *columns).endswith(f"{' '.join(columns)} --certify GAP")
    narrow = next_command("estimates", "even.csv", *columns, "--certify", "0.1")
    assert narrow.count("--certify") == 1
    assert "PASSED" in warm(*narrow.split(), cwd=tmp_path).stdout
    assert next_command("estimates", "even.csv", *columns, "--certify", "9", "--report", "page.html") == ""
