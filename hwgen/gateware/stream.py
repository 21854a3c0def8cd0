"""Streams: the format of a beat, and the connection that checks it."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth import Module, Shape
from amaranth.lib import data, stream, wiring

from hwgen.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class BeatFormat:
    """How one feature map travels as a stream.

    Pixels go in row-major order, the ``folds`` beats of a pixel innermost. A beat carries ``lanes`` channels of
    one pixel, the lowest channel in the lowest bits; lanes past the last channel are zero. ``last``, the top bit
    of the payload, marks the last beat of a frame.

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

    Raises
    ------
    ConfigError
        If a size is not positive.
    """

    channels: int
    height: int
    width: int
    lanes: int
    bits: int
    signed: bool

    def __post_init__(self) -> None:
        for name in ("channels", "height", "width", "lanes", "bits"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be a positive integer, not {getattr(self, name)!r}")

    @property
    def folds(self) -> int:
        """Beats a pixel."""
        return -(-self.channels // self.lanes)

    @property
    def pixels(self) -> int:
        """Pixels a frame."""
        return self.height * self.width

    @property
    def beats(self) -> int:
        """Beats a frame."""
        return self.pixels * self.folds

    @property
    def shape(self) -> Shape:
        """Shape of one value."""
        return Shape(self.bits, self.signed)

    @property
    def data_bits(self) -> int:
        """Width of a beat without ``last``."""
        return self.lanes * self.bits

    @property
    def layout(self) -> data.StructLayout:
        """Layout of the payload: ``data`` (an array of values), then ``last``."""
        return data.StructLayout({"data": data.ArrayLayout(self.shape, self.lanes), "last": 1})

    @property
    def signature(self) -> stream.Signature:
        return stream.Signature(self.layout)


def join(m: Module, *, source: wiring.PureInterface, sink: wiring.PureInterface) -> None:
    """Connect two streams after checking that their payloads are of one shape.

    ``wiring.connect`` compares widths only: signs and layouts would mix silently.

    Raises
    ------
    ConfigError
        If the payload shapes differ.
    """
    if source.payload.shape() != sink.payload.shape():
        raise ConfigError(f"payload shapes must be equal, not {source.payload.shape()!r} and {sink.payload.shape()!r}")
    wiring.connect(m, source=source, sink=sink)
