"""Sums of two maps by tables that are written at run time: what `hwgen.gateware.table_sum` does with constants.

Three tables of 256 entries serve all lanes. Two hold, for each value of an operand, its share of the output in fixed
point, with `FRACTION` bits behind the point. The third says, by the 8 low bits of a sum's whole part, from which
fraction on it is rounded up. Who makes the tables (`hwgen.templates.joins`) proves for all pairs of values that the
outcome is the one that is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Module, Signal, signed, unsigned
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.gateware.arithmetic.shares import FRACTION, SHARE_BITS, WHOLE_BITS
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.engine.config import LANES, TABLE_WORDS
from hwgen.gateware.lookup import delayed, ram_attributes
from hwgen.gateware.ports import read_port, write_port

#: Of `TableAdd`, in the order in which words count them: shares of the first operand and of the second, and rounding.
TABLES = (signed(SHARE_BITS), signed(SHARE_BITS), unsigned(FRACTION + 1))

#: A word of a table: of 256 words each, one table after the other.
TABLE_WRITE = data.StructLayout({"index": 10, "data": 64})


@dataclass(frozen=True, kw_only=True)
class TableAddConfig:
    """Lanes of a `TableAdd`."""

    lanes: int = LANES

    #: Cycles from a pair of words to their sum.
    latency = 6

    @cached_property
    def resources(self) -> Resources:
        cost, total = Cost(), SHARE_BITS + 1
        for shape in TABLES:
            for _ in range(self.lanes):
                cost.ram(shape.width, TABLE_WORDS, "block")
        # Registers behind the tables, the sum three times over, and its parts. An adder and a comparison.
        cost.ff += self.lanes * (sum(shape.width for shape in TABLES) + 3 * total + WHOLE_BITS + 1)
        cost.lut += self.lanes * (total + 17)
        return cost.resources

    def component(self) -> TableAdd:
        return TableAdd(self)


class TableAdd(wiring.Component):
    """``round(table_0[a] + table_1[b])``, in two parts whose sum it is.

    Parameters
    ----------
    config : TableAddConfig

    Members
    -------
    write : In(stream, always ready)
        A word of a table. Table ``index // 256``, entry ``index % 256``: that of the value with these bits. What is
        being read at the same time is not defined.
    first, second : In
        Values of the operands, by lane.
    whole, carry : Out
        By lane. ``whole + carry`` is the sum.

    Latency and throughput
        A word a cycle; its sum comes ``config.latency`` cycles later. Never stalls.

    Number range
        Shares from ``-2**35`` to ``2**35 - 1``; fractions from 0 to ``2**24``, of which the last one is never reached.
    """

    def __init__(self, config: TableAddConfig):
        self._config = config
        values = data.ArrayLayout(unsigned(8), config.lanes)
        super().__init__(
            {
                "write": In(stream.Signature(TABLE_WRITE, always_ready=True)),
                "first": In(values),
                "second": In(values),
                "whole": Out(data.ArrayLayout(signed(WHOLE_BITS), config.lanes)),
                "carry": Out(config.lanes),
            }
        )

    @property
    def config(self) -> TableAddConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        for lane in range(self.config.lanes):
            shares = [
                table(m, f"share_{lane}_{number}", self.write, number, TABLES[number], values[lane])
                for number, values in enumerate((self.first, self.second))
            ]
            total = Signal(signed(SHARE_BITS + 1), name=f"sum_{lane}", reset_less=True)
            m.d.sync += total.eq(shares[0] + shares[1])
            least = table(m, f"rounding_{lane}", self.write, 2, TABLES[2], total[FRACTION : FRACTION + 8])
            # With a reset: a shift register would take LUTs, and more time than there is in front of the comparison.
            late = delayed(m, f"sum_{lane}_delayed", total, 2, reset_less=False)
            whole, carry = late >> FRACTION, late[:FRACTION] >= least
            m.d.comb += self.whole[lane].eq(delayed(m, f"whole_{lane}", whole, 1))
            m.d.comb += self.carry[lane].eq(delayed(m, f"carry_{lane}", carry, 1))
        return m


def table(m: Module, name: str, write, number: int, shape, index) -> Signal:
    """The entry at ``index`` of a table in block RAM that ``write`` fills, two cycles later."""
    m.submodules[name] = entries = memory.Memory(
        shape=shape, depth=TABLE_WORDS, init=[], attrs=ram_attributes(TABLE_WORDS, "block")
    )
    into, out = write_port(entries), read_port(entries)
    m.d.comb += [
        into.addr.eq(write.payload.index),
        into.data.eq(write.payload.data),
        into.en.eq(write.valid & (write.payload.index[8:] == number)),
        out.addr.eq(index),
    ]
    value = Signal(shape, name=f"{name}_value", reset_less=True)
    m.d.sync += value.eq(out.data)
    return value
