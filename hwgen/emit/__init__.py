"""Writers of a design's result folder: Verilog, memory files, a test bench with its Makefile, drivers and a report."""

from hwgen.emit import engine
from hwgen.emit.folder import build, build_groups, check_folder

__all__ = ["build", "build_groups", "check_folder", "engine"]
