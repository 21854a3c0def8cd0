"""Classes that describe an FPGA device family: `Device`, its devices' capacities, and its multiplier slice."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hwgen import frozen
from hwgen.devices.adders import Adders
from hwgen.devices.flow import NextpnrFlow, Processor, VivadoFlow, YosysFlow
from hwgen.devices.logic import Logic
from hwgen.devices.memory import Memories
from hwgen.devices.slice_chains import SliceChains


@dataclass(frozen=True)
class Capacity:
    """Resources of one FPGA device: LUTs, flip-flops, DSP slices, block RAMs of 36 kbit, and UltraRAMs of 288 kbit."""

    lut: int
    ff: int
    dsp: int
    bram36: int
    uram: int = 0


@dataclass(frozen=True, kw_only=True)
class MultiplierSlice:
    """Description of a device family's multiply-add slice (DSP slice): widths and pipeline registers.

    Parameters
    ----------
    cell : str
        Name of the Verilog primitive.
    wide_bits, narrow_bits : int
        Width of the two signed operands of the multiplier, in bits.
    sum_bits : int
        Width of the accumulator, in bits.
    cascade_shift : int
        Right shift between the sum of one slice and the cascade input of the next one, in bits.
    operand_registers, product_registers, sum_registers : int
        Largest number of pipeline registers in front of the multiplier, behind it, and behind the adder.
    lut_price : int
        Number of LUTs that the planner values as much as a slice. It is below the LUTs of a slice's products, so that
        idle slices are used before LUTs.
    least_bits, least_product_bits : int
        Width of the narrowest operand, and of the narrowest product, that synthesis builds from slices, in bits.
    has_pre_adder : bool
        Whether synthesis uses an adder of the slice in front of the multiplier.
    chains : SliceChains or None
        Chains of slices in the family's own cells; ``None`` if synthesis infers all slices.
    """

    cell: str
    wide_bits: int
    narrow_bits: int
    sum_bits: int
    cascade_shift: int
    operand_registers: int
    product_registers: int
    sum_registers: int
    lut_price: int
    least_bits: int = 2
    least_product_bits: int = 9
    has_pre_adder: bool = True
    chains: SliceChains | None = field(default=None, metadata=frozen.never_digested())

    def multiplies(self, first_bits: int, second_bits: int) -> bool:
        """Return whether synthesis builds a product of operands of these widths from slices, not from LUTs."""
        narrowest = min(first_bits, second_bits)
        return narrowest >= self.least_bits and first_bits + second_bits >= self.least_product_bits


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Device:
    """Description of an FPGA device family, such as Xilinx 7 series, for plans, gateware and synthesis.

    Parameters
    ----------
    name : str
        Key in `hwgen.devices.FAMILIES`.
    title : str
        Name of the family in messages.
    part_pattern : re.Pattern
        Part numbers of the family in small letters; the first group is the device without ``device_prefix``. A device
        without an entry in ``capacities`` can match: a board's file states its resources.
    part_beginning : re.Pattern
        Beginnings of the family's part numbers in small letters, by which a wrong spelling is recognised.
    device_prefix : str
        Letters with which the name of every device begins.
    part_example, part_form : str
        Part number of the family, and the fields of a part number in words, for messages.
    capacities : mapping of str to Capacity
        Devices of the family, by name (``XC7Z020``).
    multiplier_slice : MultiplierSlice
        DSP slice of all devices.
    memories : Memories
        Block RAM and LUT RAM: shapes, costs and synthesis attributes.
    logic : Logic
        LUTs of multiplexers, delays and tables.
    adders : Adders or None
        Adders in the family's own cells; ``None`` if synthesis maps all adders by itself.
    yosys : YosysFlow or None
        Synthesis by Yosys; ``None`` if its netlists are not known.
    vivado : VivadoFlow or None
        Vivado's names for the family; ``None`` if another tool makes the bitstream.
    nextpnr : NextpnrFlow or None
        Placement and routing by nextpnr; ``None`` if there is no complete open flow.
    spelled : callable
        Function that returns a part number in the maker's spelling, from one in any case.
    note : str
        What a plan for a board of the family must say in addition; empty if there is nothing.
    """

    name: str
    title: str
    part_pattern: re.Pattern[str]
    part_beginning: re.Pattern[str]
    part_example: str
    part_form: str
    device_prefix: str
    capacities: Mapping[str, Capacity]
    multiplier_slice: MultiplierSlice
    memories: Memories
    logic: Logic
    adders: Adders | None
    yosys: YosysFlow | None
    vivado: VivadoFlow | None
    nextpnr: NextpnrFlow | None = None
    spelled: Callable[[str], str] = str
    note: str = ""

    def device_of(self, part: str) -> str | None:
        """Return the device's name (``XC7Z020``) in a part number; ``None`` if the number is none of the family."""
        match = self.part_pattern.fullmatch(part.lower())
        return None if match is None else f"{self.device_prefix}{match[1].upper()}"

    def processor_of(self, part: str) -> Processor | None:
        """Return the processing system of a part, for a Vivado project around it; ``None`` if the part has none."""
        device = self.device_of(part)
        if device is None or self.vivado is None or not self.vivado.has_processor(device):
            return None
        return self.vivado.processor

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)
