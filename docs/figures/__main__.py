"""`python -m docs.figures`: say which pages do not show what was measured; `--write` fills them in."""

from __future__ import annotations

import argparse

from docs.figures import ROOT, fill_page, pages


def main() -> None:
    """Fill in all pages, or say which are not as measured."""
    parser = argparse.ArgumentParser(prog="python -m docs.figures", description="Figures on pages, as measured.")
    parser.add_argument("--write", action="store_true", help="fill in the pages; without it, say which differ")
    write, stale = parser.parse_args().write, []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (filled := fill_page(text)) != text:
            stale.append(page)
            print(f"{page.relative_to(ROOT)} {'is filled in anew' if write else 'is not as measured'}")
            if write:
                page.write_text(filled, encoding="utf-8")
    if stale and not write:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
