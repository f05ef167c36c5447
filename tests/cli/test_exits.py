"""How commands end: defects, memory, interrupts, streams that are closed, full, or no files at all."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from tests.cli.running import BY, COMMAND, Forks, is_one_line, read_screen

SPOILT = """if True:
    import sys
    import faultlines.cli.commands, faultlines.analyses.cluster
    from faultlines.cli import main
    def spoilt(*_, **__):
        {raising}
    faultlines.analyses.cluster.cluster = spoilt
    main()
"""


@pytest.mark.parametrize(
    ("raising", "code", "words"),
    [
        (
            "raise ZeroDivisionError('by \\x1b[31mzero\\nand more')",
            70,
            "internal error (ZeroDivisionError: by �[31mzero); set FAULTLINES_TRACEBACK=1 to see where\n",
        ),
        ("raise RecursionError", 70, "internal error (RecursionError: RecursionError)"),
        ("raise OSError(5, 'Input/output error')", 70, "internal error (OSError: "),
        ("raise type('PanicException', (BaseException,), {})('rust')", 70, "internal error (PanicException: rust)"),
        ("sys.exit(1)", 70, "internal error (SystemExit: 1)"),
        ("raise EOFError", 70, "internal error (EOFError: EOFError)"),
        ("raise MemoryError", 2, "faultlines: error: out of memory. Use fewer"),
        ("raise OSError(28, 'No space left on device')", 2, "faultlines: error: No space left on device."),
        ("raise KeyboardInterrupt", 130, "faultlines: interrupted\n"),
    ],
)
def test_nothing_unexpected_ends_with_the_code_of_the_gate(
    forks: Forks, table: Path, raising: str, code: int, words: str
) -> None:
    done = forks.run(SPOILT.format(raising=raising), ["estimates", str(table), *BY, "--fail-on-split"])
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert is_one_line(done.stderr)


def test_the_traceback_is_there_for_the_asking(table: Path) -> None:
    script = SPOILT.format(raising="raise ZeroDivisionError('\\x1b[31m')")
    words = [sys.executable, "-c", script, "estimates", str(table), *BY]
    surroundings = {**os.environ, "FAULTLINES_TRACEBACK": "1"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=surroundings)
    assert done.returncode == 70
    assert "Traceback (most recent call last)" in done.stderr
    assert "in spoilt" in done.stderr
    assert "\x1b" not in done.stderr
    assert "internal error (ZeroDivisionError" in done.stderr.splitlines()[-1]


# ------------------------------------------------------------------------------------------------------------ streams


def shell(words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = f"{sys.executable} -c 'from faultlines.cli import main; main()'"
    return subprocess.run(
        ["bash", "-c", words.replace("faultlines", command)], capture_output=True, text=True, check=False, cwd=cwd
    )


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("faultlines estimates - {by} <&-", 2, "file '-'"),
        ("faultlines estimates - {by} </dev/null", 2, "file '-' is empty"),
        ("faultlines estimates lifts.csv {by} 2>&-", 0, ""),
        ("faultlines estimates lifts.csv {by} --alpha 9 2>&-", 2, ""),
        ("faultlines estimates lifts.csv {by} --fail-on-split >&- 2>&-", 1, ""),
        ("faultlines estimates lifts.csv {by} --json out.json <&- >&- 2>&-", 0, ""),
        ("faultlines estimates lifts.csv {by} --alpha 9 2>/dev/full", 2, ""),
        ("faultlines --help >&-", 0, ""),
        ("faultlines --help >/dev/full", 2, "No space left on device"),
        ("faultlines --version >/dev/full", 2, "stdout cannot be written (No space left on device)"),
        ("set -o pipefail; faultlines --help | true", 0, ""),
        ("set -o pipefail; faultlines estimates lifts.csv {by} --fail-on-split | true", 1, ""),
    ],
)
def test_closed_and_full_streams(table: Path, words: str, code: int, said: str) -> None:
    done = shell(words.format(by=" ".join(BY)), table.parent)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert done.stderr == "" if not said else is_one_line(done.stderr)
    if "--json" in words:  # nothing that a library prints went into a file that took the number of a closed stream
        assert (table.parent / "out.json").read_text(encoding="utf-8").startswith("{")


ODD = """if True:
    import sys
    class Odd:
        def __init__(self): self.got = []
        def write(self, words): self.got.append(words)
        def flush(self): pass  # Python itself asks for it
    {odd}
    from faultlines.cli import main
    try:
        main()
    finally:
        out = sys.stdout.got if isinstance(sys.stdout, Odd) else []
        print(len(out), file=sys.__stderr__)
