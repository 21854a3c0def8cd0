"""The engine's reuse buffer, store unit and map memory: which pixels and words go where, and when."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator
from counted import cases_in_the_long_run
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import SMALL, behind
from testbench import Circuit, bus_beat

from hwgen import boards
from hwgen.errors import ConfigError
from hwgen.gateware.engine.config import CHAIN, EngineConfig
from hwgen.gateware.engine.job import Compute
from hwgen.gateware.engine.lanes import LaneAddressing
from hwgen.gateware.engine.map_memory import MapMemoryConfig
from hwgen.gateware.engine.output_words import OutputWordsConfig, read_latency
from hwgen.gateware.engine.reuse_buffer import ReuseBuffer, ReuseBufferConfig, map_side
from hwgen.gateware.engine.steps import StepSequencer
from hwgen.gateware.engine.store import StoreUnit
from hwgen.gateware.engine.weight_buffer import WeightBuffer, weight_side
from hwgen.gateware.engine.writes import BankAlignmentConfig, WriteSide, addend_side
from hwgen.tools import synthesis

#: As many lanes as the paper's four processing elements, and one.
FIVE = EngineConfig(maps=8, pixels=5, map_words=64, weight_steps=64, slots=4)
#: Device family with UltraRAM, and its two kinds of RAM for map buffers.
ULTRA, RAMS = boards.load("kv260").family, ("block", "ultra")


def simulate(component, bench) -> None:
    simulator = Simulator(component)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize(
    ("pixels", "bus_bytes"), [(5, 8), (7, 8), (13, 8), (17, 8), (7, 16), (5, 32), (13, 32), (11, 64), (25, 64)]
)
def test_every_lane_reads_a_bank_of_its_own(pixels, bus_bytes):
    """Random addresses and rotations, a read of every bank in each cycle, and writes meanwhile, of a wide bus into
    several banks."""
    config = EngineConfig(maps=8, pixels=pixels, map_words=16, slots=4, bus_bytes=bus_bytes)
    rng = np.random.default_rng(pixels)
    buffer = ReuseBuffer(config)
    asked: list[tuple[int, np.ndarray]] = []
    written: list[dict[tuple[int, int], list[int]]] = []
    held = np.zeros((pixels, config.map_words, 8), int)

    async def bench(ctx):
        ctx.set(buffer.write.valid, 1)
        for cycle in range(150):
            rest, words = int(rng.integers(pixels)), rng.integers(config.map_words, size=pixels)
            asked.append((rest, words))
            ctx.set(buffer.rest, rest)
            for lane in range(pixels):
                ctx.set(buffer.words[lane], int(words[lane]))
            bank, word = int(rng.integers(pixels)), int(rng.integers(config.map_words))
            lanes = [
                rng.integers(-128, 128, 8).tolist() if rng.random() < 0.8 else None for _ in range(config.bus_words)
            ]
            ctx.set(buffer.write.payload, bus_beat(bank, word, *lanes))
            written.append({})
            for lane, values in enumerate(lanes):
                row, place = divmod(word * pixels + bank + lane, pixels)
                if values is not None:
                    written[-1][place, row % config.map_words] = values
            _, _, found = await ctx.tick().sample(buffer.o)
            number = cycle - config.buffer_latency
            if number < 0:
                continue
            at_bank = number + config.rotation_stages
            for places in written[: at_bank - buffer.WRITE_LATENCY + 1]:
                for place, values in places.items():
                    held[place] = values
            rest, words = asked[number]
            for lane in range(pixels):
                place = (lane + rest) % pixels, int(words[lane])
                if place not in written[at_bank - 1]:  # that are written in this very cycle
                    assert list(found[lane]) == held[place].tolist(), (cycle, lane)

    simulate(buffer, bench)


@pytest.mark.parametrize(("maps", "bus_bytes"), [(24, 8), (24, 16), (8, 32), (24, 32), (8, 64), (16, 64), (24, 64)])
def test_four_weights_for_each_map(maps, bus_bytes):
    """Steps are read in any order, one a cycle, each position of the chains a cycle later than the one before."""
    config = replace(FIVE, maps=maps, pixels=11, bus_bytes=bus_bytes)
    rng = np.random.default_rng(bus_bytes)
    buffer = WeightBuffer(config)
    held = rng.integers(-128, 128, (config.weight_steps, config.weight_words, 8))
    words, lanes, banks = held.reshape(-1, 8).tolist(), config.bus_words, config.weight_banks
    first = config.weight_alignment * int(rng.integers(lanes // config.weight_alignment))

    async def bench(ctx):
        ctx.set(buffer.write.valid, 1)
        for begin in range(-first, len(words), lanes):
            places = range(begin, begin + lanes)
            row, bank = divmod(begin, banks)
            row %= config.weight_steps // config.weight_copies
            lane_words = (words[place] if 0 <= place < len(words) else None for place in places)
            ctx.set(buffer.write.payload, bus_beat(bank, row, *lane_words))
            await ctx.tick()
        ctx.set(buffer.write.valid, 0)
        await ctx.tick().repeat(2)
        order = rng.permutation(config.weight_steps).tolist()
        for cycle in range(len(order)):
            ctx.set(buffer.step, order[cycle])
            await ctx.tick()
            for position in range(CHAIN):
                read = cycle + 1 - buffer.LATENCY - position
                if read >= 0:
                    weights = held[order[read]].reshape(CHAIN, -1)[position]
                    assert list(ctx.get(buffer.o[position])) == weights.tolist()

    simulate(buffer, bench)


class Front(wiring.Component):
    """What comes before the array: steps, lanes and reuse buffer."""

    def __init__(self, config: EngineConfig):
        super().__init__({})
        self.steps, self.lanes, self.maps = StepSequencer(config), LaneAddressing(config), ReuseBuffer(config)

    def elaborate(self, platform):
        m = Module()
        steps, lanes, maps = self.steps, self.lanes, self.maps
        m.submodules.steps, m.submodules.lanes, m.submodules.maps = steps, lanes, maps
        m.d.comb += [
            lanes.walk.eq(steps.walk),
            lanes.next_job.eq(steps.next_job),
            lanes.step.eq(steps.step),
            lanes.job.eq(steps.job),
            steps.walked.eq(lanes.walked),
            maps.rest.eq(lanes.rest),
            maps.words.eq(lanes.words),
        ]
        return m


def read_together(part: Compute, boxes: dict[str, tuple[int, int]], pitch: int) -> list[str]:
    """What the lanes get in each step, in the order of the pixels: ``x1.2`` is row 1, column 2 of map ``x``.

    The maps lie one behind the other, each with a plane of its own, from position 0.
    """
    front = Front(FIVE)
    pixels = FIVE.pixels
    found: list[str] = []
    late = LaneAddressing.LATENCY + FIVE.buffer_latency

    async def bench(ctx):
        ctx.set(front.maps.write.valid, 1)
        for number, (rows, columns) in enumerate(boxes.values()):
            for row in range(rows):
                for column in range(columns):
                    word, bank = divmod(row * pitch + column, pixels)
                    ctx.set(front.maps.write.payload, bus_beat(bank, word + number * part.plane, [number, row, column]))
                    await ctx.tick()
        ctx.set(front.maps.write.valid, 0)
        ctx.set(front.steps.loaded, 1)
        ctx.set(front.steps.jobs.payload.as_value(), part.pack())
        ctx.set(front.steps.jobs.valid, 1)
        await ctx.tick()
        ctx.set(front.steps.jobs.valid, 0)
        steps: list[int] = []
        for cycle in range(80):
            _, _, valid, words = await ctx.tick().sample(front.steps.valid, front.maps.o)
            steps += [cycle] * valid
            if cycle - late in steps:
                names = [f"{[*boxes][word[0]]}{word[1]}.{word[2]}" for word in words]
                found.append(" ".join(names[part.stride * pixel % pixels] for pixel in range(pixels)))
        assert steps == list(range(steps[0], steps[0] + len(found)))

    simulate(front, bench)
    return found


#: Of all jobs here: one tap of one channel unless it says otherwise, and a box that no tap leaves.
PLAIN = Compute(
    groups=1, folds=1, first=1, walk=1, kernel_rows=1, kernel_columns=1, channels=1, in_rows=9, in_columns=99
)


def test_row_based():
    """x00 to x03, then x01 to x04 and so on (section IV-A.1), along a row of ten outputs with a kernel of 2 x 3."""
    part = replace(
        PLAIN,
        groups=2,
        kernel_rows=2,
        kernel_columns=3,
        stride=1,
        columns=10,
        group_columns=5,
        group_words=1,
        wrap_words=1,
        column_rest=1,
        row_words=3,
    )
    assert read_together(part, {"x": (2, 12)}, pitch=15) == [
        "x0.0 x0.1 x0.2 x0.3 x0.4",
        "x0.1 x0.2 x0.3 x0.4 x0.5",
        "x0.2 x0.3 x0.4 x0.5 x0.6",
        "x1.0 x1.1 x1.2 x1.3 x1.4",
        "x1.1 x1.2 x1.3 x1.4 x1.5",
        "x1.2 x1.3 x1.4 x1.5 x1.6",
        "x0.5 x0.6 x0.7 x0.8 x0.9",
        "x0.6 x0.7 x0.8 x0.9 x0.10",
        "x0.7 x0.8 x0.9 x0.10 x0.11",
        "x1.5 x1.6 x1.7 x1.8 x1.9",
        "x1.6 x1.7 x1.8 x1.9 x1.10",
        "x1.7 x1.8 x1.9 x1.10 x1.11",
    ]


def test_partial_columns():
    """x00 to x30, then x10 to x40; those of another map are stored deeper (section IV-A.3)."""
    part = replace(PLAIN, kernel_rows=3, channels=16, channelwise=1, stride=1, columns=1, group_rows=5, group_words=1)
    part = replace(part, row_rest=1, plane=2)
    assert read_together(part, {"x": (7, 1), "y": (7, 1)}, pitch=1) == [
        "x0.0 x1.0 x2.0 x3.0 x4.0",
        "x1.0 x2.0 x3.0 x4.0 x5.0",
        "x2.0 x3.0 x4.0 x5.0 x6.0",
        "y0.0 y1.0 y2.0 y3.0 y4.0",
        "y1.0 y2.0 y3.0 y4.0 y5.0",
        "y2.0 y3.0 y4.0 y5.0 y6.0",
    ]


def test_folds():
    """Each fold begins with the first group again; with `channelwise` each reads the next map."""
    part = replace(PLAIN, groups=2, folds=2, stride=1, columns=1, group_rows=5, group_words=1, in_rows=10, plane=2)
    of_map = [" ".join(f"x{row}.0" for row in range(first, first + 5)) for first in (0, 5)]
    boxes = {"x": (10, 1), "y": (10, 1)}
    assert read_together(part, boxes, pitch=1) == of_map * 2
    other = [names.replace("x", "y") for names in of_map]
    assert read_together(replace(part, channels=8, channelwise=1), boxes, pitch=1) == of_map + other


def test_halves_of_a_block():
    """Five channels take two steps for each tap, four take one."""
    part = replace(PLAIN, kernel_columns=2, channels=5, stride=1, columns=5, column_rest=1)
    wanted = ["x0.0 x0.1 x0.2 x0.3 x0.4", "x0.1 x0.2 x0.3 x0.4 x0.5"]
    assert read_together(part, {"x": (1, 6)}, pitch=6) == [names for names in wanted for _ in range(2)]
    assert read_together(replace(part, channels=4), {"x": (1, 6)}, pitch=6) == wanted


def test_columns_of_a_wider_box():
    """A column of outputs over a kernel of 2 x 2: the box's rows lie a row and a bank apart."""
    part = replace(
        PLAIN, kernel_rows=2, kernel_columns=2, stride=1, columns=1, group_rows=5, group_words=6, wrap_words=1
    )
    part = replace(part, column_rest=1, row_words=1, row_rest=1)
    assert read_together(part, {"x": (6, 2)}, pitch=6) == [
        "x0.0 x1.0 x2.0 x3.0 x4.0",
        "x0.1 x1.1 x2.1 x3.1 x4.1",
        "x1.0 x2.0 x3.0 x4.0 x5.0",
        "x1.1 x2.1 x3.1 x4.1 x5.1",
    ]


