"""Seeded populations with a known truth, for the demo, the tests, the benchmarks and the studies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from faultlines import checks
from faultlines.errors import InputError
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.scales import PERCENT
from faultlines.types import FloatArray

Profile = Literal["equal", "lognormal", "zipf"]


@dataclass(frozen=True, slots=True, eq=False)
class Simulated:
    """Estimates together with the truth they were drawn from.

    Attributes:
        estimates: What an analyst would see.
        effects: The true effect of each group.
        truth: The true cluster of each group, 1 … m from the lowest to the highest effect.

    Example:
        >>> import faultlines as fl
        >>> made = fl.simulate.planted([0, 4], [2, 3])
        >>> made.effects.tolist(), made.truth.tolist(), len(made.estimates)
        ([0.0, 0.0, 4.0, 4.0, 4.0], [1, 1, 2, 2, 2], 5)
    """

    estimates: Estimates
    effects: FloatArray
    truth: npt.NDArray[np.int64]


def standard_errors(groups: int, profile: Profile, rng: np.random.Generator) -> FloatArray:
    """Standard errors as unequal as group sizes are: all 1, lognormal with σ = 1, or sizes that fall like 1/rank.

    Args:
        groups: How many.
        profile: ``"equal"``, ``"lognormal"`` or ``"zipf"``.
        rng: Random numbers, for the lognormal ones.

    Returns:
        The standard errors.

    Raises:
        InputError: If there is no such profile, or no group.

    Example:
        >>> import faultlines as fl, numpy as np
        >>> fl.simulate.standard_errors(4, "zipf", np.random.default_rng(0)).round(2).tolist()
        [1.0, 1.41, 1.73, 2.0]
    """
    groups = _count("groups", groups)
    checks.choice("profile", profile, ("equal", "lognormal", "zipf"), "Use 'equal', 'lognormal' or 'zipf'.")
    if profile == "equal":
        return np.ones(groups)
    if profile == "lognormal":
        return _generator(rng, "rng").lognormal(0.0, 1.0, groups)
    return np.asarray(np.sqrt(np.arange(1.0, groups + 1)))


def _count(name: str, value: Any, least: int = 1) -> int:
    problem = f"must be a whole number, {least} or more"
    return int(checks.number(name, value, problem, "Use for example 10.", low=least, whole=True))


def _generator(seed: Any, name: str = "seed") -> np.random.Generator:
    if isinstance(seed, np.random.Generator):
        return seed
    if name == "rng":
        raise InputError.wrong_type("rng", "is not a generator", "Use np.random.default_rng(0).", seed)
    return np.random.default_rng(checks.seed(seed))


def _values(name: str, argument: Any) -> list[Any]:
    if isinstance(argument, str) or not np.iterable(argument):
        raise InputError.wrong_type(name, "is not a list of numbers", "Give one number for each cluster.", argument)
    values = list(argument)
    if not values:
        raise InputError.empty(name, "is empty", "Give one number for each cluster.", argument)
    return values


def planted(
    effects: Sequence[float],
    sizes: Sequence[int],
    *,
    profile: Profile = "equal",
    dof: float | None = None,
    seed: int | np.random.Generator = 0,
) -> Simulated:
    """Clusters of the given sizes with the given true effects (in units of a typical standard error).

    With `dof`, the standard errors an analyst sees are estimated with that many degrees of freedom.

    Args:
        effects: The true effect of each cluster.
        sizes: How many groups each has.
        profile: How unequal standard errors are; see `standard_errors`.
        dof: Degrees of freedom behind them; None where they are known.
        seed: Of the noise; or a generator.

    Returns:
        The estimates with the truth.

    Raises:
        InputError: If sizes and effects do not go together, or something is no number.

    Example:
        >>> import faultlines as fl
        >>> fl.cluster(fl.simulate.planted([0, 4], [10, 10]).estimates).n_clusters
        2
    """
    each = [
        checks.number("effects", e, "must be a number", "Use for example 0.5.") for e in _values("effects", effects)
    ]
    counts = [_count("sizes", size, 0) for size in _values("sizes", sizes)]
    if not any(counts):
        raise InputError.empty(
            "sizes", "there are no groups", "Give at least one size of 1 or more.", sizes, form="clause"
        )
    if len(counts) != len(each):
        raise InputError.mismatch(
            "sizes", f"there are {len(each)} effects", "Give one size for each effect.", sizes, form="clause"
        )
    if dof is not None:
        dof = checks.number("dof", dof, "must be a number, 1 or more", "Use for example dof=10.", low=1)
    rng = _generator(seed)
    ranked = np.argsort(np.argsort(each)) + 1
    mean, truth = np.repeat(each, counts), np.repeat(ranked, counts)
    sigma = standard_errors(mean.size, profile, rng)
    theta = mean + sigma * rng.standard_normal(mean.size)
    se = sigma if dof is None else sigma * np.sqrt(rng.chisquare(dof, mean.size) / dof)
    return Simulated(Estimates(theta, se, dof=dof), mean, truth)


def null(
    groups: int, *, profile: Profile = "equal", dof: float | None = None, seed: int | np.random.Generator = 0
) -> Simulated:
    """Groups that are all equal: whatever is found here is a false positive.

    Args:
        groups: How many.
        profile: How unequal standard errors are; see `standard_errors`.
        dof: Degrees of freedom behind them; None where they are known.
        seed: Of the noise; or a generator.

    Returns:
        The estimates with the truth.

    Example:
        >>> import faultlines as fl
        >>> fl.cluster(fl.simulate.null(20).estimates).rejected
        False
    """
    return planted([0.0], [_count("groups", groups)], profile=profile, dof=dof, seed=seed)


def asia_africa(mu: float, *, seed: int | np.random.Generator = 0) -> Simulated:
    """The paper's example: 48 countries of Asia with effect −μ, 54 of Africa with +μ.

    In every country 100 people have the control, drawn from N(0, 0.1), and 100 the treatment, N(∓μ, 0.1); 0.1 is a
    variance. Estimates are differences of means with their usual standard errors (section 7.1 of the paper).

    Args:
        mu: Half the difference between the continents.
        seed: Of the noise; or a generator.

    Returns:
        The estimates with the truth.

    Raises:
        InputError: If `mu` is not a number.

    Example:
        >>> import faultlines as fl
        >>> [len(one.members) for one in fl.cluster(fl.simulate.asia_africa(0.3).estimates).clusters]
        [48, 54]
    """
    mu = checks.number("mu", mu, "must be a number", "Use for example mu=0.2.")
    rng = _generator(seed)
    countries = [*_ASIA, *_AFRICA]
    truth = np.repeat([1, 2], [len(_ASIA), len(_AFRICA)])
    effects = np.where(truth == 1, -mu, mu)
    people, sd = 100, np.sqrt(0.1)
    control = rng.normal(0.0, sd, (len(countries), people))
    treated = rng.normal(effects[:, None], sd, (len(countries), people))
    theta = treated.mean(axis=1) - control.mean(axis=1)
    se = np.sqrt((treated.var(axis=1, ddof=1) + control.var(axis=1, ddof=1)) / people)
    estimates = Estimates(theta, se, countries, n=2 * people, dof=2 * (people - 1), attributes=["country"])
    return Simulated(estimates, effects, truth)


def onboarding(seed: int | np.random.Generator = 0) -> Simulated:
    """An onboarding experiment over 40 countries: relative lift in users who come back after an email.

    New users see the old or the new onboarding. In most countries the new one lifts the share of users with a session
    after the email by 2%; in nine it does harm (−6%), in ten it does a great deal of good (+9%). Countries are as
    unequal in size as markets are.

    Args:
        seed: Of the noise; or a generator.

    Returns:
        The estimates with the truth.

    Example:
        >>> import faultlines as fl
        >>> fl.simulate.onboarding().estimates.metric
        'lift of returning users'
    """
    rng = _generator(seed)
    lifts = {"harmed": -0.06, "typical": 0.02, "delighted": 0.09}
    names = [*_HARMED, *_TYPICAL, *_DELIGHTED]
    truth = np.repeat([1, 2, 3], [len(_HARMED), len(_TYPICAL), len(_DELIGHTED)])
    effects = np.array(list(lifts.values()))[truth - 1]
    users = np.round(100_000 / rng.permutation(np.arange(1, len(names) + 1)) ** 0.8).astype(np.int64)
    base = rng.uniform(0.25, 0.45, len(names))
    control = rng.binomial(users, base) / users
    treated = rng.binomial(users, base * (1 + effects)) / users
    lift = treated / control - 1
    # Delta method for a ratio of two independent proportions.
    se = (treated / control) * np.sqrt((1 - treated) / (users * treated) + (1 - control) / (users * control))
    about = {"attributes": ["country"], "metric": "lift of returning users", "scale": PERCENT}
    measured = Estimates(lift, se, names, n=2 * users, **about)  # type: ignore[arg-type]
    return Simulated(measured, effects, truth)


def experiment_rows(seed: int | np.random.Generator = 0) -> dict[str, npt.NDArray[Any]]:
    """Rows of an experiment: visits of 12,000 users in six countries, on the app or the web, in arm A or B.

    A user has one country, device and arm, and one to three visits. Arm B lowers spend by 20% in PL and changes
    nothing elsewhere. The columns are plain arrays, so that any frame can be made of them.

    Args:
        seed: Of the rows; or a generator.

    Returns:
        Columns by name: ``user``, ``country``, ``device``, ``arm`` and ``spend``, with one entry per visit.

    Example:
        >>> import faultlines as fl, pandas as pd
        >>> visits = pd.DataFrame(fl.simulate.experiment_rows())
        >>> metric = fl.lift("spend", variant="arm", control="A", unit="user")
        >>> fl.cluster(visits, by="country", metric=metric).clusters[0].members
        ('PL',)
    """
    rng = _generator(seed)
    users = 12_000
    country = rng.choice(["DE", "FR", "IN", "IT", "PL", "US"], users)
    device, arm = rng.choice(["app", "web"], users), rng.choice(["A", "B"], users)
    # Visits of a user resemble each other: spend has a part of the user's own.
    mean_spend = rng.gamma(4.0, 2.5, users) * np.where((country == "PL") & (arm == "B"), 0.8, 1.0)
    user = np.repeat(np.arange(users), rng.integers(1, 4, users))
    spend = np.round(mean_spend[user] * rng.gamma(4.0, 0.25, user.size), 2)
    return {"user": user, "country": country[user], "device": device[user], "arm": arm[user], "spend": spend}


def launch_rows(seed: int | np.random.Generator = 0, *, users: int = 24_000) -> dict[str, npt.NDArray[Any]]:
    """Sessions of a shop in the two weeks of a launch, in arm A (half of the users), B (30%) or C (20%).

    Three things are planted. C breaks the checkout for Safari in DE: sessions convert at 0.3 of the usual rate. B
    raises conversion by 30% among new users. And 30% of the users of B in PL are not logged. New users have no spend
    from before; a user has one to three sessions on the day of the first visit.

    Args:
        seed: Of the rows; or a generator.
        users: How many are assigned.

    Returns:
        Columns by name: ``user``, ``day`` (1 to 14), ``country``, ``browser``, ``type``, ``arm``, ``before``,
        ``converted`` and ``revenue``, with one entry per session.

    Raises:
        InputError: If `users` is not a whole number, 1 or more.

    Example:
        >>> import faultlines as fl, pandas as pd
        >>> sessions = pd.DataFrame(fl.simulate.launch_rows())
        >>> fl.srm(sessions, ["country", "browser"], variant="arm", unit="user").where
        {'country': 'PL'}
    """
    users, rng = _count("users", users), _generator(seed)
    country = rng.choice(["AT", "DE", "ES", "FR", "IT", "NL", "PL", "SE"], users)
    browser = rng.choice(["Chrome", "Firefox", "Safari"], users, p=[0.5, 0.2, 0.3])
    kind, arm = (
        rng.choice(["new", "returning"], users, p=[0.4, 0.6]),
        rng.choice(["A", "B", "C"], users, p=[0.5, 0.3, 0.2]),
    )
    before = np.where(kind == "new", np.nan, np.round(rng.lognormal(2.0, 0.8, users), 2))
    rate = np.full(users, 0.2)
    rate[(arm == "C") & (browser == "Safari") & (country == "DE")] *= 0.3
    rate[(arm == "B") & (kind == "new")] *= 1.3
    is_logged = ~((arm == "B") & (country == "PL") & (rng.random(users) < 0.3))
    user = np.repeat(np.flatnonzero(is_logged), rng.integers(1, 4, int(is_logged.sum())))
    day = rng.integers(1, 15, users)
    converted = (rng.random(user.size) < rate[user]).astype(np.int64)
    spend = np.where(kind == "new", 8.0, np.nan_to_num(before)) * rng.lognormal(0.5, 0.6, users)
    columns = {"day": day, "country": country, "browser": browser, "type": kind, "arm": arm, "before": before}
    sessions: dict[str, npt.NDArray[Any]] = {"user": user} | {name: column[user] for name, column in columns.items()}
    return sessions | {"converted": converted, "revenue": np.round(converted * spend[user], 2)}


def model_rows(seed: int | np.random.Generator = 0) -> dict[str, npt.NDArray[Any]]:
    """Rows of a scored model: 12,000 cases by gender and age, with their outcome, prediction and score.

    A case is predicted where its score is 0.5 or more. Positives of 55 and above have lower scores than others, so
    that the model finds fewer of them; gender makes no difference.

    Args:
        seed: Of the rows; or a generator.

    Returns:
        Columns by name: ``gender``, ``age``, ``label``, ``predicted`` and ``score``.

    Example:
        >>> import faultlines as fl, pandas as pd
        >>> scored = pd.DataFrame(fl.simulate.model_rows())
        >>> metric = fl.true_positive_rate("label", "predicted")
        >>> fl.cluster(scored, by=["gender", "age"], metric=metric).attributes
        ('age',)
    """
    rng = _generator(seed)
    cases = 12_000
    gender, age = rng.choice(["f", "m"], cases), rng.choice(["18-34", "35-54", "55+"], cases)
    label = (rng.random(cases) < 0.3).astype(np.int64)
    center = np.where(label == 1, np.where(age == "55+", 0.58, 0.64), 0.32)
    score = np.round(rng.beta(8 * center, 8 * (1 - center)), 3)
    predicted = (score >= 0.5).astype(np.int64)
    return {"gender": gender, "age": age, "label": label, "predicted": predicted, "score": score}


# Country codes, ISO 3166. Which continent a country counts to does not matter here, only that there are 48 and 54.
_ASIA = (
    "AE AF AM AZ BD BH BN BT CN CY GE ID IL IN IQ IR JO JP KG KH KP KR KW KZ LA LB LK MM MN MV MY NP OM PH PK PS QA SA "
    "SG SY TH TJ TL TM TR UZ VN YE"
).split()
_AFRICA = (
    "AO BF BI BJ BW CD CF CG CI CM CV DJ DZ EG ER ET GA GH GM GN GQ GW KE KM LR LS LY MA MG ML MR MU MW MZ NA NE NG RW "
    "SC SD SL SN SO SS ST SZ TD TG TN TZ UG ZA ZM ZW"
).split()
_HARMED = "AT CH DE DK FI JP KR NO SE".split()
_TYPICAL = "AU BE CA CZ ES FR GB GR HU IE IL IT NL NZ PL PT RO SG TR US ZA".split()
_DELIGHTED = "BD BR EG ID IN KE MX NG PH VN".split()
