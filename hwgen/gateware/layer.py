"""One layer of a streaming accelerator: line buffer, arithmetic, FIFO, and the credits that hold them together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from amaranth import Module, Mux, Shape, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from hwgen.errors import ConfigError
from hwgen.gateware.fifo import Fifo, FifoConfig
from hwgen.gateware.line_buffer import LineBuffer, LineBufferConfig
from hwgen.gateware.lookup import dense_table
from hwgen.gateware.multiply import Multiply, MultiplyConfig
from hwgen.gateware.pool import MaxPool, MaxPoolConfig
from hwgen.gateware.regroup import Regroup, RegroupConfig
from hwgen.gateware.requantise import AddBias, AddBiasConfig, Requantise, RequantiseConfig
from hwgen.gateware.stream import BeatFormat, Order, join
from hwgen.gateware.unload import Unload, UnloadConfig


@dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """The hardware of one layer.

    Parameters
    ----------
    name : str
        From the model.
    compute : MultiplyConfig or MaxPoolConfig
        The arithmetic; its ``window`` is the layer's line buffer.
    finish : RequantiseConfig, AddBiasConfig or None
        What makes outputs of the sums; ``None`` where they are outputs already (pooling, sums that have their bias).
    fifo_lanes : int
        ``r``: channels of a beat in the FIFO, at least ``ceil(Tm / steps of a fold)``.
    fifo_depth : int
        Credits: beats stored or in flight; at least those of one output fold.
    output : BeatFormat
        The stream that leaves.

    Raises
    ------
    ConfigError
        If the parts don't fit each other.
    """

    name: str
    compute: MultiplyConfig | MaxPoolConfig
    finish: RequantiseConfig | AddBiasConfig | None
    fifo_lanes: int
    fifo_depth: int
    output: BeatFormat

    #: Cycles from a beat leaving the FIFO to the start of the output fold that waits for its credit.
    credit_delay = 1

    def __post_init__(self) -> None:
        if self.output.pixels != self.pixels:
            raise ConfigError(f"{self.name}: output.pixels must be {self.pixels}, not {self.output.pixels!r}")
        if max(self.fold_beats) > self.window.steps:
            raise ConfigError(
                f"{self.name}: fifo_lanes must be at least {-(-self.compute.lanes // self.window.steps)}, "
                f"not {self.fifo_lanes!r}"
            )
        if self.fifo_depth < max(self.fold_beats):
            raise ConfigError(
                f"{self.name}: fifo_depth must be at least {max(self.fold_beats)}, the beats of one output fold, "
                f"not {self.fifo_depth!r}"
            )

    @property
    def window(self) -> LineBufferConfig:
        return self.compute.window

    @property
    def input_order(self) -> Order:
        """In which order the pixels of the input come."""
        return self.window.input.raster

    @property
    def output_order(self) -> Order:
        """In which order the pixels of the output leave."""
        return self.output.raster

    @property
    def pixels(self) -> int:
        """``Tp``: pixels of an output beat."""
        return self.window.pixels

    @cached_property
    def unload(self) -> UnloadConfig:
        if isinstance(self.compute, MultiplyConfig):
            shape = Shape(self.compute.sum_bits, True)
        else:
            shape = self.window.input.shape
        return UnloadConfig(
            channels=self.output.channels,
            lanes_in=self.compute.lanes,
            lanes_out=self.fifo_lanes,
            shape=shape,
            clears=self.finish is None,
            pixels=self.pixels,
            groups=self.window.input.groups,
        )

    @cached_property
    def fold_beats(self) -> tuple[int, ...]:
        """Beats that each output fold of a pixel puts into the FIFO."""
        return self.unload.fold_beats

    @property
    def start_up(self) -> int:
        """Cycles after a reset before the first beat can be taken."""
        return 0

    @property
    def beats(self) -> int:
        """Beats of a frame in the FIFO."""
        return self.window.windows * sum(self.fold_beats)

    @cached_property
    def fifo(self) -> FifoConfig:
        return FifoConfig(
            lanes=self.fifo_lanes * self.pixels,
            bits=self.output.bits,
            signed=self.output.signed,
            beats=self.beats,
            depth=self.fifo_depth,
        )

    @cached_property
    def regroup(self) -> RegroupConfig:
        return RegroupConfig(
            counts=tuple(len(beat) for beat in self.unload.beats), lanes=self.fifo_lanes, output=self.output
        )

    @property
    def pipeline_latency(self) -> int:
        """Cycles from the start of an output fold to its first beat entering the FIFO."""
        finish = self.finish.latency if self.finish else 0
        return self.window.steps - 1 + self.window.latency + self.compute.latency + self.unload.latency + finish

    @property
    def cycles(self) -> int:
        """Cycles a frame takes when neither neighbour makes the layer wait (design: loop order)."""
        return max(self.window.windows * self.window.window_cycles, self.window.input.beats)

    @property
    def weights(self) -> str | None:
        """Where the weights lie: ``lut`` or ``block`` RAM; ``None`` where there are none."""
        if not isinstance(self.compute, MultiplyConfig):
            return None
        return self.compute.memory

    @property
    def multipliers(self) -> int:
        return self.compute.multipliers + (self.finish.multipliers if self.finish else 0)


class Layer(wiring.Component):
    """A layer from stream to stream.

    The arithmetic never stalls: an output fold starts when the FIFO has room for all it will produce.

    Parameters
    ----------
    config : LayerConfig
    busy : bool
        Let the steps be watched.

    Members
    -------
    i : In(stream)
        The input map, ``Tn`` channels a beat.
    o : Out(stream)
        The output map.
    busy : Out(1)
        With ``busy``: the arithmetic takes a step.
    """

    def __init__(self, config: LayerConfig, *, busy: bool = False):
        self._config = config
        self._busy = busy
        members = {"i": In(config.window.input.signature), "o": Out(config.output.signature)}
        super().__init__(members | {"busy": Out(1)} if busy else members)

    @property
    def config(self) -> LayerConfig:
        return self._config

    def make_window(self) -> Any:
        """What takes the input and walks its windows, with a line buffer's ports."""
        return LineBuffer(self.config.window)

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.window = window = self.make_window()
        compute = Multiply(config.compute) if isinstance(config.compute, MultiplyConfig) else MaxPool(config.compute)
        m.submodules.compute = compute
        m.submodules.unload = unload = Unload(config.unload)
        m.submodules.fifo = fifo = Fifo(config.fifo)
        connect(m, layer=wiring.flipped(self.i), window=window.i)
        connect(m, window=window.o, compute=compute.i)
        if self._busy:
            m.d.comb += self.busy.eq(compute.i.valid)
        connect(m, compute=compute.o, unload=unload.i)
        if config.finish is None:
            connect(m, unload=unload.o, fifo=fifo.i)
        else:
            finish = (
                Requantise(config.finish) if isinstance(config.finish, RequantiseConfig) else AddBias(config.finish)
            )
            m.submodules.finish = finish
            connect(m, unload=unload.o, finish=finish.i)
            connect(m, finish=finish.o, fifo=fifo.i)
        if config.regroup.needed:
            m.submodules.regroup = regroup = Regroup(config.regroup)
            join(m, source=fifo.o, sink=regroup.i)
            connect(m, regroup=regroup.o, layer=wiring.flipped(self.o))
        else:
            connect(m, fifo=fifo.o, layer=wiring.flipped(self.o))
        self._elaborate_credits(m, window, fifo)
        return m

    def _elaborate_credits(self, m: Module, window: Any, fifo: Fifo) -> None:
        """A credit for each beat the FIFO has room for; an output fold takes its beats' credits when it starts."""
        config = self.config
        credits = Signal(range(config.fifo_depth + 1), init=config.fifo_depth)
        claim = dense_table(m, "claim", window.fold, config.fold_beats)
        returned = fifo.o.valid & fifo.o.ready
        m.d.sync += credits.eq(credits + returned - Mux(window.start, claim, 0))
        m.d.comb += window.room.eq(credits >= claim)
