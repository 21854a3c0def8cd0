"""Streams: the format of a beat, and the connection that checks it."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth import Module, Shape
from amaranth.hdl import ShapeLike
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class BeatFormat:
    """How one feature map travels as a stream.

    Pixels go in row-major order (or that of an `Order`), the ``folds`` beats of a pixel innermost. A beat carries
    ``lanes`` channels of ``pixels`` neighbouring pixels of a row, the lowest channel in the lowest bits, the pixels of
    a channel side by side (``data[lane][pixel]``). Lanes past the last channel of a group are zero, pixels past the end
    of a row may be anything. ``last``, the top bit of the payload, marks the last beat of a frame.

    Parameters
    ----------
    channels, height, width : int
        The feature map, ``C x H x W``.
    lanes : int
        Channels a beat (DeCoILFNet's depth concatenation, section III-B).
    bits : int
        Width of one value.
    signed : bool
        Whether values are two's complement.
    pixels : int
        Neighbouring pixels a beat.
    groups : int
        Groups of channels that don't share a beat (for a grouped convolution).

    Raises
    ------
    ConfigError
        If a size is not positive, or the channels are not a multiple of the groups.
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
        """Beats a pixel and group."""
        return -(-self.channels // self.groups // self.lanes)

    @property
    def folds(self) -> int:
        """Beats a pixel (or a beat's worth of pixels)."""
        return self.groups * self.group_folds

    @property
    def fold_channels(self) -> tuple[range, ...]:
        """Channels that each beat of a pixel carries."""
        size = self.channels // self.groups
        return tuple(
            range(group * size + first, group * size + min(first + self.lanes, size))
            for group in range(self.groups)
            for first in range(0, size, self.lanes)
        )

    @property
    def frame_pixels(self) -> int:
        """Pixels a frame."""
        return self.height * self.width

    @property
    def row_steps(self) -> int:
        """Beats a row and fold: ``ceil(W / pixels)``."""
        return -(-self.width // self.pixels)

    @property
    def beats(self) -> int:
        """Beats a frame."""
        return self.height * self.row_steps * self.folds

    @property
    def raster(self) -> Order:
        """The row-major order: one rectangle."""
        return Order(rows=((0, self.height),), columns=((0, self.width),))

    @property
    def shape(self) -> Shape:
        """Shape of one value."""
        return Shape(self.bits, self.signed)

    @property
    def value_range(self) -> tuple[int, int]:
        """The least and the greatest value."""
        least = -(1 << (self.bits - 1)) if self.signed else 0
        return least, least + (1 << self.bits) - 1

    @property
    def value_bytes(self) -> int:
        """Bytes of a value in memory: 1, 2, 4, 8, ..., the least that hold it."""
        return 1 << max(0, (self.bits - 1).bit_length() - 3)

    @property
    def data_bits(self) -> int:
        """Width of a beat without ``last``."""
        return self.lanes * self.pixels * self.bits

    @property
    def layout(self) -> data.StructLayout:
        """Layout of the payload: ``data[lane][pixel]``, then ``last``."""
        return data.StructLayout({"data": channels_layout(self.shape, self.lanes, self.pixels), "last": 1})

    @property
    def signature(self) -> stream.Signature:
        return stream.Signature(self.layout)


@dataclass(frozen=True, kw_only=True)
class Order:
    """In which order the pixels of a map travel: rectangle by rectangle, the rows of each one after the other.

    Every span of rows meets every span of columns, in row-major order. Spans may overlap or leave gaps: a pixel may
    travel several times, or never.

    Parameters
    ----------
    rows, columns : tuple of (int, int)
        Begin and end of each span; none is empty.
    grids : tuple of int
        For each span of columns one at which a beat begins: the row of a rectangle is cut into beats before the columns
        ``c`` with ``(c - grid) % pixels == 0``. All 0 if not given. The first and the last beat of the row may have
        lanes outside the rectangle, which may hold anything.

    Raises
    ------
    ConfigError
        If there is no span, or one is empty or begins before the map, or there are not as many grids as columns' spans.
    """

    rows: tuple[tuple[int, int], ...]
    columns: tuple[tuple[int, int], ...]
    grids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("rows", "columns"):
            spans = getattr(self, name)
            if not spans or not all(0 <= begin < end for begin, end in spans):
                raise ConfigError(f"{name} must be spans of at least one pixel of the map, not {spans!r}")
        if self.grids and len(self.grids) != len(self.columns):
            raise ConfigError(f"grids must be as many as the {len(self.columns)} spans of columns, not {self.grids!r}")

    @property
    def frame_pixels(self) -> int:
        """Pixels that travel in a frame."""
        return sum(end - begin for begin, end in self.rows) * sum(end - begin for begin, end in self.columns)

    def beat_columns(self, pixels: int) -> tuple[range, ...]:
        """For each span of columns, the column in the first lane of each beat."""
        grids = self.grids or (0,) * len(self.columns)
        return tuple(
            range(begin - (begin - grid) % pixels, end, pixels)
            for (begin, end), grid in zip(self.columns, grids, strict=True)
        )

    def steps(self, beat: BeatFormat) -> int:
        """Beats a frame and fold."""
        columns = sum(map(len, self.beat_columns(beat.pixels)))
        return sum(end - begin for begin, end in self.rows) * columns

    def beats(self, beat: BeatFormat) -> int:
        """Beats a frame."""
        return self.steps(beat) * beat.folds


@dataclass(frozen=True)
class Port:
    """A stream that enters or leaves a component: its name, what a beat holds, and in which order pixels travel."""

    name: str
    beat: BeatFormat
    order: Order

    @property
    def beats(self) -> int:
        """Beats a frame."""
        return self.order.beats(self.beat)


def channels_layout(shape: ShapeLike, lanes: int, pixels: int) -> data.ArrayLayout:
    """Layout of ``lanes`` channels at ``pixels`` pixels, ``[lane][pixel]``: the pixels of a channel side by side."""
    return data.ArrayLayout(data.ArrayLayout(shape, pixels), lanes)


def pipeline_ports(taken: ShapeLike, given: ShapeLike) -> dict[str, wiring.Member]:
    """The ports of a pipeline that never stalls: ``i`` and ``o``, streams that are always ready."""
    return {"i": In(stream.Signature(taken, always_ready=True)), "o": Out(stream.Signature(given, always_ready=True))}


def at_pixel(name: str, pixel: int, pixels: int) -> str:
    """The name of what there is for each of a beat's pixels; ``name`` itself if that is one."""
    return name if pixels == 1 else f"{name}_pixel_{pixel}"


def numbered(name: str, number: int, count: int) -> str:
    """The name of one of several streams, or of what belongs to it; ``name`` itself if there is but one."""
    return name if count == 1 else f"{name}_{number}"


def join(m: Module, *, source: wiring.PureInterface, sink: wiring.PureInterface) -> None:
    """Connect two streams after checking that their payloads are of one shape.

    ``wiring.connect`` compares widths only: signs and layouts would mix silently.

    Raises
    ------
    ConfigError
        If the payload shapes differ.
    """
    if not _same(source.payload.shape(), sink.payload.shape()):
        raise ConfigError(f"payload shapes must be equal, not {source.payload.shape()!r} and {sink.payload.shape()!r}")
    wiring.connect(m, source=source, sink=sink)


def _same(one: ShapeLike, other: ShapeLike) -> bool:
    """Whether two shapes are equal down to the last field. Amaranth compares the widths of nested layouts only."""
    if isinstance(one, data.Layout) and isinstance(other, data.Layout):
        fields, others = dict(one), dict(other)
        return list(fields) == list(others) and all(
            field.offset == others[name].offset and _same(field.shape, others[name].shape)
            for name, field in fields.items()
        )
    return one == other
