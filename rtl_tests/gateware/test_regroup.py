"""Beats cut and put in order anew (regroup, unload, repack, order): every value once, and no idle cycles."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from accelerators import counting, from_beats, integers, to_beats
from amaranth import Shape, unsigned
from counted import cases_in_the_long_run
from hypothesis import example, given, settings
from hypothesis import strategies as st
from testbench import ALWAYS, Pattern, Trace, channel_lanes, pack, run, stalls, unpack

from hwgen.errors import ConfigError, InputError
from hwgen.gateware.bus.repack import Pieces, Repack, RepackConfig
from hwgen.gateware.regroup import Regroup, RegroupConfig
from hwgen.gateware.stream import BeatFormat, Order
from hwgen.gateware.unload import Unload, UnloadConfig
from hwgen.simulate import stimuli
from hwgen.tools import synthesis


@st.composite
def regroups(draw, *, most: int = 9) -> RegroupConfig:
    """Between a layer's folds and any consumer, as in an accelerator."""
    channels = draw(st.integers(1, most))
    groups = draw(st.sampled_from([g for g in range(1, channels + 1) if channels % g == 0]))
    lanes_in = draw(st.integers(1, channels // groups))
    lanes_out = draw(st.integers(1, lanes_in))
    unload = UnloadConfig(channels=channels, lanes_in=lanes_in, lanes_out=lanes_out, shape=Shape(1), groups=groups)
    return config_for([len(beat) for beat in unload.beats], lanes_out, draw)


@st.composite
def any_regroups(draw) -> RegroupConfig:
    """Any counts at all, and lanes that are never used."""
    counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    lanes = max(counts) + draw(st.integers(0, 1))
    return config_for(counts, lanes, draw, spare=1)


def config_for(counts: list[int], lanes: int, draw, spare: int = 0) -> RegroupConfig:
    channels = sum(counts)
    groups = draw(st.sampled_from([1, *(g for g in range(1, channels + 1) if channels % g == 0)]))
    output = BeatFormat(
        channels=channels,
        height=draw(st.integers(1, 3)),
        width=draw(st.integers(1, 4)),
        lanes=draw(st.integers(1, channels // groups + spare)),
        bits=draw(st.integers(2, 8)),
        signed=draw(st.booleans()),
        pixels=draw(st.sampled_from([1, 1, 2, 3])),
        groups=groups,
    )
    return RegroupConfig(counts=tuple(counts), lanes=lanes, output=output)


def frames_for(config: RegroupConfig, count: int, seed: int) -> np.ndarray:
    output = config.output
    low = -(1 << (output.bits - 1)) if output.signed else 0
    shape = (count, output.channels, output.height, output.width)
    return integers(np.random.default_rng(seed), low, low + (1 << output.bits) - 1, shape)


def beats_in(config: RegroupConfig, frames: np.ndarray) -> list[int]:
    """Beats of ``counts`` channels of ``output.pixels``; the lanes they leave and the ends of rows hold noise."""
    output = config.output
    noise = np.random.default_rng(1)
    frames = np.pad(frames, ((0, 0), (0, 0), (0, 0), (0, -output.width % output.pixels)), constant_values=1)
    words = []
    for frame in frames:
        places = frame.reshape(output.channels, -1, output.pixels).transpose(1, 0, 2)
        for number, place in enumerate(places):
            start = 0
            for beat, count in enumerate(config.counts):
                values = place[start : start + count].ravel().tolist()
                values += noise.integers(0, 2, (config.lanes - count) * output.pixels).tolist()
                last = number == len(places) - 1 and beat == len(config.counts) - 1
                words.append(pack(values, output.bits) | last << (config.lanes * output.pixels * output.bits))
                start += count
    return words


def simulate(config: RegroupConfig, frames: np.ndarray, **options) -> Trace:
    component = Regroup(config)
    watch = {"offered": component.i.valid, "accepted": component.o.ready}
    return run(component, beats_in(config, frames), len(frames) * config.output.beats, watch=watch, **options)


def check_times(config: RegroupConfig, trace: Trace) -> None:
    """Each beat as early as the configuration's own rules allow, which are the schedule's too."""
    counts, sizes = len(config.counts), len(config.sizes)

    def first_high(name: str, cycle: int) -> int:
        return next(c for c in range(cycle, trace.cycles) if trace.watched[name][c])

    for number, cycle in enumerate(trace.times):
        pixel, beat = divmod(number, sizes)
        earliest = trace.taken[pixel * counts + config.completing_beats[beat]] + config.latency
        if number:
            earliest = max(earliest, trace.times[number - 1] + 1)
        assert cycle == first_high("accepted", earliest), f"outgoing beat {number}"
    for number, cycle in enumerate(trace.taken):
        pixel, beat = divmod(number, counts)
        earliest = trace.taken[number - 1] + 1 if number else 0
        waits_for = pixel * sizes - 1 - config.waiting[beat]
        if waits_for >= 0:
            earliest = max(earliest, trace.times[waits_for])
        assert cycle == first_high("offered", earliest), f"incoming beat {number}"


def check(config: RegroupConfig, seed: int, pattern) -> None:
    frames = frames_for(config, 3, seed)
    trace = simulate(config, frames, offer=pattern[0], accept=pattern[1])
    assert len(trace.words) == 3 * config.output.beats
    np.testing.assert_array_equal(from_beats(config.output, trace.words), frames)
    check_times(config, trace)


@cases_in_the_long_run(28)
@given(config=regroups(), seed=st.integers(0, 2**32), pattern=stalls())
def test_channels_and_cycles(config, seed, pattern):
    check(config, seed, pattern)


@cases_in_the_long_run(26)
@given(config=any_regroups(), seed=st.integers(0, 2**32), pattern=stalls())
def test_any_counts(config, seed, pattern):
    check(config, seed, pattern)


@cases_in_the_long_run(28)
@given(config=regroups(most=12), seed=st.integers(0, 2**32))
def test_rate(config, seed):
    """Nobody stalls: a pixel takes no more cycles than it has beats on the side that has more."""
    frames = frames_for(config, 3, seed)
    trace = simulate(config, frames, offer=ALWAYS, accept=ALWAYS)
    period = max(len(config.counts), len(config.sizes))
    ends = trace.times[len(config.sizes) - 1 :: len(config.sizes)]
    assert max(np.diff(ends), default=0) <= period


@st.composite
def before_fifos(draw) -> RegroupConfig:
    """To fewer beats, all of which are taken at once."""
    config = draw(st.one_of(regroups(most=14), any_regroups()).filter(lambda config: config.widens))
    return replace(config, always_ready=True)


@cases_in_the_long_run(60)
@given(config=before_fifos(), seed=st.integers(0, 2**32), pattern=stalls())
def test_before_a_fifo(config, seed, pattern):
    """Beats that come in any cycles, each cycle among them: every channel once, in the cycle that is stated."""
    frames = frames_for(config, 3, seed)
    bits = config.lanes * config.output.pixels * config.output.bits
    words = [word & (1 << bits) - 1 for word in beats_in(config, frames)]
    for offer in (ALWAYS, pattern[0]):
        trace = run(Regroup(config), words, len(frames) * config.output.beats, offer=offer)
        last = 1 << config.output.data_bits
        ends = range(config.output.beats - 1, len(trace.words), config.output.beats)
        marked = [word | last * (index in ends) for index, word in enumerate(trace.words)]
        np.testing.assert_array_equal(from_beats(config.output, marked), frames)
        for number, cycle in enumerate(trace.times):
            pixel, beat = divmod(number, len(config.sizes))
            completed = trace.taken[pixel * len(config.counts) + config.completing_beats[beat]]
            assert cycle == completed + config.departure_delays[beat]


@cases_in_the_long_run(200)
@given(config=before_fifos())
def test_a_beat_in_each_cycle(config):
    """A count of what is complete before each of three pixels' beats, one beat per cycle: never more than is stated."""
    held, most = 0, [0] * len(config.counts)
    for beat in 3 * [*range(len(config.counts))]:
        most[beat] = max(most[beat], held)
        held = max(held - 1, 0) + config.completing_beats.count(beat)
    assert config.pending == tuple(most)
    for beat, lanes in enumerate(config.output_lanes):
        left = max(config.pending[beat] - 1, 0) * config.output.lanes + lanes[0] % config.output.lanes
        assert left <= config.room[beat]


@cases_in_the_long_run(20)
@given(config=regroups(), seed=st.integers(0, 2**32), pattern=stalls(), reset_at=st.integers(0, 60))
def test_reset(config, seed, pattern, reset_at):
    frames = frames_for(config, 4, seed)
    trace = simulate(
        config,
        frames[:2],
        offer=pattern[0],
        accept=pattern[1],
        reset_at=reset_at,
        after=(beats_in(config, frames[2:]), 2 * config.output.beats),
    )
    assert trace.reset is not None
    sent = trace.reset[2]
    before, after = (counting(config.output, to_beats(config.output, part)) for part in (frames[:2], frames[2:]))
    assert counting(config.output, trace.words[:sent]) == before[:sent]
    assert counting(config.output, trace.words[sent:]) == after


@settings(max_examples=200)
@given(config=any_regroups())
def test_needed(config):
    """A wire does where every beat carries the same channels either way."""
    output = config.output
    beats = [lane // output.lanes for lane in channel_lanes(output)]
    same = config.lanes == output.lanes and list(config.counts) == [beats.count(beat) for beat in sorted(set(beats))]
    assert config.needed == (not same)
    assert config.register_bits == config.held * output.pixels * output.bits


OUTPUT = BeatFormat(channels=7, height=3, width=5, lanes=3, bits=8, signed=True)


@pytest.mark.parametrize(
    ("counts", "lanes", "message"),
    [
        ((3, 3), 3, "counts must add up to 7 channels, not 6"),
        ((4, 4), 4, "counts must add up to 7 channels, not 8"),
        ((4, 3), 3, "counts must be between 1 and 3 lanes, not (4, 3)"),
        ((4, 0, 3), 4, "counts must be between 1 and 4 lanes, not (4, 0, 3)"),
    ],
)
def test_errors(counts, lanes, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        RegroupConfig(counts=counts, lanes=lanes, output=OUTPUT)


def test_never_stalls():
    """Three input beats of a pixel with three output beats could not be taken as they come, whatever the lanes."""
    message = "counts must be more than the 3 output beats of a pixel if streams are always ready, not (3, 3, 1)"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        RegroupConfig(counts=(3, 3, 1), lanes=3, output=OUTPUT, always_ready=True)


@st.composite
def unloads(draw) -> UnloadConfig:
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    size = draw(st.integers(1, 11 if groups == 1 else 4))
    lanes_in = draw(st.integers(1, size))
    return UnloadConfig(
        channels=size * groups,
        lanes_in=lanes_in,
        lanes_out=draw(st.integers(1, lanes_in)),
        shape=Shape(draw(st.integers(2, 16)), draw(st.booleans())),
        clears=draw(st.booleans()),
        pixels=draw(st.sampled_from([1, 1, 2, 3])),
        groups=groups,
    )


def results_for(config: UnloadConfig, pixels: int, seed: int) -> np.ndarray:
    """``(pixels, channels, Tp)``."""
    width, signed = config.shape.width, config.shape.signed
    low = -(1 << (width - 1)) if signed else 0
    return integers(np.random.default_rng(seed), low, low + (1 << width) - 1, (pixels, config.channels, config.pixels))


def fold_words(config: UnloadConfig, results: np.ndarray) -> list[int]:
    """The folds of each pixel; the lanes that a short last fold leaves hold noise."""
    words = []
    noise = np.random.default_rng(0)
    for fold in folds_of(config, results):
        values = fold.ravel().tolist()
        values += noise.integers(0, 2, config.lanes_in * config.pixels - len(values)).tolist()
        words.append(pack(values, config.shape.width))
    return words


def folds_of(config: UnloadConfig, results: np.ndarray) -> list[np.ndarray]:
    """``(channels, Tp)`` of every fold, none of two groups."""
    size = config.channels // config.groups
    return [
        row[start : min(start + config.lanes_in, end)]
        for row in results
        for end in range(size, config.channels + 1, size)
        for start in range(end - size, end, config.lanes_in)
    ]


def expected_beats(config: UnloadConfig, results: np.ndarray) -> list[list[int]]:
    """``r`` channels a beat; a fold's last beat carries what is left of it."""
    return [
        fold[first : first + config.lanes_out].ravel().tolist()
        for fold in folds_of(config, results)
        for first in range(0, len(fold), config.lanes_out)
    ]


def check_beats(config: UnloadConfig, words: list[int], expected: list[list[int]]) -> None:
    assert len(words) == len(expected)
    for word, wanted in zip(words, expected, strict=True):
        lanes = unpack(word, config.shape.width, config.shape.signed, config.lanes_out * config.pixels)
        assert lanes[: len(wanted)] == wanted
        if config.clears:
            assert not any(lanes[len(wanted) :])


def offers(config: UnloadConfig, gaps: list[int]) -> Pattern:
    """As close as the beats of each fold allow, and further apart."""
    cycle = []
    for gap in gaps:
        for beats in config.fold_beats:
            cycle += [True] + [False] * (beats - 1 + gap)
    return Pattern(tuple(cycle))


@settings(max_examples=28)
@given(config=unloads(), seed=st.integers(0, 2**32), gaps=st.lists(st.integers(0, 3), min_size=1, max_size=5))
def test_beats(config, seed, gaps):
    results = results_for(config, 9, seed)
    expected = expected_beats(config, results)
    trace = run(Unload(config), fold_words(config, results), len(expected), offer=offers(config, gaps))
    check_beats(config, trace.words, expected)
    beats = config.fold_beats * 9
    assert trace.times == [
        cycle + config.latency + beat for cycle, count in zip(trace.taken, beats, strict=True) for beat in range(count)
    ]


@settings(max_examples=20)
@given(config=unloads(), seed=st.integers(0, 2**32), reset_at=st.integers(0, 30))
def test_reset_of_unload(config, seed, reset_at):
    """What comes after a reset is a pixel's first fold."""
    results = results_for(config, 12, seed)
    before, after = expected_beats(config, results[:6]), expected_beats(config, results[6:])
    trace = run(
        Unload(config),
        fold_words(config, results[:6]),
        len(before),
        offer=offers(config, [0]),
        reset_at=reset_at,
        after=(fold_words(config, results[6:]), len(after)),
    )
    assert trace.reset is not None
    sent = trace.reset[2]
    check_beats(config, trace.words[:sent], before[:sent])
    check_beats(config, trace.words[sent:], after)


@settings(max_examples=100)
@given(config=unloads())
def test_channels(config):
    """Every channel leaves once, in order."""
    assert [channel for beat in config.beats for channel in beat] == list(range(config.channels))
    assert sum(config.fold_beats) == len(config.beats)
    assert len(config.fold_channels) == config.groups * -(-config.channels // config.groups // config.lanes_in)


@pytest.mark.parametrize("numbers", [(4, 5, 1), (4, 2, 3), (4, 2, 0), (0, 0, 0)])
def test_errors_of_unload(numbers):
    channels, lanes_in, lanes_out = numbers
    message = (
        "lanes_out, lanes_in and channels must not fall below 1 or each other, "
        f"not {lanes_out}, {lanes_in} and {channels}"
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        UnloadConfig(channels=channels, lanes_in=lanes_in, lanes_out=lanes_out, shape=Shape(8, True))


def test_lanes_of_a_group():
    """A fold doesn't reach from one group into the next."""
    message = "lanes_out, lanes_in and channels must not fall below 1 or each other, not 1, 3 and 4"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        UnloadConfig(channels=4, lanes_in=3, lanes_out=1, shape=Shape(8, True), groups=2)


def cut(pieces: Pieces, values: list[int]) -> list[list[int]]:
    """Values of whole frames, piece by piece."""
    found = []
    for begin in range(0, len(values), pieces.values):
        frame = values[begin : begin + pieces.values]
        for number in range(pieces.count):
            last = number == pieces.count - 1
            size = pieces.final if last else pieces.sizes[number % len(pieces.sizes)]
            found.append(frame[:size])
            frame = frame[size:]
        assert not frame
    return found


def beats_of(channels: int, lanes: int, steps: int, groups: int = 1) -> Pieces:
    beat = BeatFormat(
        channels=channels * groups, height=1, width=steps, lanes=lanes, bits=8, signed=False, groups=groups
    )
    return Pieces.of_beats(beat, beat.beats)


@st.composite
def configs(draw) -> RepackConfig:
    channels = draw(st.integers(1, 12))
    beats = beats_of(channels, draw(st.integers(1, channels)), draw(st.integers(1, 6)), draw(st.integers(1, 2)))
    sides = [beats, Pieces.of_words(draw(st.sampled_from([1, 2, 4, 8, 16])), beats.values)]
    if draw(st.booleans()):
        sides.reverse()
    return RepackConfig(shape=unsigned(draw(st.integers(1, 9))), takes=sides[0], gives=sides[1])


def send(config: RepackConfig, frames: int, seed: int, **options):
    rng = np.random.default_rng(seed)
    bits = config.shape.width
    values = rng.integers(0, 1 << bits, frames * config.takes.values).tolist()
    noise = rng.integers(0, 1 << bits, (frames * config.takes.count, config.takes.max_values)).tolist()
    pieces = [
        pack([*piece, *above[len(piece) :]], bits)
        for piece, above in zip(cut(config.takes, values), noise, strict=True)
    ]
    return values, pieces, run(Repack(config), pieces, frames * config.gives.count, **options)


def check_repack(config: RepackConfig, words: list[int], values: list[int]) -> None:
    bits, most = config.shape.width, config.gives.max_values
    expected = [piece + [0] * (most - len(piece)) for piece in cut(config.gives, values)]
    assert [unpack(word, bits, False, most) for word in words] == expected
    lasts = [number for number, word in enumerate(words) if word >> bits * most]
    assert lasts == list(range(config.gives.count - 1, len(words), config.gives.count))


@cases_in_the_long_run(25)
@given(config=configs(), seed=st.integers(0, 2**32), pattern=stalls())
def test_values(config, seed, pattern):
    values, _, trace = send(config, 3, seed, offer=pattern[0], accept=pattern[1])
    check_repack(config, trace.words, values)


@cases_in_the_long_run(30)
@given(config=configs())
@example(RepackConfig(shape=unsigned(8), takes=Pieces.of_words(4, 9), gives=beats_of(3, 3, 3)))
@example(RepackConfig(shape=unsigned(8), takes=beats_of(9, 8, 5), gives=Pieces.of_words(16, 45)))
def test_cycles(config):
    """Never stalled: a piece a cycle on the side that has more of them, from some frame on."""
    _, _, trace = send(config, 24, 0)
    ends = trace.times[config.gives.count - 1 :: config.gives.count]
    assert set(np.diff(ends[-8:]).tolist()) == {config.interval}


@cases_in_the_long_run(15)
@given(config=configs(), pattern=stalls(), reset_at=st.integers(0, 60))
def test_reset_of_repack(config, pattern, reset_at):
    values, pieces, _ = send(config, 2, 1)
    count = 2 * config.gives.count
    trace = run(
        Repack(config),
        pieces * 4,
        4 * count,
        offer=pattern[0],
        accept=pattern[1],
        reset_at=reset_at,
        after=(pieces, count),
    )
    assert trace.reset is not None
    check_repack(config, trace.words[trace.reset[2] :], values)


def test_words_of_a_bus():
    """67 values, four a word: 16 words and one of three."""
    words = Pieces.of_words(4, 67)
    assert (words.count, words.final, words.values, words.min_values) == (17, 3, 67, 3)
    assert beats_of(10, 4, 3).sizes == (4, 4, 2)
    assert beats_of(8, 4, 3) == Pieces(sizes=(4,), count=6, final=4)


def test_refusals():
    with pytest.raises(ConfigError, match=r"^values of a frame must be 8 on either side, not 9$"):
        RepackConfig(shape=unsigned(8), takes=Pieces.of_words(4, 8), gives=Pieces.of_words(4, 9))
    with pytest.raises(ConfigError, match=r"^final must be at most 2, not 3$"):
        Pieces(sizes=(2,), count=2, final=3)
    with pytest.raises(ConfigError, match=r"^sizes, count and final must be positive integers"):
        Pieces(sizes=(2,), count=0, final=1)


@pytest.mark.long
def test_resources():
    shapes = (
        (4, 3, 3, 100),
        (4, 1, 1, 64),
        (4, 10, 4, 49),
        (16, 3, 3, 1024),
        (8, 8, 8, 100),
        (16, 64, 64, 64),
        (4, 4, 4, 9),
    )
    parts = []
    for size, channels, lanes, steps in shapes:
        beats = beats_of(channels, lanes, steps)
        words = Pieces.of_words(size, beats.values)
        parts += [RepackConfig(shape=unsigned(8), takes=words, gives=beats)]
        parts += [RepackConfig(shape=unsigned(8), takes=beats, gives=words)]
    for part, measured in zip(parts, synthesis.measure(parts), strict=True):
        assert measured.ff == part.resources.ff, part
        assert abs(part.resources.lut / measured.lut - 1) <= 0.25, part


@st.composite
def spans(draw, size: int) -> tuple[tuple[int, int], ...]:
    """Anywhere in ``size`` pixels, in any order."""
    span = st.integers(0, size - 1).flatmap(lambda begin: st.tuples(st.just(begin), st.integers(begin + 1, size)))
    return tuple(draw(st.lists(span, min_size=1, max_size=3)))


@st.composite
def travels(draw) -> tuple[BeatFormat, Order]:
    groups = draw(st.integers(1, 2))
    beat = BeatFormat(
        channels=groups * draw(st.integers(1, 4)),
        height=draw(st.integers(1, 5)),
        width=draw(st.integers(1, 7)),
        lanes=draw(st.integers(1, 5)),
        bits=draw(st.sampled_from([1, 7, 8, 12, 33])),
        signed=draw(st.booleans()),
        pixels=draw(st.integers(1, 4)),
        groups=groups,
    )
    columns = draw(spans(beat.width))
    grids = draw(st.sampled_from([(), tuple(draw(st.integers(-5, 9)) for _ in columns)]))
    return beat, Order(rows=draw(spans(beat.height)), columns=columns, grids=grids)


def walk(beat: BeatFormat, order: Order) -> list[list[tuple[int, int, int, int]]]:
    """By beat: (channel, row, column, place among the values) of what it carries."""
    result = []
    size = beat.channels // beat.groups
    for low, high in order.rows:
        for number, (begin, end) in enumerate(order.columns):
            grid = order.grids[number] if order.grids else 0
            for row in range(low, high):
                column = begin
                while column < end:
                    first = column
                    column += 1
                    while column < end and (column - grid) % beat.pixels:
                        column += 1
                    for group in range(beat.groups):
                        for fold in range(0, size, beat.lanes):
                            result.append(
                                [
                                    (group * size + channel, row, c, lane * beat.pixels + (c - grid) % beat.pixels)
                                    for lane, channel in enumerate(range(fold, min(fold + beat.lanes, size)))
                                    for c in range(first, column)
                                ]
                            )
    return result


def random_frames(beat: BeatFormat, count: int) -> np.ndarray:
    low = -(1 << beat.bits - 1) if beat.signed else 0
    shape = count, beat.channels, beat.height, beat.width
    return np.random.default_rng(1).integers(low, low + (1 << beat.bits), shape).astype(stimuli.dtype(beat))


@given(travels())
def test_beats_are_the_definition_of_an_order(travel):
    beat, order = travel
    frames = random_frames(beat, 2)
    carried = walk(beat, order)
    expected = []
    for frame in frames:
        for values in carried:
            word = 0
            for channel, row, column, place in values:
                word |= (int(frame[channel, row, column]) & (1 << beat.bits) - 1) << place * beat.bits
            expected.append(word)
        expected[-1] |= 1 << beat.data_bits
    payloads = stimuli.pack(frames, beat, order)
    assert stimuli.integers(payloads) == expected
    assert order.beats(beat) == len(carried)
    width = 1 if beat.bits <= 8 else 2 if beat.bits <= 16 else 8
    assert stimuli.beat_bytes(beat, order).tolist() == [len(values) * width for values in carried]
    # And back, whatever lies outside of the rectangles.
    for number, values in enumerate(carried * 2):
        outside = set(range(beat.lanes * beat.pixels)) - {place for *_, place in values}
        for place in outside:
            expected[number] |= (0x5A5A5A5A5 & (1 << beat.bits) - 1) << place * beat.bits
    pixels, last = stimuli.unpack(stimuli.words(expected, beat), beat, order)
    places = [
        (row, column)
        for rows in order.rows
        for columns in order.columns
        for row in range(*rows)
        for column in range(*columns)
    ]
    assert pixels.shape == (2, beat.channels, order.frame_pixels)
    for number, (row, column) in enumerate(places):
        np.testing.assert_array_equal(pixels[:, :, number], frames[:, :, row, column])
    assert np.flatnonzero(last).tolist() == [len(carried) - 1, 2 * len(carried) - 1]
    maps = stimuli.to_maps(pixels, beat, order)
    travelled = np.zeros((beat.height, beat.width), bool)
    travelled[tuple(np.transpose(places))] = True
    np.testing.assert_array_equal(maps, np.where(travelled, frames, 0))


@given(travels())
def test_raster_is_one_rectangle(travel):
    beat, _ = travel
    assert beat.raster.beats(beat) == beat.beats
    assert beat.raster.frame_pixels == beat.frame_pixels
    frames = random_frames(beat, 1)
    np.testing.assert_array_equal(stimuli.pack(frames, beat), stimuli.pack(frames, beat, beat.raster))


def test_by_hand():
    """Columns 1 to 5 of seven, in pairs from an odd one on, and in pairs from an even one on."""
    order = Order(rows=((0, 1),), columns=((1, 6), (1, 6)), grids=(1, -2))
    assert [list(firsts) for firsts in order.beat_columns(2)] == [[1, 3, 5], [0, 2, 4]]
    beat = BeatFormat(channels=3, height=1, width=7, lanes=2, bits=12, signed=False, pixels=2)
    # Two channels of two bytes, then one.
    assert stimuli.beat_bytes(beat, order).tolist() == [8, 4, 8, 4, 4, 2, 4, 2, 8, 4, 8, 4]


def test_errors_of_order():
    with pytest.raises(
        ConfigError, match=r"^rows must be one or more spans \(begin, end\) of at least one pixel, not \(\)$"
    ):
        Order(rows=(), columns=((0, 1),))
    with pytest.raises(ConfigError, match=r"^columns must be one or more spans .* not \(\(0, 2\), \(3, 3\)\)$"):
        Order(rows=((0, 1),), columns=((0, 2), (3, 3)))
    with pytest.raises(ConfigError, match=r"^grids must be as many as the 1 spans of columns, not \(0, 1\)$"):
        Order(rows=((0, 1),), columns=((0, 2),), grids=(0, 1))
    beat = BeatFormat(channels=1, height=2, width=3, lanes=1, bits=8, signed=False)
    order = Order(rows=((0, 2),), columns=((0, 4),))
    with pytest.raises(InputError, match=r"^an order must keep to the 2 x 3 map, not Order"):
        stimuli.pack(random_frames(beat, 1), beat, order)
    wide = replace(beat, bits=65)
    with pytest.raises(InputError, match="at most 64 bits"):
        stimuli.dtype(wide)
