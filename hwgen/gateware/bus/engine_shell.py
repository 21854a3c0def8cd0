"""Bus shell of the programmable engine: AXI4-Lite registers that start programs, an interrupt, and the memory bus."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from amaranth import Cat, ClockDomain, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hwgen.devices import Device
from hwgen.gateware.bus.base import CONTROL, AddressSpace, BusShell, BusShellConfig
from hwgen.gateware.bus.engine_registers import BASE_BITS, engine_registers
from hwgen.gateware.bus.lite import LITE, Bank
from hwgen.gateware.bus.memory_ports import MemoryPortsConfig, ports_resources
from hwgen.gateware.bus.registers import Register
from hwgen.gateware.bus.wrapper import Wrapper
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.engine import axi
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.job import digest
from hwgen.gateware.engine.port import PACE, Error, check_pace

#: Name of an engine's bus to memory, and prefix of the names of its ports. Several ports have numbers after it.
MEMORY = "m_axi_mem"


@dataclass(frozen=True, kw_only=True)
class EngineShellConfig(BusShellConfig):
    """Configuration of the bus shell that connects a programmable engine to registers, an interrupt and memory.

    Parameters
    ----------
    engine : EngineConfig
    pace, pace_beats : int
        Cycles that ``pace_beats`` memory beats take, until software writes the register ``PACE``.
    build_hash : int
        Identity of the design, 64 bits.

    Raises
    ------
    ConfigError
        If the pace is out of the engine's range.
    """

    engine: EngineConfig
    pace: int = 1
    pace_beats: int = 1
    build_hash: int = 0

    circuit = "engine"
    #: AXI4-Streams of an engine's shell: none.
    inputs = outputs = ()

    def __post_init__(self) -> None:
        check_pace(self.pace, self.pace_beats)

    @property
    def device(self) -> Device:
        return self.engine.device

    def title(self, top: str) -> str:
        return "programmable engine"

    @cached_property
    def registers(self) -> tuple[Register, ...]:
        return engine_registers(self.build_hash, int(digest(self.engine), 16), self.pace, self.pace_beats)

    @property
    def memory(self) -> axi.Master:
        """`axi.Master`: Amaranth signature of the engine's AXI4 bus to memory, as wide as all memory ports together."""
        return axi.Master(data_bytes=self.engine.bus_bytes)

    @property
    def port_names(self) -> dict[str, str]:
        """Dictionary from the shell's memory bus, ``mem`` or ``mem_0`` .., to the wrapper's prefix of port names."""
        ports = self.engine.ports
        suffixes = [f"_{index}" for index in range(ports)] if ports > 1 else [""]
        return {f"mem{suffix}": f"{MEMORY}{suffix}" for suffix in suffixes}

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.device)
        # Eight counters of 32 bits, one of 64 with its holding register; the base, delayed events, the state of a run.
        cost.ff += 8 * 32 + 64 + 32 + (32 - BASE_BITS) + 4 + 6
        # Written registers that have more significant bits than the bank's estimate assumes.
        cost.ff += (32 - BASE_BITS) + PACE.size
        # Adders of addresses. Plain counters take no LUTs.
        cost.lut += 2 * (32 - BASE_BITS) + 30
        return cost.resources + self.bank.resources + ports_resources(self.engine)

    @property
    def signature(self) -> wiring.Signature:
        return wiring.Signature(
            {
                "control": In(LITE),
                "interrupt": Out(1),
                **dict.fromkeys(self.port_names, Out(axi.Master(data_bytes=self.engine.port_bytes))),
                "m_axi": In(self.memory),
                "start": Out(1),
                "stop": Out(1),
                "pace": Out(PACE),
                "done": In(1),
                "error": In(Error),
            }
        )

    @property
    def prefixes(self) -> dict[str, str]:
        return {"control": CONTROL, **self.port_names}

    @property
    def parameters(self) -> dict[str, dict[str, str]]:
        """Dictionary from bus or port name to its Vivado interface parameters, a dict from key to text.

        For the bus to memory see PG373, Advanced Settings Parameters.
        """
        engine = self.engine
        memory = {
            # On a bus of several words, some beats have one word.
            "SUPPORTS_NARROW_BURST": str(int(engine.port_bytes > LANES)),
            "MAX_BURST_LENGTH": str(axi.MAX_BEATS),
            "NUM_READ_OUTSTANDING": str(engine.outstanding),
            "NUM_WRITE_OUTSTANDING": str(engine.outstanding),
        }
        buses = ":".join([*self.port_names.values(), CONTROL])
        return {
            "aclk": {"ASSOCIATED_BUSIF": buses, "ASSOCIATED_RESET": "aresetn"},
            "aresetn": {"POLARITY": "ACTIVE_LOW"},
            **dict.fromkeys(self.port_names.values(), memory),
            "interrupt": {"SENSITIVITY": "LEVEL_HIGH"},
        }

    @property
    def spaces(self) -> tuple[AddressSpace, ...]:
        size, bits = 1 << self.memory.address_bits, 8 * self.engine.port_bytes
        return tuple(AddressSpace(name=name, bytes=size, bits=bits) for name in self.port_names.values())

    def component(self) -> EngineShell:
        return EngineShell(self)

    def wrapper(self, top: str) -> EngineWrapper:
        return EngineWrapper(self, top)


