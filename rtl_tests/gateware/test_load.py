"""Weights that are loaded at run time: the chain that brings them, its front, and accelerators."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, cast

import numpy as np
import pytest
from accelerators import (
    check_cycles,
    check_data,
    frames_for,
    from_beats,
    global_average_pool,
    networks,
    size_buffers,
    to_beats,
    unrolls,
)
from amaranth import Module, Signal
from amaranth.sim import Simulator
from counted import cases_in_the_long_run
from graphs import graphs
from graphs import unrolls as graph_unrolls
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from testbench import ALWAYS, PATIENCE, Circuit, Pattern, Trace, pack, patterns, run, unpack

from hwgen.errors import ConfigError
from hwgen.gateware.accelerator import Accelerator, AcceleratorConfig
from hwgen.gateware.arithmetic.shares import FRACTION
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.load.distribute import Distribute, DistributeConfig
from hwgen.gateware.load.loaded_memory import LoadedMemory, add_store
from hwgen.gateware.load.loaded_requantise import LoadedRequantise, LoadedRequantiseConfig
from hwgen.gateware.load.loaded_table_sum import LoadedTableSumConfig
from hwgen.gateware.load.loader import Loader, LoaderConfig, packet
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.network.loaded import loaded
from hwgen.network.maps import UINT8, FeatureMap, Requantisation, Window
from hwgen.network.ops import Add, Conv, GlobalAveragePool, Op
from hwgen.schedule.solve import Schedule
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan, with_buffers
from hwgen.templates.search import layer_plan
from hwgen.templates.stages import stage_of
from hwgen.templates.work import Unroll
from hwgen.tools import synthesis

STORES = st.lists(st.tuples(st.integers(1, 100), st.sampled_from([1, 1, 2, 3, 5, 8])), min_size=1, max_size=4).map(
    lambda sizes: tuple(LoadedMemory(name=f"s{n}", width=width, depth=depth) for n, (width, depth) in enumerate(sizes))
)


def contents_of(stores: Sequence[LoadedMemory], rng: random.Random) -> list[tuple[int, ...]]:
    return [tuple(rng.getrandbits(store.width) for _ in range(store.depth)) for store in stores]


@pytest.mark.parametrize(("width", "contents"), [(3, [-1]), (3, [-4, -1, 0, 1, 3]), (33, [2**33 - 1, 1, -1])])
def test_contents_before_a_load(width, contents):
    """All bits of each word are there from the beginning, negative words in two's complement."""
    store = LoadedMemory(name="weights", width=width, depth=len(contents))
    m, address = Module(), Signal(range(len(contents)))
    word = add_store(m, store, contents, store.write.create(), address)
    words = []

    async def bench(ctx):
        for index in range(len(contents)):
            ctx.set(address, index)
            await ctx.tick()
            words.append(ctx.get(word))

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert words == [word % 2**width for word in contents]


@given(stores=STORES, seed=st.integers(0, 2**32))
def test_words(stores, seed):
    """Words are cut into parts, lowest first, and joined again."""
    for store, contents in zip(stores, contents_of(stores, random.Random(seed)), strict=True):
        words = list(store.cut(contents))
        assert len(words) == store.words
        assert store.joined(words) == contents
        number = sum(word << (32 * store.word_parts * place) for place, word in enumerate(contents))
        assert words == [number >> (32 * place) & 0xFFFFFFFF for place in range(store.words)]


def test_negative_words():
    """Two's complement, of the memory's width."""
    assert list(LoadedMemory(name="s", width=33, depth=2).cut([-1, 1])) == [0xFFFFFFFF, 1, 1, 0]


@settings(max_examples=20)
@given(stores=STORES, behind=st.integers(0, 5), seed=st.integers(0, 2**32), gaps=patterns(), early=st.integers(0, 60))
def test_distribute(stores, behind, seed, gaps, early):
    """Every memory gets its words, also when a load before broke off; what is of others is handed on a cycle later."""
    rng = random.Random(seed)
    contents = contents_of(stores, rng)
    words = [word for store, each in zip(stores, contents, strict=True) for word in store.cut(each)]
    rest = [rng.getrandbits(32) for _ in range(behind)]
    begin, end = 1, 2
    broken = [begin, *(rng.getrandbits(32) << 2 for _ in range(min(early, len(words))))] if early else []
    beats = [*broken, begin, *(word << 2 for word in (*words, *rest)), end]
    part: Any = Distribute(DistributeConfig(stores=stores))
    watch = {
        f"{kind}_{store.name}": getattr(getattr(part.writes, store.name), kind)
        for store in stores
        for kind in ("enable", "address", "data")
    }
    handed = [begin, *(word << 2 for word in rest), end]
    trace = run(part, beats, len(handed) + bool(broken), offer=gaps, watch=watch)
    assert trace.words[bool(broken) :] == handed
    assert trace.times == [cycle + 1 for cycle in (*trace.taken[: bool(broken)], trace.taken[len(broken)],
                                                   *trace.taken[len(beats) - len(rest) - 1 :])]  # fmt: skip
    start = trace.taken[len(broken)] + 1
    for store, each in zip(stores, contents, strict=True):
        seen = [
            (trace.watched[f"address_{store.name}"][cycle], trace.watched[f"data_{store.name}"][cycle])
            for cycle in range(start, trace.cycles)
            if trace.watched[f"enable_{store.name}"][cycle]
        ]
        assert seen == list(enumerate(each))


