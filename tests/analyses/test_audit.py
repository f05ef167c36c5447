"""An audit from arrays: the same as clustering by hand and correcting, for every kind of array there is."""

# ruff: noqa: E501 - tables of names and of bad inputs read better in long rows

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from fairlearn.metrics import MetricFrame, count, selection_rate
from sklearn.metrics import accuracy_score, matthews_corrcoef, recall_score, roc_auc_score
from statsmodels.stats.proportion import proportion_confint

import faultlines as fl
from faultlines.metrics.table import METRICS, own_name, remedy_for
from faultlines.results.collection import unique_names
from tests.refused import refused

if TYPE_CHECKING:
    from faultlines.results import Audit, Certificate

RNG = np.random.default_rng(0)
SIZE = 4000
PEOPLE = pd.DataFrame({"sex": RNG.choice(["f", "m"], SIZE), "race": RNG.choice(list("ABC"), SIZE)})
TRUTH = pd.Series((RNG.random(SIZE) < 0.4).astype(int), name="hired")
SCORE = pd.Series(np.clip(0.3 + 0.3 * TRUTH + 0.2 * RNG.standard_normal(SIZE) + 0.15 * (PEOPLE.race == "C"), 0, 1))
PREDICTED = (SCORE >= 0.5).astype(int)
PLACE = RNG.choice(["north", "south"], SIZE)
RATES = ["selection_rate", "fpr"]


def audit(truth: Any = TRUTH, predicted: Any = PREDICTED, **options: Any) -> Audit:
    options = {"sensitive_features": PEOPLE, "metrics": RATES} | options
    return fl.audit(truth, predicted, **options)


def certificates(result: Audit, **asked: Any) -> list[Certificate]:
    return [certificate for certificate in result.certify(**asked).values() if certificate is not None]


def informedness(truth: Any, predicted: Any) -> float:
    return float(predicted[truth == 1].mean() - predicted[truth == 0].mean())


def figures(result: Audit) -> dict[str, list[float]]:
    return {
        name: [result[name].pvalue_adj, result[name].n_clusters, *result[name].estimates.theta.ravel()]
        for name in result
    }


def test_it_is_one_analysis_per_metric_over_features_and_crossings() -> None:
    result = audit(metrics=["selection_rate", "recall", "fpr"])
    rows = PEOPLE.assign(y=TRUTH, p=PREDICTED)
    metrics = [fl.selection_rate("p"), fl.true_positive_rate("y", "p"), fl.false_positive_rate("y", "p")]
    expected = fl.holm([fl.cluster(rows, ["sex", "race"], metric) for metric in metrics], 0.05)
    assert list(result) == [
        "selection rate by sex × race",
        "true positive rate by sex × race",
        "false positive rate by sex × race",
    ]
    for name, clustering in zip(result, expected, strict=True):
        assert result[name].pvalue_adj == pytest.approx(clustering.pvalue_adj, rel=1e-9)
        assert [c.members for c in result[name].clusters] == [c.members for c in clustering.clusters]
        assert result[name].attributes == clustering.attributes == ("race",)
    assert set(result.rejected) == {name for name in result if result[name].rejected}
    assert result.rejected[0] == min(result, key=lambda name: result[name].log_pvalue)
    assert len([note for note in result.notes if note.code == "difference"]) == 3  # one for each, not nine


def test_features_are_compared_one_by_one_where_that_is_asked_or_nothing_else_is_possible() -> None:
    alone = audit(intersections=False)
    by_feature = [f"{metric} by {name}" for metric in ("selection rate", "false positive rate") for name in PEOPLE]
    assert list(alone) == by_feature
    rows = PEOPLE.assign(p=PREDICTED)
    assert alone["selection rate by race"].pvalue == pytest.approx(
        fl.cluster(rows, "race", fl.selection_rate("p")).pvalue, rel=1e-9
    )
    assert list(audit(metrics="equalized_odds")) == ["equalized odds by sex × race"]
    # Another error control and a tolerance do not test margins: features are compared beside cells.
    crossed = [f"selection rate by {name}" for name in ("sex × race", "sex", "race")]
    assert list(audit(metrics="selection_rate", tolerance=0.01)) == crossed
    assert list(audit(metrics="selection_rate", guarantee="bonferroni")) == crossed


def test_features_that_make_the_same_groups_are_one_comparison() -> None:
    result = audit(sensitive_features={"sex": PEOPLE.sex, "gender": PEOPLE.sex.map({"f": "w", "m": "x"})})
    assert list(result) == ["selection rate by sex × gender", "false positive rate by sex × gender"]


def test_the_table_has_every_metric_in_every_group() -> None:
    result = audit(metrics=["recall", "selection_rate", "accuracy"])
    table = result.to_pandas("groups")
    assert len(table) == 3 * (2 + 3 + 6)
    for by, features in {"sex": PEOPLE.sex, "race": PEOPLE.race, "sex × race": PEOPLE}.items():
        theirs = MetricFrame(
            metrics={"true positive rate": recall_score, "selection rate": selection_rate, "accuracy": accuracy_score},
            y_true=TRUTH,
            y_pred=PREDICTED,
            sensitive_features=features,
        )
        for metric in theirs.by_group:
            rows = table[(table.metric == metric) & (table.by == by)].set_index(list(PEOPLE) if "×" in by else by)
            np.testing.assert_allclose(rows.estimate, theirs.by_group[metric].loc[rows.index])
            np.testing.assert_allclose(rows.overall, theirs.overall[metric])
            np.testing.assert_allclose(rows.difference, rows.estimate - theirs.overall[metric])
    rows = table[(table.metric == "selection rate") & (table.by == "sex")]
    assert rows.n.tolist() == [(PEOPLE.sex == sex).sum() for sex in "fm"]
    assert rows.race.isna().all()
    ends = [
        proportion_confint(PREDICTED[PEOPLE.sex == sex].sum(), n, method="beta")
        for sex, n in zip("fm", rows.n, strict=True)
    ]
    np.testing.assert_allclose(rows[["lower", "upper"]], ends, atol=0.001)


