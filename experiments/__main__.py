"""`make paper` and `make field`: studies in turn, then what the docs show of them. `--write` does only the latter."""

from __future__ import annotations

import argparse
import sys
import time

from experiments import (
    accuracy,
    asos,
    error,
    false_positives,
    halves,
    homogeneity,
    known,
    mitigation,
    mixture,
    onboarding,
    power,
    relabelled,
    runtime,
    settings,
)
from experiments.common import FIELD, HISTORY, MITIGATION, PAPER, Page, Run

# Run time first, while nothing else has warmed the machine.
OF_THE_PAPER = (runtime, power, error, false_positives, mixture, onboarding, accuracy, settings, homogeneity)
OF_PUBLIC_DATA = (known, relabelled, halves, asos, mitigation)
STUDIES = [module.STUDY for module in (*OF_THE_PAPER, *OF_PUBLIC_DATA)]
PAGES = [PAPER, HISTORY, MITIGATION, FIELD]


def texts(page: Page) -> dict[str, str]:
    """All that a page takes from the studies, from the numbers that are kept."""
    own = [study for study in STUDIES if study.page.folder == page.folder and study.is_kept]
    return {name: text for study in own for name, text in study.texts(study.kept()).items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    names = [study.name for study in STUDIES]
    which = "those of the paper by default; field: those of public data"
    parser.add_argument("studies", nargs="*", choices=[[], "field", *names], default=[], help=which)
    parser.add_argument("--quick", action="store_true", help="sketches of the studies; nothing kept is changed")
    parser.add_argument("--write", action="store_true", help="only draw and fill in what is kept in docs")
    parser.add_argument("--jobs", type=int, default=0, help="processes; one a core by default")
    arguments = parser.parse_args()
    started = time.monotonic()
    wanted = arguments.studies or [study.name for study in STUDIES if study.page == PAPER]
    if "field" in wanted:
        wanted = [*wanted, *(study.name for study in STUDIES if study.page != PAPER)]
    chosen = [study for study in STUDIES if study.name in wanted]
    for i, study in enumerate([] if arguments.write else chosen):
        print(f"[{i + 1}/{len(chosen)}] {study.name}, after {time.monotonic() - started:.0f} s", file=sys.stderr)
        if study.skipped():
            print(study.skipped(), file=sys.stderr)
        else:
            study.run(Run(arguments.quick, arguments.jobs))
    if arguments.quick:
        return
    for study in (study for study in STUDIES if study.is_kept):
        study.draw(study.kept())
    for page in PAGES:
        page.write(texts(page))
        print(f"{page.path.name} is up to date, after {time.monotonic() - started:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
