"""Tool settings of a device family: for synthesis by Yosys, routing by nextpnr, and Vivado."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from math import gcd
from typing import Any, ClassVar


@dataclass(frozen=True, kw_only=True)
class YosysFlow:
    """Yosys settings of a device family: synthesis commands, and the cells in its netlists with their resources.

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
    ultra_rams : frozenset of str
        Cells that are one UltraRAM each.
    free_cells : frozenset of str
        Cells that take no counted resource: carry chains, dedicated multiplexers, buffers, constants.
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
    ultra_rams: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Pll:
    """Description of a PLL with output feedback: its frequency limits in MHz and its largest dividers.

    Its clock is the oscillator's frequency, times the feedback's divider, over the input's.

    Parameters
    ----------
    top : callable
        Function that returns the template of a top with the PLL and a serial link.
    vco_mhz : tuple of int
        Lowest and highest frequency of the PLL's own oscillator (VCO), in MHz.
    min_detector_mhz : int
        Lowest frequency of the phase detector, in MHz. The detector works at the oscillator's frequency over the
        input's divider.
    max_divider, max_output_divider : int
        Largest dividers of the input and the feedback, and of the output.
    """

    top: Callable[[], str]
    vco_mhz: tuple[int, int]
    min_detector_mhz: int
    max_divider: int
    max_output_divider: int

    def dividers(self, source_mhz: float, clock_mhz: float) -> tuple[int, int, int] | None:
        """Return, as a triple, a PLL's dividers (input, feedback, output) for a clock in MHz; ``None`` if none make it.

        Parameters
        ----------
        source_mhz, clock_mhz : float
            Frequencies of the oscillator and of the wanted clock, in MHz.
        """
        source, wanted = round(source_mhz * 1e6), round(clock_mhz * 1e6)
        common = gcd(source, wanted)
        feedback, divider = wanted // common, source // common
        low, high = self.vco_mhz
        output = next((count for count in range(1, self.max_output_divider) if low <= count * clock_mhz <= high), 0)
        is_possible = source / divider >= self.min_detector_mhz * 1e6 and max(divider, feedback) <= self.max_divider
        return (divider, feedback, output) if output and is_possible else None

    def refusal(self, source_mhz: float) -> str:
        """Return a clause that says why the PLL can't make the wanted clock from an oscillator of ``source_mhz``."""
        low, high = self.vco_mhz
        return (
            f"the PLL can't make it from {source_mhz:g} MHz with a phase detector of at least {self.min_detector_mhz} "
            f"MHz and an oscillator of {low} to {high} MHz"
        )


@dataclass(frozen=True, kw_only=True)
class NextpnrFlow:
    """nextpnr settings of a device family: the package with the tools, their options, and names of cells.

    Parameters
    ----------
    package, module : str
        Package on PyPI that has nextpnr and the packer of bitstreams, and its Python module.
    place_entry, pack_entry : str
        Functions of the module that run nextpnr and the packer.
    synthesis : str
        Commands of Yosys that synthesise the module ``{top}`` for nextpnr.
    part_pattern : re.Pattern
        Part numbers in small letters, with the groups ``device``, ``speed``, ``package`` and ``pins``.
    sizes, packages : mapping of str to str
        Option of each device, and name of each package without its number of pins.
    cells : mapping of str to str
        Titles of the cells in nextpnr's report that results list.
    prepare : callable
        Function that improves the top module of a netlist in place, in Yosys' JSON, before nextpnr reads it.
    pll : Pll
        PLL that makes the clock of a design with a top of its own.
    """

    package: str
    module: str
    place_entry: str
    pack_entry: str
    synthesis: str
    part_pattern: re.Pattern[str]
    sizes: Mapping[str, str]
    packages: Mapping[str, str]
    cells: Mapping[str, str]
    prepare: Callable[[dict[str, Any]], None]
    pll: Pll

    def options(self, part: str) -> list[str]:
        """Return nextpnr's command-line options (list of texts) for a part number of the family."""
        match = self.part_pattern.fullmatch(part.lower())
        assert match is not None
        package = f"{self.packages[match['package']]}{match['pins']}"
        return [self.sizes[match["device"]], "--package", package, "--speed", match["speed"]]


