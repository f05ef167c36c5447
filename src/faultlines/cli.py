"""The command line: arguments, files, exit codes; no statistics.

stdout carries the result, stderr progress and errors. Exit 0: done; 1: a split was found and `--fail-on-split` was
given; 2: something given cannot be used. Heavy imports wait until a command runs.
"""

from __future__ import annotations

import os
import re
import sys
from json import dumps
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from faultlines.errors import InputError, did_you_mean, unwritable

if TYPE_CHECKING:
    from faultlines.clustering import Clustering
    from faultlines.groups import Bins
    from faultlines.guarantees import Guarantee
    from faultlines.metrics import Metric

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
GuaranteeName = Annotated[
    str,
    typer.Option(
        help="calibrated, stepdown (finer), holdout or holdout:0.3, folds or folds:10, bonferroni (the paper's α/K²)."
    ),
]
Tolerance = Annotated[
    float, typer.Option(help="Take effects as alike that are at most so far apart, in units of the metric.")
]
Draws = Annotated[int | None, typer.Option(help="Draws to calibrate on. Default: 10,000, fewer for very many groups.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
FailOnSplit = Annotated[bool, typer.Option("--fail-on-split", help="Exit 1 when clusters differ.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write the whole result to this file; - for stdout.")]
Report = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Write a page to hand over: one HTML file, no network.")
]
Title = Annotated[str | None, typer.Option(help="What stands at the head of the page.")]
Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot", metavar="FILE", help="Draw the clusters: .svg, .png or .html; several metrics are numbered."
    ),
]


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
    report: Report = Path("faultlines-demo.html"),
    plot: Plot = None,
) -> None:
    """Run on a made-up onboarding experiment over 40 countries, with three clusters planted in it."""
    import numpy as np

    from faultlines.clustering import cluster, missing_for_report
    from faultlines.simulate import onboarding

    if seed < 0:  # as `cluster` would say, but data come first here
        raise InputError(f"seed={seed}", "must be 0 or more", "Use for example --seed 0.")
    missing = missing_for_report()
    if missing:  # the demo goes on without the extra
        print(
            f"faultlines: no page without {', '.join(missing)}. Run: pip install 'faultlines[report]'", file=sys.stderr
        )
        report = plot = None
    _check_pictures(report, plot)
    simulated = onboarding(seed)
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
    _write_json([found], json, found.alpha)
    _write_pictures([found], found.alpha, report, plot)
    if to_file:
        page = "" if report is None else f"The page to look at is {report}; "
        _say(f"{page}{'T' if report is None else 't'}he whole result is in {json}. Next: faultlines estimates --help")


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
    tolerance: Tolerance = 0.0,
    refine: Annotated[bool, typer.Option(help="Move border groups to the cluster of nearest estimate.")] = True,
    min_size: Annotated[float, typer.Option(help="Leave out groups smaller than this (needs --n).")] = 0,
    seed: Seed = 0,
    json: Json = None,
    report: Report = None,
    title: Title = None,
    plot: Plot = None,
    fail_on_split: FailOnSplit = False,
) -> None:
    """Cluster a table of estimates and standard errors."""
    from faultlines.clustering import cluster
    from faultlines.estimates import Estimates

    chosen = _guarantee(guarantee, draws)
    _check_pictures(report, plot)
    table = Estimates.from_frame(file, by=by[0] if len(by) == 1 else by, estimate=estimate, se=se, n=n, dof=dof)
    found = cluster(
        table, alpha=alpha, guarantee=chosen, tolerance=tolerance, refine=refine, min_size=min_size, seed=seed
    )
    if str(json) != "-":
        _say(str(found))
    _write_json([found], json, alpha)
    _write_pictures([found], alpha, report, plot, title)
    if fail_on_split and found.rejected:
        raise typer.Exit(1)


Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="csv or parquet files, or patterns of them.")]
By = Annotated[
    list[str],
    typer.Option(
        metavar="COLUMN", help="Attribute; several for intersections. age:5 cuts in fives, age:q10 in tenths."
    ),
]
MinSize = Annotated[float | None, typer.Option(help="Rows a group needs in every arm. Default: 20.")]
Weight = Annotated[str | None, typer.Option(help="Column of weights.")]
SplitUnit = Annotated[
    str | None, typer.Option(help="For holdout and folds: column whose values stay together. Default: --unit, if any.")
]
Joint = Annotated[bool, typer.Option("--joint", help="Take all metrics together: similar means equal in every one.")]


