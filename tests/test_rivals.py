"""The methods that came before ours: published examples, and computations by another way."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.optimize import minimize_scalar

import faultlines as fl
from experiments import baselines, settings
from faultlines import simulate

# R's PlantGrowth: a control and two treatments, ten plants each. Published runs of ClustMC on it are in its README and
# tests: DGC, Jolliffe and Bautista at several levels.
PLANTS = np.array([5.032, 4.661, 5.526])
PLANTS_SE = np.full(3, math.sqrt(0.38860 / 10))


def some_estimates(seed: int, groups: int = 9, apart: float = 3.0) -> fl.Estimates:
    return simulate.planted([0, apart], [groups // 2, groups - groups // 2], profile="lognormal", seed=seed).estimates


@pytest.mark.parametrize(
    ("rival", "alpha", "labels"),
    [
        (baselines.dgc, 0.05, [1, 1, 2]),
        (baselines.dgc, 0.01, [1, 1, 1]),
        (baselines.jolliffe, 0.2, [2, 1, 3]),
        (baselines.jolliffe, 0.1, [1, 1, 2]),
        (baselines.jolliffe, 0.01, [1, 1, 1]),
        (baselines.bautista, 0.05, [1, 1, 2]),
        (baselines.bautista, 0.9, [2, 1, 3]),
        (baselines.bautista, 0.001, [1, 1, 1]),
    ],
)
def test_published_runs_on_plant_growth(rival: object, alpha: float, labels: list[int]) -> None:
    assert rival(PLANTS, PLANTS_SE, alpha=alpha, dof=27).labels.tolist() == labels  # type: ignore[operator]


@pytest.mark.parametrize(
    ("groups", "replicates", "five_percent", "one_percent"),
    [(3, 10, 3.03, 3.86), (5, 5, 3.14, 3.93), (10, 10, 2.94, 3.50), (20, 40, 2.98, 3.51), (40, 10, 3.13, 3.63)],
)
def test_root_distances_of_dgc_are_those_of_its_tables(
    groups: int, replicates: int, five_percent: float, one_percent: float
) -> None:
    """The published tables are simulated as well: five and one percent, within the noise of both."""
    null = baselines.root_distances(groups, groups * (replicates - 1.0))
    assert np.quantile(null, 0.95) == pytest.approx(five_percent, rel=0.04)
    assert np.quantile(null, 0.99) == pytest.approx(one_percent, rel=0.06)


def test_the_root_of_two_means_is_their_range() -> None:
    null = baselines.root_distances(2)
    assert np.quantile(null, 0.95) == pytest.approx(math.sqrt(2) * stats.norm.isf(0.025), rel=0.03)
    assert baselines.dgc_pvalue(np.array([0.0, 2.772]), np.ones(2)) == pytest.approx(0.05, abs=0.012)


@pytest.mark.parametrize("dof", [math.inf, 27.0, 8.0])
def test_probabilities_of_ranges_are_those_of_scipy(dof: float) -> None:
    distance, size = np.array([1.0, 2.5, 3.5, 5.0]), np.array([2.0, 3.0, 10.0, 17.0])
    exact = stats.studentized_range.cdf(distance, size, 1e6 if math.isinf(dof) else dof)
    assert baselines.range_probability(distance, size, dof) == pytest.approx(exact, abs=2e-3)


def test_jolliffe_joins_what_newman_and_keuls_do_not_separate() -> None:
    critical = baselines.critical_ranges(5, 0.05)
    assert critical == pytest.approx([stats.studentized_range.isf(0.05, k, 1e6) for k in (2, 3, 4, 5)], abs=0.01)
    # Neighbours further apart than the critical range of two, and nothing else that spans the gap.
    assert baselines.jolliffe(np.array([0.0, 0.5, 9.0, 9.5, 20.0]), np.ones(5)).labels.tolist() == [1, 1, 2, 2, 3]
    assert baselines.jolliffe(np.array([0.0, 2.0, 4.0, 6.0, 8.0]), np.ones(5)).n_clusters == 1  # a chain


@pytest.mark.parametrize("seed", range(4))
def test_the_best_cut_is_that_of_all_divisions_in_two(seed: int) -> None:
    groups = some_estimates(seed, 8)
    weight = 1 / groups.se**2

    def between(own: np.ndarray) -> float:
        parts = [np.average(groups.theta[side], weights=weight[side]) for side in (own, ~own)]
        grand = np.average(groups.theta, weights=weight)
        return float(weight[own].sum() * (parts[0] - grand) ** 2 + weight[~own].sum() * (parts[1] - grand) ** 2)

    ways = [np.array(way, dtype=bool) for way in itertools.product([0, 1], repeat=8) if 0 < sum(way) < 8]
    gain, place = baselines.best_cut(groups.theta, weight)
    assert gain == pytest.approx(max(between(own) for own in ways))
    assert between(np.argsort(np.argsort(groups.theta)) < place) == pytest.approx(gain)


def test_scott_knott_by_hand() -> None:
    """λ of Duncan's seven barley varieties, each number worked out from the published means, and its cut."""
    means, variance, dof = np.array([49.6, 58.1, 61.0, 61.5, 67.6, 71.2, 71.3]), 79.64 / 6, 30.0
    low, high = means[:4], means[4:]
    between = 4 * low.mean() ** 2 + 3 * high.mean() ** 2 - 7 * means.mean() ** 2
    common = (((means - means.mean()) ** 2).sum() + dof * variance) / 37
    ratio = math.pi / (2 * (math.pi - 2)) * between / common
    p = baselines.scott_knott_pvalue(means, variance, dof)
    assert p == pytest.approx(stats.chi2.sf(ratio, 7 / (math.pi - 2)), rel=1e-9)
    fit = baselines.scott_knott(means, np.full(7, math.sqrt(variance)), dof=dof)
    assert fit.labels.tolist() == [1, 1, 1, 1, 2, 2, 2]