def words_of(load: bytes) -> list[int]:
    return [word for (word,) in struct.iter_unpack("<I", load)]


def test_packet():
    """The digest, the words, and zlib's CRC-32 of their bytes."""
    load = packet(0x0123456789ABCDEF, [1, 0xFFFFFFFE])
    assert words_of(load[:-4]) == [0x89ABCDEF, 0x01234567, 1, 0xFFFFFFFE]
    assert load[-4:] == struct.pack("<I", zlib.crc32(load[:-4]))


# Whole accelerators


def retrained(network: Network, seed: int) -> Network:
    """The same network with other weights, biases and scales, and other zero points where no hardware holds them."""
    rng = np.random.default_rng(seed)

    def other(layer):
        if isinstance(layer, Conv):
            most = (1 << (layer.weight_bits - 1)) - 1
            least = min(layer.weight_range[0], -most)
            weights = rng.integers(least, most + 1, layer.weights.shape)
            bias = rng.integers(-(1 << 20), 1 << 20, layer.bias.shape)
            layer = replace(layer, weights=weights, bias=bias)
            return replace(layer, requantisation=a_rule(rng, layer))
        if isinstance(layer, GlobalAveragePool):
            return replace(layer, requantisation=scaled(rng, layer.requantisation))
        if isinstance(layer, Add):
            scales = (float(np.float32(scale)) for scale in rng.uniform(0.02, 0.2, 3))
            return replace(layer, labels=tuple(replace(label, scale=next(scales)) for label in layer.labels))
        return layer

    return replace(network, layers=tuple(map(other, network.layers)))


def scaled(rng: np.random.Generator, rule: Requantisation) -> Requantisation:
    return replace(rule, significand=rng.integers(1 << 23, 1 << 24, rule.significand.shape))


def a_rule(rng: np.random.Generator, layer: Conv) -> Requantisation:
    """One that spreads the sums over the output's type, each channel in its own way."""
    kind, channels = layer.output.type, layer.output.channels
    excess = max(0, layer.accumulator_bound.bit_length() - kind.bits)
    zero = layer.output.zero_point
    return Requantisation(
        significand=rng.integers(1 << 23, 1 << 24, channels),
        shift=23 + np.maximum(0, excess - rng.integers(0, 5, channels)),
        zero_point=zero,
        low=zero if rng.random() < 0.3 else kind.minimum,
        high=kind.maximum,
        float32=True,
    )


def loadable(network: Network) -> Network:
    """A random network as it can be loaded: of outputs of 8 bits, as float32 rounds them."""
    rng = np.random.default_rng(1)
    assume(any(isinstance(layer, Conv) for layer in network.layers))
    layers = []
    for layer in network.layers:
        if isinstance(layer, Conv):
            assume(layer.output.type.bits <= 8 and layer.input.type.bits <= 8 and layer.weight_bits <= 8)
            layer = replace(layer, fraction=0)
            layer = replace(layer, requantisation=a_rule(rng, layer))
        layers.append(layer)
    return loaded(replace(network, layers=tuple(layers)))


@dataclass(frozen=True, eq=False)
class Pair:
    """Two networks of one shape, each with the accelerator that begins with its weights."""

    networks: tuple[Network, Network]
    configs: tuple[AcceleratorConfig, AcceleratorConfig]

    def __repr__(self) -> str:
        return f"{self.configs[0]}"


@st.composite
def pairs(draw, *, added: bool = False, ultra: bool = False) -> Pair:
    """Of a chain, or of a graph in which maps are added; ``ultra``: with the weights in UltraRAM."""
    if added:
        network = loadable(draw(graphs(max_steps=2, max_side=3)))
        assume(any(isinstance(layer, Add) for layer in network.layers))
        plans = draw(graph_unrolls(network))
    else:
        network = loadable(draw(networks(last_raw=False, max_layers=3, max_side=5)))
        plans = draw(unrolls(network))
    plans = [replace(plan, requantise_in="dsp") for plan in plans]
    if ultra:
        layers = compose(network, plans).layers
        deep = [isinstance(layer.compute, MultiplyConfig) and layer.compute.rom_depth > 1 for layer in layers]
        assume(any(deep))
        in_ultra = [replace(plan, weights_in="ultra", weights_joined=draw(st.booleans())) for plan in plans]
        plans = [moved if is_deep else plan for plan, moved, is_deep in zip(plans, in_ultra, deep, strict=True)]
    rows, depths = size_buffers(compose(network, plans))
    sized = with_buffers(plans, rows, depths)
    other = retrained(network, draw(st.integers(0, 2**32)))
    found = Pair((network, other), (compose(network, sized), compose(other, sized)))
    assume(max(layer.cycles for layer in found.configs[0].layers) <= 300)
    return found


@dataclass
class Seen(Trace):
    """Of a run: also the cycles in which words of loads were taken, and the state in each cycle."""

    loads: list[int] = field(default_factory=list)
    good: list[int] = field(default_factory=list)
    error: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Sent:
    """What is sent: beats of frames, and loads, each with how many beats must have been taken before it is offered."""

    beats: Sequence[int]
    outputs: int
    loads: Sequence[tuple[int, Sequence[int]]] = ()


