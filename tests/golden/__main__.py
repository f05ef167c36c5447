"""`python -m tests.golden --write` writes the golden files; without it, the names of those that differ are printed."""

import sys

from tests.golden import FOLDER, normal, outputs, write

if "--write" in sys.argv:
    print(write(), "files written")
else:
    for name, text in outputs():
        path = FOLDER / name
        if not path.exists() or path.read_text(encoding="utf-8") != normal(text):
            print(name)
