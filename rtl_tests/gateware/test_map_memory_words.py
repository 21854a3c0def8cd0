"""The engine's map memory: what is written in bursts is read back, row by row, and nothing else is answered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from testbench import Circuit

from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.map_memory import MapMemoryConfig

ENGINE = EngineConfig(pixels=5, maps=8, map_words=256, weight_steps=256, parameter_words=8, output_words=256, slots=2)
#: Cycles in which a test must be over.
PATIENCE = 300


def test_cycles_of_write_bursts():
    """A burst of n beats is taken max(n, 2) cycles after the one before at the earliest, and then if it is offered."""
    dut = MapMemoryConfig(engine=replace(ENGINE, kept_words=2 * ENGINE.bank_words)).component()
    num_beats = [5, 0, 1, 2, 3, 7, 1]
    taken: list[int] = []

    async def bench(ctx):
        ctx.set(dut.written.valid, 1)  # words of some bursts
        ctx.set(dut.written.payload.last, 1)
        ctx.set(dut.store.valid, 1)
        for cycle in range(PATIENCE):
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
        for _ in range(PATIENCE):
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
