"""The shell around an engine: registers on AXI4-Lite that start programs, an interrupt, the way to memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hwgen.errors import ConfigError
from hwgen.gateware.bus.engine_registers import BASE_BITS, engine_registers
from hwgen.gateware.bus.lite import LITE, Bank, BankConfig
from hwgen.gateware.bus.registers import Register
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.engine import axi
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.job import digest
from hwgen.gateware.engine.port import PACE_BITS, Error


@dataclass(frozen=True, kw_only=True)
class EngineShellConfig:
    """What stands between an engine and its buses.

    Parameters
    ----------
    engine : EngineConfig
    pace : int
        Cycles that a beat of memory takes, until software says otherwise.
    build_hash : int
        64 bits that tell this design from others.

    Raises
    ------
    ConfigError
        If the pace is none that the engine has.
    """

    engine: EngineConfig
    pace: int = 1
    build_hash: int = 0

    #: It has no streams.
    inputs = outputs = ()

    def __post_init__(self) -> None:
        if not 1 <= self.pace < 1 << PACE_BITS:
            raise ConfigError(f"pace must be from 1 to {(1 << PACE_BITS) - 1}, not {self.pace!r}")

    @cached_property
    def registers(self) -> tuple[Register, ...]:
        """By offset."""
        return engine_registers(self.build_hash, int(digest(self.engine), 16), self.pace)

    @property
    def bank(self) -> BankConfig:
        return BankConfig(registers=self.registers)

    @property
    def memory(self) -> axi.Master:
        """The bus to memory."""
        return axi.Master(data_bytes=self.engine.bus_bytes)

    @cached_property
    def resources(self) -> Resources:
        cost = Cost()
        # Eight counters of 32 bits, one of 64 and what is held of it; the base, what is counted a cycle later, the run.
        cost.ff += 8 * 32 + 64 + 32 + (32 - BASE_BITS) + 4 + 6
        # What is written has more bits that count than the bank expects.
        cost.ff += (32 - BASE_BITS) + PACE_BITS
        # Addresses are added to; counting alone takes no LUTs.
        cost.lut += 2 * (32 - BASE_BITS) + PACE_BITS + 30
        return cost.resources + self.bank.resources

    def component(self) -> EngineShell:
        return EngineShell(self)


def signature_of(config: EngineShellConfig) -> wiring.Signature:
    """What `EngineShell` is connected by."""
    return wiring.Signature(
        {
            "control": In(LITE),
            "interrupt": Out(1),
            "mem": Out(config.memory),
            "m_axi": In(config.memory),
            "start": Out(1),
            "stop": Out(1),
            "pace": Out(PACE_BITS),
            "done": In(1),
            "error": In(Error),
        }
    )


class EngineShell(wiring.Component):
    """Registers that start an engine and say what became of it.

    Parameters
    ----------
    config : EngineShellConfig

    Members
    -------
    control : In(LITE)
        The registers.
    interrupt : Out(1)
    mem : Out(axi.Master)
        To memory.
    m_axi : In(axi.Master)
        From the engine. Its addresses count from `PROGRAM_BASE`, so that the first job's is 0.
    start, stop, pace, done, error
        The engine's.

    Latency and throughput
        The engine starts 2 cycles after address and data of the write to `CONTROL` have both come. Between the engine
        and memory there is no register, so that a run takes no cycle more than without the shell.
    """

    def __init__(self, config: EngineShellConfig):
        self._config = config
        super().__init__(signature_of(config))

    @property
    def config(self) -> EngineShellConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = bank = Bank(self.config.bank)
        connect(m, outside=flipped(self.control), bank=bank.bus)
        busy, ended = self._run(m, bank)
        failed = Signal(name="has_failed")
        # Counted a cycle later, as carry chains are long.
        ran = Signal(name="is_running")
        end = Signal(name="run_end_delayed")
        m.d.sync += [ran.eq(busy & ~ended), end.eq(ended)]
        self._times(m, bank, ran, end)
        self._counter(m, bank, "frames", end & ~failed)
        self._counter(m, bank, "failures", end & failed)
        self._traffic(m, bank)

        code = Signal(Error, name="error_code")
        pace = bank.pace[:PACE_BITS]
        m.d.comb += [
            code.eq(Mux(busy, Error.NONE, self.error)),
            failed.eq(self.error != Error.NONE),
            bank.error.eq(code),
            bank.status.eq(Cat(busy, code != Error.NONE, self.interrupt, self.done & ~busy)),
            bank.interrupt_status_raise.eq(Cat(ended, ended & failed)),
            self.pace.eq(Mux(pace == 0, 1, pace)),
        ]
        m.d.sync += self.interrupt.eq((bank.interrupt_status & bank.interrupt_enable).any())
        for register in self.config.registers:
            if register.reset and register.access == "r":
                m.d.comb += getattr(bank, register.name.lower()).eq(register.reset)
        return m

    def _run(self, m: Module, bank: Bank) -> tuple[Value, Value]:
        """Start, stop and the engine's way to memory; whether a run goes on, and whether it ends in this cycle."""
        busy = Signal(name="busy")
        asked = Signal(name="start_request")
        ended = Signal(name="run_end")
        base = Signal(32 - BASE_BITS, name="base_page")
        m.d.comb += [
            asked.eq(bank.control[0] & ~busy),
            # In the cycle of its start the engine is still done with the run before.
            ended.eq(busy & ~self.start & self.done),
        ]
        m.d.sync += [
            self.start.eq(asked),
            busy.eq(asked | (busy & ~ended)),
            # Held, as the engine begins a run by resetting itself.
            self.stop.eq(busy & ~ended & (self.stop | bank.control[1])),
        ]
        with m.If(asked):
            m.d.sync += base.eq(bank.program_base[BASE_BITS:])
        for name, member in self.config.memory.members.items():
            engine, memory = (getattr(bus, name) for bus in (self.m_axi, self.mem))
            source, sink = (engine, memory) if member.flow is Out else (memory, engine)
            if name in ("araddr", "awaddr"):
                page = Signal.like(base, name=f"{name}_page")
                m.d.comb += [page.eq(source[BASE_BITS:] + base), sink.eq(Cat(source[:BASE_BITS], page))]
            else:
                m.d.comb += sink.eq(source)
        return busy, ended

    def _times(self, m: Module, bank: Bank, ran: Value, end: Value) -> None:
        """Cycles of the last run, and of all: from the engine's start to its end."""
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

    def _traffic(self, m: Module, bank: Bank) -> None:
        """What moves on the bus to memory, and what waits."""
        bus = self.mem
        addressed = bus.awvalid & ~bus.awready
        for name, counts in (
            ("read", bus.rvalid & bus.rready),
            ("read_stalled", bus.arvalid & ~bus.arready),
            ("written", bus.wvalid & bus.wready),
            ("write_stalled", addressed | (bus.wvalid & ~bus.wready)),
        ):
            # Counted a cycle later: the other end of the bus may be late in its cycle.
            happens = Signal(name=f"{name}_event")
            m.d.sync += happens.eq(counts)
            self._counter(m, bank, f"m_axi_mem_{name}", happens)

    def _counter(self, m: Module, bank: Bank, name: str, counts: Value) -> None:
        """A register that counts the cycles in which something holds."""
        count = Signal(32, name=f"{name}_count")
        m.d.sync += count.eq(count + counts)
        m.d.comb += getattr(bank, name).eq(count)
