"""Many experiments: each with the p it would have alone, corrected as the textbooks say."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from statsmodels.stats.multitest import multipletests

import faultlines as fl
from faultlines import simulate
from faultlines.metrics.table import METRICS
from faultlines.results.multiplicity import adjustments, corrected
from tests.abuse_cases import metric
from tests.abuse_rows import people
from tests.refused import refused

if TYPE_CHECKING:
    from pathlib import Path

QUICK = fl.Calibrated(draws=600)


def experiments() -> dict[str, fl.Estimates | fl.Similarity]:
    rng = np.random.default_rng(0)
    data: dict[str, Any] = {}
    for i in range(12):
        data[f"alike {i}"] = simulate.null(int(rng.integers(2, 30)), profile="zipf", seed=rng).estimates
    for i in range(4):
        data[f"apart {i}"] = simulate.planted([0, 6], [6, 6], seed=rng).estimates
    data["one group"] = fl.Estimates([1.0], [1.0])
    data["no spread"] = fl.Estimates([2.0, 2.0, 2.0], [1.0, 1.0, 1.0])
    data["many groups"] = simulate.null(90, seed=rng).estimates
    data["few degrees"] = simulate.null(9, dof=6, seed=rng).estimates
    data["two effects"] = fl.Estimates(rng.standard_normal((8, 2)), np.ones((8, 2)))
    data["rates"] = fl.binomial([10, 12, 60, 66], [100] * 4)
    return data


@pytest.mark.parametrize("guarantee", [QUICK, "calibrated", "bonferroni"])
def test_every_experiment_has_the_p_it_would_have_alone(guarantee: Any) -> None:
    every = experiments()
    many = fl.cluster_many(every, guarantee=guarantee, seed=3)
    for name, data in every.items():
        alone = fl.cluster(data, guarantee=guarantee, seed=3)
        assert many[name].log_pvalue == pytest.approx(alone.log_pvalue, rel=1e-9), name
        np.testing.assert_allclose(many[name].judged.path.gap_pvalues(), alone.judged.path.gap_pvalues(), rtol=1e-9)
    assert set(many.rejected) >= {f"apart {i}" for i in range(4)}


def test_split_guarantees_split_each_on_its_own() -> None:
    same = simulate.planted([0, 3], [6, 6], seed=1).estimates
    many = fl.cluster_many({"one": same, "other": same}, guarantee="holdout")
    assert many["one"].pvalue != many["other"].pvalue
    own = many["one"].judged.facts["seed"]
    assert many["one"].pvalue == fl.cluster(same, guarantee="holdout", seed=int(own)).pvalue
    assert fl.cluster_many({"other": same, "one": same}, guarantee="holdout")["one"].pvalue == many["one"].pvalue


@pytest.mark.parametrize(("correction", "name"), [("holm", "holm"), ("bh", "fdr_bh")])
def test_corrections_are_those_of_statsmodels(correction: Any, name: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        p = rng.random(int(rng.integers(1, 40))) ** float(rng.choice([1, 3, 8]))
        adjusted, levels = corrected(np.log(p), 0.1, correction)
        rejected, expected, *_ = multipletests(p, 0.1, name)
        np.testing.assert_allclose(np.exp(adjusted), expected, rtol=1e-9)
        np.testing.assert_array_equal(p < levels, rejected)


@pytest.mark.parametrize("correction", ["holm", "bh"])
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2, 0.6])
def test_adjusted_p_claim_what_the_levels_claim(correction: Any, alpha: float) -> None:
    """Clusters at α by adjusted p are those one gets by comparing each result's own p with its level."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        paths = [np.sort(rng.random(6) ** float(rng.choice([1, 3, 8]))) for _ in range(int(rng.integers(1, 12)))]
        first = np.log([path[0] for path in paths])
        levels = corrected(first, alpha, correction)[1]
        for own, adjustment, level in zip(paths, adjustments(first, correction), levels, strict=True):
            adjusted = np.exp(adjustment(np.log(own)))
            assert np.count_nonzero(adjusted < alpha) == np.count_nonzero(own < level)
            assert np.all(np.diff(adjusted) >= 0)
            assert np.all(adjusted >= own * (1 - 1e-12))
            assert adjusted[0] == pytest.approx(np.exp(adjustment.log_pvalue))


