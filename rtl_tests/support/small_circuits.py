"""Small components whose proofs are tested: configurations, and shapes of line buffers."""

from __future__ import annotations

from amaranth import unsigned

from hwgen.gateware.bus.lite import BankConfig
from hwgen.gateware.bus.registers import registers_of
from hwgen.gateware.bus.repack import Pieces, RepackConfig
from hwgen.gateware.bus.shell import ShellConfig, ends_of
from hwgen.gateware.fifo import FifoConfig
from hwgen.gateware.guard import GuardConfig
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.load.distribute import DistributeConfig
from hwgen.gateware.load.loaded_memory import LoadedMemory
from hwgen.gateware.load.loader import LoaderConfig
from hwgen.gateware.regroup import RegroupConfig
from hwgen.gateware.stream import BeatFormat, Port
from hwgen.gateware.unload import UnloadConfig
from hwgen.gateware.upsample import UpsampleConfig

FIFO = FifoConfig(lanes=1, bits=2, signed=False, beats=3, depth=5)
DEEP_FIFO = FifoConfig(lanes=1, bits=2, signed=False, beats=3, depth=9, memory_in="block")
#: FIFO whose LUT RAM has more than 4,096 bits, and so a module of its own.
WIDE_FIFO = FifoConfig(lanes=9, bits=8, signed=False, beats=3, depth=64, memory_in="lut")
REGROUP = RegroupConfig(
    counts=(3, 2), lanes=3, output=BeatFormat(channels=5, height=1, width=2, lanes=4, bits=2, signed=False)
)
#: Width converter before a FIFO.
GATHER = RegroupConfig(
    counts=(2, 1, 2),
    lanes=2,
    output=BeatFormat(channels=5, height=1, width=2, lanes=3, bits=2, signed=False),
    always_ready=True,
)
GUARD = GuardConfig(beat=BeatFormat(channels=2, height=1, width=3, lanes=1, bits=2, signed=False), beats=6)
#: Guard of packets of several frames, of two beats each.
PACKETS = GuardConfig(
    beat=BeatFormat(channels=2, height=1, width=1, lanes=1, bits=2, signed=False), beats=2, packets=True
)
UNLOAD = UnloadConfig(channels=5, lanes_in=3, lanes_out=1, shape=unsigned(2))

_BEAT = BeatFormat(channels=2, height=1, width=2, lanes=1, bits=2, signed=False)
JOIN = JoinConfig(inputs=(_BEAT, _BEAT))
UPSAMPLING = UpsampleConfig(input=_BEAT, factors=(2, 3))


def repack(takes, gives, bits=2):
    sides = [Pieces(sizes=sizes, count=count, final=final) for sizes, count, final in (takes, gives)]
    return RepackConfig(shape=unsigned(bits), takes=sides[0], gives=sides[1])


#: Frames of 5 values: 2, 1 and 2 come, 4 and 1 leave.
REPACK = repack(((2, 1), 3, 2), ((4,), 2, 1))
_IN = BeatFormat(channels=1, height=1, width=6, lanes=1, bits=8, signed=False)
_OUT = BeatFormat(channels=3, height=1, width=1, lanes=2, bits=5, signed=False)
SHELL = ShellConfig(
    inputs=ends_of([Port("i", _IN, _IN.raster)], "s_axis"), outputs=ends_of([Port("o", _OUT, _OUT.raster)], "m_axis")
)
LOADER = LoaderConfig(digest=0x1234_5678_9ABC_DEF0, words=3)
#: Link of run-time weights, with words of two parts and of one.
LINK = DistributeConfig(
    stores=(LoadedMemory(name="weights", width=40, depth=3), LoadedMemory(name="bias", width=20, depth=2))
)
#: Link whose widest word fills its parts, so that the assembled word and the memory's data are one register.
FULL_LINK = DistributeConfig(
    stores=(LoadedMemory(name="weights", width=64, depth=3), LoadedMemory(name="bias", width=20, depth=2))
)
BANK = BankConfig(registers=registers_of(("s_axis",), ("m_axis",), 5))


def line_buffer(
    size=(4, 4), channels=1, lanes=1, bits=1, signed=False, beat_pixels=1, groups=1, kernel=(2, 2), rows=None, **options
):
    """Return a line buffer of a small map; parameters that are not given are those of a plain walk."""
    source = BeatFormat(
        channels=channels,
        height=size[0],
        width=size[1],
        lanes=lanes,
        bits=bits,
        signed=signed,
        pixels=beat_pixels,
        groups=groups,
    )
    dilation = options.get("dilation", (1, 1))
    given = {
        "stride": (1, 1),
        "padding": (0, 0, 0, 0),
        "pad_value": 0,
        "taps": kernel[0] * kernel[1],
        "output_folds": 1,
        "channelwise": False,
        "rows": rows or min((kernel[0] - 1) * dilation[0] + 1, size[0]),
        **options,
    }
    return LineBufferConfig(input=source, kernel=kernel, **given)


