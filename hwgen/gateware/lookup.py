"""Helpers for small circuits that many components share: choice of memory by depth, lookup tables, delay lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from amaranth import Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import memory

from hwgen.devices import DEFAULT
from hwgen.errors import ConfigError
from hwgen.gateware.naming import named
from hwgen.gateware.ports import read_port

#: Sizes of block RAMs and LUT RAMs of the default FPGA family, for which all circuits are made.
MEMORIES = DEFAULT.memories
#: Kinds of RAM that a writable memory can be in: LUT RAM, block RAM, and UltraRAM, which not all devices have.
RAMS = tuple(MEMORIES.ram_attributes)
LUT_DEPTH, DEEPEST_LUT_RAM, DEEPEST_LUT_ROM = MEMORIES.lut_depth, MEMORIES.deepest_lut_ram, MEMORIES.deepest_lut_rom


def default_memory(depth: int) -> str:
    """Return the default RAM for a memory of ``depth`` words: ``lut`` up to `LUT_DEPTH` words, else ``block``."""
    return "lut" if depth <= LUT_DEPTH else "block"


def check_memory(name: str, where: str | None, depth: int) -> None:
    """Raise ConfigError if a writable memory of ``depth`` words must not be in the chosen RAM (``where``).

    Parameters
    ----------
    name : str
        Name of the choice in the error.
    where : str or None
        Choice of RAM.
    depth : int
        Number of words.

    Raises
    ------
    ConfigError
        If ``where`` is not ``lut``, ``block``, ``ultra`` or ``None``, if LUT RAM has fewer words, or if one word is to
        be stored in block RAM or UltraRAM.
    """
    if where not in (None, *RAMS):
        raise ConfigError(f"{name} must be 'lut', 'block', 'ultra' or None, not {where!r}")
    if where == "lut" and depth > DEEPEST_LUT_RAM:
        raise ConfigError(
            f"{name} must be 'block' for {depth:,} words, not 'lut': LUT RAM has {DEEPEST_LUT_RAM} at most"
        )
    if where in ("block", "ultra") and depth < 2:
        raise ConfigError(f"{name} must be 'lut' for one word, not {where!r}")


def rom_attributes(depth: int, where: str | None = None) -> dict[str, str]:
    """Return the synthesis attributes, by name, that place a read-only memory in ``lut`` or ``block`` RAM.

    If ``where`` is ``None``, the depth decides.
    """
    return dict(MEMORIES.rom_attributes[where or default_memory(depth)])


def ram_attributes(depth: int, where: str | None = None) -> dict[str, str]:
    """Return the synthesis attributes, by name, that place a writable memory in ``lut``, ``block`` or ``ultra`` RAM.

    If ``where`` is ``None``, the depth decides.
    """
    return dict(MEMORIES.ram_attributes[where or default_memory(depth)])


def bits_for_range(low: int, high: int) -> Shape:
    """Return the narrowest Amaranth shape that represents every integer from ``low`` to ``high``."""
    return Shape.cast(range(min(low, 0), max(high, 0) + 1))


def sparse_table(index: Value, table: Mapping[int, int]) -> Value:
    """Return the entry at ``index`` of a constant table, from combinational logic that suits mostly equal entries.

    The commonest value is the default, and every other entry costs one comparison. The result has the narrowest shape
    that holds all entries. An index outside the table gives the default.
    """
    shape = bits_for_range(min(table.values()), max(table.values()))
    default, _ = Counter(table.values()).most_common(1)[0]
    result: Value = Const(default, shape)
    for key, value in table.items():
        if value != default:
            result = named(Mux(index == key, Const(value, shape), result), "table_entry")
    return result


def dense_table(m: Module, name: str, index: Value, table: Sequence[int]) -> Signal:
    """Add a combinational signal with the entry at ``index`` of a small constant table, and return the signal."""
    result = Signal(bits_for_range(min(table), max(table)), name=name)
    with m.Switch(index):
        for key, value in enumerate(table):
            with m.Case(key):
                m.d.comb += result.eq(value)
    return result


def by_bits(table: Sequence[int], *, signed: bool) -> list[int]:
    """Reorder a table of entries for ascending arguments, so that an argument's bits are the address of its entry.

    ``table`` has an entry for every value of the argument's type. The entries of negative arguments are moved behind
    the entries of the others.
    """
    half = len(table) // 2 if signed else 0
    return [*table[half:], *table[:half]]


def look_up(m: Module, name: str, shape: Shape, words: Sequence[int], index: Value) -> Value:
    """Add a constant table in LUT RAM, and return its word at ``index``, one cycle later."""
    m.submodules[name] = table = memory.Memory(
        shape=shape, depth=len(words), init=list(words), attrs=rom_attributes(len(words), "lut")
    )
    port = read_port(table)
    m.d.comb += port.addr.eq(index)
    return port.data


def delayed(m: Module, name: str, value: Value, cycles: int, *, reset_less: bool = True) -> Value:
    """Add ``cycles`` registers in a row, and return ``value`` delayed by them, or ``value`` itself for zero cycles."""
    for stage in range(1, cycles + 1):
        register = Signal(value.shape(), name=f"{name}_{stage}", reset_less=reset_less)
        m.d.sync += register.eq(value)
        value = register
    return value


#: Longest delay line, in cycles, of `delayed_apart` that has flip-flops only, because these are plentiful beside LUTs.
MOST_FLIP_FLOPS = 4


def delayed_apart(m: Module, name: str, value: Value, cycles: int) -> Value:
    """Add a delay line of ``cycles`` cycles that is no part of a longer shift register; return its output.

    Synthesis makes a shift register in LUTs of a long delay line, with the registers in front of it and behind it. A
    register with a reset is not part of a shift register. Short lines have such registers only, and longer lines have
    one at each end. `Cost.delay_apart` counts them.
    """
    if cycles <= MOST_FLIP_FLOPS:
        return delayed(m, name, value, cycles, reset_less=False)
    first = delayed(m, f"{name}_first", value, 1, reset_less=False)
    return delayed_fast(m, name, first, cycles - 1)


def delayed_fast(m: Module, name: str, value: Value, cycles: int) -> Value:
    """Add a delay line of ``cycles`` cycles whose output is a flip-flop, not a shift register; return the output.

    Synthesis makes a shift register in LUTs of a long delay line, and the output of a shift register is more than a
    nanosecond slower than a flip-flop's. The last register has a reset, so that it is not part of the shift register.
    """
    value = delayed(m, name, value, cycles - 1)
    register = Signal(value.shape(), name=f"{name}_{cycles}")
    m.d.sync += register.eq(value)
    return register
