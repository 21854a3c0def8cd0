"""Joins of feature map streams, without line buffers: sums read a beat of each input at once, concatenations in turn.

A layer that adds two maps reads one beat of both maps in the same cycle. A layer that concatenates maps reads all beats
of a pixel from the first map, then all beats of this pixel from the second. A join stores nothing: beats that wait for
another input stay in the previous layer's FIFO. There is one exception. The last input can be a single pixel that is
combined with all pixels of the others. Its beats are then read with the first pixel, and stored for the rest of the
frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent, OnDevice
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.kept import LATENCY, add_memory, add_memory_cost
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.lookup import delayed, named
from hwgen.gateware.stream import BeatFormat, channels_layout, numbered


@dataclass(frozen=True, kw_only=True)
class JoinConfig(OnDevice):
    """Configuration of a join, which combines several feature map streams beat by beat into one stream of operands.

    A step is one cycle of the join: it reads one beat of each input, or one beat of one input in turn.

    Parameters
    ----------
    inputs : tuple of BeatFormat
        Input streams: maps of equal height and width, with equally many pixels per beat.
    in_turn : bool
        Whether a step reads one beat of one input: all beats of a pixel from the first input, then from the second, and
        so on. Otherwise a step reads one beat of each input, and all inputs have the same channels and lanes.
    spread : bool
        Whether the last input is a map of one pixel, which is combined with all pixels of the others.

    Raises
    ------
    ConfigError
        If the inputs do not match each other.
    """

    inputs: tuple[BeatFormat, ...]
    in_turn: bool = False
    spread: bool = False

    #: Number of cycles that the arithmetic takes to read the operands of one output beat: 1.
    steps = 1
    #: Number of rows in a line buffer, and its minimum: 0, as a join has no line buffer.
    rows = min_rows = 0

    def __post_init__(self) -> None:
        size = ("height", "width", "pixels")
        for name in (*size, "lanes", "groups", *(() if self.in_turn else ("channels",))):
            inputs = self.inputs[:-1] if self.spread and name in size else self.inputs
            if len({getattr(beat, name) for beat in inputs}) != 1:
                raise ConfigError(f"inputs must be one or more that agree in {name}, not {self.inputs!r}")
        if self.spread and (self.in_turn or (last := self.inputs[-1]).frame_pixels != 1 or last.pixels != 1):
            raise ConfigError(f"inputs must end with a map of one pixel to spread, not in turn, not {self.inputs!r}")

    @property
    def latency(self) -> int:
        """Cycles from the transfer of input beats to their values on the join's output ``o``."""
        return 1 + LATENCY * self.spread

    @property
    def input(self) -> BeatFormat:
        """Beat format (`BeatFormat`) of the first input map."""
        return self.inputs[0]

    @property
    def lanes(self) -> int:
        """Number of channels that the join outputs per cycle."""
        return self.input.lanes

    @property
    def pixels(self) -> int:
        """Number of neighbouring pixels that the join outputs per cycle, ``Tp``."""
        return self.input.pixels

    @property
    def windows(self) -> int:
        """Number of groups of ``Tp`` neighbouring pixels per frame of the output map."""
        return self.input.height * self.row_steps

    @property
    def step_channels(self) -> tuple[range, ...]:
        """Output channels in each cycle of a pixel that the join outputs, as a tuple of ranges."""
        steps: list[range] = []
        before = 0
        for beat in self.inputs if self.in_turn else self.inputs[:1]:
            steps += [range(before + channels.start, before + channels.stop) for channels in beat.fold_channels]
            before += beat.channels
        return tuple(steps)

    @property
    def output_folds(self) -> int:
        """Number of cycles that the join needs to output all channels of a pixel."""
        return sum(beat.folds for beat in (self.inputs if self.in_turn else self.inputs[:1]))

    @property
    def window_cycles(self) -> int:
        """Number of cycles that the join needs to output all channels of a group of ``Tp`` neighbouring pixels."""
        return self.output_folds

    @property
    def output_width(self) -> int:
        """Number of columns of the join's output map."""
        return self.input.width

    @property
    def row_steps(self) -> int:
        """Number of groups of ``Tp`` neighbouring pixels per row of the join's output map."""
        return self.input.row_steps

    def read_cycles(self, input_index: int) -> tuple[tuple[int, ...], tuple[Any, ...]]:
        """Return (shape, index) of an array of a pixel's or frame's cycles: the index selects those that read an input.

        The array has the cycles (steps) of one pixel, or of a frame if the input is spread, after one more first axis.
        """
        if self.spread and input_index == len(self.inputs) - 1:
            return (self.windows, self.output_folds), (slice(None), 0, slice(None))
        if not self.in_turn:
            return (self.output_folds,), (slice(None), slice(None))
        begin = self.step_inputs.index(input_index)
        return (self.output_folds,), (slice(None), slice(begin, begin + self.inputs[input_index].folds))

    @cached_property
    def step_inputs(self) -> tuple[int, ...]:
        """Input index that the join reads in each cycle of a pixel, as a tuple; used if it reads inputs in turn."""
        return tuple(index for index, beat in enumerate(self.inputs) for _ in range(beat.folds))

    @property
    def step_layout(self) -> data.StructLayout:
        """Amaranth layout of the join's output: ``operand_N[lane][pixel]`` per input; in turn: ``operand``, ``source``.

        A spread input has one pixel. If inputs are read in turn, ``operand`` is as wide as the widest input's values,
        which it holds in its low bits, and ``source`` is the index of its input.
        """
        lanes, pixels = self.input.lanes, self.pixels
        if self.in_turn:
            widest = max(beat.bits for beat in self.inputs)
            operand = channels_layout(widest, lanes, pixels)
            return data.StructLayout({"operand": operand, "source": range(len(self.inputs))})
        return data.StructLayout(
            {f"operand_{n}": channels_layout(beat.shape, lanes, beat.pixels) for n, beat in enumerate(self.inputs)}
        )

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.device)
        count = len(self.inputs)
        cost.counter(self.output_folds)
        cost.ff += 1
        cost.lut += 2 * (count - 1) * self.in_turn
        if self.in_turn:
            bits = self.step_layout.size
            cost.ff += bits
            cost.lut += bits * (-(-count // 4) if count > 1 else 0)
        else:
            *others, last = self.inputs
            cost.delay(sum(beat.data_bits for beat in others), self.latency)
            cost.ff += last.data_bits
        if self.spread:
            add_memory_cost(cost, last.data_bits, last.folds)
            cost.counter(self.windows)
            cost.ff += counter_bits(last.folds) + 1 + LATENCY
            cost.lut += 3
        return cost.resources

    def component(self) -> JoinUnit:
        return JoinUnit(self)


@dataclass(frozen=True, kw_only=True)
class OneMapConfig(OnDevice):
    """Base class of configurations of input readers that output one map's values in another order, without line buffer.

    Parameters
    ----------
    input : BeatFormat
        Format of the input.
    """

    input: BeatFormat

    #: Number of cycles that the arithmetic takes to read the operands of one output beat: 1.
    steps = 1
    #: Number of rows in a line buffer, and its minimum: 0, as there is no line buffer.
    rows = min_rows = 0
    #: Whether each cycle reads a beat of one input, not of all: true, as there is only one input.
    in_turn = True

    @property
    def inputs(self) -> tuple[BeatFormat, ...]:
        """Tuple of the only input map's `BeatFormat`."""
        return (self.input,)

    @property
    def pixels(self) -> int:
        """Number of neighbouring pixels per output beat, ``Tp``, as many as per input beat."""
        return self.input.pixels

    @property
    def output_height(self) -> int:
        """Number of rows of the output map."""
        return self.input.height

    @property
    def output_width(self) -> int:
        """Number of columns of the output map."""
        return self.input.width

    @property
    def row_steps(self) -> int:
        """Number of groups of ``Tp`` neighbouring pixels per row of the output map."""
        return -(-self.output_width // self.pixels)

    @property
    def windows(self) -> int:
        """Number of groups of ``Tp`` neighbouring pixels per frame of the output map."""
        return self.output_height * self.row_steps

    @property
    def step_channels(self) -> tuple[range, ...]:
        """Output channels in each cycle of a pixel that the component outputs, as a tuple of ranges."""
        return self.input.fold_channels

    @property
    def output_folds(self) -> int:
        """Number of cycles that the component needs to output all channels of a pixel."""
        return len(self.step_channels)

    @property
    def window_cycles(self) -> int:
        """Number of cycles that the component needs to output all channels of a group of ``Tp`` neighbouring pixels."""
        return self.output_folds


def walk_ports(config: Any) -> dict[str, wiring.Member]:
    """Return a dict from port name to Amaranth member, for a component that reads inputs without a line buffer."""
    count = len(config.inputs)
    return {
        **{numbered("i", index, count): In(beat.signature) for index, beat in enumerate(config.inputs)},
        "room": In(1),
        "fold": Out(range(config.output_folds)),
        "start": Out(1),
        "o": Out(stream.Signature(config.step_layout, always_ready=True)),
    }


class JoinUnit(ConfiguredComponent[JoinConfig]):
    """Component that joins several feature-map streams, beat by beat, into one stream of operands.

    A step starts when all of its beats are valid and its results have room.

    Parameters
    ----------
    config : JoinConfig

    Members
    -------
    i, or i_0, i_1, .. : In(stream)
        Inputs.
    room : In(1)
        Whether there is room for the results of the next step.
    fold : Out
        Index of the next step within its pixel.
    start : Out(1)
        Whether a step starts.
    o : Out(stream, always ready)
        Steps, ``config.latency`` cycles after they started.
    """

    def __init__(self, config: JoinConfig):
        super().__init__(config, walk_ports(config))

    def elaborate(self, platform):
        m = Module()
        config, count = self.config, len(self.config.inputs)
        inputs = [getattr(self, numbered("i", index, count)) for index in range(count)]
        with m.If(self.start):
            m.d.sync += self.fold.eq(Mux(self.fold == config.output_folds - 1, 0, self.fold + 1))
        step = Signal(config.step_layout, name="step", reset_less=True)
        m.d.comb += self.o.valid.eq(delayed(m, "valid", self.start, config.latency, reset_less=False))
        if config.spread:
            self._elaborate_spread(m, inputs, step)
            return m
        m.d.comb += self.o.payload.eq(step)
        if config.in_turn:
            self._elaborate_turns(m, inputs, step)
        else:
            m.d.comb += self.start.eq(self.room & Cat(source.valid for source in inputs).all())
            for index, source in enumerate(inputs):
                m.d.comb += source.ready.eq(self.start)
                m.d.sync += step[f"operand_{index}"].eq(source.payload.data)
        return m

    def _elaborate_spread(self, m: Module, inputs: list[Any], step: data.View) -> None:
        """Add the logic that combines the last input, a map of one pixel, with all pixels of the other inputs.

        The last input's beats are read with the first pixel, and stored for the other pixels of the frame.
        """
        config = self.config
        *others, last = inputs
        window = Signal(range(config.windows), name="window_index")
        first = Signal(name="is_first_window")
        m.d.comb += [
            first.eq(window == 0),
            self.start.eq(self.room & Cat(source.valid for source in others).all() & (last.valid | ~first)),
            last.ready.eq(self.start & first),
        ]
        with m.If(self.start & (self.fold == config.output_folds - 1)):
            m.d.sync += window.eq(Mux(window == config.windows - 1, 0, window + 1))
        fold = Signal.like(self.fold, name="write_fold_index", reset_less=True)
        write = Signal(name="write_enable")
        m.d.sync += [fold.eq(self.fold), write.eq(self.start & first)]
        for index, source in enumerate(inputs):
            name = f"operand_{index}"
            m.d.sync += step[name].eq(source.payload.data)
            if source is last:
                word = add_memory(
                    m, config.device, "shared_beats", config.inputs[-1].folds, Value.cast(step[name]), fold, write
                )
            else:
                m.d.comb += source.ready.eq(self.start)
                word = delayed(m, name, Value.cast(step[name]), LATENCY)
            m.d.comb += Value.cast(self.o.payload[name]).eq(word)

    def _elaborate_turns(self, m: Module, inputs: list[Any], step: data.View) -> None:
        """Add the logic that reads one beat of one input per cycle: all beats of a pixel from each input in turn."""
        config = self.config
        turn = Signal(range(len(inputs)), name="input_index")
        with m.Switch(self.fold):
            for fold, index in enumerate(config.step_inputs):
                with m.Case(fold):
                    m.d.comb += turn.eq(index)
        valid = named(Cat(source.valid for source in inputs).bit_select(turn, 1), "is_input_valid")
        m.d.comb += self.start.eq(self.room & valid)
        m.d.sync += step.source.eq(turn)
        with m.Switch(turn):
            for index, source in enumerate(inputs):
                with m.Case(index):
                    m.d.comb += source.ready.eq(self.start)
                    m.d.sync += [
                        step.operand[lane][pixel].eq(source.payload.data[lane][pixel].as_unsigned())
                        for lane, pixel in product(range(config.input.lanes), range(config.pixels))
                    ]


@dataclass(frozen=True, kw_only=True)
class JoinLayerConfig(LayerConfig):
    """Configuration of a layer without a line buffer, which reads its input maps by a join or a similar component.

    This component's configuration is the layer's ``window``. Parameters and errors are as in `LayerConfig`.
    """

    rows_alike = False
    has_line_buffer = False

    @property
    def join(self) -> Any:
        """Configuration of the component that reads the layer's inputs: a `JoinConfig`, or one with its interface."""
        return self.window

    @property
    def inputs(self) -> tuple[BeatFormat, ...]:
        return self.join.inputs

    @property
    def beats_in(self) -> int:
        return max(self.input_beats)

    @property
    def input_beats(self) -> tuple[int, ...]:
        return tuple(beat.beats for beat in self.inputs)

    @property
    def fold_channels(self) -> tuple[int, ...]:
        return tuple(len(channels) for channels in self.join.step_channels)

    def walk_component(self) -> Any:
        return self.join.component()

    @property
    def cycles(self) -> int:
        return self.join.windows * self.join.window_cycles

    def with_rows(self, rows: int) -> JoinLayerConfig:
        """Return this `JoinLayerConfig` unchanged, as a layer without a line buffer has no number of rows."""
        return self
