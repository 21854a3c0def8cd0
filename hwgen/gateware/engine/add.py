"""Adder of two quantised feature maps for the engine, which uses lookup tables that programs write at run time.

`hwgen.gateware.table_sum` is the same with constant tables. Three tables of 256 entries serve all lanes. Two tables
store, for each value of an operand, its share of the output in fixed point with 24 fractional bits. The third
table is indexed by the 8 low bits of the sum's integer part, and stores the smallest fraction that is rounded up.
`hwgen.templates.joins` makes the tables, and proves for all pairs of values that the result is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Module, Signal, Value, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hwgen.devices import Device
from hwgen.gateware.arithmetic.shares import TABLES, WHOLE_BITS, WRITTEN_SUM
from hwgen.gateware.component import ConfiguredComponent, OnDevice
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.engine.config import LANES, TABLE_WORDS
from hwgen.gateware.lookup import delayed, ram, read_port, write_port

#: Amaranth layout of one write into the engine's lookup tables: ``data`` is the new word of entry ``index % 256`` of
#: table ``index // 256``.
TABLE_WRITE = data.StructLayout({"index": 10, "data": 64})


@dataclass(frozen=True, kw_only=True)
class TableAddConfig(OnDevice):
    """Configuration of `TableAdd`, the engine's table-based adder of two feature maps: number of channels per cycle."""

    lanes: int = LANES

    #: Latency in cycles, from the operands of all channels at the adder's inputs to the rounded sums at its outputs.
    latency = WRITTEN_SUM.latency

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.device)
        for shape in TABLES:
            for _ in range(self.lanes):
                cost.ram(shape.width, TABLE_WORDS, "block")
        WRITTEN_SUM.count(cost, self.lanes)
        return cost.resources

    def component(self) -> TableAdd:
        return TableAdd(self)


class TableAdd(ConfiguredComponent[TableAddConfig]):
    """Table-based adder of two feature maps: ``round(table_0[a] + table_1[b])`` per channel, as whole part and carry.

    Parameters
    ----------
    config : TableAddConfig

    Members
    -------
    write : In(stream, always ready)
        Writes of table entries: table ``index // 256``, entry ``index % 256``. The entry belongs to the value with
        these bits. A read in the cycle of a write returns an undefined entry.
    first, second : In
        Values of the two operands, by lane.
    whole, carry : Out
        Integer part and rounding carry of each lane's result, which is ``whole + carry``.

    Latency and throughput
        One word per cycle. The result of a word follows ``config.latency`` cycles later. Never stalls.

    Number range
        Shares from ``-2**35`` to ``2**35 - 1``. Fractions from 0 to ``2**24``; a fraction of ``2**24`` is never
        reached, so the sum is never rounded up.
    """

    def __init__(self, config: TableAddConfig):
        values = data.ArrayLayout(unsigned(8), config.lanes)
        super().__init__(
            config,
            {
                "write": In(stream.Signature(TABLE_WRITE, always_ready=True)),
                "first": In(values),
                "second": In(values),
                "whole": Out(data.ArrayLayout(signed(WHOLE_BITS), config.lanes)),
                "carry": Out(config.lanes),
            },
        )

    def elaborate(self, platform):
        m = Module()
        for lane in range(self.config.lanes):

            def read(index: int, value: Value, tables=(f"share_{lane}_0", f"share_{lane}_1", f"rounding_{lane}")):
                return add_table(m, self.config.device, tables[index], self.write, index, TABLES[index], value)

            whole, carry = WRITTEN_SUM.add_to(m, f"sum_{lane}", read, (self.first[lane], self.second[lane]))
            m.d.comb += self.whole[lane].eq(delayed(m, f"whole_{lane}", whole, 1))
            m.d.comb += self.carry[lane].eq(delayed(m, f"carry_{lane}", carry, 1))
        return m


def add_table(m: Module, device: Device, name: str, write, table_index: int, shape, index) -> Signal:
    """Add a 256-entry table in block RAM, which the stream ``write`` fills; return entry ``index`` two cycles later."""
    m.submodules[name] = entries = ram(device, shape, TABLE_WORDS, "block")
    into, out = write_port(entries), read_port(entries)
    m.d.comb += [
        into.addr.eq(write.payload.index),
        into.data.eq(write.payload.data),
        into.en.eq(write.valid & (write.payload.index[8:] == table_index)),
        out.addr.eq(index),
    ]
    value = Signal(shape, name=f"{name}_value", reset_less=True)
    m.d.sync += value.eq(out.data)
    return value
