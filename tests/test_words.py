"""Words a user meets: none of those that the style guide replaces, in any string of the source."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import faultlines as fl
from tests.vocabulary import REPLACED

SOURCE = Path(fl.__file__).parent


def sentences(tree: ast.AST) -> list[tuple[int, str]]:
    """Strings with a space in them, docstrings too: names of fields and codes are not prose."""
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip()
    ]


def test_strings_of_the_source_are_in_the_words_of_the_style_guide() -> None:
    phrases = [
        f"{path.relative_to(SOURCE)}:{line}: {text.strip()[:100]}"
        for path in sorted(SOURCE.rglob("*.py"))
        for line, text in sentences(ast.parse(path.read_text(encoding="utf-8")))
        if REPLACED.search(re.sub(r"\bc\.claims\b", "", text))  # the name of a field in an example
    ]
    assert phrases == []


def test_the_last_note_is_what_to_do_next() -> None:
    labels = list("ABCDEFGH")
    differ = fl.cluster(fl.Estimates([0.0] * 4 + [5.0] * 4, [0.5] * 8, labels))
    equal = fl.cluster(fl.Estimates([0.0] * 8, [0.5] * 8, labels))
    single = fl.cluster(fl.Estimates([0.0], [0.5], ["A"]))
    steps = [result.notes[-1] for result in (differ, equal, single)]
    assert [step.code for step in steps] == ["next"] * 3
    assert [step.fields["call"].partition("(")[0] for step in steps] == ["fl.confirm", "fl.certify", "fl.cluster"]
    assert str(differ).endswith(steps[0].text)
    assert differ.to_dict()["notes"][-1]["code"] == "next"


def test_the_gap_of_an_inconclusive_certificate_passes() -> None:
    rates = fl.Estimates([0.10, 0.11, 0.12], [0.01, 0.01, 0.01], ["DE", "FR", "IN"], [900, 900, 900])
    first = fl.certify(rates, gap=0.02)
    assert first.verdict == "inconclusive"
    gap = float(re.findall(r"gap=([0-9.]+)", first.notes[-1].fields["call"])[0])
    assert fl.certify(rates, gap=gap).verdict == "passed"
