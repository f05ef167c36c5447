"""The list of metrics: Python's public names, the command line and the docs read it. A metric is a function and a line.

Nothing heavy is imported before a metric is asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from faultlines.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from faultlines.metrics.base import Metric

Family = Literal["experiment", "population", "model"]
Adverse = Literal["low", "high"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One metric: where its function is, and what it takes.

    Args:
        name: The name of the metric and of its function.
        family: What it is about: an experiment, one population, or a model.
        columns: The columns it needs; for each, the parameters that can name it: a prediction is ``y_pred``, or a
            ``score`` with its threshold.
        options: The parameters it accepts beside these.
        words: What results call it, where that is not its name with spaces.
        adverse: The direction that harms the people of a group, ``"low"`` or ``"high"``; one for each of several
            effects. Empty where neither does, or where that is not known: what an experiment moves can be good or bad.
        span: How far apart two groups can be at most.
        averages: Whether the value in all rows is the mean of the groups' values. That of a ranking is not: it ranks
            people of different groups, too.
        is_plural: Whether its name is a plural: the equalized odds differ.
    """

    name: str
    family: Family
    columns: tuple[tuple[str, ...], ...]
    options: tuple[str, ...] = ()
    words: str = ""
    adverse: str = ""
    span: float = math.inf
    averages: bool = True
    is_plural: bool = False

    @property
    def title(self) -> str:
        """What results call it."""
        return self.words or self.name.replace("_", " ")

    @property
    def module(self) -> str:
        """The module that defines its function."""
        return f"faultlines.metrics.{self.family}"

    @property
    def function(self) -> Callable[..., Metric]:
        """The function that makes the metric, imported now."""
        function: Callable[..., Metric] = getattr(import_module(self.module), self.name)
        return function

    @property
    def summary(self) -> str:
        """What it measures, in one sentence: the first line of the function's documentation."""
        return (self.function.__doc__ or "").strip().splitlines()[0]

    def accepts(self, parameter: str) -> bool:
        """Whether a parameter means anything to it."""
        return parameter in self.options or any(parameter in names for names in self.columns)


_VALUE, _RATIO = (("value",),), (("numer",), ("denom",))
_TRUTH, _PREDICTION, _SCORE, _LABEL = ("y_true",), ("y_pred", "score"), ("score",), ("y_pred",)
_ARMS = ("variant", "control", "treatment", "unit", "covariate", "weight", "overlap", "shares", "cap")
_CLUSTERS = ("unit", "overlap")
_RATE = ("threshold", "positive", "classes", "weight", *_CLUSTERS)

