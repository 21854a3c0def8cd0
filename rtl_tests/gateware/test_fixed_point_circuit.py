"""Data paths of fixed-point steps, each alone: all values, and the cycle of each."""

from __future__ import annotations

from random import Random

import numpy as np
from counted import cases_in_the_long_run
from fixed_points import random_layer, result_of
from hypothesis import given
from hypothesis import strategies as st
from testbench import pack, patterns, run, unpack

from hwgen.devices import DEFAULT
from hwgen.devices.ecp5 import ECP5
from hwgen.templates.stage import beat_format
from hwgen.templates.stages import stage_of


@cases_in_the_long_run(30)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 8),
    channels=st.integers(1, 5),
    pixels=st.integers(1, 2),
    device=st.sampled_from([DEFAULT, ECP5]),
    data=st.data(),
    offer=patterns(),
)
def test_values_follow_the_definitions_of_the_steps(seed, count, channels, pixels, device, data, offer):
    """In every lane, pixel and fold, whatever the gaps between beats."""
    op = random_layer(Random(seed), channels=channels, height=4, width=2, count=count)
    lanes = data.draw(st.integers(1, channels))
    beats = [beat_format(source, lanes, pixels if source.width > 1 else 1) for source in op.inputs]
    config = stage_of(op, device).compute(beats)
    rng, num_steps = np.random.default_rng(seed), 24 * beats[0].folds
    values = [
        np.where(rng.random(shape) < 0.1, rng.choice(ends, shape), rng.integers(*ends, shape, endpoint=True))
        for beat in beats
        for ends, shape in [(beat.value_range, (num_steps, lanes, beat.pixels))]
    ]
    steps, start = [0] * num_steps, 0
    for beat, of_map in zip(beats, values, strict=True):
        steps = [
            step | pack(each.ravel().tolist(), beat.bits) << start for step, each in zip(steps, of_map, strict=True)
        ]
        start += beat.data_bits
    trace = run(config.component(), steps, num_steps, offer=offer)
    found = np.array([unpack(word, config.result.width, True, lanes * pixels) for word in trace.words])
    assert trace.times == [cycle + config.latency for cycle in trace.taken]
    for number, row in enumerate(found.reshape(num_steps, lanes, pixels)):
        for lane, channel in enumerate(beats[0].fold_channels[number % beats[0].folds]):
            for pixel in range(pixels):
                operands = [int(of_map[number, lane, pixel % of_map.shape[2]]) for of_map in values]
                assert row[lane, pixel] == result_of(op, channel, operands), (number, lane, pixel)
