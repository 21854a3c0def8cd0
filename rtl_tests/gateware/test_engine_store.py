"""The engine's store unit with a map memory: which memory each burst is for, and when a part waits for earlier jobs."""

from __future__ import annotations

from dataclasses import replace

from programs import SMALL
from testbench import Circuit

from hwgen.gateware.engine.store import StoreUnit

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
