"""The commands: what each does with its options, from data to result to files and gate."""

import inspect
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from faultlines.cli import options as opt
from faultlines.cli import outputs, streams
from faultlines.cli.metrics import attributes, chosen_guarantee, column_names, kinds_usage, model_usage, planned_shares
from faultlines.cli.options import WHOLE_HELP
from faultlines.errors import InputError, to_install

if TYPE_CHECKING:
    from faultlines.cli.gate import Certificates
    from faultlines.core.custom import Similarity
    from faultlines.estimates.estimates import Estimates
    from faultlines.metrics.base import Metric
    from faultlines.render.text import Spelling
    from faultlines.results.clustering import Clustering
    from faultlines.simulate import Simulated

_ABOUT = "Find the groups that an experiment or a model treats differently, with one p-value for the whole search."

_SHORT = 64  # what is left of 80 columns beside the longest name of a command
# What people come for, in the order of how often, each with the command to copy.
JOBS = {
    "Which groups react differently to the treatment of an experiment?": (
        "faultlines experiment visits.csv --by country --metric lift:spend \\\n"
        "        --variant arm --control A --unit user"
    ),
    "Which groups does a model serve worse?": (
        "faultlines model scored.csv --by age --metric tpr \\\n        --y-true label --y-pred predicted"
    ),
    "Is every group within 5 points of the overall accuracy, for sign-off?": (
        "faultlines model scored.csv --by age --metric accuracy \\\n"
        "        --y-true label --y-pred predicted --certify 0.05"
    ),
    "Which groups differ, given an estimate and a standard error for each?": (
        "faultlines estimates lifts.csv --by country --estimate lift --se se"
    ),
    "Do clusters of earlier data (its --json) differ again on new data?": "faultlines confirm clusters.json new.csv",
}
EXIT_CODES = """\
0    done; with --fail-on-split: all groups were compared, none differ;
     with --certify: all groups are within the gap;
     with --fail-unless-confirmed: clusters are confirmed
1    --fail-on-split: clusters differ; --certify: a group is beyond the gap;
     --fail-on harm: a group or cluster is harmed; --fail-below: a ratio is too low;
     --fail-unless-confirmed: clusters are not confirmed;
     --fail-on-mismatch: arms do not have the shares they should have
2    something given cannot be used, or there is not enough memory
3    a gate is inconclusive: groups were excluded, or data are too few
70   a defect of faultlines; FAULTLINES_TRACEBACK=1 shows where
130  interrupted""".splitlines()