def test_subsampled_columns():
    """x00, x20, x40, x60 and then x10, x30, x50, x70 (section IV-A.4 and figure 6)."""
    part = replace(PLAIN, kernel_rows=3, stride=2, columns=2, group_rows=10, group_words=2, row_rest=1, in_rows=11)
    assert read_together(part, {"x": (11, 1)}, pitch=1) == [
        "x0.0 x2.0 x4.0 x6.0 x8.0",
        "x1.0 x3.0 x5.0 x7.0 x9.0",
        "x2.0 x4.0 x6.0 x8.0 x10.0",
    ]


@pytest.mark.parametrize("stride", [2, 3, 4])
def test_subsampled_rows(stride):
    part = replace(PLAIN, kernel_columns=2, stride=stride, columns=5 * stride, group_rows=stride, column_rest=1)
    part = replace(part, wrap_words=3 * stride, group_words=4 * stride)
    assert read_together(part, {"x": (1, 20)}, pitch=20) == [
        " ".join(f"x0.{stride * pixel + tap}" for pixel in range(5)) for tap in range(2)
    ]


def test_over_the_ends_of_rows():
    """The example of docs/reference/engine.md: rows of four outputs, a pitch of nine."""
    part = replace(PLAIN, groups=3, stride=1, columns=4, group_columns=1, group_rows=1, group_words=2, wrap_words=1)
    assert read_together(part, {"x": (4, 6)}, pitch=9) == [
        "x0.0 x0.1 x0.2 x0.3 x1.0",
        "x1.1 x1.2 x1.3 x2.0 x2.1",
        "x2.2 x2.3 x3.0 x3.1 x3.2",
    ]