def test_the_auc_of_all_rows_is_that_of_the_model() -> None:
    result = audit(TRUTH, None, score=SCORE, metrics="auc")
    assert result.groups[0].overall == pytest.approx(roc_auc_score(TRUTH, SCORE))
    each = [roc_auc_score(TRUTH[PEOPLE.sex == sex], SCORE[PEOPLE.sex == sex]) for sex in "fm"]
    assert [group.estimate for group in result.groups[:2]] == pytest.approx(each)


def test_findings_are_in_the_order_of_who_is_affected_and_how_much() -> None:
    result = audit(metrics=["accuracy", "recall", "fpr", "selection_rate"])
    differences = [note.fields["comparison"] for note in result.notes if note.code == "difference"]
    assert differences != [name for name in result if name in result.rejected]
    sizes = []
    for name in differences:
        c = result[name]
        sizes.append(max(abs(cluster.effects[0].estimate - c.overall.effects[0].estimate) for cluster in c.clusters))
    assert sizes == sorted(sizes, reverse=True)  # all are about race C


@pytest.mark.parametrize("kind", ["list", "numpy", "polars", "pyarrow", "nullable", "dict"])
def test_every_kind_of_array_gives_the_same(kind: str) -> None:
    expected = figures(audit())
    ways: dict[str, Any] = {
        "list": lambda: (TRUTH.tolist(), PREDICTED.tolist(), {name: PEOPLE[name].tolist() for name in PEOPLE}),
        "numpy": lambda: (
            TRUTH.to_numpy(),
            PREDICTED.to_numpy() > 0,
            {name: PEOPLE[name].to_numpy() for name in PEOPLE},
        ),
        "polars": lambda: (pl.Series(TRUTH), pl.Series(PREDICTED), pl.from_pandas(PEOPLE)),
        "pyarrow": lambda: (pa.chunked_array([TRUTH]), pa.chunked_array([PREDICTED]), pa.Table.from_pandas(PEOPLE)),
        "nullable": lambda: (TRUTH.astype("Int64"), PREDICTED.astype("boolean"), PEOPLE.astype("category")),
        "dict": lambda: (TRUTH, PREDICTED, {"sex": PEOPLE.sex, "race": pl.Series(PEOPLE.race)}),
    }
    truth, predicted, features = ways[kind]()
    found_figures = figures(audit(truth, predicted, sensitive_features=features))
    assert found_figures.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found_figures[name], values, rtol=1e-9)


def test_arrays_of_features_are_named_as_in_fairlearn() -> None:
    result = audit(sensitive_features=PEOPLE.to_numpy(), metrics="selection_rate")
    assert list(result)[-1] == "selection rate by sensitive_feature_0 × sensitive_feature_1"
    assert list(audit(sensitive_features=PEOPLE.race.to_numpy(), metrics="fpr")) == [
        "false positive rate by sensitive_feature"
    ]


def test_an_index_says_which_rows_belong_together() -> None:
    order = np.random.default_rng(1).permutation(SIZE)
    assert figures(audit(TRUTH, PREDICTED.iloc[order], sensitive_features=PEOPLE.iloc[order])) == figures(audit())
    with refused("mismatch: y_pred"):
        audit(TRUTH, PREDICTED.set_axis(np.arange(SIZE) + 1))
    twice = np.zeros(SIZE)
    with refused("mismatch: sensitive_features"):
        audit(TRUTH.set_axis(twice), PREDICTED.set_axis(twice))
    equal = audit(TRUTH.set_axis(twice), PREDICTED.set_axis(twice), sensitive_features=PEOPLE.set_axis(twice))
    assert figures(equal) == figures(audit())


def test_a_column_without_an_index_beside_indexes_in_different_orders() -> None:
    """Nobody can tell which of the two an array goes with."""
    order = np.random.default_rng(1).permutation(SIZE)
    with refused("mismatch: y_pred"):
        audit(TRUTH, PREDICTED.to_numpy()[order], sensitive_features=PEOPLE.iloc[order])
    moved = [table.iloc[order] for table in (TRUTH, PEOPLE)]
    assert figures(audit(moved[0], PREDICTED.to_numpy()[order], sensitive_features=moved[1])) == figures(audit())


def test_which_features_are_crossed() -> None:
    features = {name: RNG.choice(list("xy"), SIZE) for name in "ABCD"}

    def looked_at(**options: Any) -> list[str]:
        result = audit(sensitive_features=features, metrics="selection_rate", **options)
        return [" × ".join(comparison.by) for comparison in result.comparisons]

    assert looked_at() == looked_at(intersections=9) == ["A × B × C × D"]
    assert looked_at(intersections=False) == [*"ABCD"]
    assert looked_at(intersections=2) == ["A × B", "A × C", "A × D", "B × C", "B × D", "C × D"]
    assert looked_at(intersections=3) == ["A × B × C", "A × B × D", "A × C × D", "B × C × D"]
    result = audit(sensitive_features=features, metrics="selection_rate", intersections=2)
    assert {result[name].adjustment.results for name in result} == {6}  # type: ignore[union-attr]


