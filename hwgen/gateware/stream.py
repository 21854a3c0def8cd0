"""Streams of feature maps: the format of a beat, the order of pixels, and a connection that checks formats."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth import Module, Shape
from amaranth.hdl import ShapeLike
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class BeatFormat:
    """Format of a feature map as a stream of beats, each with some channels of some neighbouring pixels.

    Pixels travel in row-major order (or in an `Order`), and the ``folds`` beats of a pixel follow each other. A beat
    contains ``lanes`` channels of ``pixels`` neighbouring pixels of a row, ``data[lane][pixel]``. The lowest channel is
    in the lowest bits. Lanes past the last channel of a group are zero. Pixels past the end of a row are undefined.
    ``last``, the highest bit of the payload, marks the last beat of a frame.

    Parameters
    ----------
    channels, height, width : int
        Size of the feature map, ``C x H x W``.
    lanes : int
        Number of channels per beat (DeCoILFNet's depth concatenation, section III-B).
    bits : int
        Width of one value.
    signed : bool
        Whether values are two's complement numbers.
    pixels : int
        Number of neighbouring pixels per beat.
    groups : int
        Number of groups of channels. A beat contains channels of one group only (for grouped convolutions).

    Raises
    ------
    ConfigError
        If a size is not positive, or the number of channels is not a multiple of the number of groups.
    """

    channels: int
    height: int
    width: int
    lanes: int
    bits: int
    signed: bool
    pixels: int = 1
    groups: int = 1

    def __post_init__(self) -> None:
        for name in ("channels", "height", "width", "lanes", "bits", "pixels", "groups"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be a positive integer, not {getattr(self, name)!r}")
        if self.channels % self.groups:
            raise ConfigError(f"channels must be a multiple of the {self.groups} groups, not {self.channels!r}")

    @property
    def group_folds(self) -> int:
        """Number of beats per pixel that one channel group of the feature map takes."""
        return -(-self.channels // self.groups // self.lanes)

    @property
    def folds(self) -> int:
        """Number of beats that carry all channels of a pixel, or of the ``pixels`` neighbouring pixels of a beat."""
        return self.groups * self.group_folds

    @property
    def fold_channels(self) -> tuple[range, ...]:
        """Tuple of channels that each beat of a pixel carries, as one range of channel indices per beat, in order."""
        size = self.channels // self.groups
        return tuple(
            range(group * size + first, group * size + min(first + self.lanes, size))
            for group in range(self.groups)
            for first in range(0, size, self.lanes)
        )

    @property
    def frame_pixels(self) -> int:
        """Number of pixels per frame of the feature map."""
        return self.height * self.width

    @property
    def row_steps(self) -> int:
        """Number of beats of a map row that carry the same channels: ``ceil(W / pixels)``."""
        return -(-self.width // self.pixels)

    @property
    def last_pixels(self) -> int:
        """Number of pixels in the last beat of a map row."""
        return self.width - (self.row_steps - 1) * self.pixels

    @property
    def beats(self) -> int:
        """Number of beats per frame of the feature map."""
        return self.height * self.row_steps * self.folds

    @property
    def raster(self) -> Order:
        """Row-major order of all pixels of the map, as an `Order` of one rectangle."""
        return Order(rows=((0, self.height),), columns=((0, self.width),))

    @property
    def shape(self) -> Shape:
        """Amaranth shape of one value of the feature map."""
        return Shape(self.bits, self.signed)

    @property
    def value_range(self) -> tuple[int, int]:
        """Smallest and largest value of the feature map's value type, a pair of integers."""
        lowest = -(1 << (self.bits - 1)) if self.signed else 0
        return lowest, lowest + (1 << self.bits) - 1

    @property
    def value_bytes(self) -> int:
        """Number of bytes that one value of the feature map takes in memory, rounded up to a power of two."""
        return 1 << max(0, (self.bits - 1).bit_length() - 3)

    @property
    def data_bits(self) -> int:
        """Width in bits of a beat's values, without the flag ``last``."""
        return self.lanes * self.pixels * self.bits

    @property
    def layout(self) -> data.StructLayout:
        """Amaranth layout of a beat: values ``data[lane][pixel]``, then the flag ``last`` of a frame's last beat."""
        return data.StructLayout({"data": channels_layout(self.shape, self.lanes, self.pixels), "last": 1})

    @property
    def signature(self) -> stream.Signature:
        """Amaranth stream signature of an interface that transfers beats of this format."""
        return stream.Signature(self.layout)


@dataclass(frozen=True, kw_only=True)
class Order:
    """Order of a feature map's pixels in a stream: rectangle by rectangle (tiles), and row by row within each.

    The rectangles are all combinations of a span of rows and a span of columns, in row-major order. Spans can overlap
    or leave gaps: a pixel can travel several times, or never.

    Parameters
    ----------
    rows, columns : tuple of (int, int)
        Begin and end of each span. No span is empty.
    grids : tuple of int
        For each span of columns: a column where a beat begins. Beats begin at the columns ``c`` with
        ``(c - grid) % pixels == 0``. By default, all grids are 0. The first and the last beat of a row can have lanes
        outside of the rectangle, whose values are undefined.

    Raises
    ------
    ConfigError
        If there is no span; if a span is empty or begins before the map; or if there is not one grid per span of
        columns.
    """

    rows: tuple[tuple[int, int], ...]
    columns: tuple[tuple[int, int], ...]
    grids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("rows", "columns"):
            spans = getattr(self, name)
            if not spans or not all(0 <= begin < end for begin, end in spans):
                raise ConfigError(f"{name} must be one or more spans (begin, end) of at least one pixel, not {spans!r}")
        if self.grids and len(self.grids) != len(self.columns):
            raise ConfigError(f"grids must be as many as the {len(self.columns)} spans of columns, not {self.grids!r}")

    @property
    def frame_pixels(self) -> int:
        """Number of pixels that travel per frame; a pixel in several rectangles counts several times."""
        return sum(end - begin for begin, end in self.rows) * sum(end - begin for begin, end in self.columns)

    def beat_columns(self, pixels: int) -> tuple[range, ...]:
        """Return a tuple of the map columns where the beats of one row begin, as one range for each rectangle of a row.

        A beat contains ``pixels`` neighbouring pixels.
        """
        grids = self.grids or (0,) * len(self.columns)
        return tuple(
            range(begin - (begin - grid) % pixels, end, pixels)
            for (begin, end), grid in zip(self.columns, grids, strict=True)
        )

    def steps(self, beat: BeatFormat) -> int:
        """Return the number of groups of ``beat.pixels`` neighbouring pixels per frame that travel in this order."""
        columns = sum(map(len, self.beat_columns(beat.pixels)))
        return sum(end - begin for begin, end in self.rows) * columns

    def beats(self, beat: BeatFormat) -> int:
        """Return the number of beats of the format ``beat`` per frame, if its pixels travel in this order."""
        return self.steps(beat) * beat.folds


@dataclass(frozen=True)
class Port:
    """Feature-map port of a component: the name of its stream, its beat format, and the order of its pixels."""

    name: str
    beat: BeatFormat
    order: Order

    @property
    def beats(self) -> int:
        """Number of beats per frame that a component receives or sends at this port."""
        return self.order.beats(self.beat)


def channels_layout(shape: ShapeLike, lanes: int, pixels: int) -> data.ArrayLayout:
    """Return the array layout of ``lanes`` channels at ``pixels`` pixels, indexed ``[lane][pixel]``."""
    return data.ArrayLayout(data.ArrayLayout(shape, pixels), lanes)


def pipeline_ports(input_shape: ShapeLike, output_shape: ShapeLike) -> dict[str, wiring.Member]:
    """Return a dict from ``i`` and ``o`` to Amaranth members: streams, always ready, of a pipeline without stalls."""
    return {
        "i": In(stream.Signature(input_shape, always_ready=True)),
        "o": Out(stream.Signature(output_shape, always_ready=True)),
    }


def at_pixel(name: str, pixel: int, pixels: int) -> str:
    """Return the name of a signal of one pixel of a beat: ``NAME_pixel_INDEX``, or ``name`` if a beat is one pixel."""
    return name if pixels == 1 else f"{name}_pixel_{pixel}"


def numbered(name: str, index: int, count: int) -> str:
    """Return the name of one of ``count`` streams or components: ``NAME_INDEX``, or ``name`` itself if there is one."""
    return name if count == 1 else f"{name}_{index}"


def join(m: Module, *, source: wiring.PureInterface, sink: wiring.PureInterface) -> None:
    """Connect two streams, and raise ConfigError unless their payloads have equal shapes in all fields.

    ``wiring.connect`` compares only widths. It would connect different signs and layouts without an error.

    Raises
    ------
    ConfigError
        If the payload shapes differ.
    """
    if not _are_equal_shapes(source.payload.shape(), sink.payload.shape()):
        raise ConfigError(f"payload shapes must be equal, not {source.payload.shape()!r} and {sink.payload.shape()!r}")
    wiring.connect(m, source=source, sink=sink)


def _are_equal_shapes(one: ShapeLike, other: ShapeLike) -> bool:
    """Return whether two Amaranth shapes are equal in all fields.

    Amaranth compares only the widths of nested layouts.
    """
    if isinstance(one, data.Layout) and isinstance(other, data.Layout):
        fields, others = dict(one), dict(other)
        return list(fields) == list(others) and all(
            field.offset == others[name].offset and _are_equal_shapes(field.shape, others[name].shape)
            for name, field in fields.items()
        )
    return one == other
