"""What every study shares: how it is run, where its numbers go, and how its tables and figures look."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import altair as alt
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

ROOT = Path(__file__).parent.parent

Numbers = dict[str, Any]
_Task = TypeVar("_Task")
_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the docs that is filled from the numbers of studies."""

    name: str
    folder: str  # where in docs those numbers are

    @property
    def path(self) -> Path:
        return ROOT / "docs" / f"{self.name}.md"

    @property
    def kept(self) -> Path:
        """Figures and numbers of full runs, in the repository."""
        return ROOT / "docs" / self.folder

    @property
    def tried(self) -> Path:
        """Those of quick runs, which are not kept."""
        return Path(os.environ.get("FAULTLINES_TRIED") or ROOT / "build") / self.folder

    def write(self, texts: Mapping[str, str]) -> None:
        """Fill in the page anew."""
        self.path.write_text(filled(self.path.read_text(encoding="utf-8"), texts), encoding="utf-8")


PAPER, MITIGATION, FIELD = Page("paper", "paper"), Page("mitigation", "field"), Page("field", "field")
HISTORY = Page("history", "paper")  # has no study of its own


def data_file(name: str) -> Path | None:
    """A file of public data in the folder that the variable FAULTLINES_DATA names; None where it is not there."""
    path = Path(os.environ.get("FAULTLINES_DATA", "")) / name
    return path if os.environ.get("FAULTLINES_DATA") and path.is_file() else None


@dataclass(frozen=True, slots=True)
class Run:
    """How much to compute: everything, or a sketch of it in less than a minute."""

    quick: bool = False
    jobs: int = 0  # processes; 0 for one a core. Results do not depend on it.

    def either(self, full: _Made, quick: _Made) -> _Made:
        """The one that goes with this run."""
        return quick if self.quick else full

    def each(self, what: str, work: Callable[[_Task], _Made], tasks: Sequence[_Task]) -> list[_Made]:
        """Work on all tasks, in several processes, with signs of life on stderr; results in the order of the tasks."""
        from joblib import Parallel, delayed

        pool = Parallel(n_jobs=self.jobs or -1, return_as="generator", batch_size=1)
        results: list[_Made] = []
        for result in pool(delayed(work)(task) for task in tasks):
            results.append(result)
            show_progress(what, len(results), len(tasks))
        return results


@dataclass(frozen=True, slots=True)
class Study:
    """One study: numbers first, then tables, sentences and a figure that are made of nothing but those numbers."""

    name: str
    measure: Callable[[Run], Numbers]
    tables: Callable[[Numbers], dict[str, str]]
    facts: Callable[[Numbers], dict[str, str]]
    figure: Callable[[Numbers], Any]
    page: Page = PAPER
    needs: tuple[str, ...] = ()  # files of data that are not ours to pass on, and packages that bring some

    def skipped(self) -> str | None:
        """Why it cannot be run here, if it cannot."""
        for name in self.needs:
            if "." not in name and find_spec(name) is None:
                return f"{self.name} is skipped: the package {name} is not installed"
            if "." in name and data_file(name) is None:
                return f"{self.name} is skipped: {name} is not in the folder that FAULTLINES_DATA names"
        return None

    def run(self, run: Run) -> Numbers:
        """Measure, and write numbers and figure to where they belong."""
        numbers: Numbers = rounded(self.measure(run))
        folder = self.page.tried if run.quick else self.page.kept
        folder.mkdir(parents=True, exist_ok=True)
        shown = json.dumps(numbers, indent=1, ensure_ascii=False, allow_nan=False)
        # One line for each innermost list or object: short enough to read, and small changes make small diffs.
        shown = re.sub(r"[\[{][^][{}]*[]}]", lambda inner: re.sub(r"\s*\n\s*", " ", inner[0]), shown)
        (folder / f"{self.name}.json").write_text(shown + "\n", encoding="utf-8")
        self.draw(numbers, folder)
        return numbers

    def draw(self, numbers: Numbers, folder: Path | None = None) -> None:
        """The figure, from the numbers alone."""
        styled(self.figure(numbers)).save(str((folder or self.page.kept) / f"{self.name}.svg"))

    @property
    def is_kept(self) -> bool:
        """Whether there are numbers of a full run."""
        return (self.page.kept / f"{self.name}.json").is_file()

    def kept(self) -> Numbers:
        """The numbers of the last full run."""
        numbers: Numbers = json.loads((self.page.kept / f"{self.name}.json").read_text(encoding="utf-8"))
        return numbers

    def texts(self, numbers: Numbers) -> dict[str, str]:
        """Everything that the page takes from this study, by the name of its marker."""
        tables = {f"table: {self.name}{key}": f"\n{table}\n" for key, table in self.tables(numbers).items()}
        return tables | {f"fact: {self.name}.{key}": fact for key, fact in self.facts(numbers).items()}

    def main(self) -> None:
        """The command line of one script."""
        parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
        parser.add_argument("--quick", action="store_true", help="a sketch in under a minute; nothing kept is changed")
        parser.add_argument("--jobs", type=int, default=0, help="processes; one a core by default")
        arguments = parser.parse_args()
        if self.skipped():
            print(self.skipped(), file=sys.stderr)
            return
        numbers = self.run(Run(arguments.quick, arguments.jobs))
        for name, text in self.texts(numbers).items():
            print(f"{name}\n{text}" if name.startswith("table") else f"{name}: {text}")


def show_progress(what: str, done: int, total: int) -> None:
    """One line that moves on a terminal, a line every tenth of the way elsewhere."""
    end = "\n" if done == total else "\r"
    if sys.stderr.isatty():
        print(f"{what}: {done} of {total}  ", end=end, file=sys.stderr, flush=True)
    elif done * 10 // total > (done - 1) * 10 // total:
        print(f"{what}: {done} of {total}", file=sys.stderr, flush=True)