class Commands(TyperGroup):
    """All commands: the common jobs first, each with an example, and the other commands in one line each."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What stands behind the name in the usage line."""
        return ["COMMAND", "[FILE]...", "[OPTIONS]"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write jobs and commands; of the whole help, every command and the exit codes."""
        is_whole = ctx.meta.get(WHOLE_HELP)
        names = self.list_commands(ctx)
        if not is_whole:
            formatter.write("\nCommon jobs:\n")
            for job, example in JOBS.items():
                formatter.write(f"  {job}\n    {example}\n")
            in_jobs = {example.split()[1] for example in JOBS.values()}
            names = [name for name in names if name not in in_jobs]
        with formatter.section("Commands" if is_whole else "Other commands"):
            formatter.write_dl([(name, self.commands[name].get_short_help_str(_SHORT)) for name in names])
        with formatter.section("Options"):
            formatter.write_dl([help_record(parameter, ctx) for parameter in self.get_params(ctx)])
        if is_whole:
            write_lines(formatter, "Exit codes:", EXIT_CODES)
        formatter.write("\nOptions of a command: faultlines COMMAND --help\n")


LAST = "Other"


class CommandHelp(NamedTuple):
    """What the help of a command says beside its options.

    Attributes:
        common: The options most people need, which the short help lists; `--help-all` lists every one.
        examples: The first two are in the short help.
        notes: Paragraphs below the examples, for `--help-all`.
    """

    common: frozenset[str] = frozenset()
    examples: Sequence[str] = ()
    notes: Sequence[str] = ()


class Command(TyperCommand):
    """A command with a short help and a whole one, and whose options are never overruled."""

    documentation = CommandHelp()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse an option that takes one value and was given several: the first would be lost without a word."""
        parameters = self.make_parser(ctx).parse_args(args=list(args))[2]
        for parameter, count in Counter(parameters).items():
            is_option = parameter.param_type_name == "option"
            if count > 1 and is_option and not parameter.multiple and not getattr(parameter, "is_flag", False):
                problem = f"is given {count} times, and takes one value"
                raise InputError.duplicate(parameter.name, problem, "Leave all but one of them out.").for_command(
                    {parameter.name: "VALUE"}
                )
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the common options in one list; of all, those of each heading, in the order of its first option."""
        if not ctx.meta.get(WHOLE_HELP):
            common = [
                parameter
                for parameter in self.get_params(ctx)
                if parameter.name in self.documentation.common
                or parameter.required
                or parameter.param_type_name == "argument"
            ]
            with formatter.section("Common options"):
                formatter.write_dl([_first_sentence(help_record(parameter, ctx)) for parameter in common])
            return
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            panel = getattr(parameter, "rich_help_panel", None) or LAST
            panels.setdefault(panel, []).append(help_record(parameter, ctx))
        for name in sorted(panels, key=lambda name: name == LAST):
            with formatter.section(name):
                formatter.write_dl(panels[name])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write examples, and either notes or how to see every option."""
        is_whole = ctx.meta.get(WHOLE_HELP)
        examples = self.documentation.examples if is_whole else self.documentation.examples[:2]
        write_lines(formatter, "Examples:", examples)
        if is_whole:
            for note in self.documentation.notes:
                formatter.write_paragraph()
                formatter.write_text(note)
        else:
            formatter.write(f"\nAll {len(self.get_params(ctx))} options: {ctx.command_path} --help-all\n")


def help_record(parameter: Any, ctx: Any) -> tuple[str, str]:
    """A parameter and what it is for, without types behind the names of arguments."""
    names, words = parameter.get_help_record(ctx)
    return names.partition(" <")[0], words


def _first_sentence(record: tuple[str, str]) -> tuple[str, str]:
    """The same with the first sentence alone, and what Typer adds in brackets."""
    names, words = record
    sentence = re.match(r".*?[.?](?=\s|$)", words, flags=re.DOTALL)
    added = re.search(r"  \[[^\]]*\]$", words)
    return names, (sentence.group() if sentence else words) + (added.group() if added and sentence else "")


def write_lines(formatter: Any, heading: str, lines: Sequence[str]) -> None:
    """Write lines as they are, indented below a heading."""
    formatter.write(f"\n{heading}\n" + "".join(f"  {line}\n" for line in lines))


app = typer.Typer(
    name="faultlines",
    help=_ABOUT,
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _command(
    *examples: str, common: str, notes: Sequence[str] = (), name: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command with its examples, and with the names of the options that its short help lists."""

    def registered(function: Callable[..., None]) -> Callable[..., None]:
        short = re.match(r".*?[.?]", function.__doc__ or "", flags=re.DOTALL)
        short_help = short.group() if short else None
        flat = opt.bound(function)
        # A command that takes both kinds of metrics says which of its options is for which.
        options = inspect.signature(flat).parameters.keys()
        both = [kinds_usage(options)] if {"variant", "y_true"} <= options else []
        documentation = CommandHelp(frozenset(common.split()), examples, [*notes, *both])
        documented = type("DocumentedCommand", (Command,), {"documentation": documentation})
        app.command(name, cls=documented, short_help=short_help)(_report_options(flat))
        return function

    return registered


def _report_options(command: Callable[..., None]) -> Callable[..., None]:
    """The same command, whose errors name parameters and settings as its options are typed."""
    parameters = inspect.signature(command).parameters
    options = {
        name: opt.placeholder(parameter.annotation)
        for name, parameter in parameters.items()
        if not opt.is_argument(parameter.annotation)
    }
    holder = "metric" if "metric" in options else "selected"  # the option that names the measured columns
    roles = {**dict.fromkeys(("value", "numer", "denom"), holder), "labels": "by"}

    @wraps(command)
    def reporting(**values: Any) -> None:
        try:
            with outputs.typed_options(values):
                command(**values)
        except streams.Inconclusive as stop:
            streams.tell_inconclusive(str(stop.error.for_command(options, roles)))
            raise typer.Exit(streams.CANNOT_TELL) from stop
        except InputError as error:
            raise error.for_command(options, roles) from error

    return reporting


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
    help_all: opt.HelpAll = False,
) -> None:
    """Find the groups that an experiment or a model treats differently, with one p-value for the whole search."""


# ------------------------------------------------------------------------------------------------------------- demo


@_command("faultlines demo", "faultlines demo --seed 7 --plot demo.svg", common="seed json report")
def demo(
    seed: opt.Seed = 0,
    json: opt.Json = Path("faultlines-demo.json"),
    report: opt.Report = Path("faultlines-demo.html"),
    plot: opt.Plot = None,
) -> None:
    """Run on a simulated experiment in 40 countries."""
    from faultlines import checks
    from faultlines.analyses.cluster import cluster
    from faultlines.render.text import to_text
    from faultlines.simulate import onboarding

    checks.seed(seed)
    if missing := checks.missing_for_report():  # the demo goes on without the extra
        streams.tell(f"no page without {', '.join(missing)}. {to_install('report')}")
        report = plot = None
    targets = outputs.checked(opt.Output(json=json, report=report, plot=plot), [])
    simulated = onboarding(seed)
    result = cluster(simulated.estimates, seed=seed)
    countries = len(simulated.truth)
    targets.say(f"Two onboardings, {countries} countries; measured: relative lift in users who come back.\n")
    targets.say(to_text(result, spelling="omit"))
    targets.say(_against_truth(result, simulated))
    targets.write([result], result.alpha)
    if json is not None and str(json) != "-":
        page = "" if report is None else f"The page to look at is {report}; "
        data = f"{'T' if report is None else 't'}he whole result is in {json}."
        targets.say(f"{page}{data} Next: faultlines estimates --help")


def _against_truth(result: "Clustering", simulated: "Simulated") -> str:
    """What was planted, and how much of it was recovered."""
    import numpy as np

    planted, countries = int(simulated.truth.max()), len(simulated.truth)
    lifts = ", ".join(f"{lift:+.0%}" for lift in np.unique(simulated.effects))
    lines = [f"\nPlanted: {planted} clusters with true lifts {lifts}."]
    if result.n_clusters == planted:
        wrong = [str(simulated.estimates.labels[i]) for i in np.flatnonzero(result.labels != simulated.truth).tolist()]
        others = f" (not {', '.join(wrong)})" if wrong else ""
        right = countries - len(wrong)
        lines.append(f"Recovered: all {planted}, {right} of {countries} countries in their true cluster{others}.")
    else:
        lines.append(f"Recovered: {result.n_clusters}. With this seed the noise hides or splits one; try another seed.")
    return "\n".join(lines)


# -------------------------------------------------------------------------------------------------------- estimates


@_command(
    "faultlines estimates lifts.csv --by country --estimate lift --se se",
    "faultlines estimates lifts.csv --by country --estimate lift --se se \\\n      --report out.html --fail-on-split",
    "faultlines estimates lifts.csv --by country --estimate lift --se se \\\n      --n users --certify 0.05",
    "faultlines estimates --by country --estimate lift --se se \\\n"
    "      --sql \"select * from 'lifts/*.parquet' where week = 12\"",
    common="by estimate se n alpha fail_on_split certify json report",
)
def estimates(
    *,
    table: opt.TableOptions,
    claim: opt.Claim,
    margins: opt.Margins = True,
    refine: opt.Refine = True,
    fail_on_split: opt.FailOnSplit = False,
    signed: opt.Certify,
    output: opt.Output,
) -> None:
    """Cluster a table of estimates and standard errors."""
    from faultlines.cli.gate import Certificates
    from faultlines.estimates.estimates import Estimates

    settings = _settings(claim, refine, table.min_size, margins)
    names = column_names(table.by)
    by = names[0] if len(names) == 1 else names
    columns = (table.estimate, table.se, table.n, table.dof)

    def read() -> Estimates:
        return Estimates.from_frame(table.table(), by, *columns, percent=table.percent)

    _cluster_groups(read, table.inputs, claim, settings, output, fail_on_split, Certificates.of(signed))


def _cluster_groups(
    read: "Callable[[], Estimates | Similarity]",
    inputs: Sequence[str],
    claim: opt.Claim,
    settings: dict[str, Any],
    output: opt.Output,
    fail_on_split: bool,
    wanted: "Certificates",
) -> None:
    """Cluster groups that were given as such, read once all else was checked, and print the result."""
    from faultlines.analyses.cluster import cluster
    from faultlines.cli.gate import end_with_verdicts, gate
    from faultlines.render.text import to_text

    guarantee, targets = chosen_guarantee(claim), outputs.checked(output, inputs)
    groups = read()
    with gate(fail_on_split or wanted.asked):
        result = cluster(groups, guarantee=guarantee, **settings)
        certificates = wanted.run([result], claim.alpha, claim.seed)
    spelling: Spelling = "omit" if certificates else outputs.complete_command
    targets.say("\n\n".join([to_text(result, spelling=spelling), *wanted.texts(certificates)]))
    targets.write([result], claim.alpha, (), certificates)
    end_with_verdicts([result], certificates, fail_on_split=fail_on_split)


def _settings(claim: opt.Claim, refine: bool, min_size: float | None, margins: bool = True) -> dict[str, Any]:
    """Parameters of the library beside data and error control."""
    return {
        "alpha": claim.alpha,
        "tolerance": claim.tolerance,
        "seed": claim.seed,
        "margins": margins,
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
        "\b\nWhich option applies to which metric:\n"
        "  rate: --sum or --mean; binomial, poisson: --sum\n"
        "  mean: --sum or --mean, with --variance or --sum-squares\n"
        "  difference, lift: the same, with --variant and --control, and --treatment"
    ],
    common="by n sum mean variance metric variant control alpha fail_on_split certify json report",
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
    mismatch: opt.Mismatch = "inconclusive",
    signed: opt.Certify,
    output: opt.Output,
) -> None:
    """Cluster a table of counts, or of means and variances. It has one row per group, or per group and arm."""
    from faultlines.cli.aggregates import EXACT, aggregated_metric, counts
    from faultlines.cli.gate import Certificates

    settings = _settings(claim, refine, counted.min_size)
    if metric in EXACT:
        read = partial(counts, metric, counted, columns, arms)
        _cluster_groups(read, counted.inputs, claim, settings, output, fail_on_split, Certificates.of(signed))
        return
    rows = opt.RowOptions(files=counted.files, sql=counted.sql, by=counted.by, min_size=counted.min_size)
    metrics = [aggregated_metric(metric, counted.n, columns, arms)]
    wanted = Certificates.of(signed, metrics, mismatch)
    _cluster_rows(rows, metrics, claim, None, settings, opt.SelfCheckOptions(), output, fail_on_split, wanted)


# ------------------------------------------------------------------------------------------------------------- many


@_command(
    "faultlines many lifts.csv --experiment test --by country \\\n      --estimate lift --se se --csv clusters.csv",
    "faultlines many visits/*.parquet --experiment test --by country \\\n"
    "      --metric lift:revenue --variant arm --control A --correction bh --json -",
    "faultlines many counts.csv --experiment model --by group \\\n"
    "      --metric rate --n people --sum selected --fail-on-split",
    notes=["Aggregates take the metrics rate, mean, difference and lift, without a column behind the name."],
    common="experiment by estimate se metric variant control alpha fail_on_split csv report",
)
def many(
    *,
    experiments: opt.ExperimentOptions,
    measured: opt.WatchedMetric,
    columns: opt.Aggregates,
    claim: opt.Claim,
    correction: opt.Correction = "holm",
    margins: opt.Margins = True,
    refine: opt.Refine = True,
    fail_on_split: opt.FailOnSplit = False,
    missing: opt.Missing = "bounds",
    mismatch: opt.Mismatch = "inconclusive",
    json: opt.Json = None,
    csv: opt.Csv = None,
    report: opt.Report = None,
    title: opt.Title = None,
) -> None:
    """In which of many experiments do groups differ? One table or one scan, with one correction over all."""
    from faultlines.analyses.certify import checked_mismatch, checked_missing
    from faultlines.analyses.many import cluster_many
    from faultlines.cli.aggregates import many_from
    from faultlines.cli.gate import end_with_experiments, gate

    checked_missing(missing)
    checked_mismatch(mismatch)
    guarantee, source = chosen_guarantee(claim), many_from(experiments, measured, columns)
    targets = outputs.checked(opt.Output(json=json, report=report, title=title), experiments.inputs, csv=csv)
    settings = _settings(claim, refine, experiments.min_size, margins) | source
    data = settings.pop("data")
    with gate(fail_on_split):
        result = cluster_many(data, guarantee=guarantee, correction=correction, **settings)  # type: ignore[arg-type]
    targets.say_result(result)
    targets.write_result(result)
    if fail_on_split:
        end_with_experiments(result, missing, mismatch)


# ------------------------------------------------------------------------------------------------------------- rows


@_command(
    "faultlines experiment visits/*.parquet --by country --by device \\\n"
    "      --metric lift:revenue --variant arm --control A --unit user_id",
    "faultlines experiment visits.csv --by age:5 --variant arm --control A \\\n"
    "      --metric ratio_lift:clicks/views --report out.html",
    notes=["All options hold for every metric."],
    common="by metric variant control treatment unit alpha fail_on_split certify json report",
)
def experiment(
    *,
    rows: opt.RowOptions,
    metric: opt.ExperimentMetrics,
    arms: opt.ArmOptions,
    per_arm: opt.PerArm = False,
    joint: opt.Joint = False,
    claim: opt.Claim,
    margins: opt.Margins = True,
    refine: opt.Refine = True,
    split_unit: opt.SplitUnit = None,
    tried: opt.SelfCheckOptions,
    fail_on_split: opt.FailOnSplit = False,
    mismatch: opt.Mismatch = "inconclusive",
    signed: opt.Certify,
    output: opt.Output,
) -> None:
    """Which groups react differently to the treatment? From the rows of an experiment."""
    from faultlines.cli.gate import Certificates
    from faultlines.cli.metrics import experiment_metrics, name_treatments

    if per_arm and arms.treatment == ["*"]:
        arms = name_treatments(arms, rows.rows())
    metrics = experiment_metrics(metric, arms, per_arm=per_arm)
    metrics = _joint(metrics) if joint else metrics
    settings = _settings(claim, refine, rows.min_size, margins)
    wanted = Certificates.of(signed, metrics, mismatch)
    _cluster_rows(rows, metrics, claim, split_unit, settings, tried, output, fail_on_split, wanted)


_BASELINE_USAGE = (
    "\n  --baseline stands beside --y-pred and --baseline-score beside --score:\n"
    "      all metrics but f1, balanced_accuracy, equalized_odds,\n      calibration_slope"
)


@_command(
    "faultlines model scored.parquet --by gender --by age:5 --metric auc \\\n"
    "      --metric true_positive_rate --y-true label --score s --threshold 0.5",
    "faultlines model scored.csv --by country --metric false_positive_rate \\\n"
    "      --y-true label --y-pred predicted --positive yes --fail-on-split",
    "faultlines model scored.csv --by group --metric selection_rate \\\n      --y-pred predicted --certify 0.8 --ratio",
    "faultlines model scored.csv --by group --metric accuracy --y-true label \\\n"
    "      --y-pred new --baseline old --certify 0.01",
    notes=[model_usage() + _BASELINE_USAGE],
    common="by metric y_true y_pred score threshold alpha fail_on_split certify json report",
)
def model(
    *,
    rows: opt.RowOptions,
    metric: opt.ModelMetrics,
    predictions: opt.Predictions,
    baseline: opt.Baseline,
    joint: opt.Joint = False,
    claim: opt.Claim,
    margins: opt.Margins = True,
    refine: opt.Refine = True,
    split_unit: opt.SplitUnit = None,
    self_check: opt.SelfCheckRuns = None,
    fail_on_split: opt.FailOnSplit = False,
    signed: opt.Certify,
    output: opt.Output,
) -> None:
    """Which groups does a model serve worse? From its predictions and the truth."""
    from faultlines.cli.gate import Certificates
    from faultlines.cli.metrics import model_metrics

    metrics = model_metrics(metric, predictions, baseline)
    metrics = _joint(metrics) if joint else metrics
    wanted = Certificates.of_change(signed, metrics) if baseline.columns else Certificates.of(signed, metrics)
    settings = _settings(claim, refine, rows.min_size, margins)
    tried = opt.SelfCheckOptions(self_check=self_check)
    _cluster_rows(rows, metrics, claim, split_unit, settings, tried, output, fail_on_split, wanted)


@_command(
    "faultlines audit scored.parquet --by sex --by race --by age \\\n"
    "      --y-true label --y-pred predicted --report audit.html",
    "faultlines audit scored.csv --by sex --by race --y-true label \\\n"
    "      --score s --threshold 0.5 --metric tpr --metric fpr --csv groups.csv",
    "faultlines audit scored.csv --by group --control region \\\n"
    "      --y-true label --y-pred predicted --certify 0.05 --fail-on-split",
    "faultlines audit scored.csv --by sex --by race --y-true label \\\n"
    "      --y-pred new --baseline old --certify 0.01",
    notes=[model_usage(without=["classes", "overlap"]) + _BASELINE_USAGE],
    common="by control y_true y_pred score threshold metric alpha fail_on_split certify csv report",
)
def audit(
    *,
    options: opt.AuditOptions,
    baseline: opt.Baseline,
    metric: opt.AuditMetrics = None,
    claim: opt.Claim,
    correction: opt.Correction = "holm",
    fail_on_split: opt.FailOnSplit = False,
    signed: opt.Certify,
    json: opt.Json = None,
    csv: opt.GroupsCsv = None,
    report: opt.Report = None,
    title: opt.Title = None,
) -> None:
    """Audit a model: several metrics, features alone and crossed."""
    from faultlines.analyses.audit import audit as audit_model
    from faultlines.cli.gate import Certificates, MeasuredRows, end_with_verdicts, gate
    from faultlines.cli.metrics import audit_changes
    from faultlines.render.text import to_text
    from faultlines.results.protocol import plain_data

    changes = audit_changes(metric, options, baseline) if baseline.columns else None
    wanted = Certificates.of(signed) if changes is None else Certificates.of_change(signed, changes)
    data = options.rows()
    targets = outputs.checked(opt.Output(json=json, report=report, title=title), options.inputs, csv=csv)
    with gate(fail_on_split or wanted.asked), opt.name_options(_AUDIT_OPTIONS):
        result = audit_model(
            options.y_true,
            options.y_pred,
            data=data,
            score=options.score,
            threshold=options.threshold,
            sensitive_features=attributes(options.by),
            control_features=options.control,
            metrics=changes or metric,
            sample_weight=options.weight,
            unit=options.unit,
            positive=options.positive,
            intersections=options.intersections,
            tolerance=claim.tolerance,
            correction=correction,  # type: ignore[arg-type]
            alpha=claim.alpha,
            guarantee=chosen_guarantee(claim),
            min_size=options.min_size,
            seed=claim.seed,
        )
    results, names = [comparison.result for comparison in result.comparisons], result.names
    measured = [
        MeasuredRows(data, c.by, c.readout.metric, options.min_size)
        for c in results
        if c.readout is not None and not options.control  # a stratum is a part of the rows
    ]
    certificates = wanted.run(results, claim.alpha, claim.seed, measured, names)
    spelling: Spelling = "omit" if certificates else outputs.complete_command
    targets.say("\n\n".join([to_text(result, spelling=spelling), *wanted.texts(certificates, names)]))
    signed_off = dict(zip(names, certificates, strict=False)) | dict.fromkeys(result.skipped if certificates else ())
    targets.write_result(
        result, {"certificates": plain_data(signed_off)} if signed_off else None, certificates=signed_off
    )
    end_with_verdicts(
        results, certificates, fail_on_split=fail_on_split, missing=wanted.missing, skipped=result.skipped, names=names
    )


# What the library calls its parameters, and the options they are given by.
_AUDIT_OPTIONS = {
    "sensitive_features": "by",
    "control_features": "control",
    "metrics": "metric",
    "sample_weight": "weight",
}


def _cluster_rows(
    rows: opt.RowOptions,
    metrics: "list[Metric]",
    claim: opt.Claim,
    split_unit: str | None,
    settings: dict[str, Any],
    tried: opt.SelfCheckOptions,
    output: opt.Output,
    fail_on_split: bool,
    wanted: "Certificates",
) -> None:
    """Cluster rows by each metric, correct for their number, and print the results."""
    from faultlines.analyses.cluster import cluster_metrics, holm
    from faultlines.cli.gate import MeasuredRows, SelfChecks, end_with_verdicts, gate
    from faultlines.render.collection import metrics_text
    from faultlines.render.text import to_text

    guarantee = chosen_guarantee(claim, split_unit)
    self_checks = SelfChecks.of(tried, metrics, guarantee)
    data = rows.rows()
    targets = outputs.checked(output, rows.inputs, len(metrics))
    by = attributes(rows.by)
    with gate(fail_on_split or wanted.asked):
        results = cluster_metrics(data, by, metrics, guarantee=guarantee, **settings)
    if len(results) > 1:
        results = holm(results, claim.alpha)
    measured = [MeasuredRows(data, by, metric, rows.min_size) for metric in metrics]
    certificates = wanted.run(results, claim.alpha, claim.seed, measured)
    spelling: Spelling = "omit" if certificates else outputs.complete_command
    text = to_text(results[0], spelling=spelling) if len(results) == 1 else metrics_text(results, spelling)
    targets.say("\n\n".join([text, *wanted.texts(certificates)]))
    checks_of_rows = self_checks.run(data, by, settings)
    for text in self_checks.texts(checks_of_rows):
        targets.say(f"\n{text}")
    targets.write(results, claim.alpha, checks_of_rows, certificates)
    end_with_verdicts(
        results, certificates, fail_on_split=fail_on_split, missing=wanted.missing, mismatch=wanted.mismatch
    )


def _joint(metrics: "list[Metric]") -> "list[Metric]":
    from faultlines.metrics.joint import joint

    if len(metrics) < 2:
        raise InputError.too_few("joint", "needs two metrics or more", "Name a second --metric, or leave it out.")
    return [joint(*metrics)]


# -------------------------------------------------------------------------------------------------------------- srm


@_command(
    "faultlines srm visits/*.parquet --by country --by browser \\\n"
    "      --variant arm --shares A=50,B=50 --unit user_id",
    "faultlines srm visits.csv --by country --variant arm \\\n      --shares A=50,B=30,C=20 --fail-on-mismatch",
    "faultlines srm visits.csv --variant arm --shares A=50,B=50",
    notes=[
        "Without --shares, groups are compared with each other alone: a mismatch that is the same everywhere is missed."
    ],
    common="by variant shares unit alpha fail_on_mismatch report",
)
def srm(
    *,
    rows: opt.CountedRows,
    variant: opt.Variant,
    shares: opt.Shares = None,
    unit: opt.Unit = None,
    alpha: opt.RatioAlpha = 0.001,
    seed: opt.Seed = 0,
    fail_on_mismatch: opt.FailOnMismatch = False,
    json: opt.Json = None,
    report: opt.Report = None,
    title: opt.Title = None,
) -> None:
    """Are users divided between the variants as planned? If not, where does the mismatch come from?"""
    from faultlines.analyses.srm import srm as test_ratios
    from faultlines.cli.gate import end_with_verdict

    targets = outputs.checked(opt.Output(json=json, report=report, title=title), rows.inputs)
    by = attributes(rows.by) if rows.by else None
    if by is None and rows.min_size is not None:
        raise InputError.conflict("min_size", "needs --by", "Leave it out, or give groups.", rows.min_size)
    planned: Any = None if shares is None else planned_shares(shares)
    least = {} if rows.min_size is None else {"min_size": rows.min_size}
    result = test_ratios(rows.rows(), by, variant=variant, shares=planned, unit=unit, alpha=alpha, seed=seed, **least)
    targets.say_result(result)
    targets.write_result(result)
    if fail_on_mismatch:
        end_with_verdict(result)


# ---------------------------------------------------------------------------------------------------------- confirm


@_command(
    "faultlines confirm clusters.json march/*.parquet",
    "faultlines confirm clusters.json march.csv --by country \\\n"
    "      --metric lift:revenue --variant arm --control A --fail-unless-confirmed",
    "faultlines confirm clusters.json lifts.csv --by country \\\n      --estimate lift --se se",
    common="by metric estimate se alpha fail_unless_confirmed json",
)
def confirm(
    *,
    fresh: opt.Fresh,
    measured: opt.MeasuredOptions,
    alpha: opt.Alpha = 0.05,
    seed: opt.Seed = 0,
    fail_unless_confirmed: opt.FailUnlessConfirmed = False,
    missing: opt.Missing = "bounds",
    mismatch: opt.Mismatch = "inconclusive",
    json: opt.Json = None,
) -> None:
    """Do clusters of earlier data differ again on new data? If so, by how much?"""
    from faultlines.analyses.certify import checked_mismatch, checked_missing
    from faultlines.analyses.confirm import confirm as confirm_clusters
    from faultlines.cli.gate import end_with_confirmation, gate
    from faultlines.cli.metrics import fresh_metric
    from faultlines.cli.outputs import is_table, table_of

    checked_mismatch(mismatch)
    unseen = checked_missing(missing)
    metric = fresh_metric(measured)
    targets = outputs.checked(opt.Output(json=json), fresh.inputs, also=[fresh.clusters])
    by: Any = attributes(fresh.by) if fresh.by else None
    data: Any = None
    if not is_table(fresh):
        data = fresh.rows()
    else:
        data, by = table_of(fresh, measured=metric is not None and not isinstance(metric, str)), None
    with gate(fail_unless_confirmed):
        result = confirm_clusters(fresh.clusters, data, by, metric, alpha=alpha, min_size=fresh.min_size, seed=seed)
    targets.say_result(result)
    targets.write_result(result)
    if fail_unless_confirmed:
        end_with_confirmation(result, mismatch, unseen)


# ---------------------------------------------------------------------------------------------------------- monitor


@_command(
    "faultlines monitor state.json visits/*.parquet --by country --looks 28 \\\n"
    "      --metric lift:revenue --variant arm --control A --unit user_id",
    "faultlines monitor state.json visits/*.parquet --by country \\\n"
    "      --metric lift:revenue --variant arm --control A --unit user_id \\\n"
    "      --report monitor.html --fail-on-split",
    "faultlines monitor state.json visits/*.parquet --by country \\\n"
    "      --metric lift:revenue --variant arm --control A --unit user_id \\\n"
    "      --fail-on harm --adverse low",
    "faultlines monitor state.json lifts.csv --by country \\\n      --estimate lift --se se --n users",
    notes=["A daily job: every look is at all data so far. How α is spent is said at the first look."],
    common="by metric variant control unit looks alpha final fail_on_split fail_on adverse report",
)
def monitor(
    *,
    watched: opt.Watched,
    measured: opt.WatchedMetric,
    how: opt.Monitoring,
    gates: opt.LookGates,
    json: opt.Json = None,
    report: opt.Report = None,
    title: opt.Title = None,
) -> None:
    """Do groups differ yet, while data come in? Look as often as you like: α holds over all looks."""
    from faultlines.cli.gate import LookGate, gate
    from faultlines.cli.metrics import metric_of_rows
    from faultlines.cli.monitor import open_monitor, take_look, write_look

    look_gate = LookGate.of(gates, None if outputs.is_table(watched) else metric_of_rows(measured))
    targets = outputs.checked(opt.Output(json=json, report=report, title=title), watched.inputs, also=[watched.state])
    with open_monitor(watched.state, how) as held:
        with gate(look_gate.asked):
            writes = json is not None or report is not None
            look = take_look(held, watched, measured, final=how.final, writes=writes)
        write_look(look, targets, watched.state)
    look_gate.end(look.result)


# ----------------------------------------------------------------------------------------------------- impact ratios


@_command(
    "faultlines impact-ratio hires.csv --by sex --by race --selected hired",
    "faultlines impact-ratio scored.parquet --by race --score score \\\n      --csv ratios.csv --report ratios.html",
    "faultlines impact-ratio hires.csv --by race --selected hired \\\n      --unknown exclude --fail-below",
    name="impact-ratio",
    common="by selected score least unknown fail_below csv report",
)
def impact_ratio(*, options: opt.Impact, written: opt.ImpactOutput) -> None:
    """Tabulate impact ratios: selection rates over the highest one. With intervals and verdicts."""
    from faultlines.analyses.impact import impact_ratios
    from faultlines.cli.gate import end_with_verdict

    data = options.rows()
    output = opt.Output(json=written.json, report=written.report, title=written.title)
    targets = outputs.checked(output, options.inputs, csv=written.csv, markdown=written.markdown)
    result = impact_ratios(
        data,
        attributes(options.by),
        selected=options.selected,
        score=options.score,
        positive=options.positive,
        least=options.least,
        min_share=options.min_share,
        unknown=options.unknown,  # type: ignore[arg-type]  # it is checked there
        unknown_levels=options.unknown_level or None,
        missing=options.missing,  # type: ignore[arg-type]
        alpha=options.alpha,
        seed=options.seed,
    )
    targets.say_result(result)
    targets.write_result(result)
    if options.fail_below:
        end_with_verdict(result)


# ------------------------------------------------------------------------------------------------------------ power


@_command(
    "faultlines power --groups 40 --size 5000 --spread 1.2 --gap 0.1",
    "faultlines power --groups 20 --size 2000 --baseline 0.05 --gap -0.01 \\\n      --shares A=90,B=10 --per-day 4000",
    "faultlines power lifts.csv --by country --se se --only DE --only AT",
    "faultlines power visits.csv --by country --metric lift:revenue \\\n      --variant arm --control A --gap 0.05",
    "faultlines power scored.csv --by group --metric equalized_odds \\\n      --y-true label --y-pred predicted",
    common="by se metric variant control groups size spread baseline per_day gap share alpha",
)
def power(
    planned: opt.Planned,
    predictions: opt.Predictions,
    question: opt.Question,
    claim: opt.Claim,
    margins: opt.Margins = True,
    json: opt.Json = None,
) -> None:
    """Plan: what can be detected, and how many users does it take? Or: what would a past experiment have detected?"""
    from faultlines.analyses import power as planning
    from faultlines.cli.aggregates import to_plan_with

    if question.only and question.share is not None:
        raise InputError.conflict("share, only", "both set which groups differ", "Give only one.", form="clause")
    guarantee = chosen_guarantee(claim)
    targets = outputs.checked(opt.Output(json=json), planned.files or [])
    with opt.name_options({"split": "only" if question.only else "share"}):
        result = planning.power(
            **to_plan_with(planned, predictions),
            gap=question.gap,
            split=question.only or (0.5 if question.share is None else question.share),
            along=question.along,
            spread=planned.spread,
            baseline=planned.baseline,
            arms=planned.arms,
            shares=None if planned.shares is None else planned_shares(planned.shares),
            per_day=planned.per_day,
            margins=margins,
            alpha=claim.alpha,
            guarantee=guarantee,
            tolerance=claim.tolerance,
            target=question.target,
            runs=question.runs,
            seed=claim.seed,
        )
    targets.say_result(result)
    targets.write_result(result)
