"""Check for combinational cycles that takes a small part of the time of Amaranth's, which follows each bit.

The cells of a netlist form a graph, and a netlist whose graph of cells has no cycle has none of bits either. Amaranth's
own check decides the rest, such as a signal whose bits depend on each other in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from graphlib import CycleError, TopologicalSorter
from typing import Any

from amaranth.hdl import _nir  # type: ignore[attr-defined]  # not in the stubs

#: Cells without a path from an input to an output in the same cycle. Amaranth takes instances for such cells.
_PATHLESS = (_nir.Top, _nir.FlipFlop, _nir.SyncReadPort, _nir.Instance)


@contextmanager
def checked_by_cell() -> Iterator[None]:
    """Replace Amaranth's check of netlists for combinational cycles in the body of a ``with`` statement.

    Amaranth raises the same exception for the same netlists.
    """
    netlists: Any = _nir.Netlist
    by_bit = netlists.check_comb_cycles

    def check(netlist: Any) -> None:
        if _has_cycle(netlist):
            by_bit(netlist)

    netlists.check_comb_cycles = check
    try:
        yield
    finally:
        netlists.check_comb_cycles = by_bit


def _has_cycle(netlist: Any) -> bool:
    """Return whether combinational cells of a netlist, or signals that are connected, depend on each other in a cycle.

    The nodes of the graph are cells, by their index from 0 on, and nets that no cell drives directly, by their negative
    number. Constants count as outputs of cell 0, the top, which has no inputs here.
    """
    inputs: dict[int, set[int]] = {net: {_node(source)} for net, source in netlist.connections.items()}
    for index, cell in enumerate(netlist.cells):
        if not isinstance(cell, _PATHLESS):
            inputs[index] = {_node(net) for net in cell.input_nets()}
    try:
        TopologicalSorter(inputs).prepare()
    except CycleError:
        return True
    return False


def _node(net: Any) -> int:
    """Return the graph's node that drives a net."""
    return net if net.is_late else net >> 16