#: Number of jobs that are drained from the first cycle on.
DRAINED = 100
#: Cycles after which a request that was not made is not made at all.
PATIENCE = 30


def test_memory_of_each_part():
    """Parts for the other memory wait until all earlier jobs are stored. An empty part stays with the memory before."""
    dut = StoreUnit(replace(SMALL, kept_words=4096), latency=2)
    one_word = {"rows": 1, "words": 1, "blocks": 1}
    parts = [
        {**one_word, "kept": 0, "address": 0x100},
        {**one_word, "kept": 1, "address": 0x200},
        {**one_word, "kept": 1, "address": 0x300},
        {**one_word, "kept": 0, "blocks": 0, "address": 0x400},
        {**one_word, "kept": 0, "address": 0x500},
        {**one_word, "kept": 1, "blocks": 0, "address": 0x600},
    ]
    switches = [0, 1, 0, 0, 1, 0]  # whether the part is for another memory than the part before
    memories = [0, 1, 1, 1, 0, 0]

    async def bench(ctx):
        index = 0

        async def request(cycles):
            """Return the memory of the next request; None if there is none within so many cycles."""
            nonlocal index
            for _ in range(cycles):
                if index < len(parts):
                    ctx.set(dut.part.payload, parts[index])
                ctx.set(dut.part.valid, index < len(parts))
                _, _, is_taken, is_request, memory = await ctx.tick().sample(
                    dut.part.ready, dut.request.valid, dut.to_map_memory
                )
                index += is_taken
                if is_request:
                    return memory
            return None

        ctx.set(dut.drained, DRAINED)
        ctx.set(dut.request.ready, 1)
        for part, (switch, memory) in enumerate(zip(switches, memories, strict=True)):
            if switch:
                ctx.set(dut.stored, part - 1)
                assert await request(PATIENCE) is None
            ctx.set(dut.stored, part if switch else 0)
            assert await request(PATIENCE) == memory
        assert await request(PATIENCE) is None

    Circuit(dut).simulate(bench)


