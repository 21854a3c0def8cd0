"""Sums over a whole map whose beats have many pixels."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth.sim import Simulator

from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.whole_map import RunningSum, RunningSumConfig, WholeMapConfig


@pytest.mark.parametrize(("pixels", "lanes", "channels"), [(8, 1, 3), (9, 2, 4), (16, 1, 1), (13, 1, 70)])
def test_running_sums(pixels, lanes, channels):
    """Of two frames of random values by NumPy; sums of 70 folds lie in block RAM, a cycle away."""
    beat = BeatFormat(channels=channels, height=2, width=2 * pixels, lanes=lanes, bits=8, signed=True, pixels=pixels)
    config = RunningSumConfig(window=WholeMapConfig(input=beat))
    frames = np.random.default_rng(pixels).integers(-128, 128, (2, channels, 4, pixels))
    frames[0, 0] = -128
    found: list[list[int]] = []
    dut = RunningSum(config)

    async def drive(ctx):
        for frame in frames:
            for step in range(4):
                for fold, lanes_of_fold in enumerate(beat.fold_channels):
                    ctx.set(dut.i.valid, 1)
                    ctx.set(dut.i.payload.fold, fold)
                    ctx.set(dut.i.payload.first, step == 0)
                    ctx.set(dut.i.payload.last, step == 3)
                    for lane, channel in enumerate(lanes_of_fold):
                        for pixel, value in enumerate(frame[channel, step].tolist()):
                            ctx.set(dut.i.payload.operand[lane][pixel], value)
                    await ctx.tick()
        ctx.set(dut.i.valid, 0)
        await ctx.tick().repeat(config.latency)

    async def watch(ctx):
        async for _, _, valid, payload in ctx.tick().sample(dut.o.valid, dut.o.payload):
            if valid:
                found.append([payload[lane][0] for lane in range(lanes)])

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(drive)
    simulator.add_testbench(watch, background=True)
    simulator.run()
    assert found == frames.sum(axis=(2, 3)).reshape(-1, lanes).tolist()
