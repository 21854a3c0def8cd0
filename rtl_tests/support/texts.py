"""Texts in other languages that tests compile, simulate or read, in rtl_tests/support/texts."""

from __future__ import annotations

from pathlib import Path

TEXTS = Path(__file__).resolve().parent / "texts"


def read_text(name: str) -> str:
    """Return the text of a file; some have fields in braces, for ``str.format``."""
    return (TEXTS / name).read_text(encoding="utf-8")
