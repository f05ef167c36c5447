"""A real browser without a network, for the tests of the page."""

from __future__ import annotations

import itertools
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from tests.browsers import chromium

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from faultlines.results import Clustering


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Opened once for all files of this folder."""
    with chromium() as opened:
        yield opened


class Page:
    """A page opened from disk, offline, with all it complains about."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.context = browser.new_context(offline=True, **options)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())

    def slide(self, place: int) -> None:
        self.page.eval_on_selector(
            '[data-is="slider"]', f"e => {{ e.value = {place}; e.dispatchEvent(new Event('input')) }}"
        )

    def texts(self, selector: str) -> list[str]:
        return [words.strip() for words in self.page.locator(selector).all_inner_texts()]


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The page of a result, written once however many tests open it."""
    folder = tmp_path_factory.mktemp("pages")

    @cache
    def write(c: Clustering, also: tuple[Clustering, ...], adverse: Any) -> Path:
        path = folder / f"{next(numbers)}.html"
        c.report(path, also=list(also), adverse=adverse)
        return path

    numbers = itertools.count()
    return write


@pytest.fixture
def opened(browser: Any, written: Callable[..., Path]) -> Iterator[Any]:
    pages: list[Page] = []

    def opener(c: Clustering, also: tuple[Clustering, ...] = (), adverse: Any = None, **options: Any) -> Page:
        pages.append(Page(browser, written(c, also, adverse), **options))
        return pages[-1]

    yield opener
    for page in pages:
        assert page.complaints == []
        assert len(page.asked) == 1  # the page itself
        page.context.close()
