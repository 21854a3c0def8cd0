"""Common base of the simulators, and the way from a simulator's name to the simulator."""

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
    """A simulator of accelerators. Its entry in `hwgen.simulators` says what it can do."""

    def check_tools(self) -> None:
        """Refuse to begin without the simulator's programs.

        Raises
        ------
        ToolError
            If a program is missing.
        """
        return

    def prepare(self, waves: Path | None) -> None:
        """Compile what all designs share, if there is such a thing; ``waves`` is the waveform file, if there is one.

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
        """Simulate a design; `Job` says what happens in a cycle.

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
        The simulator, for people.
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
