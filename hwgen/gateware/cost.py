"""What synthesis makes of the pieces that many components consist of; each configuration adds up its own.

DSP slices, block RAM and registers follow from how a component is built. LUTs are counted where they are plain to see
(memories, multiplexers, adders, tables); what remains is control logic, in proportion to a few sizes of it. The
proportions were fitted to what Yosys 0.66 makes of many components (bench/resources.py shows how well they fit).

What Yosys does, and what is counted on here:

- A register without reset that only delays, three cycles or more, is a shift register in LUTs: one LUT a bit.
- A DSP slice takes up to two registers in front of its activation operand, and the one behind a weight in block RAM.
- Bits of a read-only memory in LUTs that are equal in every word are one; constant ones are none.
- A multiplexer of up to 4 ways is one LUT a bit, one of up to 8 ways two, one of up to 16 ways four.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache

from hwgen.devices import DEFAULT
from hwgen.gateware.lookup import LUT_DEPTH, MEMORIES, place

#: LUT rules of the family that circuits are made for.
LOGIC = DEFAULT.logic
LUT_INPUTS = LOGIC.lut_inputs


@dataclass(frozen=True, kw_only=True)
class Resources:
    """DSP slices, whole block RAMs (half of a block is 0.5), LUTs and flip-flops."""

    dsp: int = 0
    bram36: float = 0
    lut: int = 0
    ff: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            dsp=self.dsp + other.dsp,
            bram36=self.bram36 + other.bram36,
            lut=self.lut + other.lut,
            ff=self.ff + other.ff,
        )

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


@dataclass
class Cost:
    """The resources of a component while they are counted. LUTs may be fractions; ``resources`` rounds their sum."""

    dsp: int = 0
    bram36: float = 0
    lut: float = 0
    ff: int = 0

    def delay(self, bits: int, cycles: int) -> None:
        """A delay without reset."""
        if cycles < LOGIC.shortest_shift_register:
            self.ff += bits * cycles
        else:
            self.lut += bits * -(-cycles // LOGIC.shift_register_cycles)

    def shift_register(self, bits: int, registers: int) -> None:
        """Registers in a row that were counted as such, but become a shift register."""
        if registers >= LOGIC.shortest_shift_register:
            self.ff -= bits * registers
            self.delay(bits, registers)

    def tree_delay(self, bits: int, values: int, levels: int) -> int:
        """One level of a tree that adds, or compares, so many values in pairs: the last of an odd number only waits.

        ``levels``: how many levels it has waited before. Returns how many it has waited now; 0 once it has a partner,
        which it finds in the tree's last level at the latest. Then its registers are counted, as one delay.
        """
        if values % 2:
            return levels + 1
        self.delay(bits, levels)
        return 0

    def rom(self, columns: Iterable[int], depth: int, width: int, block: bool | None = None) -> None:
        """A read-only memory and its output register; ``columns`` are its bits, as `varying_columns` gives them.

        ``block``: whether it lies in block RAM, by its depth if not given.
        """
        if depth > LUT_DEPTH if block is None else block:
            self.bram36 += MEMORIES.block_rams(width, max(depth, LUT_DEPTH + 1))  # as for deep ones
            return
        distinct = set(columns)
        self.ff += len(distinct)
        # Columns that are an address bit take no logic.
        plain = set(varying_columns(range(depth), counter_bits(depth)))
        if depth > LUT_DEPTH:
            self.lut += sum(_lookup_luts(column, depth) for column in distinct - plain)
            return
        # Up to four words, the register's set and reset often do.
        each = LOGIC.few_words_luts if depth <= LOGIC.few_words else 1
        self.lut += each * sum(column not in plain for column in distinct)

    def ram(self, width: int, depth: int, where: str | None = None) -> None:
        """A memory with a write port and a read port, and the latter's register.

        ``where`` it lies: in ``lut`` or ``block`` RAM, by its depth if not given.
        """
        block = (where or place(depth)) == "block"
        self.bram36 += MEMORIES.block_rams(width, max(depth, LUT_DEPTH + 1)) if block else 0.0  # as for deep ones
        if depth == 1:
            self.ff += 2 * width
        elif not block:
            self.ff += width
            luts = MEMORIES.memory_luts if depth <= LUT_DEPTH else MEMORIES.deep_memory_luts
            self.lut += luts(width, depth)

    @property
    def resources(self) -> Resources:
        return Resources(dsp=self.dsp, bram36=self.bram36, lut=round(self.lut), ff=self.ff)


def counter_bits(count: int) -> int:
    """Width of a counter of ``count`` values from 0."""
    return (count - 1).bit_length()


def trailing_zeros(number: int) -> int:
    """How often ``number`` can be halved; 0 for 0."""
    return (number & -number).bit_length() - 1 if number else 0


def constant_adder_luts(constant: int, bits: int) -> int:
    """Return the LUTs of an adder of so many bits with a constant: a carry chain inverts where the constant has a 1."""
    return (constant % (1 << bits)).bit_count()


def varying_columns(words: Sequence[int], width: int) -> list[int]:
    """Bits of a table that are not the same in every word: bit ``b`` of word ``n`` is bit ``n`` of column ``b``."""
    # Transposed through strings, which is fast enough for words of thousands of bits.
    rows = [f"{word:0{width}b}" for word in words]
    columns = ["".join(bits) for bits in zip(*rows, strict=True)] if width else []
    constant = {"0" * len(words), "1" * len(words)}
    return [int(column[::-1], 2) for column in columns if column not in constant]


@lru_cache(maxsize=1 << 12)
def _lookup_luts(column: int, depth: int) -> int:
    """Return the LUTs of one bit of a table, as Yosys maps the multiplexers that it makes of a ROM."""
    bits = counter_bits(depth)
    missing, half = (1 << bits) - depth, 1 << (bits - 1)
    # Words beyond the table may be anything: there they are those of its first half.
    column |= (column >> (half - missing) & ((1 << missing) - 1)) << depth
    return _function_luts(column, bits)


@lru_cache(maxsize=1 << 16)
def _function_luts(function: int, inputs: int) -> int:
    """Return the LUTs of a function; bit ``n`` of ``function`` is its value for the inputs ``n``.

    Up to six inputs take one LUT, seven take two and a multiplexer beside them. Of eight inputs the four functions of
    the lower six are LUTs, equal ones once. A half that is constant sets or resets the register instead.
    """
    for bit in range(inputs - 1, -1, -1):
        if not (function ^ function >> (1 << bit)) & _zeros(inputs, bit):
            return _function_luts(_halves(function, inputs, bit)[0], inputs - 1)
    if inputs <= LUT_INPUTS:
        return int(inputs > 1)
    whole = (1 << (1 << (inputs - 1))) - 1
    zero, one = _halves(function, inputs, inputs - 1)
    if zero in (0, whole) or one in (0, whole):
        return _function_luts(one if zero in (0, whole) else zero, inputs - 1)
    if inputs == LUT_INPUTS + 1:
        return 2
    if inputs > LUT_INPUTS + 2:
        return _function_luts(zero, inputs - 1) + _function_luts(one, inputs - 1) + 1
    quarter = (1 << (1 << LUT_INPUTS)) - 1
    quarters = {part & quarter for half in (zero, one) for part in (half, half >> (1 << LUT_INPUTS))}
    luts = len({min(part, quarter ^ part) for part in quarters if part not in (0, quarter)})
    # Two or three of them are joined by a LUT, four by multiplexers beside the LUTs.
    return min(luts + 1, 4)


@lru_cache(maxsize=1 << 10)
def _zeros(inputs: int, place: int) -> int:
    """Return a mask of the words whose address has a 0 at a place."""
    step = 1 << place
    return sum(((1 << step) - 1) << begin for begin in range(0, 1 << inputs, 2 * step))


def _halves(function: int, inputs: int, place: int) -> tuple[int, int]:
    """Return a function's values where an input is 0, and where it is 1, as functions of the other inputs."""
    step = 1 << place
    if place == inputs - 1:
        return function & ((1 << step) - 1), function >> step
    text = f"{function:0{1 << inputs}b}"
    blocks = [text[begin : begin + step] for begin in range(0, len(text), step)]
    return int("".join(blocks[1::2]), 2), int("".join(blocks[0::2]), 2)


def table_bits(values: Iterable[int]) -> int:
    """Different bits, not constant ones, of a table's values."""
    values = list(values)
    least, bits = min(values), counter_bits(max(values) - min(values) + 1)
    return len(set(varying_columns([value - least for value in values], bits)))


def uncommon(table: Iterable[int]) -> int:
    """Entries of a table that are not its commonest value."""
    counts = Counter(table)
    return sum(counts.values()) - max(counts.values(), default=0)
