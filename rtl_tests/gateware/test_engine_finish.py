"""The engine behind its array: requantisation, additions, activation tables and pools at run time."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import verilated
from amaranth import Module, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from counted import cases_in_the_long_run
from hypothesis import example, given, settings
from hypothesis import strategies as st
from needs import needs_compiler
from testbench import ALWAYS, Circuit, Pattern, patterns, unpack
from texts import read_text
from verilated import Pairs, at_ends, beside

from hwgen.errors import ConfigError
from hwgen.gateware.arithmetic.bound import Bound, BoundConfig
from hwgen.gateware.arithmetic.scale import ScaleConfig, ScaleUnit
from hwgen.gateware.arithmetic.shares import FRACTION
from hwgen.gateware.engine.add import TableAddConfig
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.finish import Finish, FinishConfig
from hwgen.gateware.engine.map_product import MapProductConfig
from hwgen.gateware.engine.pool import Pool, PoolConfig
from hwgen.gateware.lookup import delayed
from hwgen.network.maps import Requantisation, requantise
from hwgen.tools import synthesis

long = pytest.mark.long

SUMS = data.StructLayout({"sum": signed(32), "bias": signed(32)})
HOW = data.StructLayout({"significand": 24, "shift": 8, "zero_point": signed(8), "low": signed(8), "high": signed(8)})


class Lane(wiring.Component):
    """`ScaleUnit` and `Bound`, which get in time what comes with the sum."""

    def __init__(self):
        super().__init__({"valid_in": In(1), "sums": In(SUMS), "how": In(HOW), "valid": Out(1), "o": Out(signed(8))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.scale = scale = ScaleUnit(ScaleConfig())
        m.submodules.bound = bound = Bound(BoundConfig(bits=len(scale.whole)))
        early, late = scale.config.scale_cycle, scale.config.latency
        factor = [delayed(m, name, self.how[name], early) for name in ("significand", "shift")]
        zero = delayed(m, "zero", self.how.zero_point, late)
        low, high = (delayed(m, name, self.how[name], late + bound.config.bounds_cycle) for name in ("low", "high"))
        m.d.comb += [
            scale.sum.eq(self.sums.sum),
            scale.bias.eq(self.sums.bias),
            scale.significand.eq(factor[0]),
            scale.shift.eq(factor[1]),
            bound.whole.eq(scale.whole),
            bound.carry.eq(scale.carry),
            bound.zero_point.eq(zero),
            bound.low.eq(low),
            bound.high.eq(high),
            self.o.eq(bound.o),
            self.valid.eq(delayed(m, "valid", self.valid_in, late + bound.config.latency, reset_less=False)),
        ]
        return m


DRIVER = read_text("engine_finish_driver.cpp")


def eight(values: np.ndarray, place: int) -> np.ndarray:
    return (values.astype(np.uint64) & np.uint64(255)) << np.uint64(place)


def outputs_of(folder: Path, pairs: Pairs, biases: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """What the lane makes of ``pairs``, with zero point, low and high in the columns of ``bounds``."""
    sums = (pairs.totals - biases).astype(np.int64).view(np.uint64) & np.uint64(0xFFFFFFFF)
    sums |= biases.astype(np.int64).view(np.uint64) << np.uint64(32)
    how = pairs.significands.astype(np.uint64) | eight(pairs.shifts, 24)
    for number in range(3):
        how |= eight(bounds[:, number], 32 + 8 * number)
    outputs = verilated.run(np.stack([sums, how], axis=1), folder)
    return (outputs ^ 128) - 128


def wanted_of(pairs: Pairs, bounds: np.ndarray) -> np.ndarray:
    """The same by the golden model, with bounds of its own, then zero point and bounds."""
    scale = {"significand": pairs.significands, "shift": pairs.shifts}
    rule = Requantisation(**scale, zero_point=0, low=-(1 << 20), high=1 << 20, float32=True)
    scaled = requantise(pairs.totals[:, None], rule, 1 << 33)[:, 0] + bounds[:, 0]
    return np.clip(scaled, bounds[:, 1], bounds[:, 2])


def any_of(rng: np.random.Generator, count: int) -> Pairs:
    """Sums of any size and scales that bring them near outputs, or far away; powers of two and their neighbours."""
    bits = rng.integers(0, 34, count)
    totals = rng.integers(0, 1 << np.maximum(bits, 0))
    powers = (1 << np.minimum(bits, 32)) + rng.integers(-3, 4, count)
    totals = np.where(rng.random(count) < 0.3, powers, totals) * rng.choice([-1, 1], count)
    ends = rng.choice([1 << 23, (1 << 24) - 1, 3 << 22, (1 << 23) + 1], count)
    significands = np.where(rng.random(count) < 0.4, ends, rng.integers(1 << 23, 1 << 24, count))
    near = bits + 23 + rng.integers(-10, 4, count)
    shifts = np.where(rng.random(count) < 0.2, rng.integers(0, 256, count), near)
    return Pairs(np.clip(totals, -(1 << 32), (1 << 32) - 2), significands, np.clip(shifts, 0, 255))


def past_float32(rng: np.random.Generator, count: int) -> Pairs:
    """Sums of 25 to 32 bits at ties of their 24 bits, or beside them, whose product is next to a tie of outputs."""
    pairs = beside(rng, count, (25, 32))
    return Pairs(
        np.clip(pairs.totals + rng.integers(-2, 3, count), -(1 << 32), (1 << 32) - 2), pairs.significands, pairs.shifts
    )


KINDS = {
    "any": any_of,
    "beside ties": lambda rng, count: beside(rng, count, (1, 24)),
    "past 2**24": past_float32,
    "ends of bands": at_ends,
}


@pytest.fixture(scope="module")
def lane(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("lane")
    verilated.build(Lane(), DRIVER, folder)
    return folder


@needs_compiler
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [pytest.param(count, marks=long) for count in (50_000, 2_000_000)])
def test_requantise(lane, kind, count):
    """Against the golden model, which is held against ONNX Runtime elsewhere."""
    rng = np.random.default_rng(count)
    pairs = KINDS[kind](rng, count // 10 if kind == "ends of bands" else count)
    half = 1 << 31
    least, most = np.maximum(pairs.totals - half + 1, -half), np.minimum(pairs.totals + half, half - 1)
    biases = rng.integers(least, most + 1)
    biases = np.where(rng.random(len(pairs)) < 0.2, np.where(rng.random(len(pairs)) < 0.5, least, most), biases)
    zeros = rng.integers(-128, 128, len(pairs))
    bounds = np.sort(rng.integers(-128, 128, (len(pairs), 2)), axis=1)
    bounds = np.where(rng.random(len(pairs))[:, None] < 0.8, [-128, 127], bounds)
    bounds = np.column_stack([zeros, bounds])
    wanted = wanted_of(pairs, bounds)
    np.testing.assert_array_equal(outputs_of(lane, pairs, biases, bounds), wanted)
    assert len(np.unique(wanted)) > 250


def test_scale():
    """Sums of up to 33 bits, scaled to outputs and beyond, against the golden model: 400 of each kind."""
    rng, config = np.random.default_rng(1), ScaleConfig()
    drawn = [draw(rng, 400) for draw in (any_of, past_float32, lambda rng, count: beside(rng, count, (1, 24)))]
    pairs = Pairs(*(np.concatenate([getattr(some, each.name) for some in drawn]) for each in fields(Pairs)))
    biases = np.clip(pairs.totals // 2, -(1 << 31), (1 << 31) - 1)
    no_rule = np.tile([0, -(1 << 20), 1 << 20], (len(pairs.totals), 1))
    seen: list[int] = []
    dut = ScaleUnit(config)

    async def bench(ctx):
        for cycle in range(len(biases) + config.latency):
            if cycle < len(biases):
                ctx.set(dut.sum, int(pairs.totals[cycle] - biases[cycle]))
                ctx.set(dut.bias, int(biases[cycle]))
            if 0 <= (scaled := cycle - config.scale_cycle) < len(biases):
                ctx.set(dut.significand, int(pairs.significands[scaled]))
                ctx.set(dut.shift, int(pairs.shifts[scaled]))
            _, _, whole, carry = await ctx.tick().sample(dut.whole, dut.carry)
            seen.append(whole + carry)

    Circuit(dut).simulate(bench)
    results, expected = np.array(seen[config.latency :]), wanted_of(pairs, no_rule)
    exact = np.abs(expected) <= 255
    np.testing.assert_array_equal(results[exact], expected[exact])
    assert (np.abs(results[~exact]) > 255).all()
    np.testing.assert_array_equal(results[~exact] > 0, expected[~exact] > 0)
    assert 400 < exact.sum() < len(exact)


@pytest.mark.parametrize(("threshold", "rounds_up"), [(11, 1), (12, 1), (13, 0), (0, 1), (1 << FRACTION, 0)])
def test_the_fraction_at_which_a_sum_is_rounded_up(threshold, rounds_up):
    """A sum of two shares with the fraction 12: it is rounded up from the fraction in the table on, and not below."""
    dut = TableAddConfig(lanes=1).component()
    first, second = (7 << FRACTION) + 19, (-3 << FRACTION) - 7
    writes = {5: first, 256 + 9: second % (1 << 64), 512 + 4: threshold}

    async def bench(ctx):
        ctx.set(dut.write.valid, 1)
        for index, word in writes.items():
            ctx.set(dut.write.payload, {"index": index, "data": word})
            await ctx.tick()
        ctx.set(dut.write.valid, 0)
        ctx.set(dut.first, [5])
        ctx.set(dut.second, [9])
        await ctx.tick().repeat(TableAddConfig.latency)
        assert (ctx.get(dut.whole[0]), ctx.get(dut.carry)) == (4, rounds_up)

    Circuit(dut).simulate(bench)


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        (ScaleConfig, {"sum_bits": 33}, "sum_bits must be from 1 to 32, not 33"),
        (ScaleConfig, {"sum_bits": 0}, "sum_bits must be from 1 to 32, not 0"),
        (BoundConfig, {"bits": 0}, "bits must be a positive integer, not 0"),
        (PoolConfig, {"words": 1, "blocks": 1}, "words must be 2 or more, not 1"),
        (PoolConfig, {"words": 2, "blocks": 0}, "blocks must be 1 or more, not 0"),
    ],
)
def test_sizes_that_are_refused(kind, parameters, message):
    with pytest.raises(ConfigError) as caught:
        kind(**parameters)
    assert str(caught.value) == message


#: Nanoseconds of logic between registers at most, as in test_paths.py.
LIMIT = 3.3
PARTS = (ScaleConfig(), BoundConfig(bits=11), BoundConfig(bits=13), PoolConfig(words=64, blocks=2))
MORE_PARTS = (
    TableAddConfig(),
    TableAddConfig(lanes=1),
    MapProductConfig(),
    PoolConfig(words=512, blocks=4),
    PoolConfig(words=2048, blocks=8),
    FinishConfig(engine=EngineConfig(parameter_words=128, output_words=1024, sum_bits=24)),
    *(FinishConfig(engine=EngineConfig(bus_bytes=width)) for width in (16, 32, 64)),
)


@pytest.mark.long
@pytest.mark.parametrize("parts", [PARTS, pytest.param(MORE_PARTS, marks=long)])
def test_resources_and_paths(parts):
    for part, measured, path in zip(parts, *synthesis.measure_paths(parts), strict=True):
        used = part.resources
        assert (used.dsp, used.bram36) == (measured.dsp, measured.bram36)
        assert used.lut == pytest.approx(measured.lut, rel=0.1)
        assert used.ff == pytest.approx(measured.ff, rel=0.05)
        assert path is not None
        assert path.delay <= LIMIT, path


@dataclass
class Stretch:
    """A job's beats, the writes that they need, and the words of the output buffer that they give."""

    writes: list[dict] = field(default_factory=list)
    addends: list[dict] = field(default_factory=list)
    beats: list[dict] = field(default_factory=list)
    words: dict[int, tuple[int, ...]] = field(default_factory=dict)