_ENTRIES = (
    Entry("difference", "experiment", _VALUE, (*_ARMS, "aggregate")),
    Entry("lift", "experiment", _VALUE, (*_ARMS, "aggregate")),
    Entry("ratio_difference", "experiment", _RATIO, _ARMS),
    Entry("ratio_lift", "experiment", _RATIO, _ARMS),
    Entry("mean", "population", _VALUE, ("weight", *_CLUSTERS, "cap")),
    Entry("rate", "population", _VALUE, ("positive", "weight", *_CLUSTERS), span=1),
    Entry("ratio", "population", _RATIO, ("weight", *_CLUSTERS)),
    Entry(
        "atkinson",
        "population",
        _VALUE,
        ("epsilon", "variant", "control", "treatment", "unit"),
        averages=False,
    ),
    Entry("selection_rate", "model", (_PREDICTION,), _RATE, adverse="low", span=1),
    Entry("true_positive_rate", "model", (_TRUTH, _PREDICTION), _RATE, adverse="low", span=1),
    Entry("false_positive_rate", "model", (_TRUTH, _PREDICTION), _RATE, adverse="high", span=1),
    Entry("true_negative_rate", "model", (_TRUTH, _PREDICTION), _RATE, adverse="low", span=1),
    Entry("false_negative_rate", "model", (_TRUTH, _PREDICTION), _RATE, adverse="high", span=1),
    Entry("precision", "model", (_TRUTH, _PREDICTION), _RATE, adverse="low", span=1),
    Entry("negative_predictive_value", "model", (_TRUTH, _PREDICTION), _RATE, adverse="low", span=1),
    Entry("accuracy", "model", (_TRUTH, _PREDICTION), _RATE, adverse="low", span=1),
    Entry("error_rate", "model", (_TRUTH, _PREDICTION), _RATE, adverse="high", span=1),
    Entry("balanced_accuracy", "model", (_TRUTH, _PREDICTION), _RATE, adverse="low", span=1, averages=False),
    Entry("f1", "model", (_TRUTH, _PREDICTION), _RATE, words="F1", adverse="low", span=1, averages=False),
    Entry("equalized_odds", "model", (_TRUTH, _PREDICTION), _RATE[:-1], adverse="low high", span=1, is_plural=True),
    Entry(
        "auc", "model", (_TRUTH, _SCORE), ("positive", "bins", "weight", "unit"), adverse="low", span=1, averages=False
    ),
    Entry("log_loss", "model", (_TRUTH, _SCORE), ("positive", "weight", *_CLUSTERS), adverse="high"),
    Entry(
        "brier",
        "model",
        (_TRUTH, _SCORE),
        ("positive", "weight", *_CLUSTERS),
        words="Brier score",
        adverse="high",
        span=1,
    ),
    Entry("calibration_gap", "model", (_TRUTH, _SCORE), ("positive", "weight", *_CLUSTERS), span=2),
    Entry("calibration_slope", "model", (_TRUTH, _SCORE), ("positive", *_CLUSTERS), averages=False),
    Entry("mean_error", "model", (_TRUTH, _LABEL), ("weight", *_CLUSTERS)),
    Entry("mean_absolute_error", "model", (_TRUTH, _LABEL), ("weight", *_CLUSTERS), adverse="high"),
    Entry("mean_squared_error", "model", (_TRUTH, _LABEL), ("weight", *_CLUSTERS), adverse="high"),
)

METRICS: Mapping[str, Entry] = MappingProxyType({entry.name: entry for entry in _ENTRIES})


def of_family(family: Family) -> list[str]:
    """The names of the metrics of one family, in the order of the table."""
    return [name for name, entry in METRICS.items() if entry.family == family]


# What other libraries and papers call them.
_ELSEWHERE = {
    "selection_rate": "demographic_parity statistical_parity positive_rate acceptance_rate ppr pprev impact_parity",
    "true_positive_rate": "tpr recall recall_score sensitivity hit_rate equal_opportunity",
    "false_positive_rate": "fpr fall_out false_alarm_rate",
    "true_negative_rate": "tnr specificity selectivity",
    "false_negative_rate": "fnr miss_rate",
    "precision": "ppv positive_predictive_value precision_score predictive_parity",
    "negative_predictive_value": "npv",
    "accuracy": "acc accuracy_score",
    "balanced_accuracy": "balanced_accuracy_score bacc bal_acc",
    "f1": "f1_score f_score f_measure dice",
    "error_rate": "err misclassification_rate zero_one_loss",
    "equalized_odds": "eod equalised_odds",
    "auc": "roc_auc auroc roc_auc_score roc",
    "log_loss": "logloss cross_entropy nll",
    "brier": "brier_score brier_score_loss",
    "calibration_gap": "calibration mean_calibration",
    "mean_error": "me bias",
    "mean_absolute_error": "mae",
    "mean_squared_error": "mse",
    "difference": "diff delta ate absolute_difference mean_difference",
    "lift": "uplift relative_difference relative_lift percent_change",
    "ratio_difference": "ratio_diff",
    "ratio_lift": "ratio_uplift",
}
_OWN_NAMES = {other: name for name, others in _ELSEWHERE.items() for other in others.split()}