#: Cycles of a run.
CYCLES = 40


@st.composite
def sides(draw) -> WriteSide:
    """Write sides of the three buffers of an engine of several cores."""
    config = replace(behind(draw(st.sampled_from([8, 16, 32, 64]))), cores=draw(st.sampled_from([2, 3, 16])))
    return draw(st.sampled_from([map_side, weight_side, addend_side]))(config)


@cases_in_the_long_run(30)
@given(side=sides(), seed=st.integers(0, 2**32))
def test_words_come_to_their_banks(side, seed):
    """Each lane's word goes to the next bank, or to bank 0 of the next address, and to the chosen cores alone."""
    rng = np.random.default_rng(seed)
    align = BankAlignmentConfig(side=side).component()
    wanted: list[tuple[int, dict[int, tuple[int, int]]]] = []
    written = 0

    async def bench(ctx):
        nonlocal written
        for cycle in range(CYCLES):
            bank = side.alignment * int(rng.integers(side.banks // side.alignment))
            word, cores, valid = int(rng.integers(side.words)), int(rng.integers(1 << side.cores)), rng.random() < 0.8
            lanes = [rng.integers(-128, 128, 8).tolist() if rng.random() < 0.7 else None for _ in range(side.lanes)]
            beat = bus_beat(bank, word, *lanes)
            ctx.set(align.i.valid, valid)
            ctx.set(align.i.payload, beat)
            ctx.set(align.cores, cores)
            writes = {}
            for lane, values in enumerate(lanes):
                row, place = divmod(bank + lane, side.banks)
                if values is not None and valid:
                    writes[place] = (word + row) % side.words, beat["data"][lane]
            wanted.append((cores if valid else 0, writes))
            _, _, chosen, found = await ctx.tick().sample(align.written, align.o)
            if cycle < align.LATENCY:
                continue
            cores, writes = wanted[cycle - align.LATENCY]
            assert chosen == cores
            assert {
                place: (write["address"], write["word"]) for place, write in enumerate(found) if write["enable"]
            } == writes
            written += len(writes)

    simulate(align, bench)
    assert written > CYCLES // 4


@settings(max_examples=30)
@given(bus=st.sampled_from([4, 8, 16, 32, 64]), cores=st.integers(2, 16), seed=st.integers(0, 2**32))
def test_the_words_of_a_core_are_stored(bus, cores, seed):
    """Words at random addresses of random cores, one read per cycle, from buffers that answer as a finish does."""
    engine = replace(behind(bus), cores=cores)
    config, rng = OutputWordsConfig(engine=engine), np.random.default_rng(seed)
    output, banks = config.component(), engine.bus_words
    stored = rng.integers(1 << 63, size=(cores, engine.output_words), dtype=np.int64)
    asked: list[tuple[int, int]] = []
    rows: list[list[int]] = []

    async def bench(ctx):
        for cycle in range(CYCLES):
            asked.append((int(rng.integers(cores)), int(rng.integers(engine.output_words))))
            ctx.set(output.core, asked[-1][0])
            ctx.set(output.address, asked[-1][1])
            if cycle > 2:
                for core in range(cores):
                    words = (int(stored[core, row * banks + bank]) for bank, row in enumerate(rows[cycle - 2]))
                    ctx.set(getattr(output, f"words_{core}"), sum(word << 64 * bank for bank, word in enumerate(words)))
            _, _, row, found = await ctx.tick().sample(output.rows, output.word)
            rows.append(list(row))
            if cycle >= config.latency:
                core, address = asked[cycle - config.latency]
                places = [(address + lane) % engine.output_words for lane in range(banks)]
                assert found == sum(int(stored[core, place]) << 64 * lane for lane, place in enumerate(places))

    simulate(output, bench)
    assert read_latency(engine) == config.latency <= 5


@pytest.mark.parametrize("bus_bytes", [8, 64])
def test_a_core_that_is_not_written_keeps_its_words(bus_bytes):
    """Aligned beats into the map buffer, with and without the core being chosen; then every word is read."""
    config = replace(behind(bus_bytes), cores=2, map_words=16)
    side, rng = map_side(config), np.random.default_rng(bus_bytes)
    buffer, held = ReuseBuffer(config), np.zeros((config.pixels, config.map_words), object)

    async def bench(ctx):
        for _ in range(100):
            writes = [
                {
                    "enable": int(rng.integers(2)),
                    "address": int(rng.integers(side.words)),
                    "word": int(rng.integers(1 << 62)),
                }
                for _ in range(side.banks)
            ]
            is_written = int(rng.integers(2))
            ctx.set(buffer.write.valid, is_written)
            ctx.set(buffer.write.payload, writes)
            for bank, write in enumerate(writes):
                if write["enable"] and is_written:
                    held[bank, write["address"]] = write["word"]
            await ctx.tick()
        ctx.set(buffer.write.valid, 0)
        await ctx.tick().repeat(2)
        for word in range(config.map_words):
            ctx.set(buffer.addresses, [word] * config.pixels)
            await ctx.tick().repeat(config.buffer_latency)
            found = [
                sum((value & 0xFF) << 8 * channel for channel, value in enumerate(ctx.get(lane))) for lane in buffer.o
            ]
            assert found == held[:, word].tolist()

    simulate(buffer, bench)


ENGINE = EngineConfig(pixels=5, maps=8, map_words=256, weight_steps=256, parameter_words=8, output_words=256, slots=2)
#: Cycles in which a test must be over.
PATIENCE_OF_A_MEMORY = 300


def test_cycles_of_write_bursts():
    """A burst of n beats is taken max(n, 2) cycles after the one before at the earliest, and then if it is offered."""
    dut = MapMemoryConfig(engine=replace(ENGINE, kept_words=2 * ENGINE.bank_words)).component()
    num_beats = [5, 0, 1, 2, 3, 7, 1]
    taken: list[int] = []

    async def bench(ctx):
        ctx.set(dut.written.valid, 1)  # words of some bursts
        ctx.set(dut.written.payload.last, 1)
        ctx.set(dut.store.valid, 1)
        for cycle in range(PATIENCE_OF_A_MEMORY):
            if len(taken) == len(num_beats):
                return
            ctx.set(dut.store.payload.run.beats, num_beats[len(taken)])
            if (await ctx.tick().sample(dut.store.ready))[2]:
                taken.append(cycle)

    Circuit(dut).simulate(bench)
    assert np.diff(taken).tolist() == [max(beats, 2) for beats in num_beats[:-1]]


def test_words_are_read_back():
    """Two write bursts, one in each bank in depth, then reads that begin and end within rows; one read is empty."""
    rows = ENGINE.kept_rows
    kept = replace(ENGINE, kept_words=2 * ENGINE.bank_words)
    dut = MapMemoryConfig(engine=kept).component()
    width = kept.row_words
    rng = np.random.default_rng(1)
    content = {}
    bursts = [(3, 2 * width), (rows * width + 1, width + 2)]
    for address, num_words in bursts:
        content |= {address + word: int(rng.integers(1, 1 << 63)) for word in range(num_words)}
    # Address of the first word, number of words.
    reads = [(3, 2 * width), (0, 0), (rows * width + 1, width + 2), (4, 1)]
    answered: list[list[int]] = []

    async def write(ctx):
        for address, num_words in bursts:
            ctx.set(dut.store.payload.run.address, address)
            ctx.set(dut.store.payload.run.beats, num_words)
            ctx.set(dut.store.valid, 1)
            await ctx.tick().until(dut.store.ready)
            ctx.set(dut.store.valid, 0)
            ctx.set(dut.written.valid, 1)
            for word in range(num_words):
                payload = {"data": content[address + word], "last": word == num_words - 1, "present": 1}
                ctx.set(dut.written.payload, payload)
                await ctx.tick()
            ctx.set(dut.written.valid, 0)

    async def bench(ctx):
        await write(ctx)
        await ctx.tick().repeat(3)
        assert ctx.get(dut.idle)
        waiting = [*reads]
        for _ in range(PATIENCE_OF_A_MEMORY):
            ctx.set(dut.load.valid, bool(waiting))
            if waiting:
                address, num_words = waiting[0]
                num_rows = -(-(address % width + num_words) // width) if num_words else 0
                run = {"address": address, "beats": num_rows, "wide": 1, "end": (address + num_words) % width}
                ctx.set(dut.load.payload, {"run": run, "tag": {"place": len(waiting)}})
            taken, valid, answer = (await ctx.tick().sample(dut.load.ready, dut.answers.valid, dut.answers.payload))[2:]
            if taken and waiting:
                waiting.pop(0)
            if valid:
                if answer.first:
                    answered.append([answer.tag.place])
                answered[-1] += [answer.data[lane] for lane in range(width) if answer.present >> lane & 1]
        assert not waiting

    Circuit(dut).simulate(bench)
    assert answered == [
        [len(reads) - index, *(content[address + word] for word in range(num_words))]
        for index, (address, num_words) in enumerate(reads)
    ]


@pytest.mark.long
def test_banks_in_ultra_ram():
    """Yosys places each bank in an UltraRAM, as the cost says; the buffer of the other RAM has none."""
    configs = [ReuseBufferConfig(engine=replace(FIVE, device=ULTRA, map_words=4096, map_ram=ram)) for ram in RAMS]
    measured = synthesis.measure(configs, ULTRA)
    for config, used in zip(configs, measured, strict=True):
        assert (used.uram, used.bram36) == (config.resources.uram, config.resources.bram36)
    assert [used.uram for used in measured] == [0, FIVE.pixels]


def test_other_rams_are_refused():
    with pytest.raises(ConfigError, match="map_ram must be block or ultra, not 'lut'"):
        replace(FIVE, device=ULTRA, map_ram="lut")
    with pytest.raises(ConfigError, match="map_ram must be block, not 'ultra'"):
        replace(FIVE, map_ram="ultra")
