"""Files around a circuit's Verilog: bus wrapper, drivers, and scripts that import the circuit into Vivado."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from hwgen.boards import PART_MHZ, Board
from hwgen.devices import DEFAULT
from hwgen.emit import constraints, vivado_files, wrapper
from hwgen.emit.drivers import c_driver, python_driver, python_file
from hwgen.emit.texts import rendered
from hwgen.gateware.bus.base import BusShellConfig
from hwgen.gateware.bus.shell import ShellConfig
from hwgen.gateware.bus.wrapper_proof import WrapperUnit
from hwgen.obligations import obligation
from hwgen.prove import catalogue
from hwgen.verilog import convert


@dataclass(frozen=True, kw_only=True)
class Package(ABC):
    """Base class of writers of a circuit's AXI wrapper, and of all files that depend on its registers and buses.

    Parameters
    ----------
    shell : BusShellConfig
        Shell of the bus wrapper.
    top : str
        Name of the circuit's module, which the wrapper instantiates.
    """

    shell: BusShellConfig
    top: str

    @property
    @abstractmethod
    def buses(self) -> list[str]:
        """List of comment lines (texts) for the head of the wrapper's Verilog, which describe its buses."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the contents of ``registers.json``: the wrapper's registers and streams, as a dictionary."""

    @abstractmethod
    def drivers(self) -> dict[str, bytes]:
        """Return a dictionary of the circuit's drivers, in Python and C, as bytes by file name."""

    @property
    def module(self) -> str:
        """Name of the bus wrapper's Verilog module, such as ``digits_axi``."""
        return wrapper.module(self.top)

    def files(self, board: Board | None = None) -> dict[str, bytes]:
        """Return, as a dictionary, the wrapper's Verilog, register descriptions and drivers, as bytes by file name.

        The files are ``TOP_axi.v``, ``registers.json``, ``TOP_registers.h``, ``TOP_registers.py`` and the drivers.

        Parameters
        ----------
        board : Board, optional
            Board of the plan, whose host the Python driver reaches the hardware through. Without one it is Linux on the
            device's own processor.

        Raises
        ------
        ToolError
            If one of the wrapper's operators can't be written as Verilog.
        """
        top, host = self.top, None if board is None else board.host
        access = "linux" if host is None else host.access
        warning = f"Do not edit: every build writes it together with {top}.v."
        head = "\n".join([f"Bus wrapper {self.module}, written by hwgen. {warning}", *self.buses])
        return {
            **convert(self.shell.wrapper(top), self.module, head=head),
            wrapper.REGISTERS: (json.dumps(self.to_json(), indent=1) + "\n").encode(),
            f"{top}_registers.h": wrapper.c_header(self.shell, top).encode(),
            f"{top}_registers.py": wrapper.python_constants(self.shell, top).encode(),
            f"{top}_{access}.py": python_file("buffers.py", f"{access}.py"),
            **self.drivers(),
        }

    def proofs(self, verilog: str, circuit: str) -> dict[str, bytes]:
        """Return, as a dictionary, ``TOP_axi.proofs.json`` (bytes, by file name), the proof obligations of the wrapper.

        ``verilog`` is the wrapper's Verilog, and ``circuit`` the wrapped circuit's.
        """
        proofs = catalogue.proofs(WrapperUnit(self.shell), self.module, f"{circuit}\n{verilog}")
        return {f"{self.module}{obligation.SUFFIX}": proofs}

    def scripts(self, board: Board | None, names: Iterable[str]) -> dict[str, bytes]:
        """Return a dict of bytes by file name: ``component.xml``, ``package_ip.tcl``, ``TOP_ooc.xdc``, ``project.tcl``.

        ``project.tcl``, and the constraints of its pins, are only for boards that support it. The result is empty for a
        device family whose bitstreams another tool than Vivado writes.

        Parameters
        ----------
        board : Board or None
            Board of the plan. None packages the IP for the default device family.
        names : iterable of str
            Names of the files of the IP: Verilog, memory files, and the files that drivers need.
        """
        names, flow = list(names), (DEFAULT if board is None else board.family).vivado
        if flow is None:
            return {}
        ip = vivado_files.ip_of(self.shell, self.top, names)
        return {
            vivado_files.COMPONENT: vivado_files.component(ip, flow.ip_families),
            vivado_files.PACKAGING: vivado_files.packaging(ip, board.part if board else ""),
            f"{self.top}_ooc.xdc": constraints.timing(self.top, self.module, board.clock_mhz if board else PART_MHZ),
            **vivado_files.project(self.shell, self.top, board, names),
        }

    def report(self, template: str, summary: str, files: Collection[str], **values: Any) -> bytes:
        """Return ``report.md`` as bytes: the plan, the files, the streams and the registers.

        Parameters
        ----------
        template : str
            Name of a template of this package that extends ``report.md.j2``, without ``.j2``.
        summary : str
            Summary of the plan, in Markdown.
        files : collection of str
            Names of all files in the folder.
        values
            Further variables of the template.
        """
        shared = {"text": summary.rstrip("\n"), "files": files, "top": self.top, "module": self.module}
        table = "\n".join(wrapper.register_table(self.shell.registers))
        report = rendered(template, **shared, shell=self.shell, register_table=table, **values)
        return report.encode(errors="backslashreplace")


@dataclass(frozen=True, kw_only=True)
class AcceleratorPackage(Package):
    """Writer of an accelerator's bus wrapper, with AXI4-Stream inputs and outputs, and of files that depend on it."""

    shell: ShellConfig

    @property
    def buses(self) -> list[str]:
        return [
            "AXI4-Stream inputs and outputs, registers on AXI4-Lite (listed in registers.json), and an interrupt.",
            *(f"{end.name}: {wrapper.describe(end)}" for end in (*self.shell.inputs, *self.shell.outputs)),
        ]

    def to_json(self) -> dict[str, Any]:
        return wrapper.to_json(self.shell, self.module)

    def drivers(self) -> dict[str, bytes]:
        return {f"{self.top}_driver.py": python_driver("driver.py"), **c_driver(self.shell, self.top)}