def test_scott_knott_holds_about_its_level_and_the_likelihood_ratio_exactly() -> None:
    rng = np.random.default_rng(3)
    noise = rng.standard_normal((400, 15))
    claims = np.mean([baselines.scott_knott_pvalue(values, 1.0) < 0.05 for values in noise])
    assert claims == pytest.approx(0.06, abs=0.04)  # an approximation, rather too often
    se = rng.lognormal(0, 1, 15)
    exact = np.mean([baselines.ratio_pvalue(se * values, se, seed=i) <= 0.1 for i, values in enumerate(noise)])
    assert exact == pytest.approx(0.1, abs=0.05)


@pytest.mark.parametrize("seed", range(3))
def test_bautista_splits_the_sum_of_squares_as_a_nested_analysis_does(seed: int) -> None:
    """The partition it stops at passes both tests, the next one fails one of them; F by regression on indicators."""
    example = some_estimates(seed, 10, apart=6.0)
    labels = baselines.bautista(example.theta, example.se).labels
    root = 1 / example.se

    def left(design: np.ndarray) -> float:
        fitted = np.linalg.lstsq(design * root[:, None], example.theta * root, rcond=None)[0]
        return float(np.sum((root * (example.theta - design @ fitted)) ** 2))

    indicators = (labels[:, None] == np.unique(labels)).astype(float)
    groups = indicators.shape[1]
    total, within = left(np.ones((10, 1))), left(indicators)
    assert stats.chi2.sf(total - within, groups - 1) < 0.05
    assert groups == 10 or stats.chi2.sf(within, 10 - groups) > 0.05


@pytest.mark.parametrize("seed", range(5))
def test_every_cluster_of_centres_passes_cochrans_test_and_no_union_does(seed: int) -> None:
    groups = some_estimates(seed, 12)
    fit = baselines.clusters_of_centres(groups.theta, groups.se)
    parts = [fit.labels == label for label in np.unique(fit.labels)]
    for own in parts:
        assert baselines.cochran_q(groups.theta[own], groups.se[own]) >= 0.05 or own.sum() == 1
    for first, second in itertools.combinations(parts, 2):
        both = first | second
        assert baselines.cochran_q(groups.theta[both], groups.se[both]) < 0.05


def test_groups_against_the_rest_are_those_of_the_library_and_of_scipy() -> None:
    groups = some_estimates(1, 12, apart=5.0)
    p = baselines.against_the_rest(groups.theta, groups.se)
    library = fl.cluster(groups, guarantee=fl.Calibrated(199)).against_rest("holm")
    of_library = {str(group.label): group.pvalue for group in library}
    holm = baselines.adjusted(p, "holm")
    assert holm == pytest.approx([of_library[str(label)] for label in groups.labels], rel=1e-9)
    assert baselines.adjusted(p, "bh") == pytest.approx(stats.false_discovery_control(p))
    rng = np.random.default_rng(5)
    first, rest = rng.normal(0, 1, 9), rng.normal(1, 1, 40)
    rest_se = rest.std(ddof=1) / math.sqrt(40)
    welch = stats.ttest_ind(first, rest, equal_var=False)
    pair = np.array([first.mean(), rest.mean()]), np.array([first.std(ddof=1) / 3, rest_se])
    ours = baselines.against_the_rest(*pair, dof=np.array([8.0, 39.0]))
    assert ours[0] == pytest.approx(welch.pvalue, rel=0.05)  # the rest's degrees of freedom are an average
    flagged = baselines.set_apart(np.array([-9.0, 0.0, 0.1, 0.2, 9.0]), np.ones(5), "holm")
    assert flagged.labels.tolist() == [1, 2, 2, 2, 3]


