"""Bank of control and status registers on AXI4-Lite.

See Arm IHI 0022, AMBA AXI protocol specification, issue H, chapter B1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.gateware.bus.registers import REGISTER_BYTES, SPACE_BYTES, Register
from hwgen.gateware.component import ConfiguredComponent, OnDevice
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.lookup import named

#: Width of a control or status register, in bits.
BITS = 8 * REGISTER_BYTES
#: Width of a byte address on the register bus, in bits.
ADDRESS_BITS = counter_bits(SPACE_BYTES)

#: Amaranth signature of AXI4-Lite, from the side of the master. Signals have the names of the specification, in lower
#: case. Every access is answered by OKAY.
LITE = wiring.Signature(
    {
        "awaddr": Out(ADDRESS_BITS),
        "awvalid": Out(1),
        "awready": In(1),
        "wdata": Out(BITS),
        "wstrb": Out(REGISTER_BYTES),
        "wvalid": Out(1),
        "wready": In(1),
        "bresp": In(2),
        "bvalid": In(1),
        "bready": Out(1),
        "araddr": Out(ADDRESS_BITS),
        "arvalid": Out(1),
        "arready": In(1),
        "rdata": In(BITS),
        "rresp": In(2),
        "rvalid": In(1),
        "rready": Out(1),
    }
)


@dataclass(frozen=True, kw_only=True)
class BankConfig(OnDevice):
    """Configuration of a bank of control and status registers on AXI4-Lite.

    Parameters
    ----------
    registers : tuple of Register
    """

    registers: tuple[Register, ...]

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.device)
        holding = (register for register in self.registers if register.access not in ("r", "w"))
        held = sum(part.bits for register in holding for part in register.fields)
        # The answer of a read; the address and the significant data of a write; valid bits.
        cost.ff += held + BITS + 18
        varying = sum(any(part.name == "VALUE" for part in register.fields) for register in self.registers)
        cost.multiplexer(BITS, varying)
        cost.lut += 3 * held + 60
        return cost.resources

    def component(self) -> Bank:
        return Bank(self)


class Bank(ConfiguredComponent[BankConfig]):
    """Bank of control and status registers on AXI4-Lite, which stores the registers that software writes.

    Registers that software only reads are inputs.

    Parameters
    ----------
    config : BankConfig

    Members
    -------
    bus : In(LITE)
        Register bus, with one read and one write at a time. Unused offsets read as 0. Writes to unused offsets and to
        read-only registers have no effect.
    NAME : In(32) or Out(32)
        Value of a register, by its name in lower case: an input for access ``r``, otherwise an output. For access
        ``w1s``, the output pulses with the written bits.
    NAME_raise : In(32)
        Bits to set in a register with access ``w1c``. Setting has priority over clearing.
    NAME_written : Out(1)
        Pulse: a register with access ``w`` is written. Its port then has the data, with disabled bytes as 0.
    NAME_read : Out(1)
        Pulse: a register with access ``r`` is read.
    clear : In(1)
        Pulse that clears all registers with access ``w1c``.

    Latency and throughput
        A write takes effect in the cycle after both its address and its data have arrived. A read is answered in the
        cycle after its address.
    """

    def __init__(self, config: BankConfig):
        members: dict[str, wiring.Member] = {"bus": In(LITE), "clear": In(1)}
        for register in config.registers:
            name = register.name.lower()
            members[name] = (In if register.access == "r" else Out)(BITS)
            if register.access == "r":
                members[f"{name}_read"] = Out(1)
            elif register.access == "w":
                members[f"{name}_written"] = Out(1)
            elif register.access == "w1c":
                members[f"{name}_raise"] = In(BITS)
        super().__init__(config, members)

    def elaborate(self, platform):
        m = Module()
        write, word, data, mask = self._accept_writes(m)
        read, read_word = self._accept_reads(m)
        values = Signal(BITS, name="read_value")
        with m.Switch(read_word):
            for register in self.config.registers:
                with m.Case(register.offset // REGISTER_BYTES):
                    port = getattr(self, register.name.lower())
                    if register.access not in ("w1s", "w"):  # these read as 0
                        m.d.comb += values.eq(port)
                    if register.access == "r":
                        m.d.comb += getattr(self, f"{register.name.lower()}_read").eq(read)
        with m.If(read):
            m.d.sync += self.bus.rdata.eq(values)
        for register in self.config.registers:
            if register.access != "r":
                hit = named(write & (word == register.offset // REGISTER_BYTES), "register_hit")
                self._update_register(m, register, hit, data, mask)
        return m

    def _accept_writes(self, m: Module) -> tuple[Value, Value, Value, Value]:
        """Add logic that accepts AXI4-Lite writes; return a tuple: write enable, word index, data, bit mask."""
        bus, write = self.bus, Signal(name="write_enable")
        word, has_word = Signal(ADDRESS_BITS - 2, name="write_word_index"), Signal(name="has_write_address")
        data, strobe, has_data = (
            Signal(BITS, name="write_data"),
            Signal(REGISTER_BYTES, name="write_strobe"),
            Signal(name="has_write_data"),
        )
        m.d.comb += [
            bus.awready.eq(~has_word),
            bus.wready.eq(~has_data),
            write.eq(has_word & has_data & ~bus.bvalid),
        ]
        with m.If(bus.awvalid & bus.awready):
            m.d.sync += [has_word.eq(1), word.eq(bus.awaddr[2:])]
        with m.If(bus.wvalid & bus.wready):
            m.d.sync += [has_data.eq(1), data.eq(bus.wdata), strobe.eq(bus.wstrb)]
        with m.If(write):
            m.d.sync += [has_word.eq(0), has_data.eq(0), bus.bvalid.eq(1)]
        with m.Elif(bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        return write, word, data, Cat(enable.replicate(8) for enable in strobe)

    def _accept_reads(self, m: Module) -> tuple[Value, Value]:
        """Add logic that accepts AXI4-Lite reads; return a pair: read enable bit and the register's word index."""
        bus, read = self.bus, Signal(name="read_enable")
        m.d.comb += [bus.arready.eq(~bus.rvalid), read.eq(bus.arvalid & bus.arready)]
        with m.If(read):
            m.d.sync += bus.rvalid.eq(1)
        with m.Elif(bus.rready):
            m.d.sync += bus.rvalid.eq(0)
        return read, bus.araddr[2:]

    def _update_register(self, m: Module, register: Register, hit: Value, data: Value, mask: Value) -> None:
        """Add the logic that applies software's writes to one register, according to its `Access` kind."""
        name = register.name.lower()
        port = getattr(self, name)
        if register.access == "w":
            m.d.comb += [port.eq(data & mask), getattr(self, f"{name}_written").eq(hit)]
            return
        for part in register.fields:
            bits = slice(part.low, part.low + part.bits)
            written = named(data[bits] & mask[bits], "written_bits")
            if register.access == "w1s":
                m.d.comb += port[bits].eq(written & hit.replicate(part.bits))
                continue
            held = Signal(part.bits, init=part.reset, name=f"{name}_{part.name.lower()}")
            m.d.comb += port[bits].eq(held)
            if register.access == "rw":
                with m.If(hit):
                    m.d.sync += held.eq(held & ~mask[bits] | written)
            else:
                uncleared = held & ~(written & hit.replicate(part.bits))
                m.d.sync += held.eq(getattr(self, f"{name}_raise")[bits] | uncleared)
                with m.If(self.clear):
                    m.d.sync += held.eq(0)
