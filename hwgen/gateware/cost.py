"""Cost model of FPGA synthesis: LUTs, flip-flops, block RAMs and DSP slices of memories, delay lines and logic.

Every configuration counts the resources of its component with these rules. DSP slices, block RAM and registers follow
from the structure of the component. LUTs of memories, multiplexers, adders and tables are counted. The LUTs of control
logic are proportional to a few sizes, with factors that were fitted to results of Yosys 0.66 for many components
(bench/resources.py shows the fit).

The rules assume these optimisations of Yosys:

- A delay line without reset, of three cycles or more, becomes a shift register: one LUT per bit.
- A DSP slice absorbs up to two registers before its activation operand, and the output register of block RAM before
  its weight operand.
- Equal columns of a read-only memory in LUTs are stored once, and constant columns not at all.
- A multiplexer costs one LUT per bit for up to 4 inputs, two for up to 8, four for up to 16.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

from hwgen.devices import Device, Logic, Memories
from hwgen.gateware.lookup import MAX_FLIP_FLOPS


@dataclass(frozen=True, kw_only=True)
class Resources:
    """FPGA resources of a component: DSP slices, block RAMs (36 kbit, in halves), LUTs, flip-flops, and UltraRAMs."""

    dsp: int = 0
    bram36: float = 0
    lut: int = 0
    ff: int = 0
    uram: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(**{key: value + getattr(other, key) for key, value in vars(self).items()})

    def as_dict(self) -> dict[str, float]:
        """Return a dict from resource (``dsp``, ``bram36``, ``lut``, ``ff``; ``uram`` if it is not 0) to its number."""
        resources: dict[str, float] = {"dsp": self.dsp, "bram36": self.bram36, "lut": self.lut, "ff": self.ff}
        return resources | ({"uram": self.uram} if self.uram else {})


@dataclass
class Cost:
    """Running total of a component's FPGA resources; its methods add memories, delay lines and other logic.

    LUTs can be fractions; ``resources`` rounds their sum.

    Parameters
    ----------
    device : Device
        Device family whose resources are counted.
    dsp, bram36, lut, ff, uram : int or float
        First resources: DSP slices, block RAMs, LUTs, flip-flops and UltraRAMs.
    known : float
        LUTs among ``lut`` that follow from the family's cells: memories, shift registers, multiplexers and tables.
        ``Logic.logic_luts`` converts all others, whose numbers were fitted for the default family.
    """

    device: Device
    dsp: int = 0
    bram36: float = 0
    lut: float = 0
    ff: int = 0
    uram: int = 0
    known: float = 0

    @property
    def logic(self) -> Logic:
        """`Logic`: LUT costs, by the device family's rules, of multiplexers, shift registers and small tables."""
        return self.device.logic

    @property
    def memories(self) -> Memories:
        """`Memories` of the device family: sizes of block RAM and LUT RAM, and rules for memories built from them."""
        return self.device.memories

    def luts(self, count: float) -> None:
        """Add LUTs to the total that the device family fixes exactly (memories, multiplexers), not a fitted number."""
        self.lut += count
        self.known += count

    def multiplexer(self, bits: float, inputs: int) -> None:
        """Add the LUTs of a multiplexer with ``inputs`` inputs of ``bits`` bits to the total."""
        self.luts(bits * self.logic.mux_luts(inputs))

    def in_slices(self, ff: int, lut: int = 0) -> None:
        """Add ``ff`` and ``lut`` for a DSP slice's registers and adder if the family's slices lack them."""
        if not self.device.multiplier_slice.sum_registers:
            self.ff += ff
            self.luts(lut)

    def add(self, part: Cost, copies: int = 1) -> None:
        """Add ``copies`` times the total of another `Cost` to this total."""
        for key in _COUNTS:
            if value := getattr(part, key):
                setattr(self, key, getattr(self, key) + copies * value)

    def registers(self, bits: int, luts: float = 1) -> None:
        """Add registers of ``bits`` bits to the total, and ``luts`` LUTs per bit of the logic that feeds them."""
        self.ff += bits
        self.lut += luts * bits

    def counter(self, *counts: int, luts: float = 1.5) -> None:
        """Add a counter for each number of values in ``counts``: flip-flops, and ``luts`` LUTs per bit."""
        self.registers(sum(map(counter_bits, counts)), luts)

    def delay(self, bits: int, cycles: int) -> None:
        """Add a delay line of ``bits`` bits to the total: flip-flops if it is short, else LUT shift registers."""
        if cycles < self.logic.shortest_shift_register:
            self.ff += bits * cycles
        else:
            self.luts(bits * -(-cycles // self.logic.shift_register_cycles))

    def delay_fast(self, bits: int, cycles: int) -> None:
        """Add a delay line that ends in a flip-flop (`hwgen.gateware.lookup.delayed_fast`) to the total."""
        self.ff += bits
        self.delay(bits, cycles - 1)

    def products(self, luts: float, lut4_ratio: float) -> None:
        """Add the LUTs of multipliers built from LUTs, and of the adder trees that sum their products, to the total.

        ``luts`` is for LUTs of 6 inputs, and ``lut4_ratio`` is the number of LUTs of 4 inputs for each of them.
        """
        self.luts(self.logic.counted_luts(luts, lut4_ratio * luts))

    def delay_apart(self, bits: int, cycles: int) -> None:
        """Add a delay line with flip-flops at both ends (`hwgen.gateware.lookup.delayed_apart`) to the total."""
        ends = cycles if cycles <= MAX_FLIP_FLOPS else 2
        self.ff += bits * ends
        self.delay(bits, cycles - ends)

    def shift_register(self, bits: int, registers: int) -> None:
        """Replace ``registers`` flip-flops per bit in the total by LUT shift registers, if they form a long chain."""
        if registers >= self.logic.shortest_shift_register:
            self.ff -= bits * registers
            self.delay(bits, registers)

    def tree_delay(self, bits: int, values: int, levels: int) -> int:
        """Add the delay of an adder tree's unpaired value if it now has a partner; return the levels it still waits.

        A tree combines values in pairs. On a level with an odd number, the last value has no partner and is delayed.
        Its delay is added once it has a partner, on the last level of the tree at the latest.

        Parameters
        ----------
        bits : int
            Width of the last value.
        values : int
            Number of values on the level.
        levels : int
            Number of levels that the last value has waited so far.

        Returns
        -------
        int
            Number of levels that the last value has waited after this level; 0 if it has a partner.
        """
        if values % 2:
            return levels + 1
        self.delay(bits, levels)
        return 0

    def tree(self, values: int, levels: Iterable[tuple[int, float]], bits: int, copies: int = 1) -> None:
        """Add ``copies`` trees, with registers on each level, that combine ``values`` values of ``bits`` bits in pairs.

        ``levels`` has the bits of a level's results, and the LUTs of each of them.
        """
        waited = 0
        for width, luts in levels:
            self.ff += copies * (values // 2) * width
            self.lut += copies * (values // 2) * luts
            waited = self.tree_delay(copies * bits, values, waited)
            values, bits = -(-values // 2), width

    def rom(
        self, columns: Iterable[int], depth: int, width: int, block: bool | None = None, registered: bool = True
    ) -> None:
        """Add a read-only memory in LUTs or block RAM, with its output register, to the total.

        Parameters
        ----------
        columns : iterable of int
            Columns of the contents, from `varying_columns`.
        depth, width : int
            Number of words, and bits of a word.
        block : bool, optional
            Whether the memory is in block RAM. If not given, the depth decides.
        registered : bool
            Whether a memory in LUTs has an output register.
        """
        if self.memories.default_ram(depth) == "block" if block is None else block:
            self.bram36 += self.memories.block_rams(width, depth, placed=True)
            return
        distinct = set(columns)
        self.ff += len(distinct) * registered
        # A column that equals an address bit takes no logic.
        stored = distinct - _address_columns(depth)
        if depth <= self.logic.few_words:
            # The set and reset of the output register often replace the LUT.
            self.lut += len(stored) * (self.logic.few_words_luts if registered else 1)
        elif depth <= self.logic.lut_words:
            self.luts(len(stored))
        else:
            self.luts(sum(_lookup_luts(column, depth, self.logic.lut_inputs) for column in stored))

    def ram(self, width: int, depth: int, where: str | None = None, *, copies: int = 1) -> None:
        """Add ``copies`` equal memories with one write port, one read port and a read register to the total.

        ``where`` is the RAM, ``lut``, ``block`` or ``ultra``; if it is ``None``, the depth decides.
        """
        where = where or self.memories.default_ram(depth)
        one = Cost(self.device)
        if where == "ultra":
            one._ultra_ram(width, depth)
        elif where == "block":
            one.bram36 = self.memories.block_rams(width, depth, placed=True)
        if depth == 1 and where != "ultra":
            one.ff = 2 * width
        elif where == "lut":
            one.ff = width
            one.lut_ram(width, depth)
        self.add(one, copies)

    def lut_ram(self, width: int, depth: int) -> None:
        """Add the LUTs of a memory of ``depth`` words in LUT RAM, without a read register, to the total."""
        is_shallow = self.memories.default_ram(depth) == "lut"
        self.luts((self.memories.memory_luts if is_shallow else self.memories.deep_memory_luts)(width, depth))

    def _ultra_ram(self, width: int, depth: int) -> None:
        """Add the UltraRAM blocks of a memory, and the multiplexer and enables if blocks are stacked for depth."""
        ultra = self.memories.ultra_ram
        self.uram += ultra.blocks(width, depth)
        stacked = ultra.stacked(depth)
        if stacked > 1:
            self.ff += counter_bits(stacked)
            self.luts(width * self.logic.mux_luts(stacked) + stacked)

    def table(self, words: Iterable[int], bits: int, *, copies: int = 1, block: bool = False) -> None:
        """Add ``copies`` read-only memories with the contents ``words``, and their output registers, to the total."""
        words = list(words)
        one = Cost(self.device)
        one.rom(() if block else varying_columns([word % (1 << bits) for word in words], bits), len(words), bits, block)
        self.add(one, copies)

    @property
    def resources(self) -> Resources:
        luts = self.lut + (self.logic.logic_luts - 1) * (self.lut - self.known)
        return Resources(dsp=self.dsp, bram36=self.bram36, lut=round(luts), ff=self.ff, uram=self.uram)


#: Names of the fields of `Cost` that are totals.
_COUNTS = tuple(part.name for part in fields(Cost) if part.name != "device")


def counter_bits(count: int) -> int:
    """Return the width in bits of a counter from 0 to ``count - 1``."""
    return (count - 1).bit_length()


def trailing_zeros(value: int) -> int:
    """Return the number of zero bits below the lowest set bit of ``value``; 0 for 0."""
    return (value & -value).bit_length() - 1 if value else 0


def constant_adder_luts(constant: int, bits: int) -> int:
    """Return the number of LUTs of a ``bits`` wide adder of a variable and a constant.

    The adder is a carry chain. A bit of the chain needs a LUT, as an inverter, only if the constant's bit is 1.
    """
    return (constant % (1 << bits)).bit_count()


def varying_columns(words: Sequence[int], width: int) -> list[int]:
    """Return, as a list, each bit column of a read-only memory, unless constant, as an integer with one bit per word.

    Column ``b`` holds bit ``b`` of all words: bit ``n`` of the column is bit ``b`` of word ``n``.
    """
    # Strings are transposed fast enough for words of thousands of bits.
    rows = [f"{word:0{width}b}" for word in words]
    columns = ["".join(bits) for bits in zip(*rows, strict=True)] if width else []
    constant = {"0" * len(words), "1" * len(words)}
    return [int(column[::-1], 2) for column in columns if column not in constant]


@lru_cache(maxsize=1 << 10)
def _address_columns(depth: int) -> frozenset[int]:
    """Return the set of bit columns (integers) of a memory whose ``depth`` words equal their addresses."""
    return frozenset(varying_columns(range(depth), counter_bits(depth)))


@lru_cache(maxsize=1 << 12)
def _lookup_luts(column: int, depth: int, lut_inputs: int) -> int:
    """Return the estimated number of LUTs of one output bit of a read-only memory in LUTs.

    Bit ``n`` of ``column`` is the output bit of word ``n``.
    """
    luts = _four_input_luts if lut_inputs == 4 else _six_input_luts
    return luts(_truth_table(column, depth), counter_bits(depth))


def _truth_table(column: int, depth: int) -> int:
    """Return a read-only memory's bit column as a truth table (an integer), filled up beyond ``depth`` words."""
    bits = counter_bits(depth)
    missing, half = (1 << bits) - depth, 1 << (bits - 1)
    # Yosys is free to choose the words beyond the table. It repeats words of the first half.
    return column | (column >> (half - missing) & ((1 << missing) - 1)) << depth


@lru_cache(maxsize=1 << 16)
def _four_input_luts(function: int, inputs: int) -> int:
    """Return the estimated number of 4-input LUTs of a Boolean function of ``inputs`` inputs, given as a truth table.

    Dedicated multiplexers join two, four or eight LUTs for 5, 6 or 7 inputs. A further LUT joins more of them. If one
    half of the function is constant, the set or reset of the register replaces it.
    """
    function, inputs = _without_unused_inputs(function, inputs)
    if inputs <= 4:
        return int(inputs > 1)
    whole = (1 << (1 << (inputs - 1))) - 1
    halves = _halves(function, inputs, inputs - 1)
    luts = sum(_four_input_luts(half, inputs - 1) for half in halves if half not in (0, whole))
    return luts + (inputs > 7 and not {*halves} & {0, whole})


def _without_unused_inputs(function: int, inputs: int) -> tuple[int, int]:
    """Return a pair: a truth table (integer) without inputs that have no effect, and the number of inputs left."""
    for bit in range(inputs - 1, -1, -1):
        if not (function ^ function >> (1 << bit)) & _zero_mask(inputs, bit):
            return _without_unused_inputs(_halves(function, inputs, bit)[0], inputs - 1)
    return function, inputs


#: Number of inputs of a LUT in `_six_input_luts`.
_SIX = 6


@lru_cache(maxsize=1 << 16)
def _six_input_luts(function: int, inputs: int) -> int:
    """Return the estimated number of 6-input LUTs of a Boolean function of ``inputs`` inputs, given as a truth table.

    Bit ``n`` of ``function`` is the function's value for the inputs ``n``. A function of up to six inputs takes one
    LUT. Seven inputs take two LUTs and a dedicated multiplexer. Eight inputs take a LUT for each different function of
    the lower six inputs. If one half of the function is constant, the set or reset of the register replaces it.
    """
    function, inputs = _without_unused_inputs(function, inputs)
    if inputs <= _SIX:
        return int(inputs > 1)
    whole = (1 << (1 << (inputs - 1))) - 1
    zero, one = _halves(function, inputs, inputs - 1)
    if zero in (0, whole) or one in (0, whole):
        return _six_input_luts(one if zero in (0, whole) else zero, inputs - 1)
    if inputs == _SIX + 1:
        return 2
    if inputs > _SIX + 2:
        return _six_input_luts(zero, inputs - 1) + _six_input_luts(one, inputs - 1) + 1
    quarter = (1 << (1 << _SIX)) - 1
    quarters = {function & quarter for half in (zero, one) for function in (half, half >> (1 << _SIX))}
    luts = len({min(function, quarter ^ function) for function in quarters if function not in (0, quarter)})
    # A further LUT joins two or three LUTs; dedicated multiplexers join four.
    return min(luts + 1, 4)


@lru_cache(maxsize=1 << 10)
def _zero_mask(inputs: int, input_index: int) -> int:
    """Return a bit mask of the truth-table entries with input ``input_index`` equal to 0."""
    step = 1 << input_index
    return sum(((1 << step) - 1) << begin for begin in range(0, 1 << inputs, 2 * step))


def _halves(function: int, inputs: int, input_index: int) -> tuple[int, int]:
    """Return a pair: two truth tables, as integers over the other inputs, for input ``input_index`` at 0 and at 1."""
    step = 1 << input_index
    if input_index == inputs - 1:
        return function & ((1 << step) - 1), function >> step
    text = f"{function:0{1 << inputs}b}"
    blocks = [text[begin : begin + step] for begin in range(0, len(text), step)]
    return int("".join(blocks[1::2]), 2), int("".join(blocks[0::2]), 2)


def table_bits(values: Iterable[int]) -> int:
    """Return the number of flip-flops that store one table entry: one per distinct bit column that is not constant."""
    values = list(values)
    smallest, bits = min(values), counter_bits(max(values) - min(values) + 1)
    return len(set(varying_columns([value - smallest for value in values], bits)))


def num_uncommon(table: Iterable[int]) -> int:
    """Return the number of table entries that differ from the table's most frequent value."""
    counts = Counter(table)
    return sum(counts.values()) - max(counts.values(), default=0)