AROUND = {"kernel": (3, 3), "padding": (1, 1, 1, 1)}
POOL = {"stride": (2, 2), "channelwise": True}
#: Shapes by name: what differs from a window of 2 x 2 on a map of 4 x 4 with one channel of one bit.
GRID = {
    "plain": {},
    "one pixel": {"size": (1, 1), "kernel": (1, 1)},
    "one row": {"size": (1, 5), "kernel": (1, 3)},
    "one column": {"size": (5, 1), "kernel": (3, 1)},
    "1 x 1": {"size": (3, 3), "kernel": (1, 1)},
    "1 x 1, folds": {"size": (2, 3), "kernel": (1, 1), "channels": 3, "output_folds": 2},
    "2 x 3": {"size": (3, 5), "kernel": (2, 3)},
    "3 x 2": {"size": (5, 3), "kernel": (3, 2)},
    "3 x 3": {"size": (4, 5), "kernel": (3, 3)},
    "window of the map": {"size": (3, 3), "kernel": (3, 3)},
    "one row more": {"rows": 3},
    "two rows more": {"rows": 4},
    "ring of more than a frame": {"size": (3, 3), "rows": 5},
    "three bits": {"size": (3, 3), "bits": 3, "signed": True},
    "two lanes": {"size": (3, 3), "channels": 2, "lanes": 2, "bits": 2},
    "two folds": {"size": (3, 3), "channels": 2},
    "three folds": {"size": (3, 3), "channels": 3, "output_folds": 2},
    "a lane too many": {"size": (3, 3), "channels": 3, "lanes": 2, "bits": 2},
    "four output folds": {"size": (3, 3), "output_folds": 4},
    "padding": AROUND,
    "padding of a value": {**AROUND, "size": (3, 3), "bits": 2, "signed": True, "pad_value": -2},
    "padding at the top": {"padding": (1, 0, 0, 0)},
    "padding at the left": {"padding": (0, 1, 0, 0)},
    "padding at the bottom": {"padding": (0, 0, 1, 0)},
    "padding at the right": {"padding": (0, 0, 0, 1)},
    "padding wider than the map": {"size": (2, 2), "kernel": (3, 3), "padding": (2, 2, 2, 2)},
    "a row cropped at the top": {"padding": (-1, 0, 0, 0)},
    "a column cropped at the left": {"padding": (0, -1, 0, 0)},
    "a row cropped at the top, padding at the left": {"padding": (-1, 1, 0, 0)},
    "a row cropped at the top, four of nine taps": {"kernel": (3, 3), "taps": 4, "padding": (-1, 0, 0, 0)},
    "padding, three taps": {**AROUND, "taps": 3},
    "padding, one tap": {**AROUND, "size": (3, 3), "taps": 1},
    "four of nine taps": {**AROUND, "size": (3, 3), "taps": 4},
    "two of nine taps": {"kernel": (3, 3), "taps": 2},
    "one of four taps": {"taps": 1},
    "two of four taps": {"taps": 2},
    "stride": {"stride": (2, 2)},
    "stride, padding": {**AROUND, "size": (5, 5), "stride": (2, 2)},
    "stride down": {"stride": (2, 1)},
    "stride across": {"stride": (1, 2), "rows": 3},
    "stride over pixels": {"size": (5, 5), "kernel": (1, 1), "stride": (2, 2)},
    "pool": {**POOL, "channels": 2, "output_folds": 2},
    "pool, one tap": {**POOL, "channels": 2, "output_folds": 2, "taps": 1},
    "pool that overlaps": {"kernel": (3, 3), "stride": (2, 2), "size": (5, 5), "channelwise": True},
    "dilation": {"size": (4, 5), "dilation": (2, 2)},
    "dilation down": {"size": (5, 4), "dilation": (3, 1)},
    "dilation, padding": {**AROUND, "size": (5, 5), "padding": (2, 2, 2, 2), "dilation": (2, 2)},
    "dilation, three taps": {"kernel": (3, 3), "size": (5, 5), "dilation": (2, 2), "taps": 3},
    "groups": {"size": (3, 3), "channels": 4, "groups": 2, "output_folds": 4},
    "groups of two lanes": {"size": (3, 3), "channels": 4, "lanes": 2, "groups": 2, "output_folds": 2},
    "channelwise": {**AROUND, "size": (3, 3), "channels": 3, "output_folds": 3, "channelwise": True},
    "two windows": {"pixels": 2, "kernel": (2, 2)},
    "two windows, padding": {**AROUND, "pixels": 2},
    "two windows, the last alone": {"size": (3, 4), "pixels": 2},
    "two pixels a beat": {"beat_pixels": 2},
    "two pixels a beat, the last alone": {"size": (3, 5), "beat_pixels": 2},
    "two of both": {"size": (3, 5), "beat_pixels": 2, "pixels": 2},
    "three pixels a beat": {**AROUND, "size": (3, 4), "beat_pixels": 3, "pixels": 2},
    "block RAM": {"memory_in": "block"},
    "block RAM, padding": {**AROUND, "memory_in": "block", "channels": 2, "output_folds": 2},
}
