"""Many experiments: each with the p it would have alone, corrected as the textbooks say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

import faultlines as fl
from faultlines import simulate
from faultlines.result.multiplicity import adjustments, corrected

QUICK = fl.Calibrated(draws=600)


def experiments() -> dict[str, fl.Estimates | fl.Similarity]:
    rng = np.random.default_rng(0)
    made: dict[str, Any] = {}
    for i in range(12):
        made[f"alike {i}"] = simulate.null(int(rng.integers(2, 30)), profile="zipf", seed=rng).estimates
    for i in range(4):
        made[f"apart {i}"] = simulate.planted([0, 6], [6, 6], seed=rng).estimates
    made["one group"] = fl.Estimates([1.0], [1.0])
    made["no spread"] = fl.Estimates([2.0, 2.0, 2.0], [1.0, 1.0, 1.0])
    made["many groups"] = simulate.null(90, seed=rng).estimates
    made["few degrees"] = simulate.null(9, dof=6, seed=rng).estimates
    made["two effects"] = fl.Estimates(rng.standard_normal((8, 2)), np.ones((8, 2)))
    made["rates"] = fl.binomial([10, 12, 60, 66], [100] * 4)
    return made


@pytest.mark.parametrize("guarantee", [QUICK, "calibrated", "bonferroni"])
def test_every_experiment_has_the_p_it_would_have_alone(guarantee: Any) -> None:
    made = experiments()
    many = fl.cluster_many(made, guarantee=guarantee, seed=3)
    for name, data in made.items():
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
    made = [fl.cluster(simulate.planted([0, apart], [6, 6], seed=i).estimates) for i, apart in enumerate((0, 3, 6))]
    found = fl.holm(made, 0.1)
    expected = multipletests([one.pvalue for one in made], 0.1, "holm")[1]
    for before, one, adjusted in zip(made, found, expected, strict=True):
        assert one.alpha == 0.1
        assert one.pvalue == before.pvalue == before.pvalue_adj
        assert one.pvalue_adj == pytest.approx(adjusted)
        assert one.rejected == (adjusted < 0.1)
        # The interval is that of the same clusters at the user's level.
        if one.rejected:
            assert before.at(0.1).n_clusters == one.n_clusters == 2
            assert one.clusters[0].ci == before.at(0.1).clusters[0].ci
        assert one.summary()["pvalue_adj"] == one.pvalue_adj
        assert one.summary()["correction"] == "holm"
        assert [level.pvalue_adj for level in one.path()[1:]] == pytest.approx(
            np.exp(one.adjustment(one.judged.path.log_pvalues))  # type: ignore[misc]
        )
        assert "adjusted p" in one.verdict
        assert "3 results (Holm)" in str(one)
    assert before.summary()["correction"] is None
    surest = found[2]
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
        assert many[name].pvalue_adj == row["pvalue_adj"] == row["adjusted_pvalue"]
        assert many[name].pvalue == row["pvalue"]
        assert row["rejected"] == (row["pvalue_adj"] < 0.05)
    assert "Benjamini–Hochberg" in str(many)
    assert "apart 0" in str(many)
    assert repr(many).startswith("<Many: ")
    assert len(many) == 18 + 4


def test_nothing_found() -> None:
    many = fl.cluster_many({f"e{i}": simulate.null(5, seed=i).estimates for i in range(3)}, guarantee=QUICK)
    assert many.rejected == ()
    assert "in 0 of 3 experiments" in str(many)
    assert "Smallest p" in str(many)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"estimates_by_name": {}}, "is not names with estimates"),
        ({"estimates_by_name": [simulate.null(3).estimates]}, "is not names with estimates"),
        ({"estimates_by_name": {"a": [1, 2]}}, "is not a name with its estimates"),
        ({"estimates_by_name": {1: simulate.null(3).estimates}}, "is not a name with its estimates"),
        ({"correction": "bonferroni"}, "correction='bonferroni'"),
        ({"alpha": 0}, "alpha=0"),
        ({"guarantee": "none"}, "guarantee='none'"),
        ({"seed": -1}, "seed=-1"),
        ({"refine": "no"}, "refine='no'"),
        ({"correction": []}, r"correction=\[\]"),
    ],
)
def test_bad_input(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(fl.InputError, match=words):
        fl.cluster_many(**({"estimates_by_name": {"a": simulate.null(3).estimates}} | arguments))
    many = fl.cluster_many({"first": simulate.null(3).estimates}, guarantee=QUICK)
    with pytest.raises(fl.InputError, match="Did you mean 'first'"):
        many["fist"]