def drive(
    circuit: Circuit,
    sent: Sent,
    offer: Pattern = ALWAYS,
    accept: Pattern = ALWAYS,
    load: Pattern = ALWAYS,
    reset_at: int = 0,
    after: Sent | None = None,
    patience: int = 400,
) -> Seen:
    """Send beats and loads to an accelerator; after a reset those of ``after`` instead, and what was seen before is
    dropped. Ends when all loads are taken and so many output beats have left, or when nothing moves any more.
    """
    seen = Seen()
    dut, domain = circuit.component, cast(Any, circuit.domain)
    source, sink, weights, state = dut.i, dut.o, dut.weights, dut.weights_state
    noise = random.Random(len(sent.beats))

    async def bench(ctx):
        now, loads = sent, list(sent.loads)
        number, offering, loading = 0, False, False
        words: list[int] = []
        idle = cycle = 0
        offers, accepts, gives = iter(offer), iter(accept), iter(load)
        while (after is not None and cycle <= reset_at) or idle <= (
            patience if number < len(now.beats) or len(seen.words) < now.outputs or words else 40
        ):
            if cycle == reset_at and after is not None:
                now, loads, words, number, offering, loading = after, list(after.loads), [], 0, False, False
                ctx.set(domain.rst, 1)
                ctx.set(source.valid, 0)
                ctx.set(weights.valid, 0)
                await ctx.tick()
                ctx.set(domain.rst, 0)
                for values in (seen.sent, seen.taken, seen.loads, seen.good, seen.error):
                    values.clear()
            if not words and loads and number >= loads[0][0]:
                words = list(loads.pop(0)[1])
            offering = (next(offers) or offering) and number < len(now.beats)
            accepting = next(accepts)
            loading = (next(gives) or loading) and bool(words)
            ctx.set(source.valid, offering)
            ctx.set(source.payload.as_value(), now.beats[number] if offering else noise.getrandbits(32))
            ctx.set(sink.ready, accepting)
            ctx.set(weights.valid, loading)
            ctx.set(weights.payload.data, words[0] if loading else noise.getrandbits(32))
            ctx.set(weights.payload.last, len(words) == 1)
            _, _, ready, valid, word, takes, good, error = await ctx.tick().sample(
                source.ready, sink.valid, sink.payload.as_value(), weights.ready, state.good, state.error
            )
            idle += 1
            if offering and ready:
                seen.taken.append(cycle)
                number, offering, idle = number + 1, False, 0
            if valid and accepting:
                seen.sent.append((cycle, int(word)))
                idle = 0
            if loading and takes:
                seen.loads.append(cycle)
                words.pop(0)
                loading, idle = False, 0
            seen.good.append(int(good))
            seen.error.append(int(error))
            cycle += 1

    circuit.simulate(bench)
    return seen


PAUSES = st.sampled_from([ALWAYS, Pattern((True, False)), Pattern((False,) * 3 + (True,) * 5), Pattern(likely=0.5)])


@pytest.mark.long
@settings(max_examples=3)
@given(
    pair=pairs() | pairs(added=True),
    seed=st.integers(0, 2**32),
    pattern=st.tuples(PAUSES, PAUSES),
    load=PAUSES,
    after=st.integers(0, 3),
)
def test_accelerators(pair, seed, pattern, load, after):
    """Frames before a load are the first network's, those behind it the other's, wherever it is offered."""
    check_load(pair, seed, pattern, load, after)


@cases_in_the_long_run(4)
@given(
    pair=pairs(ultra=True),
    seed=st.integers(0, 2**32),
    pattern=st.tuples(PAUSES, PAUSES),
    load=PAUSES,
    after=st.integers(0, 3),
)
def test_weights_in_ultra_ram(pair, seed, pattern, load, after):
    """UltraRAM begins with zeros, so that no frame begins before the first load, whose weights then count."""
    assert "ultra" in [layer.compute.weight_memory for layer in pair.configs[0].layers]
    assert pair.configs[0].first_load is not None
    check_load(pair, seed, pattern, load, after)


def check_load(pair, seed, pattern, load, after):
    """Load the second network's weights after some of four frames, and compare all values.

    The first network's weights are loaded before if the hardware begins without weights.
    """
    (first, second), (config, other) = pair.networks, pair.configs
    assert config.loader is not None
    assert config.loader == other.loader
    frames = frames_for(first, 4, seed)
    beats = to_beats(config.input, frames)
    begin = after * config.input.beats
    own = words_of(config.first_load or b"")
    loads = [(0, own)] * bool(own) + [(begin, words_of(other.weight_packet))]
    sent = Sent(beats, 4 * config.output.beats, loads)
    seen = drive(Circuit(Accelerator(config)), sent, offer=pattern[0], accept=pattern[1], load=load, patience=PATIENCE)
    assert len(seen.words) == 4 * config.output.beats
    assert seen.good[-1]
    assert not any(seen.error)
    assert not own or seen.taken[0] > seen.loads[len(own) - 1]
    before = sum(cycle < seen.loads[len(own)] for cycle in seen.taken)
    assert before % config.input.beats == 0
    count = before // config.input.beats
    assert count >= after
    parts = ((first, frames[:count]), (second, frames[count:]))
    expected = np.concatenate([golden.run(network, part) for network, part in parts if len(part)])
    check_data(config, seen.words, expected)