def test_adjusted_results_keep_the_level_of_the_user() -> None:
    results = [fl.cluster(simulate.planted([0, apart], [6, 6], seed=i).estimates) for i, apart in enumerate((0, 3, 6))]
    adjusted_results = fl.holm(results, 0.1)
    expected = multipletests([result.pvalue for result in results], 0.1, "holm")[1]
    for before, after, adjusted in zip(results, adjusted_results, expected, strict=True):
        assert after.alpha == 0.1
        assert after.pvalue == before.pvalue == before.pvalue_adj
        assert after.pvalue_adj == pytest.approx(adjusted)
        assert after.rejected == (adjusted < 0.1)
        # The interval is that of the same clusters at the user's level.
        if after.rejected:
            assert before.at(0.1).n_clusters == after.n_clusters == 2
            assert after.clusters[0].ci == before.at(0.1).clusters[0].ci
        assert after.to_dict()["pvalue_adj"] == after.pvalue_adj
        assert after.to_dict()["correction"] == "holm"
        assert [level.pvalue_adj for level in after.path()[1:]] == pytest.approx(
            np.exp(after.adjustment(after.judged.path.log_pvalues))  # type: ignore[misc]
        )
        assert "correction" in {note.code for note in after.notes}
    assert before.to_dict()["correction"] is None
    surest = adjusted_results[2]
    assert surest.at(surest.pvalue_adj * 1.01).rejected
    assert not surest.at(surest.pvalue_adj * 0.99).rejected


def test_results_as_one_tidy_frame() -> None:
    many = fl.cluster_many(experiments(), guarantee=QUICK, correction="bh")
    frame = many.to_pandas()
    assert list(frame.name) == list(many)
    assert frame.rejected.sum() == len(many.rejected) >= 4
    assert (frame.n_clusters > 1).tolist() == frame.rejected.tolist()
    assert many.to_polars().shape == many.to_arrow().shape == frame.shape
    for name, row in zip(many, many.to_dicts(), strict=True):
        assert many[name].n_clusters == row["n_clusters"]
        assert many[name].alpha == 0.05
        assert many[name].pvalue_adj == row["pvalue_adj"]
        assert many[name].pvalue == row["pvalue"]
        assert row["rejected"] == (row["pvalue_adj"] < 0.05)
    assert "adjusted_pvalue" not in frame
    assert many.verdict == "differ"
    assert repr(many).startswith("<Experiments: ")
    assert len(many) == 18 + 4


def test_nothing_found() -> None:
    many = fl.cluster_many({f"e{i}": simulate.null(5, seed=i).estimates for i in range(3)}, guarantee=QUICK)
    assert many.rejected == ()
    assert many.verdict == "no difference"
    assert [note.code for note in many.notes] == ["smallest p", "next"]


def test_an_experiment_with_one_group_compares_nothing() -> None:
    """Its p is 1, which is no sign of likeness: no experiment may read as compared that was not."""
    alone = {f"a{i}": fl.Estimates([0.5], [0.1], ["DE"]) for i in range(4)}
    lone = fl.cluster_many(alone)
    assert lone.verdict == "not testable"
    (untestable,) = (note for note in lone.notes if note.severity == "warning")
    assert (untestable.code, dict(untestable.fields)) == ("not testable", {"experiments": 4})
    both = fl.cluster_many({"two": fl.Estimates([0.0, 9.0], [1.0, 1.0]), "one": alone["a0"]})
    assert both.verdict == "differ"
    assert [(note.code, dict(note.fields)) for note in both.notes][:1] == [("not testable", {"experiments": 1})]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"estimates_by_name": {}}, "wrong type: estimates_by_name"),
        ({"estimates_by_name": [simulate.null(3).estimates]}, "wrong type: estimates_by_name"),
        ({"estimates_by_name": {"a": [1, 2]}}, "wrong type: estimates_by_name"),
        ({"estimates_by_name": {1: simulate.null(3).estimates}}, "wrong type: estimates_by_name"),
        ({"correction": "bonferroni"}, "unknown: correction"),
        ({"alpha": 0}, "out of range: alpha"),
        ({"guarantee": "none"}, "unknown: guarantee"),
        ({"seed": -1}, "out of range: seed"),
        ({"refine": "no"}, "wrong type: refine"),
        ({"correction": []}, "unknown: correction"),
    ],
)
def test_bad_input(arguments: dict[str, Any], words: str) -> None:
    with refused(words):
        fl.cluster_many(**({"estimates_by_name": {"a": simulate.null(3).estimates}} | arguments))
    many = fl.cluster_many({"first": simulate.null(3).estimates}, guarantee=QUICK)
    with refused("not found: name"):
        many["fist"]


