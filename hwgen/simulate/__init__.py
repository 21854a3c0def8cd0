"""Running an accelerator in Verilator, Icarus or Amaranth's own simulator: same beats, same cycles, same checks."""

from hwgen.simulate.groups import run_groups
from hwgen.simulate.job import LEAST_SHARE, Options
from hwgen.simulate.memory import Memory
from hwgen.simulate.result import Run
from hwgen.simulate.runner import run
from hwgen.simulators import SIMULATORS

__all__ = ["LEAST_SHARE", "SIMULATORS", "Memory", "Options", "Run", "run", "run_groups"]
