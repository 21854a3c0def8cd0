"""Functions that add small circuits, which many components share: lookup tables, registers, delay lines, memory ports.

The names of signals are chosen by the caller. `named` also names an intermediate result of an expression: the name is
kept as the value's place in the source, which reaches the Verilog writer (`hwgen.verilog`). Amaranth's
``Memory.read_port`` would name signals after a Python variable, and these names would reach users' Verilog.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from amaranth import Const, Module, Mux, Shape, Signal, Value
from amaranth.hdl import ShapeLike
from amaranth.hdl._ast import Operator, Part, Slice, SwitchValue  # type: ignore[attr-defined]  # not in the stubs
from amaranth.lib import memory
from amaranth.utils import ceil_log2

from hwgen.devices import Device

_MARK = "named:"
T = TypeVar("T")


def named(value: T, name: str) -> T:
    """Set the wire name that the emitted Verilog uses for an Amaranth value's outermost operator; return the value.

    Parameters
    ----------
    value : Value or other type
        A slice, or a value with another sign, names the operator below it. Signals and constants keep what they are,
        as do integers, for functions that compute with either.
    name : str
        Name of the wire, in the field's words. If a result is given several names, the first one counts.
    """
    result: object = value
    while isinstance(result, Slice) or (isinstance(result, Operator) and result.operator in ("u", "s")):
        result = result.value if isinstance(result, Slice) else result.operands[0]
    if isinstance(result, Operator | Part | SwitchValue) and not _is_named(result):
        result.src_loc = (f"{_MARK}{name}", 0)
    return value


def chosen_name(source: str) -> str:
    """Return the wire name that `named` encoded in an RTLIL cell's source location; empty if there is no name.

    The source location has the form ``file:line``.
    """
    return source.removeprefix(_MARK).rpartition(":")[0] if source.startswith(_MARK) else ""


def _is_named(value: Value) -> bool:
    """Return whether an Amaranth value already has a chosen wire name."""
    return value.src_loc is not None and str(value.src_loc[0]).startswith(_MARK)


def ram(device: Device, shape: Any, depth: int, where: str | None = None) -> memory.Memory:
    """Return an Amaranth memory of ``depth`` zeroed words, in RAM of kind ``where``: ``lut``, ``block`` or ``ultra``.

    If ``where`` is ``None``, the depth decides.
    """
    return memory.Memory(shape=shape, depth=depth, init=[], attrs=device.memories.ram_style(depth, where))


def read_port(storage: memory.Memory, name: str = "read", *, domain: str = "sync") -> memory.ReadPort:
    """Add a read port to a memory, and return it, with signals ``NAME__addr``, ``NAME__data`` and ``NAME__en``."""
    shape: Any = storage.shape
    signature = memory.ReadPort.Signature(addr_width=ceil_log2(storage.depth), shape=shape)
    return memory.ReadPort(signature, memory=storage, domain=domain, path=(name,))


def write_port(storage: memory.Memory, name: str = "write", *, granularity: int | None = None) -> memory.WritePort:
    """Add a write port to a memory, and return it, with signals ``NAME__addr``, ``NAME__data`` and ``NAME__en``."""
    shape: Any = storage.shape
    signature = memory.WritePort.Signature(addr_width=ceil_log2(storage.depth), shape=shape, granularity=granularity)
    return memory.WritePort(signature, memory=storage, domain="sync", path=(name,))


def bits_for_range(low: int, high: int) -> Shape:
    """Return the narrowest Amaranth shape that represents every integer from ``low`` to ``high``."""
    return Shape.cast(range(min(low, 0), max(high, 0) + 1))


def sparse_table(index: Value, table: Mapping[int, int]) -> Value:
    """Return a `Value`: the entry at ``index`` of a constant table with mostly equal entries, as logic.

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
    """Add combinational logic that looks up entry ``index`` in a small constant table; return it, a `Signal`."""
    result = Signal(bits_for_range(min(table), max(table)), name=name)
    with m.Switch(index):
        for key, value in enumerate(table):
            with m.Case(key):
                m.d.comb += result.eq(value)
    return result


def by_bits(table: Sequence[int], *, signed: bool) -> list[int]:
    """Return a lookup table's entries (list) in order of the argument's bits as an address, given in ascending order.

    ``table`` has an entry for every value of the argument's type. The entries of negative arguments are moved to the
    end.
    """
    half = len(table) // 2 if signed else 0
    return [*table[half:], *table[:half]]


def look_up(m: Module, device: Device, name: str, shape: Shape, words: Sequence[int], index: Value) -> Value:
    """Add a read-only memory of ``words`` in LUTs; return a `Value`: its word at ``index``, one cycle later."""
    m.submodules[name] = table = memory.Memory(
        shape=shape, depth=len(words), init=list(words), attrs=device.memories.rom_style(len(words), "lut")
    )
    port = read_port(table)
    m.d.comb += port.addr.eq(index)
    return port.data


def delayed(m: Module, name: str, value: Value, cycles: int, *, reset_less: bool = True) -> Value:
    """Add a chain of ``cycles`` registers, and return ``value`` delayed by it, or ``value`` itself for zero cycles."""
    for stage in range(1, cycles + 1):
        register = Signal(value.shape(), name=f"{name}_{stage}", reset_less=reset_less)
        m.d.sync += register.eq(value)
        value = register
    return value


def delayed_unless_constant(m: Module, name: str, value: Value, cycles: int) -> Value:
    """Add a chain of ``cycles`` registers, and return ``value`` delayed by it; return a constant without registers.

    A register of a constant would start at 0.
    """
    return value if isinstance(value, Const) else delayed(m, name, value, cycles)


def registered(m: Module, name: str, value: Value, shape: ShapeLike) -> Signal:
    """Add a register of ``shape`` without a reset that stores ``value`` in every cycle; return it, a `Signal`."""
    register = Signal(shape, name=name, reset_less=True)
    m.d.sync += register.eq(value)
    return register


def registers(m: Module, name: str, values: Sequence[Value], shape: ShapeLike) -> list[Value]:
    """Add a register ``name_INDEX`` of ``shape`` without a reset for each of ``values``; return a list of registers."""
    return [registered(m, f"{name}_{index}", value, shape) for index, value in enumerate(values)]


#: Maximum delay, in cycles, that `delayed_apart` builds of flip-flops only, because these are more plentiful than LUTs.
MAX_FLIP_FLOPS = 4


def delayed_apart(m: Module, name: str, value: Value, cycles: int) -> Value:
    """Add a delay line of ``cycles`` cycles that synthesis never merges with neighbouring registers; return its output.

    Synthesis makes a shift register in LUTs of a long delay line, with the registers before and after it. A
    register with a reset is not part of a shift register. Short lines have such registers only, and longer lines have
    one at each end. `Cost.delay_apart` counts them.
    """
    if cycles <= MAX_FLIP_FLOPS:
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
