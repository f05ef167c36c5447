"""Rows of a fitted estimator: what scikit-learn predicts, beside the truth and the groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import LinearSVC

import faultlines as fl


def people(size: int = 800) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"age": rng.normal(40, 10, size), "land": rng.choice(["DE", "FR"], size)})
    y = pd.Series(np.where(x.age + rng.normal(0, 8, size) > 42, "yes", "no"), index=x.index)
    return x, y


X, Y = people()
PIPE = make_pipeline(
    make_column_transformer((OneHotEncoder(), ["land"]), remainder="passthrough"), LogisticRegression()
)
MODEL = PIPE.fit(X, Y)


def test_a_pipeline_with_columns_of_its_own_as_groups() -> None:
    rows = fl.predictions(MODEL, X, Y, by="land", weight=np.ones(len(X)))
    assert list(rows.columns) == ["y_true", "y_pred", "score", "weight", "land"]
    assert rows.y_true.tolist() == (Y == "yes").astype(int).tolist()
    assert rows.y_pred.tolist() == (MODEL.predict(X) == "yes").astype(int).tolist()
    np.testing.assert_array_equal(rows.score, MODEL.predict_proba(X)[:, 1])
    found = fl.measure(rows, "land", fl.accuracy("y_true", "y_pred")).estimates
    expected = (MODEL.predict(X) == Y).groupby(X.land).mean()
    np.testing.assert_allclose(found.natural, expected)
    assert fl.cluster(rows, "land", fl.auc("y_true", "score")).n_clusters == 1


def test_the_other_class_may_count() -> None:
    rows = fl.predictions(MODEL, X, Y, positive="no")
    assert rows.y_true.tolist() == (Y == "no").astype(int).tolist()
    np.testing.assert_array_equal(rows.score, MODEL.predict_proba(X)[:, 0])
    assert fl.predictions(MODEL, X.iloc[:4], Y.iloc[:4]).shape == (4, 3)


def test_groups_may_stand_beside_the_features_of_the_model() -> None:
    model = LogisticRegression().fit(X[["age"]], Y)
    apart = fl.predictions(model, X[["age"]], Y, by=X[["land"]])
    pd.testing.assert_frame_equal(fl.predictions(model, X[["land", "age"]], Y, by="land"), apart)
    nameless = LogisticRegression().fit(X[["age"]].to_numpy(), Y)
    with pytest.raises(fl.InputError, match=r"groups may come apart: by=rows\[\['group'\]\]"):
        fl.predictions(nameless, X.to_numpy(), Y)


@pytest.mark.parametrize("positive", ["yes", "no"])
def test_decision_functions_are_scores_towards_the_positive(positive: str) -> None:
    model = LinearSVC().fit(X[["age"]], Y)
    rows = fl.predictions(model, X[["age"]], Y, positive=positive)
    side = 1 if positive == "yes" else -1
    np.testing.assert_array_equal(rows.score, side * model.decision_function(X[["age"]]))
    assert ((rows.score > 0) == (rows.y_pred == 1)).all()


def test_regressions_and_several_classes() -> None:
    model = LinearRegression().fit(X[["age"]], X.age * 2)
    rows = fl.predictions(model, X[["age"]], X.age * 2, by=X.land)
    assert list(rows.columns) == ["y_true", "y_pred", "land"]
    assert fl.measure(rows, "land", fl.mean_error("y_true", "y_pred"), min_size=1).estimates.theta == pytest.approx(
        [0, 0], abs=1e-9
    )
    three = pd.cut(X.age, [0, 30, 45, 99], labels=["young", "middle", "old"]).astype(str)
    model = LogisticRegression(max_iter=500).fit(X[["age"]], three)
    rows = fl.predictions(model, X[["age"]], three)
    assert list(rows.columns) == ["y_true", "y_pred"]
    assert set(rows.y_true) == {"young", "middle", "old"}


@pytest.mark.parametrize(
    ("by", "names"),
    [
        (["land", "age"], ["land", "age"]),
        (X[["land"]], ["land"]),
        (X.land, ["land"]),
        ({"place": X.land.to_numpy()}, ["place"]),
        (X.land.tolist(), ["group"]),
        (X.land.to_numpy(), ["group"]),
        (None, []),
    ],
    ids=["columns", "frame", "series", "dict", "list", "array", "none"],
)
def test_groups_however_they_come(by: Any, names: list[str]) -> None:
    rows = fl.predictions(MODEL, X, Y, by=by)
    assert list(rows.columns)[3:] == names
    if names and "age" not in names:
        assert rows[names[0]].tolist() == X.land.tolist()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": 5}, r"model=int: has no predict\(\)"),
        ({"model": LogisticRegression()}, "model=LogisticRegression: cannot predict these rows"),
        ({"data": X[["age"]]}, "model=Pipeline: cannot predict these rows"),
        ({"y_true": Y[:5].tolist()}, r"y_true: has shape \(5,\), but there are 800 rows"),
        ({"y_true": Y[::-1]}, "y_true: has another index than data"),
        ({"y_true": Y.replace("yes", "maybe")}, "y_true: holds 'maybe', which the model does not know"),
        ({"by": "lang"}, "Did you mean 'land'"),
        ({"by": X.land[::-1]}, r"by\['land'\]: has another index"),
        ({"by": {"score": X.land}}, "by='score': is the name of a column of predictions"),
        ({"by": 5}, r"by\['group'\]: has shape"),
        ({"weight": [1.0]}, "weight: has shape"),
        ({"positive": "maybe"}, "positive='maybe': is not a class of the model. Use one of 'no', 'yes'"),
    ],
)
def test_bad_input(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(fl.InputError, match=words):
        fl.predictions(**({"model": MODEL, "data": X, "y_true": Y} | changes))


def test_a_positive_class_of_a_regression() -> None:
    model = LinearRegression().fit(X[["age"]], X.age)
    with pytest.raises(fl.InputError, match="positive=1: goes with a classifier of two classes"):
        fl.predictions(model, X[["age"]], X.age, positive=1)
