"""Commands as real processes, in this process, and in forks of one that has imported everything."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir
from typing import TYPE_CHECKING

import pytest

import faultlines as fl
from faultlines import cli

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


def run_here(*arguments: str | Path, cwd: Path | None = None) -> Ended:
    """A command in this process, on streams of its own: a third of the work of a fork, a twentieth of a cold start."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    words, refused, ending, code = list(map(str, arguments)), [], cli._ending, 0

    def note(error: BaseException) -> tuple[str, int]:
        if isinstance(error, fl.InputError):
            refused.append(f"{error.code}: {error.parameter}")
        return ending(error)

    with pytest.MonkeyPatch.context() as patch, chdir(cwd or "."):
        patch.setattr(sys, "argv", ["faultlines", *words])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        patch.setattr(cli, "_ending", note)
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
    for stream in (out, err):
        stream.flush()
    ended = Ended(words, code, *(stream.buffer.getvalue().decode() for stream in (out, err)))
    ended.refused = "".join(refused) or ("usage" if code == 2 else "")
    return ended


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
            os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    os._exit(0)  # DuckDB's binding has much to say about a process that ends with its modules loaded
"""


class Forks:
    """A process that has imported everything, started when it is first asked for; what it forks runs a script."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server: subprocess.Popen[str] | None = None

    def run(self, script: str, arguments: list[str]) -> Done:
        """A script that changes modules or streams, as a process of its own."""
        if self.server is None:
            self.server = subprocess.Popen(
                [sys.executable, "-c", WARM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        out, err = self.folder / "out", self.folder / "err"
        asked = {"script": script, "arguments": arguments, "cwd": str(self.folder), "out": str(out), "err": str(err)}
        self.server.stdin.write(json.dumps(asked) + "\n")
        self.server.stdin.flush()
        code = int(self.server.stdout.readline())
        return Done(arguments, code, out.read_bytes().decode(), err.read_bytes().decode())

    def close(self) -> None:
        """End the process, if it was started."""
        if self.server is not None:
            self.server.communicate()


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