# --------------------------------------------------------------------------------------------------------- from frames


def tidy(count: int = 6) -> pd.DataFrame:
    """Estimates of some experiments, their rows in no order."""
    rng = np.random.default_rng(1)
    rows = []
    for i in range(count):
        estimates = simulate.planted([0, 7 * (i == 2)], [5, 4 + i], seed=rng).estimates
        rows.append(
            pd.DataFrame(
                {
                    "test": f"t{i}",
                    "land": [f"g{k}" for k in range(len(estimates))],
                    "lift": estimates.theta,
                    "se": estimates.se,
                }
            )
        )
    return pd.concat(rows).assign(n=lambda t: np.arange(len(t)) + 50.0).sample(frac=1, random_state=0)


COLUMNS: dict[str, Any] = {"experiment": "test", "by": "land", "estimate": "lift", "se": "se"}


@pytest.mark.parametrize("kind", ["pandas", "polars", "csv"])
def test_a_table_is_the_same_as_estimates_by_name(kind: str, tmp_path: Path) -> None:
    table = tidy()
    data: Any = table if kind == "pandas" else pl.from_pandas(table)
    if kind == "csv":
        data = tmp_path / "tidy.csv"
        table.to_csv(data, index=False)
    many = fl.cluster_many(data, **COLUMNS, n="n", guarantee=QUICK)
    by_name: dict[str, Any] = {
        str(name): fl.Estimates.from_frame(part, by="land", estimate="lift", se="se", n="n")
        for name, part in table.groupby("test", sort=False)
    }
    expected = fl.cluster_many(by_name, guarantee=QUICK)
    assert many.names == expected.names
    np.testing.assert_allclose(many.log_pvalues_adj, expected.log_pvalues_adj)
    assert many.rejected == ("t2",)
    assert many["t2"].estimates.attributes == ("land",)
    assert many["t2"].to_dicts() == expected["t2"].to_dicts()
    assert many["t2"].groups.metric == "lift"


def test_groups_and_clusters_of_all_experiments_in_one_frame() -> None:
    many = fl.cluster_many(tidy(), **COLUMNS, n="n", min_size=52, guarantee=QUICK)
    frame = many.to_pandas("groups")
    assert len(frame) == len(tidy())
    assert list(frame.columns[:2]) == ["experiment", "land"]
    for name, part in frame.groupby("experiment"):
        alone = many[str(name)]
        assert part.cluster.dropna().tolist() == alone.labels.tolist()
        assert part.excluded.notna().sum() == len(alone.excluded)
    assert frame.excluded.notna().sum() == 2
    assert {note.code: dict(note.fields) for note in many.notes}["excluded groups"] == {"groups": 2}
    clusters = many.to_pandas("clusters")
    assert len(clusters) == many.to_pandas().n_clusters.sum() == 7
    plain = json.loads(many.to_json())
    assert [experiment["name"] for experiment in plain["experiments"]] == list(many)
    assert len(plain["groups"]) == len(frame)
    assert len(plain["clusters"]) == 7
    assert plain["rejected"] == ["t2"]


def test_frames_of_different_kinds_below_each_other() -> None:
    """What an experiment does not have is empty: other attributes, several effects."""
    data = {"one": simulate.null(3).estimates, "two": fl.Estimates(np.zeros((2, 2)), np.ones((2, 2)), ["a", "b"])}
    frame = fl.cluster_many(data, guarantee=QUICK).to_polars("groups")
    assert frame["experiment"].to_list() == ["one"] * 3 + ["two"] * 2
    assert frame["estimate"].null_count() == 2
    assert frame["estimate_part_1"].null_count() == 3


def shop_rows(size: int = 9_000) -> pd.DataFrame:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {
            "test": rng.choice(["a", "b", "c"], size),
            "land": rng.choice(list("uvwxyz"), size),
            "age": rng.integers(20, 60, size),
            "arm": rng.choice(["A", "B"], size),
            "spend": rng.lognormal(0, 1, size),
            "bought": rng.random(size) < 0.3,
            "score": rng.random(size),
        }
    )
    frame.loc[(frame.test == "b") & (frame.land == "u") & (frame.arm == "B"), "spend"] *= 3
    frame.loc[:20, "spend"] = None
    return frame