def test_a_function_is_what_it_does_and_not_what_it_is_called() -> None:
    def recall(_: Any, predicted: Any) -> float:
        return float(predicted.mean())

    result = audit(metrics={"own": recall, "theirs": recall_score}, sensitive_features=PEOPLE.sex)
    assert result.to_dicts()[0]["overall"] == pytest.approx(PREDICTED.mean(), abs=0.01)
    np.testing.assert_allclose(
        result["own by sex"].estimates.natural, [PREDICTED[PEOPLE.sex == sex].mean() for sex in "fm"]
    )
    each = [recall_score(TRUTH[PEOPLE.sex == sex], PREDICTED[PEOPLE.sex == sex]) for sex in "fm"]
    np.testing.assert_allclose(result["theirs by sex"].estimates.natural, each)
    assert result["theirs by sex"].readout.metric.resampling is None  # type: ignore[union-attr]
    assert list(audit(metrics=matthews_corrcoef, sensitive_features=PEOPLE.sex)) == [
        "matthews_corrcoef of y_true, y_pred by sex"
    ]


def test_groups_are_those_of_fairlearn() -> None:
    frame = MetricFrame(
        metrics={"rec": recall_score, "sel": selection_rate, "acc": accuracy_score},
        y_true=TRUTH, y_pred=PREDICTED, sensitive_features=PEOPLE,
    )  # fmt: skip
    audited = audit(metrics={"rec": recall_score, "sel": selection_rate, "acc": accuracy_score})
    for name in ("rec", "sel", "acc"):
        result = audited[f"{name} by sex × race"]
        theirs = [frame.by_group.loc[label, name] for label in result.estimates.labels]
        np.testing.assert_allclose(result.estimates.natural, theirs)


def test_scores_weights_and_functions() -> None:
    weight = np.random.default_rng(2).uniform(0.5, 2, SIZE)
    scored = audit(TRUTH, None, score=SCORE, threshold=0.5, sample_weight=weight, metrics=["ppr", "f1", "auc", "brier"])
    rows = PEOPLE.assign(y=TRUTH, s=SCORE, w=weight)
    for name, metric in (
        ("selection rate", fl.selection_rate(score="s", threshold=0.5, weight="w")),
        ("F1", fl.f1("y", score="s", threshold=0.5, weight="w")),
        ("auc", fl.auc("y", "s", weight="w")),
        ("Brier score", fl.brier("y", "s", weight="w")),
    ):
        expected = fl.measure(rows, ["sex", "race"], metric).estimates
        np.testing.assert_allclose(scored[f"{name} by sex × race"].estimates.theta, expected.theta)
    assert [comparison.metric for comparison in fl.audit(TRUTH, score=SCORE, sensitive_features=PEOPLE.sex).comparisons] == [
        "auc", "calibration gap", "Brier score"
    ]  # fmt: skip
    named = audit(metrics=[informedness, fl.error_rate("y_true", "y_pred")], sensitive_features=PEOPLE.race)
    assert list(named) == ["informedness of y_true, y_pred by race", "error rate by race"]
    values = named["informedness of y_true, y_pred by race"].estimates.natural
    each = [informedness(TRUTH[PEOPLE.race == race], PREDICTED[PEOPLE.race == race]) for race in "ABC"]
    np.testing.assert_allclose(values, each)


def test_controls_compare_within_strata() -> None:
    """Who is hired depends on the place; the groups live in different places, and are treated alike in each."""
    rng = np.random.default_rng(3)
    group = rng.choice(["a", "b"], SIZE)
    place = np.where(rng.random(SIZE) < np.where(group == "a", 0.8, 0.2), "north", "south")
    predicted = (rng.random(SIZE) < np.where(place == "north", 0.6, 0.2)).astype(int)
    options: dict[str, Any] = {"sensitive_features": {"group": group}, "metrics": "demographic_parity"}
    assert audit(TRUTH, predicted, **options).rejected == ("selection rate by group",)
    result = audit(TRUTH, predicted, control_features={"place": place}, **options)
    assert list(result) == ["selection rate by group (place = north)", "selection rate by group (place = south)"]
    assert result.rejected == ()
    north = place == "north"
    alone = fl.measure(pd.DataFrame({"g": group[north], "p": predicted[north]}), "g", fl.selection_rate("p")).estimates
    np.testing.assert_allclose(result[next(iter(result))].estimates.theta, alone.theta)
    assert result.to_dicts()[0]["stratum"] == "place = north"


@pytest.mark.parametrize("kind", [list, np.array, pl.Series, pd.Series])
def test_rows_without_a_value_of_a_control_are_a_stratum(kind: Any) -> None:
    names = [None] * 600 + PLACE[600:].tolist()
    result = audit(metrics="selection_rate", sensitive_features=PEOPLE.sex, control_features={"place": kind(names)})
    numbers = np.where(np.arange(SIZE) < 600, np.nan, PLACE == "north")
    coded = audit(metrics="selection_rate", sensitive_features=PEOPLE.sex, control_features={"place": numbers})
    assert set(result) == {f"selection rate by sex (place = {place})" for place in ("(missing)", "north", "south")}
    assert {comparison.stratum[0][1] for comparison in coded.comparisons} == {None, 0.0, 1.0}
    alone = audit(TRUTH[:600], PREDICTED[:600], metrics="selection_rate", sensitive_features=PEOPLE.sex[:600])
    for audited in (result, coded):
        theta = audited["selection rate by sex (place = (missing))"].estimates.theta
        np.testing.assert_allclose(theta, alone["selection rate by sex"].estimates.theta)


def test_a_stratum_without_the_label_that_counts_is_as_with_numbers() -> None:
    early = np.arange(SIZE) < 300
    truth, strata = np.where(early, 0, TRUTH), {"k": np.where(early, "early", PLACE)}
    options: dict[str, Any] = {
        "metrics": ["recall", "fpr"],
        "sensitive_features": PEOPLE.sex,
        "control_features": strata,
    }
    expected = audit(truth, **options)
    assert list(expected.skipped) == ["true positive rate by sex (k = early)"]
    words, guesses = np.array(["no", "yes"])[truth], np.array(["no", "yes"])[PREDICTED]
    result = audit(words, guesses, positive="yes", **options)
    assert result.skipped == expected.skipped
    assert figures(result) == figures(expected)
    words = np.where(words == "yes", "cat", np.where(RNG.random(SIZE) < 0.5, "dog", "cow"))
    assert list(audit(words, np.where(guesses == "yes", "cat", "dog"), positive="cat", **options).skipped) == [
        "true positive rate of cat by sex (k = early)"
    ]
    with refused("not found: positive"):
        audit(np.where(truth, "yes", "no"), guesses, positive="ys", **options)

    def strict(truth: Any, predicted: Any) -> float:
        if not truth.any():
            raise ValueError("no positives")
        return float(predicted[truth == 1].mean())

    some = audit(truth, **(options | {"metrics": {"strict": strict}}))
    assert some.skipped == {"strict by sex (k = early)": "none of 2 groups can be used: no value (2)"}


