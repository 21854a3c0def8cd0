"""The memory side of the engine: every word to its place, and every burst in its cycle."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np
import pytest
from amaranth import Module, Shape, Signal, Value
from amaranth.lib.fifo import SyncFIFO
from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st
from testbench import ALWAYS, Circuit, Pattern, patterns

from hwgen.errors import ConfigError
from hwgen.gateware.engine import axi
from hwgen.gateware.engine.axi import BORDER_BYTES, Burst, Response
from hwgen.gateware.engine.bursts import Bursts
from hwgen.gateware.engine.config import BUS_BYTES, EngineConfig
from hwgen.gateware.engine.job import Compute, Drain, Job, Load, Store, pack_jobs
from hwgen.gateware.engine.memory_side import MemorySideConfig
from hwgen.gateware.engine.port import Error, MemoryPort, add_room_flag
from hwgen.tools import synthesis

#: Number of bytes of a word. A write has all bytes of a word or none.
WORD = 8
#: Byte on the data lines while no data is valid.
NOISE = 0xA5
#: Names of the signals that the master drives.
OUTPUTS = (
    *(channel + name for channel in ("ar", "aw") for name in ("addr", "len", "size", "burst", "valid")),
    *("wdata", "wstrb", "wlast", "wvalid", "rready", "bready"),
)


@dataclass
class Memory:
    """Memory that answers in order: reads ``latency`` cycles after the request, writes as late after their last beat.

    A beat takes ``pace`` cycles in each direction; of a fraction nothing is lost while beats follow each other. The
    patterns say when a channel may move besides. ``errors`` has
    responses by address: a beat or a write that touches the address gets the response. ``asked`` lists the cycle, the
    channel (``ar`` or ``aw``), the address and the beats of each burst, ``moved`` the cycle and the channel (``r``,
    ``w``, ``b``) of each other transfer. ``written`` counts bytes. The bus has ``data_bytes``.
    """

    image: bytearray
    data_bytes: int = 8
    latency: int = 10
    write_latency: int = 5
    pace: Fraction | int = 1
    addresses: Pattern = ALWAYS
    reads: Pattern = ALWAYS
    writes: Pattern = ALWAYS
    errors: dict[int, Response] = field(default_factory=dict)
    cycle: int = 0
    written: int = 0
    asked: list[tuple[int, str, int, int]] = field(default_factory=list)
    moved: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reads: deque[tuple[int, int, int, bool]] = deque()  # from when on, address, bytes, last of its burst
        self._bursts: deque[range] = deque()  # addresses of what is to be written
        self._words: deque[tuple[int, int, int, bool]] = deque()  # when, data, strobe, last of its burst
        self._responses: deque[tuple[int, Response]] = deque()  # from when on
        self._may_ask, self._may_read = iter(self.addresses), iter(self.reads)
        self._may_write, self._may_answer = iter(self.writes), iter(self.writes)  # one might always skip the other
        self._next_read = self._next_write = Fraction(0)  # when the next beat may move
        self._held: dict[str, int] = {}
        self._asking = self._taking = self._reading = self._answering = False

    def inputs(self) -> dict[str, int]:
        """Return the signals that the memory drives in this cycle, by name."""
        now = self.cycle
        self._asking = next(self._may_ask)
        self._taking = next(self._may_write) and now >= self._next_write
        may_read = next(self._may_read) and now >= self._next_read
        self._reading |= self._due(self._reads) and may_read
        self._answering |= self._due(self._responses) and next(self._may_answer)
        _, address, size, last = self._reads[0] if self._reading else (0, 0, 0, False)
        response = self._response(address, size) if self._reading else Response.DECODE_ERROR
        return {
            "arready": self._asking,
            "awready": self._asking,
            "wready": self._taking,
            "rvalid": self._reading,
            "rdata": self._lanes(address, size),
            "rlast": last,
            "rresp": response.value,
            "bvalid": self._answering,
            "bresp": (self._responses[0][1] if self._answering else Response.SLAVE_ERROR).value,
        }

    def step(self, seen: dict[str, int]) -> None:
        """End a cycle with the signals that the master drove in it, by the names in `OUTPUTS`."""
        now = self.cycle
        if self._reading and seen["rready"]:
            self._reads.popleft()
            self.moved.append((now, "r"))
            self._reading, self._next_read = False, self._behind(self._next_read)
        if self._answering and seen["bready"]:
            self._responses.popleft()
            self.moved.append((now, "b"))
            self._answering = False
        for channel in ("ar", "aw"):
            if self._asking and seen[f"{channel}valid"]:
                self._ask(channel, seen)
        if self._taking and seen["wvalid"]:
            self._words.append((now, seen["wdata"], seen["wstrb"], bool(seen["wlast"])))
            self.moved.append((now, "w"))
            self._next_write = self._behind(self._next_write)
        self._write()
        self._check_held(seen)
        self.cycle += 1

    def _behind(self, due: Fraction) -> Fraction:
        """Return when the beat may move behind one that moves in this cycle, and might have moved at ``due``."""
        return (due if self.cycle - due < 1 else self.cycle) + Fraction(self.pace)

    def _lanes(self, address: int, size: int) -> int:
        """Return the data lines with ``size`` bytes of the memory, and noise in all other lanes."""
        lanes, first = bytearray([NOISE] * self.data_bytes), address % self.data_bytes
        lanes[first : first + size] = self.image[address : address + size]
        return int.from_bytes(lanes, "little")

    def _response(self, address: int, size: int) -> Response:
        """Return the worst response among the bytes of a beat."""
        found = (self.errors.get(each, Response.OKAY) for each in range(address, address + size))
        return max(found, key=lambda response: response.value)

    def _due(self, waiting: deque[Any]) -> bool:
        return bool(waiting) and waiting[0][0] <= self.cycle

    def _check_held(self, seen: dict[str, int]) -> None:
        """Check that a transfer that was offered and not accepted is offered again, unchanged."""
        for name, value in self._held.items():
            assert seen[name] == value, f"cycle {self.cycle}: {name} changed while it waited"
        self._held = {}
        for channel, ready in (("ar", self._asking), ("aw", self._asking), ("w", self._taking)):
            if seen[f"{channel}valid"] and not ready:
                names = [name for name in OUTPUTS if name.startswith(channel) and not name.endswith("ready")]
                self._held |= {name: seen[name] for name in names}

    def _ask(self, channel: str, seen: dict[str, int]) -> None:
        address, beats, size = seen[f"{channel}addr"], seen[f"{channel}len"] + 1, 1 << seen[f"{channel}size"]
        assert size in ({self.data_bytes} if channel == "aw" else {self.data_bytes, min(self.data_bytes, WORD)})
        assert Burst(seen[f"{channel}burst"]) == Burst.INCREMENTING
        assert address % size == 0
        end = address + beats * size
        assert address // BORDER_BYTES == (end - 1) // BORDER_BYTES, f"{beats} beats at {address:#x} cross a border"
        assert end <= len(self.image)
        self.asked.append((self.cycle, channel, address, beats))
        places = range(address, end, size)
        if channel == "ar":
            self._reads += [(self.cycle + self.latency, place, size, place == places[-1]) for place in places]
        else:
            self._bursts.append(places)

    def _write(self) -> None:
        """Words that have come, each to its address once this is known; they may come before it."""
        while self._bursts and len(self._words) >= len(self._bursts[0]):
            places = self._bursts.popleft()
            responses = [self._response(place, self.data_bytes) for place in places]
            for place in places:
                when, data, strobe, last = self._words.popleft()
                assert last == (place == places[-1])
                self._put(place, data.to_bytes(self.data_bytes, "little"), strobe)
            worst = max(responses, key=lambda response: response.value)
            self._responses.append((max(self.cycle, when) + self.write_latency, worst))

    def _put(self, place: int, lanes: bytes, strobe: int) -> None:
        """Write a beat into memory. The strobe must select whole words, at least one."""
        kept = [bool(strobe >> lane & 1) for lane in range(self.data_bytes)]
        for first in range(0, self.data_bytes, WORD):
            assert len(set(kept[first : first + WORD])) == 1
        assert any(kept)
        self.written += sum(kept)
        for lane, keep in enumerate(kept):
            if keep:
                self.image[place + lane] = lanes[lane]


CONFIG = EngineConfig(pixels=5, maps=8, map_words=256, weight_steps=256, parameter_words=8, output_words=256, slots=2)
LATENCY = 2  # of the output buffer
#: The same engine behind all buses. A beat's words go to different banks, so that wide buses need more pixels.
ENGINES = {
    width: replace(CONFIG, bus_bytes=width, pixels=11 if width == 64 else 5, maps=16 if width == 32 else 8)
    for width in BUS_BYTES
}
PATIENCE = 50_000
EXAMPLES = settings(max_examples=2)

#: The streams that fill buffers.
BUFFERS = ("map_write", "weight_write", "parameter_write", "addend_write")

PITCH = ("x_pitch_words", "x_pitch_rest")

# Memory: what is loaded, what is stored, the program.
LOADS, STORES, PROGRAM = 0, 0x8000, 0x10000
SIZE = 0x12000


@dataclass
class Plan:
    """Jobs, and how many cycles computing and draining each takes."""

    jobs: list[Job]
    compute: list[int]
    drain: list[int]
    base: int = PROGRAM
    engine: EngineConfig = CONFIG

    def image(self, seed: int) -> bytearray:
        image = np.random.default_rng(seed).integers(0, 256, SIZE, np.uint8)
        program = pack_jobs(self.engine, self.jobs)
        image[self.base : self.base + len(program)] = np.frombuffer(program, np.uint8)
        return bytearray(image)


def align(numbers: st.SearchStrategy[int]) -> st.SearchStrategy[int]:
    return numbers.map(lambda number: number * 8)


@st.composite
def loads(draw, index: int, engine: EngineConfig) -> dict[str, int]:
    found: dict[str, int] = {}
    if draw(st.booleans()):
        blocks, rows, words = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 40))
        pitch = words + draw(st.integers(0, 7))
        found |= {
            "x_blocks": blocks,
            "x_rows": rows,
            "x_words": words,
            "x_address": draw(align(st.integers(0, 300))),
            "x_row_stride": draw(align(st.integers(0, 500))),
            "x_block_stride": draw(align(st.integers(0, 1000))),
            "x_base": draw(st.integers(0, 60)),
            "x_plane": draw(st.integers(0, 60)),
        }
        if draw(st.booleans()):
            found |= {"addend": 1, "x_pitch_words": pitch}
        else:
            first = draw(st.integers(0, engine.pixels - 1))
            found |= {"x_first": first, **dict(zip(PITCH, divmod(pitch, engine.pixels), strict=True))}
    if draw(st.booleans()):
        found |= {
            "w_address": draw(st.integers(0, 2000 // engine.weight_alignment)) * 8 * engine.weight_alignment,
            "w_steps": draw(st.one_of(st.integers(1, 20), st.integers(120, 200))),
            "w_base": draw(st.integers(0, 56)),
        }
    if draw(st.booleans()):
        found |= {
            "p_address": draw(align(st.integers(0, 2000))),
            "p_words": draw(st.integers(1, 40)),
            "p_base": draw(st.integers(0, 3)),
            "tables": draw(st.booleans()),
        }
    if index:
        found |= {"wait_computed": draw(st.integers(0, index)), "wait_stored": draw(st.integers(0, index))}
    return found


@st.composite
def stores(draw) -> dict[str, int]:
    if draw(st.integers(0, 2)) == 0:
        return {}
    blocks, rows, words = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 20))
    return {
        "blocks": blocks,
        "rows": rows,
        "words": words,
        "address": STORES + draw(align(st.integers(0, 2000))),
        "row_stride": draw(align(st.integers(20, 60))),
        "block_stride": draw(align(st.integers(240, 600))),
        "o_base": draw(st.integers(0, 255)),
        "o_plane": draw(st.integers(0, 255)),
    }


@st.composite
def plans(draw) -> Plan:
    count, engine = draw(st.integers(1, 9)), ENGINES[draw(st.sampled_from(BUS_BYTES))]
    jobs = [
        Job(
            load=Load(end=number == count - 1, **draw(loads(number, engine))),
            compute=Compute(channels=draw(st.integers(0, 255)), w_base=number),
            drain=Drain(wait_stored=number),
            store=Store(**draw(stores())),
        )
        for number in range(count)
    ]
    cycles = st.one_of(st.integers(1, 5), st.integers(1, 200))
    times = [draw(st.lists(cycles, min_size=count, max_size=count)) for _ in range(2)]
    base = PROGRAM + draw(align(st.integers(0, 256)))
    return Plan(jobs, *times, base=base, engine=engine)


@dataclass
class Unit:
    """Takes a part when it has none; from when the job is ready it is at it for some cycles, then counts it."""

    cycles: list[int]
    count: int = 0
    job: int | None = None
    left: int = 0

    def step(self, ready: int, valid: bool) -> bool:
        """A cycle in which ``ready`` jobs were ready; whether a part was taken."""
        if self.job is None:
            if valid:
                self.job = self.count
            return bool(valid)
        if self.left:
            self.left -= 1
        elif ready > self.job:
            self.left = self.cycles[self.job] - 1
        else:
            return False
        if not self.left:
            self.count, self.job = self.count + 1, None
        return False


@dataclass
class Seen:
    """What a run gave: words by buffer and place, parts as integers, and the error, if that ended it."""

    words: dict[tuple[str, int, int], int] = field(default_factory=dict)
    parts: dict[str, list[int]] = field(default_factory=lambda: {"compute": [], "drain": []})
    error: Error = Error.NONE
    ended: int = 0
    """The cycle after the last one."""


@cache
def circuit(engine: EngineConfig) -> Circuit:
    return Circuit(MemorySideConfig(engine=engine, read_latency=LATENCY).component())


class Bench:
    """The memory side with a memory, and in place of core and finish what only counts cycles."""

    def __init__(self, plan: Plan, memory: Memory, output: list[int], *, pace: Fraction | int = 1) -> None:
        self.plan, self.memory, self.output = plan, memory, output
        self._pace = Fraction(pace).numerator | Fraction(pace).denominator << 8
        self.circuit = circuit(plan.engine)
        self.dut = self.circuit.component
        self.seen = Seen()
        self.units = {"compute": Unit(plan.compute), "drain": Unit(plan.drain)}

    def run(self, *, reset_at: int | None = None) -> Seen:
        """Until the program has ended or an error stops it; before that, if wanted, up to a cycle with reset."""
        domain = self.circuit.domain

        async def bench(ctx: Any) -> None:
            if reset_at is not None:
                before = Bench(self.plan, replace(self.memory, image=self.memory.image[:]), self.output)
                await before.frame(ctx, reset_at)
                ctx.set(domain.rst, 1)
                await ctx.tick()
                ctx.set(domain.rst, 0)
            await self.frame(ctx)

        self.circuit.simulate(bench)
        return self.seen

    async def frame(self, ctx: Any, until: int | None = None) -> None:
        """One run of the program, or its first cycles."""
        dut, memory = self.dut, self.memory
        streams = {name: getattr(dut, name) for name in ("compute", "drain", *BUFFERS)}
        watched = {name: getattr(dut.m_axi, name) for name in OUTPUTS}
        watched |= {
            name: getattr(dut, name) for name in ("loaded", "stored", "jobs", "ended", "idle", "error", "address")
        }
        watched |= {f"{name}.valid": each.valid for name, each in streams.items()}
        watched |= {f"{name}.payload": each.payload.as_value() for name, each in streams.items()}
        driven: dict[int, int] = {}
        words = [0] * (LATENCY - 1)

        def drive(signal: Any, value: int) -> None:
            if driven.get(id(signal)) != value:  # as setting takes time
                driven[id(signal)] = value
                ctx.set(Value.cast(signal), value)

        def inputs(cycle: int, word: int) -> None:
            for name, value in memory.inputs().items():
                drive(getattr(dut.m_axi, name), value)
            for name, unit in self.units.items():
                drive(getattr(dut, name).ready, unit.job is None)
            drive(dut.begin, cycle == 0)
            drive(dut.computed, self.units["compute"].count)
            drive(dut.drained, self.units["drain"].count)
            drive(dut.word, word)

        drive(dut.program_base, self.plan.base)
        drive(dut.pace, self._pace)
        inputs(0, 0)
        async for _, _, *values in ctx.tick().sample(*map(Value.cast, watched.values())):
            seen = dict(zip(watched, values, strict=True))
            memory.step(seen)
            words.append(self._read(seen["address"]))
            self._take(seen)
            done = seen["ended"] and {seen["loaded"], seen["stored"], self.units["drain"].count} == {seen["jobs"]}
            if seen["idle"] and (done or seen["error"]):
                self.seen.error, self.seen.ended = Error(seen["error"]), memory.cycle
                return
            if memory.cycle == until:
                return
            assert memory.cycle < PATIENCE, f"stuck: {seen}"
            inputs(memory.cycle, words.pop(0))

    def _read(self, address: int) -> int:
        """What the output buffer gives: a word, and those behind it that a beat has."""
        places = range(address, address + self.plan.engine.bus_words)
        return sum(self.output[place % len(self.output)] << 64 * number for number, place in enumerate(places))

    def _take(self, seen: dict[str, int]) -> None:
        """What the units do in a cycle, and what comes for the buffers."""
        ready = {"compute": seen["loaded"], "drain": self.units["compute"].count}
        for name, unit in self.units.items():
            if unit.step(ready[name], bool(seen[f"{name}.valid"])):
                self.seen.parts[name].append(seen[f"{name}.payload"])
        for port in BUFFERS:
            if seen[f"{port}.valid"]:
                self._write(port, getattr(self.dut, port).payload.shape().from_bits(seen[f"{port}.payload"]))

    def _write(self, port: str, write: Any) -> None:
        """Note the words of a write by buffer, bank and word; of parameters and tables by which they are and index."""
        if port == "parameter_write":
            self.seen.words[port, write.tables, write.index] = write.data
            return
        engine = self.plan.engine
        banks = {"map_write": engine.pixels, "weight_write": engine.weight_banks, "addend_write": engine.bus_words}[
            port
        ]
        rows = 1 << Shape.cast(write.shape()["word"].shape).width
        for lane in range(engine.bus_words):
            row, bank = divmod(write.word * banks + write.bank + lane, banks)
            if write.present >> lane & 1:
                self.seen.words[port, bank, row % rows] = write.data[lane]


def expected_words(plan: Plan, image: bytes) -> dict[tuple[str, int, int], int]:
    """The buffers' contents after all loads, by what `Load` says."""
    words, engine = np.frombuffer(image, "<u8"), plan.engine
    found = {}
    for load in (job.load for job in plan.jobs):
        banks = 1 if load.addend else engine.pixels
        pitch = load.x_pitch_words * banks + load.x_pitch_rest
        for block, row, column in np.ndindex(load.x_blocks, load.x_rows, load.x_words):
            address = load.x_address + block * load.x_block_stride + row * load.x_row_stride + column * 8
            position = load.x_first + row * pitch + column
            word = load.x_base + block * load.x_plane + position // banks
            place = ("map_write", position % banks, word)
            if load.addend:
                row, bank = divmod(word, engine.bus_words)
                place = ("addend_write", bank, row)
            found[place] = int(words[address // 8])
        for step, block in np.ndindex(load.w_steps, engine.weight_words):
            address = load.w_address + (step * engine.weight_words + block) * 8
            row, copy = divmod(load.w_base + step, engine.weight_copies)
            found["weight_write", copy * engine.weight_words + block, row] = int(words[address // 8])
        for word in range(load.p_words):
            first = load.p_base * (256 if load.tables else 8)
            found["parameter_write", load.tables, first + word] = int(words[load.p_address // 8 + word])
    return found


def expected_image(plan: Plan, image: bytes, output: list[int]) -> bytes:
    """Memory after all stores, by what `Store` says."""
    words = np.frombuffer(image, "<u8").copy()
    for store in (job.store for job in plan.jobs):
        for block, row, column in np.ndindex(store.blocks, store.rows, store.words):
            address = store.address + block * store.block_stride + row * store.row_stride + column * 8
            place = store.o_base + block * store.o_plane + row * store.words + column
            words[address // 8] = output[place % CONFIG.output_words]
    return words.tobytes()


def buffer(seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 1 << 64, CONFIG.output_words, np.uint64).tolist()


SEEDS = st.integers(0, 2**32)
#: Cycles per beat: whole numbers, and fractions of any two numbers that the port takes, of a half and more.
PACES = st.one_of(
    st.sampled_from([1, 2, 5, Fraction(1, 2), Fraction(2, 3), Fraction(254, 255)]),
    st.integers(1, 255).flatmap(lambda beats: st.builds(Fraction, st.integers(-(-beats // 2), 255), st.just(beats))),
).filter(lambda pace: pace < 9)
WORDS = {"plan": plans(), "seed": SEEDS, "memory": st.tuples(patterns(), patterns(), patterns()), "data": st.data()}
CYCLES = {"plan": plans(), "seed": SEEDS, "pace": PACES, "data": st.data()}
RESET = {"plan": plans(), "seed": SEEDS, "reset_at": st.integers(1, 600), "pattern": patterns()}


def memory_of(plan: Plan, image: bytes, *times: int, **more: Any) -> Memory:
    """Behind the bus of a plan's engine."""
    return Memory(bytearray(image), plan.engine.bus_bytes, *times, **more)


@pytest.mark.parametrize("depth", [2, 5])
def test_the_room_of_a_queue(depth):
    """The register equals the FIFO's ``w_rdy`` in each cycle, when it is filled, rests full or nearly so, is emptied.

    Writer and reader are random, each of them busy and idle for some time. The writer obeys the register.
    """
    m, rng = Module(), np.random.default_rng(depth)
    m.submodules.queue = queue = SyncFIFO(width=1, depth=depth)
    has_room, wants = add_room_flag(m, "has_room", queue), Signal()
    m.d.comb += queue.w_en.eq(wants & has_room)
    levels = set()

    async def bench(ctx):
        for _ in range(40):
            write, read = rng.choice([0, 0.3, 1], 2)
            for _ in range(10):
                ctx.set(wants, bool(rng.random() < write))
                ctx.set(queue.r_en, bool(rng.random() < read))
                _, _, register, ready, level = await ctx.tick().sample(has_room, queue.w_rdy, queue.level)
                assert register == ready
                levels.add(level)

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert levels == {*range(depth + 1)}


@pytest.mark.parametrize(("pace", "read_beats", "write_beats"), [(2, 9, 0), (2, 0, 9), (2, 9, 4), (2, 4, 9), (1, 9, 4)])
def test_the_port_is_free_when_both_channels_are(pace, read_beats, write_beats):
    """Beats of a pace of two move side by side, so that one channel is free before the other; else in turn."""
    circuit = Circuit(MemoryPort(CONFIG))
    port = circuit.component
    offers = [(port.store, write_beats), (port.load, read_beats)]

    async def bench(ctx):
        ctx.set(port.pace.beats, pace)
        ctx.set(port.pace.cycles, 1)
        await ctx.tick().repeat(3)
        busy_until = 0  # cycle in which both channels are over
        for stream, beats in offers:
            ctx.set(stream.payload.run.beats, beats)
            ctx.set(stream.valid, beats != 0)
        for cycle in range(30):
            assert ctx.get(port.free) == (cycle >= busy_until)
            *_, store, load = await ctx.tick().sample(*(stream.ready & stream.valid for stream, _ in offers))
            for (stream, beats), is_granted in zip(offers, (store, load), strict=True):
                if is_granted:
                    busy_until = max(busy_until, cycle + beats)
                    ctx.set(stream.valid, 0)
        assert not any(ctx.get(stream.valid) for stream, _ in offers)

    circuit.simulate(bench)


def test_bursts_of_teams():
    """The bursts of boxes for several cores: three teams, whose outer rows are outside of the map; then one team."""
    engine = replace(CONFIG, cores=4)
    dut = Bursts(engine)
    box = {"address": 100, "row_stride": 10, "block_stride": 100, "blocks": 2, "rows": 2, "words": 3}
    teams = {"teams": 3, "team_stride": 1000, "top": -1, "advance": 2, "height": 4}
    boxes = [{**box, **teams}, {**box, "address": 600, "teams": 0, "team_stride": 7}, {**box, **teams, "teams": 2}]
    wanted_bursts = []
    for given_box in boxes:
        count = max(given_box["teams"], 1)
        for team, block, row in np.ndindex(count, 2, 2):
            index = given_box.get("top", 0) + team * given_box.get("advance", 0) + row
            is_inside = not given_box.get("height") or 0 <= index < given_box["height"]
            address = given_box["address"] + team * given_box["team_stride"] + block * 100 + row * 10
            is_last = (team, block, row) == (count - 1, 1, 1)
            wanted_bursts.append((address, 3 * is_inside, (block, row) == (0, 0), is_last))
    seen = []

    async def bench(ctx):
        ctx.set(dut.o.ready, 1)
        waiting = [*boxes]
        for _ in range(4 * len(wanted_bursts)):
            ctx.set(dut.i.payload, waiting[0] if waiting else {})
            ctx.set(dut.i.valid, bool(waiting))
            taken, valid, burst = (await ctx.tick().sample(dut.i.ready, dut.o.valid, dut.o.payload))[2:]
            if valid:
                seen.append((burst.run.address, burst.run.words, bool(burst.new_team), bool(burst.last)))
            if taken:
                waiting.pop(0)

    Circuit(dut).simulate(bench)
    assert seen == wanted_bursts


@EXAMPLES
@given(**WORDS)
def test_words(plan, seed, memory, data):
    """Whenever the bus moves, every word comes where it belongs, and the parts come in order."""
    image, output = plan.image(seed), buffer(seed)
    addresses, reads, writes = memory
    latency, write_latency = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 60))
    model = memory_of(plan, image, latency, write_latency, addresses=addresses, reads=reads, writes=writes)
    seen = Bench(plan, model, output).run()
    assert seen.error == Error.NONE
    assert seen.words == expected_words(plan, image)
    assert model.image == expected_image(plan, image, output)
    assert seen.parts == {
        "compute": [job.compute.pack() for job in plan.jobs],
        "drain": [job.drain.pack() for job in plan.jobs],
    }


Box = tuple[int, int, int, int, int, int]
"""Address, strides of rows and blocks, blocks, rows, words."""
NEVER = 1 << 60


def split(box: Box, beat: int, border: int) -> list[tuple[int, int]]:
    """Address and beats of a box's bursts: a border comes each so many bytes, and beats begin at their multiples."""
    address, row_stride, block_stride, blocks, rows, words = box
    found = []
    for block, row in np.ndindex(blocks, rows):
        begin = address + block * block_stride + row * row_stride
        end = begin + 8 * words
        borders = [begin, *range(begin // border * border + border, end, border), end]
        found += [(low // beat * beat, -(-high // beat) - low // beat) for low, high in pairwise(borders)]
    return found or [(0, 0)]


Boxes = list[tuple[Box, bool]]
"""Those of a job; whether beats are as wide as the bus where it has two words."""


def load_boxes(load: Load, engine: EngineConfig) -> Boxes:
    boxes: Boxes = []
    if load.x_blocks:
        box = (load.x_address, load.x_row_stride, load.x_block_stride, load.x_blocks, load.x_rows, load.x_words)
        boxes.append((box, True))
    if load.w_steps:
        boxes.append(((load.w_address, 0, 0, 1, 1, load.w_steps * engine.weight_words), True))
    if load.p_words:
        boxes.append(((load.p_address, 0, 0, 1, 1, load.p_words), False))
    return boxes or [((0, 0, 0, 0, 0, 0), False)]


def store_boxes(store: Store) -> Boxes:
    return [((store.address, store.row_stride, store.block_stride, store.blocks, store.rows, store.words), True)]


@dataclass
class Wanted:
    """A burst of a job, ``after`` cycles behind the one before at the least; whether it is the job's first or last."""

    job: int
    address: int
    beats: int
    after: int
    first: bool
    last: bool


def wanted(boxes: list[Boxes], width: int) -> list[Wanted]:
    """The bursts of all jobs."""
    found = []
    for job, those in enumerate(boxes):
        bursts = [
            (*burst, 2 if number else 3)
            for box, wide in those
            for number, burst in enumerate(split(box, width if wide else min(width, 8), min(256 * width, 2048)))
        ]
        for place, burst in enumerate(bursts):
            found.append(Wanted(job, *burst, place == 0, place == len(bursts) - 1))
    return found


def at(cycles: list[int], index: int) -> int:
    """When something happened: long ago if there is no such thing, never if it isn't known yet."""
    return -NEVER if index < 0 else cycles[index] if index < len(cycles) else NEVER


class SharedMemory:
    """Memory that moves one or two beats per cycle, cycle by cycle; the port is free when at most one is left."""

    def __init__(self, pace: Fraction) -> None:
        self.beats, self.cycle = 1 / pace, 0
        self.left, self.fraction = 0, Fraction(0)

    def grant(self, now: int, beats: int) -> None:
        """Add a burst: its beats can move in the cycles after its grant."""
        self._go_to(now + 1)
        self.left += beats

    def free_at(self, first: int) -> int:
        """Return the first cycle, not before ``first``, with at most one beat left."""
        self._go_to(first)
        while self.left > 1:
            self._go_to(self.cycle + 1)
        return self.cycle

    def _go_to(self, cycle: int) -> None:
        while self.cycle < cycle:
            if self.left > 0:
                self.fraction += self.beats
                self.left -= int(self.fraction)
                self.fraction %= 1
            self.cycle += 1


class Timeline:
    """Every burst's cycle, event by event, as docs/reference/engine.md has it ("When bursts are ready"), with a bench.

    Lists hold the cycles of what happened, job by job or burst by burst, as far as they are known. ``came``: a job's
    last word. ``offered``, ``taken``: a unit's part. ``counted``: the first cycle in which a count has the job.
    ``asked``: a burst is made. ``granted``: it has the port. ``answered``: it is over.
    """

    def __init__(self, plan: Plan, memory: Memory) -> None:
        self.plan, self.memory, jobs = plan, memory, plan.jobs
        places = [(plan.base + Job.BYTES * number, 0, 0, 1, 1, Job.WORDS) for number in range(len(jobs))]
        self.bursts = {
            name: wanted(boxes, plan.engine.bus_bytes)
            for name, boxes in (
                ("fetch", [[(place, False)] for place in places]),
                ("store", [store_boxes(job.store) for job in jobs]),
                ("load", [load_boxes(job.load, plan.engine) for job in jobs]),
            )
        }
        self.came: list[int] = []
        self.offered: dict[str, list[int]] = {name: [] for name in ("load", "compute", "drain", "store")}
        self.taken: dict[str, list[int]] = {name: [] for name in self.offered}
        self.counted: dict[str, list[int]] = {name: [] for name in ("loaded", "computed", "drained", "stored")}
        self.asked: dict[str, list[int]] = {name: [] for name in ("load", "store")}
        self.granted: dict[str, list[int]] = {name: [] for name in self.bursts}
        self.answered: dict[str, list[int]] = {"ar": [], "aw": []}
        self.unused = Fraction(0)  # of the last cycle of the burst before
        self.shared = SharedMemory(Fraction(memory.pace))
        self.beats = {"ar": Fraction(0), "aw": Fraction(0)}  # when memory may move the next beat

    def run(self) -> list[tuple[int, str, int, int]]:
        """Of each burst with beats: cycle of the grant, channel, address, beats."""
        found, free, last = [], {"ar": 0, "aw": 0}, -1
        while any(len(self.granted[name]) < len(bursts) for name, bursts in self.bursts.items()):
            while self._units() or self._ask("store") or self._ask("load"):
                pass
            times = {name: max(free[channel(name)], last + 1, self._ready(name)) for name in self.bursts}
            name = min(times, key=lambda each: times[each])  # of several the first
            now, burst = times[name], self.bursts[name][len(self.granted[name])]
            assert now < NEVER, "stuck"
            self.granted[name].append(now)
            last = now
            if self.memory.pace < 1:  # reads and writes at the same time
                free[channel(name)] = now + max(burst.beats, 2)
                if self.memory.pace > Fraction(1, 2):
                    self.shared.grant(now, burst.beats)
                    free = {each: max(cycle, self.shared.free_at(now + 2)) for each, cycle in free.items()}
            else:
                end = now - self.unused + max(burst.beats, 2) * self.memory.pace
                free = dict.fromkeys(free, ceil(end))
                self.unused = ceil(end) - end
            if burst.beats:
                found.append((now, channel(name), burst.address, burst.beats))
            self._answer(name, burst, now)
        return found

    def _units(self) -> bool:
        """Parts that are offered, taken, computed and drained; whether anything more is known than before."""
        known = False
        for name, offered in self.offered.items():
            taken, job = self.taken[name], len(offered)
            if job < len(self.came) and job <= len(taken):
                offered.append(max(self.came[job] + 3, at(taken, job - 1) + 1))
                known = True
        for name, before, after, cycles in (
            ("compute", "loaded", "computed", self.plan.compute),
            ("drain", "computed", "drained", self.plan.drain),
        ):
            offered, taken, ready, count = (
                self.offered[name],
                self.taken[name],
                self.counted[before],
                self.counted[after],
            )
            if len(taken) < len(offered) and len(taken) <= len(count):
                taken.append(max(offered[len(taken)], at(count, len(taken) - 1)))
                known = True
            if (job := len(count)) < min(len(taken), len(ready)):
                count.append(max(taken[job] + 1, ready[job]) + cycles[job])
                known = True
        return known

    def _ready(self, name: str) -> int:
        """From when on the next burst may be granted."""
        number, answered = len(self.granted[name]), self.answered[channel(name)]
        if number == len(self.bursts[name]):
            return NEVER
        burst = self.bursts[name][number]
        room = at(answered, len(answered) - CONFIG.outstanding) + 1
        if name == "fetch":
            return max(room, self._fetch(burst))
        return max(room, at(self.asked[name], number) + 1)

    def _ask(self, name: str) -> bool:
        """The next burst is made; whether it is known when."""
        asked, granted = self.asked[name], self.granted[name]
        number = len(asked)
        if number == len(self.bursts[name]) or number > len(granted):
            return False
        burst = self.bursts[name][number]
        before = max(at(asked, number - 1) + burst.after, at(granted, number - 1) + 1)
        first = at(self.offered[name], burst.job) + (3 if name == "load" else 2)
        now = max(before, first, self._met(name, burst.job) + 1)
        if now >= NEVER:
            return False
        asked.append(now)
        if burst.last:
            self.taken[name].append(now)
        return True

    def _fetch(self, burst: Wanted) -> int:
        if not burst.first:
            return self.granted["fetch"][-1] + 2
        rooms = [at(offered, burst.job - CONFIG.queue) for offered in self.offered.values()]
        return max(at(self.came, burst.job - 1) + 4 if burst.job else 3, *rooms)

    def _met(self, name: str, job: int) -> int:
        """From when on the counts are those for which the part waits."""
        if name == "store":
            return at(self.counted["drained"], job)
        load = self.plan.jobs[job].load
        waits = {"computed": load.wait_computed, "stored": load.wait_stored}
        return max(at(self.counted[count], jobs - 1) for count, jobs in waits.items())

    def _answer(self, name: str, burst: Wanted, now: int) -> None:
        """What follows from a grant."""
        answered = self.answered[channel(name)]
        if not burst.beats:
            over = max(now, at(answered, len(answered) - 1)) + 1
        elif name == "store":
            over = self._moved("aw", now + 3 + LATENCY, burst.beats) + self.memory.write_latency
        else:
            over = self._moved("ar", now + 1 + self.memory.latency, burst.beats)
        answered.append(over)
        if burst.last and name == "fetch":
            self.came.append(over)
        elif burst.last:
            count, after = ("stored", 1) if name == "store" else ("loaded", 3)
            self.counted[count].append(over + after)

    def _moved(self, direction: str, first: int, beats: int) -> int:
        """When memory moves the last of so many beats, the first of them in cycle ``first`` or later."""
        now, free = first, self.beats[direction]
        for beat in range(beats):
            now = max(first + beat, ceil(free))
            free = (free if now - free < 1 else now) + Fraction(self.memory.pace)
        self.beats[direction] = free
        return now


def channel(name: str) -> str:
    """The channel on which a source asks."""
    return "aw" if name == "store" else "ar"


@EXAMPLES
@given(**CYCLES)
def test_cycles(plan, seed, pace, data):
    """With a memory that doesn't stall, every burst is granted when it is said to be."""
    latency, write_latency = data.draw(st.integers(1, 150)), data.draw(st.integers(1, 60))
    check_cycles(plan, seed, pace, latency, write_latency)


def check_cycles(plan: Plan, seed: int, pace: Fraction | int, latency: int, write_latency: int) -> None:
    image, output = plan.image(seed), buffer(seed)
    model = memory_of(plan, image, latency, write_latency, pace=pace)
    seen = Bench(plan, model, output, pace=pace).run()
    timeline = Timeline(plan, model)
    assert [(cycle - 1, *burst) for cycle, *burst in model.asked] == timeline.run()
    assert seen.words == expected_words(plan, image)
    assert model.image == expected_image(plan, image, output)
    last = max(times[-1] for times in timeline.counted.values())
    assert seen.ended == last + 1
    stored = (job.store for job in plan.jobs)
    assert model.written == sum(8 * store.blocks * store.rows * store.words for store in stored)


@pytest.mark.parametrize(
    ("pace", "width"),
    [
        (1, 8),
        (2, 8),
        pytest.param(5, 8, marks=pytest.mark.long),
        (1, 4),
        pytest.param(2, 16, marks=pytest.mark.long),
        (Fraction(255, 254), 8),
        (Fraction(3, 2), 16),
        (1, 32),
        (Fraction(5, 3), 64),
        (Fraction(1, 2), 8),
        (Fraction(1, 2), 64),
        (Fraction(3, 4), 32),
        (Fraction(128, 255), 8),
    ],
)
def test_paces(pace, width):
    """Bursts of no beats to four, of rows that follow each other: each has the port for its cycles and no longer."""
    jobs = [
        Job(
            load=Load(end=words == 4, x_blocks=min(words, 1), x_rows=4, x_words=words, x_row_stride=64),
            store=Store(blocks=min(words, 1), rows=3, words=words, address=STORES + 256 * words, row_stride=64),
        )
        for words in range(5)
    ]
    check_cycles(Plan(jobs, [1] * 5, [1] * 5, base=PROGRAM, engine=ENGINES[width]), 0, pace, 3, 2)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_parts_of_wide_beats(width):
    """Rows of a word to nine from all lanes on, over a border, and places in other lanes of the buffers: each word to
    its place, in as many beats as hold it."""
    engine = ENGINES[width]
    jobs = [
        Job(
            load=Load(
                end=words == 9,
                x_blocks=1,
                x_rows=6,
                x_words=words,
                x_address=2048 - 24,
                x_row_stride=88,
                x_pitch_words=words,
                w_steps=words,
                w_address=8 * engine.weight_alignment * words,
                w_base=words,
            ),
            store=Store(blocks=1, rows=5, words=words, address=STORES + 512 * words, row_stride=88, o_base=255),
        )
        for words in range(1, 10)
    ]
    check_cycles(Plan(jobs, [1] * 9, [1] * 9, engine=engine), 1, 1, 4, 3)


@EXAMPLES
@given(**RESET)
def test_reset(plan, seed, reset_at, pattern):
    """After a reset at any time, of the memory too, a run is as any other."""
    image, output = plan.image(seed), buffer(seed)
    model = memory_of(plan, image, reads=pattern, writes=pattern)
    seen = Bench(plan, model, output).run(reset_at=reset_at)
    assert seen.words == expected_words(plan, image)
    assert model.image == expected_image(plan, image, output)


@pytest.mark.parametrize("direction", ["reads", "writes"])
def test_empty_parts(direction):
    """Answers that pile up and then come in a row don't meet the empty parts between them."""
    jobs = [
        Job(
            load=Load(
                end=number == 11,
                wait_computed=min(number, 1),
                w_steps=number % 2,
                w_address=LOADS + 64 * number,
                w_base=number,
            ),
            store=Store(blocks=number % 2, rows=1, words=1, address=STORES + 64 * number, o_base=number),
        )
        for number in range(12)
    ]
    plan = Plan(jobs, [300] + [1] * 11, [1] * 12)
    image, output = plan.image(0), buffer(0)
    late = Pattern((True,) * 250 + (False,) * 350)
    model = Memory(bytearray(image), **{direction: late})
    seen = Bench(plan, model, output).run()
    assert seen.words == expected_words(plan, image)
    assert model.image == expected_image(plan, image, output)


#: Loads and stores words at two places, again and again.
BUSY = Plan(
    [
        Job(
            load=Load(end=number == 5, w_steps=8, w_address=LOADS + 512 * number),
            store=Store(blocks=1, rows=4, words=3, address=STORES + 512 * number, row_stride=64),
        )
        for number in range(6)
    ],
    [3] * 6,
    [2] * 6,
)


#: Answers: the address, what memory says, and the error that the program ends with.
ANSWERS = [
    (LOADS + 512 * 2 + 64, Response.DECODE_ERROR, Error.READ_DECODE),
    (STORES + 512 + 64 + 8, Response.SLAVE_ERROR, Error.WRITE_SLAVE),
    (PROGRAM + 2 * Job.BYTES, Response.SLAVE_ERROR, Error.READ_SLAVE),
    (LOADS, Response.SLAVE_ERROR, Error.READ_SLAVE),
    (STORES + 512 * 3, Response.DECODE_ERROR, Error.WRITE_DECODE),
    (STORES, Response.EXCLUSIVE_OKAY, Error.NONE),
]
#: Behind a bus of 8 bytes without pauses all of them; the default run has the first two elsewhere.
TIMES_AND_WIDTHS = [(ALWAYS, 8), (Pattern(likely=0.3), 8), (ALWAYS, 4), (ALWAYS, 16), (ALWAYS, 64)]


@pytest.mark.parametrize(
    ("pattern", "width", "address", "response", "error"),
    [
        pytest.param(*case, *answer, marks=() if index == 0 or number < 2 else pytest.mark.long)
        for index, case in enumerate(TIMES_AND_WIDTHS)
        for number, answer in enumerate(ANSWERS)
    ],
)
def test_errors(pattern, width, address, response, error):
    """An answer that is an error stops the run: what was asked for still comes, and nothing more is."""
    plan, errors = replace(BUSY, engine=ENGINES[width]), {address: response}
    model = memory_of(plan, plan.image(0), reads=pattern, writes=pattern, addresses=pattern, errors=errors)
    seen = Bench(plan, model, buffer(0)).run()
    assert seen.error == error
    asked = {place for _, _, first, beats in model.asked for place in range(first, first + width * beats, 4)}
    assert address in asked
    if error != Error.NONE:
        assert STORES + 512 * 5 + 3 * 64 not in asked
        bursts = sum(name == "aw" for _, name, *_ in model.asked)
        assert len(model.moved) == bursts + sum(beats for *_, beats in model.asked)


def test_config():
    for name, value, message in (
        ("bus_bytes", 128, "bus_bytes must be 4, 8, 16, 32 or 64, not 128"),
        ("outstanding", 3, "outstanding must be a power of two from 2 to 256, not 3"),
    ):
        with pytest.raises(ConfigError, match=message):
            EngineConfig(**{name: value})
    with pytest.raises(ConfigError, match="read_latency must be from 0 to 5, not 6"):
        MemorySideConfig(engine=CONFIG, read_latency=6)
    with pytest.raises(ConfigError, match="data_bytes must be a power of two from 1 to 128, not 3"):
        axi.Master(data_bytes=3)


SIZES = ({"queue": 64}, {"outstanding": 4}, {"outstanding": 128}, *({"bus_bytes": width} for width in (4, 16, 32, 64)))
LARGE = EngineConfig(maps=64, pixels=31, map_words=8192, weight_steps=8192, output_words=8192)


@pytest.mark.long
def test_resources_and_paths():
    """No more than 3.3 ns of logic between registers, as in test_paths.py."""
    engines = CONFIG, LARGE, *(EngineConfig(**size) for size in SIZES)
    parts = [MemorySideConfig(engine=engine) for engine in engines]
    for part, measured, path in zip(parts, *synthesis.measure_paths(parts), strict=True):
        used = part.resources
        assert (used.dsp, used.bram36) == (measured.dsp, measured.bram36) == (0, 0)
        assert used.lut == pytest.approx(measured.lut, rel=0.1)
        assert used.ff == pytest.approx(measured.ff, rel=0.05)
        assert path is not None
        assert path.delay <= 3.3, path


@pytest.mark.long
@pytest.mark.parametrize(("test", "arguments"), [(test_words, WORDS), (test_cycles, CYCLES), (test_reset, RESET)])
def test_many(test, arguments):
    """As above, with more examples."""
    settings(max_examples=25)(given(**arguments)(test.hypothesis.inner_test))()
