"""One golden file for each rendered output: text, Markdown and the keys of the JSON of every kind of result.

`python -m tests.golden --write` writes them anew; review the change as a diff. `tests/test_golden.py` compares.
"""

from __future__ import annotations

import itertools
import re
import shlex
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import faultlines as fl
from faultlines import simulate
from faultlines.results import SelfCheck
from tests.cli.mistakes import MISTAKES, make_mistake, write_inputs
from tests.cli.running import run_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from faultlines.results import Clustering, Result

FOLDER = Path(__file__).parent


# ------------------------------------------------------------------------------------------------------------- results


@cache
def people(seed: int = 1) -> pd.DataFrame:
    """Predictions for 3,000 people by region and sex: one region is predicted worse, one has almost nobody."""
    rng = np.random.default_rng(seed)
    region = rng.choice(["north", "south", "west"], 3000)
    frame = pd.DataFrame({"region": region, "sex": rng.choice(["f", "m"], 3000), "arm": rng.choice(["A", "B"], 3000)})
    frame["label"] = (rng.random(3000) < 0.4).astype(int)
    wrong = rng.random(3000) < np.where(frame.region == "west", 0.4, 0.15)
    frame["predicted"] = np.where(wrong, 1 - frame.label, frame.label)
    frame["spend"] = rng.gamma(2.0, 5.0, 3000) * np.where((frame.arm == "B") & (frame.sex == "f"), 1.2, 1.0)
    frame.loc[:2, "region"] = "island"
    frame.loc[5:9, "label"] = np.nan
    return frame


@cache
def applicants() -> pd.DataFrame:
    """4,000 applicants: one race is hired less often, one has few applicants, and of some the race is unknown."""
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"sex": rng.choice(["female", "male"], 4000)})
    frame["race"] = rng.choice(["Asian", "Black", "Native", "White"], 4000, p=[0.2, 0.3, 0.01, 0.49])
    chance = np.where(frame.race == "Black", 0.25, 0.45)
    frame["hired"], frame["score"] = (rng.random(4000) < chance).astype(int), chance + rng.normal(0, 0.3, 4000)
    frame.loc[rng.random(4000) < 0.03, "race"] = None
    return frame


@cache
def demo() -> Clustering:
    """Three clusters of 40 countries."""
    return fl.cluster(simulate.onboarding().estimates)


LIFT = fl.lift("spend", variant="arm", control="A")
COUNTRIES = ["DE", "FR", "IT", "ES", "PT", "NO"]


def _estimates(values: list[float], se: float = 0.3) -> fl.Estimates:
    return fl.Estimates(values, [se] * len(values), COUNTRIES[: len(values)], attributes=["country"])


def _additive() -> Result:
    """Two attributes whose effects add up, and one that adds nothing."""
    labels = [(country, sex, day) for country in COUNTRIES for sex in "fm" for day in ("Mon", "Tue")]
    noise = np.random.default_rng(1).normal(0, 0.3, len(labels))
    theta = [3.0 * (country == "NO") + 1.0 * (sex == "m") for country, sex, _ in labels] + noise
    return fl.cluster(fl.Estimates(theta, [0.3] * 24, labels, 500, attributes=["country", "sex", "day"]))


def _audit() -> Result:
    rows = people()
    features = rows[["region", "sex"]]
    return fl.audit(rows.label, rows.predicted, sensitive_features=features, metrics=["fpr", "selection_rate"])


def _experiments() -> Result:
    named: dict[str, Any] = {"button": simulate.planted([0, 6], [5, 5]).estimates, "font": simulate.null(10).estimates}
    return fl.cluster_many({**named, "single": fl.Estimates([0.5], [0.1], ["DE"])})


def _monitor() -> Any:
    monitor = fl.Monitor(looks=4)
    monitor.update(fl.Estimates([0.0, 0.1, 0.4], [0.5] * 3, ["DE", "FR", "IN"], [50, 60, 55]))
    return monitor.update(fl.Estimates([0.0, 0.1, 5.0], [0.3] * 3, ["DE", "FR", "IN"], [90, 110, 100]))


