"""Simulation of an accelerator in Verilator, Icarus or Amaranth's simulator: same beats, same cycles, same checks."""

from hwgen.simulate.job import MIN_SHARE_FRAMES, Options
from hwgen.simulate.memory import Memory
from hwgen.simulate.result import Run
from hwgen.simulate.runner import run, run_groups
from hwgen.simulators import SIMULATORS

__all__ = ["MIN_SHARE_FRAMES", "SIMULATORS", "Memory", "Options", "Run", "run", "run_groups"]
