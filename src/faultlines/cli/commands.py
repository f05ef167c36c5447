"""The commands: what each does with its options, from data to result to files and gate."""

import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from faultlines.cli import exits, outputs, streams
from faultlines.cli import options as opt
from faultlines.cli.attributes import attribute
from faultlines.cli.help import EXIT_CODES, Command, epilog
from faultlines.cli.metrics import kinds_usage, model_usage
from faultlines.cli.words import answering
from faultlines.errors import InputError, to_install

if TYPE_CHECKING:
    from faultlines.cli.certify import Certificates
    from faultlines.clustering import Clustering
    from faultlines.comparison.custom import Similarity
    from faultlines.estimates.estimates import Estimates
    from faultlines.guarantees.base import Guarantee
    from faultlines.metrics.base import Metric
    from faultlines.simulate import Simulated

_ABOUT = "Find where a population splits: the clusters of groups that really differ, and how sure that is."

app = typer.Typer(
    name="faultlines",
    help=_ABOUT,
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _command(*examples: str, notes: Sequence[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command, with examples below its help."""

    def registered(function: Callable[..., None]) -> Callable[..., None]:
        short = re.match(r".*?[.?]", function.__doc__ or "", flags=re.DOTALL)
        short_help = short.group() if short else None
        flat = opt.bound(function)
        # A command that takes both kinds of metrics says which of its options is for which.
        options = inspect.signature(flat).parameters.keys()
        both = [kinds_usage(options)] if {"variant", "y_true"} <= options else []
        told = epilog(examples, *notes, *both)
        app.command(cls=Command, short_help=short_help, epilog=told)(answering(flat, options))
        return function

    return registered


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        streams.say(f"faultlines {version('faultlines')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Find where a population splits: the clusters of groups that really differ, and how sure that is."""


# ------------------------------------------------------------------------------------------------------------- demo


@_command("faultlines demo", "faultlines demo --seed 7 --plot demo.svg")
def demo(
    seed: opt.Seed = 0,
    json: opt.Json = Path("faultlines-demo.json"),
    report: opt.Report = Path("faultlines-demo.html"),
    plot: opt.Plot = None,
) -> None:
    """Run on a made-up onboarding experiment over 40 countries, with three clusters planted in it."""
    from faultlines import checks
    from faultlines.clustering import cluster, missing_for_report
    from faultlines.simulate import onboarding

    checks.seed(seed)
    if missing := missing_for_report():  # the demo goes on without the extra
        streams.tell(f"no page without {', '.join(missing)}. {to_install('report')}")
        report = plot = None
    targets = outputs.checked(opt.Output(json=json, report=report, plot=plot), [])
    simulated = onboarding(seed)
    found = cluster(simulated.estimates, seed=seed)
    countries = len(simulated.truth)
    targets.say(f"Two onboardings, {countries} countries; measured: relative lift in users who come back.\n")
    targets.say(str(found))
    targets.say(_against_the_truth(found, simulated))
    targets.write([found], found.alpha)
    if targets.json is not None:
        page = "" if report is None else f"The page to look at is {report}; "
        whole = f"{'T' if report is None else 't'}he whole result is in {json}."
        targets.say(f"{page}{whole} Next: faultlines estimates --help")


def _against_the_truth(found: "Clustering", simulated: "Simulated") -> str:
    """What was planted, and how much of it was found."""
    import numpy as np

    planted, countries = int(simulated.truth.max()), len(simulated.truth)
    lifts = ", ".join(f"{lift:+.0%}" for lift in np.unique(simulated.effects))
    lines = [f"\nPlanted: {planted} clusters with true lifts {lifts}."]
    if found.n_clusters == planted:
        astray = [str(simulated.estimates.labels[i]) for i in np.flatnonzero(found.labels != simulated.truth).tolist()]
        others = f" (not {', '.join(astray)})" if astray else ""
        right = countries - len(astray)
        lines.append(f"Found: all {planted}, {right} of {countries} countries in their true cluster{others}.")
    else:
        lines.append(f"Found: {found.n_clusters}. With this seed the noise hides or splits one; try another seed.")
    return "\n".join(lines)


# -------------------------------------------------------------------------------------------------------- estimates


@_command(
    "faultlines estimates lifts.csv --by country --estimate lift --se se",
    "faultlines estimates lifts.csv --by country --estimate lift --se se \\\n      --report out.html --fail-on-split",
    "faultlines estimates lifts.csv --by country --estimate lift --se se \\\n      --n users --certify 0.05",
)
def estimates(
    *,
    table: opt.Table,
    claim: opt.Claim,
    refine: opt.Refine = True,
    fail_on_split: opt.FailOnSplit = False,
    signed: opt.Certify,
    output: opt.Output,
) -> None:
    """Cluster a table of estimates and standard errors."""
    from faultlines.cli.certify import Certificates
    from faultlines.cli.guarantees import chosen_guarantee
    from faultlines.estimates.estimates import Estimates

    how = _settings(claim, refine, table.min_size)
    prepared = _Prepared(chosen_guarantee(claim), Certificates.of(signed), outputs.checked(output, [table.file]))
    by = table.by[0] if len(table.by) == 1 else table.by
    read = Estimates.from_frame(table.file, by=by, estimate=table.estimate, se=table.se, n=table.n, dof=table.dof)
    _of_groups(read, prepared, claim, how, fail_on_split)


class _Prepared(NamedTuple):
    """What was checked before any work is done: guarantee, certificates and where results go."""

    guarantee: "Guarantee"
    wanted: "Certificates"
    targets: outputs.Targets


def _of_groups(
    groups: "Estimates | Similarity", prepared: _Prepared, claim: opt.Claim, how: dict[str, Any], fail_on_split: bool
) -> None:
    """Cluster groups that were given as such, and say what was found."""
    from faultlines.cli.gate import answer, gate
    from faultlines.clustering import cluster

    guarantee, wanted, targets = prepared
    with gate(fail_on_split or wanted.asked):
        found = cluster(groups, guarantee=guarantee, **how)
        certificates = wanted.run([found], claim.alpha, claim.seed)
    targets.say("\n\n".join([str(found), *wanted.lines(certificates)]))
    targets.write([found], claim.alpha, (), certificates)
    answer([found], certificates, fail_on_split=fail_on_split)


def _settings(claim: opt.Claim, refine: bool, min_size: float | None) -> dict[str, Any]:
    """What the library is told beside data and guarantee."""
    return {
        "alpha": claim.alpha,
        "tolerance": claim.tolerance,
        "seed": claim.seed,
        "refine": refine,
        "min_size": min_size,
    }


# ------------------------------------------------------------------------------------------------------- aggregates


@_command(
    "faultlines aggregates counts.csv --by country --metric rate \\\n      --n users --sum buyers",
    "faultlines aggregates arms.csv --by country --metric lift --n users \\\n"
    "      --mean spend --variance variance --variant arm --control A",
    "faultlines aggregates incidents.csv --by site --metric poisson \\\n      --n days --sum incidents",
    notes=[
        "\b\nWhich option goes with which metric:\n"
        "  rate: --sum or --mean; binomial, poisson: --sum\n"
        "  mean: --sum or --mean, with --variance or --sum-squares\n"
        "  difference, lift: the same, with --variant and --control, and --treatment"
    ],
)
def aggregates(
    *,
    counted: opt.Counted,
    columns: opt.Aggregates,
    metric: opt.AggregatedMetric,
    arms: opt.CountedArms,
    claim: opt.Claim,
    refine: opt.Refine = True,
    fail_on_split: opt.FailOnSplit = False,
    signed: opt.Certify,
    output: opt.Output,
) -> None:
    """Cluster a table of counts or moments: successes and totals, or n, mean and variance, by group and arm."""
    from faultlines.cli.aggregates import EXACT, aggregated_metric, counts
    from faultlines.cli.certify import Certificates
    from faultlines.cli.guarantees import chosen_guarantee

    how = _settings(claim, refine, counted.min_size)
    if metric in EXACT:
        wanted = Certificates.of(signed)
        prepared = _Prepared(chosen_guarantee(claim), wanted, outputs.checked(output, counted.files))
        _of_groups(counts(metric, counted, columns, arms), prepared, claim, how, fail_on_split)
        return
    rows = opt.Rows(files=counted.files, by=counted.by, min_size=counted.min_size)
    made = [aggregated_metric(metric, counted.n, columns, arms)]
    _clustered(rows, made, claim, None, how, opt.SelfCheck(), output, fail_on_split, signed)


# ------------------------------------------------------------------------------------------------------------- many


@_command(
    "faultlines many lifts.csv --experiment test --by country \\\n      --estimate lift --se se --csv clusters.csv",
    "faultlines many visits/*.parquet --experiment test --by country \\\n"
    "      --metric lift:revenue --variant arm --control A --correction bh --json -",
    "faultlines many counts.csv --experiment model --by group \\\n"
    "      --metric rate --n people --sum selected --fail-on-split",
    notes=["Aggregates take the metrics rate, mean, difference and lift, without a column behind the name."],
)
def many(
    *,
    experiments: opt.Experiments,
    measured: opt.WatchedMetric,
    columns: opt.Aggregates,
    claim: opt.Claim,
    correction: opt.Correction = "holm",
    refine: opt.Refine = True,
    fail_on_split: opt.FailOnSplit = False,
    json: opt.Json = None,
    csv: opt.Csv = None,
    report: opt.Report = None,
    title: opt.Title = None,
) -> None:
    """In which of many experiments do groups differ, and which? One table or one scan, one correction over all."""
    from faultlines.cli.aggregates import many_from
    from faultlines.cli.gate import answer_many, gate
    from faultlines.cli.guarantees import chosen_guarantee
    from faultlines.many import cluster_many

    guarantee, given = chosen_guarantee(claim), many_from(experiments, measured, columns)
    targets = outputs.checked(opt.Output(json=json, report=report, title=title), experiments.files, csv=csv)
    how = _settings(claim, refine, experiments.min_size)
    with gate(fail_on_split):
        found = cluster_many(given.pop("data"), guarantee=guarantee, correction=correction, **given, **how)  # type: ignore[arg-type]
    targets.say(str(found))
    if json is not None:
        targets.write_json(outputs.dumped(found.summary()))
    targets.write_csv(lambda: found._columns("groups"))
    if targets.report is not None:
        found.report(targets.report, title=title, command=outputs.command_line())
    if fail_on_split:
        answer_many(found)


# ------------------------------------------------------------------------------------------------------------- rows


@_command(
    "faultlines experiment visits/*.parquet --by country --by device \\\n"
    "      --metric lift:revenue --variant arm --control A --unit user_id",
    "faultlines experiment visits.csv --by age:5 --variant arm --control A \\\n"
    "      --metric ratio_lift:clicks/views --report out.html",
    notes=["All options hold for every metric."],
)
def experiment(
    *,
    rows: opt.Rows,
    metric: opt.ExperimentMetrics,
    arms: opt.Arms,
    per_arm: opt.PerArm = False,
    joint: opt.Joint = False,
    claim: opt.Claim,
    refine: opt.Refine = True,
    split_unit: opt.SplitUnit = None,
    tried: opt.SelfCheck,
    fail_on_split: opt.FailOnSplit = False,
    signed: opt.Certify,
    output: opt.Output,
) -> None:
    """Which groups react differently to the treatment? From the rows of an experiment."""
    from faultlines.cli.metrics import experiment_metrics

    made = experiment_metrics(metric, arms, per_arm=per_arm)
    how = _settings(claim, refine, rows.min_size)
    _clustered(rows, _joint(made) if joint else made, claim, split_unit, how, tried, output, fail_on_split, signed)


@_command(
    "faultlines model scored.parquet --by gender --by age:5 --metric auc \\\n"
    "      --metric true_positive_rate --y-true label --score s --threshold 0.5",
    "faultlines model scored.csv --by country --metric false_positive_rate \\\n"
    "      --y-true label --y-pred predicted --positive yes --fail-on-split",
    "faultlines model scored.csv --by group --metric selection_rate \\\n"
    "      --y-pred predicted --certify 0.8 --ratio --reference A --adverse low",
    notes=[model_usage()],
)
def model(
    *,
    rows: opt.Rows,
    metric: opt.ModelMetrics,
    predictions: opt.Predictions,
    joint: opt.Joint = False,
    claim: opt.Claim,
    refine: opt.Refine = True,
    split_unit: opt.SplitUnit = None,
    self_check: opt.SelfCheckRuns = None,
    fail_on_split: opt.FailOnSplit = False,
    signed: opt.Certify,
    output: opt.Output,
) -> None:
    """Which groups does the model serve worse? From its predictions and the truth."""
    from faultlines.cli.metrics import model_metrics

    made = model_metrics(metric, predictions)
    how = _settings(claim, refine, rows.min_size)
    tried = opt.SelfCheck(self_check=self_check)
    _clustered(rows, _joint(made) if joint else made, claim, split_unit, how, tried, output, fail_on_split, signed)


def _clustered(
    rows: opt.Rows,
    made: "list[Metric]",
    claim: opt.Claim,
    split_unit: str | None,
    how: dict[str, Any],
    tried: opt.SelfCheck,
    output: opt.Output,
    fail_on_split: bool,
    signed: opt.Certify,
) -> None:
    """Cluster rows by each metric, correct for their number, and say what was found."""
    from faultlines.cli.certify import Certificates
    from faultlines.cli.gate import answer, gate
    from faultlines.cli.guarantees import chosen_guarantee
    from faultlines.cli.selfcheck import SelfChecks
    from faultlines.clustering import cluster_metrics, holm

    guarantee = chosen_guarantee(claim, split_unit)
    self_checks, wanted = SelfChecks.of(tried, made, guarantee), Certificates.of(signed)
    if "-" in rows.files:
        remedy = "Give files, or a table with one row per group to: faultlines estimates -."
        raise InputError("file='-'", "rows are not read from standard input", remedy)
    targets = outputs.checked(output, rows.files, len(made))
    by = [attribute(given) for given in rows.by]
    with gate(fail_on_split or wanted.asked):
        found = cluster_metrics(rows.files, by, made, guarantee=guarantee, **how)
    if len(found) > 1:
        found = holm(found, claim.alpha)
    certificates = wanted.run(found, claim.alpha, claim.seed)
    if len(found) > 1:
        targets.say(f"{len(found)} metrics, Holm's correction at α = {claim.alpha:g} over all of them.\n")
    targets.say("\n\n".join([*map(str, found), *wanted.lines(certificates)]))
    results = self_checks.run(rows.files, by, how)
    for line in self_checks.lines(results):
        targets.say(f"\n{line}")
    targets.write(found, claim.alpha, results, certificates)
    answer(found, certificates, fail_on_split=fail_on_split)


def _joint(made: "list[Metric]") -> "list[Metric]":
    from faultlines.metrics.joint import joint

    if len(made) < 2:
        raise InputError("--joint", "needs two metrics or more", "Name a second --metric, or leave it out.")
    return [joint(*made)]


# ---------------------------------------------------------------------------------------------------------- confirm


@_command(
    "faultlines confirm clusters.json march/*.parquet",
    "faultlines confirm clusters.json march.csv --by country \\\n"
    "      --metric lift:revenue --variant arm --control A --fail-unless-confirmed",
    "faultlines confirm clusters.json lifts.csv --by country \\\n      --estimate lift --se se",
)
def confirm(
    *,
    fresh: opt.Fresh,
    measured: opt.Measured,
    alpha: opt.Alpha = 0.05,
    seed: opt.Seed = 0,
    fail_unless_confirmed: opt.FailUnlessConfirmed = False,
    json: opt.Json = None,
) -> None:
    """Do clusters that were found before differ again on fresh data, and by how much?"""
    from faultlines.cli.gate import confirmed_or_exit, gate
    from faultlines.cli.metrics import fresh_metric
    from faultlines.cli.tables import is_table, table_of
    from faultlines.decide.confirm import confirm as confirmed

    metric = fresh_metric(measured)
    targets = outputs.checked(opt.Output(json=json), fresh.files, also=[fresh.clusters])
    by: Any = [attribute(given) for given in fresh.by] if fresh.by else None
    data: Any = fresh.files
    if is_table(fresh):
        data, by = table_of(fresh, measured=metric is not None and not isinstance(metric, str)), None
    with gate(fail_unless_confirmed):
        found = confirmed(fresh.clusters, data, by, metric, alpha=alpha, min_size=fresh.min_size, seed=seed)
    targets.say(str(found))
    targets.write_json(outputs.dumped(found.to_dict()))
    if fail_unless_confirmed:
        confirmed_or_exit(found)


# ---------------------------------------------------------------------------------------------------------- monitor


@_command(
    "faultlines monitor state.json visits/*.parquet --by country --looks 28 \\\n"
    "      --metric lift:revenue --variant arm --control A --unit user_id",
    "faultlines monitor state.json visits/*.parquet --by country \\\n"
    "      --metric lift:revenue --variant arm --control A --unit user_id \\\n"
    "      --new add --report monitor.html --fail-on-split",
    "faultlines monitor state.json lifts.csv --by country \\\n      --estimate lift --se se --n users",
    notes=["A daily job: every look is at all data so far. How α is spent is said at the first look."],
)
def monitor(
    *,
    watched: opt.Watched,
    measured: opt.WatchedMetric,
    how: opt.Monitoring,
    fail_on_split: opt.FailOnClaim = False,
    json: opt.Json = None,
    report: opt.Report = None,
    title: opt.Title = None,
) -> None:
    """Look at an experiment or a model while data come in, as often as you like: may a difference be claimed yet?"""
    from faultlines.cli.gate import gate
    from faultlines.cli.monitor import begun, looked, written

    targets = outputs.checked(opt.Output(json=json, report=report, title=title), watched.files, also=[watched.state])
    kept = begun(watched.state, how)
    with gate(fail_on_split):
        found = looked(kept, watched, measured, final=how.final)
    targets.say(str(found))
    written(found, targets, watched.state)
    if fail_on_split and found.decision.rejected:
        raise typer.Exit(exits.SPLIT)


# ------------------------------------------------------------------------------------------------------------ power


@_command(
    "faultlines power --groups 40 --size 5000 --spread 1.2 --gap 0.1",
    "faultlines power lifts.csv --by country --se se --only DE --only AT",
    "faultlines power visits.csv --by country --metric lift:revenue \\\n      --variant arm --control A --gap 0.05",
    "faultlines power scored.csv --by group --metric equalized_odds \\\n      --y-true label --y-pred predicted",
)
def power(
    planned: opt.Planned, predictions: opt.Predictions, question: opt.Question, claim: opt.Claim, json: opt.Json = None
) -> None:
    """What will an experiment be able to see, or what would one have seen that found nothing?"""
    from faultlines.cli.guarantees import chosen_guarantee
    from faultlines.cli.plan import to_plan_with
    from faultlines.decide import power as planning

    if question.only and question.share is not None:
        raise InputError("--share, --only", "both say who differs", "Leave one of them out.")
    guarantee = chosen_guarantee(claim)
    targets = outputs.checked(opt.Output(json=json), planned.files or [])
    found = planning.power(
        **to_plan_with(planned, predictions),
        gap=question.gap,
        split=question.only or (0.5 if question.share is None else question.share),
        spread=planned.spread,
        arms=planned.arms,
        alpha=claim.alpha,
        guarantee=guarantee,
        tolerance=claim.tolerance,
        target=question.target,
        runs=question.runs,
        seed=claim.seed,
    )
    targets.say(str(found))
    if json is not None:
        targets.write_json(outputs.dumped(found.to_dict()))
