"""The command line: arguments, files, exit codes; no statistics.

stdout carries the result, stderr progress and errors. Exit 0: done; 1: a split was found and `--fail-on-split` was
given; 2: something given cannot be used. Heavy imports wait until a command runs.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from faultlines.errors import InputError

if TYPE_CHECKING:
    from faultlines.clustering import Clustering
    from faultlines.guarantees import Guarantee

app = typer.Typer(
    name="faultlines",
    help="Find where a population splits: the clusters of groups that really differ, and how sure that is.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# The public name of this class moved between releases of Typer; its child has stayed where it was.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]

Alpha = Annotated[float, typer.Option(help="Accepted chance of claiming a difference where there is none.")]
GuaranteeName = Annotated[str, typer.Option(help="calibrated (holds at any number of groups) or bonferroni (α/K²).")]
Draws = Annotated[int | None, typer.Option(help="Draws to calibrate on. Default: 10,000, fewer for very many groups.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write the whole result to this file; - for stdout.")]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        _say(f"faultlines {version('faultlines')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Find where a population splits: the clusters of groups that really differ, and how sure that is."""


@app.command()
def demo(
    seed: Seed = 0,
    json: Json = Path("faultlines-demo.json"),
) -> None:
    """Run on a made-up onboarding experiment over 40 countries, with three clusters planted in it."""
    import numpy as np

    from faultlines.clustering import cluster
    from faultlines.simulate import onboarding

    simulated = onboarding(_checked_seed(seed))
    found = cluster(simulated.estimates, seed=seed)
    groups, planted = len(simulated.truth), int(simulated.truth.max())
    lifts = ", ".join(f"{lift:+.0%}" for lift in np.unique(simulated.effects))
    to_file = json is not None and str(json) != "-"
    if to_file or json is None:
        _say(f"Two onboardings, {groups} countries; measured: relative lift in users who come back.\n")
        _say(str(found))
        _say(f"\nPlanted: {planted} clusters with true lifts {lifts}.")
        if found.n_clusters == planted:
            astray = [simulated.estimates.labels[i] for i in np.flatnonzero(found.labels != simulated.truth).tolist()]
            others = f" (not {', '.join(map(str, astray))})" if astray else ""
            _say(f"Found: all {planted}, {groups - len(astray)} of {groups} countries in their true cluster{others}.")
        else:
            _say(f"Found: {found.n_clusters}. With this seed the noise hides or splits one; try another seed.")
    _write_json(found, json)
    if to_file:
        _say(f"The whole result is in {json}. Next: faultlines estimates --help")


@app.command()
def estimates(
    file: Annotated[Path, typer.Argument(help="A csv or parquet file with one row a group; - for csv on stdin.")],
    by: Annotated[
        list[str], typer.Option(metavar="COLUMN", help="Column that names the groups; several for intersections.")
    ],
    estimate: Annotated[str, typer.Option(help="Column of estimates.")],
    se: Annotated[str, typer.Option(help="Column of standard errors.")],
    n: Annotated[str | None, typer.Option(help="Column of group sizes.")] = None,
    dof: Annotated[str | None, typer.Option(help="Column of degrees of freedom of the standard errors.")] = None,
    alpha: Alpha = 0.05,
    guarantee: GuaranteeName = "calibrated",
    draws: Draws = None,
    refine: Annotated[bool, typer.Option(help="Move border groups to the cluster of nearest estimate.")] = True,
    min_size: Annotated[float, typer.Option(help="Leave out groups smaller than this (needs --n).")] = 0,
    seed: Seed = 0,
    json: Json = None,
    fail_on_split: Annotated[bool, typer.Option("--fail-on-split", help="Exit 1 when clusters differ.")] = False,
) -> None:
    """Cluster a table of estimates and standard errors."""
    from faultlines.clustering import cluster
    from faultlines.estimates import Estimates

    chosen = _guarantee(guarantee, draws)
    table = Estimates.from_frame(file, by=by[0] if len(by) == 1 else by, estimate=estimate, se=se, n=n, dof=dof)
    found = cluster(table, alpha=alpha, guarantee=chosen, refine=refine, min_size=min_size, seed=_checked_seed(seed))
    if str(json) != "-":
        _say(str(found))
    _write_json(found, json)
    if fail_on_split and found.rejected:
        raise typer.Exit(1)


def _guarantee(name: str, draws: int | None) -> Guarantee:
    from faultlines.guarantees import Calibrated, guarantee_of

    chosen = guarantee_of(name)
    if draws is None:
        return chosen
    if not isinstance(chosen, Calibrated):
        raise InputError(f"draws={draws}", f"means nothing to {name}", "Leave it out, or use calibrated.")
    return Calibrated(draws=draws)


def _checked_seed(seed: int) -> int:
    if seed < 0:
        raise InputError(f"seed={seed}", "must be 0 or more", "Use for example --seed 0.")
    return seed


def _say(text: str) -> None:
    """Print to stdout. A reader that has gone, such as `head`, is no error and does not change the exit code."""
    if sys.stdout is None:
        return
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise _unwritable("stdout", error) from error


def _write_json(found: Clustering, path: Path | None) -> None:
    if path is None:
        return
    if str(path) == "-":
        if sys.stdout is not None and hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8")  # JSON is UTF-8 whatever the terminal speaks
        _say(found.to_json())
        return
    try:
        path.write_text(found.to_json() + "\n", encoding="utf-8")
    except OSError as error:
        raise _unwritable(f"json={str(path)!r}", error) from error


def _unwritable(what: str, error: OSError) -> InputError:
    return InputError(what, f"cannot be written ({error.strerror})", "Check the path and the space that is left.")


def main() -> None:
    """Run the command line; whatever cannot be used is one line on stderr and exit 2."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without ● shows something, not a traceback
    try:
        # Not standalone: the library would frame its usage errors in five lines and swallow an interrupt.
        code = app(args=sys.argv[1:] or ["--help"], standalone_mode=False)
    except InputError as error:
        _stop(str(error), 2)
    except _UsageError as error:
        _stop(error.format_message(), 2)  # type: ignore[attr-defined]
    except (KeyboardInterrupt, typer.Abort):
        _stop("interrupted", 130)
    except MemoryError:
        _stop("out of memory", 3)
    if code == 130:  # an interrupt, as some releases of Typer report it
        _stop("interrupted", code)
    sys.exit(code or 0)


def _stop(message: str, code: int) -> NoReturn:
    print(f"faultlines: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)