@pytest.mark.long
@settings(max_examples=1)
@given(pair=pairs(), seed=st.integers(0, 2**32))
def test_cycles(pair, seed):
    """Frames take the cycles that the schedule says: behind a load those that they took before it."""
    frames = frames_for(pair.networks[0], 3, seed)
    config, beats = pair.configs[0], to_beats(pair.configs[0].input, frames)
    circuit = Circuit(Accelerator(config))
    outputs = len(frames) * config.output.beats
    plain = drive(circuit, Sent(beats, outputs))
    check_cycles(Schedule(config, len(frames)), plain)
    late = Pattern((False,) * 4 + (True,) * 100_000)  # so that the load goes first
    behind = drive(circuit, Sent(beats, outputs, [(0, words_of(pair.configs[1].weight_packet))]), late)
    assert behind.loads[-1] < behind.taken[0]
    check_cycles(Schedule(config, len(frames)), behind)


def small(channels: int, seed: int, outputs: int = 3) -> Network:
    """Two convolutions and a global average pool."""
    rng = np.random.default_rng(seed)
    before = FeatureMap(channels=channels, height=3, width=3, type=UINT8)
    layers: list[Op] = []
    for number, (count, kernel, zero) in enumerate(((outputs, 3, 2), (3, 1, 0))):
        after = replace(before, channels=count, zero_point=zero)
        conv = Conv(
            name=f"conv{number}",
            input=before,
            output=after,
            window=Window(kernel=(kernel, kernel), padding=(kernel // 2, kernel // 2, kernel // 2, kernel // 2)),
            weights=rng.integers(-127, 128, (count, before.channels, kernel, kernel)),
            bias=rng.integers(-1000, 1000, count),
            requantisation=None,
        )
        layers.append(replace(conv, requantisation=a_rule(rng, conv)))
        before = after
    layers.append(global_average_pool(rng, "pool", before))
    return loaded(Network(name="small", layers=tuple(layers)))


@cache
def smalls() -> tuple[tuple[Network, ...], tuple[AcceleratorConfig, ...], Circuit]:
    """Three networks of one shape, their accelerators, and the first of these ready to be run."""
    networks = tuple(small(2, seed) for seed in range(3))
    configs = tuple(compose(network, plans_of(network)) for network in networks)
    return networks, configs, Circuit(Accelerator(configs[0]))


def plans_of(network: Network) -> tuple[LayerPlan, ...]:
    """For one of `small`."""
    unrolls = (Unroll(2, 2, 3, 1), Unroll(3, 2, 1, 1), Unroll(2, 2, 1, 1))
    plans = [layer_plan(stage_of(layer), unroll, 1) for layer, unroll in zip(network.layers, unrolls, strict=True)]
    return with_buffers(plans, *size_buffers(compose(network, plans)))


@cases_in_the_long_run(3)
@given(seed=st.integers(0, 2**32), pattern=st.tuples(PAUSES, PAUSES), load=PAUSES, after=st.integers(0, 3))
def test_weights_in_block_ram(seed, pattern, load, after):
    """A word in block RAM is read in every cycle, so that its address is held where no step is taken."""
    networks = (small(2, 0), small(2, 1))
    plans = [
        replace(plan, weights_in="block") if isinstance(layer, Conv) else plan
        for layer, plan in zip(networks[0].layers, plans_of(networks[0]), strict=True)
    ]
    first, second = (compose(network, plans) for network in networks)
    assert first.layers[0].components["compute"].weight_memory == "block"
    check_load(Pair(networks, (first, second)), seed, pattern, load, after)


@dataclass(frozen=True)
class Load:
    """A load of one of the networks, and what is wrong with it: a ``bit`` is flipped, it ends before word ``end``, or
    it has ``more`` words."""

    network: int
    bit: int | None = None
    end: int | None = None
    more: int = 0

    @property
    def words(self) -> list[int]:
        words = words_of(smalls()[1][self.network].load)
        if self.bit is not None:
            place, bit = divmod(self.bit % (32 * len(words)), 32)
            words[place] ^= 1 << bit
        return words[: None if self.end is None else 1 + self.end % (len(words) - 1)] + [7] * self.more

    @property
    def is_right(self) -> bool:
        return self.words == words_of(smalls()[1][self.network].load)

    @property
    def begins(self) -> bool:
        """Whether memories are written."""
        return self.words[:2] == words_of(smalls()[1][self.network].load)[:2]


LOADS = st.builds(Load, st.integers(0, 2)) | st.one_of(
    st.builds(Load, st.integers(0, 2), bit=st.integers(0, 1 << 16) | st.integers(0, 63)),
    st.builds(Load, st.integers(0, 2), end=st.integers(0, 1 << 10) | st.integers(0, 3)),
    st.builds(Load, st.integers(0, 2), more=st.integers(1, 3)),
)


@pytest.mark.long
@settings(max_examples=2)
@given(
    loads=st.lists(st.tuples(LOADS, st.integers(0, 2)), min_size=1, max_size=4),
    seed=st.integers(0, 2**32),
    pattern=st.tuples(PAUSES, PAUSES),
    gives=PAUSES,
)
@example([(Load(1, bit=100), 1), (Load(1), 0)], 0, (ALWAYS, ALWAYS), ALWAYS)
@example([(Load(1, bit=0), 1), (Load(2, end=1), 1)], 0, (ALWAYS, ALWAYS), ALWAYS)
def test_wrong_loads(loads, seed, pattern, gives):
    """A load of another design changes nothing but the flag; behind one that is damaged frames wait for a right one."""
    networks, configs, circuit = smalls()
    config, frames = configs[0], frames_for(networks[0], 5, seed)
    offered, place, held = [], 0, False
    for load, gap in loads:
        place += 0 if held else gap  # frames that wait would let the next load wait for ever
        offered.append((min(place, 5) * config.input.beats, load.words))
        held = not load.is_right if load.begins else held
    seen = drive(
        circuit,
        Sent(to_beats(config.input, frames), 5 * config.output.beats, offered),
        offer=pattern[0],
        accept=pattern[1],
        load=gives,
    )
    # Which network each frame met: that of the last right load before its first beat.
    firsts = [cycle for number, cycle in enumerate(seen.taken) if number % config.input.beats == 0]
    starts = np.cumsum([0, *(len(words) for _, words in offered)])
    ends = [seen.loads[last - 1] for last in starts[1:]]
    met: list[int] = []
    state: int | None = 0
    begun = 0
    for end, (load, _) in zip([*ends, max(firsts, default=0) + 1], [*loads, (None, 0)], strict=True):
        frames_before = sum(first < end for first in firsts) - begun
        begun += frames_before
        if frames_before:
            assert state is not None, "a frame began while weights were not good"
            met += [state] * frames_before
        if load is not None and load.begins:
            state = load.network if load.is_right else None
    expected = [golden.run(networks[number], frames[n : n + 1]) for n, number in enumerate(met)]
    if state is not None:
        assert len(met) == 5
    check_data(config, seen.words, np.concatenate(expected) if expected else np.zeros((0, 3, 1, 1)))
    assert seen.good[-1] == (state is not None)
    assert seen.error[-1] == (not all(load.is_right for load, _ in loads))


def test_loads_of_another_length():
    """They are wrong whatever their CRC says, which is right here; no more words go to the memories than they have."""
    loader: Any = Loader(LoaderConfig(digest=5, words=3))
    circuit = Circuit(loader)
    for count in (0, 1, 2, 3, 4, 5, 8):
        words = [*range(10, 10 + count)]
        chain, ended = _loaded(circuit, words_of(packet(5, words)))
        assert ended == ((1, 0) if count == 3 else (0, 1))
        assert chain[:count] == words[:3]
        assert len(chain) <= 3


@pytest.mark.parametrize("bit", [0, 31, 32, 63])
def test_loads_of_another_digest(bit):
    """A digest that is wrong in one bit, in the first or the second word, writes no memory: the weights stay good."""
    digest = 0x0123_4567_89AB_CDEF
    circuit = _loader(digest)
    chain, ended = _loaded(circuit, words_of(packet(digest ^ 1 << bit, [10, 11, 12])))
    assert (chain, ended) == ([], (1, 1))
    chain, ended = _loaded(circuit, words_of(packet(digest, [10, 11, 12])))
    assert (chain, ended) == ([10, 11, 12], (1, 0))


def test_weights_are_good_when_all_have_come():
    """Not before a load has gone through all memories, however long that takes; errors stay until they are cleared."""
    loader: Any = Loader(LoaderConfig(digest=5, words=3))
    right, wrong = (words_of(packet(digest, [1, 2, 3])) for digest in (5, 6))

    async def bench(ctx):
        async def load(words: list[int]) -> None:
            for number, word in enumerate(words):
                ctx.set(loader.i.valid, 1)
                ctx.set(loader.i.payload.data, word)
                ctx.set(loader.i.payload.last, number == len(words) - 1)
                await ctx.tick().until(loader.i.ready)
            ctx.set(loader.i.valid, 0)
            for _ in range(9):
                await ctx.tick()

        await load(wrong)
        assert (ctx.get(loader.state.good), ctx.get(loader.state.error)) == (1, 1)
        ctx.set(loader.state.clear, 1)
        await ctx.tick()
        assert not ctx.get(loader.state.error)
        await load(right)
        assert not ctx.get(loader.state.good)
        ctx.set(loader.back.valid, 1)
        await ctx.tick()
        assert not ctx.get(loader.state.good)
        ctx.set(loader.back.payload.end, 1)
        await ctx.tick()
        assert ctx.get(loader.state.good)

    Circuit(loader).simulate(bench)


@cache
def _loader(digest: int) -> Circuit:
    """Loader of three words, by itself."""
    return Circuit(Loader(LoaderConfig(digest=digest, words=3)))


def _loaded(circuit: Circuit, words: list[int]) -> tuple[list[int], tuple[int, int]]:
    """What a loader by itself hands on, and its state behind a load."""
    loader, chain, ended = circuit.component, [], []

    async def bench(ctx):
        waiting = [*words]
        for _ in range(len(words) + 20):
            ctx.set(loader.i.valid, bool(waiting))
            ctx.set(loader.i.payload.data, waiting[0] if waiting else 0)
            ctx.set(loader.i.payload.last, len(waiting) == 1)
            # The chain's other end is its beginning.
            ctx.set(loader.back.valid, ctx.get(loader.o.valid))
            ctx.set(loader.back.payload.as_value(), ctx.get(loader.o.payload.as_value()))
            _, _, ready, valid, word = await ctx.tick().sample(loader.i.ready, loader.o.valid, loader.o.payload)
            if valid and not word.begin | word.end:
                chain.append(int(word.data))
            if ready and waiting:
                waiting.pop(0)
        ended.append((ctx.get(loader.state.good), ctx.get(loader.state.error)))

    circuit.simulate(bench)
    return chain, ended[0]


@cases_in_the_long_run(5)
@given(seed=st.integers(0, 2**32), reset_at=st.integers(0, 250), pattern=st.tuples(PAUSES, PAUSES), gives=PAUSES)
def test_reset(seed, reset_at, pattern, gives):
    """Whenever it comes: frames behind it are those of a network that is loaded whole, and none begins otherwise."""
    networks, configs, circuit = smalls()
    config, frames = configs[0], frames_for(networks[0], 4, seed)
    beats, size = to_beats(config.input, frames), config.input.beats
    before = Sent(beats, 4 * config.output.beats, [(size, words_of(configs[1].weight_packet))])
    only = Sent(beats[: 2 * size], 2 * config.output.beats)
    how: Any = {"offer": pattern[0], "accept": pattern[1], "load": gives, "reset_at": reset_at}
    seen = drive(circuit, before, **how, after=only)
    if seen.good[0]:
        outputs = from_beats(config.output, seen.words)
        assert any(np.array_equal(outputs, golden.run(networks[number], frames[:2])) for number in (0, 1))
    else:
        assert not seen.taken
        assert not any(seen.good)
    again = replace(only, loads=[(0, words_of(configs[2].weight_packet))])
    seen = drive(circuit, before, **how, after=again)
    count = sum(cycle < seen.loads[0] for cycle in seen.taken) // size
    assert len(seen.words) == 2 * config.output.beats
    assert seen.good[-1]
    wanted = golden.run(networks[2], frames[:2])[count:]
    np.testing.assert_array_equal(from_beats(config.output, seen.words)[count:], wanted)


def test_two_designs_have_two_digests():
    """Another unrolling, another constant of the hardware: another digest; other weights: the same."""
    networks, (config, other, _), _ = smalls()
    assert config.loader == other.loader
    assert config.weight_packet != other.weight_packet
    first = networks[0].layers[0]
    moved = replace(first, input=replace(first.input, zero_point=3))
    changed = replace(networks[0], layers=(moved, *networks[0].layers[1:]))
    padded = compose(changed, plans_of(changed))
    assert padded.loader is not None
    assert config.loader is not None
    assert padded.loader.words == config.loader.words
    assert padded.loader.digest != config.loader.digest


@pytest.mark.long
@settings(max_examples=4)
@given(
    streams=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    beats=st.lists(st.integers(1, 4), min_size=3, max_size=3),
    ahead=st.integers(1, 3),
    likely=st.sampled_from([0.2, 0.6, 1.0]),
    seed=st.integers(0, 2**32),
)
@example((2, 2), [1, 1, 1], 3, 1.0, 0)
@example((3, 1), [1, 4, 2], 1, 0.6, 1)
@example((2, 1), [2, 1, 1], 2, 0.6, 2)
def test_several_streams(streams, beats, ahead, likely, seed):
    """A load is taken when all inputs have begun as many frames and all of these have left on all outputs; until then
    inputs that are behind go on. Sources pause at random, inputs run up to some frames apart, outputs lag at random."""
    inputs, outputs = streams
    loader: Any = Loader(LoaderConfig(digest=0, words=3, inputs=inputs, outputs=outputs))
    circuit = Circuit(loader)
    rng = random.Random(seed)
    frames, loads = 12, (1, 3, 4, 6, 8, 9, 11)  # loads are offered when an input has begun so many frames
    begun, at, left, offered = [0] * inputs, [0] * inputs, [0] * outputs, [False] * inputs
    words: list[int] = []
    taken: list[int] = []

    async def bench(ctx):
        waiting, idle = list(loads), 0
        while (min(left) < frames or waiting or words) and idle < 500:
            whole = min(count - (place > 0) for count, place in zip(begun, at, strict=True))
            if not words and waiting and max(begun) >= waiting[0]:
                waiting.pop(0)
                words.extend(words_of(packet(0, [1, 2, 3])))
            ctx.set(loader.i.valid, bool(words))
            ctx.set(loader.i.payload.data, words[0] if words else 0)
            ctx.set(loader.i.payload.last, len(words) == 1)
            # The chain's other end is its beginning.
            ctx.set(loader.back.valid, ctx.get(loader.o.valid))
            ctx.set(loader.back.payload.as_value(), ctx.get(loader.o.payload.as_value()))
            ready = []
            for number in range(inputs):
                more = at[number] > 0 or begun[number] < min(frames, whole + ahead)
                wants = offered[number] or (more and rng.random() < likely)
                passes = wants and bool(ctx.get(getattr(loader, f"open_{number}")))
                assert passes or not offered[number], "what was offered was taken back"
                offered[number] = passes
                ready.append(passes and rng.random() < likely)
                ctx.set(getattr(loader, f"offered_{number}"), passes)
                ctx.set(getattr(loader, f"last_{number}"), at[number] == beats[number] - 1)
                ctx.set(getattr(loader, f"taken_{number}"), ready[number])
            leaves = [count < whole and rng.random() < likely for count in left]
            for number, each in enumerate(leaves):
                ctx.set(getattr(loader, f"left_{number}"), each)
            _, _, takes, good = await ctx.tick().sample(loader.i.ready, loader.state.good)
            idle += 1
            if takes and words:
                assert len({*begun, *left}) == 1, "frames were on their way"
                assert not any(at)
                assert not any(ready)
                if len(words) == 6:
                    taken.append(begun[0])
                words.pop(0)
                idle = 0
            for number in range(inputs):
                if ready[number]:
                    assert good or at[number], "a frame began while weights were written"
                    begun[number] += at[number] == 0
                    at[number] = (at[number] + 1) % beats[number]
                    offered[number], idle = False, 0
            for number, each in enumerate(leaves):
                left[number] += each
                idle = 0 if each else idle

    circuit.simulate(bench)
    assert left == [frames] * outputs, "it stands still"
    assert len(taken) == len(loads)
    assert all(count >= least for count, least in zip(taken, loads, strict=True))


def test_inputs_that_are_ahead_wait():
    """Once a load is offered, only the input that is behind begins frames, as many as the other one has begun."""
    loader: Any = Loader(LoaderConfig(digest=0, words=3, inputs=2))

    async def bench(ctx):
        async def frame(number: int) -> None:
            """Of one beat."""
            signals = [getattr(loader, f"{name}_{number}") for name in ("offered", "last", "taken")]
            assert ctx.get(getattr(loader, f"open_{number}"))
            for value in (1, 0):
                for signal in signals:
                    ctx.set(signal, value)
                await ctx.tick()
            await ctx.tick()

        for number in (0, 0, 0, 1):
            await frame(number)
        ctx.set(loader.i.valid, 1)
        for _ in range(3):
            await ctx.tick()
        for _ in range(2):
            assert [ctx.get(loader.open_0), ctx.get(loader.open_1)] == [0, 1]
            await frame(1)
        assert [ctx.get(loader.open_0), ctx.get(loader.open_1), ctx.get(loader.i.ready)] == [0, 0, 0]
        ctx.set(loader.left_0, 1)
        for _ in range(3):
            await ctx.tick()
        ctx.set(loader.left_0, 0)
        await ctx.tick()
        assert ctx.get(loader.i.ready)

    Circuit(loader).simulate(bench)


def distributes(*sizes: tuple[int, int]) -> DistributeConfig:
    return DistributeConfig(
        stores=tuple(
            LoadedMemory(name=f"s{number}", width=width, depth=depth) for number, (width, depth) in enumerate(sizes)
        )
    )


def requantiser(
    lanes: int, beats: int, bits: int, *, odd: bool = False, tables_in: str | None = None, **more: Any
) -> LoadedRequantiseConfig:
    """With any constants; ``odd``: the last beat lacks a channel."""
    channels = lanes * beats - odd
    rng = np.random.default_rng(channels)
    least = -128 if more.get("signed") else 0
    return LoadedRequantiseConfig(
        lanes=lanes,
        accumulator_bits=bits,
        beats=tuple(tuple(range(first, min(first + lanes, channels))) for first in range(0, channels, lanes)),
        bias=tuple(rng.integers(-(1 << 31), 1 << 31, channels).tolist()),
        significand=tuple(rng.integers(1 << 23, 1 << 24, channels).tolist()),
        shift=tuple(rng.integers(20, 60, channels).tolist()),
        tables_in=tables_in,
        **{"zero_point": least + 3, "low": least, "high": least + 100, "bits": 8, "signed": False, **more},
    )


def sums(lanes: int, pixels: int, bits: int, *, signed: bool = False) -> LoadedTableSumConfig:
    """Of maps of so many bits, with any tables."""
    beat = BeatFormat(channels=2 * lanes, height=4, width=4, lanes=lanes, bits=bits, signed=signed, pixels=pixels)
    rng = np.random.default_rng(lanes)
    return LoadedTableSumConfig(
        window=JoinConfig(inputs=(beat, beat)),
        tables=tuple(tuple(rng.integers(-1 << 31, 1 << 31, 1 << bits).tolist()) for _ in range(2)),
        rounding=tuple(rng.integers(0, 1 << 24, 256).tolist()),
        zero_point=3,
        low=0,
        high=(1 << bits - signed) - 1,
        bits=bits,
        signed=signed,
    )


PARTS = [
    LoaderConfig(digest=0xFEDC_BA98_7654_3210, words=5000),
    distributes(*[(64, 96)] * 12, (32, 8), (32, 8), (24, 1)),
    requantiser(2, 8, 22, odd=True),
    LoaderConfig(digest=0x55AA_55AA_1234_5678, words=300_000),
    LoaderConfig(digest=0x0123_4567_89AB_CDEF, words=5000, inputs=2, outputs=3),
    sums(1, 1, 8),
    sums(2, 2, 8, signed=True),
    sums(1, 1, 4),
    distributes((128, 300)),
    distributes((1000, 128), (32, 32), (32, 32), (24, 1)),
    requantiser(1, 1, 20),
    requantiser(4, 16, 24, signed=True),
    requantiser(2, 100, 24),
    requantiser(3, 5, 18, pixels=2),
]


@pytest.mark.long
def test_resources():
    """Against Yosys: flip-flops to a few, LUTs within a tenth, slices and block RAM exactly."""
    for part, measured in zip(PARTS, synthesis.measure(PARTS), strict=True):
        used = part.resources
        assert (used.dsp, used.bram36) == (measured.dsp, measured.bram36)
        assert abs(used.lut - measured.lut) <= max(12, 0.1 * measured.lut), part
        assert abs(used.ff / measured.ff - 1) <= 0.02, part


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bits": 9}, "bits must be from 1 to 8 where constants are loaded, not 9"),
        ({"fraction": 12}, "accumulator_bits and fraction must be at most 32 together where constants are loaded, "
         "not 22 and 12"),
        ({"bias": (1 << 31, *[0] * 15)}, "bias must be from -2147483648 to 2147483647 where constants are loaded, not "
         "2147483648"),
        ({"shift": (0,)}, "shift must have one entry for each of 16 channels, not 1"),
        ({"significand": (1,) * 16}, "significand must be from 8388608 to 16777215 where constants are loaded, not 1"),
        ({"low": -1}, "low must be between 0 and 255, not -1"),
    ],
)  # fmt: skip
def test_refused_constants(change, message):
    with pytest.raises(ConfigError) as caught:
        replace(requantiser(2, 8, 22), **change)
    assert str(caught.value) == message


