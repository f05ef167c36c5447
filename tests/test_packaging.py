"""What surrounds the package: workflows, hooks and citation say what pyproject.toml and the Makefile say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs(name: str) -> dict[str, Any]:
    jobs_of_file: dict[str, Any] = read(ROOT / ".github" / "workflows" / f"{name}.yml")["jobs"]
    return jobs_of_file


def steps(workflow: Any) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_names_its_actions_with_versions_and_its_rights(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}, "only the job that publishes may do more"
    for step in steps(workflow):
        assert ("uses" in step) != ("run" in step), step
        assert re.fullmatch(r"[\w.-]+(/[\w.-]+)+@[\w./-]+|docker://[\w./-]+:[\w.-]+", step.get("uses", "a/b@v1")), step


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_targets_that_there_are(path: Path) -> None:
    commands = " ".join(step.get("run", "") for step in steps(read(path)))
    named = {target for words in re.findall(r"\bmake ((?:[a-z]+ ?)+)", commands) for target in words.split()}
    assert named <= TARGETS


def test_every_python_that_is_promised_is_tested() -> None:
    tested = [tuple(map(int, version.split("."))) for version in jobs("ci")["test"]["strategy"]["matrix"]["python"]]
    oldest = tuple(map(int, re.findall(r"\d+", PROJECT["project"]["requires-python"])))
    assert tested == [(3, minor) for minor in range(oldest[1], tested[-1][1] + 1)]
    named = [words for words in PROJECT["project"]["classifiers"] if "Python :: 3." in words]
    assert named == [f"Programming Language :: Python :: 3.{minor}" for _, minor in tested]
    built = PROJECT["tool"]["cibuildwheel"]["build"]
    assert built == [f"cp3{tested[0][1]}-*", f"cp3{tested[-1][1]}-*"], "wheels are tried on the oldest and the newest"
    assert f"0x030{oldest[1]:X}0000" in (ROOT / "setup.py").read_text(encoding="utf-8")


def test_only_the_job_that_publishes_may_identify_itself() -> None:
    publish = jobs("release")["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert set(publish["needs"]) == jobs("release").keys() - {"publish"}
    assert publish["if"] == "github.ref_type == 'tag'"
    assert not any("permissions" in job for name, job in jobs("release").items() if name != "publish")


def test_hooks_call_the_tools_of_make() -> None:
    (local,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local", "other repositories would bring versions of their own"
    called = {hook["entry"].split()[0] for hook in local["hooks"]}
    assert called == {".venv/bin/ruff", ".venv/bin/mypy"}


def test_the_citation_is_of_this_version_and_names_the_paper() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert citation["version"] == PROJECT["project"]["version"]
    assert citation["license"] == PROJECT["project"]["license"]
    (paper,) = citation["references"]
    assert paper["title"] == "Interpretable Assessment of Fairness During Model Evaluation"
    assert [author["family-names"] for author in paper["authors"]] == ["Sepehri", "DiCiccio"]


def test_what_is_said_to_be_installed_can_be_installed() -> None:
    """From a clone, which always works; and every extra that is named is there."""
    paths = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    words = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    assert "faultlines[" not in words, "say it with errors.to_install"
    extras = {extra for group in re.findall(r"\.\[([a-z,-]+)\]", words) for extra in group.split(",")}
    extras |= set(re.findall(r"to_install\(['\"](\w+)", words))
    assert {"report", "frames", "spark"} <= extras <= PROJECT["project"]["optional-dependencies"].keys()