def test_several_classes() -> None:
    truth = RNG.choice(["cat", "dog", "cow"], SIZE)
    guess = np.where(RNG.random(SIZE) < 0.8, truth, "cow")
    result = audit(truth, guess, metrics=["accuracy", "recall"], positive="cat", sensitive_features=PEOPLE.sex)
    assert list(result) == ["accuracy by sex", "true positive rate of cat by sex"]
    each = [accuracy_score(truth[PEOPLE.sex == sex], guess[PEOPLE.sex == sex]) for sex in "fm"]
    np.testing.assert_allclose(result["accuracy by sex"].estimates.natural, each)
    with refused("wrong type: y_pred"):
        audit(truth, guess)


def test_what_it_says() -> None:
    result = audit()
    table = result.to_pandas()
    assert table.name.tolist() == list(result.names)
    assert table.rejected.tolist() == [result[name].rejected for name in result]
    assert np.all(table.lowest <= table.overall)
    assert np.all(table.overall <= table.highest)
    assert result.verdict == "differ"
    assert {note.fields["comparison"] for note in result.notes if note.code == "difference"} == set(result.rejected)
    assert [note.code for note in result.notes].count("contrast") == 1  # of all sentences beside tables
    assert repr(result) == f"<Audit: {len(result.rejected)} of 2 metrics differ, holm, α = 0.05>"
    with refused("not found: name"):
        result["selection rate by sx"]
    with refused("unknown: rows"):
        result.to_dicts("clusters")


def test_one_page_with_a_part_for_every_finding(tmp_path: Any) -> None:
    race = PEOPLE.race.map(
        {name: f"{name} and more of a long name than any line of text has room for" for name in "ABC"}
    )
    strata = RNG.integers(0, 30, SIZE * 6).astype(str)
    options: dict[str, Any] = {"sensitive_features": {"race": pd.concat([race] * 6, ignore_index=True)}}
    truth, predicted = (pd.concat([column] * 6, ignore_index=True) for column in (TRUTH, PREDICTED))
    result = audit(truth, predicted, control_features={"k": strata}, metrics=["selection_rate", "fpr"], **options)
    assert len(result.rejected) > 20
    result.report(tmp_path / "audit.html", title="Hiring <model>", adverse={"false positive rate": "high"})
    assert "worse off" in (tmp_path / "audit.html").read_text(encoding="utf-8")
    written = (tmp_path / "audit.html").read_text(encoding="utf-8")
    assert written.count('<section class="finding"') == len(result.rejected)
    assert "Hiring &lt;model&gt;" in written
    for name in race.unique():
        assert written.count(name) > len(result.rejected)
    assert "<script" not in written
    with refused("unknown: adverse"):
        result.report(tmp_path / "audit.html", adverse="up")  # type: ignore[arg-type]


def test_the_card_of_a_large_audit_is_short() -> None:
    result = audit(
        sensitive_features={"sex": PEOPLE.sex, "code": RNG.integers(0, 60, SIZE).astype(str)},
        control_features={"k": RNG.integers(0, 4, SIZE).astype(str)},
        metrics=["selection_rate", "fpr", "recall", "accuracy"],
    )
    card = fl.model_card(result, data="validation rows")
    assert len(card.splitlines()) <= 80
    assert result.headline in card


def test_what_cannot_be_compared_is_said() -> None:
    result = audit(sensitive_features={"race": PEOPLE.race, "one": ["x"] * SIZE}, metrics="selection_rate")
    assert list(result) == ["selection rate by race"]
    assert result.skipped == {"selection rate by one": "fewer than two groups can be compared"}
    (note,) = [note for note in result.notes if note.code == "not compared"]
    assert note.fields == {"comparison": "selection rate by one", "error": "no groups"}
    assert result.skipped_codes == {"selection rate by one": "no groups"}
    assert list(result.certify(gap=0.3).values())[-1] is None
    few = np.where(np.arange(SIZE) < 4, "x", "y")
    rare = audit(
        np.where(few == "x", 1, TRUTH), metrics=["fpr", "selection_rate"], sensitive_features={"few": few}, min_size=2
    )
    assert list(rare) == ["selection rate by few"]
    assert list(rare.skipped) == ["false positive rate by few"]
    with refused("no groups: sensitive_features"):
        audit(sensitive_features=np.arange(SIZE).astype(str))


@pytest.mark.parametrize("controls", [None, {"place": PLACE}])
def test_a_metric_that_the_rows_do_not_allow_does_not_end_the_audit(controls: Any) -> None:
    options: dict[str, Any] = {"score": 10 * SCORE, "threshold": 5, "control_features": controls}
    result = audit(predicted=None, metrics=["log_loss", "recall", "auc"], **options)
    alone = audit(predicted=None, metrics=["recall", "auc"], **options)
    assert figures(result) == figures(alone)
    assert result.skipped_codes == {"log loss": "invalid data"}
    (note,) = [note for note in result.notes if note.code == "not compared"]
    assert note.fields == {"comparison": "log loss", "error": "invalid data"}
    assert result.certify(gap=0.3)["log loss"] is None
    with refused("invalid data: score"):
        audit(predicted=None, metrics=["log_loss", "brier_score"], **options)
    with refused("column not found: sensitive_features"):
        fl.audit("y", "y", data=PEOPLE.assign(y=TRUTH), sensitive_features=["sex", "nope"], metrics=RATES)


