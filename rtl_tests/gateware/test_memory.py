"""Memories by shape: block RAM and LUTs by hand, and as Yosys maps them."""

from __future__ import annotations

import random

import pytest
from amaranth import Module
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from yosys import cells, luts

from hwgen.errors import ConfigError
from hwgen.gateware.lookup import MEMORIES, ram_attributes, rom_attributes

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
    """Check every second memory: all block RAMs together take as many as their sum. LUT RAMs take the LUTs that are
    counted, and so does a ROM of random columns; equal columns of a ROM could be shared."""
    block, distributed = {"ram_style": "block"}, {"ram_style": "distributed"}
    #: Arguments of a `Store`, its block RAMs, and its LUTs.
    stores = [((*shape, False, block), share, 0) for *shape, share in YOSYS_SHAPES]
    stores += [((*shape, True, rom_attributes(shape[1])), share, 0) for *shape, share in YOSYS_ROMS]
    for shape in ((7, 32), (64, 20), (8, 33), (64, 64)):
        stores.append(((*shape, False, distributed), 0, MEMORIES.memory_luts(*shape)))
    stores.append(((40, 64, True, rom_attributes(64)), 0, MEMORIES.memory_luts(40, 64, rom=True)))
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
    for attributes in (rom_attributes, ram_attributes):
        for where in ("lut", "block"):
            for name, value in attributes(8, where).items():
                assert value in known[name]


@pytest.mark.parametrize("function", [MEMORIES.block_rams, MEMORIES.memory_luts])
def test_refused(function):
    with pytest.raises(ConfigError, match="width must not be negative, not -1"):
        function(-1, 8)
    with pytest.raises(ConfigError, match="depth must not be negative, not -8"):
        function(1, -8)
