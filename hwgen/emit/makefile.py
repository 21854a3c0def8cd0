"""Makefiles that run the test benches and check the Verilog."""

from __future__ import annotations

from collections.abc import Sequence

from hwgen.emit import testbench, wrapper
from hwgen.emit.rendering import render

__all__ = ["of_bench", "of_groups", "of_lint"]


def of_bench(top: str) -> str:
    """Return targets ``icarus``, ``verilator``, ``lint``, ``clean``; a simulator's fails when the test bench does."""
    return render("bench.mk", top=top, module=testbench.module(top), wrapper=wrapper.module(top))


def of_lint(top: str) -> str:
    """Return the target ``lint`` alone, for Verilog that has no test bench, and its wrapper."""
    return render("lint.mk", top=top, wrapper=wrapper.module(top))


def of_groups(tops: Sequence[str]) -> str:
    """Return the targets for several accelerators, each in a folder of its name."""
    return render("groups.mk", groups=tops)