CASES: dict[str, Callable[[], Any]] = {
    "clustering-differ": demo,
    "clustering-no-difference": lambda: fl.cluster(simulate.null(12, seed=1).estimates),
    "clustering-outlier": lambda: fl.cluster(_estimates([0.1, 0.0, 0.2, 0.1, 0.0, 4.0])),
    "clustering-one-group": lambda: fl.cluster(fl.Estimates([1.0], [0.5], ["DE"], attributes=["country"])),
    "clustering-crossed": lambda: fl.cluster(people(), ["region", "sex"], fl.false_positive_rate("label", "predicted")),
    "clustering-additive": _additive,
    "clustering-two-effects": lambda: fl.cluster(people(), "region", fl.equalized_odds("label", "predicted")),
    "clustering-holdout": lambda: fl.cluster(demo().estimates, guarantee="holdout"),
    "clustering-folds": lambda: fl.cluster(demo().estimates, guarantee="folds"),
    "clustering-bonferroni": lambda: fl.cluster(demo().estimates, guarantee="bonferroni"),
    "clustering-tolerance": lambda: fl.cluster(demo().estimates, tolerance=0.01),
    "clustering-lift": lambda: fl.cluster(people(), ["sex", "region"], LIFT),
    "certificate-passed": lambda: fl.certify(fl.binomial([480, 500, 510], 1000, COUNTRIES[:3]), gap=0.06),
    "certificate-inconclusive": lambda: fl.certify(fl.binomial([480, 500, 510], 1000, COUNTRIES[:3]), gap=0.02),
    "certificate-failed": lambda: fl.certify(
        fl.binomial([600, 580, 340], 1000, ["A", "B", "C"]), gap=0.8, ratio=True, against="A", adverse="low"
    ),
    "certificate-four-fifths": lambda: fl.certify(
        fl.binomial([3600, 1800, 290], [6000, 4000, 500], COUNTRIES[:3]), gap=0.8, ratio=True, adverse="low"
    ),
    "certificate-no-harm": lambda: fl.certify(
        fl.Estimates([0.01, 0.004], [0.004, 0.003], COUNTRIES[:2]), gap=0.01, against=0, adverse="low"
    ),
    "certificate-excluded": lambda: fl.certify(people(), "region", fl.rate("label"), gap=0.1, against="all pairs"),
    "certificate-two-effects": lambda: fl.certify(
        people(), "region", fl.equalized_odds("label", "predicted"), gap=[0.1, 0.05]
    ),
    "confirmation-confirmed": lambda: fl.confirm(demo(), simulate.onboarding(3).estimates),
    "confirmation-not-confirmed": lambda: fl.confirm(
        fl.cluster(_estimates([0.0, 0.1, -0.1, 4.0, 4.2, 3.9])), _estimates([0.0] * 5)
    ),
    "confirmation-inconclusive": lambda: fl.confirm(
        fl.cluster(_estimates([0.0, 0.1, -0.1, 4.0, 4.2, 3.9]), tolerance=1.0), _estimates([0, 0, 0, 4, 4, 4], 9.0)
    ),
    "power-enough": lambda: fl.power([5000] * 20, spread=1.2, gap=0.1, runs=100),
    "power-no-gap": lambda: fl.power(fl.cluster(fl.binomial([40, 50, 45, 44], 400)), runs=100),
    "self-check-holds": lambda: fl.self_check(people(), "region", fl.rate("label"), runs=40),
    "self-check-violated": lambda: SelfCheck(40, 20, 0.05, "arms", None, "rate", "calibrated", 0),
    "impact-failed": lambda: fl.impact_ratios(applicants(), ["sex", "race"], selected="hired"),
    "impact-passed": lambda: fl.impact_ratios(applicants(), "sex", selected="hired", least=0.7),
    "impact-bounds": lambda: fl.impact_ratios(applicants(), "race", score="score", unknown="bounds", least=0.5),
    "experiments": _experiments,
    "audit": _audit,
    "monitor": _monitor,
    "monitor-ended": lambda: fl.Monitor(looks=1, dependence="any").update(_estimates([0.0, 0.1, -0.1])),
    "merge-invariance": lambda: fl.check_merge_invariance(fl.binomial([40, 50, 45], 400), runs=500),
}