@app.command()
def experiment(
    files: Files,
    by: By,
    metric: Annotated[
        list[str],
        typer.Option(
            metavar="KIND:COLUMN", help="difference:x, lift:x, ratio_difference:x/y or ratio_lift:x/y; several."
        ),
    ],
    variant: Annotated[str, typer.Option(help="Column of variants.")],
    control: Annotated[str, typer.Option(help="Its value for the control.")],
    treatment: Annotated[
        str | None, typer.Option(help="Its value for the treatment, if there are more than two.")
    ] = None,
    unit: Annotated[str | None, typer.Option(help="Column of the randomised unit; rows are summed to it.")] = None,
    covariate: Annotated[str | None, typer.Option(help="Column measured before the experiment, for CUPED.")] = None,
    weight: Weight = None,
    joint: Joint = False,
    alpha: Alpha = 0.05,
    guarantee: GuaranteeName = "calibrated",
    draws: Draws = None,
    split_unit: SplitUnit = None,
    tolerance: Tolerance = 0.0,
    min_size: MinSize = None,
    seed: Seed = 0,
    json: Json = None,
    report: Report = None,
    title: Title = None,
    plot: Plot = None,
    fail_on_split: FailOnSplit = False,
) -> None:
    """Which groups react differently to the treatment? From the rows of an experiment."""
    from faultlines import metrics

    options = {
        "variant": variant,
        "control": control,
        "treatment": treatment,
        "unit": unit,
        "covariate": covariate,
        "weight": weight,
    }
    made = []
    for wanted in metric:
        kind, _, column = wanted.partition(":")
        names = column.split("/") if kind.startswith("ratio") else [column]
        known = {"difference": 1, "lift": 1, "ratio_difference": 2, "ratio_lift": 2}
        if kind not in known:
            raise InputError(f"metric={wanted!r}", "is not known", did_you_mean(kind, known))
        if len(names) != known[kind] or not all(names):
            form = "lift:revenue" if known[kind] == 1 else "ratio_lift:clicks/views"
            raise InputError(f"metric={wanted!r}", "does not name its columns", f"Write it as in {form}.")
        made.append(getattr(metrics, kind)(*names, **options))
    chosen = _guarantee(guarantee, draws, split_unit)
    _rows(files, by, made, joint, alpha, chosen, tolerance, min_size, seed, json, report, title, plot, fail_on_split)


_SCORED = ("auc", "log_loss", "brier", "calibration_gap")
_REGRESSION = ("mean_error", "mean_absolute_error", "mean_squared_error")
_RATES = (
    "selection_rate",
    "true_positive_rate",
    "false_positive_rate",
    "true_negative_rate",
    "false_negative_rate",
    "precision",
    "negative_predictive_value",
    "accuracy",
    "error_rate",
)

_MODEL_METRICS = [*_RATES, "equalized_odds", *_SCORED, *_REGRESSION]


