"""Reordering of a map's beats between channels and pixels (DepthToSpace, SpaceToDepth), through a memory of two blocks.

A block of ``a`` times ``b`` runs of beats is transposed to ``b`` times ``a`` runs. The memory stores two blocks: one is
read while the next is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data

from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.join import JoinLayerConfig, OneMapConfig, walk_ports
from hwgen.gateware.lookup import delayed, ram, read_port, registered, write_port
from hwgen.gateware.nest import Loop
from hwgen.gateware.stream import channels_layout


@dataclass(frozen=True, kw_only=True)
class ReorderConfig(OneMapConfig):
    """Configuration of a reordering of a map's beats: channels become neighbouring pixels, or pixels become channels.

    Every beat of the map is output once. Channels to pixels: an input pixel consists of the pixels of its block, row by
    row. A reordered block is a row of input pixels. Its rows of output pixels leave one after the other. Pixels to
    channels: a reordered block consists of the input rows that become one output row. The pixels of each of its columns
    leave as one pixel.

    Parameters
    ----------
    input : BeatFormat
        Format of the input, with one pixel per beat. If channels become pixels, the channels of each output pixel are a
        group.
    blocks : tuple of int
        Rows and columns of pixels that correspond to one pixel on the other side.
    opens : bool
        Whether channels become pixels. Otherwise pixels become channels.

    Raises
    ------
    ConfigError
        If beats hold several pixels, a block is empty, or the map or its groups do not consist of whole blocks.
    """

    blocks: tuple[int, int]
    opens: bool

    #: Cycles from a step, the start of a beat's read from memory, to the beat's values on port ``o``.
    latency = 3
    #: Minimum cycles from the transfer of a beat to the start of its read, and from the start of a block's last read to
    #: the transfer of a beat that overwrites the block.
    write_delay = release_delay = 1

    def __post_init__(self) -> None:
        source = self.input
        if source.pixels != 1:
            raise ConfigError(f"input.pixels must be 1, not {source.pixels!r}")
        if min(self.blocks) < 1 or source.groups != (self.blocks[0] * self.blocks[1] if self.opens else 1):
            raise ConfigError(f"blocks must be positive and the input's groups, not {self.blocks!r} of {source!r}")
        if not self.opens and (source.height % self.blocks[0] or source.width % self.blocks[1]):
            raise ConfigError(f"blocks must divide the map, not {self.blocks!r} of {source!r}")

    @property
    def lanes(self) -> int:
        """Number of channels that the reordering outputs per cycle: as many as an input beat has lanes."""
        return self.input.lanes

    @property
    def output_height(self) -> int:
        return self.input.height * self.blocks[0] if self.opens else self.input.height // self.blocks[0]

    @property
    def output_width(self) -> int:
        return self.input.width * self.blocks[1] if self.opens else self.input.width // self.blocks[1]

    @property
    def step_channels(self) -> tuple[range, ...]:
        """Output channels in each cycle of an output pixel, as a tuple of ranges."""
        source = self.input
        if self.opens:
            return source.fold_channels[: source.group_folds]
        count = self.blocks[0] * self.blocks[1]
        return tuple(
            range(pixel * source.channels + channels.start, pixel * source.channels + channels.stop)
            for pixel in range(count)
            for channels in source.fold_channels
        )

    @property
    def block(self) -> tuple[int, int, int]:
        """Triple ``(a, b, run)`` of a block: ``a`` times ``b`` runs of ``run`` beats become ``b`` times ``a`` runs.

        With one row per block, the beats keep their order, and the block is one run.
        """
        (down, right), source = self.blocks, self.input
        run = right * source.group_folds
        if down == 1:
            return 1, 1, run
        return (source.width, down, run) if self.opens else (down, self.output_width, run)

    @property
    def block_beats(self) -> int:
        """Number of beats in a block, the unit that is reordered as a whole; the memory stores two blocks."""
        first, second, run = self.block
        return first * second * run

    @property
    def step_layout(self) -> data.StructLayout:
        """Amaranth layout of one cycle's output: values ``operand[lane][0]``, one pixel per cycle."""
        return data.StructLayout({"operand": channels_layout(self.input.shape, self.lanes, 1)})

    @cached_property
    def resources(self) -> Resources:
        cost, bits, beats = Cost(self.device), self.input.data_bits, self.block_beats
        cost.ram(bits, 2 * beats)
        cost.counter(*3 * (beats,), *2 * (2 * beats,), luts=1)
        cost.counter(self.output_folds, *self.block)
        cost.ff += 2 * bits + 3 + 4
        cost.lut += 8
        cost.delay(1, self.latency)
        return cost.resources

    def component(self) -> Reorder:
        return Reorder(self)