# ------------------------------------------------------------------------------------------------------------- outputs


def outputs() -> Iterator[tuple[str, str]]:
    """Every rendered output, by the name of its file."""
    for name, case in CASES.items():
        result = case()
        yield f"{name}.txt", f"{result}\n"
        if hasattr(result, "to_markdown"):
            yield f"{name}.md", result.to_markdown()
        if hasattr(result, "to_dict"):
            yield f"{name}.keys", "\n".join(keys(result.to_dict())) + "\n"
    yield "mistakes.txt", mistakes()
    yield "certificate-sentences.txt", "".join(f"{sentence}\n" for sentence in certificate_sentences())


def certificate_sentences() -> Iterator[str]:
    """Headlines of certificates of one, two and three groups against everything, and what each says to do next."""
    references: list[Any] = ["overall", "highest", "lowest", "all pairs", "B", 0, 0.5]
    for effects, against, gap in itertools.product([(0.5, 0.5, 0.5), (0.5, 0.2, 0.3)], references, [0.05, 0.0, 0.8]):
        for count in (1, 2, 3) if against in (0, 0.5) else (2, 3):
            labels = ["A", "B", "C"][:count]
            estimates = fl.Estimates(effects[:count], [0.01] * count, labels, n=[2000] * count)
            for adverse in ("auto",) if against in ("highest", "lowest", "all pairs") else ("auto", "low"):
                if gap == 0.8 and against == 0:  # no ratio to zero
                    continue
                question: Any = {"against": against, "ratio": gap == 0.8, "adverse": adverse}
                yield fl.certify(estimates, gap=gap, **question).headline
    for rows, metric, gap in _incomplete():
        certificate = fl.certify(rows, "region", metric, gap=gap)
        yield from (certificate.headline, certificate.notes[-1].text)


def _incomplete() -> Iterator[tuple[pd.DataFrame, Any, float]]:
    """Predictions of which one region lacks some or all labels, or weights."""
    rng, rows = np.random.default_rng(0), people().dropna().query("region != 'island'")
    some = rows.assign(weight=rng.uniform(0.5, 2.0, len(rows)), label=rows.label.astype(float))
    lacking = (some.region == "south") & (rng.random(len(some)) < 0.3)
    accuracy = fl.accuracy("label", "predicted")
    for gap in (0.17, 0.13):
        yield some.assign(label=some.label.mask(lacking)), accuracy, gap
        yield some.assign(weight=some.weight.mask(lacking)), fl.accuracy("label", "predicted", weight="weight"), gap
    yield some.assign(label=some.label.mask(some.region == "south")), accuracy, 0.4


def mistakes() -> str:
    """What the command line answers to mistakes."""
    with tempfile.TemporaryDirectory() as name:
        write_inputs(Path(name))
        answers = {mistake: make_mistake(mistake, run_here, Path(name)).stderr for mistake in MISTAKES}
    return "".join(f"$ faultlines {shlex.join(MISTAKES[mistake][0])}\n{answer}" for mistake, answer in answers.items())


def keys(data: Any, path: str = "") -> list[str]:
    """The keys of plain data with the kind of what is behind them, each once; what is named by data counts as one."""
    if isinstance(data, dict):
        names = {key: "*" if path in {".results", ".dropped", ".skipped"} else key for key in data}
        lines = [line for key, value in data.items() for line in keys(value, f"{path}.{names[key]}")]
    elif isinstance(data, list):
        lines = [line for value in data for line in keys(value, f"{path}[]")]
    else:
        kind = {"int": "number", "float": "number", "str": "text", "NoneType": "none"}.get(type(data).__name__)
        lines = [f"{path}: {kind or type(data).__name__}"]
    return list(dict.fromkeys(lines))


def normal(text: str) -> str:
    """Text without what changes from release to release."""
    return re.sub(rf"\bfaultlines {re.escape(fl.__version__)}\b", "faultlines VERSION", text)


def write() -> int:
    """Write all files, remove those that are no more; how many there are."""
    texts = {name: normal(text) for name, text in outputs()}
    for path in FOLDER.iterdir():
        if path.suffix in {".txt", ".md", ".keys"} and path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return len(texts)
