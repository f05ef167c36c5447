"""Commands as real processes: cold ones, and forks of one process that has imported everything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

Done = subprocess.CompletedProcess[str]


class Ended(Done):
    """A command that has ended, and what it refused as a value: "out of range: alpha", or "usage" where Typer did."""

    refused: str = ""


Warm = Callable[..., Ended]
MAIN = "from faultlines.cli import main; main()"
COMMAND = [sys.executable, "-c", MAIN]


def run(*arguments: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> Done:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
        timeout=120,
        env={**os.environ, **(env or {})},
    )


def without_next(text: str) -> str:
    """What a command printed, but for the command to run next: it repeats what was typed."""
    return "\n".join(line for line in text.split("\n") if not line.startswith("Next: ")).rstrip("\n")


WARM = """if True:
    import gc, importlib, io, json, os, pkgutil, sys
    import duckdb, narwhals, narwhals._duckdb.dataframe, pandas
    import faultlines
    for module in pkgutil.walk_packages(faultlines.__path__, "faultlines."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    # What Typer imports late; nothing that starts a thread.
    sys.argv, sys.stderr = ["faultlines", "power", "--groups", "3"], io.StringIO()
    try:
        faultlines.cli.main()
    except SystemExit:
        sys.stderr = sys.__stderr__
    ending, refused = faultlines.cli._ending, []
    def noting(error):
        if isinstance(error, faultlines.InputError):
            refused.append(f"{error.code}: {error.parameter}")
        return ending(error)
    faultlines.cli._ending = noting
    gc.freeze()
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            for number, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(asked[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            os.chdir(asked["cwd"])
            sys.argv = ["faultlines", *asked["arguments"]]
            code = 99
            try:
                exec(asked["script"])
            except SystemExit as end:
                code = end.code or 0
            sys.__stdout__.flush()
            sys.__stderr__.flush()
            with open(asked["refused"], "w") as file:
                file.write("".join(refused))
            os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    os._exit(0)  # DuckDB's binding has much to say about a process that ends with its modules loaded
"""


@contextmanager
def warm_commands(folder: Path) -> Iterator[Warm]:
    """Commands as processes of their own that need not import everything again: forks of one that has."""
    with subprocess.Popen(
        [sys.executable, "-c", WARM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None

        def run_warm(*arguments: str | Path, cwd: Path | None = None, script: str = MAIN) -> Ended:
            out, err, refused = (folder / name for name in ("out", "err", "refused"))
            asked = {
                "script": script,
                "arguments": list(map(str, arguments)),
                "cwd": str(cwd or folder),
                "out": str(out),
                "err": str(err),
                "refused": str(refused),
            }
            server.stdin.write(json.dumps(asked) + "\n")  # type: ignore[union-attr]
            server.stdin.flush()  # type: ignore[union-attr]
            code = int(server.stdout.readline())  # type: ignore[union-attr]
            words = [path.read_bytes().decode() for path in (out, err)]
            ended = Ended(asked["arguments"], code, *words)
            ended.refused = refused.read_text(encoding="utf-8") or ("usage" if code == 2 else "")
            return ended

        yield run_warm
        server.stdin.close()


BY = ("--by", "country", "--estimate", "lift", "--se", "sd")
EXPERIMENT = ("--by", "country", "--variant", "arm", "--control", "A")
MODEL = ("--by", "country", "--y-true", "label", "--positive", "yes")


def is_one_line(stderr: str) -> bool:
    """Whether stderr holds one message for people, and nothing that steers a terminal."""
    return stderr.startswith("faultlines: ") and stderr.endswith("\n") and stderr[:-1].isprintable()


def read_screen(screen: int) -> bytes:
    """All that is left to read of a terminal whose other end is closed."""
    shown = b""
    while True:
        try:
            shown += os.read(screen, 4096)
        except OSError:
            os.close(screen)
            return shown