@pytest.mark.parametrize(
    ("metric", "by"),
    [
        (fl.difference("spend", variant="arm", control="A"), "land"),
        (fl.lift("spend", variant="arm", control="A"), ["land", fl.bins("age", width=20)]),
        (fl.rate("bought"), "land"),
        (fl.auc("bought", "score"), "land"),
    ],
    ids=lambda value: getattr(value, "name", str(value)[:12]),
)
def test_rows_of_all_experiments_are_measured_as_those_of_one(metric: fl.Metric, by: Any) -> None:
    """One scan for all gives what a scan for each gives: variances are common only within an experiment."""
    rows = shop_rows()
    many = fl.cluster_many(rows, experiment="test", by=by, metric=metric, guarantee=QUICK)
    assert list(many) == ["a", "b", "c"]
    for name in many:
        alone = fl.cluster(rows[rows.test == name], by, metric, guarantee=QUICK)
        here = many[name]
        assert here.estimates.labels == alone.estimates.labels
        np.testing.assert_allclose(here.estimates.theta, alone.estimates.theta, rtol=1e-9)
        np.testing.assert_allclose(here.estimates.se, alone.estimates.se, rtol=1e-9)
        assert here.log_pvalue == pytest.approx(alone.log_pvalue, rel=1e-6)
        assert [group.label for group in here.excluded] == [group.label for group in alone.excluded]
        assert dict(here.dropped) == dict(alone.dropped)
        assert here.by == alone.by
    if metric.arms is not None:
        assert many.rejected == ("b",)
        assert many.dropped == {"missing value": 21}
        assert {note.code: dict(note.fields) for note in many.notes}["dropped rows"] == {"rows": 21}


def test_people_may_be_in_several_experiments_but_in_one_group_of_each() -> None:
    rng = np.random.default_rng(4)
    people = pd.DataFrame({"who": np.arange(900), "land": rng.choice(list("uvw"), 900)})
    rows = pd.concat([people.assign(test=name, arm=rng.choice(["A", "B"], 900)) for name in ("a", "b")] * 2)
    rows["spend"] = rng.gamma(2, 1, len(rows))
    metric = fl.difference("spend", variant="arm", control="A", unit="who")
    many = fl.cluster_many(rows, experiment="test", by="land", metric=metric, guarantee=QUICK)
    for name in many:
        alone = fl.cluster(rows[rows.test == name], "land", metric, guarantee=QUICK)
        np.testing.assert_allclose(many[name].estimates.se, alone.estimates.se, rtol=1e-9)
    rows.iloc[0, rows.columns.get_loc("land")] = "u" if rows.land.iloc[0] != "u" else "v"
    with refused("invalid data: unit"):
        fl.cluster_many(rows, experiment="test", by="land", metric=metric)
    shared = fl.difference("spend", variant="arm", control="A", unit="who", overlap="covariance")
    with refused("unsupported: overlap"):
        fl.cluster_many(rows, experiment="test", by="land", metric=shared)


def test_several_treatments_of_each_experiment() -> None:
    rows = shop_rows().assign(arm=lambda t: np.where(np.arange(len(t)) % 3 == 0, "C", t.arm))
    metric = fl.difference("spend", variant="arm", control="A", treatment="*")
    many = fl.cluster_many(rows, experiment="test", by="land", metric=metric, guarantee=QUICK)
    alone = fl.cluster(rows[rows.test == "b"], "land", metric, guarantee=QUICK)
    assert many["b"].estimates.labels == alone.estimates.labels
    assert many["b"].log_pvalue == pytest.approx(alone.log_pvalue, rel=1e-6)


def test_aggregates_of_all_experiments() -> None:
    rows = shop_rows()
    counted = rows.groupby(["test", "land"], as_index=False).agg(n=("bought", "size"), yes=("bought", "sum"))
    metric = fl.rate(fl.aggregated("n", sum="yes"))
    many = fl.cluster_many(counted, experiment="test", by="land", metric=metric, guarantee=QUICK)
    plain = fl.cluster_many(rows, experiment="test", by="land", metric=fl.rate("bought"), guarantee=QUICK)
    np.testing.assert_allclose(many.log_pvalues, plain.log_pvalues, rtol=1e-9)