def test_what_was_left_out_is_in_every_output() -> None:
    truth = TRUTH.astype(float)
    truth[:500] = np.nan
    sex = PEOPLE.sex.to_numpy(dtype=object).copy()
    sex[1000:1003] = "x"
    result = audit(truth, sensitive_features={"sex": sex, "race": PEOPLE.race}, intersections=False)
    (rows,) = [note for note in result.notes if note.code == "dropped rows"]
    (groups, *_) = [note for note in result.notes if note.code == "excluded groups"]
    assert rows.fields["comparisons"] == ("false positive rate by sex", "false positive rate by race")
    assert [group.excluded is not None for group in result.groups[:3]] == [False, False, True]
    assert groups.fields["comparisons"] == ("selection rate by sex",)
    for text in (str(result), result.to_markdown(), result._repr_html_()):
        assert text.count(rows.text) == 1
        assert groups.text in text
    by_name = {row["name"]: row for row in result.to_dicts()}
    assert [by_name[name]["n_dropped"] for name in result] == [0, 0, 500, 500]
    assert [by_name[name]["n_excluded"] for name in result] == [1, 0, 1, 0]
    assert by_name["selection rate by race"]["excluded"] is None
    assert by_name["selection rate by sex"]["excluded"] is not None


def test_no_result_is_lost_where_names_read_the_same() -> None:
    features = {"a": PEOPLE.sex, "b": PEOPLE.race, "a × b": np.where(PEOPLE.sex == "f", "x", "y")}
    result = audit(sensitive_features=features, metrics="selection_rate", intersections=2)
    assert len(set(result.names)) == len(result) == 3
    assert list(json.loads(result.to_json())["results"]) == list(result.names)
    for comparison in result.comparisons:
        assert result[comparison.name] is comparison.result
        assert comparison.result.groups.attributes == comparison.by
    controls = np.array([None, "(missing)"], dtype=object)[np.arange(SIZE) % 2]
    with refused("duplicate: by"):  # a missing value and text that reads like one
        audit(sensitive_features={"sex": PEOPLE.sex}, control_features={"k": controls}, metrics="selection_rate")
    metrics = {"x": "selection_rate", "x by sex": "accuracy"}
    odd = audit(sensitive_features={"sex": PEOPLE.sex, "sex by sex": PEOPLE.sex}, metrics=metrics, intersections=False)
    assert len(set(odd.names)) == len(odd) == 4


def test_numbered_names_are_keys_of_their_own() -> None:
    assert unique_names(["a", "a", "a (2)", "b", "a"]) == ["a", "a (3)", "a (2)", "b", "a (4)"]


def test_it_plugs_in() -> None:
    result = audit(sensitive_features={"race": PEOPLE.race, "<b>": ["x"] * SIZE})
    plain = json.loads(result.to_json())
    assert plain == json.loads(json.dumps(result.to_dict()))
    assert plain["rejected"] == list(result.rejected)
    assert plain["results"][result.rejected[0]] == json.loads(result[result.rejected[0]].to_json())
    assert list(plain["skipped"]) == list(result.skipped)
    assert [row["name"] for row in plain["comparisons"]] == list(result)
    card = fl.model_card(result, data="validation rows")
    texts = [note.text for note in result.notes if note.code == "difference"]
    assert list(map(html.unescape, re.findall("^- (.+)$", card, flags=re.M))) == texts
    shown = result._repr_html_()
    assert "<b>" not in shown
    assert "selection rate by &lt;b&gt;" in shown
    assert (
        len(audit(sensitive_features={"race": PEOPLE.race, "one": PEOPLE.sex}, intersections=False)._repr_html_()) > 500
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"predicted": PREDICTED[:9]}, "mismatch: y_pred"),
        ({"predicted": SCORE}, "invalid data: y_pred"),
        ({"predicted": None}, "missing: y_pred, score"),
        ({"predicted": None, "score": np.c_[1 - SCORE, SCORE]}, "mismatch: score"),
        ({"predicted": None, "score": SCORE}, "wrong type: threshold"),
        ({"predicted": PEOPLE}, "mismatch: y_pred"),
        ({"truth": 5}, "wrong type: y_true"),
        ({"metrics": "fprate"}, "unknown: metrics"),
        ({"metrics": []}, "empty: metrics"),
        ({"metrics": ["fpr", "false_positive_rate"]}, "duplicate: metrics"),
        ({"metrics": "auc"}, "missing: metrics"),
        ({"metrics": {"fpr", "recall"}}, "wrong type: metrics"),
        ({"metrics": count}, "unsupported: statistic"),
        ({"metrics": "mcc"}, "unknown: metrics"),
        ({"metrics": "hinge"}, "unknown: metrics"),
        ({"threshold": 0.5}, "conflict: y_pred, threshold"),
        ({"threshold": 0.9, "score": SCORE, "metrics": "recall"}, "conflict: y_pred, threshold"),
        ({"predicted": None, "score": SCORE, "threshold": 0.5, "metrics": informedness}, "unsupported: metrics"),
        ({"truth": SCORE, "metrics": None}, "invalid data: y_true"),
        (
            {"sensitive_features": pd.DataFrame([["a", "b"]] * SIZE, columns=["a", "a"])},
            "duplicate: sensitive_features",
        ),
        ({"metrics": informedness, "sample_weight": np.ones(SIZE)}, "unsupported: metrics"),
        (
            {"metrics": "calibration_slope", "score": SCORE, "sample_weight": np.ones(SIZE)},
            "conflict: sample_weight",
        ),
        ({"sensitive_features": PEOPLE.sex.rename("y_true")}, "duplicate: sensitive_features"),
        ({"sensitive_features": {"a": PEOPLE}}, "duplicate: sensitive_features"),
        ({"alpha": 2}, "out of range: alpha"),
        ({"intersections": "yes"}, "wrong type: intersections"),
        ({"intersections": 1}, "out of range: intersections"),
        ({"guarantee": "fdr"}, "unknown: guarantee"),
    ],
)
def test_what_is_refused(options: dict[str, Any], words: str) -> None:
    with refused(words):
        audit(**options)


