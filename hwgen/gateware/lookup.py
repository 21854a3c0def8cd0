"""Small helpers that several components share: sparse tables and delays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from amaranth import Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import memory

from hwgen.devices import DEFAULT
from hwgen.errors import ConfigError
from hwgen.gateware.naming import named
from hwgen.gateware.ports import read_port

#: Memories of the family that circuits are made for.
MEMORIES = DEFAULT.memories
LUT_DEPTH, DEEPEST_LUT_RAM, DEEPEST_LUT_ROM = MEMORIES.lut_depth, MEMORIES.deepest_lut_ram, MEMORIES.deepest_lut_rom


def place(depth: int) -> str:
    """Where a memory of that depth goes if nobody says otherwise: ``lut`` or ``block``."""
    return "lut" if depth <= LUT_DEPTH else "block"


def check_place(name: str, where: str | None, depth: int) -> None:
    """Refuse where a memory that is written and read can't lie.

    Raises
    ------
    ConfigError
    """
    if where not in (None, "lut", "block"):
        raise ConfigError(f"{name} must be 'lut', 'block' or None, not {where!r}")
    if where == "lut" and depth > DEEPEST_LUT_RAM:
        raise ConfigError(
            f"{name} must be 'block' for {depth:,} words, not 'lut': LUT RAM has {DEEPEST_LUT_RAM} at most"
        )
    if where == "block" and depth < 2:
        raise ConfigError(f"{name} must be 'lut' for one word, not 'block'")


def rom_attributes(depth: int, where: str | None = None) -> dict[str, str]:
    """Return the synthesis attributes of a read-only memory in ``lut`` or ``block`` RAM; by its depth if not given."""
    return dict(MEMORIES.rom_attributes[where or place(depth)])


def ram_attributes(depth: int, where: str | None = None) -> dict[str, str]:
    """Return the synthesis attributes of a memory with a write port in ``lut`` or ``block`` RAM; by its depth if not
    given."""
    return dict(MEMORIES.ram_attributes[where or place(depth)])


def bits_for_range(low: int, high: int) -> Shape:
    """The narrowest shape that holds every integer from ``low`` to ``high``."""
    return Shape.cast(range(min(low, 0), max(high, 0) + 1))


def sparse_table(index: Value, table: Mapping[int, int]) -> Value:
    """Look ``index`` up in a table most of whose entries are equal.

    The commonest value is the default; every other entry costs one comparison. The result is of the narrowest
    shape that holds all entries. An index outside the table gives the default.
    """
    shape = bits_for_range(min(table.values()), max(table.values()))
    default, _ = Counter(table.values()).most_common(1)[0]
    result: Value = Const(default, shape)
    for key, value in table.items():
        if value != default:
            result = named(Mux(index == key, Const(value, shape), result), "table_entry")
    return result


def dense_table(m: Module, name: str, index: Value, table: Sequence[int]) -> Signal:
    """Look ``index`` up in a small table of any contents, in combinational logic."""
    result = Signal(bits_for_range(min(table), max(table)), name=name)
    with m.Switch(index):
        for key, value in enumerate(table):
            with m.Case(key):
                m.d.comb += result.eq(value)
    return result


def by_bits(table: Sequence[int], *, signed: bool) -> list[int]:
    """A table of all values, from the least to the greatest, in the order of their bits: as they address a memory."""
    half = len(table) // 2 if signed else 0
    return [*table[half:], *table[:half]]


def look_up(m: Module, name: str, shape: Shape, words: Sequence[int], index: Value) -> Value:
    """The word at ``index`` of a table in LUTs, a cycle later."""
    m.submodules[name] = table = memory.Memory(
        shape=shape, depth=len(words), init=list(words), attrs=rom_attributes(len(words), "lut")
    )
    port = read_port(table)
    m.d.comb += port.addr.eq(index)
    return port.data


def delayed(m: Module, name: str, value: Value, cycles: int, *, reset_less: bool = True) -> Value:
    """``value``, ``cycles`` clock cycles later. Zero cycles give ``value`` itself."""
    for stage in range(1, cycles + 1):
        register = Signal(value.shape(), name=f"{name}_{stage}", reset_less=reset_less)
        m.d.sync += register.eq(value)
        value = register
    return value


def delayed_fast(m: Module, name: str, value: Value, cycles: int) -> Value:
    """As `delayed`, at least one cycle; but a register gives the value where synthesis would take a shift register.

    The output of a shift register in LUTs comes more than a nanosecond later than that of a flip-flop. One with a reset
    is no part of it.
    """
    value = delayed(m, name, value, cycles - 1)
    register = Signal(value.shape(), name=f"{name}_{cycles}")
    m.d.sync += register.eq(value)
    return register
