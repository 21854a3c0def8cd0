"""Classes that describe an FPGA device family: capacities, DSP slices and chains of them, LUT costs, and adders."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hwgen import frozen
from hwgen.devices.flow import NextpnrFlow, ProjectHost, VivadoFlow, YosysFlow
from hwgen.devices.memory import Memories


@dataclass(frozen=True)
class Capacity:
    """Resources of one FPGA device: LUTs, flip-flops, DSP slices, block RAMs of 36 kbit, and UltraRAMs of 288 kbit."""

    lut: int
    ff: int
    dsp: int
    bram36: int
    uram: int = 0


@dataclass(frozen=True, kw_only=True)
class SliceOperand:
    """Operand of a DSP slice's multiplier: width, signedness, and registers in the slice.

    Parameters
    ----------
    bits : int
        Width of the operand, in bits.
    signed : bool
        Whether the operand is signed.
    registers : int
        Number of the slice's registers between the operand's port and the multiplier.
    """

    bits: int
    signed: bool
    registers: int

    @property
    def signed_bits(self) -> int:
        """Width of the operand as a signed number, in bits: one more if it is unsigned."""
        return self.bits + (not self.signed)


@dataclass(frozen=True, kw_only=True)
class SliceTerm:
    """Two operands (activation and weight) that one DSP slice of a chain multiplies.

    Parameters
    ----------
    activation, weight : SliceOperand
        Operands of the multiplier.
    """

    activation: SliceOperand
    weight: SliceOperand

    @property
    def operand_bits(self) -> tuple[int, int]:
        """Pair: widths in bits, narrower first, that the DSP slice's two operands have as signed."""
        narrow, wide = sorted((self.activation.signed_bits, self.weight.signed_bits))
        return narrow, wide


class SliceChains(ABC):
    """Base class of generators of DSP slice chains that instantiate a device family's own cells."""

    @property
    @abstractmethod
    def accumulates(self) -> bool:
        """Whether a DSP slice can add three terms: a product, the previous slice's sum, and its own last sum."""

    @abstractmethod
    def fits(self, term: SliceTerm, sum_bits: int) -> bool:
        """Return whether one DSP slice can multiply operands of these widths, and add numbers of ``sum_bits`` bits."""

    @abstractmethod
    def statements(self, terms: Sequence[SliceTerm], sum_bits: int, *, accumulates: bool) -> list[str]:
        """Return a list of the Verilog statements of a module that is a chain of DSP slices, one slice per term.

        The module has the inputs ``clk``, and ``activation_0``, ``weight_0`` and so on for each slice. Its output
        ``sum`` is the sum of the last slice. Each slice has a register after its multiplier and a register after its
        adder. Registers begin with 0, and have no reset.

        Parameters
        ----------
        terms : sequence of SliceTerm
            Operands of each slice.
        sum_bits : int
            Width of ``sum``, in bits.
        accumulates : bool
            Whether the last slice also adds its own sum. The module then has the input ``is_first``, with a register in
            the slice: a sum that is added to while the register is 1 counts as 0.
        """