def test_names_of_other_libraries() -> None:
    for other, own in {
        "recall": "true_positive_rate", "equal_opportunity": "true_positive_rate", "TPR": "true_positive_rate",
        "fpr": "false_positive_rate", "false_positive_rate_difference": "false_positive_rate", "fpr_disparity": "false_positive_rate",
        "demographic_parity": "selection_rate", "demographic_parity_difference": "selection_rate", "ppr": "selection_rate",
        "pprev": "selection_rate", "demographic parity ratio": "selection_rate", "equalized_odds_difference": "equalized_odds",
        "ppv": "precision", "precision_score": "precision", "f1_score": "f1", "balanced_accuracy_score": "balanced_accuracy",
        "roc_auc_score": "auc", "brier_score_loss": "brier", "accuracy_score_group_min": "accuracy", "npv": "negative_predictive_value",
        "Impact_Parity": "selection_rate", "FNR_Parity": "false_negative_rate",
        "mean_squared_error": "mean_squared_error", "ratio_difference": "ratio_difference", "zero_one_loss": "error_rate",
    }.items():  # fmt: skip
        assert own_name(other) == own
        assert own in METRICS
    assert own_name("nonsense") is None
    for other, words in {
        "ece": "'calibration_gap' or 'calibration_slope'", "expected_calibration_error": "'calibration_slope'",
        "fdr": "'precision'", "fdr_disparity": "'precision'", "FDR_Parity": "'precision'", "FOR Parity": "'negative_predictive_value'",
        "for": "'negative_predictive_value'", "prev": "fl.rate", "TypeI_Parity": "'false_positive_rate' and 'precision'",
        "disparate_impact": "'selection_rate'.* ratio=True", "mean_prediction": "fl.mean", "fp": "'false_positive_rate'", "fn": "'false_negative_rate'",
        "average_precision": "its sklearn.metrics.average_precision_score", "f1_macro": r"its .*f1_score, average=\"macro\"",
        "mcc": "its sklearn.metrics.matthews_corrcoef", "matthews_corrcoef": "its sklearn", "r2_score": "its sklearn", "rmse": "its sklearn",
        "recall": "Did you mean 'true_positive_rate'", "acuracy": "Did you mean 'accuracy'.*Or so",
    }.items():  # fmt: skip
        assert re.search(words, remedy_for(other, "model", function="its {}", otherwise=" Or so."))
        assert other == "recall" or own_name(other) is None


# -------------------------------------------------------------------------------------------- columns of a frame, files


def test_columns_of_frames_and_files_are_as_good_as_arrays(tmp_path: Any) -> None:
    rows = PEOPLE.assign(hired=TRUTH, guess=PREDICTED, place=PLACE)
    expected = audit(control_features={"place": PLACE})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    rows.to_parquet(tmp_path / "rows.parquet")
    for data in (rows, pl.from_pandas(rows), tmp_path / "rows.csv", tmp_path / "rows.parquet"):
        result = fl.audit(
            "hired", "guess", data=data, sensitive_features=["sex", "race"], control_features="place", metrics=RATES
        )
        assert figures(result).keys() == figures(expected).keys()
        for name, values in figures(expected).items():
            np.testing.assert_allclose(figures(result)[name], values, rtol=1e-9)
    cut = fl.audit(
        None, "guess", data=rows.assign(age=RNG.integers(18, 80, SIZE)), sensitive_features=[fl.bins("age", width=20)]
    )
    assert list(cut) == ["selection rate by age"]  # without truth
    assert [str(group.label) for group in cut.groups] == ["0–19", "20–39", "40–59", "60–79"]
    for options, words in (
        ({"y_true": "hird"}, "column not found: y_true"),
        ({"y_pred": PREDICTED}, "wrong type: y_pred"),
        ({"sensitive_features": []}, "empty: sensitive_features"),
        ({"control_features": "sex"}, "duplicate: control_features"),
    ):
        columns: dict[str, Any] = {"y_true": "hired", "y_pred": "guess", "sensitive_features": "sex"} | options
        with refused(words):
            fl.audit(data=rows, **columns)


