"""Write docs/published.md: the figures of the papers beside those that hwgen computes.

Usage: python bench/published.py [--check]     (--check writes nothing, and fails if the page is not up to date)
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hwgen.plan import published

PAGE = Path(__file__).resolve().parent.parent / "docs" / "published.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is not up to date")
    arguments = parser.parse_args()
    text = published.page()
    if not arguments.check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        sys.exit(f"{PAGE} is not up to date: run python bench/published.py")


if __name__ == "__main__":
    main()