def parameter_writes(rng: random.Random, base: int, blocks: int) -> tuple[list[dict], list[tuple[int, int, int]]]:
    """Words of parameters, and what they are by map: bias, significand, shift."""
    maps = [
        (
            rng.randrange(-(1 << 31), 1 << 31) >> rng.randrange(32),
            rng.randrange(1 << 23, 1 << 24),
            rng.randrange(28, 40),
        )
        for _ in range(LANES * blocks)
    ]
    words = [bias & 0xFFFFFFFF | significand << 32 | shift << 56 for bias, significand, shift in maps]
    return [{"index": LANES * base + number, "data": word} for number, word in enumerate(words)], maps


class Tables:
    """Shares that overflow nothing but outputs, fractions, and activations; and which entries are needed."""

    def __init__(self, rng: random.Random):
        half = 1 << FRACTION - 1

        def share() -> int:
            """Of any size. Many are halves, so that fractions are what rounding compares them with."""
            return rng.choice(
                [rng.randrange(-(1 << 35), 1 << 35) >> rng.choice([0, 4, 5]), rng.randrange(-300, 300) * half]
            )

        shares = [[share() for _ in range(256)] for _ in range(2)]
        rounding = [rng.choice([0, half, half + 1, 2 * half, rng.randrange(2 * half)]) for _ in range(256)]
        self.entries = [*shares, rounding, [rng.randrange(-128, 128) for _ in range(256)]]
        self.needed: set[tuple[int, int]] = set()

    def look_up(self, number: int, value: int) -> int:
        self.needed.add((number, value & 255))
        return self.entries[number][value & 255]

    def add(self, a: int, b: int) -> int:
        total = self.look_up(0, a) + self.look_up(1, b)
        whole = total >> FRACTION
        return whole + (total % (1 << FRACTION) >= self.look_up(2, whole))

    def writes(self) -> list[dict]:
        return [
            {"tables": 1, "index": 256 * number + entry, "data": self.entries[number][entry] & (1 << 64) - 1}
            for number, entry in sorted(self.needed)
        ]


