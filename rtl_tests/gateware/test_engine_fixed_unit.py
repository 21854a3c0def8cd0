"""Fixed unit of the engine: random programs on random tiles, against the meaning of each instruction."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from amaranth.sim import Simulator
from engine_runs import check as check_program
from fixed_programs import RandomProgram, byte_beats, constant_word, fields, run
from needs import needs_compiler
from programs import summed
from wide_maps import averaged, residual

from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.fixed_unit import (
    LOOKUP_TABLE,
    PROGRAM_TABLE,
    Arrival,
    FixedUnitConfig,
    Opcode,
    instruction_word,
    run_cycles,
)
from hwgen.network.maps import UINT8
from hwgen.program.compile import schedule
from hwgen.tools import synthesis
from hwgen.verilog.emitted import engine_files

ENGINE = EngineConfig(fixed_words=256, lookup_words=256, parameter_words=32)


def operand(random: Random, pixels: int) -> tuple[np.ndarray, Arrival, int]:
    """Return random values ``(pixels, LANES)``, how they arrive, and their number of bytes."""
    kind = random.choice([*Arrival])
    size = random.randint(1, 4)
    low, high = {
        Arrival.SUMS: (-(1 << 31), (1 << 31) - 1),
        Arrival.SIGNED_BYTES: (-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1),
        Arrival.UNSIGNED_BYTES: (0, (1 << 8 * size) - 1),
    }[kind]
    values = [[random.choice((low, high, random.randint(low, high))) for _ in range(LANES)] for _ in range(pixels)]
    return np.array(values, object), kind, size


class Job:
    """Operands and program of a run of the unit on a tile of rows and columns."""

    def __init__(self, random: Random, engine: EngineConfig, rows: int, columns: int):
        self.random, self.rows, self.columns = random, rows, columns
        self.operands = [operand(random, rows * columns) for _ in range(random.randint(1, 2))]
        if random.random() < 0.4:
            self.operands.insert(0, operand(random, 1))
        inputs = [values for values, *_ in self.operands]
        self.program = RandomProgram(
            random, inputs, random.randint(1, 8), engine.lookup_words, 8, float_sums=engine.float_sums
        )
        self.slot_bits = (engine.fixed_words // 8).bit_length() - 1
        assert self.program.num_slots <= 8

    def beats(self):
        """Yield the fields of each beat of sums, or ``None`` for a cycle without one."""
        program_length = len(self.program.words)
        for index, (values, kind, size) in enumerate(self.operands):
            is_last_job = index == len(self.operands) - 1
            planes = (
                [values] if kind == Arrival.SUMS else byte_beats(values, size, is_signed=kind == Arrival.SIGNED_BYTES)
            )
            planes = list(planes)
            for number, plane in enumerate(planes):
                for pixel, lanes in enumerate(plane):
                    if self.random.random() < 0.2:
                        yield None
                    ends = pixel == len(plane) - 1
                    yield {
                        "sums": [int(value) for value in lanes],
                        "add": 1,
                        "multiply": 1,
                        "address": 40 + pixel,
                        "addend": self.columns + number,
                        "parameter": 3,
                        "zero_point": int(kind),
                        "high": len(planes) - 1,
                        "low": self.slot_bits,
                        "columns": index,
                        "a_zero_point": program_length if is_last_job else 0,
                        "fold_end": ends,
                        "last": ends and number == len(planes) - 1,
                    }

    def expected(self) -> dict[tuple[int, int], int]:
        slots = {index: values.copy() for index, (values, *_) in enumerate(self.operands)}
        return run(self.program.words, slots, self.program.constants, self.program.lookups, self.columns)


async def write_words(ctx, unit, base: int, words, *, tables: int) -> None:
    for index, word in enumerate(words):
        payload = {"tables": tables, "index": base + index, "data": int(word) % (1 << 64)}
        ctx.set(unit.parameters.payload, payload)
        ctx.set(unit.parameters.valid, 1)
        await ctx.tick()
    ctx.set(unit.parameters.valid, 0)


def check(engine: EngineConfig, jobs: list[Job]) -> None:
    config = FixedUnitConfig(engine=engine)
    unit = config.component()

    async def bench(ctx):
        for job in jobs:
            await write_words(ctx, unit, 3 * LANES, job.program.constants.reshape(-1), tables=0)
            await write_words(ctx, unit, PROGRAM_TABLE * 256, job.program.words, tables=1)
            await write_words(ctx, unit, LOOKUP_TABLE * 256, job.program.lookups, tables=1)
            for beat in job.beats():
                ctx.set(unit.beats.valid, beat is not None)
                if beat is not None:
                    ctx.set(unit.beats.payload, beat)
                await ctx.tick()
            ctx.set(unit.beats.valid, 0)
            await ctx.tick().repeat(3)
            ctx.set(unit.start, 1)
            outputs, cycles = {}, 0
            while not ctx.get(unit.done):
                if ctx.get(unit.valid):
                    word, place = ctx.get(unit.word), ctx.get(unit.address) - 40
                    for lane in range(LANES):
                        assert (place, lane) not in outputs
                        outputs[place, lane] = (word >> 8 * lane & 0xFF) - (word >> 8 * lane + 7 & 1) * 256
                await ctx.tick()
                ctx.set(unit.start, 0)
                cycles += 1
            assert outputs == job.expected()
            assert cycles == run_cycles(engine, job.rows * job.columns, len(job.program.words))

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("seed", range(2))
def test_programs(seed: int) -> None:
    random = Random(seed)
    sizes = [(1, 1), (2, 3), (3, 9), (1, 31)]
    check(ENGINE, [Job(random, ENGINE, *size) for size in random.sample(sizes, 3)])


@pytest.mark.parametrize("lookups", [0, 256])
def test_float_sums(lookups: int) -> None:
    engine = replace(ENGINE, lookup_words=lookups, float_sums=True)
    random = Random(lookups)  # seeds whose programs have such sums
    jobs = [Job(random, engine, 4, 4) for _ in range(4)]
    codes = [fields(int(word))["code"] for job in jobs for word in job.program.words]
    assert Opcode.ADD_FLOAT in codes
    check(engine, jobs)


def near_tie(random: Random) -> int:
    """Return an integer of up to 51 bits at, or beside, the middle between two numbers of 24 significant bits."""
    dropped = random.randint(1, 26)
    kept = random.randint(1 << 23, (1 << 24) - 1) | random.choice((0, 1, (1 << 24) - 1))
    return random.choice((1, -1)) * ((2 * kept + 1 << dropped - 1) + random.choice((-1, 0, 0, 1)))


def test_float_ties() -> None:
    random, engine = Random(8), replace(ENGINE, float_sums=True)
    jobs = []
    for shift in (0, 0, 28, 28):  # only four bytes of a value can be written
        job = Job(random, engine, 2, 16)
        job.operands = [operand(random, 32)]
        job.program.lookups = [near_tie(random) for _ in range(engine.lookup_words)]
        job.program.constants = np.array([[constant_word(value)] * LANES for value in (0, 1)], object)
        constant = {"second_is_constant": 1}
        job.program.words = [
            instruction_word(code=Opcode.LOOK_UP, target=1),
            instruction_word(code=Opcode.ADD_FLOAT, first=1, target=1, constant=0, **constant),
            instruction_word(code=Opcode.MULTIPLY, first=1, target=1, constant=1, shift=shift, **constant),
            *(instruction_word(code=Opcode.WRITE, first=1, second=3, target=row, shift=row) for row in range(4)),
        ]
        jobs.append(job)
    check(engine, jobs)


def test_without_lookups() -> None:
    engine = replace(ENGINE, lookup_words=0)
    check(engine, [Job(Random(5), engine, 4, 4)])


@needs_compiler
@pytest.mark.parametrize("cores", [pytest.param(1, marks=pytest.mark.long), 2, pytest.param(3, marks=pytest.mark.long)])
def test_networks_in_verilator(cores: int) -> None:
    """Values of the golden model, cycles and bytes of the schedule."""
    engine = EngineConfig(
        fixed_words=256,
        lookup_words=1024,
        float_sums=True,
        cores=cores,
        pixels=5,
        map_words=256,
        weight_steps=256,
        output_words=512,
    )
    circuit = engine_files(engine)
    in_floats = summed([0.035364024, 0.037543587, 0.045234438, 0.081569485], (9, 4, 6), UINT8)
    for network in (residual(), averaged(), in_floats):
        check_program(circuit, schedule(network, engine, side_by_side=False))


@pytest.mark.long
def test_resources_and_paths() -> None:
    parts = [
        FixedUnitConfig(engine=replace(ENGINE, fixed_words=words, lookup_words=lookups, float_sums=floats))
        for words, lookups, floats in ((512, 0, False), (512, 512, False), (512, 512, True), (512, 0, True))
    ]
    for part, measured, path in zip(parts, *synthesis.measure_paths(parts), strict=True):
        used = part.resources
        assert (used.dsp, used.bram36) == (measured.dsp, measured.bram36)
        assert used.lut == pytest.approx(measured.lut, rel=0.05)
        assert used.ff == pytest.approx(measured.ff, rel=0.05)
        assert path is not None
        assert path.delay <= 3.3, path
