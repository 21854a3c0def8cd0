"""Line buffer: stores image rows, and outputs the taps of every window (DeCoILFNet, sections III-A and III-B).

The buffer is a ring of ``rows`` image rows. A writer fills the ring in raster order. A reader walks over the windows
and reads ``patch`` taps per cycle directly from the memory. Therefore there is no window buffer, and padding, row ends
and frame ends cost no cycle. Two signed counters control the flow (`PixelCounts`). The memory is divided into banks
(`RingBanks`). The parts of the configuration are in `hwgen.gateware.windows`.

With a dilation, the number of column banks is the smallest that separates the columns that are read together. In most
cases it equals the number of these columns: in a patch of three taps with dilation 2, columns 0, 2 and 4 are in banks
0, 2 and 1 of three.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.windows.patch_reader import PatchReader
from hwgen.gateware.windows.pixel_counts import PixelCounts
from hwgen.gateware.windows.ring_banks import RingBanks, RingWriter
from hwgen.gateware.windows.window_parameters import WindowParameters
from hwgen.gateware.windows.window_walk import WalkCounters, WindowWalk


@dataclass(frozen=True, kw_only=True)
class LineBufferConfig(WindowParameters):
    """Configuration of a line buffer, which stores rows of a feature map and outputs the taps of every window.

    The parameters are in `WindowParameters`.

    Raises
    ------
    ConfigError
        If no window fits, ``taps`` exceeds the kernel, ``rows`` do not hold a window, or the chosen RAM cannot store a
        bank; or if ``inside`` is set without padding, or with fewer taps than the kernel's.
    """

    def __post_init__(self) -> None:
        kernel_taps = self.kernel[0] * self.kernel[1]
        if min(*self.kernel, *self.stride) < 1:
            raise ConfigError(f"kernel and stride must be positive, not {self.kernel!r} and {self.stride!r}")
        if min(self.dilation) < 1:
            raise ConfigError(f"dilation must be positive, not {self.dilation!r}")
        if not 1 <= self.taps <= kernel_taps:
            raise ConfigError(f"taps must be between 1 and the kernel's {kernel_taps}, not {self.taps!r}")
        if not 1 <= self.pixels <= max(self.output_width, 1):
            raise ConfigError(f"pixels must be between 1 and the {self.output_width} of a row, not {self.pixels!r}")
        if self.rows < self.min_rows:
            raise ConfigError(f"rows must be at least the {self.min_rows} of a window, not {self.rows!r}")
        if min(self.output_height, self.output_width) < 1:
            raise ConfigError(
                f"input and padding must hold at least one {self.extent[0]} x {self.extent[1]} window, "
                f"not {self.input.height} x {self.input.width} with {self.padding!r}"
            )
        if self.output_folds < 1 or self.output_folds % self.groups:
            wanted = "integer" if self.groups == 1 else f"multiple of the {self.groups} groups"
            raise ConfigError(f"output_folds must be a positive {wanted}, not {self.output_folds!r}")
        if self.channelwise and self.group_output_folds > 1:
            raise ConfigError(f"output_folds must be {self.input.folds} for channelwise, not {self.output_folds!r}")
        smallest, largest = self.input.value_range
        if not smallest <= self.pad_value <= largest:
            raise ConfigError(f"pad_value must be a value of the input's type, not {self.pad_value!r}")
        if self.inside and not self.padded:
            raise ConfigError("inside must be False, not True, without padding")
        if self.inside and self.taps != kernel_taps:
            raise ConfigError(f"inside must be False, not True, if a step has {self.taps} of {kernel_taps} taps")
        self.memories.check_ram("memory_in", self.memory_in, self.banks.depth)

    @property
    def min_rows(self) -> int:
        """Minimum number of image rows that the line buffer must store: a window's rows, at most the map's."""
        return min(self.extent[0], self.input.height)

    @cached_property
    def banks(self) -> RingBanks:
        """`RingBanks`: the memory banks that store the line buffer's ring of image rows."""
        return RingBanks(self)

    @cached_property
    def writer(self) -> RingWriter:
        """`RingWriter`: the circuit that writes the pixels of input beats into the line buffer's banks."""
        return RingWriter(self, self.banks)

    @cached_property
    def counts(self) -> PixelCounts:
        """`PixelCounts`: the counters that decide when windows start and when the writer accepts a beat."""
        return PixelCounts(self)

    @cached_property
    def reader(self) -> PatchReader:
        """`PatchReader`: the pipeline that reads one cycle's taps (a patch of the window) from the banks."""
        return PatchReader(self, self.banks)

    @property
    def latency(self) -> int:
        """Cycles from the start of a read of window taps in the banks until the taps are on ``o``."""
        return self.reader.latency

    @cached_property
    def resources(self) -> Resources:
        cost, walk = Cost(self.device), WalkCounters(self, self.banks)
        self.banks.count_memories(cost)
        self.reader.count(cost)
        self.writer.count(cost)
        counters = self.writer.counter_ff + self.counts.counter_ff + walk.position_ff + walk.address_ff
        cost.ff += counters
        cost.lut += self._control_luts(counters)
        return cost.resources

    def component(self) -> LineBuffer:
        return LineBuffer(self)

    def _control_luts(self, counters: int) -> float:
        """Return the estimated number of LUTs of the line buffer's control logic: counters, tables, write enables.

        ``counters`` is the number of the counters' flip-flops. The factors were fitted to results of Yosys.
        """
        width, banks = max(1, counter_bits(self.banks.depth)), self.banks.columns
        entries = self.grid.need_steps.uncommon + self.grid.release_steps.uncommon
        if banks == self.banks.rows == 1:
            total = 1.26 * (counters - width) + 0.64 * width + 0.6 * entries + 20.6 * self.padded
            return total + 3.2 * (self.rows > 1) + 3.3 * self.tap_folds * self.patches.chooses
        total = 1.33 * (counters - banks * width) + 0.7 * banks * width + 2.6 * entries
        if banks > 1:
            # If every beat begins in the same bank, all banks share an address and need no multiplexer of pixels.
            total += 4 * banks if self.input.pixels % banks else -0.35 * (banks - 1) * width
        if self.padded:
            total += 2.4 * self.patches.size[0] * len(self.patches.used_columns)
        if self.banks.rows == 1:
            total += 3.6 * min(self.rows, 4)
        if self.patches.chooses:
            total += 3.3 * self.tap_folds
        return total