@app.command()
def model(
    files: Files,
    by: By,
    metric: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help=f"Several are corrected for by Holm. {', '.join(_MODEL_METRICS)}.",
        ),
    ],
    y_true: Annotated[str | None, typer.Option(help="Column of true outcomes.")] = None,
    y_pred: Annotated[str | None, typer.Option(help="Column of predictions; or give --score.")] = None,
    score: Annotated[str | None, typer.Option(help="Column of scores.")] = None,
    threshold: Annotated[float | None, typer.Option(help="A score at or above this predicts 1.")] = None,
    positive: Annotated[str | None, typer.Option(help="The label that counts as 1, if not 1 or true.")] = None,
    weight: Weight = None,
    joint: Joint = False,
    alpha: Alpha = 0.05,
    guarantee: GuaranteeName = "calibrated",
    draws: Draws = None,
    split_unit: SplitUnit = None,
    tolerance: Tolerance = 0.0,
    min_size: MinSize = None,
    seed: Seed = 0,
    json: Json = None,
    report: Report = None,
    title: Title = None,
    plot: Plot = None,
    fail_on_split: FailOnSplit = False,
) -> None:
    """Whom does the model serve worse? From its predictions and the truth."""
    asked = {"threshold": threshold, "weight": weight, "positive": positive}
    made = [_model_metric(name, y_true, y_pred, score, asked) for name in metric]
    used = {option for name in metric for option in _options(name)}
    for option, value in asked.items():
        if value is not None and option not in used:
            raise InputError(f"{option}={value!r}", f"means nothing to {', '.join(metric)}", "Leave it out.")
    chosen = _guarantee(guarantee, draws, split_unit)
    _rows(files, by, made, joint, alpha, chosen, tolerance, min_size, seed, json, report, title, plot, fail_on_split)


def _options(name: str) -> set[str]:
    """What a metric of a model can be told beside its columns."""
    if name in _RATES:
        return {"threshold", "weight", "positive"}
    return {"auc": {"positive"}, "equalized_odds": {"threshold", "positive"}}.get(
        name, {"weight", "positive"} if name in _SCORED else {"weight"}
    )


def _model_metric(
    name: str, y_true: str | None, y_pred: str | None, score: str | None, asked: dict[str, Any]
) -> Metric:
    """A metric of a model by its name, from the columns that were given."""
    from faultlines import metrics

    if name not in _MODEL_METRICS:
        raise InputError(f"metric={name!r}", "is not known", did_you_mean(name, _MODEL_METRICS))
    given: dict[str, Any] = {option: value for option, value in asked.items() if option in _options(name)}
    needed: dict[str, str | None]
    if name in {*_RATES, "equalized_odds"}:
        # Predictions where there are some; a score makes predictions only with its threshold.
        if y_pred is not None and given["threshold"] is not None:
            raise InputError("--y-pred, --threshold", "both say what was predicted", "Leave one of them out.")
        needed = {"y_pred": y_pred} if y_pred is not None else {"score": score}
    else:
        needed = {"score": score} if name in _SCORED else {"y_pred": y_pred}
    if name != "selection_rate":
        needed["y_true"] = y_true
    for option, column in needed.items():
        if column is None:
            flag = f"--{option.replace('_', '-')}"
            or_pred = " or --y-pred" if option == "score" and name not in _SCORED else ""
            raise InputError(f"metric={name!r}", f"needs {flag}{or_pred}", f"Name the column: {flag} COLUMN.")
    made: Metric = getattr(metrics, name)(**needed, **given)
    return made


def _rows(
    files: list[str],
    by: list[str],
    made: list[Metric],
    joint: bool,
    alpha: float,
    guarantee: Guarantee,
    tolerance: float,
    min_size: float | None,
    seed: int,
    json: Path | None,
    report: Path | None,
    title: str | None,
    plot: Path | None,
    fail_on_split: bool,
) -> None:
    """Cluster rows by each metric, correct for their number, and say what was found."""
    from faultlines.clustering import cluster, holm

    if joint:
        from faultlines import metrics

        if len(made) < 2:
            raise InputError("--joint", "needs two metrics or more", "Name a second --metric, or leave it out.")
        made = [metrics.joint(*made)]
    _check_pictures(report, plot)
    attributes = [_attribute(given) for given in by]
    options: dict[str, Any] = {"alpha": alpha, "guarantee": guarantee, "tolerance": tolerance, "seed": seed}
    found = [cluster(files, by=attributes, metric=metric, min_size=min_size, **options) for metric in made]
    if len(found) > 1:
        found = holm(found, alpha)
    if str(json) != "-":
        if len(found) > 1:
            _say(f"{len(found)} metrics, Holm's correction at α = {alpha:g} over all of them.\n")
        _say("\n\n".join(str(one) for one in found))
    _write_json(found, json, alpha)
    _write_pictures(found, alpha, report, plot, title)
    if fail_on_split and any(one.rejected for one in found):
        raise typer.Exit(1)