def test_sets_of_ranks_hold_the_true_ranks_and_have_tukeys_critical_value() -> None:
    """With equal errors the largest |z| of any pair is a studentized range over √2."""
    close = stats.studentized_range.isf(0.05, 6, 1e6) / math.sqrt(2)
    theta = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    for apart, differs in ((close * math.sqrt(2) * 0.85, False), (close * math.sqrt(2) * 1.15, True)):
        theta[-1] = apart
        lowest, highest = baselines.rank_sets(theta, np.ones(6), draws=1999)
        assert (lowest[-1] > 1) == differs
        assert highest[-1] == 6
    rng = np.random.default_rng(8)
    truth, se = np.arange(8) * 1.5, rng.lognormal(0, 0.5, 8)
    covered = 0
    for seed in range(200):
        lowest, highest = baselines.rank_sets(truth + se * rng.standard_normal(8), se, seed=seed)
        covered += bool(((lowest <= np.arange(1, 9)) & (np.arange(1, 9) <= highest)).all())
    assert covered >= 200 * 0.95 - 3 * math.sqrt(200 * 0.05 * 0.95)
    grouped = baselines.grouped_by_ranks(np.array([0.0, 0.1, 20.0, 20.1, 40.0]), np.ones(5))
    assert grouped.labels.tolist() == [1, 1, 2, 2, 3]


def test_likeliest_weights_satisfy_their_optimality_conditions() -> None:
    """At the maximum no point gains: its mean likelihood ratio is one where it has weight, and below elsewhere."""
    groups = some_estimates(4, 40, apart=4.0)
    grid = np.linspace(groups.theta.min(), groups.theta.max(), 60)
    density = stats.norm.pdf(groups.theta[:, None], grid, groups.se[:, None])
    weights = baselines.likeliest_weights(density, gain=1e-10)
    gradient = (density / (density @ weights)[:, None]).mean(axis=0)
    assert weights.sum() == pytest.approx(1.0)
    assert gradient.max() < 1 + 1e-4
    assert gradient[weights > 1e-3] == pytest.approx(1.0, abs=1e-3)


def test_empirical_bayes_by_other_ways() -> None:
    groups = some_estimates(5, 30, apart=2.0)

    def loss(between: float) -> float:
        weight = 1 / (between + groups.se**2)
        return -float(np.sum(stats.norm.logpdf(groups.theta, np.average(groups.theta, weights=weight), weight**-0.5)))

    between = float(minimize_scalar(loss, bounds=(0, 20), method="bounded", options={"xatol": 1e-8}).x)
    centre = np.average(groups.theta, weights=1 / (between + groups.se**2))
    expected = centre + between / (between + groups.se**2) * (groups.theta - centre)
    assert baselines.normal_bayes(groups.theta, groups.se).effects == pytest.approx(expected, abs=1e-3)
    # Where nothing differs, ash draws all to the centre; a clear outlier it leaves where it is.
    assert np.ptp(baselines.shrunken(np.linspace(-0.5, 0.5, 20), np.ones(20)).effects) < 0.05
    effects = baselines.shrunken(np.array([*np.linspace(-1, 1, 30), 60.0]), np.ones(31)).effects
    assert effects[-1] > 55
    # Under the NPMLE of two far heaps, everyone is at the middle of his own.
    heaps = np.repeat([0.0, 30.0], 20) + np.tile(np.linspace(-1, 1, 20), 2)
    assert baselines.npmle(heaps, np.ones(40), points=301).effects[[0, -1]] == pytest.approx([0, 30], abs=0.3)


def test_the_mixture_by_likelihood_ratio_counts_clear_clusters_and_holds_its_level() -> None:
    clear = [simulate.planted([0, 12, 24], [5, 6, 7], seed=seed).estimates for seed in range(3)]
    fits = baselines.mixture_by_ratio(clear)
    assert [fit.n_clusters for fit in fits] == [3, 3, 3]
    assert fits[0].labels.tolist() == np.repeat([1, 2, 3], [5, 6, 7]).tolist()
    nulls = [simulate.null(10, profile="lognormal", seed=seed).estimates for seed in range(60)]
    theta, se = np.array([null.theta for null in nulls]), np.array([null.se for null in nulls])
    p = baselines.ratio_pvalues(theta, se, 1, 19, np.random.default_rng(0))
    assert np.mean(p <= 0.2) == pytest.approx(0.2, abs=3 * math.sqrt(0.2 * 0.8 / 60))


