"""The block of a model card: Markdown that stays in its place, whatever the groups are called."""

from __future__ import annotations

import re
from typing import Any

import pytest
from markdown_it import MarkdownIt

import faultlines as fl
from faultlines import simulate
from tests.refused import refused

FOUND = fl.cluster(
    fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "F|R\n---\n# x", "<b>IN"], n=100, metric="error rate")
)
FRONT = "---\nlicense: apache-2.0\ntags:\n- tabular\n---\n\n# A model\n\n"


def tokens(words: str) -> list[Any]:
    return MarkdownIt().enable("table").parse(words)


def test_a_heading_two_tables_and_nothing_that_the_groups_could_add() -> None:
    card = fl.model_card(FOUND, data="validation rows of May")
    parsed = tokens(card)
    assert [token.tag for token in parsed if token.type == "heading_open"] == ["h2"]
    assert sum(token.type == "table_open" for token in parsed) == 2
    assert not any(token.type in {"html_block", "hr"} for token in parsed)
    assert "validation rows of May" in card
    assert FOUND.fingerprint in card
    assert card.endswith(f"Computed with faultlines {fl.__version__}.\n")


def test_several_results_and_many() -> None:
    other = fl.cluster(simulate.null(6, seed=1).estimates)
    both = fl.holm([FOUND, other], 0.05)
    assert re.findall("^### (.+)$", fl.model_card(both), flags=re.M) == ["error rate", "effect"]
    data: Any = {f"metric {i}": simulate.planted([0, 9], [4, 4], seed=i).estimates for i in range(23)}
    data["alike"] = simulate.null(5).estimates
    card = fl.model_card(fl.cluster_many(data, guarantee=fl.Calibrated(draws=100)), title="Who is served worse")
    assert card.startswith("## Who is served worse\n\n")
    assert len(re.findall("^### metric", card, flags=re.M)) == 20
    quiet = fl.cluster_many({"alike": simulate.null(5).estimates})
    assert quiet.headline in fl.model_card(quiet)


def test_it_parses_as_a_card_of_hugging_face() -> None:
    hub = pytest.importorskip("huggingface_hub")
    card = hub.ModelCard(FRONT + fl.model_card(FOUND))
    assert card.data.license == "apache-2.0"
    assert card.data.tags == ["tabular"]
    assert card.text.count("## Differences between groups") == 1
    again = hub.ModelCard(str(card))
    assert again.text.strip() == card.text.strip()


@pytest.mark.parametrize("value", [5, None, [], [FOUND, 5], "found"])
def test_what_is_no_result(value: Any) -> None:
    with refused("wrong type: results"):
        fl.model_card(value)


@pytest.mark.parametrize("parameter", ["title", "data"])
def test_words_must_be_text(parameter: str) -> None:
    with refused(f"wrong type: {parameter}"):
        fl.model_card(FOUND, **{parameter: 5})  # type: ignore[arg-type]
