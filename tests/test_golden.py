"""Rendered outputs against their golden files; `python -m tests.golden --write` writes these anew."""

from __future__ import annotations

from tests.golden import FOLDER, normal, outputs


def test_every_rendered_output_is_as_its_golden_file() -> None:
    texts = {name: normal(text) for name, text in outputs()}
    files = {
        path.name: path.read_text(encoding="utf-8")
        for path in FOLDER.iterdir()
        if path.suffix in {".txt", ".md", ".keys"}
    }
    assert sorted(texts) == sorted(files)
    assert {name: text for name, text in texts.items() if text != files[name]} == {}
