"""The documentation site: built strictly, whole, offline; its links lead somewhere; it opens, searches, turns dark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest

import faultlines as fl
from docs import hooks
from faultlines import results
from tests.browsers import chromium
from tests.test_json import schema

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
STANDARD = r"https?://www\.w3\.org/(?:2000/svg|1999/xlink|1999/xhtml)"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site that `make docs` has just built (FAULTLINES_SITE), or one built here; strictly in either case."""
    if built := os.environ.get("FAULTLINES_SITE"):
        assert (ROOT / built / "index.html").exists()
        return (ROOT / built).resolve()
    if find_spec("mkdocs") is None or find_spec("mkdocstrings") is None:
        if os.environ.get("CI"):
            pytest.fail("CI needs mkdocs for the site: the extra docs")
        pytest.skip("no mkdocs on this machine; pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    surroundings = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Addresses(HTMLParser):
    """What a page refers to, and the places in it that can be referred to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.places: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in {"href", "src", "srcset", "action", "data"} and value is not None:
                self.asked.append(value)
            if name in {"id", "name"} and value:
                self.places.add(value)


@pytest.fixture(scope="module")
def addresses(site: Path) -> dict[Path, Addresses]:
    return {page: Addresses(page) for page in sorted(site.rglob("*.html"))}


# ------------------------------------------------------------------------------------------------------- as files


def test_every_link_and_anchor_leads_somewhere(addresses: dict[Path, Addresses]) -> None:
    for page, page_addresses in addresses.items():
        if page.name == "404.html":  # its links are those of the root, wherever it is shown
            continue
        for asked in page_addresses.asked:
            parts = urlsplit(asked)
            if parts.scheme == "data":
                continue
            assert (parts.scheme, parts.netloc) == ("", ""), (page, asked)
            there = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            there = there / "index.html" if there.is_dir() else there
            assert there.exists(), (page, asked)
            if parts.fragment and there in addresses and not parts.fragment.startswith("__"):
                assert unquote(parts.fragment) in addresses[there].places, (page, asked)


def test_no_page_names_another_server(site: Path) -> None:
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        text = path.read_text(encoding="utf-8")
        outside = [url for url in re.findall(r"https?://[^\s\"')<]+", text) if not re.match(STANDARD, url)]
        assert [url for url in outside if "url(" + url in text or f'"{url}' in text] == [], path
        assert path.suffix == ".css" or outside == [], path


def test_every_written_page_is_in_the_site(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS).with_suffix(".html")).exists(), page


def test_every_name_command_exit_code_and_key_has_its_entry(site: Path, addresses: dict[Path, Addresses]) -> None:
    places = {
        place
        for page, page_addresses in addresses.items()
        if page.parent.name == "reference"
        for place in page_addresses.places
    }
    names = {*fl.__all__, *(f"results.{name}" for name in results.__all__)} - {"__version__"}
    assert {name for name in names if hooks.address(name) not in places} == set()
    assert {f"faultlines-{name}" for name in hooks.commands()} <= places
    page = (site / "reference" / "exit-codes.html").read_text(encoding="utf-8")
    assert {int(code) for code in re.findall(r"<td>(\d+)</td>", page)} == set(hooks.exit_codes().values())
    keys = (site / "reference" / "json.html").read_text(encoding="utf-8")
    assert {
        key for kind in hooks.KINDS for key in schema(kind)["properties"] if f"<code>{key}</code>" not in keys
    } == set()


def test_generated_pages_need_no_mkdocs() -> None:
    pages = hooks.pages()
    assert all(title and text.startswith("# ") for title, text in pages.values())
    assert "--fail-on-split" in pages["reference/command-line.md"][1]
    with pytest.raises(LookupError, match="has 0 tables, number 1 is asked for"):
        hooks.with_tables("<!-- include: method.md#numbers 1 -->", "howto/x.md")


def test_pages_that_the_contents_do_not_name_are_found_by_themselves() -> None:
    nav: list[dict[str, Any]] = [{"Start": ["index.md"]}, {"How-to": [{"From rows": "rows.md"}]}]
    navigation = hooks.on_config(SimpleNamespace(nav=nav)).nav
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert set(navigation[1]["How-to"][1:]) == written - {"index.md", "rows.md"}
    assert list(navigation[2]) == ["Reference"]
    assert {file for entry in navigation[2]["Reference"] for file in entry.values()} == set(hooks.pages())


def test_names_lead_to_the_reference_and_indices_are_small() -> None:
    html = "<p><code>fl.cluster(data)</code> and <code>fl.cluster</code>, <code>fl.nothing</code></p>"
    link = '<a href="../reference/analyses.html#faultlines.analyses.cluster.cluster">'
    first = "<code>fl.cluster(data)</code>"
    assert hooks.linked(html, "howto/x.md") == html.replace(first, f"{link}{first}</a>")
    text = '<p id="a_b">θ_i, se_i², R_{K−1} and x̄_k; <code>w_i</code> and ratio_difference</p>'
    small = "θ<sub>i</sub>, se<sub>i</sub>², R<sub>K−1</sub> and x̄<sub>k</sub>;"
    assert hooks.subscripted(text) == f'<p id="a_b">{small} <code>w_i</code> and ratio_difference</p>'


# ---------------------------------------------------------------------------------------------------- in a browser


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Requests are not worth a line."""


@pytest.fixture(scope="module", params=["from disk", "from a server"])
def address(request: pytest.FixtureRequest, site: Path) -> Iterator[str]:
    """Where the site is: its files, or a server of this machine, for a browser treats the two differently."""
    if request.param == "from disk":
        yield site.as_uri() + "/"
        return
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http:{'//'}127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def page(browser: Any, site: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A page that must neither complain nor ask anybody else."""
    address = request.getfixturevalue("address") if "address" in request.fixturenames else site.as_uri()
    context = browser.new_context(color_scheme="light")
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    own = (address, "about:", "data:", "blob:")
    opened.on("request", lambda asked: None if asked.url.startswith(own) else complaints.append(asked.url))
    yield opened
    context.close()
    assert complaints == []


def test_the_home_page_opens_and_turns_dark_and_back(page: Any, site: Path) -> None:
    page.goto((site / "index.html").as_uri())
    assert page.locator("h1").inner_text().startswith("faultlines")
    assert page.locator(".md-tabs__link").all_inner_texts()[-1].strip() == "Reference"

    def ground() -> list[int]:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return [int(part) for part in re.findall(r"\d+", colour)[:3]]

    def pictures() -> list[str]:
        shown = [image for image in page.locator("article img").all() if image.is_visible()]
        return [str(image.get_attribute("src")) for image in shown]

    assert min(ground()) > 200
    assert pictures() == ["pictures/demo.svg"]
    page.locator("label[title='Switch to dark']").click()
    page.wait_for_function("document.body.dataset.mdColorScheme == 'slate'")
    assert max(ground()) < 90
    assert pictures() == ["pictures/demo-dark.svg"]
    page.locator("label[title='Switch to light']").click()
    page.wait_for_function("document.body.dataset.mdColorScheme == 'default'")
    assert min(ground()) > 200


def test_the_search_finds_certificates(page: Any, address: str) -> None:
    page.goto(address + "howto/extend.html")
    page.locator("input[name=query]").click()
    page.locator("input[name=query]").type("certificate")
    page.wait_for_selector(".md-search-result__item a", timeout=15_000)
    titles = page.locator(".md-search-result__item a").all_inner_texts()
    assert any("certif" in text.lower() for text in titles)
    page.locator(".md-search-result__item a").first.click()
    page.wait_for_url("**/*.html?h=*")
    assert "certif" in page.locator("article").inner_text().lower()


WIDTH = "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)"
# The article of another page in the place of this one's: the same layout, without opening sixty pages.
EXCHANGED = f"""text => {{
  const other = new DOMParser().parseFromString(text, 'text/html').querySelector('article');
  document.querySelector('article').innerHTML = other.innerHTML;
  return {WIDTH};
}}"""


def test_nothing_is_wider_than_a_phone(page: Any, site: Path) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    for name in ("guarantees.html", "index.html"):
        page.goto((site / name).as_uri())
        assert page.evaluate(WIDTH) == 390
    pages = [path for path in site.rglob("*.html") if path.name != "404.html"]
    texts = {path: re.sub(r"<img[^>]*>", "", path.read_text(encoding="utf-8")) for path in pages}
    wide = {path.name: page.evaluate(EXCHANGED, text) for path, text in texts.items()}
    assert {name: width for name, width in wide.items() if width > 390} == {}
    assert len(pages) > 40
    beyond = "<article><div style='width:700px'>too wide</div></article>"
    assert page.evaluate(EXCHANGED, beyond) > 390  # the test can see it