def scaled_by(total: int, significand: int, shift: int) -> int:
    """As the golden model does it."""
    return int(np.rint(np.float32(total) * np.ldexp(np.float32(significand), -shift)))


def sums_near(rng: random.Random, maps: list[tuple[int, int, int]], bits: int) -> list[int]:
    """Sums whose outputs mostly are inside the type or just outside."""
    half, sums = 1 << bits - 1, []
    for bias, significand, shift in maps:
        near = round(rng.uniform(-300, 300) * 2**shift / significand) - bias
        near = near if rng.random() < 0.9 else rng.randrange(-half, half)
        sums.append(min(max(near, -half), half - 1))
    return sums


def rule(rng: random.Random, prefix: str) -> dict[str, int]:
    """A zero point, and bounds that are often those of the type."""
    low, high = sorted(rng.randrange(-128, 128) for _ in range(2)) if rng.random() < 0.4 else (-128, 127)
    return {f"{prefix}zero_point": rng.randrange(-128, 128), f"{prefix}low": low, f"{prefix}high": high}


def bounded(value: int, job: dict[str, int], prefix: str) -> int:
    return min(max(value + job[f"{prefix}zero_point"], job[f"{prefix}low"]), job[f"{prefix}high"])


def stretch(
    rng: random.Random, engine: EngineConfig, base: int, tables: Tables, at: int, of_addends: int, *, first: bool
) -> Stretch:
    """A job of random size on blocks from ``base`` on, whose words lie from ``at`` on, 120 places with what is
    left out between its blocks. The first one adds and pools. Blocks come in folds.

    Its addends lie from ``of_addends`` on, 112 at most; they are written while the job before is at work.
    """
    made = Stretch()
    pool, table = (rng.random() < 0.5 for _ in range(2))
    joins = rng.choice(["add", "multiply", "none"])
    joins, pool = ("add", True) if first else (joins, pool)
    columns = rng.randint(2, 2 * engine.pool_words + 1) if pool else rng.randint(1, 7)
    rows = rng.randint(2 if pool else 1, 4)
    size = rng.randint(1, min(engine.blocks, engine.pool_words // (columns // 2)) if pool else engine.blocks)
    blocks = rng.randint(1, 4)
    job = {**rule(rng, ""), **rule(rng, "a_"), "add": joins == "add", "multiply": joins == "multiply"}
    job |= {"table": table, "pool": pool}
    job["columns"] = columns if pool else rng.randrange(1 << 10)
    made.writes, maps = parameter_writes(rng, base, blocks)
    pixels = columns * rows
    plane = pixels + rng.randrange(3)
    folds = [range(first, min(first + size, blocks)) for first in range(0, blocks, size)]

    values: dict[tuple[int, int], list[int]] = {}
    for fold, pixel, block in [(each, pixel, block) for each in folds for pixel in range(pixels) for block in each]:
        of_block = maps[LANES * block : LANES * (block + 1)]
        sums = sums_near(rng, of_block, engine.sum_bits)
        place = of_addends + block * pixels + pixel & 0xFFFF
        operand = [rng.randrange(-128, 128) for _ in range(LANES)]
        if joins != "none":
            word = int.from_bytes((each & 255 for each in operand), "little")
            made.addends.append({"word": place % engine.addend_words, "data": word})
        totals = sums
        if joins == "multiply":
            sums = [rng.choice([-128, 127, rng.randrange(-128, 128)]) for _ in range(LANES)]
            zeros = job["a_low"], job["a_zero_point"]
            totals = [(a - zeros[0]) * (b - zeros[1]) for a, b in zip(sums, operand, strict=True)]
        results = [scaled_by(each + bias, *scale) for each, (bias, *scale) in zip(totals, of_block, strict=True)]
        outputs = [bounded(result, job, "") for result in results]
        if joins == "add":
            outputs = [bounded(tables.add(a, b), job, "a_") for a, b in zip(outputs, operand, strict=True)]
        ends_fold = (pixel, block) == (pixels - 1, fold[-1])
        end = {"pixel_end": block == fold[-1], "fold_end": ends_fold, "last": ends_fold and fold == folds[-1]}
        places = {"address": at + block * plane + pixel, "addend": place, "parameter": base + block}
        made.beats.append({**job, **places, **end, "sums": sums})
        values[block, pixel] = [tables.look_up(3, each) for each in outputs] if table else outputs
    pooled = greatest_of_four(values, columns) if pool else values
    made.words = {at + block * plane + pixel: tuple(word) for (block, pixel), word in pooled.items()}
    return made


def greatest_of_four(values: dict[tuple[int, int], list[int]], columns: int) -> dict[tuple[int, int], list[int]]:
    """Of each 2 x 2 pixels, by block and pooled pixel."""
    pooled = {}
    for block, pixel in values:
        row, column = divmod(pixel, columns)
        if row % 2 and column % 2:
            four = (values[block, pixel - back] for back in (0, 1, columns, columns + 1))
            pooled[block, row // 2 * (columns // 2) + column // 2] = [max(lane) for lane in zip(*four, strict=True)]
    return pooled


ENGINE = EngineConfig(maps=16, parameter_words=8, output_words=1024, addend_words=512, pool_words=2)


@cache
def circuit_of(engine: EngineConfig) -> Circuit:
    return Circuit(Finish(FinishConfig(engine=engine)))


class Bench:
    """Plays jobs to a `Finish`, and records what it does.

    A job's writes begin once the job two before it is finished, its beats when they are done. As soon as a job is
    finished, its words are read.
    """

    def __init__(self, engine: EngineConfig, jobs: list[Stretch], offer: Pattern):
        self.circuit = circuit_of(engine)
        self.dut = self.circuit.component
        self.config = FinishConfig(engine=engine)
        self.jobs, self.offer = jobs, offer
        self.writes = [(number, write) for number, job in enumerate(jobs) for write in job.writes]
        self.addends = [(number, write) for number, job in enumerate(jobs) for write in job.addends]
        self.beats = [(number, beat) for number, job in enumerate(jobs) for beat in job.beats]
        self.restart()

    def restart(self) -> None:
        self.lasts: list[int] = []
        self.finished: list[int] = []
        self.words: dict[int, tuple[int, ...]] = {}
        self.behind: dict[int, list[tuple[int, ...]]] = {}
        self.offers = iter(self.offer)
        self.written, self.added, self.given, self.writing = 0, 0, 0, -2
        self.to_read: list[int] = []
        self.reading: list[tuple[int, int]] = []

    def run(self, reset_at: int | None) -> None:
        """Until all jobs are finished, all of them after a reset in ``reset_at`` if there is one."""

        async def bench(ctx):
            now = 0
            while len(self.finished) < len(self.jobs) or self.to_read or self.reading:
                ctx.set(self.circuit.domain.rst, now == reset_at)
                self._set(ctx, now)
                await ctx.delay(0)
                self._get(ctx, now)
                await ctx.tick()
                if now == reset_at:
                    self.restart()
                now += 1
                assert now < 30_000

        self.circuit.simulate(bench)

    def _set(self, ctx, now: int) -> None:
        write = self.written < len(self.writes) and len(self.finished) >= self.writes[self.written][0] - 1
        ctx.set(self.dut.parameters.valid, write)
        if write:
            ctx.set(self.dut.parameters.payload, {"tables": 0, **self.writes[self.written][1]})
            self.written, self.writing = self.written + 1, now
        add = self.added < len(self.addends) and len(self.finished) >= self.addends[self.added][0] - 1
        ctx.set(self.dut.addends.valid, add)
        if add:
            ctx.set(self.dut.addends.payload, self._addend(**self.addends[self.added][1]))
            self.added, self.writing = self.added + 1, now
        job, beat = self.beats[self.given] if self.given < len(self.beats) else (None, {})
        late = (*self.writes[self.written :], *self.addends[self.added :])
        there = job is not None and all(number > job for number, _ in late)
        give = next(self.offers) and there and now >= self.writing + 2
        ctx.set(self.dut.beats.valid, give)
        if give:
            ctx.set(self.dut.beats.payload, beat)
            self.given += 1
            if beat.get("last"):
                self.lasts.append(now)
        if self.to_read:
            ctx.set(self.dut.address, self.to_read[0])
            self.reading.append((now + self.config.read_latency, self.to_read.pop(0)))

    def _addend(self, word: int, data: int) -> dict[str, Any]:
        """The beat that has a word of an added map alone, in any of its lanes."""
        lanes = self.config.engine.bus_words
        lane, rows = self.added % lanes, self.config.engine.addend_words // lanes
        row, bank = divmod(word - lane, lanes)
        return {"bank": bank, "word": row % rows, "present": 1 << lane, "data": [data] * lanes}

    def _get(self, ctx, now: int) -> None:
        if self.reading and self.reading[0][0] == now:
            place, data = self.reading.pop(0)[1], ctx.get(self.dut.data)
            words = [tuple(unpack(data >> 64 * number, 8, True, LANES)) for number in range(len(self.dut.data) // 64)]
            self.words[place], *self.behind[place] = words
        if ctx.get(self.dut.finished):
            self.to_read += self.jobs[len(self.finished)].words
            self.finished.append(now)


#: Parameters in LUT RAM, and in block RAM; words that are read one by one, and two together.
ENGINES = (ENGINE, *(replace(ENGINE, parameter_words=128, sum_bits=24, bus_bytes=width) for width in (16, 32, 64)))
RUNS = {
    "engine": st.sampled_from(ENGINES),
    "seed": st.integers(0, 2**32),
    "offer": patterns(),
    "reset_at": st.none() | st.integers(0, 800),
}


def check_finish(engine, seed, offer, reset_at, num_jobs):
    rng = random.Random(seed)
    tables = Tables(rng)
    shift = rng.randrange(1 << 16)
    jobs = [
        stretch(rng, engine, 4 * (number % 2), tables, 128 * number, shift + 112 * number, first=number == 0)
        for number in range(num_jobs)
    ]
    jobs[0].writes += tables.writes()
    bench = Bench(engine, jobs, offer)
    bench.run(reset_at)
    assert bench.finished == [last + bench.config.latency for last in bench.lasts]
    assert bench.words == {place: word for job in jobs for place, word in job.words.items()}
    for job in jobs:
        for place in job.words:
            for ahead, word in enumerate(bench.behind[place], place + 1):
                assert word == job.words.get(ahead, word)


def test_a_job_that_adds_and_pools():
    """One job without pauses. The long run has jobs of all kinds, one behind the other."""
    check_finish(ENGINE, 0, ALWAYS, None, num_jobs=1)


#: Word of the output buffer that no job wrote.
UNWRITTEN = (0,) * LANES


def wide_stretch(rng: random.Random, engine: EngineConfig, base: int, pixels: int, at: int) -> Stretch:
    """Return a job of block ``base``: beats with the sums of neighbouring pixels, and words from address ``at`` on."""
    made = Stretch()
    made.writes, maps = parameter_writes(rng, base, 1)
    job = {**rule(rng, ""), "parameter": base, "columns": rng.randrange(1 << 10)}
    for first in range(0, pixels, engine.beat_words):
        present = min(engine.beat_words, pixels - first)
        sums = [total for _ in range(engine.beat_words) for total in sums_near(rng, maps, engine.sum_bits)]
        ends = dict.fromkeys(("pixel_end", "fold_end", "last"), first + engine.beat_words >= pixels)
        made.beats.append({**job, **ends, "address": at + first, "present": (1 << present) - 1, "sums": sums})
        for pixel in range(present):
            pairs = zip(sums[LANES * pixel :], maps, strict=False)
            results = [scaled_by(total + bias, *scale) for total, (bias, *scale) in pairs]
            made.words[at + first + pixel] = tuple(bounded(result, job, "") for result in results)
    return made


def test_beats_of_several_pixels():
    """Jobs with 1, 2 and 3 of 4 neighbouring pixels in their last beat: no other word is written."""
    rng = random.Random(0)
    engine = replace(ENGINE, requantisers=32, sum_bits=24)
    jobs = [wide_stretch(rng, engine, *sizes) for sizes in ((0, 5, 3), (1, 6, 64), (0, 7, 130))]
    bench = Bench(engine, jobs, ALWAYS)
    for job in jobs:
        job.words |= {max(job.words) + ahead: UNWRITTEN for ahead in range(1, engine.beat_words)}
    bench.run(None)
    assert bench.finished == [last + bench.config.latency for last in bench.lasts]
    assert bench.words == {place: word for job in jobs for place, word in job.words.items()}


@pytest.mark.long
def test_finish():
    """Jobs of all kinds one behind the other: every word, and the cycle in which each job is finished."""
    settings(max_examples=18)(given(**RUNS, num_jobs=st.just(5))(check_finish))()


@st.composite
def pooled_jobs(draw) -> list[tuple[bool, int, int, int]]:
    """Whether it is pooled, rows, columns, blocks."""
    sizes = st.tuples(st.booleans(), st.integers(1, 5), st.integers(1, 7), st.integers(1, POOL.blocks))
    return draw(st.lists(sizes, min_size=2, max_size=5))


POOL = PoolConfig(words=9, blocks=3)


@cases_in_the_long_run(20)
@example(jobs=[(True, 3, 3, 2), (True, 2, 2, 1), (False, 1, 3, 1), (True, 4, 7, 3)], offer=ALWAYS, seed=1)
@given(jobs=pooled_jobs(), offer=patterns(), seed=st.integers(0, 2**32))
def test_pool(jobs, offer, seed):
    """Jobs with odd rows and columns among them: words, addresses, and the cycle in which each leaves."""
    rng = random.Random(seed)
    dut, offers = Pool(POOL), iter(offer)
    wanted, seen = [], []

    async def bench(ctx):
        now = 0
        for pool, rows, columns, blocks in jobs:
            ctx.set(dut.pool, pool)
            ctx.set(dut.last_column, columns - 1 if pool else rng.randrange(1 << 10))
            base, values = rng.randrange(1 << 10), {}
            for pixel, block in product(range(rows * columns), range(blocks)):
                while not next(offers):
                    await step(ctx, now, valid=False)
                    now += 1
                word = values[block, pixel] = [rng.randrange(-128, 128) for _ in range(LANES)]
                ctx.set(dut.pixel_end, block == blocks - 1)
                ctx.set(dut.last, block == blocks - 1 and pixel == rows * columns - 1)
                place = base + block * rows * columns
                ctx.set(dut.i.payload, {"address": place + pixel, "data": word})
                row, column = divmod(pixel, columns)
                if pool and row % 2 and column % 2:
                    four = greatest_of_four(values, columns)[block, row // 2 * (columns // 2) + column // 2]
                    wanted.append((now + POOL.latency, place + row // 2 * (columns // 2) + column // 2, four))
                elif not pool:
                    wanted.append((now + POOL.latency, place + pixel, word))
                await step(ctx, now, valid=True)
                now += 1
        for later in range(POOL.latency):
            await step(ctx, now + later, valid=False)

    async def step(ctx, now, valid):
        ctx.set(dut.i.valid, valid)
        await ctx.delay(0)
        if ctx.get(dut.o.valid):
            seen.append((now, ctx.get(dut.o.payload.address), [ctx.get(each) for each in dut.o.payload.data]))
        await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert seen == wanted


def test_sums_of_the_fixed_unit_are_no_outputs():
    """A job that only brings sums to the fixed unit leaves the output buffer as it was."""
    config = FinishConfig(engine=EngineConfig(fixed_words=256))
    dut = config.component()
    words: list[int] = []

    async def play(ctx, **fields) -> None:
        for place in range(8):
            beat = {"address": place, "low": -128, "high": 127, "last": place == 7, **fields}
            ctx.set(dut.beats.payload, beat)
            ctx.set(dut.beats.valid, 1)
            await ctx.tick()
        ctx.set(dut.beats.valid, 0)
        await ctx.tick().repeat(config.latency + 2)
        for place in range(8):
            ctx.set(dut.address, place)
            await ctx.tick().repeat(config.read_latency)
            words.append(ctx.get(dut.data))

    async def bench(ctx):
        await play(ctx, zero_point=5)
        await play(ctx, zero_point=9, add=1, multiply=1)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert words == [0x0505050505050505] * 16