def test_a_numeric_feature_with_many_values_is_cut(tmp_path: Any) -> None:
    age = RNG.integers(18, 85, SIZE)
    result = audit(sensitive_features={"age": age}, metrics="selection_rate")
    assert [(cut.feature, cut.values, cut.ranges) for cut in result.cut] == [("age", 67, 5)]
    (note,) = [note for note in result.notes if note.code == "cut feature"]
    assert note.fields == {"feature": "age", "values": 67, "ranges": 5}
    edges = np.quantile(age, [0.2, 0.4, 0.6, 0.8])
    sizes = [int(np.sum(np.searchsorted(edges, age, side="right") == i)) for i in range(5)]
    assert [group.n for group in result.groups] == sizes
    pd.DataFrame({"p": PREDICTED, "age": age}).to_csv(tmp_path / "t.csv", index=False)
    from_text = fl.audit(None, "p", data=tmp_path / "t.csv", sensitive_features="age")
    assert [group.n for group in from_text.groups] == sizes
    few = audit(sensitive_features={"age": age // 10, "text": age.astype(str)}, metrics="selection_rate", min_size=1)
    assert few.cut == ()


def test_codings_that_mean_the_same() -> None:
    expected = figures(audit(metrics=["recall", "accuracy"]))
    words = np.where(PREDICTED == 1, "Yes", "no")
    for truth, guess in ((TRUTH == 1, words), (TRUTH, words), (np.where(TRUTH, "t", "f"), words)):
        for options in ({}, {"positive": "Yes"}):
            if options and truth.dtype.kind in "UO":
                continue
            coded = figures(audit(truth, guess, metrics=["recall", "accuracy"], **options))
            assert coded == expected
    with refused("wrong type: y_pred"):
        audit(TRUTH, np.where(PREDICTED == 1, "good", "bad"))
    with refused("mismatch: threshold"):
        audit(TRUTH, None, score=100 * SCORE, threshold=0.5)
    with pytest.raises(fl.InputError) as deciles:
        audit(TRUTH, None, score=np.ceil(10 * SCORE), threshold=0.5)
    assert deciles.value.settings == {"threshold": 5.0}  # in the units of the scores
    assert len(audit(TRUTH, None, score=4 * SCORE - 2, threshold=0.5)) == 2  # log odds may be anything


def test_text_and_numbers_that_read_the_same_are_one_group() -> None:
    for mixed in ([1.0, "1", 2], [1, "1.0", "2"], [1.0, "1", None]):
        values = (mixed * SIZE)[:SIZE]
        for feature in (values, pd.Series(values), np.array(values, dtype=object)):
            result = audit(sensitive_features={"m": feature}, metrics="selection_rate")
            assert len(result.groups) == 2


def test_ranges_of_pandas_are_in_the_order_of_their_numbers() -> None:
    age = RNG.integers(1, 130, SIZE)
    cut = pd.cut(age, [0, 9, 30, 100, 130])
    for feature in (cut, cut.astype(str)):
        result = audit(sensitive_features={"age": feature}, metrics="selection_rate")
        assert [group.label for group in result.groups] == ["(0, 9]", "(9, 30]", "(30, 100]", "(100, 130]"]


def test_certificates_of_an_audit() -> None:
    result = audit(metrics=["recall", "selection_rate"])
    assert list(result.certify(gap=0.4)) == list(result.names)
    for name, certificate in zip(result.names, certificates(result, gap=0.4), strict=True):
        assert certificate.verdict == "passed"
        assert certificate.certifiable == pytest.approx(fl.certify(result[name], gap=0.4, alpha=0.025).certifiable)
    assert {certificate.verdict for certificate in certificates(result, gap=0.02)} == {"failed"}


def test_one_direction_is_not_applied_to_metrics_that_harm_in_different_ones() -> None:
    result = audit(metrics=["tpr", "fpr"])
    assert [certificate.adverse for certificate in certificates(result, gap=0.1)] == ["low", "high"]
    for side in ("low", "high"):
        with refused("conflict: adverse"):
            result.certify(gap=0.1, adverse=side)
    assert len(result.certify(gap=0.1, adverse=None)) == 2
    assert [certificate.adverse for certificate in certificates(audit(metrics=["tpr"]), gap=0.1, adverse="high")] == [
        "high"
    ]


def test_correction_for_the_share_of_false_findings() -> None:
    result = audit(metrics=["recall", "selection_rate", "fpr"], correction="bh")
    plain = audit(metrics=["recall", "selection_rate", "fpr"])
    assert result.correction == "bh"
    assert all(result[name].log_pvalue_adj <= plain[name].log_pvalue_adj for name in result)
    with refused("unknown: correction"):
        audit(correction="bonferroni")


def test_as_a_metric_frame() -> None:
    both = {"true positive rate": recall_score, "selection rate": selection_rate}
    columns: dict[str, Any] = {"y_true": TRUTH, "y_pred": PREDICTED}
    result = audit(metrics=["recall", "selection_rate"])
    theirs = MetricFrame(metrics=both, sensitive_features=PEOPLE, **columns)
    ours = fl.to_metric_frame(result)
    for name in both:
        np.testing.assert_allclose(ours.by_group[name], theirs.by_group[name])
        assert ours.overall[name] == pytest.approx(theirs.overall[name])
    assert ours.difference()["selection rate"] == pytest.approx(theirs.difference()["selection rate"])
    alone = fl.to_metric_frame(result, by="race")
    np.testing.assert_allclose(
        alone.by_group["selection rate"],
        MetricFrame(metrics=selection_rate, sensitive_features=PEOPLE.race, **columns).by_group,
    )
    strata = {"place": PLACE}
    ours = fl.to_metric_frame(audit(metrics=["recall", "selection_rate"], control_features=strata))
    theirs = MetricFrame(metrics=both, sensitive_features=PEOPLE, control_features=strata, **columns)
    for name in both:
        np.testing.assert_allclose(ours.by_group[name].sort_index(), theirs.by_group[name].sort_index())
        np.testing.assert_allclose(ours.overall[name], theirs.overall[name])
    with refused("not found: by"):
        fl.to_metric_frame(result, by="age")
    with refused("conflict: by"):
        fl.to_metric_frame(next(iter(result.comparisons)).result, by="sex")


def test_probabilities_of_groups_are_refused() -> None:
    shares = RNG.dirichlet([1.0, 1.0, 1.0], SIZE)
    columns = {name: shares[:, i] for i, name in enumerate(["p_a", "p_b", "p_c"])}
    with refused("unsupported: sensitive_features"):
        audit(sensitive_features=columns)
    with refused("unsupported: sensitive_features"):
        audit(sensitive_features={name: np.round(values, 2) for name, values in columns.items()} | {"sex": PEOPLE.sex})
    with refused("unsupported: by"):
        fl.cluster(pd.DataFrame(columns | {"y": TRUTH}), list(columns), fl.rate("y"))
    two = {f"share {i}": columns[name] for i, name in enumerate(("p_a", "p_b"))}  # numbers like others: no sum of 1
    assert [cut.feature for cut in audit(sensitive_features=two, metrics="selection_rate").cut] == list(two)


def test_units_are_counted_and_not_their_rows() -> None:
    """Eight rows of each of 500 units that agree: as sure as 500 rows are."""
    unit = np.repeat(np.arange(500), 8)
    sex, predicted = (np.repeat(RNG.choice(values, 500), 8) for values in (["f", "m"], [0, 1]))
    options: dict[str, Any] = {"sensitive_features": {"sex": sex}, "metrics": "selection_rate"}
    by_unit = audit(TRUTH, predicted, unit=unit, **options).groups[0]
    by_row = audit(TRUTH, predicted, **options).groups[0]
    assert by_unit.estimate == pytest.approx(by_row.estimate)
    assert by_unit.se / by_row.se == pytest.approx(np.sqrt(8), rel=0.1)  # type: ignore[operator]


@pytest.mark.parametrize("metric", ["auc", "f1", "brier", "balanced_accuracy"])
def test_intervals_of_small_groups_stay_within_what_the_metric_can_be(metric: str) -> None:
    """13 rows without any error may be followed by one; and no area under the curve exceeds 1."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 3000)
    group = np.repeat(["a", "b", "c", "d", "e"], [1500, 1460, 20, 13, 7])
    score = np.where(group == "d", 0.1 + 0.8 * truth, np.clip(0.35 * truth + 0.65 * rng.random(3000), 0, 1))
    frame = pd.DataFrame({"g": group, "t": truth, "s": score})
    audit = fl.audit("t", data=frame, score="s", threshold=0.5, sensitive_features="g", metrics=metric)
    intervals = {row["g"]: (row["lower"], row["upper"]) for row in audit.to_dicts("groups")}
    for lower, upper in intervals.values():
        assert (lower is None) == (upper is None)
        assert lower is None or 0 <= lower < upper <= 1
    if metric != "brier":
        assert intervals["d"][0] <= 1 - (1 - 0.025 ** (1 / 13))


@pytest.mark.parametrize("name", ["p_black", "prob_hispanic", "white_bisg"])
def test_a_single_probability_of_a_group_is_refused_by_its_name(name: str) -> None:
    rng = np.random.default_rng(0)
    share, label = rng.random(400), rng.integers(0, 2, 400)
    with refused("unsupported: sensitive_features"):
        fl.audit(label, label, sensitive_features={name: share}, metrics="selection_rate")
    with refused("unsupported: by"):
        fl.cluster(pd.DataFrame({name: share, "p": label}), name, fl.selection_rate("p"))
    for harmless in ({"owned_homes": share}, {name: (4 * share).round() / 4}, {name: share > 0.5}):
        assert fl.audit(label, label, sensitive_features=harmless, metrics="selection_rate").comparisons


def unknown_sex() -> pd.DataFrame:
    """A model that selects people of unknown sex more often; race does not matter."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "sex": pd.Series(["female", "male", None])[rng.choice(3, 6000, p=[0.4, 0.45, 0.15])].to_numpy(),
        "race": rng.choice(["A", "B", "C"], 6000),
    })  # fmt: skip
    frame["y"] = rng.random(6000) < 0.3
    return frame.assign(p=rng.random(6000) < np.where(frame.y, 0.8, 0.2) + 0.1 * frame.sex.isna())