@dataclass(frozen=True, kw_only=True)
class MultiplierSlice:
    """Description of a family's DSP slice (multiply-add): widths, pipeline registers, and when synthesis uses it.

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
        Maximum number of pipeline registers before the multiplier, after it, and after the adder.
    lut_price : int
        Number of LUTs that the planner values as much as a slice. It is below the LUTs of a slice's products, so that
        idle slices are used before LUTs.
    min_bits, min_product_bits : int
        Width of the narrowest operand, and of the narrowest product, that synthesis builds from slices, in bits.
    has_pre_adder : bool
        Whether synthesis uses an adder of the slice before the multiplier.
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
    min_bits: int = 2
    min_product_bits: int = 9
    has_pre_adder: bool = True
    chains: SliceChains | None = field(default=None, metadata=frozen.never_digested())

    def multiplies(self, first_bits: int, second_bits: int) -> bool:
        """Return whether synthesis multiplies operands of these widths (bits) in DSP slices, not in LUTs."""
        narrowest = min(first_bits, second_bits)
        return narrowest >= self.min_bits and first_bits + second_bits >= self.min_product_bits

    def piece_bits(self, bits: int, index: int, count: int) -> int:
        """Return the width in bits of piece ``index`` of the ``count`` that a cascade divides a signed operand into.

        The last piece is signed and has the remaining bits. The others have as many bits as the cascade shifts.
        """
        return bits - index * self.cascade_shift if index == count - 1 else self.cascade_shift


@dataclass(frozen=True, kw_only=True)
class Logic:
    """LUT costs of multiplexers, shift registers, small tables and bank rotations in a device family.

    Parameters
    ----------
    lut_inputs : int
        Number of inputs of a LUT.
    mux_ways : int
        Number of one-bit inputs among which one LUT selects.
    table_inputs : int
        Number of inputs of a function that LUTs and their dedicated multiplexers compute as fast as one LUT.
    shift_register_cycles : int
        Longest delay of one bit that one LUT holds as a shift register, in clock cycles.
    shortest_shift_register : int
        Shortest delay that synthesis makes a shift register of, in clock cycles. Shorter delays are flip-flops.
    few_words, few_words_luts : int, float
        A table of at most ``few_words`` words takes ``few_words_luts`` LUTs per bit, because set and reset of its
        output register do the rest.
    rotation_luts : mapping of int to (float, float)
        Measured LUTs per bit of a multiplexer that rotates column banks, without and with padding, by the number of
        banks.
    more_rotation_luts : float
        LUTs per bit and bank of a multiplexer that rotates more banks than ``rotation_luts`` lists.
    logic_luts : float
        Measured number of LUTs for each LUT of a cost that was fitted for the default family.
    """

    lut_inputs: int
    mux_ways: int
    table_inputs: int
    shift_register_cycles: int
    shortest_shift_register: int
    few_words: int
    few_words_luts: float
    rotation_luts: Mapping[int, tuple[float, float]]
    more_rotation_luts: float
    logic_luts: float = 1

    @property
    def lut_words(self) -> int:
        """Maximum number of words in a table that takes one LUT per bit of a word."""
        return 1 << self.lut_inputs

    def mux_luts(self, inputs: int) -> int:
        """Return the number of LUTs per output bit of a multiplexer with ``inputs`` inputs."""
        return 0 if inputs < 2 else -(-inputs // self.mux_ways)

    def counted_luts(self, luts: float, four_input_luts: float) -> float:
        """Return a circuit's LUTs in this family: ``four_input_luts`` if its LUTs have 4 inputs, else ``luts``."""
        return four_input_luts if self.lut_inputs == 4 else luts

    def rotation(self, banks: int, *, padded: bool) -> float:
        """Return the LUTs per bit (a number) of a multiplexer that rotates the words of ``banks`` column banks.

        With ``padded`` the multiplexer also inserts padding.
        """
        if banks in self.rotation_luts:
            return self.rotation_luts[banks][padded]
        return self.more_rotation_luts * banks


class Adders(ABC):
    """Base class of generators of a device family's adders: each method returns a module's Verilog statements."""

    @abstractmethod
    def ternary(self, bits: int, negative: Sequence[bool]) -> list[str]:
        """Return a list of the Verilog statements of an adder that adds or subtracts three numbers.

        The module has the inputs ``addend_0`` to ``addend_2`` and the output ``sum``, all of the same width.

        Parameters
        ----------
        bits : int
            Width of the inputs and of the sum, in bits.
        negative : sequence of bool
            Whether each input is subtracted; at most two are.
        """

    @abstractmethod
    def booth_row(self, bits: int, multiplicand_bits: int) -> list[str]:
        """Return a list of Verilog statements: a Booth row, which adds a multiple (-2 to 2) of one number to another.

        The module has the input ``digit`` of 3 bits, the signed inputs ``multiplicand`` and ``addend``, and the output
        ``sum``. The digit selects the multiple by radix-4 Booth encoding.

        Parameters
        ----------
        bits : int
            Width of the addend and of the sum, in bits.
        multiplicand_bits : int
            Width of the multiplicand, in bits.
        """


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
        Beginnings of the family's part numbers in small letters, to recognise a wrong spelling.
    device_prefix : str
        Letters that the name of every device begins.
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
        """Return the device's name (``XC7Z020``) in a part number; ``None`` if the part is of another family."""
        match = self.part_pattern.fullmatch(part.lower())
        return None if match is None else f"{self.device_prefix}{match[1].upper()}"

    def host_of(self, part: str) -> ProjectHost | None:
        """Return a part's `ProjectHost` for a Vivado project (processor, PCI Express); ``None`` if none is known."""
        device = self.device_of(part)
        return None if device is None or self.vivado is None else self.vivado.host_of(device)

    def __repr__(self) -> str:
        return self.name

    @property
    def digest(self) -> bytes:
        """Bytes for the device in `hwgen.digest`: only its name, because caches depend on the source code anyway."""
        return self.name.encode()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)
