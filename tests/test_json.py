"""JSON of every kind of result, held against the schemas of the reference, and the schemas against the JSON."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from faultlines.results import SelfCheck
from tests.recorded import estimates, tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.cli.running import Warm


def schema(kind: str = "result") -> dict[str, Any]:
    folder = Path(__file__).parent.parent / "docs" / "reference"
    read: dict[str, Any] = json.loads((folder / f"{kind}.schema.json").read_text(encoding="utf-8"))
    return read


def results() -> Iterator[dict[str, Any]]:
    """Results of every kind as plain data: estimates, rows with arms, groups left out, several effects."""
    wanted = {"estimates-holdout", "plane-calibrated", "binomial-calibrated", "poisson-bonferroni", "tolerance"}
    wanted |= {"folds-10", "null", "one-group", "min-size", "dof-calibrated"}
    yield from (json.loads(case().to_json()) for name, case in tables() if name in wanted)
    rng = np.random.default_rng(1)
    rows = pd.DataFrame({"country": rng.choice(list("abc"), 900), "age": rng.integers(20, 60, 900)})
    rows = rows.assign(arm=rng.choice(["A", "B"], 900), spend=rng.gamma(2, 2, 900))
    rows = rows.assign(label=rng.integers(0, 2, 900), guess=rng.integers(0, 2, 900))
    rows.loc[:3, "country"] = "tiny"
    rows.loc[5, "spend"] = np.nan
    arms: dict[str, Any] = {"variant": "arm", "control": "A"}
    by: list[str | fl.Bins] = ["country", fl.bins("age", width=20)]
    for metric in (fl.lift("spend", **arms), fl.rate("label"), fl.equalized_odds("label", "guess")):
        yield json.loads(fl.cluster(rows, by, metric).to_json())
    of_arms = rows.assign(arm=np.array(["A", "B", "C"])[np.arange(900) % 3])
    capped = fl.difference("spend", variant="arm", control="A", treatment="*", cap="95%")
    yield json.loads(fl.cluster(of_arms, "country", capped).to_json())
    both = fl.holm([fl.cluster(rows, by, fl.rate("label")), fl.cluster(estimates())], 0.05)
    yield from (json.loads(result.to_json()) for result in both)
    labels = [(a, b) for a in "abc" for b in "de"]
    yield json.loads(fl.cluster(fl.Estimates([0, 2, 0, 2, 5, 7], [0.1] * 6, labels, [9] * 6)).to_json())
    own = fl.Similarity([[1.0], [2.0]], lambda a, _: np.ones(len(a)))
    yield json.loads(fl.cluster(own, guarantee="bonferroni").to_json())


def test_the_json_of_every_kind_of_result_fits_its_schema_and_the_schema_has_nothing_else(
    warm: Warm, tmp_path: Path
) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(schema())
    jsonschema.Draft202012Validator.check_schema(schema())
    written = [*results(), from_the_command_line(warm, tmp_path)]
    for plain in written:
        problems = [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(plain)]
        assert problems == []
    properties = schema()["properties"]
    inner = "clusters groups explained additive excluded excluded_shares detection_limits notes path".split()
    wanted = {*properties, *(f"{key}.{name}" for key in inner for name in properties[key]["items"]["properties"])}
    assert wanted - keys(written, tuple(inner)) == set()
    wrong = {**written[0], "n_clusters": "two"}
    assert not validator.is_valid(wrong)
    assert not validator.is_valid({**written[0], "unheard_of": 1})


def from_the_command_line(warm: Warm, folder: Path) -> dict[str, Any]:
    """With a certificate and a check of its own rows, which only the command line writes into one file."""
    rows = "\n".join(f"{'abc'[i % 3]},{i % 2}" for i in range(600))
    (folder / "rows.csv").write_text("group,selected\n" + rows + "\n", encoding="utf-8")
    words = ["model", "rows.csv", "--by", "group", "--metric", "selection_rate", "--y-pred", "selected"]
    words += ["--certify", "0.2", "--self-check", "5", "--json", "-"]
    read: dict[str, Any] = json.loads(warm(*words, cwd=folder).stdout)
    return read


def rows_of_two_arms() -> pd.DataFrame:
    """Three groups, one too small to measure, one row without a value."""
    rng = np.random.default_rng(1)
    rows = pd.DataFrame({"country": rng.choice(list("abc"), 900), "arm": rng.choice(["A", "B"], 900)})
    rows = rows.assign(spend=rng.gamma(2, 2, 900), label=rng.integers(0, 2, 900), guess=rng.integers(0, 2, 900))
    rows.loc[:3, "country"] = "tiny"
    rows.loc[5, "spend"] = np.nan
    return rows


def certificates() -> Iterator[str]:
    rows, lift = rows_of_two_arms(), fl.lift("spend", variant="arm", control="A")
    yield fl.certify(rows, "country", lift, gap=0.3).to_json()
    yield fl.certify(rows, "country", lift, gap=0.3, against="all pairs").to_json()
    yield fl.certify(rows, "country", fl.rate("label"), gap=0.8, against="a", ratio=True, adverse="low").to_json()
    yield fl.certify(rows, "country", fl.equalized_odds("label", "guess"), gap=0.2).to_json()
    yield fl.certify(rows, "country", fl.rate("label"), gap=0.8, ratio=True).to_json()
    yield fl.certify(rows, ["country", "arm"], fl.rate("label"), gap=0.3, margins=True).to_json()
    yield fl.certify(rows, "country", lift, gap=0.3, against=0, adverse="low").to_json()
    rows["label"] = rows.label.where(rows.spend < 8)
    yield fl.certify(rows, "country", fl.rate("label"), gap=0.3).to_json()
    yield fl.certify(rows, "country", fl.equalized_odds("label", "guess"), gap=0.3).to_json()


def confirmations() -> Iterator[str]:
    first, again = (fl.simulate.planted([0, 5], [5, 5], seed=seed).estimates for seed in (1, 2))
    result = fl.cluster(first)
    yield fl.confirm(result, again).to_json()
    renamed = fl.Estimates(again.theta, again.se, [*again.labels[:-1], "new"], n=[100] * 10)
    yield fl.confirm(result, renamed).to_json()
    rows, odds = rows_of_two_arms(), fl.equalized_odds("label", "guess")
    rows.loc[rows.country == "c", "guess"] = rows.label
    yield fl.confirm(fl.cluster(rows, "country", odds), rows, "country", odds).to_json()


def several() -> Iterator[str]:
    rows = rows_of_two_arms().rename(columns={"label": "test"})
    lift = fl.lift("spend", variant="arm", control="A")
    yield fl.cluster_many(rows, experiment="test", by="country", metric=lift).to_json()
    names = {"a": fl.Estimates([0.0, 9.0], [1.0, 1.0]), "b": fl.Estimates([0.0, 0.5], [1.0, 1.0])}
    yield fl.cluster_many(names, correction="bh").to_json()
    lost = rows.assign(test=np.where(rows.country == "tiny", 7, rows.test))
    yield fl.cluster_many(lost, experiment="test", by="country", metric=lift).to_json()


def audits() -> Iterator[str]:
    rows = rows_of_two_arms()
    options: dict[str, Any] = {"sensitive_features": rows[["country"]], "control_features": rows[["arm"]]}
    yield fl.audit(rows.label, rows.guess, metrics=["fpr", "equalized_odds"], **options).to_json()
    yield fl.audit(rows.label, rows.guess, sensitive_features=rows[["country", "arm"]].assign(one=1)).to_json()
    numbers = rows[["country"]].assign(age=range(len(rows)))
    cut = fl.audit(rows.label, rows.guess, sensitive_features=numbers, metrics="fpr", correction="bh")
    signed = {
        name: certificate.to_dict() for name, certificate in cut.certify(gap=0.5).items() if certificate is not None
    }
    yield json.dumps(json.loads(cut.to_json()) | {"certificates": signed})  # as the command line writes it


def looks(warm: Warm, folder: Path) -> Iterator[str]:
    labels = [("DE", 1), ("FR", 1), ("IN", 2)]
    for monitor in (fl.Monitor(looks=3), fl.Monitor(information=1e6, dependence="any"), fl.Monitor(rule="folds")):
        yield json.dumps(monitor.update(fl.Estimates([0.0, 0.1, 9.0], [0.5] * 3, labels, n=100)).to_dict())
    rows_of_two_arms().to_csv(folder / "rows.csv", index=False)
    words = ["monitor", "state.json", "rows.csv", "--by", "country", "--metric", "lift:spend", "--looks", "3"]
    yield warm(*words, "--variant", "arm", "--control", "A", "--json", "-", cwd=folder).stdout


def keys(written: Iterable[dict[str, Any]], inner: Iterable[str]) -> set[str]:
    """All keys that results have, with those of the rows of some of them."""
    seen: set[str] = set()
    for plain in written:
        seen |= set(plain) | {f"{key}.{name}" for key in inner for row in plain.get(key, ()) for name in row}
    return seen


def powers() -> Iterator[str]:
    yield fl.power([1.0] * 6, gap=3.0, runs=50).to_json()
    yield fl.power(fl.Estimates(np.zeros((6, 2)), np.ones((6, 2)), parts=["a", "b"]), runs=50).to_json()


def self_checks() -> Iterator[str]:
    yield fl.self_check(rows_of_two_arms(), "country", fl.rate("label"), runs=10).to_json()
    yield SelfCheck(40, 20, 0.05, "arms", "user", "rate", "calibrated", 0).to_json()


def ratios() -> Iterator[str]:
    data = rows_of_two_arms()
    lost = (data.country == "a") & (data.arm == "B")
    for shares in (None, {"A": 1, "B": 1}):
        yield fl.srm(data[~lost], "country", variant="arm", shares=shares).to_json()
    yield fl.srm(data[:6], "country", variant="arm").to_json()


def odd_labels() -> Iterator[str]:
    """Whole numbers and tuples as labels, whose names are text in JSON."""
    for labels in ([1, 2, 3], [("a", 1), ("a", 2), ("b", 1)]):
        apart = fl.Estimates([0.0, 0.1, 5.0], [0.5] * 3, labels)
        yield fl.certify(apart, gap=1.0, against="all pairs").to_json()


def impacts() -> Iterator[str]:
    rows = rows_of_two_arms()
    yield fl.impact_ratios(rows, ["country", "arm"], selected="label").to_json()
    rows.loc[5:40, "country"] = None
    yield fl.impact_ratios(rows, ["country"], score="spend", unknown="bounds").to_json()
    yield fl.impact_ratios(rows[rows.arm == "A"], "arm", selected="label").to_json()
    rows["age"] = range(len(rows))
    rows["user_id"] = [i // 4 for i in range(len(rows))]
    yield fl.impact_ratios(rows, "age", selected="label").to_json()


KINDS: dict[str, Callable[[], Iterator[str]]] = {
    "audit": audits,
    "certificate": lambda: chain(certificates(), odd_labels()),
    "confirmation": confirmations,
    "impact": impacts,
    "many": several,
    "power": powers,
    "self_check": self_checks,
    "srm": ratios,
}


@pytest.mark.parametrize("kind", [*KINDS, "monitor"])
def test_json_of_other_kinds_fits_its_schema_and_the_schema_has_nothing_else(
    warm: Warm, kind: str, tmp_path: Path
) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    described = schema(kind)
    jsonschema.Draft202012Validator.check_schema(described)
    validator = jsonschema.Draft202012Validator(described)
    written = [json.loads(text) for text in (KINDS[kind]() if kind in KINDS else looks(warm, tmp_path))]
    for plain in written:
        assert [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(plain)] == []
    rows = {
        key: value["items"]["properties"]
        for key, value in described["properties"].items()
        if "properties" in value.get("items", {})
    }
    wanted = {*described["properties"], *(f"{key}.{name}" for key, own in rows.items() for name in own)}
    assert wanted - keys(written, [key for key, own in rows.items() if own]) == set()
    assert not validator.is_valid({**written[0], "unheard_of": 1})
    assert not validator.is_valid({**written[0], "alpha": "0.05"})
