"""The FIFO, the format of a beat, and memories by shape: every beat once, and RAMs as Yosys maps them."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from accelerators import integers
from amaranth import Module, Signal
from amaranth.hdl import Fragment
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from counted import cases_in_the_long_run
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lint import cells, luts
from testbench import Pattern, channel_lanes, pack, patterns, run, stalls

from hwgen.devices.xilinx7 import MEMORIES
from hwgen.errors import ConfigError
from hwgen.gateware.fifo import Fifo, FifoConfig
from hwgen.gateware.pieces import piece_depth
from hwgen.gateware.stream import BeatFormat, join

LUT_DEPTH = MEMORIES.lut_depth


class Credited(wiring.Component):
    """A FIFO whose input is taken while there are credits, as a layer's output folds are."""

    def __init__(self, config: FifoConfig):
        self.config, self.fifo = config, Fifo(config)
        shape = self.fifo.i.payload.shape()
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(self.fifo.o.signature)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = fifo = self.fifo
        connect(m, fifo=fifo.o, outside=flipped(self.o))
        credits = Signal(range(self.config.depth + 1), init=self.config.depth)
        m.d.comb += [
            self.i.ready.eq(credits != 0),
            fifo.i.valid.eq(self.i.valid & self.i.ready),
            fifo.i.payload.eq(self.i.payload),
        ]
        m.d.sync += credits.eq(credits + (self.o.valid & self.o.ready) - fifo.i.valid)
        return m


@st.composite
def fifos(draw) -> FifoConfig:
    depth = draw(st.integers(1, 9) | st.integers(LUT_DEPTH + 1, LUT_DEPTH + 9))
    return FifoConfig(
        lanes=draw(st.integers(1, 3)),
        bits=draw(st.integers(1, 9)),
        signed=draw(st.booleans()),
        beats=draw(st.integers(1, 9)),
        depth=depth,
        memory_in=draw(st.sampled_from([None, "lut", "block"] if depth > 1 else [None, "lut"])),
    )


def beats_for(config: FifoConfig, frames: int, seed: int) -> list[int]:
    values = integers(np.random.default_rng(seed), 0, (1 << config.bits) - 1, (frames * config.beats, config.lanes))
    return [pack(lanes, config.bits) for lanes in values.tolist()]


def with_last(config: FifoConfig, beats: list[int]) -> list[int]:
    return [beat | ((number + 1) % config.beats == 0) << config.width for number, beat in enumerate(beats)]


def first_high(values: list[int], cycle: int) -> int:
    return next(c for c in range(cycle, len(values)) if values[c])


@cases_in_the_long_run(30)
@given(config=fifos(), seed=st.integers(0, 2**32), pattern=stalls())
def test_order_and_cycles(config, seed, pattern):
    check_order_and_cycles(config, beats_for(config, 6, seed), *pattern)


@pytest.mark.long
@cases_in_the_long_run(10)
@given(
    depth=st.integers(LUT_DEPTH - 1, LUT_DEPTH + 9),
    seed=st.integers(0, 2**32),
    offer=patterns(),
    accept=patterns(),
)
@example(65, 0, Pattern((True, False)), Pattern((False,) * 40 + (True,) * 200))
@example(66, 0, Pattern((True, True, False)), Pattern((False,) * 80 + (True,) * 200))
def test_order_and_cycles_where_it_is_deep(depth, seed, offer, accept):
    """The same with beats enough to run full and empty again, around the depth at which there are two memories."""
    config = FifoConfig(lanes=1, bits=8, signed=False, beats=50, depth=depth)
    assert config.memory == ("block" if depth > LUT_DEPTH else "lut")
    check_order_and_cycles(config, beats_for(config, 12, seed), offer, accept)


@cases_in_the_long_run(10)
@given(
    depth=st.integers(2, 140),
    where=st.sampled_from(["lut", "block", "ultra"]),
    seed=st.integers(0, 2**32),
    accept=patterns(),
)
@example(129, "lut", 0, Pattern((False,) * 200 + (True,) * 400))
@example(2, "block", 0, Pattern((False,) * 40 + (True,) * 200))
@example(70, "ultra", 0, Pattern((False,) * 90 + (True,) * 200))
def test_order_and_cycles_wherever_it_lies(depth, where, seed, accept):
    """LUT RAM beyond the depth at which beats would lie in block RAM, and block RAM below it: beats move alike."""
    config = FifoConfig(lanes=1, bits=8, signed=False, beats=50, depth=depth, memory_in=where)
    assert config.memory == where
    check_order_and_cycles(config, beats_for(config, 10, seed), Pattern(), accept)