# What is not measured here under any name, and what to do instead.
_BINNED = "It grows where groups are small, however good the scores: use 'calibration_gap' or 'calibration_slope'."
_ANSWERS = {
    "ece expected_calibration_error mce maximum_calibration_error ace calibration_error": _BINNED,
    "fdr false_discovery_rate": "It is 1 − precision, so groups differ in it as they do in precision: use 'precision'.",
    "for false_omission_rate": "It is 1 − the negative predictive value: use 'negative_predictive_value'.",
    "disparate_impact": "It is a ratio of selection rates: use 'selection_rate', and for the four-fifths rule "
    "fl.certify(…, gap=0.8, ratio=True), which compares with the highest group.",
    "typei type_i": "It is about two metrics: use 'false_positive_rate' and 'precision' (1 − false discovery rate).",
    "typeii type_ii": "It is about two metrics: use 'false_negative_rate' and 'negative_predictive_value' "
    "(1 − false omission rate).",
    "prev prevalence base_rate": "It is about the truth alone. In Python: metrics=fl.rate('y_true').",
    "mean_prediction": 'In Python: fl.mean("y_pred"), or fl.mean("score").',
    "tp true_positives": "Counts grow with their group: use 'true_positive_rate'.",
    "fp false_positives": "Counts grow with their group: use 'false_positive_rate'.",
    "tn true_negatives": "Counts grow with their group: use 'true_negative_rate'.",
    "fn false_negatives": "Counts grow with their group: use 'false_negative_rate'.",
    "count n size group_size": "Group sizes are no metric; every result has them as n.",
}
_INSTEAD = {name: answer for names, answer in _ANSWERS.items() for name in names.split()}

# What only a function measures, in scikit-learn.
_FUNCTIONS = {
    "average_precision_score": "average_precision ap pr_auc auprc",
    "matthews_corrcoef": "mcc matthews_corrcoef phi",
    "cohen_kappa_score": "kappa cohen_kappa cohens_kappa",
    "jaccard_score": "jaccard iou",
    "r2_score": "r2 r_squared",
    "root_mean_squared_error": "rmse neg_root_mean_squared_error",
    "median_absolute_error": "median_ae",
    "mean_absolute_percentage_error": "mape",
}
_THEIRS = {name: f"sklearn.metrics.{own}" for own, names in _FUNCTIONS.items() for name in (own, *names.split())}
_THEIRS |= {
    f"{name}_{over}": f'functools.partial(sklearn.metrics.{name}_score, average="{over}")'
    for name in ("f1", "precision", "recall")
    for over in ("macro", "micro", "weighted")
}


def own_name(name: str) -> str | None:
    """What a metric is called here, by that or another name it has elsewhere; None where it is not known.

    Fairlearn's and Aequitas' differences, ratios and disparities of a metric are about that metric.
    """
    return next((_OWN_NAMES.get(stem, stem) for stem in _stems(name) if stem in METRICS or stem in _OWN_NAMES), None)


def _stems(name: str) -> list[str]:
    """A name in our spelling, and without what says that groups are compared in it."""
    plain = name.strip().lower().replace("-", "_").replace(" ", "_")
    endings = ("", "_difference", "_ratio", "_disparity", "_parity", "_group_min", "_group_max")
    return [plain.removesuffix(ending) for ending in endings if plain.endswith(ending)]


def remedy_for(name: str, family: Family, *, function: str, otherwise: str = "") -> str:
    """What to do about a name that is not that of a metric: ours, what answers the same question, or a function.

    Args:
        name: What was given.
        family: The metrics that were asked for.
        function: How a function of another library is used in their place, with ``{}`` where it stands.
        otherwise: What to add where nothing is known of the name.
    """
    names = of_family(family)
    if (own := own_name(name)) in names:
        return f"Did you mean {own!r}?"
    for stem in _stems(name) if family == "model" else ():
        if stem in _INSTEAD:
            return _INSTEAD[stem]
        if stem in _THEIRS:
            return function.format(_THEIRS[stem])
    return did_you_mean(name, names) + otherwise