def test_refusals():
    for make, message in (
        (lambda: LoadedMemory(name="s", width=0, depth=1), "width must be a positive integer, not 0"),
        (lambda: DistributeConfig(stores=()), "stores must be one or more, with names of their own, not []"),
        (lambda: replace(sums(1, 1, 8), rounding=(0,)), "rounding must have 256 entries from 0 to 16777216, not (0,)"),
        (
            lambda: replace(sums(1, 1, 4), tables=((0,), (0,))),
            "tables must have an entry for each value of their input, [16, 16], not [1, 1]",
        ),
        (
            lambda: replace(sums(1, 1, 4), tables=((1 << 35,) * 16,) * 2),
            f"tables must have shares of 36 bits where they are loaded, not {1 << 35}",
        ),
        (lambda: LoaderConfig(digest=0, words=0), "words must be a positive integer, not 0"),
        (lambda: LoaderConfig(digest=1 << 64, words=1), f"digest must fit 64 bits, not be {1 << 64}"),
    ):
        with pytest.raises(ConfigError) as caught:
            make()
        assert str(caught.value) == message


@pytest.mark.parametrize("signed", [False, True])
def test_table_sum(signed):
    """As the tables say, also where a fraction is just the least with which a sum is rounded up; between bounds."""
    rng, quarter = np.random.default_rng(3), 1 << FRACTION - 2
    config = replace(
        sums(2, 2, 8, signed=signed),
        tables=tuple(tuple((rng.integers(-90, 90, 256) * quarter).tolist()) for _ in range(2)),
        rounding=tuple((rng.integers(0, 5, 256) * quarter).tolist()),
        zero_point=30,
        low=5,
        high=60,
    )
    first, count = -128 if signed else 0, 50
    operands = rng.integers(first, first + 256, (count, 2, 4))
    part: Any = config.component()
    trace = run(part, [pack(values.reshape(-1).tolist(), 8) for values in operands], count)
    assert trace.times == [cycle + config.latency for cycle in trace.taken]
    for word, values in zip(trace.words, operands, strict=True):
        totals = [config.tables[0][a - first] + config.tables[1][b - first] for a, b in values.T.tolist()]
        wholes = [
            (total >> FRACTION) + (total % (1 << FRACTION) >= config.rounding[(total >> FRACTION) % 256])
            for total in totals
        ]
        assert unpack(word, 8, signed, 4) == [min(max(whole + 30, 5), 60) for whole in wholes]