def filled(page: str, texts: Mapping[str, str]) -> str:
    """The page with what stands between `<!-- table: … -->` or `<!-- fact: … -->` and `<!-- end -->` made anew."""

    def anew(marker: re.Match[str]) -> str:
        if marker[1] not in texts:
            raise KeyError(f"a page asks for {marker[1]!r}, which no study of it makes")
        return f"<!-- {marker[1]} -->{texts[marker[1]]}<!-- end -->"

    return re.sub(r"<!-- ((?:table|fact): [^>]+?) -->(.*?)<!-- end -->", anew, page, flags=re.DOTALL)


def rounded(value: Any) -> Any:
    """Plain data with six digits, so that numbers are the same wherever they are computed; no number is None."""
    if isinstance(value, dict):
        return {str(key): rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [rounded(inner) for inner in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, its first column to the left and all others to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def share(value: float | None, digits: int = 2) -> str:
    """A share as it is shown in tables; a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def of_runs(runs: int, what: str = "data sets") -> str:
    """How many runs a share rests on, and the largest standard error that it can have."""
    return f"{runs:,} {what}, ± {0.5 / runs**0.5:.3f} at most"


def times(ratio: float) -> str:
    """A ratio with two digits: 0.5 ×, 15 ×, 3,500 ×."""
    digits = 1 - math.floor(math.log10(ratio))
    return f"{round(ratio, digits):,.{max(digits, 0)}f} ×"


# Okabe and Ito's colours, which everyone can tell apart, for the methods that appear in several figures.
COLOURS = {
    "calibrated": "#0072B2",
    "top merge": "#7B3F00",
    "holdout": "#56B4E9",
    "literal": "#D55E00",
    "mixture, BIC": "#009E73",
    "mixture, AIC": "#CC79A7",
    "causal tree, one-hot": "#E69F00",
}
CLUSTER_COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9"]
GREY, INK = "#8A8A8A", "#333333"


def chart(rows: Iterable[Mapping[str, Any]], title: str | list[str] = "") -> Any:
    """A chart of plain rows; a title may have several lines."""
    return alt.Chart(alt.Data(values=[dict(row) for row in rows]), title=title)  # type: ignore[no-untyped-call]


def by_method(methods: Sequence[str], others: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Colour and dashes of each method's line; `others` has colours of methods that appear in one figure only.

    Mixtures and the top merge are dashed, for their lines often lie on ours; so is a mere variant of another method.
    """
    colours = COLOURS | dict(others or {})
    on_ours = ("mixture", "top merge")
    dashes = [[5, 4] if method.startswith(on_ours) or method.count(",") > 1 else [1, 0] for method in methods]
    legend = alt.Legend(title=None, symbolType="stroke", symbolSize=300)
    return {
        "color": alt.Color(
            "method:N",
            scale=alt.Scale(domain=list(methods), range=[colours[method] for method in methods]),
            legend=legend,
        ),
        "strokeDash": alt.StrokeDash("method:N", scale=alt.Scale(domain=list(methods), range=dashes), legend=legend),
    }


def share_axis(field: str, title: str) -> alt.Y:
    """A vertical axis from 0 to 1, with room for lines that run along its ends."""
    return alt.Y(f"{field}:Q", title=title, scale=alt.Scale(domain=[-0.02, 1.02], nice=False))


def logarithmic(field: str, title: str, ticks: Sequence[float]) -> dict[str, Any]:
    """A log axis from the first tick to the last, with lines at the ticks alone."""
    return {
        "shorthand": f"{field}:Q",
        "title": title,
        "scale": alt.Scale(type="log", domain=[ticks[0], ticks[-1]], nice=False),
        "axis": alt.Axis(values=list(ticks), format="~r"),
    }


def forest_plot(rows: Sequence[Mapping[str, Any]], title: str, axis: str, *, height: int) -> Any:
    """Groups by rising estimate with their 95% intervals, each in the colour of its cluster."""
    order = [row["group"] for row in sorted(rows, key=lambda row: row["estimate"])]
    base = chart(rows).encode(
        y=alt.Y("group:N", sort=order, title=None, axis=alt.Axis(labelFontSize=9, ticks=False, domain=False)),
        color=alt.Color(
            "cluster:O",
            scale=alt.Scale(domain=list(range(1, len(CLUSTER_COLOURS) + 1)), range=CLUSTER_COLOURS),
            legend=None,
        ),
    )
    interval = base.mark_rule(strokeWidth=1.5).encode(
        x=alt.X("low:Q", title=axis, axis=alt.Axis(tickCount=5)), x2="high:Q"
    )
    point = base.mark_point(filled=True, size=45, opacity=1).encode(
        x="estimate:Q", shape=alt.Shape("cluster:O", legend=None)
    )
    zero = chart([{"zero": 0}]).mark_rule(color=GREY, strokeDash=[2, 3]).encode(x="zero:Q")
    return alt.layer(zero, interval, point).properties(title=title, width=300, height=height)


def styled(figure: Any) -> Any:
    """The look of all figures: light, large enough to read on a page."""
    return (
        figure.configure(font="sans-serif", background="white", padding=10)
        .configure_view(stroke=None)
        .configure_axis(
            gridColor="#E8E8E8",
            domainColor=GREY,
            tickColor=GREY,
            labelColor=INK,
            titleColor=INK,
            titleFontWeight="normal",
            labelFontSize=11,
            titleFontSize=12,
        )
        .configure_legend(labelFontSize=12, labelColor=INK, symbolStrokeWidth=3, labelLimit=300)
        .configure_title(fontSize=13, color=INK, fontWeight="normal", anchor="start")
        .configure_line(strokeWidth=2)
    )