def test_experiments_without_usable_groups_are_named() -> None:
    rows = pd.concat([shop_rows(), pd.DataFrame({"test": ["tiny"] * 3, "land": list("uvw"), "bought": [True] * 3})])
    many = fl.cluster_many(rows, experiment="test", by="land", metric=fl.rate("bought"), guarantee=QUICK)
    assert list(many) == ["a", "b", "c"]
    assert [group.label for group in many.excluded] == ["tiny"]
    assert "excluded experiments" in {note.code for note in many.notes}
    assert json.loads(many.to_json())["excluded"][0]["experiment"] == "tiny"
    with refused("no groups: by"):
        fl.cluster_many(rows, experiment="test", by="land", metric=fl.rate("bought"), min_size=10_000)


def test_names_of_experiments_that_are_no_text() -> None:
    table = tidy().assign(test=lambda t: t.test.str[1:].astype(int))
    assert fl.cluster_many(table, **COLUMNS, guarantee=QUICK).rejected == ("2",)
    table["test"] = table.test.astype(object)
    table.iloc[0, table.columns.get_loc("test")] = str(table.test.iloc[0])
    with refused("ambiguous: experiment"):
        fl.cluster_many(table, **COLUMNS)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"experiment": None}, "missing: experiment"),
        ({"by": None}, "missing: by"),
        ({"se": None}, "missing: estimate, se"),
        ({"experiment": "land"}, "duplicate: experiment"),
        ({"metric": fl.mean("lift")}, "conflict: estimate, se"),
        ({"estimates_by_name": {"a": simulate.null(3).estimates}}, "conflict: experiment, by, estimate, se"),
        ({"estimates_by_name": tidy().assign(se=0.0)}, "invalid data: se"),
        ({"estimates_by_name": pd.concat([tidy(), tidy()])}, "duplicate: labels"),
        ({"guarantee": fl.Holdout(unit="n")}, "conflict: unit"),
        ({"estimates_by_name": tidy().head(0)}, "empty: data"),
    ],
)
def test_bad_frames(changes: dict[str, Any], words: str) -> None:
    with refused(words):
        fl.cluster_many(**({"estimates_by_name": tidy(), **COLUMNS} | changes))
    with refused("unsupported: unit"):
        fl.cluster_many(
            shop_rows(), experiment="test", by="land", metric=fl.rate("bought"), guarantee=fl.Holdout(unit="test")
        )


@pytest.mark.parametrize("name", ["bootstrapped", *METRICS])
def test_rows_of_an_experiment_have_the_p_they_would_have_alone(name: str) -> None:
    rows = pd.concat([people().assign(test=str(i)) for i in range(2)]).reset_index(drop=True)
    rows["x"] += np.random.default_rng(1).normal(size=len(rows))
    of_rows = fl.bootstrapped(np.median, "x", draws=40) if name == "bootstrapped" else metric(name)
    many = fl.cluster_many(rows, experiment="test", by="g", metric=of_rows, min_size=5, guarantee="bonferroni")
    for test in many.names:
        alone = fl.cluster(rows[rows["test"] == test], "g", of_rows, min_size=5, guarantee="bonferroni")
        assert many[test].log_pvalue == pytest.approx(alone.log_pvalue, rel=1e-9, abs=1e-12)


def test_rows_have_the_spread_and_the_fewest_clusters_of_each_experiment() -> None:
    planted = simulate.planted([0, 5], [6, 6], seed=1).estimates
    pairs = fl.Estimates([[0.0, 1.0], [0.1, 1.2]], [[0.1, 0.2]] * 2, ["x", "y"], parts=["p", "q"])
    many = fl.cluster_many({"planted": planted, "null": simulate.null(12, seed=2).estimates, "pairs": pairs})
    assert "_spreads" not in vars(many)  # they take a while, and the text does not show them
    for row in many.to_dicts():
        result = many[row["name"]]
        ends = (row["spread"], row["spread_lower"], row["spread_upper"])
        assert ends == ((None, None, None) if result.spread is None else tuple(asdict(result.spread).values()))
        assert row["at_least"] == result.at_least
    assert [row["at_least"] for row in many.to_dict()["experiments"]] == [2, 1, 1]
    assert many.to_dicts()[2]["spread"] is None
