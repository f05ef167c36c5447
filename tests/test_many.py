"""Many experiments: each with the p it would have alone, corrected as the textbooks say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

import faultlines as fl
from faultlines import simulate
from faultlines.result.multiplicity import corrected

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


def test_results_as_one_tidy_frame() -> None:
    many = fl.cluster_many(experiments(), guarantee=QUICK, correction="bh")
    frame = many.to_pandas()
    assert list(frame.name) == list(many)
    assert frame.rejected.sum() == len(many.rejected) >= 4
    assert (frame.n_clusters > 1).tolist() == frame.rejected.tolist()
    assert many.to_polars().shape == many.to_arrow().shape == frame.shape
    for name, row in zip(many, many.to_dicts(), strict=True):
        assert many[name].n_clusters == row["n_clusters"]
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
