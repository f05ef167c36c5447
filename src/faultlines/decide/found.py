"""Clusters as they were found: of a result, or of the JSON that was saved of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines.errors import InputError, first_line, shorten
from faultlines.estimates.labels import Names, key_of, match, name_of
from faultlines.metrics.base import Metric
from faultlines.metrics.recipe import metric_of
from faultlines.result.finding import Finding
from faultlines.result.saved import by_of, keys_of_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.estimates.estimates import IntArray
    from faultlines.estimates.labels import Key
    from faultlines.estimates.scales import FloatArray
    from faultlines.rows.bins import Bins

_REMEDY = "Give what fl.cluster returns, or what its to_json() or --json wrote."


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Clusters that are fixed: which groups each has, and how large its effect looked.

    Attributes:
        keys: Keys of the groups, or one name each where a saved result does not tell their attributes apart.
        labels: Cluster number of each, from 1 on.
        effects: Effect of every cluster as people read it, (m, d).
        measure: What was measured.
        parts: Names of several effects.
        tolerance: How far apart effects could be and still count as similar.
        by: What the groups are, for rows; none where that is not known.
        metric: What was measured, for rows; None where that is not known.
        are_names: Whether keys are names.
    """

    keys: Sequence[Key]
    labels: IntArray
    effects: FloatArray
    measure: str
    parts: tuple[str, ...]
    tolerance: float
    by: tuple[str | Bins, ...]
    metric: Metric | None
    are_names: bool = False

    @property
    def count(self) -> int:
        """How many clusters."""
        return len(self.effects)

    def places(self, keys: Sequence[Key]) -> list[int]:
        """The place among these groups of every other one; −1 where it is none of them."""
        wanted = Names([name_of(key) for key in keys]) if self.are_names else keys
        return match(wanted, self.keys, "data")


def found_of(clusters: object, metric: Metric | str | None = None) -> Found:
    """Clusters from a result, from its JSON, or from the path of that.

    Args:
        clusters: The result, a path, the text of the JSON, or what `json.loads` makes of it.
        metric: Which of several results is meant, where the JSON holds several metrics; or its name.

    Raises:
        InputError: If there is no such file, it is damaged or something else, or there is one cluster only.
    """
    if not isinstance(metric, Metric | str | None):
        problem = "is neither a metric nor the name of one"
        raise InputError(f"metric={shorten(metric)}", problem, 'Use for example fl.rate("converted").')
    if isinstance(clusters, Finding):
        if isinstance(metric, str):
            _one_of([{"measure": clusters.groups.measure}], metric, "clusters")
        return _checked(_of_result(clusters), "clusters")
    shown, data = _loaded(clusters)
    several = data["metrics"] if isinstance(data.get("metrics"), list) else [data]
    if len(several) > 1 or isinstance(metric, str):
        data = _one_of(several, metric, shown)
    return _checked(_of_data(data, shown), shown)


def _checked(found: Found, shown: str) -> Found:
    if found.count < 2:
        problem = "there is only one cluster, so there is no difference to confirm"
        raise InputError(shown, problem, "Confirm a result in which clusters differ.")
    return found


def _of_result(result: Finding) -> Found:
    if result.groups.estimates is None:
        raise InputError("clusters", "have no effects that could be confirmed", "Give Similarity(…, estimate=…).")
    effects = np.array([[effect.estimate for effect in cluster.effects] for cluster in result.clusters])
    metric = None if result.readout is None else result.readout.metric
    groups, parts = result.groups, result.groups.estimates.parts
    return Found(groups.keys, result.labels, effects, groups.measure, parts, groups.tolerance, result.by, metric)


# ----------------------------------------------------------------------------------------------------------- from JSON


