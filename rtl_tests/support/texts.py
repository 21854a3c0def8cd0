"""Texts in other languages that tests compile, simulate or read, in rtl_tests/support/texts."""

from __future__ import annotations

import re
from pathlib import Path

TEXTS = Path(__file__).resolve().parent / "texts"


def read_text(name: str) -> str:
    """Return the text of a file; some have fields in braces, for ``str.format``."""
    return (TEXTS / name).read_text(encoding="utf-8")


def files_in(name: str) -> dict[str, str]:
    """Return the texts of small files by path, of a text in which each begins behind a line ``-- PATH --``."""
    parts = re.split(r"^-- (.*) --\n", read_text(name), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
