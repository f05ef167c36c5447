"""`make paper`: every study in turn, then what docs/paper.md shows of them. `--write` does only the latter."""

from __future__ import annotations

import argparse
import sys
import time

from experiments import accuracy, error, false_positives, homogeneity, mixture, onboarding, power, runtime
from experiments.common import PAGE, Run, filled

# Run time first, while nothing else has warmed the machine.
STUDIES = [
    module.STUDY for module in (runtime, power, error, false_positives, mixture, onboarding, accuracy, homogeneity)
]


def texts() -> dict[str, str]:
    """All that the page takes from the studies, from the numbers that are kept."""
    return {name: text for study in STUDIES for name, text in study.texts(study.kept()).items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    names = [study.name for study in STUDIES]
    parser.add_argument("studies", nargs="*", choices=[[], *names], default=[], help="all by default")
    parser.add_argument("--quick", action="store_true", help="sketches of all studies; nothing kept is changed")
    parser.add_argument("--write", action="store_true", help="only draw and fill in what is kept in docs/paper")
    parser.add_argument("--jobs", type=int, default=0, help="processes; one a core by default")
    given = parser.parse_args()
    started = time.monotonic()
    chosen = [study for study in STUDIES if study.name in given.studies or not given.studies]
    for i, study in enumerate([] if given.write else chosen):
        print(f"[{i + 1}/{len(chosen)}] {study.name}, after {time.monotonic() - started:.0f} s", file=sys.stderr)
        study.run(Run(given.quick, given.jobs))
    if not given.quick:
        for study in STUDIES:
            study.draw(study.kept())
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), texts()), encoding="utf-8")
        print(f"{PAGE.name} is up to date, after {time.monotonic() - started:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
