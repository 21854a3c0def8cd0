"""Memory ports of an engine: random bursts over ports with random stalls, and the rate that several ports give."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from random import Random

import pytest
from amaranth.sim import Simulator
from counted import cases_in_the_long_run
from hypothesis import given
from hypothesis import strategies as st

from hwgen.errors import ConfigError
from hwgen.gateware.bus.memory_ports import MemoryPortsConfig
from hwgen.gateware.engine.axi import Response
from hwgen.gateware.engine.config import EngineConfig
from hwgen.tools import synthesis

#: Bytes of the memory that are read, and of as many behind them that are written.
READ_BYTES = 1 << 14


def fails(address: int) -> bool:
    """Return whether reads of an address fail: one word of 8 bytes in 512 bytes, so that parts of a beat fail."""
    return address % 512 < 8


def config_of(bus_bytes: int, ports: int) -> MemoryPortsConfig:
    return MemoryPortsConfig(engine=EngineConfig(bus_bytes=bus_bytes, outstanding=8, ports=ports))


@dataclass
class Burst:
    """Burst of the engine's bus: address, beats, and bytes per beat."""

    address: int
    beats: int
    size: int

    def addresses(self) -> list[int]:
        return [self.address + index * self.size for index in range(self.beats)]


def bursts(random: Random, bus_bytes: int, count: int, first: int, whole: bool) -> list[Burst]:
    """Return random bursts in the 2 KiB blocks of a region, without overlap: wide ones, or of one word a beat."""
    found = []
    for block in range(count):
        begin = first + 2048 * (block % (READ_BYTES // 2048))
        size = bus_bytes if whole or random.random() < 0.7 else 8
        most = 2048 // bus_bytes
        beats = most if whole else random.randint(1, most)
        found.append(Burst(begin + size * random.randint(0, 2048 // size - beats), beats, size))
    return found


class Memory:
    """Memory port that answers in order; ``stall`` is the probability that it does nothing in a cycle."""

    def __init__(self, port, contents: bytearray, random: Random, stall: float):
        self.port, self.contents, self.random, self.stall = port, contents, random, stall
        self.reads: deque = deque()
        self.requests: deque = deque()
        self.words: deque = deque()
        self.answers: deque = deque()
        self.awaits_words = random.random() < 0.5  # accepts write requests only while there are words
        self.offers_read = False
        self.held: dict[str, object] = {}

    def _beat_bytes(self, burst: Burst, address: int) -> bytes:
        width = self.port.signature.data_bytes
        begin = address // width * width
        return bytes(self.contents[begin : begin + width])

    def offer(self, ctx) -> None:
        """Set the signals of this cycle."""
        port, still = self.port, self.offers_read
        ctx.set(port.arready, self._acts() and len(self.reads) < 300)
        ctx.set(port.awready, self._acts() and (not self.awaits_words or ctx.get(port.wvalid)))
        ctx.set(port.wready, self._acts())
        self.offers_read = bool(self.reads) and (still or self._acts())
        ctx.set(port.rvalid, self.offers_read)
        if self.reads:
            beat, is_bad, last = self.reads[0]
            ctx.set(port.rdata, int.from_bytes(beat, "little"))
            ctx.set(port.rresp, Response.SLAVE_ERROR if is_bad else Response.OKAY)
            ctx.set(port.rlast, last)
        ctx.set(port.bvalid, bool(self.answers))
        if self.answers:
            ctx.set(port.bresp, self.answers[0])

    def _acts(self) -> bool:
        return self.random.random() >= self.stall

    def take(self, ctx) -> None:
        """Take what is accepted in this cycle."""
        port = self.port
        self._check_held(ctx)
        if ctx.get(port.arvalid) and ctx.get(port.arready):
            burst = Burst(ctx.get(port.araddr), ctx.get(port.arlen) + 1, 1 << ctx.get(port.arsize))
            assert burst.address % 4096 + burst.beats * burst.size <= 4096
            for index, address in enumerate(burst.addresses()):
                is_bad = any(map(fails, range(address, address + burst.size)))
                self.reads.append((self._beat_bytes(burst, address), is_bad, index == burst.beats - 1))
        if ctx.get(port.rvalid) and ctx.get(port.rready):
            self.reads.popleft()
            self.offers_read = False
        if ctx.get(port.bvalid) and ctx.get(port.bready):
            self.answers.popleft()
        if ctx.get(port.awvalid) and ctx.get(port.awready):
            self.requests.append(Burst(ctx.get(port.awaddr), ctx.get(port.awlen) + 1, 1 << ctx.get(port.awsize)))
        if ctx.get(port.wvalid) and ctx.get(port.wready):
            self.words.append((ctx.get(port.wdata), ctx.get(port.wstrb), ctx.get(port.wlast)))
        while self.requests and len(self.words) >= self.requests[0].beats:
            self._write(self.requests.popleft())

    def _check_held(self, ctx) -> None:
        """Check that what was offered and not accepted is still offered, unchanged."""
        for channel, names in (
            ("ar", ("addr", "len", "size")),
            ("aw", ("addr", "len", "size")),
            ("w", ("data", "strb", "last")),
        ):
            now = tuple(ctx.get(getattr(self.port, channel + name)) for name in names)
            is_valid, is_ready = (ctx.get(getattr(self.port, channel + name)) for name in ("valid", "ready"))
            before = self.held.get(channel)
            assert before is None or (is_valid and now == before), channel
            self.held[channel] = now if is_valid and not is_ready else None

    def _write(self, burst: Burst) -> None:
        width = self.port.signature.data_bytes
        for index, address in enumerate(burst.addresses()):
            word, enables, last = self.words.popleft()
            assert last == (index == burst.beats - 1)
            begin = address // width * width
            for byte in range(width):
                if enables >> byte & 1:
                    self.contents[begin + byte] = word >> 8 * byte & 0xFF
        self.answers.append(Response.OKAY)


class Engine:
    """Master on the engine's bus: it requests bursts, sends the words of writes, and notes what it reads."""

    def __init__(self, bus, reads: list[Burst], writes: list[Burst], random: Random, stall: float):
        self.bus, self.random, self.stall = bus, random, stall
        self.requests = {"ar": deque(reads), "aw": deque(writes)}
        self.width = bus.signature.data_bytes
        self.words = deque(
            (random.randbytes(burst.size), address, index == burst.beats - 1)
            for burst in writes
            for index, address in enumerate(burst.addresses())
        )
        self.written = list(self.words)
        self.read: list[tuple[bytes, int, int]] = []
        self.expected = [address for burst in reads for address in burst.addresses()]
        self.sizes = [burst.size for burst in reads for _ in range(burst.beats)]
        self.lasts = [index == burst.beats - 1 for burst in reads for index in range(burst.beats)]
        self.left = len(writes)
        self.offered = {"ar": False, "aw": False, "w": False}

    @property
    def is_done(self) -> bool:
        return len(self.read) == len(self.expected) and not self.left

    def offer(self, ctx) -> None:
        bus = self.bus
        for channel, waiting in self.requests.items():
            self.offered[channel] = bool(waiting) and (self.offered[channel] or self._acts())
            ctx.set(getattr(bus, f"{channel}valid"), self.offered[channel])
            if waiting:
                ctx.set(getattr(bus, f"{channel}addr"), waiting[0].address)
                ctx.set(getattr(bus, f"{channel}len"), waiting[0].beats - 1)
                ctx.set(getattr(bus, f"{channel}size"), waiting[0].size.bit_length() - 1)
        self.offered["w"] = bool(self.words) and (self.offered["w"] or self._acts())
        ctx.set(bus.wvalid, self.offered["w"])
        if self.words:
            word, address, last = self.words[0]
            lane = address % self.width
            ctx.set(bus.wdata, int.from_bytes(word, "little") << 8 * lane)
            ctx.set(bus.wstrb, (1 << len(word)) - 1 << lane)
            ctx.set(bus.wlast, last)
        ctx.set(bus.rready, self._acts())
        ctx.set(bus.bready, self._acts())

    def _acts(self) -> bool:
        return self.random.random() >= self.stall

    def take(self, ctx) -> None:
        bus = self.bus
        if ctx.get(bus.rvalid) and ctx.get(bus.rready):
            index = len(self.read)
            lane = self.expected[index] % self.width
            word = ctx.get(bus.rdata).to_bytes(self.width, "little")[lane : lane + self.sizes[index]]
            self.read.append((word, ctx.get(bus.rresp).value, ctx.get(bus.rlast)))
        if ctx.get(bus.bvalid) and ctx.get(bus.bready):
            self.left -= 1
        for channel, waiting in (*self.requests.items(), ("w", self.words)):
            if ctx.get(getattr(bus, f"{channel}valid")) and ctx.get(getattr(bus, f"{channel}ready")):
                waiting.popleft()
                self.offered[channel] = False


def run(config: MemoryPortsConfig, reads: list[Burst], writes: list[Burst], seed: int, stall: float) -> int:
    """Check all bursts on the ports, and return the cycles that they take."""
    random, unit = Random(seed), config.component()
    contents = bytearray(random.randbytes(READ_BYTES) + bytes(READ_BYTES))
    before = bytes(contents)
    ports = [Memory(getattr(unit, f"port_{index}"), contents, random, stall) for index in range(config.ports)]
    engine = Engine(unit.bus, reads, writes, random, stall)
    cycles = 0

    async def bench(ctx):
        nonlocal cycles
        while not engine.is_done:
            for part in (engine, *ports):
                part.offer(ctx)
            for part in (engine, *ports):
                part.take(ctx)
            await ctx.tick()
            cycles += 1
            assert cycles < 20_000

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    for (word, response, last), address, size, is_last in zip(
        engine.read, engine.expected, engine.sizes, engine.lasts, strict=True
    ):
        assert word == before[address : address + size]
        begin, width = (address, size) if size == 8 else (address // size * size, size)
        assert (response == Response.SLAVE_ERROR.value) == any(map(fails, range(begin, begin + width)))
        assert last == is_last
    wanted = bytearray(before)
    for word, address, _ in engine.written:
        wanted[address : address + len(word)] = word
    assert contents == wanted
    return cycles


@cases_in_the_long_run(20)
@given(
    form=st.sampled_from([(64, 4), (32, 2), (32, 4), (16, 2), (64, 2)]),
    stall=st.sampled_from([0.0, 0.3, 0.8]),
    seed=st.integers(0, 2**32),
)
def test_random_bursts(form: tuple[int, int], stall: float, seed: int) -> None:
    random, (bus_bytes, ports) = Random(seed), form
    reads = bursts(random, bus_bytes, random.randint(0, 8), 0, whole=False)
    writes = bursts(random, bus_bytes, random.randint(0, 8), READ_BYTES, whole=False)
    run(config_of(bus_bytes, ports), reads, writes, seed, stall)


@pytest.mark.parametrize(("bus_bytes", "ports"), [(64, 4), (32, 4), (16, 2)])
def test_rate(bus_bytes: int, ports: int) -> None:
    """Long bursts move almost a word of the bus per cycle in each direction."""
    random = Random(0)
    reads = bursts(random, bus_bytes, 32, 0, whole=True)
    writes = bursts(random, bus_bytes, 8, READ_BYTES, whole=True)
    cycles = run(config_of(bus_bytes, ports), reads, writes, 0, stall=0.0)
    beats = 32 * 2048 // bus_bytes
    assert cycles <= 1.02 * beats + 60 + ports * 2048 // bus_bytes


def test_refused() -> None:
    for bus_bytes, ports in ((8, 2), (16, 4), (64, 3)):
        with pytest.raises(ConfigError, match="ports must be 1, 2 or 4 of at least 8 bytes each"):
            config_of(bus_bytes, ports)
    with pytest.raises(ConfigError, match="ports must be 2 or 4 to divide bursts among memory ports, not 1"):
        config_of(64, 1)


@pytest.mark.long
def test_resources() -> None:
    parts = [config_of(64, 4), config_of(32, 4), config_of(32, 2)]
    parts = [replace(part, engine=replace(part.engine, outstanding=32)) for part in parts]
    for part, measured, path in zip(parts, *synthesis.measure_paths(parts), strict=True):
        assert path is not None
        assert path.delay <= 3.3, path
        assert part.resources.bram36 == measured.bram36
        assert part.resources.lut == pytest.approx(measured.lut, rel=0.05)
        assert part.resources.ff == pytest.approx(measured.ff, rel=0.05)
