"""Width converter between the beats of an accelerator's stream and the words of an AXI4-Stream.

Values keep their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd

from amaranth import Module, Mux, Shape, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent, OnDevice
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.stream import BeatFormat


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """Division of a frame into pieces (stream beats or bus words): number of values in each, and number of pieces.

    Parameters
    ----------
    sizes : tuple of int
        Numbers of values in successive pieces. The sequence repeats.
    count : int
        Number of pieces per frame.
    final : int
        Number of values in the last piece of a frame.

    Raises
    ------
    ConfigError
        If a parameter is not positive, or the last piece is larger than every other piece.
    """

    sizes: tuple[int, ...]
    count: int
    final: int

    def __post_init__(self) -> None:
        if not self.sizes or min(*self.sizes, self.count, self.final) < 1:
            raise ConfigError(f"sizes, count and final must be positive integers, not {self!r}")
        if self.final > self.max_values:
            raise ConfigError(f"final must be at most {self.max_values}, not {self.final}")

    @classmethod
    def of_beats(cls, beat: BeatFormat, beats: int) -> Pieces:
        """Return how many values of a frame each beat of an accelerator's stream carries, as `Pieces`.

        Unused lanes after a group's last channel do not count.
        """
        sizes = tuple(len(channels) * beat.pixels for channels in beat.fold_channels)
        return cls(sizes=sizes[:1] if len(set(sizes)) == 1 else sizes, count=beats, final=sizes[-1])

    @classmethod
    def of_words(cls, size: int, values: int) -> Pieces:
        """Return how many values of a frame each bus word of ``size`` values carries, as `Pieces`.

        The last word of a frame has the remaining values.
        """
        count = -(-values // size)
        return cls(sizes=(size,), count=count, final=values - (count - 1) * size)

    @property
    def max_values(self) -> int:
        """Number of values in the largest piece (beat or word) of a frame."""
        return max(self.sizes)

    @property
    def min_values(self) -> int:
        """Number of values in the smallest piece (beat or word) of a frame."""
        return min(*self.sizes, self.final)

    @property
    def values(self) -> int:
        """Total number of values in a frame."""
        rounds, rest = divmod(self.count - 1, len(self.sizes))
        return rounds * sum(self.sizes) + sum(self.sizes[:rest]) + self.final


#: Pairs for a width converter: maximum number of units in an input piece (0: any number), measured LUTs per stored bit.
_SLOT_LUTS = ((1, 0.8), (2, 1.0), (3, 1.4), (4, 2.6), (8, 4.5), (0, 5.1))


@dataclass(frozen=True, kw_only=True)
class RepackConfig(OnDevice):
    """Configuration of a width converter between a stream's beats and a bus's words of another size.

    Parameters
    ----------
    shape : Shape
        Shape of a value.
    takes, gives : Pieces
        Divisions of a frame at the input and at the output.

    Raises
    ------
    ConfigError
        If a frame has different numbers of values at input and output.
    """

    shape: Shape
    takes: Pieces
    gives: Pieces

    def __post_init__(self) -> None:
        if self.takes.values != self.gives.values:
            raise ConfigError(f"values of a frame must be {self.takes.values} on either side, not {self.gives.values}")

    @cached_property
    def unit(self) -> int:
        """Number of values per unit: the largest group of consecutive values that no input or output piece splits."""
        sides = self.takes, self.gives
        return gcd(*(size for side in sides for size in (*side.sizes, side.final)))

    @cached_property
    def depth(self) -> int:
        """Number of units (`unit` values each) that the width converter's registers hold.

        It is the minimum that lets either side wait only for the other. The handshakes of both sides are independent
        within a cycle, which takes room for one more of the smaller pieces. If pieces have several sizes, there is also
        room for the difference.
        """
        takes, gives = self.takes, self.gives
        values = takes.max_values + gives.max_values + min(takes.max_values, gives.max_values) - self.unit
        spread = takes.max_values - takes.min_values + gives.max_values - gives.min_values
        return (values + spread) // self.unit

    @property
    def interval(self) -> int:
        """Cycles per frame of the width converter without stalls: a cycle per piece on the side with more pieces."""
        return max(self.takes.count, self.gives.count)

    @cached_property
    def resources(self) -> Resources:
        cost, bits = Cost(self.device), self.depth * self.unit * self.shape.width
        level = counter_bits(self.depth + 1)
        counters = counter_bits(self.gives.count) + counter_bits(len(self.gives.sizes))
        if self.takes.min_values < self.takes.max_values:  # otherwise the index of the input piece is not used
            counters += counter_bits(self.takes.count) + counter_bits(len(self.takes.sizes))
        cost.ff += bits + level + counters
        units = self.takes.max_values // self.unit
        bit_luts = next(luts for max_units, luts in _SLOT_LUTS if units <= max_units or max_units == 0)
        shifts = len({*self.gives.sizes, self.gives.final})
        cost.lut += bits * (bit_luts + (0.8 if shifts > 1 else 0)) + 3 * level + counters
        return cost.resources

    def component(self) -> Repack:
        return Repack(self)


class Repack(ConfiguredComponent[RepackConfig]):
    """Width converter that accepts a frame's values in pieces of one size and sends them in pieces of another size.

    A few pieces are stored in registers (slots), whose values move towards slot 0 as pieces leave.

    Parameters
    ----------
    config : RepackConfig

    Members
    -------
    i : In(stream)
        Pieces by ``config.takes``, with their values in the lowest positions. Other positions are ignored.
    o : Out(stream)
        ``data``: pieces by ``config.gives``, with zeros above their values. ``last``: last piece of a frame.

    Latency and throughput
        A piece can leave in the cycle after its last value arrived. A frame takes ``config.interval`` cycles.
    Reset
        Stored values are dropped. The next piece is the first piece of a frame.
    """

    def __init__(self, config: RepackConfig):
        output = data.StructLayout({"data": data.ArrayLayout(config.shape, config.gives.max_values), "last": 1})
        super().__init__(
            config,
            {
                "i": In(stream.Signature(data.ArrayLayout(config.shape, config.takes.max_values))),
                "o": Out(stream.Signature(output)),
            },
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        unit, depth = config.unit, config.depth
        width = unit * config.shape.width
        slots = [Signal(width, name=f"slot_{index}", reset_less=True) for index in range(depth)]
        level = Signal(range(depth + 1), name="units_held")
        take, give = Signal(name="input_transfer"), Signal(name="output_transfer")
        input_units, _ = _add_piece_counter(m, "input", config.takes, unit, take)
        output_units, last = _add_piece_counter(m, "output", config.gives, unit, give)
        m.d.comb += [
            self.i.ready.eq(level <= depth - config.takes.max_values // unit),
            take.eq(self.i.valid & self.i.ready),
            self.o.valid.eq(level >= output_units),
            give.eq(self.o.valid & self.o.ready),
            self.o.payload.last.eq(last),
        ]
        piece = self.o.payload.data.as_value()
        for index, slot in enumerate(slots[: config.gives.max_values // unit]):
            value = slot if index < config.gives.min_values // unit else Mux(index < output_units, slot, 0)
            m.d.comb += piece[index * width : (index + 1) * width].eq(value)
        kept = Signal.like(level, name="units_kept")
        m.d.comb += kept.eq(Mux(give, level - output_units, level))
        m.d.sync += level.eq(kept + Mux(take, input_units, 0))

        piece = self.i.payload.as_value()
        index_bits = counter_bits(config.takes.max_values // unit)
        for index, slot in enumerate(slots):
            moved = Mux(give, self._shifted_slot(slots, index, output_units), slot)
            # An input piece follows the units that are kept. Slots above the piece get undefined values.
            source = (index - kept)[:index_bits]
            m.d.sync += slot.eq(Mux(index < kept, moved, piece.word_select(source, width)))
        return m

    def _shifted_slot(self, slots: list[Signal], index: int, units: Value) -> Value:
        """Return the `Value` that storage register ``index`` loads as an output piece of ``units`` units leaves."""
        gives, unit = self.config.gives, self.config.unit
        sizes = sorted({size // unit for size in (*gives.sizes, gives.final)})
        value: Value | None = None
        for size in (size for size in sizes if index + size < len(slots)):
            value = slots[index + size] if value is None else Mux(units == size, slots[index + size], value)
        return slots[index] if value is None else value


def _add_piece_counter(m: Module, name: str, pieces: Pieces, unit: int, move: Value) -> tuple[Value, Value]:
    """Add a counter of a frame's pieces; return a pair: the current piece's size in units, and if it is the last."""
    piece, last = Signal(range(pieces.count), name=f"{name}_piece_index"), Signal(name=f"{name}_is_last")
    m.d.comb += last.eq(piece == pieces.count - 1)
    sizes = [size // unit for size in pieces.sizes]
    size = Signal(range(pieces.max_values // unit + 1), name=f"{name}_units")
    m.d.comb += size.eq(sizes[0])
    if len(sizes) > 1:
        fold = Signal(range(len(sizes)), name=f"{name}_size_index")
        with m.Switch(fold):
            for index, units in enumerate(sizes):
                with m.Case(index):
                    m.d.comb += size.eq(units)
        with m.If(move):
            m.d.sync += fold.eq(Mux(last | (fold == len(sizes) - 1), 0, fold + 1))
    if pieces.final != pieces.sizes[(pieces.count - 1) % len(sizes)]:
        with m.If(last):
            m.d.comb += size.eq(pieces.final // unit)
    with m.If(move):
        m.d.sync += piece.eq(Mux(last, 0, piece + 1))
    return size, last