def test_what_attributes_explain_agrees_with_the_result_beside_it() -> None:
    rows = unknown_sex()
    c = fl.cluster(rows, ["sex", "race"], fl.selection_rate("p"))
    by_sex = fl.cluster(rows, "sex", fl.selection_rate("p"))
    pvalues = {row.attribute: row.pvalue for row in c.explained()}
    assert c.attributes == ("sex",)
    assert np.log(pvalues["sex"]) == pytest.approx(by_sex.log_pvalue, rel=0.1)
    assert pvalues["race"] > 0.05


def test_an_unknown_level_is_named_with_its_attribute() -> None:
    c = fl.cluster(unknown_sex(), ["sex", "race"], fl.selection_rate("p"))
    assert "for sex (missing)" in str(c)
    assert "sex (missing)" in c.to_markdown()


def test_a_model_card_promises_no_error_rate() -> None:
    """From rows, false positives can be above α: a card names the error control and α, and no probability of error."""
    rows = unknown_sex()
    card = fl.model_card(fl.audit(rows.y, rows.p, sensitive_features=rows[["sex", "race"]]))
    assert "α = 0.05" in card
    assert "at most" not in card


def test_it_says_what_a_result_from_rows_says_about_its_rows() -> None:
    rows = pd.DataFrame({"prompt_id": np.repeat(np.arange(100), 8), "g": np.repeat(["a", "b"], 400), "y": [0, 1] * 400})
    result = fl.audit(y_pred="y", data=rows, sensitive_features="g", metrics=RATES[:1])
    note = next(note for note in result.notes if note.code == "no unit")
    assert note.severity == "warning"
    assert note.fields["column"] == "prompt_id"
    assert note.text in str(result)
    assert note.text in fl.model_card(result)
    assert note.code in {note["code"] for note in json.loads(result.to_json())["notes"]}


def test_missing_attributes_are_noted() -> None:
    rows = pd.DataFrame({"g": ["a", "b", None, "", "b"] * 200, "y": [0, 1] * 500})
    result = fl.audit(y_pred="y", data=rows, sensitive_features="g", metrics=RATES[:1])
    note = next(note for note in result.notes if note.code == "missing attributes")
    assert (note.severity, note.fields["share"]) == ("warning", 0.4)
    assert result["selection rate by g"].group_labels == ("a", "b", "(missing)")


def test_an_audit_is_certified_by_its_own_method() -> None:
    with refused("wrong type: data"):
        fl.certify(audit(metrics=RATES[:1]), gap=0.1)