class Reorder(ConfiguredComponent[ReorderConfig]):
    """Component that writes a map's beats to memory in input order, and reads them in output order as soon as possible.

    Parameters
    ----------
    config : ReorderConfig

    Members
    -------
    i, room, fold, start, o
        As in `Join` with one input.

    Latency and throughput
        One beat per cycle on each side. A step follows ``config.write_delay`` cycles after the last of the beats that
        the step and the steps before it output. A beat is accepted while fewer than two whole blocks wait. It follows
        ``config.release_delay`` cycles after the last step of the block that it overwrites.
    """

    def __init__(self, config: ReorderConfig):
        super().__init__(config, walk_ports(config))

    def elaborate(self, platform):
        m = Module()
        config, beats = self.config, self.config.block_beats
        into, whole = Loop("write_beat_index", range(beats)), Signal(range(3), name="complete_blocks")
        taken, emptied = Signal(name="input_transfer"), Signal(name="block_emptied")
        filled = into.step(m, taken)
        out = self._elaborate_read_index(m, emptied)
        m.d.comb += [
            self.i.ready.eq(whole != 2),
            taken.eq(self.i.valid & self.i.ready),
            self.start.eq(self.room & ((whole != 0) | (out < into.index))),
        ]
        m.d.sync += whole.eq(whole + filled - emptied)
        Loop("fold", range(config.output_folds), index=self.fold).step(m, self.start)

        m.submodules.blocks = blocks = ram(config.device, config.input.data_bits, 2 * beats)
        write, read = write_port(blocks), read_port(blocks)
        m.d.sync += write.en.eq(taken)
        for port, beat_index, ends, name in ((write, into.index, filled, "write"), (read, out, emptied, "read")):
            second = Signal(name=f"{name}_second_block")
            with m.If(ends):
                m.d.sync += second.eq(~second)
            address = registered(m, f"{name}_address", Mux(second, beat_index + beats, beat_index), range(2 * beats))
            m.d.comb += port.addr.eq(address)
        word = registered(m, "write_word", self.i.payload.data, config.input.data_bits)
        m.d.comb += write.data.eq(word)
        layout = channels_layout(config.input.shape, config.lanes, 1)
        values = data.View(layout, delayed(m, "read_word", read.data, 1))
        for lane, pixel in product(range(config.lanes), range(1)):
            m.d.comb += self.o.payload.operand[lane][pixel].eq(values[lane][pixel])
        m.d.comb += self.o.valid.eq(delayed(m, "valid", self.start, config.latency, reset_less=False))
        return m

    def _elaborate_read_index(self, m: Module, emptied: Signal) -> Signal:
        """Add the read counters, and return the signal with the beat's index within its block that is read next.

        Drive ``emptied``: the beat is the last of the block.
        """
        first, second, run = self.config.block
        beat_index, begin = (
            Signal(range(self.config.block_beats), name="read_beat_index"),
            Signal(range(second * run), name="run_begin"),
        )
        outer, inner = Loop("outer_index", range(second)), Loop("inner_index", range(first))
        beat = Loop("run_beat_index", range(run))
        run_ends = beat.step(m, self.start)
        inner_ends = inner.step(m, run_ends)
        m.d.comb += emptied.eq(outer.step(m, inner_ends))
        with m.If(self.start):
            m.d.sync += beat_index.eq(beat_index + 1)
        with m.If(run_ends):
            m.d.sync += beat_index.eq(beat_index + (second * run - run + 1))
        with m.If(inner_ends):
            m.d.sync += [begin.eq(begin + run), beat_index.eq(begin + run)]
        with m.If(emptied):
            m.d.sync += [begin.eq(0), beat_index.eq(0)]
        return beat_index


@dataclass(frozen=True, kw_only=True)
class ReorderLayerConfig(JoinLayerConfig):
    """Configuration of a layer that moves values between channels and pixels, with a `ReorderConfig` as its ``window``.

    Parameters and errors are as in `LayerConfig`.
    """

    @property
    def reorder(self) -> Any:
        """`ReorderConfig` of the reordering component of the layer."""
        return self.window
