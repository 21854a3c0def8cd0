"""Max pooling, and components without a line buffer, each alone: values, and the cycle of everything."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from accelerators import GAPS, integers, offers, value_range, windows_for
from amaranth import Module, Signal, Value
from amaranth.lib import wiring
from amaranth.sim import Simulator
from counted import cases_in_the_long_run
from hypothesis import given, settings
from hypothesis import strategies as st
from step_checks import FRAMES, beats, maps, padded, words
from testbench import Pattern, channel_lanes, pack, patterns, run, unpack
from walks import line_buffers, step_words, steps_of

from hwgen.errors import ConfigError
from hwgen.gateware.channel_table import ChannelTableConfig
from hwgen.gateware.extreme import ExtremeConfig
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.max_pool import MaxPoolConfig, MaxPoolUnit
from hwgen.gateware.product import ProductConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.table_sum import TableSumConfig
from hwgen.gateware.upsample import UpsampleConfig
from hwgen.gateware.weights import Weights
from hwgen.gateware.whole_map import RunningSum, RunningSumConfig, WholeMapConfig


@cases_in_the_long_run(26)
@given(beat=beats(), seed=st.integers(0, 2**32), offer=patterns(), room=patterns())
def test_whole_maps(beat, seed, offer, room):
    """Each beat is a step; pixels past the ends of rows are 0 there, and a map's last pixels wait for room."""
    config = WholeMapConfig(input=beat)
    frames = maps(beat, seed)
    sent = padded(beat, frames, seed)
    component = config.component()
    watch = {"start": component.start, "room": component.room}
    trace = run(component, words(beat, sent), 0, offer=offer, drive=[(component.room, room)], watch=watch)
    assert not any(start and not there for start, there in zip(*trace.watched.values(), strict=True))
    assert trace.times == [cycle + config.latency for cycle in trace.taken]
    expected = sent.copy()
    if beat.width % beat.pixels:
        expected[:, :, -1, :, :, beat.width % beat.pixels :] = 0
    data = beat.lanes * beat.pixels * beat.bits
    found = np.array([unpack(word, beat.bits, beat.signed, beat.lanes * beat.pixels) for word in trace.words])
    np.testing.assert_array_equal(found, expected.reshape(found.shape))
    fold_bits = (beat.folds - 1).bit_length()
    assert [word >> data & (1 << fold_bits) - 1 for word in trace.words] == [
        number % beat.folds for number in range(len(trace.words))
    ]
    pixels = [number // beat.folds % (beat.beats // beat.folds) for number in range(len(trace.words))]
    assert [word >> data + fold_bits & 1 for word in trace.words] == [int(pixel == 0) for pixel in pixels]
    ends = [int(pixel == beat.beats // beat.folds - 1) for pixel in pixels]
    assert [word >> data + fold_bits + 1 & 1 for word in trace.words] == ends
    assert [cycle for cycle, start in enumerate(trace.watched["start"]) if start] == [
        cycle for cycle, end in zip(trace.taken, ends, strict=True) if end
    ]


@cases_in_the_long_run(26)
@given(beat=beats(), seed=st.integers(0, 2**32), offer=patterns())
def test_running_sums(beat, seed, offer):
    config = RunningSumConfig(window=WholeMapConfig(input=beat))
    frames = maps(beat, seed)
    values = padded(beat, frames, seed)
    if beat.width % beat.pixels:
        values[:, :, -1, :, :, beat.width % beat.pixels :] = 0
    data, fold_bits = beat.lanes * beat.pixels * beat.bits, (beat.folds - 1).bit_length()
    steps, per_frame = words(beat, values), beat.beats // beat.folds
    for number in range(len(steps)):
        pixel = number // beat.folds % per_frame
        steps[number] |= (number % beat.folds) << data
        steps[number] |= (pixel == 0) << data + fold_bits | (pixel == per_frame - 1) << data + fold_bits + 1
    trace = run(config.component(), steps, FRAMES * beat.folds, offer=offer)
    found = [unpack(word, config.result.width, True, beat.lanes) for word in trace.words]
    sums = np.array(found).reshape(FRAMES, -1)[:, channel_lanes(beat)]
    np.testing.assert_array_equal(sums, frames.sum(axis=(2, 3)))
    lasts = np.array(trace.taken).reshape(FRAMES, -1)[:, -beat.folds :].ravel()
    assert trace.times == (lasts + config.latency).tolist()


FACTORS = st.tuples(st.integers(1, 3), st.integers(1, 3))


def upsampled(beat: BeatFormat, factors: tuple[int, int], frames: np.ndarray) -> tuple[BeatFormat, np.ndarray]:
    wider = replace(beat, height=beat.height * factors[0], width=beat.width * factors[1])
    return wider, frames.repeat(factors[0], axis=2).repeat(factors[1], axis=3)


def check_upsampled(beat: BeatFormat, found: list[int], factors: tuple[int, int], frames: np.ndarray) -> None:
    """In every channel and pixel of the map; lanes past them may hold anything."""
    wider, expected = upsampled(beat, factors, frames)
    steps = -(-wider.width // wider.pixels)
    values = np.array([unpack(word, beat.bits, beat.signed, beat.lanes * beat.pixels) for word in found])
    values = values.reshape(len(frames), wider.height, steps, beat.folds, beat.lanes, beat.pixels)
    values = values.transpose(0, 3, 4, 1, 2, 5).reshape(len(frames), -1, wider.height, steps * beat.pixels)
    np.testing.assert_array_equal(values[:, channel_lanes(beat), :, : wider.width], expected)


@cases_in_the_long_run(30)
@given(beat=beats(), factors=FACTORS, seed=st.integers(0, 2**32), offer=patterns(), room=patterns())
def test_upsampling(beat, factors, seed, offer, room):
    """A step in every cycle with room in which its beat is there, or needn't be."""
    config = UpsampleConfig(input=beat, factors=factors)
    frames, component = maps(beat, seed), config.component()
    given_beats, steps = words(beat, padded(beat, frames, seed)), FRAMES * config.windows * config.output_folds
    watch = {"start": component.start, "offered": component.i.valid, "room": component.room}
    trace = run(component, given_beats, steps, offer=offer, drive=[(component.room, room)], watch=watch)
    check_upsampled(beat, trace.words, factors, frames)
    starts = [cycle for cycle, start in enumerate(trace.watched["start"]) if start]
    assert trace.times == [cycle + config.latency for cycle in starts]
    shape, index = config.read_cycles(0)
    takes = np.zeros(steps, dtype=bool)
    takes.reshape(-1, *shape)[index] = True
    assert trace.taken == [cycle for cycle, taking in zip(starts, takes, strict=True) if taking]
    number = 0
    for offered, there, start in zip(*(trace.watched[name] for name in ("offered", "room", "start")), strict=True):
        if number < steps:
            assert start == (there and (offered or not takes[number]))
        number += start


@cases_in_the_long_run(20)
@given(beat=beats(), factors=FACTORS, seed=st.integers(0, 2**32), reset_at=st.integers(0, 60))
def test_upsampling_after_a_reset(beat, factors, seed, reset_at):
    config = UpsampleConfig(input=beat, factors=factors)
    frames, component = maps(beat, seed), config.component()
    steps = FRAMES * config.windows * config.output_folds
    after = words(beat, padded(beat, frames, seed)), steps
    before = words(beat, padded(beat, maps(beat, seed + 1), seed)) * 4
    drive = [(component.room, Pattern())]
    trace = run(component, before, 4 * steps, reset_at=reset_at, after=after, drive=drive)
    assert trace.reset is not None
    check_upsampled(beat, trace.words[trace.reset[2] :], factors, frames)


class Early(wiring.Component):
    """A join of a map with pixels that are all there from the start, those of later frames too."""

    def __init__(self, config: JoinConfig, pixels: list[int]):
        self._join, self._pixels = config.component(), pixels
        ports = {name: member for name, member in self._join.signature.members.items() if name not in ("i_0", "i_1")}
        super().__init__({"i": wiring.In(config.inputs[0].signature), **ports})

    def elaborate(self, platform):
        m = Module()
        m.submodules.join = join = self._join
        number = Signal(range(len(self._pixels) + 1))
        wiring.connect(m, wiring.flipped(self.i), join.i_0)
        m.d.comb += [join.room.eq(self.room), self.fold.eq(join.fold), self.start.eq(join.start)]
        m.d.comb += [self.o.valid.eq(join.o.valid), self.o.payload.eq(join.o.payload)]
        m.d.comb += join.i_1.valid.eq(number < len(self._pixels))
        with m.Switch(number):
            for index, word in enumerate(self._pixels):
                with m.Case(index):
                    m.d.comb += Value.cast(join.i_1.payload).eq(word)
        with m.If(join.i_1.valid & join.i_1.ready):
            m.d.sync += number.eq(number + 1)
        return m


@cases_in_the_long_run(26)
@given(beat=beats(), seed=st.integers(0, 2**32), offer=patterns(), room=patterns())
def test_a_pixel_for_a_map(beat, seed, offer, room):
    """Its beats are taken with the first pixels' and stay for all others, however early the next frame's are there."""
    pixel = replace(beat, height=1, width=1, pixels=1, bits=5, signed=True)
    config = JoinConfig(inputs=(beat, pixel), spread=True)
    frames, factors = maps(beat, seed), maps(pixel, seed + 2)
    sent, kept = padded(beat, frames, seed), padded(pixel, factors, seed)
    component = Early(config, words(pixel, kept))
    watch = {"start": component.start, "room": component.room}
    trace = run(component, words(beat, sent), 0, offer=offer, drive=[(component.room, room)], watch=watch, drain=60)
    assert trace.times == [cycle + config.latency for cycle in trace.taken]
    assert not any(start and not there for start, there in zip(*trace.watched.values(), strict=True))
    low = beat.lanes * beat.pixels * beat.bits
    expected = [
        word | other << low
        for frame, factor in zip(sent, kept, strict=True)
        for word, other in zip(words(beat, frame), words(pixel, factor) * (beat.beats // beat.folds), strict=True)
    ]
    assert trace.words == expected


@cases_in_the_long_run(26)
@given(
    beat=beats(max_bits=5),
    signed=st.booleans(),
    fraction=st.integers(1, 7),
    zero=st.integers(-60, 60),
    ends=st.tuples(st.integers(-100, 100), st.integers(0, 80)),
    seed=st.integers(0, 2**32),
    offer=patterns(),
)
def test_sums_by_tables(beat, signed, fraction, zero, ends, seed, offer):
    """Of any tables, with sums on both sides of both bounds; a sum is rounded as its whole part says."""
    rng = np.random.default_rng(seed)
    inputs = (beat, replace(beat, signed=not beat.signed))
    tables = [rng.integers(-(60 << fraction), 60 << fraction, 1 << each.bits) for each in inputs]
    rounding = rng.integers(0, (1 << fraction) + 1, 256)
    low, high = ends[0], ends[0] + ends[1]
    if not signed:
        low, high = abs(low), abs(low) + ends[1]
    config = TableSumConfig(
        window=JoinConfig(inputs=inputs),
        tables=tuple(tuple(table.tolist()) for table in tables),
        fraction=fraction,
        rounding=tuple(rounding.tolist()),
        zero_point=zero,
        low=low,
        high=high,
        bits=9,
        signed=signed,
    )
    size = beat.lanes * beat.pixels
    pairs = [rng.integers(each.value_range[0], each.value_range[1] + 1, (30, size)) for each in inputs]
    steps = [pack(a, beat.bits) | pack(b, beat.bits) << size * beat.bits for a, b in zip(*pairs, strict=True)]
    trace = run(config.component(), steps, 30, offer=offer)
    total = sum(table[pair - each.value_range[0]] for table, pair, each in zip(tables, pairs, inputs, strict=True))
    whole = total >> fraction
    rounded = whole + ((total & (1 << fraction) - 1) >= rounding[whole & 255])
    found = [unpack(word, 9, signed, size) for word in trace.words]
    np.testing.assert_array_equal(found, np.clip(rounded + zero, low, high))
    assert trace.times == [cycle + config.latency for cycle in trace.taken]


@settings(max_examples=26)
@given(beat=beats(), spread=st.booleans(), data=st.data(), seed=st.integers(0, 2**32), offer=patterns())
def test_products(beat, spread, data, seed, offer):
    """Of any zero points; one factor for all pixels of a beat, if it is a pixel for all."""
    rng = np.random.default_rng(seed)
    other = replace(beat, bits=data.draw(st.integers(2, 9)), signed=data.draw(st.booleans()))
    if spread:
        other = replace(other, height=1, width=1, pixels=1)
    inputs = (beat, other)
    zeros = tuple(data.draw(st.sampled_from([*each.value_range, 0, 1])) for each in inputs)
    config = ProductConfig(window=JoinConfig(inputs=inputs, spread=spread), zeros=zeros)
    pairs = [integers(rng, *each.value_range, (30, each.lanes, each.pixels)) for each in inputs]
    low = beat.lanes * beat.pixels * beat.bits
    steps = [pack(a.ravel(), beat.bits) | pack(b.ravel(), other.bits) << low for a, b in zip(*pairs, strict=True)]
    trace = run(config.component(), steps, 30, offer=offer)
    found = [unpack(word, config.result.width, True, beat.lanes * beat.pixels) for word in trace.words]
    expected = (pairs[0] - zeros[0]) * (pairs[1] - zeros[1])
    np.testing.assert_array_equal(np.array(found).reshape(expected.shape), expected)
    assert trace.times == [cycle + config.latency for cycle in trace.taken]


@cases_in_the_long_run(26)
@given(
    beat=beats(max_bits=5),
    count=st.integers(2, 4),
    greatest=st.booleans(),
    data=st.data(),
    seed=st.integers(0, 2**32),
    offer=patterns(),
)
def test_extremes(beat, count, greatest, data, seed, offer):
    """Of inputs whose values stay, or go through tables of any kind; neighbouring values often meet."""
    rng = np.random.default_rng(seed)
    inputs, tables = [], []
    for _ in range(count):
        stays = data.draw(st.booleans())
        inputs.append(beat if stays else replace(beat, bits=data.draw(st.integers(2, 5)), signed=not beat.signed))
        tables.append(() if stays else tuple(integers(rng, *beat.value_range, 1 << inputs[-1].bits).tolist()))
    window = JoinConfig(inputs=tuple(inputs))
    config = ExtremeConfig(window=window, tables=tuple(tables), greatest=greatest, bits=beat.bits, signed=beat.signed)
    size, place = beat.lanes * beat.pixels, 0
    steps, operands = [0] * 30, []
    for each, table in zip(inputs, tables, strict=True):
        values = integers(rng, *each.value_range, (30, size))
        steps = [step | pack(row, each.bits) << place for step, row in zip(steps, values, strict=True)]
        place += size * each.bits
        operands.append(np.array(table)[values - each.value_range[0]] if table else values)
    trace = run(config.component(), steps, 30, offer=offer)
    found = [unpack(word, beat.bits, beat.signed, size) for word in trace.words]
    np.testing.assert_array_equal(found, (np.max if greatest else np.min)(operands, axis=0))
    assert trace.times == [cycle + config.latency for cycle in trace.taken]


@settings(max_examples=26)
@given(
    beat=beats(max_bits=4),
    bits=st.integers(2, 6),
    place=st.sampled_from([None, "lut", "block"]),
    seed=st.integers(0, 2**32),
    offer=patterns(),
)
def test_tables_of_channels(beat, bits, place, seed, offer):
    """Every channel has its own, which comes again with each pixel and frame, wherever the memory lies."""
    rng = np.random.default_rng(seed)
    tables = integers(rng, -(1 << bits - 1), (1 << bits - 1) - 1, (beat.channels, 1 << beat.bits))
    config = ChannelTableConfig(
        window=JoinConfig(inputs=(beat,), in_turn=True),
        tables=Weights(tables.ravel()),
        bits=bits,
        signed=True,
        tables_in=place,
    )
    frames = maps(beat, seed)
    trace = run(config.component(), words(beat, padded(beat, frames, seed)), FRAMES * beat.beats, offer=offer)
    expected = tables[np.arange(beat.channels)[:, None, None], frames - beat.value_range[0]]
    found = np.array([unpack(word, bits, True, beat.lanes * beat.pixels) for word in trace.words])
    steps = -(-beat.width // beat.pixels)
    split = found.reshape(FRAMES, beat.height, steps, beat.folds, beat.lanes, beat.pixels)
    full = split.transpose(0, 3, 4, 1, 2, 5).reshape(FRAMES, -1, beat.height, steps * beat.pixels)
    np.testing.assert_array_equal(full[:, channel_lanes(beat), :, : beat.width], expected)
    assert trace.times == [cycle + config.latency for cycle in trace.taken]


def test_what_can_not_be():
    beat = BeatFormat(channels=4, height=3, width=3, lanes=2, bits=8, signed=False)
    pixel = replace(beat, height=1, width=1)
    for message, make in (
        ("factors must be positive, not (0, 2)", lambda: UpsampleConfig(input=beat, factors=(0, 2))),
        ("inputs must end with a map of one pixel", lambda: JoinConfig(inputs=(beat, beat), spread=True)),
        (
            "inputs must end with a map of one pixel",
            lambda: JoinConfig(inputs=(beat, pixel), spread=True, in_turn=True),
        ),
        ("inputs must be one or more that agree in height", lambda: JoinConfig(inputs=(beat, pixel))),
        ("window must take two inputs at once", lambda: ProductConfig(window=JoinConfig(inputs=(beat,)), zeros=(0, 0))),
    ):
        with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
            make()


@pytest.mark.parametrize(("pixels", "lanes", "channels"), [(8, 1, 3), (9, 2, 4), (16, 1, 1), (13, 1, 70)])
def test_running_sums_of_beats_of_many_pixels(pixels, lanes, channels):
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


def expected_maxima(config: MaxPoolConfig, windows: np.ndarray) -> list[list[int]]:
    """The ``Tn x Tp`` maxima of each fold of the windows, in order."""
    size = config.lanes * config.window.pixels
    return windows.max(axis=(3, 4)).transpose(0, 2, 1).reshape(-1, size).tolist()


def simulate(config: MaxPoolConfig, windows: np.ndarray, offer: Pattern, **options):
    words = step_words(config.window, steps_of(config.window, windows))
    return run(MaxPoolUnit(config), words, len(windows) * config.window.output_folds, offer=offer, **options)


def maxima(config: MaxPoolConfig, words: list[int]) -> list[list[int]]:
    source = config.window.input
    return [unpack(word, source.bits, source.signed, source.lanes * config.window.pixels) for word in words]


def pools(**limits) -> st.SearchStrategy[LineBufferConfig]:
    """Walks that a pool can do: taps that a last step lacks must not win."""
    return line_buffers(channelwise=True, **limits).map(
        lambda window: replace(window, pad_value=value_range(window)[0]) if window.patches.chooses else window
    )


@cases_in_the_long_run(28)
@given(window=pools(max_bits=16), seed=st.integers(0, 2**32), gaps=GAPS)
def test_maxima(window, seed, gaps):
    config = MaxPoolConfig(window=window)
    windows = windows_for(window, 8, seed)
    trace = simulate(config, windows, offers(window.steps, gaps))
    assert maxima(config, trace.words) == expected_maxima(config, windows)
    last_steps = trace.taken[window.steps - 1 :: window.steps]
    assert trace.times == [cycle + config.latency for cycle in last_steps]


@settings(max_examples=15)
@given(window=pools(), seed=st.integers(0, 2**32), reset_at=st.integers(0, 40))
def test_reset(window, seed, reset_at):
    """The step after a reset is the first of a window."""
    config = MaxPoolConfig(window=window)
    windows = windows_for(window, 12, seed)
    after = step_words(window, steps_of(window, windows[6:]))
    trace = simulate(config, windows[:6], Pattern(), reset_at=reset_at, after=(after, 6 * config.window.output_folds))
    assert trace.reset is not None
    sent = trace.reset[2]
    assert maxima(config, trace.words[:sent]) == expected_maxima(config, windows[:6])[:sent]
    assert maxima(config, trace.words[sent:]) == expected_maxima(config, windows[6:])


def plain(channelwise: bool = True, signed: bool = True, taps: int = 3) -> LineBufferConfig:
    """5 channels, 2 at a time, 3 x 3 taps."""
    return LineBufferConfig(
        input=BeatFormat(channels=5, height=5, width=6, lanes=2, bits=8, signed=signed),
        kernel=(3, 3),
        stride=(1, 1),
        padding=(0, 0, 0, 0),
        pad_value=-128 if signed else 0,
        taps=taps,
        output_folds=3,
        channelwise=channelwise,
        rows=3,
    )


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("taps", [1, 3, 4, 9])
def test_extremes_of_windows(signed, taps):
    """One value stands out, in each of the taps in turn; and windows of one value."""
    config = MaxPoolConfig(window=plain(signed=signed, taps=taps))
    low, high = value_range(config.window)
    windows = np.full((13, 6, 9), low)
    for number, value in enumerate((low, high, -1 if signed else 1, 0)):
        windows[9 + number] = value
    for tap in range(9):
        windows[tap, :, tap] = high if tap % 2 else low + 1
    windows = windows.reshape(13, 1, 6, 3, 3)
    trace = simulate(config, windows, Pattern())
    assert maxima(config, trace.words) == expected_maxima(config, windows)


def test_errors():
    with pytest.raises(ConfigError, match=f"^{re.escape('window.channelwise must be True, not False')}$"):
        MaxPoolConfig(window=plain(channelwise=False))
    message = "window.pad_value must be -128 where 4 taps don't divide the kernel, not 0"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        MaxPoolConfig(window=replace(plain(taps=4), pad_value=0))