def walk_ports(config: LineBufferConfig) -> dict[str, wiring.Member]:
    """Return a dict from port name to Amaranth member, for a component that outputs windows, such as `LineBuffer`."""
    return {
        "i": In(config.input.signature),
        "room": In(1),
        "fold": Out(range(config.output_folds)),
        "start": Out(1),
        "o": Out(stream.Signature(config.step_layout, always_ready=True)),
    }


class LineBuffer(ConfiguredComponent[LineBufferConfig]):
    """Component that stores a ring of image rows, and outputs the taps of all windows in raster order.

    For every window, the outer loop goes over the output folds, the middle loop over the patches of the window, and the
    inner loop over the input folds. A step takes one cycle, without a pause inside an output fold.

    Parameters
    ----------
    config : LineBufferConfig
        Configuration of the line buffer.

    Members
    -------
    i : In(stream)
        Input feature map. Its ``last`` is ignored, because the line buffer counts the pixels.
    room : In(1)
        High if the next output fold can start.
    fold : Out
        Index of the output fold that starts next.
    start : Out(1)
        High in the first cycle of an output fold.
    o : Out(stream, always ready)
        Steps.

    Latency and throughput
        An output fold takes ``config.steps`` cycles. Its first step is on ``o`` ``config.latency`` cycles after
        ``start``. A window starts at least ``config.write_delay`` cycles after the transfer of the last pixel that the
        window needs. A pixel is accepted at least ``config.release_delay`` cycles after the last step of the last
        window that needs the overwritten pixel. A row is released from left to right.
    """

    def __init__(self, config: LineBufferConfig):
        super().__init__(config, walk_ports(config))

    def elaborate(self, platform):
        m, config = Module(), self.config
        banks = config.banks.add_to(m)
        pixels = config.writer.add_to(m, self.i, banks)
        walk = WindowWalk(m, config, config.banks, self.room)
        m.d.comb += [self.start.eq(walk.start), self.fold.eq(walk.fold)]
        m.d.comb += self.i.ready.eq(config.counts.add_to(m, walk, pixels))
        config.reader.add_to(m, walk, banks, self.o)
        return m
