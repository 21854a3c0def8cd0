"""What several cores share: alignment of bus beats with banks, and the choice and order of output words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from amaranth.sim import Simulator
from beats import bus_beat
from counted import cases_in_the_long_run
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import behind

from hwgen.gateware.engine.output_words import OutputWordsConfig, read_latency
from hwgen.gateware.engine.reuse_buffer import ReuseBuffer, map_side
from hwgen.gateware.engine.weight_buffer import weight_side
from hwgen.gateware.engine.writes import AlignConfig, WriteSide, addend_side

#: Cycles of a run.
CYCLES = 40


def simulate(component, bench) -> None:
    simulator = Simulator(component)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


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
    align = AlignConfig(side=side).component()
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
