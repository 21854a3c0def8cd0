"""Files around a circuit: its bus wrapper, the software that drives it, and the scripts by which Vivado takes it in."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from hwgen.boards import Board
from hwgen.devices import DEFAULT
from hwgen.emit import c_driver, ip_xact, package, project, wrapper
from hwgen.emit.rendering import render
from hwgen.gateware.bus.base import BusShellConfig
from hwgen.gateware.bus.shell import ShellConfig
from hwgen.verilog import convert

__all__ = ["AcceleratorPackage", "Package"]


@dataclass(frozen=True, kw_only=True)
class Package(ABC):
    """Bus wrapper of a circuit, with all that depends on its registers and buses.

    Parameters
    ----------
    shell : BusShellConfig
        Shell of the bus wrapper.
    top : str
        The module of the circuit in it.
    """

    shell: BusShellConfig
    top: str

    @property
    @abstractmethod
    def buses(self) -> list[str]:
        """Lines at the head of the wrapper's Verilog: its buses."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the contents of ``registers.json``."""

    @abstractmethod
    def c_driver(self) -> dict[str, bytes]:
        """Return the driver in C: its source and its header by their names."""

    @property
    def module(self) -> str:
        """Name of the wrapper's module."""
        return wrapper.module(self.top)

    def files(self) -> dict[str, bytes]:
        """Return ``TOP_axi.v``, ``registers.json``, ``TOP_registers.h``, ``TOP_registers.py`` and the drivers.

        Raises
        ------
        ToolError
            If Verilog can't be written of one of the wrapper's operators.
        """
        top = self.top
        warning = f"Do not edit: it is written anew with {top}.v, which it goes with."
        head = "\n".join([f"Bus wrapper {self.module}, written by hwgen. {warning}", *self.buses])
        return {
            **convert(self.shell.wrapper(top), self.module, head=head),
            wrapper.REGISTERS: (json.dumps(self.to_json(), indent=1) + "\n").encode(),
            f"{top}_registers.h": wrapper.c_header(self.shell, top).encode(),
            f"{top}_registers.py": wrapper.python_constants(self.shell, top).encode(),
            f"{top}_driver.py": wrapper.driver(),
            **self.c_driver(),
        }

    def scripts(self, board: Board | None, names: Iterable[str]) -> dict[str, bytes]:
        """Return ``component.xml``, ``package_ip.tcl`` and, for boards that can have one, ``project.tcl``.

        Nothing for a device family whose bitstreams Vivado does not make.

        Parameters
        ----------
        board : Board or None
            The board, if there is one yet.
        names : iterable of str
            Files of the module, its wrapper and what software needs.
        """
        names, flow = list(names), (DEFAULT if board is None else board.family).vivado
        if flow is None:
            return {}
        return {
            ip_xact.NAME: ip_xact.description(self.shell, self.top, names, flow.ip_families),
            package.NAME: package.script(self.shell, self.top, board.part if board else "", names),
            **project.files(self.shell, self.top, board, names),
        }

    def report(self, template: str, text: str, files: Collection[str], **values: Any) -> bytes:
        """Return ``report.md``.

        Parameters
        ----------
        template : str
            Template beside this file, which extends ``report.md.j2``.
        text : str
            What the report says of the plan, in Markdown.
        files : collection of str
            Names of all files in the folder.
        values
            Further values of the template.
        """
        shared = {"text": text.rstrip("\n"), "files": files, "top": self.top, "module": self.module}
        table = "\n".join(wrapper.table(self.shell.registers))
        made = render(template, **shared, shell=self.shell, register_table=table, **values)
        return made.encode(errors="backslashreplace")


@dataclass(frozen=True, kw_only=True)
class AcceleratorPackage(Package):
    """Bus wrapper of an accelerator, with streams at both ends."""

    shell: ShellConfig

    @property
    def buses(self) -> list[str]:
        return [
            "AXI4-Stream at both ends, registers on AXI4-Lite (registers.json says which), an interrupt.",
            *(f"{end.name}: {wrapper.describe(end)}" for end in (*self.shell.inputs, *self.shell.outputs)),
        ]

    def to_json(self) -> dict[str, Any]:
        return wrapper.to_json(self.shell, self.module)

    def c_driver(self) -> dict[str, bytes]:
        return c_driver.files(self.shell, self.top)