@pytest.mark.parametrize(
    ("depth", "where", "message"),
    [
        (513, "lut", "memory_in must be 'block' for 513 words, not 'lut': LUT RAM has 512 at most"),
        (1, "ultra", "memory_in must be 'lut' for one word, not 'ultra'"),
        (1, "block", "memory_in must be 'lut' for one word, not 'block'"),
        (9, "bram", "memory_in must be 'lut', 'block', 'ultra' or None, not 'bram'"),
    ],
)
def test_memories_that_cannot_be(depth, where, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        FifoConfig(lanes=1, bits=8, signed=False, beats=50, depth=depth, memory_in=where)


def test_order_and_cycles_where_it_is_in_pieces():
    """So deep that one LUT doesn't choose among its block RAMs: filled beyond the first piece, twice around."""
    config = FifoConfig(lanes=4, bits=9, signed=False, beats=50, depth=2100)
    assert config.depth > piece_depth(config.device, config.width, config.depth) > config.depth // 2
    sink = Pattern((False,) * 2200 + (True,) * 1500)
    check_order_and_cycles(config, beats_for(config, 90, 1), Pattern(), sink)


def check_order_and_cycles(config: FifoConfig, beats: list[int], offer: Pattern, accept: Pattern) -> None:
    component = Credited(config)
    watch = {"offered": component.i.valid, "accepted": component.o.ready}
    trace = run(component, beats, len(beats), offer=offer, accept=accept, watch=watch)
    assert trace.words == with_last(config, beats)
    for number, cycle in enumerate(trace.times):
        earliest = trace.taken[number] + config.latency
        if number:
            earliest = max(earliest, trace.times[number - 1] + 1)
        assert cycle == first_high(trace.watched["accepted"], earliest)
    for number, cycle in enumerate(trace.taken):
        earliest = trace.taken[number - 1] + 1 if number else 0
        if number >= config.depth:
            earliest = max(earliest, trace.times[number - config.depth] + 1)  # the credit is back
        assert cycle == first_high(trace.watched["offered"], earliest)


@cases_in_the_long_run(30)
@given(config=fifos(), seed=st.integers(0, 2**32), pattern=stalls(), reset_at=st.integers(0, 60))
def test_reset(config, seed, pattern, reset_at):
    before, after = beats_for(config, 4, seed), beats_for(config, 4, seed + 1)
    trace = run(
        Credited(config),
        before,
        len(before),
        offer=pattern[0],
        accept=pattern[1],
        reset_at=reset_at,
        after=(after, len(after)),
    )
    assert trace.reset is not None
    sent = trace.reset[2]
    assert trace.words[:sent] == with_last(config, before)[:sent]
    assert trace.words[sent:] == with_last(config, after)


@pytest.mark.parametrize("depth", [1, 2, 3, 5, 8, 65, 70])
def test_full(depth):
    """A sink that sleeps: exactly ``depth`` beats go in, none is lost, and a beat is offered unasked."""
    config = FifoConfig(lanes=3, bits=7, signed=True, beats=5, depth=depth)
    beats = beats_for(config, depth // config.beats + 6, 1)
    component = Credited(config)
    sink = Pattern((False,) * 80 + (True,) * 400)
    trace = run(component, beats, len(beats), accept=sink, watch={"valid": component.o.valid})
    assert trace.words == with_last(config, beats)
    assert sum(cycle < 80 for cycle in trace.taken) == depth
    assert trace.watched["valid"][config.latency : 80] == [1] * (80 - config.latency)


@settings(max_examples=20)
@given(config=fifos(), seed=st.integers(0, 2**32), offer=patterns())
def test_rate(config, seed, offer):
    """A depth of ``latency + 1`` keeps up with a beat a cycle."""
    config = FifoConfig(lanes=1, bits=4, signed=False, beats=config.beats, depth=config.latency + 1)
    beats = beats_for(config, 8, seed)
    trace = run(Credited(config), beats, len(beats), offer=offer)
    assert trace.times == [cycle + config.latency for cycle in trace.taken]


@pytest.mark.parametrize("name", ["lanes", "bits", "beats", "depth"])
@pytest.mark.parametrize("value", [0, -3])
def test_errors(name, value):
    fields = {"lanes": 2, "bits": 8, "signed": True, "beats": 4, "depth": 3}
    with pytest.raises(ConfigError, match=f"^{re.escape(f'{name} must be a positive integer, not {value}')}$"):
        FifoConfig(**fields | {name: value})


def test_cost():
    config = FifoConfig(lanes=3, bits=7, signed=True, beats=5, depth=6)
    assert config.width == 21


GOOD = {"channels": 6, "height": 2, "width": 5, "lanes": 2, "bits": 8, "signed": True}


def test_figures():
    """By hand: 2 groups of 3 channels are 4 beats, 5 columns by 2 are 3 steps."""
    beat = BeatFormat(**GOOD, pixels=2, groups=2)
    assert (beat.group_folds, beat.folds, beat.row_steps) == (2, 4, 3)
    assert (beat.beats, beat.frame_pixels, beat.data_bits) == (2 * 3 * 4, 10, 2 * 2 * 8)
    assert [list(channels) for channels in beat.fold_channels] == [[0, 1], [2], [3, 4], [5]]


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 8))
def test_every_channel_once(groups, size, lanes):
    beat = BeatFormat(**GOOD | {"channels": groups * size, "lanes": lanes}, groups=groups)
    assert len(beat.fold_channels) == beat.folds
    places = [
        (channel, fold * lanes + lane)
        for fold, channels in enumerate(beat.fold_channels)
        for lane, channel in enumerate(channels)
    ]
    assert places == list(enumerate(channel_lanes(beat)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(
            ({name: 0}, f"{name} must be a positive integer, not 0")
            for name in ("channels", "height", "width", "lanes", "bits", "pixels", "groups")
        ),
        ({"groups": 4}, "channels must be a multiple of the 4 groups, not 6"),
    ],
)
def test_errors_of_streams(changes, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        BeatFormat(**GOOD | changes)


def test_join_checks_the_payloads():
    """Of other sign, or more and narrower values: as wide, but not the same."""
    m, one = Module(), BeatFormat(**GOOD)
    for changes in ({"signed": False}, {"lanes": 4, "bits": 4}, {"lanes": 1, "bits": 16}):
        other = BeatFormat(**GOOD | changes)
        assert other.data_bits == one.data_bits
        with pytest.raises(ConfigError, match=r"^payload shapes must be equal, not "):
            join(m, source=one.signature.create(), sink=other.signature.flip().create())
    join(m, source=one.signature.create(), sink=one.signature.flip().create())
    Fragment.get(m, None)  # or Amaranth warns that it is never used


# Width, depth, RAMB36: by hand.
SHAPES = [
    (1, 32768, 1.0),
    (1, 65536, 2.0),
    (8, 65, 0.5),
    (73, 512, 1.5),
    (144, 512, 2.0),
    (0, 1000, 0.0),
    (500, 64, 0.0),
    # Yosys 0.66 maps these as said, too (tried once: it takes a minute).
    (9, 4096, 1.0),
    (8, 4096, 1.0),
    (36, 1024, 1.0),
    (16, 5000, 2.5),
    (64, 576, 2.0),
    (4, 4096, 0.5),
    (1, 16384, 0.5),
]
# Those that `test_yosys` tries every time.
YOSYS_SHAPES = [(8, 1024, 0.5), (72, 512, 1.0), (100, 300, 1.5), (36, 513, 1.0), (24, 672, 1.0)]
YOSYS_ROMS = [(72, 72, 1.0), (144, 144, 2.0), (9, 1152, 0.5)]


class Store(wiring.Component):
    """A RAM with a read and a write port, or a ROM of random bits."""

    def __init__(self, width: int, depth: int, *, rom: bool, attrs: dict[str, str]):
        self._rom, self._attrs = rom, attrs
        ports = {"address": In(range(depth)), "data": Out(width)}
        writing = {"to": In(range(depth)), "word": In(width), "write": In(1)}
        super().__init__(ports if rom else ports | writing)

    def elaborate(self, platform):
        m = Module()
        rng = random.Random(len(self.data))
        depth = self.signature.members["address"].shape.stop
        init = [rng.getrandbits(len(self.data)) for _ in range(depth)] if self._rom else []
        store = memory.Memory(shape=len(self.data), depth=depth, init=init, attrs=self._attrs)
        m.submodules.store = store
        read = store.read_port()
        m.d.comb += [read.addr.eq(self.address), self.data.eq(read.data)]
        if not self._rom:
            write = store.write_port()
            m.d.comb += [write.addr.eq(self.to), write.data.eq(self.word), write.en.eq(self.write)]
        return m


class Stores(wiring.Component):
    """Several of them side by side, so that Yosys starts only once."""

    def __init__(self, stores: list[Store]):
        self._stores = stores
        ports = {}
        for number, store in enumerate(stores):
            ports |= {f"{name}_{number}": member for name, member in store.signature.members.items()}
        super().__init__(ports)

    def elaborate(self, platform):
        m = Module()
        for number, store in enumerate(self._stores):
            m.submodules[f"store_{number}"] = store
            for name, member in store.signature.members.items():
                outer, inner = getattr(self, f"{name}_{number}"), getattr(store, name)
                m.d.comb += outer.eq(inner) if member.flow is Out else inner.eq(outer)
        return m


@pytest.mark.parametrize(("width", "depth", "blocks"), SHAPES + YOSYS_SHAPES + YOSYS_ROMS)
def test_block_rams(width, depth, blocks):
    assert MEMORIES.block_rams(width, depth) == blocks


@pytest.mark.long
@pytest.mark.parametrize("first", [0, 1])
def test_yosys(first, tmp_path):
    """Check every second memory: all block RAMs together take as many as their sum."""
    block, distributed = {"ram_style": "block"}, {"ram_style": "distributed"}
    #: Arguments of a `Store`, its block RAMs, and its LUTs.
    stores = [((*shape, False, block), share, 0) for *shape, share in YOSYS_SHAPES]
    stores += [((*shape, True, MEMORIES.rom_style(shape[1])), share, 0) for *shape, share in YOSYS_ROMS]
    for shape in ((7, 32), (64, 20), (8, 33), (64, 64)):
        stores.append(((*shape, False, distributed), 0, MEMORIES.memory_luts(*shape)))
    stores.append(((40, 64, True, MEMORIES.rom_style(64)), 0, MEMORIES.memory_luts(40, 64, rom=True)))
    sizes, block_rams, memory_luts = zip(*stores[first::2], strict=True)
    memories = [Store(width, depth, rom=rom, attrs=attrs) for width, depth, rom, attrs in sizes]
    counted = cells(Stores(memories), tmp_path)
    assert counted["RAMB36E1"] + counted["RAMB18E1"] / 2 == sum(block_rams)
    assert luts(counted) == sum(memory_luts)


@pytest.mark.parametrize(
    ("width", "depth", "rom", "expected"),
    [
        (7, 32, False, 8),
        (64, 20, False, 44),
        (8, 33, False, 12),
        (64, 64, False, 88),
        (8, 65, False, 0),
        (0, 8, False, 0),
        (40, 64, True, 40),
        (40, 1, True, 0),
        (40, 65, True, 0),
        # RAM32M: 6 bits of 32 words in four LUTs; a word more, and it is RAM64M, 3 bits of 64 words in as many.
        (6, 32, False, 4),
        (6, 33, False, 8),
    ],
)
def test_memory_luts(width, depth, rom, expected):
    assert MEMORIES.memory_luts(width, depth, rom=rom) == expected


def test_vivado_knows_the_attributes():
    """Values of UG901 (2023.1), "RAM_STYLE" and "ROM_STYLE"."""
    known = {
        "ram_style": {"block", "distributed", "registers", "ultra", "mixed", "auto"},
        "rom_style": {"block", "distributed"},
    }
    for attributes in (MEMORIES.rom_style, MEMORIES.ram_style):
        for where in ("lut", "block"):
            for name, value in attributes(8, where).items():
                assert value in known[name]


@pytest.mark.parametrize("function", [MEMORIES.block_rams, MEMORIES.memory_luts])
def test_refused(function):
    with pytest.raises(ConfigError, match="width must not be negative, not -1"):
        function(-1, 8)
    with pytest.raises(ConfigError, match="depth must not be negative, not -8"):
        function(1, -8)
