"""Tools of a device family: synthesis by Yosys, and Vivado's names for the family."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Processor", "VivadoFlow", "YosysFlow"]


@dataclass(frozen=True, kw_only=True)
class YosysFlow:
    """Description, for a device family, of the synthesis by Yosys and of the cells in its netlists.

    Parameters
    ----------
    command : str
        Command that synthesises the module ``top`` without pads.
    timing_libraries : tuple of str
        Verilog models of the cells with their delays, as Yosys' ``read_verilog`` takes them. Empty if Yosys has no
        delays of the family.
    timing_models : str
        Verilog models of further cells, whose delays the libraries lack.
    lut_cells : mapping of str to int
        LUTs that each cell takes.
    flip_flops : frozenset of str
        Cells that are one flip-flop each.
    block_rams : mapping of str to float
        Block RAM that each cell takes, in blocks of 36 kbit.
    free_cells : frozenset of str
        Cells that take no counted resource: carry chains, multiplexers beside the LUTs, buffers, constants.
    clock_pins : re.Pattern
        Pattern of the names of clock pins of registers and memories.
    """

    command: str
    timing_libraries: tuple[str, ...]
    timing_models: str
    lut_cells: Mapping[str, int]
    flip_flops: frozenset[str]
    block_rams: Mapping[str, float]
    free_cells: frozenset[str]
    clock_pins: re.Pattern[str]


@dataclass(frozen=True, kw_only=True)
class Processor:
    """Description of the processing system (hard processor) beside the programmable logic of some devices.

    Parameters
    ----------
    device_prefixes : tuple of str
        First letters of the names of the devices that have it.
    project_script : str
        File in ``hwgen/emit`` with the part of ``project.tcl`` that depends on the processing system: its names in
        Vivado, and the Tcl commands that add it to a block design.
    interrupts : int
        Number of interrupts that the logic can send to the processing system.
    """

    device_prefixes: tuple[str, ...]
    project_script: str
    interrupts: int


@dataclass(frozen=True, kw_only=True)
class VivadoFlow:
    """Description of a device family for Vivado: names in its IP catalogue, and the processing system.

    Parameters
    ----------
    ip_families : tuple of str
        Vivado's names of the families for which its catalogue offers the IP of a generated design.
    processor : Processor or None
        Processing system that a project can be built around.
    """

    ip_families: tuple[str, ...]
    processor: Processor | None = None

    def has_processor(self, device: str) -> bool:
        """Return whether a device, such as ``XC7Z020``, has the family's processing system."""
        return self.processor is not None and device.startswith(self.processor.device_prefixes)
