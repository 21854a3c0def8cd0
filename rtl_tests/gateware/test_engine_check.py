"""The check of jobs: seals, and the rules of fields, by hardware as by tools."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import SMALL, alone, conv
from refusals import refusals_in
from testbench import Circuit

from hwgen.gateware.engine.check import JobCheck, faults
from hwgen.gateware.engine.job import PARTS, Compute, Drain, Job, Load, Store, digest, pack_jobs, seal
from hwgen.gateware.engine.port import Error
from hwgen.program.compile import ProgramSchedule, schedule


@functools.cache
def layer() -> ProgramSchedule:
    return schedule(alone(conv(channels=9, maps=64, size=(11, 11))), SMALL)


def packed_layer() -> bytes:
    return pack_jobs(SMALL, layer().jobs)


@functools.cache
def check_circuit() -> Circuit:
    return Circuit(JobCheck(SMALL))


def found(program: bytes, gaps: Sequence[int] = (0,)) -> list[Error]:
    """What is wrong with each job; ``gaps`` are cycles between words, used in turn."""
    words = [int.from_bytes(program[place : place + 8], "little") for place in range(0, len(program), 8)]
    circuit = check_circuit()
    dut = circuit.component
    seen = []

    async def bench(ctx) -> None:
        for number, word in enumerate(words):
            ctx.set(dut.word.payload, word)
            ctx.set(dut.word.valid, 1)
            await ctx.tick()
            ctx.set(dut.word.valid, 0)
            idle = gaps[number % len(gaps)]
            if number % Job.WORDS == Job.WORDS - 1:
                await ctx.tick().repeat(JobCheck.LATENCY - 1)
                seen.append(Error(ctx.get(dut.fault)))
                idle += 1
            for _ in range(idle):
                await ctx.tick()
                assert Error(ctx.get(dut.fault)) == Error.NONE

    circuit.simulate(bench)
    return seen


def test_seal():
    """CRC-32 of the job's parts, exclusive or its number, over the first digits of the engine's digest."""
    job = layer().jobs[1].pack()
    word = seal(SMALL, 1, job)
    assert word >> 32 == zlib.crc32(job) ^ 1
    assert f"{word & 0xFFFFFFFF:08x}" == digest(SMALL)[:8]
    assert packed_layer()[Job.BYTES : 2 * Job.BYTES] == job + word.to_bytes(8, "little")


@pytest.mark.parametrize("gaps", [(0,), (1, 0, 0, 3)])
def test_what_the_compiler_makes(gaps):
    assert set(found(packed_layer()[: 6 * Job.BYTES], gaps)) == {Error.NONE}
    assert not [each for number, job in enumerate(layer().jobs) for each in faults(SMALL, number, job)]


def test_other_engines():
    other = pack_jobs(replace(SMALL, queue=4), layer().jobs)
    assert found(other[: 2 * Job.BYTES]) == [Error.FOREIGN] * 2


def test_jobs_that_are_missing():
    """The second job in place of the first one, and zeros."""
    assert found(packed_layer()[Job.BYTES : 2 * Job.BYTES]) == [Error.DAMAGED]
    assert found(packed_layer()[: Job.BYTES] + bytes(Job.BYTES)) == [Error.NONE, Error.DAMAGED]


BITS = st.lists(st.integers(0, 8 * Job.BYTES - 1), min_size=1, max_size=3, unique=True)


@settings(max_examples=2)
@given(flips=st.lists(BITS, min_size=20, max_size=20))
def test_bits_that_are_wrong(flips):
    """Up to three wrong bits in a job are always found: the checksum's distance is 4 and more up to 2,974 bits."""
    sealed = range(8 * (Job.BYTES - 8), 8 * (Job.BYTES - 4))
    program = bytearray(packed_layer()[: len(flips) * Job.BYTES])
    assert len(program) == len(flips) * Job.BYTES
    for number, bits in enumerate(flips):
        for bit in bits:
            program[number * Job.BYTES + bit // 8] ^= 1 << bit % 8
    errors = found(bytes(program))
    assert errors == [Error.FOREIGN if all(bit in sealed for bit in bits) else Error.DAMAGED for bits in flips]


LOAD = Load(x_blocks=1, x_rows=2, x_words=3)
COMPUTE = Compute(groups=2, folds=2, first=1, last=1, kernel_rows=1, kernel_columns=1, channels=9, stride=1)
DRAIN = Drain(blocks=2, pixels=9)
STORE = Store(blocks=2, rows=3, words=3)
GOOD = Job(load=LOAD, compute=COMPUTE, drain=DRAIN, store=STORE)

UNITS = {"load": LOAD, "compute": COMPUTE, "drain": DRAIN, "store": STORE}


def changed(fields):
    """Return a good job with other fields of its units, or without its drain."""
    return replace(GOOD, **{unit: replace(UNITS[unit], **more) if more else Drain() for unit, more in fields.items()})


#: Products have one bit more, all lengths together, than that of a buffer may have.
WRONG = [(changed(fields), message) for fields, message in refusals_in("engine_jobs.txt")]


@pytest.mark.parametrize(("job", "message"), WRONG)
def test_fields(job, message):
    """Each rule, told by the tool."""
    told = list(faults(SMALL, 0, job))
    assert any(message in each for each in told), told
    assert all(each.startswith("job 0: ") for each in told)


def test_fields_in_hardware():
    """Each rule, told for the job at hand alone."""
    program = [each for job, _ in WRONG for each in (job, GOOD)]
    assert found(pack_jobs(SMALL, program)) == [Error.FIELD, Error.NONE] * len(WRONG)


def test_good_fields():
    """At the limits, and sizes of what is not moved."""
    first = replace(
        GOOD,
        load=replace(LOAD, x_blocks=5, x_rows=8, x_words=16, x_first=4, w_steps=128, p_words=256, p_base=3, tables=1),
        compute=replace(COMPUTE, channels=32, kernel_rows=8, stride=4, row_rest=4),
        drain=replace(DRAIN, pixels=10, pool=1, columns=1),
    )
    second = replace(
        first,
        load=replace(LOAD, wait_computed=1, wait_stored=1, p_words=32),
        compute=replace(COMPUTE, groups=255, channelwise=1, channels=512),
        drain=replace(DRAIN, wait_stored=1, pixels=1271, channelwise=1),
        store=replace(STORE, blocks=1, rows=8, words=8),
    )
    third = Job(
        load=Load(x_rows=1),
        compute=Compute(groups=2, folds=4, first=1, kernel_rows=1, kernel_columns=1, channels=1, stride=1),
    )
    fourth = Job(load=Load(x_rows=999, x_words=999, p_base=99, tables=1), store=Store(rows=999, words=999))  # no blocks
    program = [first, second, third, fourth]
    assert not [each for number, job in enumerate(program) for each in faults(SMALL, number, job)]
    assert set(found(pack_jobs(SMALL, program))) == {Error.NONE}


@st.composite
def jobs(draw) -> Job:
    """Good ones, but for some fields."""
    parts = {name: getattr(GOOD, name) for name in PARTS}
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(list(PARTS)))
        options = [(field, width) for field, _, width in PARTS[name].offsets() if not field.metadata["signed"]]
        field, width = draw(st.sampled_from(options))
        top = (1 << width) - 1
        value = draw(st.one_of(st.integers(0, min(top, 20)), st.integers(0, top)))
        parts[name] = replace(parts[name], **{field.name: value})
    return Job(**parts)


@settings(max_examples=2)
@given(program=st.lists(jobs(), min_size=30, max_size=40))
def test_random_fields(program):
    """The hardware refuses what the tool refuses."""
    errors = found(pack_jobs(SMALL, program))
    for number, (job, error) in enumerate(zip(program, errors, strict=True)):
        assert error == (Error.FIELD if any(faults(SMALL, number, job)) else Error.NONE), job