"""


@pytest.mark.parametrize(
    "odd",
    ["sys.stderr = None", "sys.stdout = None", "sys.stderr = Odd()", "sys.stdout = Odd()", "sys.stdin = None"],
)
@pytest.mark.parametrize("options", [(), ("--alpha", "9"), ("--json", "-")])
def test_streams_that_are_none_or_can_only_write(forks: Forks, table: Path, odd: str, options: tuple[str, ...]) -> None:
    words, script = ["estimates", str(table), *BY, *options], ODD.format(odd=odd)
    done: subprocess.CompletedProcess[str]
    if options:
        done = forks.run(script, words)
    else:  # in a cold process too, whose end flushes what is left
        done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
    assert done.returncode == (2 if "--alpha" in options else 0), done.stderr
    assert "Traceback" not in done.stderr
    if odd == "sys.stdout = Odd()" and not options:
        assert int(done.stderr) > 0
    if odd == "sys.stderr = None":
        assert "faultlines: " not in done.stdout  # an error does not go where results go


# --------------------------------------------------------------------------------------------------------- interrupts


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that takes DuckDB some seconds."""
    path = tmp_path_factory.mktemp("large") / "large.csv"
    block = "".join(f"{i % 50},{i * 7919 % 100_000 / 1e5},{i % 3 % 2}\n" for i in range(100_000))
    with path.open("w", encoding="ascii") as file:
        file.write("g,s,y\n")
        for _ in range(300):
            file.write(block)
    return path


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of many units, which take DuckDB some seconds to add up."""
    path = tmp_path_factory.mktemp("units") / "units.parquet"
    rows = "SELECT i // 3 AS u, i // 3 % 50 AS g, CASE i // 150 % 2 WHEN 0 THEN 'A' ELSE 'B' END AS arm, i % 7 AS x"
    with duckdb.connect() as engine:
        engine.execute(f"COPY ({rows} FROM range(12_000_000) t(i)) TO '{path}'")
    return path


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at the open files of a process")
@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("model", ("--metric", "brier", "--y-true", "y", "--score", "s")),
        ("model", ("--metric", "auc", "--y-true", "y", "--score", "s")),
        ("experiment", ("--metric", "lift:x", "--variant", "arm", "--control", "A", "--unit", "u")),
    ],
)
def test_an_interrupt_during_a_scan_is_answered_within_a_second(
    large: Path, units: Path, tmp_path: Path, command: str, options: tuple[str, ...]
) -> None:
    path, out = large if command == "model" else units, tmp_path / "out.json"
    with subprocess.Popen(
        [*COMMAND, command, str(path), "--by", "g", *options, "--json", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        _wait_until_read(process, path)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)
    assert time.monotonic() - sent < 2  # a second, and what a busy machine adds
    assert (process.returncode, *said) == (130, "", "faultlines: interrupted\n")
    assert not out.exists()


def _wait_until_read(process: subprocess.Popen[str], path: Path) -> None:
    """Wait until an engine has had the file open for a while."""
    seen, deadline = 0, time.monotonic() + 60
    while seen < 3 and time.monotonic() < deadline:
        assert process.poll() is None, "it was over before it could be interrupted"
        seen = seen + 1 if _has_open(process.pid, path) else 0
        time.sleep(0.1)
    assert seen >= 3


def _has_open(pid: int, path: Path) -> bool:
    try:
        return path in [entry.readlink() for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:  # a file that was closed meanwhile
        return False


STARTING = """if True:
    import sys
    class Interrupting:
        def find_spec(self, name, *_):
            if name == "{module}":
                raise KeyboardInterrupt
    sys.meta_path.insert(0, Interrupting())
    from faultlines.cli import main
    main()
"""


@pytest.mark.parametrize("module", ["typer", "faultlines.cli.commands", "numpy", "faultlines.analyses.cluster"])
def test_an_interrupt_while_it_starts_is_no_traceback(table: Path, module: str) -> None:
    script = [sys.executable, "-c", STARTING.format(module=module), "estimates", str(table), *BY]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "faultlines: interrupted\n")


def test_nothing_is_drawn_on_a_terminal_by_names(tmp_path: Path) -> None:
    """What a terminal gets on either stream, byte by byte."""
    path = tmp_path / "t.csv"
    path.write_bytes(b"g\x1b[31m,x,s\nA\x1b]0;title\x07,0,1\nB\xc2\x9b31m,9,1\n")
    screen, terminal = pty.openpty()
    words = ["estimates", str(path), "--by", "g\x1b[31m", "--estimate", "x", "--se", "s"]
    done = subprocess.run([*COMMAND, *words], stdout=terminal, stderr=terminal, check=False)
    os.close(terminal)
    shown = read_screen(screen)
    assert done.returncode == 0
    assert b"2 clusters" in shown
    assert not {b"\x1b", b"\x07", b"\xc2\x9b"} & {shown[i : i + n] for n in (1, 2) for i in range(len(shown))}
