"""The engine's reuse buffer, and which pixels its lanes read together: the access patterns of Peemen, section IV-A."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator
from beats import bus_beat

from hwgen.gateware.engine.config import CHAIN, EngineConfig
from hwgen.gateware.engine.job import Compute
from hwgen.gateware.engine.lanes import Lanes
from hwgen.gateware.engine.reuse_buffer import ReuseBuffer
from hwgen.gateware.engine.steps import Steps
from hwgen.gateware.engine.weight_buffer import WeightBuffer

#: As many lanes as the paper's four processing elements, and one.
FIVE = EngineConfig(maps=8, pixels=5, map_words=64, weight_steps=64, slots=4)


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
    """Steps are read in any order, one a cycle, each position of the chains a cycle later than the one before. Beats
    that are written may have words of several steps, or begin within one."""
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
        self.steps, self.lanes, self.maps = Steps(config), Lanes(config), ReuseBuffer(config)

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
    late = Lanes.LATENCY + FIVE.buffer_latency

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