class EngineWrapper(Wrapper):
    """Bus wrapper of the programmable engine: the bus shell and the engine in one module, clocked by ``aclk``.

    Members, in addition to every wrapper's
    -------
    m_axi_mem_awaddr ... : In, Out
        AXI4 master to memory; several ones are called ``m_axi_mem_0`` and so on.
    """


class EngineShell(BusShell[EngineShellConfig]):
    """Bus shell of the programmable engine: registers that start program runs and report how they ended.

    Parameters
    ----------
    config : EngineShellConfig

    Members
    -------
    control : In(LITE)
        Register bus.
    interrupt : Out(1)
        Interrupt, level-sensitive, active high.
    mem, or mem_0 ... : Out(axi.Master)
        Buses to memory.
    m_axi : In(axi.Master)
        Bus from the engine. Its addresses are relative to `PROGRAM_BASE`: the first job has address 0.
    start, stop, pace, done, error
        Ports of the engine.

    Latency and throughput
        The engine starts 2 cycles after both address and data of the write to `CONTROL` have arrived. With one port,
        no register lies between engine and memory, so that a run takes as many cycles as without the shell.
    """

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = bank = Bank(self.config.bank)
        connect(m, outside=flipped(self.control), bank=bank.bus)
        self._bus = self._add_ports(m)
        busy, ended = self._add_run_control(m, bank)
        failed = Signal(name="has_failed")
        # Events are counted one cycle later, because carry chains are long.
        ran = Signal(name="is_running")
        end = Signal(name="run_end_delayed")
        m.d.sync += [ran.eq(busy & ~ended), end.eq(ended)]
        self._add_cycle_counters(m, bank, ran, end)
        self._add_counter(m, bank, "frames", end & ~failed)
        self._add_counter(m, bank, "failures", end & failed)
        self._add_traffic_counters(m, bank)

        code = Signal(Error, name="error_code")
        m.d.comb += [
            code.eq(Mux(busy, Error.NONE, self.error)),
            failed.eq(self.error != Error.NONE),
            bank.error.eq(code),
            bank.status.eq(Cat(busy, code != Error.NONE, self.interrupt, self.done & ~busy)),
            bank.interrupt_status_raise.eq(Cat(ended, ended & failed)),
            self.pace.eq(bank.pace[: PACE.size]),
        ]
        m.d.sync += self.interrupt.eq((bank.interrupt_status & bank.interrupt_enable).any())
        for register in self.config.registers:
            if register.reset and register.access == "r":
                m.d.comb += getattr(bank, register.name.lower()).eq(register.reset)
        return m

    def connections(self, domain: ClockDomain) -> dict[str, Any]:
        ports = {
            "i_clk": domain.clk,
            "i_rst": domain.rst,
            "i_program_base": Const(0, 32),
            **{f"i_{name}": getattr(self, name) for name in ("start", "stop", "pace")},
            "o_done": self.done,
            "o_error": self.error.as_value(),
        }
        for name, member in self.config.memory.members.items():
            ports[f"{'o' if member.flow is Out else 'i'}_m_axi__{name}"] = Value.cast(getattr(self.m_axi, name))
        return ports

    def _add_ports(self, m: Module) -> wiring.PureInterface:
        """Return the bus for the engine's bursts: the only memory port, or the input of a circuit for several."""
        if self.config.engine.ports == 1:
            return self.mem
        m.submodules.memory_ports = ports = MemoryPortsConfig(engine=self.config.engine).component()
        for index, name in enumerate(self.config.port_names):
            connect(m, inside=getattr(ports, f"port_{index}"), outside=flipped(getattr(self, name)))
        return ports.bus

    def _add_run_control(self, m: Module, bank: Bank) -> tuple[Value, Value]:
        """Add logic that starts and stops program runs; return a pair of bits: a run is active, a run just ended.

        Return whether a run is in progress, and whether it ends in this cycle.
        """
        busy = Signal(name="busy")
        requested = Signal(name="start_request")
        ended = Signal(name="run_end")
        base = Signal(32 - BASE_BITS, name="base_page")
        m.d.comb += [
            requested.eq(bank.control[0] & ~busy),
            # In the cycle of a start, ``done`` still belongs to the run before.
            ended.eq(busy & ~self.start & self.done),
        ]
        m.d.sync += [
            self.start.eq(requested),
            busy.eq(requested | (busy & ~ended)),
            # Held, because the engine resets itself at the start of a run.
            self.stop.eq(busy & ~ended & (self.stop | bank.control[1])),
        ]
        with m.If(requested):
            m.d.sync += base.eq(bank.program_base[BASE_BITS:])
        for name, member in self.config.memory.members.items():
            engine, memory = (getattr(bus, name) for bus in (self.m_axi, self._bus))
            source, sink = (engine, memory) if member.flow is Out else (memory, engine)
            if name in ("araddr", "awaddr"):
                page = Signal.like(base, name=f"{name}_page")
                m.d.comb += [page.eq(source[BASE_BITS:] + base), sink.eq(Cat(source[:BASE_BITS], page))]
            else:
                m.d.comb += sink.eq(source)
        return busy, ended

    def _add_cycle_counters(self, m: Module, bank: Bank, ran: Value, end: Value) -> None:
        """Add the counters of clock cycles of the last run and of all runs, which software reads as registers."""
        since = Signal(32, name="cycles_since_start")
        last = Signal(32, name="frame_cycles_held")
        cycles = Signal(64, name="busy_cycles")
        high = Signal(32, name="cycles_high_held")
        m.d.sync += [since.eq(Mux(ran, since + 1, 0)), cycles.eq(cycles + ran)]
        with m.If(end):
            m.d.sync += last.eq(since)
        with m.If(bank.cycles_low_read):
            m.d.sync += high.eq(cycles[32:])
        m.d.comb += [bank.frame_cycles.eq(last), bank.cycles_low.eq(cycles[:32]), bank.cycles_high.eq(high)]

    def _add_traffic_counters(self, m: Module, bank: Bank) -> None:
        """Add the counters of beats read and written and of stalled cycles on the memory bus, readable as registers."""
        bus = self._bus
        addressed = bus.awvalid & ~bus.awready
        for name, counts in (
            ("read", bus.rvalid & bus.rready),
            ("read_stalled", bus.arvalid & ~bus.arready),
            ("written", bus.wvalid & bus.wready),
            ("write_stalled", addressed | (bus.wvalid & ~bus.wready)),
        ):
            # Counted one cycle later, because signals from outside can arrive late in their cycle.
            happens = Signal(name=f"{name}_event")
            m.d.sync += happens.eq(counts)
            self._add_counter(m, bank, f"m_axi_mem_{name}", happens)

    def _add_counter(self, m: Module, bank: Bank, name: str, counts: Value) -> None:
        """Add a 32-bit counter of cycles with ``counts`` high, readable as register ``name``."""
        count = Signal(32, name=f"{name}_count")
        m.d.sync += count.eq(count + counts)
        m.d.comb += getattr(bank, name).eq(count)
