"""Marks of tests that run programs: without a program they are skipped, and say which one."""

from __future__ import annotations

import shutil

import pytest


def needs(*programs: str) -> pytest.MarkDecorator:
    """Return the mark of tests that run these programs."""
    missing = [program for program in programs if not shutil.which(program)]
    return pytest.mark.skipif(
        bool(missing), reason=f"{' and '.join(missing)} is missing: apt install {' '.join(programs)}"
    )


#: Verilator's models are compiled by g++.
needs_compiler = needs("g++", "make")
needs_icarus = needs("iverilog")
#: Built folders start Icarus by their Makefile.
needs_icarus_and_make = needs("iverilog", "make")
needs_abc = needs("berkeley-abc")
