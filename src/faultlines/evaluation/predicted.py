"""From a fitted estimator to rows: what it predicts, beside the truth and the groups."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines.errors import InputError, did_you_mean, first_line, shorten

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    import numpy.typing as npt
    import pandas as pd

    Array = npt.NDArray[Any]

_OWN = ("y_true", "y_pred", "score", "weight")


def predictions(
    model: Any,
    data: Any,
    y_true: Any,
    *,
    by: Any = None,
    weight: Any = None,
    positive: Hashable = None,
) -> pd.DataFrame:
    """What a fitted scikit-learn estimator predicts, as rows for `fl.cluster`: truth, prediction, score and groups.

    Use rows the model was not fitted on. Of a classifier with two classes, `y_true` and `y_pred` are 1 for `positive`
    and 0 for the other, and `score` is what the model says for it: its probability, or its decision function. With more
    classes they are the labels themselves. Of a regression they are numbers.

    Args:
        model: A fitted estimator or pipeline with `predict`.
        data: The rows as the model takes them (its X): a frame or an array. A frame may hold other columns as well,
            such as those of the groups, where the model knows the names of its features (`feature_names_in_`).
        y_true: The true outcomes: as many.
        by: The groups: columns of `data` by name; or a frame, a dict of columns, or one column.
        weight: Weights of the rows, if they have some.
        positive: Of two classes, the one that counts as 1. Default: the second of the model's `classes_`.

    Returns:
        A pandas frame with the columns `y_true`, `y_pred`, `score` where the model has one, `weight` where it was
        given, and those of the groups.

    Raises:
        InputError: If the model cannot predict, lengths or indices differ, or classes are unknown to the model.

    Example:
        >>> import faultlines as fl, numpy as np
        >>> from sklearn.linear_model import LogisticRegression
        >>> x = np.arange(200.0).reshape(-1, 1) % 20
        >>> model = LogisticRegression().fit(x, x[:, 0] > 9)
        >>> rows = fl.predictions(model, x, x[:, 0] > 9, by={"half": ["a", "b"] * 100})
        >>> fl.cluster(rows, "half", fl.accuracy("y_true", "y_pred")).n_clusters
        1
    """
    try:
        pandas = import_module("pandas")
    except ImportError as error:
        raise InputError("predictions()", "pandas is not installed", "Run: pip install pandas") from error
    taken = _features(model, data)
    predicted = _asked(model, "predict", taken)
    size = len(predicted)
    truth = _values("y_true", y_true, data, size)
    made: dict[str, Any] = {"y_true": truth, "y_pred": predicted}
    classes = getattr(model, "classes_", None)
    if classes is not None and len(classes) == 2:
        one = _positive(model, truth, positive)
        made = {"y_true": (truth == one).astype(np.int64), "y_pred": (predicted == one).astype(np.int64)}
        if (scores := _scores(model, taken, one)) is not None:
            made["score"] = scores
    elif positive is not None:
        problem = "goes with a classifier of two classes"
        raise InputError(f"positive={shorten(positive)}", problem, "Leave it out.")
    if weight is not None:
        made["weight"] = _values("weight", weight, data, size)
    return pandas.DataFrame(made | _groups(by, data, size, made))


def _features(model: Any, data: Any) -> Any:
    """The columns the model was fitted on, where it knows them and they are there with others; else what was given."""
    wanted, present = getattr(model, "feature_names_in_", None), getattr(data, "columns", None)
    if wanted is None or present is None or set(wanted) == set(present) or not set(wanted) <= set(present):
        return data
    return data[list(wanted)]


def _asked(model: Any, method: str, data: Any) -> Array:
    """What a method of the model says about the rows."""
    if not callable(getattr(model, method, None)):
        problem = f"has no {method}()"
        raise InputError(f"model={type(model).__name__}", problem, "Give a fitted scikit-learn estimator.")
    try:
        found = np.asarray(getattr(model, method)(data))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        problem = f"cannot predict these rows ({first_line(error)})"
        remedy = "Fit it, and give rows with the columns it was fitted on; groups may come apart: by=rows[['group']]."
        raise InputError(f"model={type(model).__name__}", problem, remedy) from error
    if method == "predict" and found.ndim != 1:
        problem = f"predicts {found.ndim} values per row"
        raise InputError(f"model={type(model).__name__}", problem, "Give a model of one outcome.")
    return found


def _positive(model: Any, truth: Array, positive: Hashable) -> Any:
    """The class that counts as 1."""
    classes = np.asarray(model.classes_)
    strange = [value for value in np.unique(truth).tolist() if value not in classes.tolist()]
    if strange:
        problem = f"holds {shorten(strange[0])}, which the model does not know"
        raise InputError("y_true", problem, f"Its classes are {', '.join(map(repr, classes.tolist()))}.")
    if positive is None:
        return classes[1]
    if positive not in classes.tolist():
        remedy = f"Use one of {', '.join(map(repr, classes.tolist()))}."
        raise InputError(f"positive={shorten(positive)}", "is not a class of the model", remedy)
    return positive


def _scores(model: Any, data: Any, positive: Any) -> Array | None:
    """The probability of the positive class, or the decision function turned towards it; None without either."""
    first = np.asarray(model.classes_)[0] == positive
    if callable(getattr(model, "predict_proba", None)):
        return _asked(model, "predict_proba", data)[:, 0 if first else 1]
    if callable(getattr(model, "decision_function", None)):
        scores = _asked(model, "decision_function", data)
        return -scores if first else scores
    return None


# -------------------------------------------------------------------------------------------------------------- columns


def _values(parameter: str, given: Any, data: Any, size: int) -> Array:
    """One column, as long as the rows and with their index where both have one."""
    index, own = getattr(data, "index", None), getattr(given, "index", None)
    if index is not None and own is not None and hasattr(own, "equals") and not own.equals(index):
        remedy = "Give both the same, such as data.index, or use reset_index(drop=True)."
        raise InputError(parameter, "has another index than data", remedy)
    values = np.asarray(given)
    if values.ndim != 1 or len(values) != size:
        shape = f"has shape {values.shape}, but there are {size:,} rows"
        raise InputError(parameter, shape, "Give one value per row.")
    return values


def _groups(by: Any, data: Any, size: int, taken: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of the groups by name."""
    if by is None:
        return {}
    if isinstance(by, str) or (isinstance(by, list | tuple) and by and all(isinstance(one, str) for one in by)):
        names = [by] if isinstance(by, str) else list(by)
        present = [name for name in getattr(data, "columns", ()) if isinstance(name, str)]
        if isinstance(by, str) or len(names) != size or set(names) <= set(present):
            for name in names:
                if name not in present:
                    raise InputError(f"by={shorten(name)}", "no such column in data", did_you_mean(name, present))
            return _named({name: data[name] for name in names}, data, size, taken)
    if hasattr(by, "columns"):
        return _named({str(name): by[name] for name in by.columns}, data, size, taken)
    if hasattr(by, "items") and not hasattr(by, "index"):
        return _named(dict(by.items()), data, size, taken)
    return _named({str(getattr(by, "name", None) or "group"): by}, data, size, taken)


def _named(columns: dict[str, Any], data: Any, size: int, taken: Mapping[str, Any]) -> dict[str, Any]:
    for name in columns:
        if name in {*taken, *_OWN}:
            raise InputError(f"by={shorten(name)}", "is the name of a column of predictions", "Rename it.")
    return {name: _values(f"by[{name!r}]", column, data, size) for name, column in columns.items()}
