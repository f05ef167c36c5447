"""Units in several groups and several treatments: covariances held against a bootstrap of units, on every engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import faultlines as fl
from faultlines.estimates.labels import key_of
from tests.engine_matrix import in_engine
from tests.refused import refused

if TYPE_CHECKING:
    from pathlib import Path

USERS = 600


def rows(seed: int = 0, effect: float = 0.0) -> pd.DataFrame:
    """Users with three rows each, on any of four devices; A, B and C by user."""
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(USERS), 3)
    arm = rng.integers(0, 3, USERS)[user]
    device = rng.integers(0, 4, user.size)
    y = 4 * rng.standard_normal(USERS)[user] + rng.standard_normal(user.size) + effect * (arm == 1) * (device < 2)
    frame = {
        "user": user,
        "device": np.array(["phone", "tablet", "web", "tv"])[device],
        "arm": np.array(["A", "B", "C"])[arm],
        "y": y + 6,
        "views": rng.integers(1, 5, user.size).astype(float) + np.abs(y),
        "before": y + 6 * rng.standard_normal(user.size),
    }
    return pd.DataFrame(frame)


def two_arms() -> pd.DataFrame:
    frame = rows()
    return frame[frame["arm"] != "C"]


OPTIONS: dict[str, Any] = {"variant": "arm", "control": "A", "unit": "user"}
METRICS: dict[str, Any] = {
    "difference": (fl.difference("y", **OPTIONS, overlap="covariance"), lambda y, v: y[1] - y[0]),
    "lift": (fl.lift("y", **OPTIONS, overlap="covariance"), lambda y, v: np.log(y[1] / y[0])),
    "ratio difference": (
        fl.ratio_difference("y", "views", **OPTIONS, overlap="covariance"),
        lambda y, v: y[1] / v[1] - y[0] / v[0],
    ),
    "ratio lift": (
        fl.ratio_lift("y", "views", **OPTIONS, overlap="covariance"),
        lambda y, v: np.log(y[1] / v[1] * v[0] / y[0]),
    ),
    "cuped": (fl.difference("y", covariate="before", **OPTIONS, overlap="covariance"), lambda y, v: y[1] - y[0]),
}


@pytest.mark.parametrize("name", METRICS)
def test_correlations_are_those_of_a_bootstrap_of_units(name: str) -> None:
    metric, effect = METRICS[name]
    frame = two_arms()
    estimates = fl.measure(frame, "device", metric).estimates
    assert estimates.covariance is not None
    units = frame.groupby(["user", "device", "arm"], as_index=False).agg({"y": "sum", "views": "sum", "before": "mean"})
    if name == "cuped":
        inner = units[["y", "before"]] - units.groupby(["device", "arm"])[["y", "before"]].transform("mean")
        by_device = inner.assign(device=units["device"]).groupby("device")
        slope = by_device.apply(lambda d: (d["y"] * d["before"]).sum() / (d["before"] ** 2).sum())
        units["y"] -= units["device"].map(slope) * units["before"]
    place = units.groupby(["device", "arm"]).ngroup().to_numpy()  # four devices, two arms
    user = units["user"].astype("category").cat.codes.to_numpy()
    draws, rng = [], np.random.default_rng(1)
    for _ in range(1500):
        weight = rng.poisson(1, user.max() + 1)[user]
        sums = [np.bincount(place, weight * column, 8) for column in (units["y"], units["views"], np.ones(user.size))]
        y, v = (part.reshape(4, 2).T for part in (sums[0] / sums[2], sums[1] / sums[2]))
        draws.append(effect(y, v))
    expected, errors = np.corrcoef(np.array(draws).T), estimates.errors[:, 0]
    correlations = estimates.covariance / errors[:, None] / errors
    assert np.abs(correlations - expected).max() < 0.13  # some 0.03 of it are the bootstrap's own error
    assert np.abs(expected - np.eye(4)).max() > 0.1


def test_units_in_several_groups_are_an_error_until_they_are_allowed_for() -> None:
    frame = two_arms()
    options: dict[str, Any] = {"variant": "arm", "control": "A", "unit": "user"}
    with refused("invalid data: unit"):
        fl.cluster(frame, "device", fl.difference("y", **options))
    result = fl.cluster(frame, "device", fl.difference("y", **options, overlap="covariance"))
    assert "shared data" in [note.code for note in result.notes]
    turned = frame.copy()
    turned.loc[turned.index[0], "arm"] = "A" if turned["arm"].iloc[0] == "B" else "B"
    with refused("invalid data: unit"):
        fl.cluster(turned, "device", fl.difference("y", **options, overlap="covariance"))
    with refused("missing: overlap"):
        fl.difference("y", variant="arm", control="A", overlap="covariance")
    with refused("unknown: overlap"):
        fl.difference("y", **options, overlap="yes")


def test_units_of_one_group_each_are_as_before() -> None:
    frame = two_arms()
    frame["country"] = np.array(list("abcd"))[frame["user"] % 4]
    options: dict[str, Any] = {"variant": "arm", "control": "A", "unit": "user"}
    plain = fl.measure(frame, "country", fl.difference("y", **options)).estimates
    allowed = fl.measure(frame, "country", fl.difference("y", **options, overlap="covariance")).estimates
    assert allowed.covariance is None
    np.testing.assert_allclose(plain.theta, allowed.theta, rtol=1e-9)


@pytest.mark.parametrize("engine", ["polars lazy", "pyarrow", "duckdb", "ibis", "parquet"])
def test_every_engine_finds_the_same_covariance(engine: str, tmp_path: Path) -> None:
    frame = two_arms()
    metric = fl.lift("y", variant="arm", control="A", unit="user", overlap="covariance")
    expected: Any = fl.measure(frame, "device", metric).estimates
    table = pa.Table.from_pandas(frame, preserve_index=False)
    estimates: Any = fl.measure(in_engine(table, engine, tmp_path, None), "device", metric).estimates
    np.testing.assert_allclose(estimates.covariance, expected.covariance, rtol=1e-9)


def test_treatments_share_their_control() -> None:
    frame = rows()
    estimates = fl.measure(
        frame, "device", fl.difference("y", variant="arm", control="A", treatment=["B", "C"])
    ).estimates
    assert list(estimates.labels)[:2] == [("phone", "B"), ("phone", "C")]
    assert estimates.attributes == ("device", "arm")
    assert estimates.covariance is not None
    sums = frame.groupby(["device", "arm"])["y"].agg(["mean", "var", "count"])
    for i, device in enumerate(["phone", "tablet", "tv", "web"]):
        control = sums.loc[(device, "A"), "var"] / sums.loc[(device, "A"), "count"]
        both = estimates.covariance[2 * i, 2 * i + 1]
        # Variances of groups are steadied, so that they are near those of the group alone.
        assert both == pytest.approx(control, rel=0.15)
        difference = sums.loc[(device, "B"), "mean"] - sums.loc[(device, "A"), "mean"]
        assert estimates.theta[2 * i] == pytest.approx(difference)
    assert estimates.covariance[0, 2] == 0


def test_treatments_can_be_all_or_named_and_stand_in_the_labels() -> None:
    frame = rows(effect=8.0)
    options: dict[str, Any] = {"variant": "arm", "control": "A"}
    every = fl.cluster(frame, "device", fl.difference("y", **options, treatment="*"))
    named = fl.cluster(frame, "device", fl.difference("y", **options, treatment=["B", "C"]))
    assert every.pvalue == named.pvalue
    assert set(every.clusters[-1].members) == {("phone", "B"), ("tablet", "B")}
    assigned = every.assign(frame)
    assert set(assigned[assigned["cluster"] == 2]["arm"]) == {"B"}
    assert assigned[assigned["arm"] == "A"]["cluster"].isna().all()
    assert every.weights(frame)["weight"].mean() == pytest.approx(1.0)
    units = fl.difference("y", **options, treatment="*", unit="user", overlap="covariance")
    assert set(fl.cluster(frame, "device", units).clusters[-1].members) == {("phone", "B"), ("tablet", "B")}
    held = fl.cluster(frame, "device", units, guarantee=fl.Holdout(unit="user", splits=5))
    assert set(held.clusters[-1].members) == {("phone", "B"), ("tablet", "B")}
    for treatment, code in (([], "empty"), (["B", "B"], "duplicate"), (["A"], "invalid"), (["B", "D"], "not found")):
        with refused(f"{code}: treatment"):
            fl.cluster(frame, "device", fl.difference("y", **options, treatment=treatment))
    with refused("ambiguous: variant"):
        fl.cluster(frame, "device", fl.difference("y", **options))
    for metric in (units, fl.difference("y", **options, treatment="*")):
        with refused("unsupported: metric"):
            fl.joint(metric, metric)
        with refused("unsupported: metric"):
            fl.self_check(frame, "device", metric, runs=2)


def test_few_units_for_many_groups_are_allowed_for_or_refused() -> None:
    rng = np.random.default_rng(5)
    user, group = np.repeat(np.arange(40), 30), np.tile(np.arange(30), 40)
    frame = pd.DataFrame({"user": user, "group": group, "arm": np.where(user % 2, "A", "B")})
    frame["y"] = rng.standard_normal(40)[user] + rng.standard_normal(1200)
    metric = fl.difference("y", variant="arm", control="A", unit="user", overlap="covariance")
    few: Any = fl.measure(frame[frame.group < 10], "group", metric, min_size=2).estimates
    assert 30 < few.covariance_dof < 40  # all users in all groups, less one in each arm, and a little for chance
    with refused("too few: overlap"):
        fl.measure(frame[frame.user < 24], "group", metric, min_size=2)


def test_one_group_that_is_left_of_those_that_share_data_is_measured() -> None:
    rng = np.random.default_rng(6)
    frame = pd.DataFrame({"g": "x", "arm": ["A"] * 50 + ["B"] * 50 + ["C"] * 3, "y": rng.gamma(1, 1, 103)})
    found = fl.cluster(frame, "g", fl.difference("y", variant="arm", control="A", treatment="*"))
    assert found.n_clusters == 1
    assert len(found.excluded) == 1


def launch(seed: int = 0) -> pd.DataFrame:
    """Users of two countries in three arms, one row each."""
    rng = np.random.default_rng(seed)
    arm, country = rng.choice(["A", "B", "C"], 900, p=[0.6, 0.2, 0.2]), rng.choice(["DE", "FR", "IT"], 900)
    return pd.DataFrame({"user": np.arange(900), "arm": arm, "country": country, "y": rng.random(900) < 0.3})


def test_arms_in_which_nothing_happened_are_not_determined_by_the_control_they_share() -> None:
    frame = launch()
    frame.loc[(frame.country == "DE") & (frame.arm != "A"), "y"] = False
    metric = fl.difference("y", variant="arm", control="A", treatment="*")
    estimates = fl.measure(frame.astype({"y": int}), "country", metric).estimates
    first, second = (estimates.labels.index(("DE", arm)) for arm in "BC")
    covariance = estimates.covariance
    assert covariance is not None
    correlation = covariance / np.outer(estimates.se, estimates.se)
    assert np.linalg.eigvalsh(correlation).min() > 0.1
    assert 0.05 < correlation[first, second] < 0.9
    # Groups in which something happened keep the covariance of their own rows.
    others = fl.measure(frame[frame.country != "DE"].astype({"y": int}), "country", metric).estimates
    assert others.covariance is not None
    shared = others.covariance / np.outer(others.se, others.se)
    places = [estimates.labels.index(label) for label in others.labels]
    assert np.allclose(correlation[np.ix_(places, places)], shared, atol=1e-9)


def test_clusters_count_a_shared_control_once() -> None:
    frame = launch()
    y = frame.y + 5.0 * ((frame.arm == "B") & (frame.country != "DE"))
    c = fl.cluster(
        frame.assign(y=y), by="country", metric=fl.difference("y", variant="arm", control="A", treatment="*")
    )
    assert c.overall.n == len(frame)
    for cluster in c.clusters:
        keys = [key_of(label) for label in cluster.members]
        countries = {key[0] for key in keys}
        control = frame[(frame.arm == "A") & frame.country.isin(countries)]
        treated = sum(int(((frame.country == country) & (frame.arm == arm)).sum()) for country, arm in keys)
        assert cluster.n == len(control) + treated
    note = next(note for note in c.notes if note.code == "shared data")
    assert note.fields["distinct"] == len(frame) < note.fields["sum"]


def test_clusters_count_users_of_two_devices_once() -> None:
    rng = np.random.default_rng(3)
    frame = launch().loc[np.repeat(np.arange(900), 2)]
    frame["device"] = rng.choice(["app", "web"], len(frame))
    frame["y"] = frame.y + 4.0 * ((frame.arm == "B") & (frame.country == "IT"))
    metric = fl.difference("y", variant="arm", control="A", treatment="B", unit="user", overlap="covariance")
    c = fl.cluster(frame, by=["country", "device"], metric=metric)
    used = frame[frame.arm != "C"]
    assert c.attributes == ("country",)
    assert c.overall.n == used.user.nunique()
    for cluster in c.clusters:
        assert cluster.n == used[used.country.isin({key_of(label)[0] for label in cluster.members})].user.nunique()


def test_roles_that_cannot_go_together_are_refused() -> None:
    frame = launch().astype({"y": int})
    arms: dict[str, Any] = {"variant": "arm", "control": "A", "treatment": "B"}
    with refused("conflict: by"):
        fl.cluster(frame, by=["country", "arm"], metric=fl.difference("y", **arms))
    with refused("conflict: by"):
        fl.cluster(frame, by="user", metric=fl.difference("y", **arms, unit="user"))
    with refused("conflict: covariate"):
        fl.difference("y", **arms, covariate="y")
    with refused("unsupported: aggregate"):
        fl.difference("y", **arms, unit="user", aggregate="first")


def test_users_in_two_arms_are_counted_apart_from_users_in_two_groups() -> None:
    frame = launch().astype({"y": int})
    metric = fl.difference("y", variant="arm", control="A", treatment="B", unit="user")
    both = pd.concat([frame, frame[frame.arm == "A"].head(7).assign(arm="B")])
    with pytest.raises(fl.InputError) as in_arms:
        fl.cluster(both, by="country", metric=metric)
    moved = pd.concat([frame, frame[frame.arm == "A"].head(5).assign(country="SE")])
    with pytest.raises(fl.InputError) as in_groups:
        fl.cluster(moved, by="country", metric=metric)
    assert (in_arms.value.code, in_groups.value.code) == ("invalid data", "invalid data")
    assert in_arms.value.problem.startswith("7 ")
    assert in_groups.value.problem.startswith("5 ")
