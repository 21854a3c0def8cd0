"""Common base class of the simulators, and look-up of a simulator by name."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from hwgen.errors import ToolError
from hwgen.simulate.job import SimulationJob
from hwgen.simulate.result import Raw
from hwgen.simulators import entry


class Simulator(ABC):
    """Base class of the simulators of accelerators, whose abilities `hwgen.simulators` lists."""

    def check_tools(self) -> None:
        """Refuse to begin if one of the simulator's programs is missing; by default none is needed.

        Raises
        ------
        ToolError
            If a program is missing.
        """
        return

    def prepare(self, waves: Path | None) -> None:
        """Compile the code that simulations of all designs share, if the simulator has such code.

        Parameters
        ----------
        waves : Path or None
            Path of the waveform file, if there is one.

        Raises
        ------
        ToolError
            If compiling fails.
        """
        return

    def sources(self, files: Mapping[str, bytes], top: str) -> Mapping[str, bytes]:
        """Convert emitted files, given by name, to the form that the simulator reads; by default change nothing."""
        return files

    def build(self, job: SimulationJob, files: Mapping[str, bytes], top: str) -> object:
        """Compile a design before it is simulated several times; by default do nothing.

        Raises
        ------
        ToolError
            If compiling fails.
        """
        return None

    @abstractmethod
    def run(self, job: SimulationJob, files: Mapping[str, bytes], top: str) -> Raw:
        """Simulate a design with a job's frames and options, and return the unchecked result.

        `SimulationJob` describes the events of a cycle.

        Parameters
        ----------
        job : SimulationJob
            Frames and options of the run.
        files : mapping of str to bytes
            Verilog and memory files from `sources`; empty if the simulator does not read Verilog.
        top : str
            Name of the top module.

        Raises
        ------
        ToolError
            If a program is missing or fails.
        """


def simulator(name: str) -> Simulator:
    """Return the `Simulator` that is registered under ``name``; its module is imported.

    Raises
    ------
    InputError
        If there is no such simulator.
    """
    return import_module(entry(name).module).SIMULATOR


def program(name: str, of: str, package: str) -> str:
    """Find a program that a simulator needs, and return its path; raise ToolError if the program is missing.

    Parameters
    ----------
    name : str
        Name of the program.
    of : str
        Name of the simulator, for the message.
    package : str
        Debian package that has the program.

    Raises
    ------
    ToolError
        If the program is missing.
    """
    path = shutil.which(name)
    if path is None:
        raise ToolError(f"{name} is needed to simulate with {of}, and was not found: apt install {package}")
    return path
