"""Registers on AXI4-Lite (Arm IHI 0022, AMBA AXI protocol specification, issue H, chapter B1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.gateware.bus.registers import REGISTER_BYTES, SPACE_BYTES, Register
from hwgen.gateware.cost import LOGIC, Cost, Resources, counter_bits

#: Bits of a register.
BITS = 8 * REGISTER_BYTES
#: Bits of an address.
ADDRESS_BITS = counter_bits(SPACE_BYTES)

#: The bus, as its master has it; names are the specification's in lower case. Accesses are always answered by OKAY.
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
class BankConfig:
    """Registers, and what holds them.

    Parameters
    ----------
    registers : tuple of Register
    """

    registers: tuple[Register, ...]

    @cached_property
    def resources(self) -> Resources:
        cost = Cost()
        holding = (register for register in self.registers if register.access not in ("r", "w"))
        held = sum(each.bits for register in holding for each in register.fields)
        # The answer of a read; the held address and what counts of the data of a write, valid bits.
        cost.ff += held + BITS + 18
        varying = sum(any(each.name == "VALUE" for each in register.fields) for register in self.registers)
        cost.lut += BITS * LOGIC.mux_luts(varying) + 3 * held + 60
        return cost.resources

    def component(self) -> Bank:
        return Bank(self)


class Bank(wiring.Component):
    """Reads and writes of registers; what they hold comes from outside, but for what software writes.

    Parameters
    ----------
    config : BankConfig

    Members
    -------
    bus : In(LITE)
        One read and one write at a time. Other offsets read as 0; writing them, or what can only be read, does nothing.
    NAME : In(32) or Out(32)
        In lower case. Of a register that can only be read what it holds (In); of others what it holds, and of one that
        does something once what is done in this cycle (Out).
    NAME_raise : In(32)
        Of a register whose bits are cleared by writing: bits to raise. Raising goes before clearing.
    NAME_written : Out(1)
        Of a register that takes each write as it is: it is written in this cycle, and the port has what is written;
        bytes that don't count are 0.
    NAME_read : Out(1)
        Of a register that can only be read: it is read in this cycle.
    clear : In(1)
        Clears the registers that have bits to raise.

    Latency and throughput
        A write does what it does in the cycle after its address and data have both come. A read is answered in the
        cycle after its address.
    """

    def __init__(self, config: BankConfig):
        self._config = config
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
        super().__init__(members)

    @property
    def config(self) -> BankConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        write, word, data, mask = self._writes(m)
        read, place = self._reads(m)
        values = Signal(BITS, name="read_value")
        with m.Switch(place):
            for register in self.config.registers:
                with m.Case(register.offset // REGISTER_BYTES):
                    port = getattr(self, register.name.lower())
                    if register.access not in ("w1s", "w"):  # which read as 0
                        m.d.comb += values.eq(port)
                    if register.access == "r":
                        m.d.comb += getattr(self, f"{register.name.lower()}_read").eq(read)
        with m.If(read):
            m.d.sync += self.bus.rdata.eq(values)
        for register in self.config.registers:
            if register.access != "r":
                hit = write & (word == register.offset // REGISTER_BYTES)
                self._hold(m, register, hit, data, mask)
        return m

    def _writes(self, m: Module) -> tuple[Value, Value, Value, Value]:
        """When something is written, the number of the word, what, and which of its bits count."""
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
        return write, word, data, Cat(each.replicate(8) for each in strobe)

    def _reads(self, m: Module) -> tuple[Value, Value]:
        """When something is read, and the number of the word."""
        bus, read = self.bus, Signal(name="read_enable")
        m.d.comb += [bus.arready.eq(~bus.rvalid), read.eq(bus.arvalid & bus.arready)]
        with m.If(read):
            m.d.sync += bus.rvalid.eq(1)
        with m.Elif(bus.rready):
            m.d.sync += bus.rvalid.eq(0)
        return read, bus.araddr[2:]

    def _hold(self, m: Module, register: Register, hit: Value, data: Value, mask: Value) -> None:
        """What software writes into a register."""
        name = register.name.lower()
        port = getattr(self, name)
        if register.access == "w":
            m.d.comb += [port.eq(data & mask), getattr(self, f"{name}_written").eq(hit)]
            return
        for each in register.fields:
            bits = slice(each.low, each.low + each.bits)
            written = data[bits] & mask[bits]
            if register.access == "w1s":
                m.d.comb += port[bits].eq(written & hit.replicate(each.bits))
                continue
            held = Signal(each.bits, init=each.reset, name=f"{name}_{each.name.lower()}")
            m.d.comb += port[bits].eq(held)
            if register.access == "rw":
                with m.If(hit):
                    m.d.sync += held.eq(held & ~mask[bits] | written)
            else:
                kept = held & ~(written & hit.replicate(each.bits))
                m.d.sync += held.eq(getattr(self, f"{name}_raise")[bits] | kept)
                with m.If(self.clear):
                    m.d.sync += held.eq(0)
