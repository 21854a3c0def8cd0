"""Names for intermediate results of Amaranth expressions, chosen in the code, for wires of the emitted Verilog.

A user's Verilog has a wire for some operators' results. Signals carry their names; a result carries its name where
Amaranth keeps a value's place in the source, which reaches the Verilog writer (`hwgen.verilog`).
"""

from __future__ import annotations

from typing import TypeVar

from amaranth.hdl import Value
from amaranth.hdl._ast import Operator, Part, Slice, SwitchValue  # type: ignore[attr-defined]  # not in the stubs

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