def test_the_law_of_scott_and_knott_is_that_of_a_split_normal_sample() -> None:
    """Their approximation rests on the mean of half a normal sample: B₀ of K means is near 2K/π, λ near its dof."""
    expected = 4 * integrate.quad(lambda x: x * stats.norm.pdf(x), 0, np.inf)[0] ** 2
    assert expected == pytest.approx(2 / math.pi)
    between = baselines.best_cut(np.random.default_rng(1).standard_normal((200, 400)), np.ones(400))[0]
    assert between.mean() / 400 == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("place", range(len(settings.SETTINGS)))
def test_settings_draw_what_they_say(place: int) -> None:
    setting = settings.SETTINGS[place]
    drawn = setting.draw(np.random.default_rng(place))
    assert len(drawn.ours) == len(drawn.theirs) == len(drawn.truth)
    assert [str(label) for label in sorted(drawn.ours.labels, key=lambda label: int(str(label)))] == list(
        drawn.theirs.labels
    )
    members = int(setting.differs.split()[0]) if setting.differs else 0
    assert drawn.truth.sum() == members
    assert {setting.kind for setting in settings.SETTINGS if not setting.differs} == {
        setting.kind for setting in settings.SETTINGS
    }


# ----------------------------------------------------------------------------------------------- along attributes


def crossed_cells(seed: int = 0) -> tuple[baselines.Crossed, np.ndarray]:
    rng = np.random.default_rng(seed)
    codes = np.array(list(itertools.product(range(4), range(3), range(2))))
    return baselines.Crossed(codes, rng.lognormal(0, 0.5, len(codes))), codes


def test_terms_of_an_analysis_of_variance_are_those_of_statsmodels() -> None:
    """Type II sums of squares of a weighted fit with known variances."""
    pd, formula = pytest.importorskip("pandas"), pytest.importorskip("statsmodels.formula.api")
    anova_lm = pytest.importorskip("statsmodels.stats.anova").anova_lm
    cells, codes = crossed_cells()
    theta = cells.se * np.random.default_rng(1).standard_normal(len(codes))
    frame = pd.DataFrame(codes, columns=list("abc")).assign(y=theta)
    full_formula = "y ~ C(a) * C(b) + C(a) * C(c) + C(b) * C(c)"
    table = anova_lm(formula.wls(full_formula, frame, weights=cells.se**-2.0).fit(), typ=2)
    ours = {term.attributes: float(np.sum((term.basis.T @ (theta / cells.se)) ** 2)) for term in cells.terms}
    for name, attributes in {"C(a):C(b)": (0, 1), "C(a):C(c)": (0, 2), "C(b):C(c)": (1, 2), "C(a)": (0,)}.items():
        assert ours[attributes] == pytest.approx(float(table.loc[name, "sum_sq"]), rel=1e-6)
        assert {t.attributes: t.basis.shape[1] for t in cells.terms}[attributes] == table.loc[name, "df"]


@pytest.mark.parametrize("name", baselines.ALONG_ATTRIBUTES)
def test_rivals_along_attributes_name_what_is_plain(name: str) -> None:
    cells, codes = crossed_cells()
    rng, rival = np.random.default_rng(2), baselines.ALONG_ATTRIBUTES[name]
    noise = cells.se * rng.standard_normal(len(codes))
    assert rival(cells, 30.0 * (codes[:, 1] == 0) + 0.3 * noise) == (1,)
    assert rival(cells, 0.01 * noise) == ()


def test_a_region_is_tested_though_its_states_say_it() -> None:
    place = np.arange(60)
    cells = baselines.Crossed(np.stack([place // 20, place // 5, place], axis=1), np.ones(60))
    assert [(term.attributes, term.basis.shape[1]) for term in cells.terms] == [((0,), 2), ((1,), 9), ((2,), 48)]
    theta = 5.0 * (place < 20) + np.random.default_rng(0).standard_normal(60)
    assert baselines.anova(cells, theta) == baselines.mixed_model(cells, theta) == (0,)


def test_the_score_of_a_variance_has_its_level() -> None:
    cells, codes = crossed_cells()
    rng = np.random.default_rng(3)
    reports = [bool(baselines.mixed_model(cells, cells.se * rng.standard_normal(len(codes)))) for _ in range(400)]
    assert np.mean(reports) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)
