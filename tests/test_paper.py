"""The studies in experiments/: are the rivals what they say they are, and does the page say what was measured?"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import Bounds, minimize
from scipy.special import logsumexp

import faultlines as fl
from experiments import accuracy, baselines, common, homogeneity, mitigation, settings
from experiments.__main__ import PAGES, STUDIES, texts
from experiments.__main__ import main as run_studies
from experiments.power import experiment
from faultlines import simulate
from tests.single import own_errors

ROOT = Path(__file__).parent.parent


def three_clusters(seed: int, groups: int = 7, apart: float = 6.0) -> fl.Estimates:
    return simulate.planted([0, apart, 2 * apart], [groups] * 3, profile="lognormal", seed=seed).estimates


# ---------------------------------------------------------------------------------------------------------- the rivals


def test_the_likelihood_of_the_mixture_is_that_of_an_independent_computation() -> None:
    rng = np.random.default_rng(1)
    theta, se = rng.normal(0, 3, (4, 9)), rng.lognormal(0, 1, (4, 9))
    mean, share = rng.normal(0, 2, (4, 3)), rng.dirichlet(np.ones(3), 4)
    chance, likelihood = baselines.Mixture(theta, se, mean, share).responsibilities()
    joint = np.log(share)[:, None, :] + stats.norm.logpdf(theta[:, :, None], mean[:, None, :], se[:, :, None])
    assert likelihood == pytest.approx(logsumexp(joint, axis=2).sum(axis=1))
    assert chance == pytest.approx(np.exp(joint - logsumexp(joint, axis=2, keepdims=True)))


def test_em_never_loses_likelihood_and_ends_where_nothing_is_to_be_gained() -> None:
    rng = np.random.default_rng(2)
    theta, se = rng.normal(0, 3, (5, 12)), rng.lognormal(0, 0.5, (5, 12))
    mixture = baselines.Mixture(theta, se, rng.normal(0, 2, (5, 3)), np.full((5, 3), 1 / 3))
    now, before = mixture, np.full(5, -np.inf)
    for _ in range(60):
        now, likelihood = now.step()
        assert (likelihood >= before - 1e-10).all()
        before = likelihood
    fitted, reached = mixture.fitted(cycles=20_000, gain=1e-13)
    # Data sets that arrive early drop out of the batch; each must end as it would alone.
    parts = (theta, se, mixture.mean, mixture.share)
    alone = [baselines.Mixture(*(part[i : i + 1] for part in parts)) for i in range(5)]
    assert reached == pytest.approx([mixture.fitted(cycles=20_000, gain=1e-13)[1][0] for mixture in alone], abs=1e-9)

    def loss(free: np.ndarray, i: int) -> float:
        share = np.exp(free[3:] - logsumexp(free[3:]))
        mixture = baselines.Mixture(theta[i : i + 1], se[i : i + 1], free[None, :3], np.maximum(share, 1e-12)[None])
        return -float(mixture.responsibilities()[1][0])

    for i in range(5):
        start = np.concatenate([fitted.mean[i], np.log(fitted.share[i])])
        assert minimize(loss, start, (i,), method="BFGS").fun == pytest.approx(-reached[i], abs=1e-4)


def test_the_mixture_finds_clear_clusters_and_their_effects() -> None:
    estimates = [three_clusters(seed, apart=20.0) for seed in range(3)] + [simulate.null(21, seed=5).estimates]
    for fits in baselines.mixtures(estimates).values():
        assert [fit.n_clusters for fit in fits[:3]] == [3, 3, 3]
        assert fits[0].effects[[0, 20]] == pytest.approx([0, 40], abs=1.0)
    assert baselines.mixtures(estimates, ["bic"])["bic"][3].n_clusters == 1


@pytest.mark.parametrize("seed", range(6))
def test_the_optimal_partition_is_that_of_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    theta, weight = rng.normal(0, 2, 8), rng.lognormal(0, 1, 8)
    theta[1] = theta[0]
    labels, costs = baselines.optimal_partitions(theta, weight, 4)

    def cost(labels: np.ndarray) -> float:
        return sum(
            float(np.sum(weight[own] * (theta[own] - np.average(theta[own], weights=weight[own])) ** 2))
            for own in (labels == i for i in np.unique(labels))
        )

    order = np.argsort(theta, kind="stable")
    for clusters in range(1, 5):
        cuts = itertools.combinations(range(1, 8), clusters - 1)
        best = min(cost(np.searchsorted(cut, np.argsort(order), side="right")) for cut in cuts)
        assert costs[clusters - 1] == pytest.approx(best, abs=1e-12)
        assert cost(labels[clusters - 1]) == pytest.approx(best, abs=1e-12)
        assert np.unique(labels[clusters - 1]).size == clusters


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_fused_effects_are_those_of_a_generic_solver(seed: int, adaptive: bool) -> None:
    rng = np.random.default_rng(seed)
    theta, weight, penalty = np.sort(rng.normal(0, 2, 7)), rng.lognormal(0, 0.5, 7), 0.15
    apart = np.abs(theta[:, None] - theta) + np.eye(7)
    pair = np.triu(1 / apart if adaptive else np.ones((7, 7)), 1)

    def objective(beta: np.ndarray) -> float:
        return float(np.sum(weight * (theta - beta) ** 2) / 2 + penalty * np.sum(pair * np.abs(beta[:, None] - beta)))

    effects = baselines.fused(theta, weight, penalty, adaptive=adaptive)
    # In steps that cannot be negative, the order is kept and the penalty has no corners.
    bounds = Bounds(np.array([-np.inf, *[0.0] * 6]))
    start = np.concatenate([theta[:1], np.diff(theta)])

    def in_steps(step: np.ndarray) -> float:
        return objective(np.cumsum(step))

    steps = minimize(in_steps, start, method="L-BFGS-B", bounds=bounds, tol=1e-15)
    assert objective(effects) == pytest.approx(steps.fun, rel=1e-6)
    assert objective(effects) <= steps.fun + 1e-9
    assert effects[::-1] == pytest.approx(baselines.fused(theta[::-1], weight[::-1], penalty, adaptive=adaptive))


def test_equal_precision_needs_no_order_to_be_kept() -> None:
    """Without the constraint nothing better is found when all weights are equal."""
    rng = np.random.default_rng(3)
    theta = rng.normal(0, 2, 8)
    effects = baselines.fused(theta, np.ones(8), 0.1, adaptive=False)

    def objective(beta: np.ndarray) -> float:
        return float(np.sum((theta - beta) ** 2) / 2 + 0.1 * np.sum(np.abs(beta[:, None] - beta)) / 2)

    tried = [objective(effects + rng.normal(0, size, 8)) for size in (1e-4, 1e-2, 0.1) for _ in range(500)]
    assert min(tried) >= objective(effects)


def test_easy_clusters_are_found_by_every_rival() -> None:
    truth = np.repeat([1, 2, 3], [5, 6, 7])
    theta, se = 40.0 * truth + np.random.default_rng(2).normal(0, 0.3, 18), np.ones(18)
    for rival in (baselines.optimal_partition, baselines.kmeans, baselines.chaid, baselines.fused_effects):
        fit = rival(theta, se)
        assert fit.labels.tolist() == truth.tolist(), rival
        assert fit.effects[-1] == pytest.approx(theta[-7:].mean())
    nothing = simulate.null(12, seed=4).estimates
    assert baselines.chaid(nothing.theta, nothing.se).n_clusters == 1
    assert baselines.kmeans(nothing.theta, nothing.se).n_clusters > 1  # the silhouette knows no single cluster


def test_kmeans_is_not_worse_than_a_usual_one() -> None:
    from sklearn.cluster import KMeans

    theta = three_clusters(4).theta
    _, costs = baselines.optimal_partitions(theta, np.ones(theta.size))
    for k in (2, 3, 4):
        usual = KMeans(k, n_init=10, random_state=0).fit(theta[:, None]).inertia_
        assert costs[k - 1] <= usual + 1e-9


def test_the_top_merge_never_interleaves_and_the_word_means_what_it_says() -> None:
    theta = np.array([0.0, 1.0, 2.0, 3.0])
    assert not baselines.interleaved(np.array([1, 1, 2, 2]), theta)
    assert baselines.interleaved(np.array([1, 2, 1, 2]), theta)
    assert not baselines.interleaved(np.array([2, 1, 1, 1]), theta[::-1])
    for seed in range(20):
        estimates = three_clusters(seed, apart=3.0)
        result = fl.cluster(estimates, guarantee=fl.Calibrated(199, scan=False))
        assert not baselines.interleaved(result.labels, estimates.theta)


def test_tests_of_homogeneity_are_those_of_independent_computations() -> None:
    several = [three_clusters(seed, apart=0.3 * seed) for seed in range(6)]
    theta, se = np.array([estimates.theta for estimates in several]), np.array([estimates.se for estimates in several])
    together = baselines.cochran_q(theta, se), baselines.one_against_the_rest(theta, se)
    for i, groups in enumerate(several):
        # Weighted least squares with one mean leaves Q as its residual sum of squares.
        fitted = np.linalg.lstsq(1 / groups.se[:, None], groups.theta / groups.se, rcond=None)
        assert together[0][i] == pytest.approx(stats.chi2.sf(float(fitted[1][0]), len(groups) - 1), abs=1e-12)
        rest = fl.cluster(groups, guarantee=fl.Calibrated(199)).against_rest("holm")
        assert together[1][i] == pytest.approx(min(group.pvalue for group in rest), rel=1e-9)


def test_rows_and_estimates_of_the_papers_example_are_the_same_people() -> None:
    example = experiment(0.3, [5, 6])
    assert len(example.rows.outcome) == 102 * 200
    frame = pd.DataFrame({"country": example.rows.group, "arm": example.rows.arm, "y": example.rows.outcome})
    measured = fl.measure(frame, "country", fl.difference("y", variant="arm", control=0))
    order = np.argsort([int(str(label)) for label in measured.estimates.labels])
    assert measured.estimates.theta[order] == pytest.approx(example.estimates.theta)
    alone = own_errors(frame[frame.country < 3], fl.difference("y", variant="arm", control=0), by="country")
    assert alone.se == pytest.approx(example.estimates.se[:3])


# ----------------------------------------------------------------------------------------------------------- the page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_and_numbers_of_the_page_are_those_that_were_measured(page: common.Page) -> None:
    written, filled_texts = page.path.read_text(encoding="utf-8"), texts(page)
    assert common.filled(written, filled_texts) == written, "run `python -m experiments --write`"
    own = [study for study in STUDIES if study.page == page and study.is_kept]
    shown = set(re.findall(r"<!-- (table: [^>]+?) -->", written))
    tables = {name for study in own for name in study.texts(study.kept()) if name.startswith("table")}
    assert shown == tables, "every table is shown"
    for study in own:
        assert f"]({page.folder}/{study.name}.svg)" in written
        assert "<svg" in (page.kept / f"{study.name}.svg").read_text(encoding="utf-8")


# Outside the markers stand only the paper's own figures, settings of the studies, and figures of speech.
TYPED = {
    "paper": "2,218 21 0.001 7 4 0.2 1 0 95 27 15 80 48 54 100 0.1 2 0.01 0.05 0.5 40 50 102 999 1,000 "
    "3 10 300 90 200 500",
    "history": "1974 1975 1997 2002 2017 2 2022 2025 0.05 0.01 40 102 8 10 90 5 2.5 0.001 0.5",
    "mitigation": "0.5 0.7 1 50,000",
    "field": "7,214 64,000 3,743 4,870 332,900 12 14 28 50,000 40,000 10,000 3% 97% 95% 0 2008 0.05 1 10",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_numbers_in_sentences_are_settings_or_come_from_a_study(page: common.Page) -> None:
    typed = page.path.read_text(encoding="utf-8")
    typed = re.sub(r"^```.*?^```", "", typed, flags=re.DOTALL | re.MULTILINE)  # examples are run by themselves
    typed = re.sub(r"<!-- ((?:table|fact|figures?|range|runs): [^>]+?) -->.*?<!-- end -->", "", typed, flags=re.DOTALL)
    typed = re.sub(r"<!-- typed: .*?<!-- end -->", "", typed, flags=re.DOTALL)
    numbers = set(re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?%?", typed))
    assert numbers <= set(TYPED[page.name].split()), numbers - set(TYPED[page.name].split())


def test_what_the_page_says_in_words_is_so() -> None:
    """Words such as never, always and practically all, compared with the numbers behind them."""
    numbers = {study.name: study.kept() for study in STUDIES if study.is_kept}

    def along(method: str, what: str) -> list[float]:
        return [point[what] for point in numbers["power"]["points"] if point["method"] == method]

    assert not numbers["power"]["not_installed"]
    assert set(along("causal tree, one-hot", "recovered")) == {0.0}
    assert along("causal tree, encoded, pruned", "told")[-1] == 1.0
    assert {along(f"honest forest, {how}", "clusters")[-1] for how in ("one-hot", "encoded")} == {1.0, 102.0}
    ratios = {(pair["rival"], pair["method"]): pair for pair in numbers["error"]["ratios"]}
    assert ratios["causal tree, one-hot", "literal"]["rival_better"] < 1
    assert ratios["causal tree, one-hot", "literal"]["rival_worse"] > 80
    assert max(pair["rival_better"] for pair in ratios.values()) < 15
    assert all(pair["rival_better"] < 1 for (_, ours), pair in ratios.items() if ours == "calibrated")
    took = numbers["runtime"]["seconds"]
    assert 100 < took["causal tree, one-hot"] / took["literal"] < 1000
    rows = numbers["mixture"]["interleaving"]
    assert rows["equal"]["mixture_interleaves"] == 0
    assert max(row["calibrated_interleaves"] for row in rows.values()) < 0.01
    onboarding = numbers["onboarding"]["methods"]
    assert {onboarding[method]["interleaved"] for method in ("literal", "top merge")} == {0}
    assert onboarding["calibrated"]["interleaved"] == pytest.approx(onboarding["mixture, BIC"]["interleaved"], abs=0.02)
    for point in numbers["false_positives"]["along_groups"]:
        if point["method"] == "literal" and point["groups"] >= (50 if point["profile"] == "equal" else 102):
            assert point["rate"] > 0.98
        if point["method"] in {"calibrated", "top merge"}:
            assert point["rate"] == pytest.approx(0.05, abs=4 * (0.05 * 0.95 / 1000) ** 0.5)


def test_what_the_page_says_of_tests_of_homogeneity_is_so() -> None:
    """Where each is at its worst, and what ours pays for being blind nowhere."""
    differing = [row for row in homogeneity.STUDY.kept()["rows"] if row["truth"] != "nothing differs"]
    blind = {"top merge": "one group apart", "Cochran's Q": "one group apart", "one against the rest": "two halves"}
    for test, truth in blind.items():
        worst = max(differing, key=lambda row: homogeneity.deficit(row, test))
        assert worst["truth"] == truth
        assert homogeneity.deficit(worst, test) > 0.4
    assert max(homogeneity.deficit(row) for row in differing) < 0.15
    assert {row["truth"] for row in differing if homogeneity.deficit(row) > homogeneity.MARGIN} == {"one group apart"}
    ahead = {
        (row["truth"], row["profile"])
        for row in differing
        if row["Cochran's Q"] > row["calibrated"] + 0.03 and row["truth"] != "one in ten apart"
    }
    assert ahead == {("two halves", "equal"), ("every group its own effect", "equal")}


def test_what_the_page_says_of_accuracy_is_so() -> None:
    numbers = accuracy.STUDY.kept()
    ahead, behind = accuracy.wins(numbers, "top merge")
    assert len(ahead) + len(behind) < 4  # level
    faint = [
        row["apart"] <= 2
        for method in ("optimal partition, BIC", "literal", "k-means, silhouette", "fused effects")
        for row in accuracy.wins(numbers, method)[0]
    ]
    assert all(faint)
    assert faint
    for method in ("optimal partition, BIC", "literal", "k-means, silhouette", "fused effects"):
        assert not accuracy.holds(numbers, method)
    assert accuracy.holds(numbers, "calibrated")
    _, behind = accuracy.wins(numbers, "mixture, BIC")
    assert min(behind, key=lambda row: row["lead"])["apart"] <= 2


def test_what_the_page_says_of_settings_is_so() -> None:
    numbers = settings.STUDY.kept()
    level = settings.levels(numbers)
    above = {(settings.SHORT[kind], method) for (kind, method), entry in level.items() if not entry["holds"]}
    assert not any(method == "calibrated" for _, method in above)
    assert {("lognormal", "DGC"), ("heavy", "DGC"), ("lognormal", "Jolliffe"), ("lognormal", "Scott–Knott")} <= above
    for method in ("Clusters-of-Centres", "Bautista", "Scott–Knott, unequal precision"):
        assert {kind for kind, own in above if own == method} == {"estimated", "spend", "arms"}
    assert {kind for kind, own in above if own == "one against the rest, Holm"} == {"estimated", "spend", "arms"}
    assert settings.facts(numbers)["hold_everywhere"] == ""
    losses = {(row["method"], settings.SHORT[row["kind"]], row["differs"]) for row in settings.lost(numbers)}
    alone = {loss for loss in losses if loss[0].startswith("one against the rest")}
    assert {differs for _, _, differs in alone} == {"1 apart by 5 se"}
    assert {(method, kind) for method, kind, _ in losses - alone} == {("Scott–Knott", "spend"), ("Scott–Knott", "arms")}
    # One method for the one and for the ten: nobody else is near the best at both.
    by_place = {(settings.SHORT[r["kind"]], r["differs"], r["method"]): r["rand_index"] for r in numbers["rows"]}
    for kind, distance in (("equal", "5"), ("heavy", "5")):
        lone, ten = f"1 apart by {distance} se", "10 apart by 2.5 se"
        both = {m: min(by_place[kind, lone, m], by_place[kind, ten, m]) for m in settings.METHODS}
        assert max(both, key=both.__getitem__) == "calibrated"
        assert sorted(both.values())[-2] < both["calibrated"] - 0.1


def test_the_library_knows_none_of_the_rivals() -> None:
    rivals = r"^\s*(import|from) (sklearn|causalml|econml|joblib|experiments|benchmarks)\b"
    for path in (ROOT / "src" / "faultlines").rglob("*.py"):
        assert not re.search(rivals, path.read_text(encoding="utf-8"), re.M), path.name


def test_a_study_whose_data_are_not_there_is_skipped_with_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = "mitigation is skipped: acs_income_with_model_preds.parquet is not in the folder that FAULTLINES_DATA names"
    for folder in (None, str(tmp_path), ""):
        monkeypatch.delenv("FAULTLINES_DATA", raising=False)
        if folder is not None:
            monkeypatch.setenv("FAULTLINES_DATA", folder)
        monkeypatch.setattr(sys, "argv", ["mitigation.py", "--quick"])
        mitigation.STUDY.main()
        assert capsys.readouterr() == ("", f"{said}\n")
        monkeypatch.setattr(sys, "argv", ["experiments", "mitigation", "--quick"])
        run_studies()
        assert said in capsys.readouterr().err
    assert mitigation.STUDY.kept()["splits"] >= 5


# ------------------------------------------------------------------------------------------------ every study by itself

SCRIPTS = [study.name for study in STUDIES]
# The everyday suite runs the cheapest; `make stats` runs all.
DAILY = {"onboarding"}


@pytest.mark.parametrize(
    "name", [name if name in DAILY else pytest.param(name, marks=pytest.mark.statistical) for name in SCRIPTS]
)
def test_every_study_runs_alone_and_quickly(name: str, tmp_path: Path) -> None:
    files = {path: path.read_bytes() for page in PAGES for path in page.kept.iterdir()}
    environment = os.environ | {"OMP_NUM_THREADS": "1", "FAULTLINES_TRIED": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, f"experiments/{name}.py", "--quick", "--jobs", "1"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    study = next(study for study in STUDIES if study.name == name)
    if study.skipped():
        assert "is skipped" in done.stderr
    else:
        assert f"table: {name}" in done.stdout
        assert name != "onboarding" or "onboarding: 1 of 1" in done.stderr  # progress
    assert {path: path.read_bytes() for page in PAGES for path in page.kept.iterdir()} == files