@dataclass(frozen=True, kw_only=True)
class ProjectHost(ABC):
    """Base class of what a device has to connect an accelerator with a program, in a Vivado project around it.

    Parameters
    ----------
    device_prefixes : tuple of str
        First letters of the names of the devices that have it.
    project_script : callable
        Function that returns the part of ``project.tcl`` that depends on the host: its names in Vivado, and the Tcl
        commands that add it and what it needs to a block design.
    """

    access: ClassVar[str]
    """Ending of the file ``NAME_ACCESS.py`` that the Python driver reaches the hardware with."""
    resource: ClassVar[str] = ""
    """Resource of a board's platform with the host's pins; empty if Vivado knows the pins, and the host has memory."""

    device_prefixes: tuple[str, ...]
    project_script: Callable[[], str]

    @abstractmethod
    def project_parts(self, *, has_streams: bool) -> str:
        """Return a noun phrase for what a project has next to the IP of an accelerator, or of an engine."""

    @abstractmethod
    def can_carry(self, inputs: int, outputs: int) -> bool:
        """Return whether a project can connect so many input and output streams of an accelerator."""

    @property
    @abstractmethod
    def max_frame_bytes(self) -> int:
        """Size in bytes that a frame on a stream must stay below."""

    @property
    def script_values(self) -> dict[str, str]:
        """Variables of the host for the head of ``project.tcl``, a dict of texts by name."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Processor(ProjectHost):
    """Description of the processing system (hard processor) that some devices have next to their logic.

    Parameters
    ----------
    interrupts : int
        Number of interrupts that the logic can send to the processing system. Each stream needs one, and the
        accelerator another one.
    length_bits : int
        Width of the length register of each stream's AXI DMA, in bits. The default is the largest (PG021), because
        packets of many frames need it.
    """

    access = "linux"

    interrupts: int
    length_bits: int = 26

    def project_parts(self, *, has_streams: bool) -> str:
        return "the processing system, a DMA for each stream," if has_streams else "the processing system,"

    def can_carry(self, inputs: int, outputs: int) -> bool:
        return inputs + outputs < self.interrupts

    @property
    def max_frame_bytes(self) -> int:
        return 1 << self.length_bits

    @property
    def script_values(self) -> dict[str, str]:
        return {"length_bits": str(self.length_bits)}


@dataclass(frozen=True, kw_only=True)
class PciExpress(ProjectHost):
    """Description of a device's PCI Express block, with AMD's XDMA for a program on a PC (PG195).

    Parameters
    ----------
    link_speed : str
        Vivado's name of the block's speed on each lane.
    data_bits : int
        Width of XDMA's data buses at 250 MHz with eight lanes, in bits.
    channels : int
        Number of XDMA's channels in each direction. Each stream needs one.
    """

    access = "xdma"
    resource = "pcie"

    link_speed: str
    data_bits: int
    channels: int

    def project_parts(self, *, has_streams: bool) -> str:
        return "XDMA for PCI Express," if has_streams else "XDMA for PCI Express, a controller of the DDR3 memory,"

    def can_carry(self, inputs: int, outputs: int) -> bool:
        return max(inputs, outputs) <= self.channels

    @property
    def max_frame_bytes(self) -> int:
        # XDMA's Linux driver ends a packet after 2,048 descriptors, one per page (XDMA_ENGINE_XFER_MAX_DESC).
        return 2048 * 4096

    @property
    def script_values(self) -> dict[str, str]:
        return {"link_speed": self.link_speed, "data_bits": str(self.data_bits)}


@dataclass(frozen=True, kw_only=True)
class VivadoFlow:
    """Vivado settings of a device family: its names in the IP catalogue, and hosts for projects.

    Parameters
    ----------
    ip_families : tuple of str
        Vivado's names of the families that its catalogue offers the IP for, of a generated design.
    hosts : tuple of ProjectHost
        Hosts that a project can be built around. A device has at most one of them.
    """

    ip_families: tuple[str, ...]
    hosts: tuple[ProjectHost, ...] = ()

    def host_of(self, device: str) -> ProjectHost | None:
        """Return the `ProjectHost` of a device, such as ``XC7Z020``; ``None`` if it has none."""
        return next((host for host in self.hosts if device.startswith(host.device_prefixes)), None)


def script(path: str) -> str:
    """Return the text of a Tcl file of this package, given by its path in the package."""
    return resources.files("hwgen.devices").joinpath(path).read_text(encoding="utf-8")


def vivado_part(part: str) -> str:
    """Return a part number in Vivado's spelling: lower case, but upper case right after the grade (``-2LV-c``)."""
    return re.sub(r"(?<=-\d)[a-z]+", lambda grade: grade[0].upper(), part.lower())
