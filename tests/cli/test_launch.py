"""A launch through the command line: experiment, sample ratios, looks and confirmation, with planted truths."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from faultlines import simulate

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.running import Warm

ARMS = ("--variant", "arm", "--control", "A", "--unit", "user")
METRIC = ("--metric", "difference:converted")
UNTIL = "select * from 'sessions.parquet' where day <= {}"


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sessions of a launch."""
    folder = tmp_path_factory.mktemp("launch")
    pd.DataFrame(simulate.launch_rows()).to_parquet(folder / "sessions.parquet")
    return folder


def written(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def mismatches(notes: list[dict[str, Any]]) -> list[str]:
    return [note["code"] for note in notes if note["code"] == "sample ratio"]


def test_each_arm_is_read_where_its_effect_is_and_the_lost_users_are_said_once(warm: Warm, launch: Path) -> None:
    by = ("--by", "country,browser,type", "--treatment", "*", "--per-arm")
    done = warm("experiment", "sessions.parquet", *by, *METRIC, *ARMS, "--json", "arms.json", cwd=launch)
    assert done.returncode == 0, done.stderr
    data = written(launch, "arms.json")
    of_b, of_c = data["metrics"]
    assert of_b["attributes_needed"] == ["type"]
    assert all(member.endswith("new") for member in of_b["clusters"][-1]["members"])
    assert 0.06 < of_b["clusters"][-1]["estimate"] < 0.18  # 30% of two sessions at 20%
    assert of_c["clusters"][0]["members"] == ["DE · Safari · new", "DE · Safari · returning"]
    assert of_c["clusters"][0]["estimate"] == pytest.approx(-0.28, abs=0.1)  # 70% of them
    assert data["sample_ratio"]["where"] == {"country": "PL"}
    assert mismatches(data["notes"]) == ["sample ratio"]
    assert mismatches([*of_b["notes"], *of_c["notes"]]) == []
    assert done.stdout.splitlines()[0].startswith("Warning: ")


def test_sample_ratios_name_the_country_that_loses_users(warm: Warm, launch: Path) -> None:
    asked = ("--by", "country,browser", "--variant", "arm", "--unit", "user", "--shares", "A=50,B=30,C=20")
    done = warm("srm", "sessions.parquet", *asked, "--fail-on-mismatch", "--json", "srm.json", cwd=launch)
    assert done.returncode == 1
    data = written(launch, "srm.json")
    assert (data["verdict"], data["worst"]["where"], data["worst"]["arm"]) == ("mismatch", {"country": "PL"}, "B")
    assert sum(data["worst"]["arms_there"].values()) == data["worst"]["n"]
    first = data["clusterings"][1]["clusters"][0]
    assert {member.split(" · ")[0] for member in first["members"]} == {"PL"}


def test_looks_report_the_broken_checkout_before_the_launch_ends(warm: Warm, launch: Path) -> None:
    asked = ("--by", "country,browser", *METRIC, *ARMS, "--treatment", "C", "--looks", "5")
    seen = []
    for day in (3, 6, 9, 12, 14):
        done = warm("monitor", "state.json", "--sql", UNTIL.format(day), *asked, "--json", "look.json", cwd=launch)
        assert done.returncode == 0, done.stderr
        seen.append(written(launch, "look.json"))
        if seen[-1]["verdict"] != "continue":
            break
    assert [look["verdict"] for look in seen] == ["continue", "continue", "differ"]
    assert seen[-1]["clusters"][0] == [["DE", "Safari"]]


def test_looks_at_two_arms_with_few_users_count_everybody_once(warm: Warm, launch: Path) -> None:
    """On the first day nobody in some small treatment arm converts; two arms share the control of every group."""
    asked = ("--by", "country,browser,type", *METRIC, *ARMS, "--treatment", "*", "--looks", "5")
    done = warm("monitor", "two.json", "--sql", UNTIL.format(3), *asked, "--json", "two-look.json", cwd=launch)
    assert done.returncode == 0, done.stderr
    look = written(launch, "two-look.json")["looks"][-1]
    rows = [line.split()[:2] for line in done.stdout.splitlines() if line.startswith("overall")]
    assert rows == [["overall", "B"], ["overall", "C"]]  # a mean of two treatments is the effect of none
    assert look["overall"] is None
    sessions = pd.read_parquet(launch / "sessions.parquet")
    assert sum(look["arms"].values()) <= sessions[sessions.day <= 3].user.nunique()


def test_clusters_of_the_first_week_are_confirmed_in_the_second(warm: Warm, launch: Path) -> None:
    asked = ("--by", "country,type", *METRIC, *ARMS, "--treatment", "B")
    done = warm("experiment", "--sql", UNTIL.format(7), *asked, "--json", "week.json", cwd=launch)
    assert done.returncode == 0, done.stderr
    query = "select * from 'sessions.parquet' where day > 7"
    done = warm(
        "confirm", "week.json", "--sql", query, "--fail-unless-confirmed", "--json", "confirmed.json", cwd=launch
    )
    assert done.returncode == 0, done.stderr
    data = written(launch, "confirmed.json")
    assert data["verdict"] == "confirmed"
    assert data["pairs"][0]["difference"] == pytest.approx(0.12, abs=0.06)


def test_a_mismatch_is_said_once_before_looks_certificates_and_confirmations(warm: Warm, launch: Path) -> None:
    asked = ("--by", "country,type", *METRIC, *ARMS, "--treatment", "B")
    certified = ("--certify", "0.5", "--json", "certified.json", "--report", "certified.html")
    done = warm("experiment", "sessions.parquet", *asked, *certified, cwd=launch)
    data = written(launch, "certified.json")
    assert mismatches(data["notes"]) == ["sample ratio"] == [data["notes"][0]["code"]]
    assert mismatches(data["certificate"]["notes"]) == []
    sentence = data["notes"][0]["text"]
    assert done.stdout.count(sentence) == 1
    assert done.stdout.index(sentence) < done.stdout.index(data["headline"])
    assert (launch / "certified.html").read_text(encoding="utf-8").count(sentence) == 1
    out = ("--json", "said.json", "--report", "said.html")
    looked = warm("monitor", "said-state.json", "sessions.parquet", *asked, *out, cwd=launch)
    data = written(launch, "said.json")
    assert mismatches(data["notes"]) == ["sample ratio"] == [data["notes"][0]["code"]]
    assert looked.stdout.index(sentence) < looked.stdout.index(data["headline"])
    page = (launch / "said.html").read_text(encoding="utf-8")
    assert page.count(sentence) == looked.stdout.count(sentence) == 1
    assert page.index(sentence) < page.index("<h1>")


@pytest.mark.parametrize(
    "asked", [["--fail-on-split"], ["--certify", "0.5"], ["--fail-on", "harm", "--adverse", "low", "--certify", "0.5"]]
)
def test_no_gate_passes_beside_a_mismatch_unless_it_is_ignored(warm: Warm, launch: Path, asked: list[str]) -> None:
    rows = ("sessions.parquet", "--by", "country", *METRIC, *ARMS, "--treatment", "B")
    done = warm("experiment", *rows, *asked, "--json", "gate.json", cwd=launch)
    assert done.returncode == 3
    assert written(launch, "gate.json")["notes"][0]["text"] in done.stderr
    if "--certify" in asked:
        certificate = written(launch, "gate.json")["certificate"]
        assert (certificate["verdict"], certificate["mismatch"]) == ("inconclusive", True)
    assert warm("experiment", *rows, *asked, "--mismatch", "ignore", cwd=launch).returncode == 0


@pytest.mark.parametrize("gate", [["--fail-on-split"], ["--fail-on", "harm", "--adverse", "low"]])
@pytest.mark.parametrize(("how", "code"), [((), 3), (("--mismatch", "ignore"), 0)])
def test_looks_and_many_experiments_do_not_pass_beside_a_mismatch(
    warm: Warm, launch: Path, gate: list[str], how: tuple[str, ...], code: int
) -> None:
    asked = ("--by", "country", *METRIC, *ARMS, "--treatment", "B", *gate, *how)
    query = "select *, 'launch' as test from 'sessions.parquet'"
    if "--fail-on-split" in gate:
        assert warm("many", "--sql", query, "--experiment", "test", *asked, cwd=launch).returncode == code
    state = f"{gate[0]}-{code}.json".lstrip("-")
    assert warm("monitor", state, "sessions.parquet", *asked, cwd=launch).returncode == code


def test_harm_that_is_shown_fails_beside_a_mismatch(warm: Warm, launch: Path) -> None:
    query = "select * from 'sessions.parquet' where not (country = 'FR' and arm = 'C' and user % 2 = 0)"
    rows = ("--sql", query, "--by", "country,browser", *METRIC, *ARMS, "--treatment", "C")
    done = warm("experiment", *rows, "--fail-on", "harm", "--adverse", "low", cwd=launch)
    assert done.returncode == 1
    assert done.stdout.startswith("Warning: ")
