"""Write docs/figures/published.md: the figures of the papers beside those that hwgen computes.

Usage: python bench/published.py [--check] [--quick]

--check writes nothing, and fails if the page is not up to date; with --quick it leaves out the last
section, which takes long.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from papers.page import page

PAGE = Path(__file__).resolve().parent.parent / "docs" / "figures" / "published.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is not up to date")
    parser.add_argument("--quick", action="store_true", help="with --check: leave out the last section")
    arguments = parser.parse_args()
    if arguments.quick and not arguments.check:
        parser.error("--quick is for --check")
    text = page(designed=not arguments.quick)
    if not arguments.check:
        PAGE.write_text(text, encoding="utf-8")
        return
    written = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if not (written.startswith(text) if arguments.quick else written == text):
        sys.exit(f"{PAGE} is not up to date: run python bench/published.py")


if __name__ == "__main__":
    main()