def _loaded(clusters: object) -> tuple[str, Mapping[str, Any]]:
    """What to call it in messages, and the data."""
    if isinstance(clusters, Mapping):
        return "clusters", clusters
    if not isinstance(clusters, str | PathLike):
        raise InputError(f"clusters={shorten(clusters)}", "is neither a result nor the path of its JSON", _REMEDY)
    text, shown = clusters, "clusters"
    if not (isinstance(clusters, str) and clusters.lstrip()[:1] in {"{", "["}):
        shown = f"clusters={shorten(str(clusters))}"
        text = _read(clusters, shown)
    try:
        data = json.loads(str(text))
    except (ValueError, RecursionError) as error:
        raise InputError(shown, f"is not JSON, or damaged ({first_line(error)})", _REMEDY) from error
    if not isinstance(data, Mapping):
        raise InputError(shown, "is JSON of something else", _REMEDY)
    return shown, data


def _read(path: str | PathLike[str], shown: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(shown, "is not text", _REMEDY) from error
    except (OSError, ValueError, RuntimeError) as error:  # a null byte, a home that is not there
        why = getattr(error, "strerror", None) or first_line(error)
        raise InputError(shown, f"cannot be read ({why})", "Give the path of what --json wrote.") from error


def _one_of(several: Sequence[Any], metric: Metric | str | None, shown: str) -> Mapping[str, Any]:
    """The result of one metric among several."""
    results = [one for one in several if isinstance(one, Mapping)]
    name = metric if isinstance(metric, str | None) else metric.name
    wanted = [one for one in results if name is not None and _words(str(one.get("measure"))) == _words(name)]
    if len(wanted) != 1:
        known = ", ".join(shorten(one.get("measure")) for one in results[:12])
        holds = f"holds {len(results)} results" if len(results) > 1 else "holds one result"
        problem = holds if name is None else f"{holds}, and not one of {shorten(name)}"
        raise InputError(shown, problem, f"Name one of its metrics: {known}.")
    return wanted[0]


def _words(name: str) -> str:
    """The name of a metric in words, also where it is written as on the command line: lift:revenue."""
    return name.replace("_", " ").replace(":", " of ")


def _of_data(data: Mapping[str, Any], shown: str) -> Found:
    try:
        rows = [row for row in data["groups"] if row["cluster"] is not None]
        clusters = data["clusters"]
        effects = np.array([_effects(row) for row in clusters], dtype=np.float64)
        keys, labels, are_names = _members(data, rows, clusters)
        measure, tolerance = str(data["measure"]), float(data.get("tolerance") or 0.0)
        parts = tuple(map(str, data.get("parts") or ()))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"is JSON of something else, or damaged ({type(error).__name__}: {first_line(error)})"
        raise InputError(shown, problem, _REMEDY) from error
    is_whole = effects.ndim == 2 and effects.shape == (len(clusters), max(len(parts), 1)) and np.isfinite(effects).all()
    if not is_whole or set(labels) != set(range(1, len(clusters) + 1)):
        raise InputError(shown, "does not hold a whole result: clusters and groups do not match", _REMEDY)
    by = by_of(data["by"]) if data.get("by") else ()
    metric = metric_of(data["metric"]) if data.get("metric") else None
    return Found(keys, np.array(labels, dtype=np.int64), effects, measure, parts, tolerance, by, metric, are_names)


def _effects(row: Mapping[str, Any]) -> list[Any]:
    """The estimates of a cluster: one, or one for each of several effects."""
    return [value for name, value in row.items() if name == "estimate" or name.startswith("estimate_")]


def _members(
    data: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], clusters: Sequence[Mapping[str, Any]]
) -> tuple[Sequence[Key], list[int], bool]:
    """Keys of the groups and their clusters; names, where a result was saved before attributes were."""
    if data.get("attributes"):
        return keys_of_rows(rows, data["attributes"]), [int(row["cluster"]) for row in rows], False
    named = [(str(name), i + 1) for i, row in enumerate(clusters) for name in row["members"]]
    return [key_of(name) for name, _ in named], [cluster for _, cluster in named], True
