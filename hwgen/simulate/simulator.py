"""Common base class of the simulators, and look-up of a simulator by name."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from hwgen.errors import ToolError
from hwgen.simulate.job import Job
from hwgen.simulate.result import Raw
from hwgen.simulators import entry

__all__ = ["Simulator", "program", "simulator"]


class Simulator(ABC):
    """Simulator of accelerators. Its entry in `hwgen.simulators` lists its abilities."""

    def check_tools(self) -> None:
        """Refuse to begin without the simulator's programs.

        Raises
        ------
        ToolError
            If a program is missing.
        """
        return

    def prepare(self, waves: Path | None) -> None:
        """Compile the code that all designs share, if the simulator has such code.

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
        """Return emitted files, by name, in the form that the simulator reads."""
        return files

    def build(self, job: Job, files: Mapping[str, bytes], top: str) -> object:
        """Compile a design before it is simulated several times.

        Raises
        ------
        ToolError
            If compiling fails.
        """
        return None

    @abstractmethod
    def run(self, job: Job, files: Mapping[str, bytes], top: str) -> Raw:
        """Simulate a design, and return the raw result. `Job` describes the events of a cycle.

        Parameters
        ----------
        job : Job
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
    """Return the simulator of a name.

    Raises
    ------
    InputError
        If there is no such simulator.
    """
    return import_module(entry(name).module).SIMULATOR


def program(name: str, of: str, package: str) -> str:
    """Return the path of a program that a simulator needs.

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