@app.command()
def power(
    file: Annotated[
        Path | None, typer.Argument(help="A csv or parquet file with one row a group; or give --groups and --size.")
    ] = None,
    by: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Column that names the groups.")] = None,
    se: Annotated[str | None, typer.Option(help="Column of standard errors; or --n with --spread.")] = None,
    n: Annotated[str | None, typer.Option(help="Column of group sizes.")] = None,
    groups: Annotated[int | None, typer.Option(help="Without a file: how many groups.")] = None,
    size: Annotated[float | None, typer.Option(help="Without a file: units in each of them.")] = None,
    spread: Annotated[float | None, typer.Option(help="Standard deviation of the metric between units.")] = None,
    arms: Annotated[int, typer.Option(help="2: sizes are shared by two arms; 1: a plain mean.")] = 2,
    gap: Annotated[float | None, typer.Option(help="The difference to be seen, in units of the metric.")] = None,
    share: Annotated[
        float | None, typer.Option(help="Share of the groups that differ, any of them. Default: 0.5.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="GROUP", help="Or just these groups.")] = None,
    alpha: Alpha = 0.05,
    guarantee: GuaranteeName = "calibrated",
    draws: Draws = None,
    tolerance: Tolerance = 0.0,
    target: Annotated[float, typer.Option(help="Chance with which the smallest gap shall be seen.")] = 0.8,
    runs: Annotated[int, typer.Option(help="Simulated experiments behind each figure.")] = 1000,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """What will an experiment be able to see, or what would one have seen that found nothing?"""
    import faultlines as fl

    if only and share is not None:
        raise InputError("--share, --only", "both say who differs", "Leave one of them out.")
    data = _planned(file, by, se, n, groups, size, spread)
    found = fl.power(
        data,
        gap=gap,
        split=only or (0.5 if share is None else share),
        spread=spread,
        arms=arms,
        alpha=alpha,
        guarantee=_guarantee(guarantee, draws),
        tolerance=tolerance,
        target=target,
        runs=runs,
        seed=seed,
    )
    if str(json) != "-":
        _say(str(found))
    if json is not None:
        _write(dumps(found.to_dict(), indent=2, ensure_ascii=False, allow_nan=False), json)


def _planned(
    file: Path | None,
    by: list[str] | None,
    se: str | None,
    n: str | None,
    groups: int | None,
    size: float | None,
    spread: float | None,
) -> Any:
    """Groups to plan with: of a file, with their standard errors or sizes, or so many of one size."""
    import faultlines as fl
    from faultlines import frames

    if file is not None:
        if groups is not None or size is not None:
            raise InputError("--groups, --size", "go without a file", "Leave them out, or the file.")
        if not by or (se is None) == (n is None):
            raise InputError(f"file={str(file)!r}", "needs --by and either --se or --n with --spread", "Name them.")
        if se is not None and spread is not None:
            raise InputError(f"spread={spread:g}", "goes with --n, not with --se", "Leave one of them out.")
        if n is not None and spread is None:
            raise InputError(f"n={n!r}", "needs --spread", "Give the standard deviation of the metric.")
        read = frames.read(
            file, keys={f"by[{i}]": c for i, c in enumerate(by)}, numbers={"se": se} if se else {"n": n or ""}
        )
        labels = read.keys[0] if len(by) == 1 else list(zip(*read.keys, strict=True))
        sizes = read.numbers.get("n")
        return fl.Estimates([0.0] * len(labels), read.numbers.get("se", [1.0] * len(labels)), labels, sizes)
    if by or se or n:
        raise InputError("--by, --se, --n", "name columns of a file", "Give the file, or leave them out.")
    if groups is None or size is None or spread is None:
        raise InputError("FILE", "is missing", "Give a file, or --groups, --size and --spread.")
    if not 2 <= groups <= 1_000_000:
        raise InputError(f"groups={groups}", "must be from 2 to a million", "Use for example --groups 40.")
    if not size > 0:
        raise InputError(f"size={size:g}", "must be above zero", "Use for example --size 5000.")
    return [size] * groups


def _attribute(given: str) -> str | Bins:
    """A column, or a column to be cut: age:5 by width, income:q10 by quantiles."""
    from faultlines.groups import bins

    cut = re.fullmatch(r"(.+):(q[0-9]+|[0-9]+(?:\.[0-9]+)?)", given)
    if cut is None:
        return given
    column, size = cut.groups()
    return bins(column, quantiles=int(size[1:])) if size.startswith("q") else bins(column, width=float(size))


def _guarantee(name: str, draws: int | None, split_unit: str | None = None) -> Guarantee:
    from dataclasses import replace

    from faultlines.guarantees import Calibrated, Folds, Holdout, guarantee_of

    kind, colon, size = name.partition(":")
    known = ["calibrated", "stepdown", "holdout", "folds", "bonferroni"]
    if kind not in known:
        raise InputError(f"guarantee={name!r}", "is not known", did_you_mean(kind, known))
    chosen = Calibrated(stepdown=True) if kind == "stepdown" else guarantee_of(kind)
    if colon:
        try:
            if isinstance(chosen, Holdout):
                chosen = Holdout(fraction=float(size))
            elif isinstance(chosen, Folds):
                chosen = Folds(n=int(size))
            else:
                raise ValueError
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"guarantee={name!r}", "is not known", "Write holdout:0.3 or folds:10.") from error
    if split_unit is not None:
        if not isinstance(chosen, Holdout | Folds):
            raise InputError(f"split_unit={split_unit!r}", f"means nothing to {name}", "Use holdout or folds.")
        chosen = replace(chosen, unit=split_unit)
    if draws is not None:
        if not isinstance(chosen, Calibrated):
            raise InputError(f"draws={draws}", f"means nothing to {name}", "Leave it out, or use calibrated.")
        chosen = replace(chosen, draws=draws)
    return chosen


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
        raise unwritable("stdout", error) from error


def _write_json(found: list[Clustering], path: Path | None, alpha: float) -> None:
    """One result as itself, several as a list with what was done about their number."""
    if path is None:
        return
    if len(found) == 1:
        written = found[0].to_json()
    else:
        whole = {"correction": "holm", "alpha": alpha, "metrics": [one.summary() for one in found]}
        written = dumps(whole, indent=2, ensure_ascii=False, allow_nan=False, default=str)
    _write(written, path)


def _check_pictures(report: Path | None, plot: Path | None) -> None:
    """Find out before the work, not after it, that a picture cannot be written."""
    for option, path in (("report", report), ("plot", plot)):
        if path is None:
            continue
        from faultlines.clustering import need_report

        need_report(f"--{option}")
    if report is not None:
        from faultlines.report import checked

        checked(report)
    if plot is not None:
        from faultlines.plot import check_target

        check_target(plot)
        if plot == report:
            raise InputError("--report, --plot", "are the same file", "Give each a name of its own.")


def _write_pictures(
    found: list[Clustering], alpha: float, report: Path | None, plot: Path | None, title: str | None = None
) -> None:
    """The page over all results, and a picture of each; several are numbered."""
    if report is not None:
        command = " ".join(["faultlines", *(quote(word) for word in sys.argv[1:])])
        note = f"{len(found)} metrics, corrected by Holm at α = {alpha:g}: each has a threshold of its own."
        several = note if len(found) > 1 else None
        found[0].report(report, title=title, also=found[1:], note=several, command=command)
    if plot is not None:
        from faultlines import plot as drawing

        paths = [plot.with_stem(f"{plot.stem}-{i + 1}") for i in range(len(found))] if len(found) > 1 else [plot]
        for one, path in zip(found, paths, strict=True):
            drawing.save(one, path)


def _write(written: str, path: Path) -> None:
    """Text to a file, or to stdout."""
    if str(path) == "-":
        if sys.stdout is not None and hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8")  # JSON is UTF-8 whatever the terminal speaks
        _say(written)
        return
    try:
        path.write_text(written + "\n", encoding="utf-8")
    except OSError as error:
        raise unwritable(f"json={str(path)!r}", error) from error


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
