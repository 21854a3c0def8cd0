"""Makefiles of result folders, which run the test benches and lint the Verilog."""

from __future__ import annotations

from collections.abc import Sequence

from hwgen.emit import wrapper
from hwgen.rendering import render
from hwgen.simulate import testbench

__all__ = ["of_bench", "of_groups", "of_lint"]


def of_bench(top: str) -> str:
    """Return the Makefile of an accelerator's folder, with targets ``icarus``, ``verilator``, ``lint`` and ``clean``.

    The targets ``icarus`` and ``verilator`` run the test bench, and fail if the test bench fails.
    """
    return render("hwgen.emit", "bench.mk", top=top, module=testbench.module(top), wrapper=wrapper.module(top))


def of_lint(top: str) -> str:
    """Return the Makefile of a folder without a test bench: its only target ``lint`` lints a module and its wrapper."""
    return render("hwgen.emit", "lint.mk", top=top, wrapper=wrapper.module(top))


def of_groups(tops: Sequence[str]) -> str:
    """Return a Makefile that runs each of its targets in the folders of several accelerators."""
    return render("hwgen.emit", "groups.mk", groups=tops)
