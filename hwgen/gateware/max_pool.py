"""Max pooling of the windows that a line buffer outputs (DeCoILFNet, section III-D)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

from amaranth import Module, Mux, Shape, Signal

from hwgen.errors import ConfigError
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.layer import Arithmetic, Weightless
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.lookup import delayed
from hwgen.gateware.stream import at_pixel


@dataclass(frozen=True, kw_only=True)
class ChannelwisePoolConfig(Weightless):
    """Base class of the configurations of max and average pooling, where an output channel reads one input channel.

    Parameters
    ----------
    window : LineBufferConfig
        Source of the steps: a ``channelwise`` walk.

    Raises
    ------
    ConfigError
        If the walk is not channelwise.
    """

    operation = "average pool"

    window: LineBufferConfig

    def __post_init__(self) -> None:
        if not self.window.channelwise:
            raise ConfigError(f"window.channelwise must be True, not {self.window.channelwise!r}")

    @property
    def input_range(self) -> tuple[int, int]:
        """Smallest and largest value of the pool's input type, a pair of integers."""
        return self.window.input.value_range


@dataclass(frozen=True, kw_only=True)
class MaxPoolConfig(ChannelwisePoolConfig):
    """Configuration of a max pool's comparators, which compute the maximum of each channel over a pooling window.

    Parameters
    ----------
    window : LineBufferConfig
        Source of the steps: a ``channelwise`` walk.

    Raises
    ------
    ConfigError
        If the walk is not channelwise, or if missing taps of the last tap fold are not the smallest value.
    """

    operation = "max pool"

    def __post_init__(self) -> None:
        super().__post_init__()
        lowest, _ = self.input_range
        if len(self.window.patches.step_taps[-1]) < self.window.taps and self.window.pad_value != lowest:
            raise ConfigError(
                f"window.pad_value must be {lowest} where {self.window.taps} taps don't divide the kernel, "
                f"not {self.window.pad_value!r}"
            )

    @property
    def levels(self) -> int:
        """Number of levels of the comparator tree over the taps that arrive in one cycle."""
        return (self.window.taps - 1).bit_length()

    @property
    def accumulates(self) -> bool:
        """Whether a window's taps arrive over several cycles, so that a register must hold the running maximum."""
        return self.window.steps > 1

    @property
    def latency(self) -> int:
        """Cycles from the last taps of a pooling window on port ``i`` to the window's maxima on port ``o``."""
        return self.levels + self.accumulates

    @property
    def result(self) -> Shape:
        """Amaranth shape of a maximum, which is the shape of the input values."""
        return self.window.input.shape

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.device)
        lanes, bits = self.lanes * self.window.pixels, self.window.input.bits
        compare = 1.75 * bits  # a comparison and a multiplexer
        cost.tree(self.window.taps, self.levels * [(bits, compare)], bits, lanes)
        cost.registers(lanes * self.accumulates * bits, 1.75)
        cost.ff += self.levels + self.accumulates
        cost.delay(1, self.levels)
        if self.accumulates:
            cost.delay(1, self.levels)
        return cost.resources

    def component(self) -> MaxPoolUnit:
        return MaxPoolUnit(self)


class MaxPoolUnit(Arithmetic[MaxPoolConfig]):
    """Component that computes the maxima of pooling windows: a comparator tree over taps, then a running maximum.

    Parameters
    ----------
    config : MaxPoolConfig

    Members
    -------
    i : In(stream, always ready)
        Steps, in the order of the line buffer.
    o : Out(stream, always ready)
        ``Tn x Tp`` maxima, ``[lane][pixel]``, once per fold.

    Latency and throughput
        One step per cycle. Maxima leave ``config.latency`` cycles after the fold's last step. Never stalls.
    """

    def elaborate(self, platform):
        m = Module()
        config = self.config
        shape = config.window.input.shape
        valid = delayed(m, "valid", self.i.valid, config.levels, reset_less=False)
        first = delayed(m, "is_first_step", self.i.payload.first, config.levels)
        last = delayed(m, "is_last_step", self.i.payload.last, config.levels)
        pixels = config.window.pixels
        for lane, pixel in product(range(config.lanes), range(pixels)):
            name = at_pixel(f"lane_{lane}", pixel, pixels)
            values = [tap[lane] for tap in self.i.payload.taps[pixel]]
            for level in range(config.levels):
                following = []
                for pair in range(0, len(values), 2):
                    register = Signal(shape, name=f"{name}_level_{level}_{pair // 2}", reset_less=True)
                    m.d.sync += register.eq(_maximum(values[pair : pair + 2]))
                    following.append(register)
                values = following
            total = values[0]
            if config.accumulates:
                running = Signal(shape, name=f"{name}_maximum", reset_less=True)
                m.d.sync += running.eq(Mux(~first & (running > total), running, total))
                total = running
            m.d.comb += self.o.payload[lane][pixel].eq(total)
        done = valid & last
        m.d.comb += self.o.valid.eq(
            delayed(m, "maximum_valid", done, 1, reset_less=False) if config.accumulates else done
        )
        return m


def _maximum(values):
    return values[0] if len(values) == 1 else Mux(values[0] > values[1], values[0], values[1])
