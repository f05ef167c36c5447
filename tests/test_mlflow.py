"""The recipe of the documentation, run with the real MLflow where it is installed."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

import faultlines as fl

PAGE = Path(__file__).parent.parent / "docs" / "howto" / "integrations.md"


def test_the_recipe_logs_page_json_and_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # newer releases ask for it
    result = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"], metric="error rate"))
    recipe = PAGE.read_text(encoding="utf-8").split("```py\n")[1].split("```")[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of MLflow's own
        mlflow.set_tracking_uri((tmp_path / "store").as_uri())
        exec(compile(recipe, "recipe", "exec"), {"found": result})
        (run,) = mlflow.search_runs(output_format="list")
        folder = Path(mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path="faultlines"))
    assert run.data.metrics == {"faultlines.pvalue": result.pvalue, "faultlines.n_clusters": 2.0}
    assert run.data.params == {"faultlines.metric": "error rate", "faultlines.alpha": "0.05"}
    assert run.data.tags["faultlines.fingerprint"] == result.fingerprint
    assert sorted(path.name for path in folder.iterdir()) == ["result.html", "result.json"]
    assert json.loads((folder / "result.json").read_text(encoding="utf-8"))["n_clusters"] == 2
    # The artifact is enough to look at the same clusters in later data.
    later = fl.Estimates([0.1, 0.0, 5.1], [0.5, 0.5, 0.5], ["DE", "FR", "IN"])
    assert fl.confirm(folder / "result.json", later).confirmed