@pytest.mark.long
@settings(max_examples=5)
@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(2, 24), st.integers(1, 2)),
    odd=st.booleans(),
    signed=st.booleans(),
    tables_in=st.sampled_from([None, "block"]),
    gaps=patterns(),
    seed=st.integers(0, 2**32),
)
def test_requantiser(sizes, odd, signed, tables_in, gaps, seed):
    """Any constants, also those that are loaded in place of others: as it is defined, after its latency."""
    lanes, beats, bits, pixels = sizes
    assume(not (odd and lanes == 1))
    config = requantiser(lanes, beats, bits, odd=odd, tables_in=tables_in, signed=signed, pixels=pixels)
    rng = np.random.default_rng(seed)
    half = 1 << (bits - 1)
    shown = rng.integers(-half, half, (3 * beats, lanes, pixels))
    trace = run(
        LoadedRequantise(config),
        [pack(values.reshape(-1).tolist(), bits) for values in shown],
        3 * beats,
        offer=gaps,
    )
    assert trace.times == [cycle + config.latency for cycle in trace.taken]
    for number, (word, values) in enumerate(zip(trace.words, shown, strict=True)):
        channels = config.beats[number % beats]
        expected = [
            config.compute(channels[lane], int(values[lane, pixel])) if lane < len(channels) else 0
            for lane in range(lanes)
            for pixel in range(pixels)
        ]
        assert unpack(word, 8, signed, lanes * pixels) == expected
