"""Tables of per-channel parameters, such as biases and scales, and their lookup for each beat of a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amaranth import Const, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import memory, wiring

from hwgen.errors import ConfigError
from hwgen.gateware.component import AnyConfig, ConfiguredComponent, ForDevice, OnDevice
from hwgen.gateware.cost import (
    Cost,
    varying_columns,
)
from hwgen.gateware.lookup import bits_for_range, delayed, read_port
from hwgen.gateware.stream import channels_layout, pipeline_ports


class ChannelTables(ForDevice, ABC):
    """Base class of configurations with tables of per-channel parameters (biases, scales), read once per stream beat.

    ``beats`` has the channels of each beat of a pixel, lane 0 first. ``tables_in`` is the memory of the tables, ``lut``
    or ``block`` RAM. By default, the number of beats decides.
    """

    lanes: Any
    pixels: Any
    beats: Any
    tables_in: Any

    @property
    @abstractmethod
    def tables(self) -> dict[str, list[tuple[int, ...]]]:
        """Dictionary: parameter name (``bias``) to a list, per lane, of tuples with one integer per beat of a pixel."""

    def table(self, values: Sequence[int]) -> list[tuple[int, ...]]:
        """Return per-channel values as a list over lanes of tuples, with one value per beat of a pixel.

        If a beat has no channel in a lane, another value of the lane fills the entry.
        """
        lanes = []
        for lane in range(self.lanes):
            column = [values[beat[lane]] if lane < len(beat) else None for beat in self.beats]
            filler = next((value for value in column if value is not None), 0)
            lanes.append(tuple(filler if value is None else value for value in column))
        return lanes

    @property
    def present(self) -> list[tuple[int, ...]]:
        """List, per lane, of tuples with a bit per beat of a pixel: 1 if the lane has a channel in the beat, else 0."""
        return [tuple(int(lane < len(beat)) for beat in self.beats) for lane in range(self.lanes)]

    @property
    def needs_beat_index(self) -> bool:
        """Whether the component counts the beats of a pixel, because some lane's parameters differ by beat."""
        return any(len(set(column)) > 1 for table in self.tables.values() for column in table)

    @property
    def tables_in_block_ram(self) -> bool:
        """Whether the parameter tables are in block RAM: as ``tables_in`` says; by default, if a pixel has many beats.

        The output registers of block RAM add one cycle to the lookup.
        """
        return (self.tables_in or self.memories.default_ram(len(self.beats))) == "block"

    def _add_table_cost(self, cost: Cost, name: str) -> bool:
        """Add the cost of parameter table ``name``'s memory; return ``False`` if constants replace the memory."""
        varying = [column for column in self.tables[name] if len(set(column)) > 1]
        columns: list[int] = []
        for values in () if self.tables_in_block_ram else varying:
            width = narrowest_shape(values).width
            columns += varying_columns([value % (1 << width) for value in values], width)
        if varying:
            width = sum(narrowest_shape(values).width for values in varying)
            cost.rom(columns, len(self.beats), width, block=self.tables_in_block_ram)
        return bool(varying)


