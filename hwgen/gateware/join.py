"""Layers without a line buffer: several streams, joined beat by beat.

A layer that adds two maps takes a beat of both in the same cycle; one that concatenates maps takes all beats of a pixel
of the first one, then those of the second. Nothing is stored: what one input has to wait for the other lies in the
FIFO in front of it. But where one pixel of the last input goes with all pixels of the others, its beats are taken with
those of the first pixel, and kept for the rest of the frame.
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
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.kept import LATENCY, count_kept, keep
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.lookup import delayed
from hwgen.gateware.naming import named
from hwgen.gateware.stream import BeatFormat, channels_layout, numbered


@dataclass(frozen=True, kw_only=True)
class JoinConfig:
    """How beats of several inputs are taken: a step takes one of each, or of one of them in turn.

    Parameters
    ----------
    inputs : tuple of BeatFormat
        The streams that come in: maps of the same rows and columns, with as many pixels a beat.
    in_turn : bool
        A step takes one beat: all of a pixel of the first input, then those of the second, and so on. Otherwise it
        takes a beat of each input; they have the same channels, and as many a beat.
    spread : bool
        The last input is a map of one pixel, for all pixels of the others.

    Raises
    ------
    ConfigError
        If the inputs don't go together.
    """

    inputs: tuple[BeatFormat, ...]
    in_turn: bool = False
    spread: bool = False

    #: Cycles of an output fold.
    steps = 1
    #: Rows that are stored: none.
    rows = least_rows = 0

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
        """Cycles from a step being issued to its beats being on ``o``."""
        return 1 + LATENCY * self.spread

    @property
    def input(self) -> BeatFormat:
        """The first of the streams."""
        return self.inputs[0]

    @property
    def lanes(self) -> int:
        """Channels of a step."""
        return self.input.lanes

    @property
    def pixels(self) -> int:
        """``Tp``: pixels of a step."""
        return self.input.pixels

    @property
    def windows(self) -> int:
        """Groups of ``Tp`` pixels a frame."""
        return self.input.height * self.row_steps

    @property
    def step_channels(self) -> tuple[range, ...]:
        """Channels of the output that each step of a pixel gives."""
        found: list[range] = []
        before = 0
        for beat in self.inputs if self.in_turn else self.inputs[:1]:
            found += [range(before + part.start, before + part.stop) for part in beat.fold_channels]
            before += beat.channels
        return tuple(found)

    @property
    def output_folds(self) -> int:
        """Steps a pixel."""
        return sum(beat.folds for beat in (self.inputs if self.in_turn else self.inputs[:1]))

    @property
    def window_cycles(self) -> int:
        """Steps of a group of pixels."""
        return self.output_folds

    @property
    def output_width(self) -> int:
        return self.input.width

    @property
    def row_steps(self) -> int:
        """Groups of ``Tp`` pixels a row."""
        return self.input.row_steps

    def taking(self, place: int) -> tuple[tuple[int, ...], tuple[Any, ...]]:
        """Which steps take a beat of an input, as an index into an array of steps: of a pixel, or of a frame."""
        if self.spread and place == len(self.inputs) - 1:
            return (self.windows, self.output_folds), (slice(None), 0, slice(None))
        if not self.in_turn:
            return (self.output_folds,), (slice(None), slice(None))
        begin = self.step_inputs.index(place)
        return (self.output_folds,), (slice(None), slice(begin, begin + self.inputs[place].folds))

    @cached_property
    def step_inputs(self) -> tuple[int, ...]:
        """Where inputs come in turn: the one that each step of a pixel takes."""
        return tuple(number for number, beat in enumerate(self.inputs) for _ in range(beat.folds))

    @property
    def step_layout(self) -> data.StructLayout:
        """One step: ``operand_N[lane][pixel]`` of each input; of one that is spread there is one pixel.

        Or the one ``operand``, in the low bits of the widest input's values, and whose ``source`` it is.
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
        cost = Cost()
        folds, count = counter_bits(self.output_folds), len(self.inputs)
        cost.ff += folds + 1
        cost.lut += 1.5 * folds + 2 * (count - 1) * self.in_turn
        if self.in_turn:
            bits = self.step_layout.size
            cost.ff += bits
            cost.lut += bits * (-(-count // 4) if count > 1 else 0)
        else:
            *others, last = self.inputs
            cost.delay(sum(beat.data_bits for beat in others), self.latency)
            cost.ff += last.data_bits
        if self.spread:
            windows = counter_bits(self.windows)
            count_kept(cost, last.data_bits, last.folds)
            cost.ff += windows + counter_bits(last.folds) + 1 + LATENCY
            cost.lut += 1.5 * windows + 3
        return cost.resources

    def component(self) -> Join:
        return Join(self)


@dataclass(frozen=True, kw_only=True)
class OneMapConfig:
    """A walk over one map without a line buffer: what those that give its values in another order have in common.

    Parameters
    ----------
    input : BeatFormat
        The stream that comes in.
    """

    input: BeatFormat

    #: Cycles of an output fold.
    steps = 1
    #: Rows of a line buffer: there is none.
    rows = least_rows = 0
    #: Steps hold values of the one input.
    in_turn = True

    @property
    def inputs(self) -> tuple[BeatFormat, ...]:
        return (self.input,)

    @property
    def pixels(self) -> int:
        """``Tp``: pixels of a step, as of a beat that comes in."""
        return self.input.pixels

    @property
    def output_height(self) -> int:
        return self.input.height

    @property
    def output_width(self) -> int:
        return self.input.width

    @property
    def row_steps(self) -> int:
        """Groups of ``Tp`` pixels in a row of the output."""
        return -(-self.output_width // self.pixels)

    @property
    def windows(self) -> int:
        """Groups of ``Tp`` pixels a frame."""
        return self.output_height * self.row_steps

    @property
    def step_channels(self) -> tuple[range, ...]:
        """Channels of the output that each step of a pixel gives."""
        return self.input.fold_channels

    @property
    def output_folds(self) -> int:
        """Steps of a pixel."""
        return len(self.step_channels)

    @property
    def window_cycles(self) -> int:
        """Steps of a group of pixels."""
        return self.output_folds


def walk_ports(config: Any) -> dict[str, wiring.Member]:
    """The ports of a walk without a line buffer: those of `Join`, for as many inputs as ``config`` has."""
    count = len(config.inputs)
    return {
        **{numbered("i", number, count): In(beat.signature) for number, beat in enumerate(config.inputs)},
        "room": In(1),
        "fold": Out(range(config.output_folds)),
        "start": Out(1),
        "o": Out(stream.Signature(config.step_layout, always_ready=True)),
    }


class Join(wiring.Component):
    """Takes the beats of a step when all of them are there and there is room behind.

    Parameters
    ----------
    config : JoinConfig

    Members
    -------
    i, or i_0, i_1, .. : In(stream)
        The inputs.
    room : In(1)
        There is room for what the next step gives.
    fold : Out
        Number of the next step within its pixel.
    start : Out(1)
        A step is taken.
    o : Out(stream, always ready)
        Steps, ``config.latency`` cycles after they were taken.
    """

    def __init__(self, config: JoinConfig):
        self._config = config
        super().__init__(walk_ports(config))

    @property
    def config(self) -> JoinConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        config, count = self.config, len(self.config.inputs)
        inputs = [getattr(self, numbered("i", number, count)) for number in range(count)]
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
            m.d.comb += self.start.eq(self.room & Cat(each.valid for each in inputs).all())
            for number, each in enumerate(inputs):
                m.d.comb += each.ready.eq(self.start)
                m.d.sync += step[f"operand_{number}"].eq(each.payload.data)
        return m

    def _elaborate_spread(self, m: Module, inputs: list[Any], step: data.View) -> None:
        """A beat of the last input is taken with the first pixel's, and kept."""
        config = self.config
        *others, last = inputs
        window = Signal(range(config.windows), name="window_index")
        first = Signal(name="is_first_window")
        m.d.comb += [
            first.eq(window == 0),
            self.start.eq(self.room & Cat(each.valid for each in others).all() & (last.valid | ~first)),
            last.ready.eq(self.start & first),
        ]
        with m.If(self.start & (self.fold == config.output_folds - 1)):
            m.d.sync += window.eq(Mux(window == config.windows - 1, 0, window + 1))
        fold = Signal.like(self.fold, name="write_fold_index", reset_less=True)
        write = Signal(name="write_enable")
        m.d.sync += [fold.eq(self.fold), write.eq(self.start & first)]
        for number, each in enumerate(inputs):
            name = f"operand_{number}"
            m.d.sync += step[name].eq(each.payload.data)
            if each is last:
                word = keep(m, "shared_beats", config.inputs[-1].folds, Value.cast(step[name]), fold, write)
            else:
                m.d.comb += each.ready.eq(self.start)
                word = delayed(m, name, Value.cast(step[name]), LATENCY)
            m.d.comb += Value.cast(self.o.payload[name]).eq(word)

    def _elaborate_turns(self, m: Module, inputs: list[Any], step: data.View) -> None:
        config = self.config
        turn = Signal(range(len(inputs)), name="input_index")
        with m.Switch(self.fold):
            for fold, number in enumerate(config.step_inputs):
                with m.Case(fold):
                    m.d.comb += turn.eq(number)
        valid = named(Cat(each.valid for each in inputs).bit_select(turn, 1), "is_input_valid")
        m.d.comb += self.start.eq(self.room & valid)
        m.d.sync += step.source.eq(turn)
        with m.Switch(turn):
            for number, each in enumerate(inputs):
                with m.Case(number):
                    m.d.comb += each.ready.eq(self.start)
                    m.d.sync += [
                        step.operand[lane][pixel].eq(each.payload.data[lane][pixel].as_unsigned())
                        for lane, pixel in product(range(config.input.lanes), range(config.pixels))
                    ]


@dataclass(frozen=True, kw_only=True)
class JoinLayerConfig(LayerConfig):
    """The hardware of a layer without a line buffer; its ``window`` is a `JoinConfig`.

    Parameters and errors are those of `LayerConfig`.
    """

    rows_alike = False
    has_line_buffer = False

    @property
    def join(self) -> Any:
        """The walk; what is said of it here holds for other walks without a line buffer, too."""
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
        """The same: there are no rows."""
        return self