@dataclass(frozen=True, kw_only=True)
class ChannelsConfig(OnDevice, ChannelTables):
    """Base class of configurations of a layer's last component, which adds biases to accumulators or requantises them.

    The subclasses are `AddBiasConfig` and `ScaledChannelsConfig`. ``tables_in`` is the memory of the tables, ``lut`` or
    ``block`` RAM. By default, the number of beats decides.
    """

    lanes: int
    accumulator_bits: int
    bias: tuple[int, ...]
    beats: tuple[tuple[int, ...], ...]
    pixels: int = 1
    tables_in: str | None = None

    def __post_init__(self) -> None:
        for name in ("lanes", "accumulator_bits", "pixels"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be a positive integer, not {getattr(self, name)!r}")
        if self.tables_in not in (None, "lut", "block"):
            raise ConfigError(f"tables_in must be 'lut', 'block' or None, not {self.tables_in!r}")
        if not self.beats:
            raise ConfigError(f"beats must not be empty, not {self.beats!r}")
        if not all(1 <= len(beat) <= self.lanes for beat in self.beats):
            raise ConfigError(f"beats must carry between 1 and {self.lanes} channels each, not {self.beats!r}")
        if sorted(channel for beat in self.beats for channel in beat) != list(range(self.channels)):
            raise ConfigError(
                f"beats must carry each of the {self.channels} channels that have a bias once, not {self.beats!r}"
            )

    @property
    def channels(self) -> int:
        """Number of output channels of the layer; each has one bias."""
        return len(self.bias)

    @property
    def accumulator(self) -> Shape:
        """Amaranth shape of one input value, a signed accumulator."""
        return signed(self.accumulator_bits)


@dataclass(frozen=True, kw_only=True)
class ScaledChannelsConfig(ChannelsConfig):
    """Base class of requantiser configurations: scale of each channel, zero point, and bounds of the outputs."""

    significand: tuple[int, ...]
    shift: tuple[int, ...]
    zero_point: int
    low: int
    high: int
    bits: int
    signed: bool

    @property
    def output(self) -> Shape:
        """Amaranth shape of one requantised output."""
        return Shape(self.bits, self.signed)

    def _check_outputs(self) -> None:
        """Raise ConfigError if the zero point or a bound of the outputs is outside of the output's integer type."""
        lowest = -(1 << (self.bits - 1)) if self.signed else 0
        highest = lowest + (1 << self.bits) - 1
        for name in ("zero_point", "low", "high"):
            if not lowest <= getattr(self, name) <= highest:
                raise ConfigError(f"{name} must be between {lowest} and {highest}, not {getattr(self, name)!r}")


class ChannelsComponent(ConfiguredComponent[AnyConfig]):
    """Base class of components that convert one beat of accumulators per cycle to one beat of a layer's outputs.

    Parameters
    ----------
    config : dataclass
        Configuration with the fields ``lanes`` and ``pixels``, and the shapes ``accumulator`` and ``output``.
    ports : Member
        Further ports, by name.
    """

    def __init__(self, config: AnyConfig, **ports: wiring.Member):
        shapes = (config.accumulator, config.output)
        streams = pipeline_ports(*(channels_layout(shape, config.lanes, config.pixels) for shape in shapes))
        super().__init__(config, {**streams, **ports})


def _pack(fields: Sequence[tuple[int, int]]) -> int:
    """Return a memory word, an integer, of ``fields``, pairs of value and width in bits, the first one lowest."""
    word = start = 0
    for value, width in fields:
        word |= value % (1 << width) << start
        start += width
    return word


def narrowest_shape(values: Sequence[int]) -> Shape:
    """Return the narrowest Amaranth shape that represents all integers ``values``."""
    return bits_for_range(min(values), max(values))


class Beats:
    """Timing of a layer's last component: delays valid bit and beat index, and reads per-channel parameters."""

    def __init__(self, m: Module, config: ChannelTables, valid: Value):
        self._m, self._config = m, config
        self._valid = [valid]
        last = len(config.beats) - 1
        beat_index = Signal(range(last + 1), name="beat_index")
        with m.If(valid):
            m.d.sync += beat_index.eq(Mux(beat_index == last, 0, beat_index + 1))
        self._indices: list[Value] = [beat_index]

    def valid(self, cycle: int) -> Value:
        """Return the input stream's valid bit, delayed by ``cycle`` cycles; registers are added when first needed."""
        for stage in range(len(self._valid), cycle + 1):
            self._valid.append(delayed(self._m, f"valid_{stage}", self._valid[-1], 1, reset_less=False))
        return self._valid[cycle]

    def beat_index(self, cycle: int) -> Value:
        """Return the index of a beat in its pixel, a `Value` delayed by ``cycle`` cycles, with registers as needed."""
        for stage in range(len(self._indices), cycle + 1):
            self._indices.append(delayed(self._m, f"beat_index_{stage}", self._indices[-1], 1))
        return self._indices[cycle]

    def read(self, name: str, cycle: int) -> list[Value]:
        """Add the memory of parameter table ``name``; return a list: the parameter of each value of a beat.

        The beat arrived ``cycle`` cycles ago. ``cycle`` is at least 1, or at least 2 if the tables are in block RAM:
        block RAM needs its output register, because it is too slow for the logic that follows.
        """
        m, table = self._m, self._config.tables[name]
        varying = [lane for lane, column in enumerate(table) if len(set(column)) > 1]
        values: list[Value] = [Const(column[0], narrowest_shape(column)) for column in table]
        if not varying:
            return self._by_pixel(values)
        registered = int(self._config.tables_in_block_ram)
        words = [
            _pack([(table[lane][beat], narrowest_shape(table[lane]).width) for lane in varying])
            for beat in range(len(table[0]))
        ]
        width = sum(narrowest_shape(table[lane]).width for lane in varying)
        style = self._config.memories.rom_style(len(words), self._config.tables_in)
        m.submodules[name] = rom = memory.Memory(shape=width, depth=len(words), init=words, attrs=style)
        port = read_port(rom)
        m.d.comb += port.addr.eq(self.beat_index(cycle - registered - 1))
        entry = delayed(m, f"{name}_entry", port.data, registered)
        start = 0
        for lane in varying:
            shape = narrowest_shape(table[lane])
            value = entry[start : start + shape.width]
            values[lane] = value.as_signed() if shape.signed else value
            start += shape.width
        return self._by_pixel(values)

    def _by_pixel(self, values: list[Value]) -> list[Value]:
        """Return a flat list of ``values``, one per lane, each repeated ``Tp`` times, once per pixel of a beat."""
        return [value for value in values for _ in range(self._config.pixels)]


def beat_values(port: Any) -> list[Value]:
    """Return the signals of all values of a stream port's beat as a flat list: lane by lane, then pixel by pixel."""
    return [value for channel in port.payload for value in channel]
