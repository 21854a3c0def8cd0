"""From the beats of a stream to the words of another one: the same values in the same order, cut otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd

from amaranth import Module, Mux, Shape, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.stream import BeatFormat


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """How the values of a frame are cut into pieces: the beats of a stream, or the words of a bus.

    Parameters
    ----------
    sizes : tuple of int
        Values of the pieces, in turn.
    count : int
        Pieces a frame.
    final : int
        Values of a frame's last piece.

    Raises
    ------
    ConfigError
        If a number is not positive, or the last piece is larger than any other.
    """

    sizes: tuple[int, ...]
    count: int
    final: int

    def __post_init__(self) -> None:
        if not self.sizes or min(*self.sizes, self.count, self.final) < 1:
            raise ConfigError(f"sizes, count and final must be positive integers, not {self!r}")
        if self.final > self.most:
            raise ConfigError(f"final must be at most {self.most}, not {self.final}")

    @classmethod
    def of_beats(cls, beat: BeatFormat, beats: int) -> Pieces:
        """The beats of a stream; lanes past the last channel of a group don't count."""
        sizes = tuple(len(channels) * beat.pixels for channels in beat.fold_channels)
        return cls(sizes=sizes[:1] if len(set(sizes)) == 1 else sizes, count=beats, final=sizes[-1])

    @classmethod
    def of_words(cls, size: int, values: int) -> Pieces:
        """Words of so many values, but for the last one of a frame, which has what is left."""
        count = -(-values // size)
        return cls(sizes=(size,), count=count, final=values - (count - 1) * size)

    @property
    def most(self) -> int:
        """Values of the largest piece."""
        return max(self.sizes)

    @property
    def least(self) -> int:
        """Values of the smallest piece."""
        return min(*self.sizes, self.final)

    @property
    def values(self) -> int:
        """Values a frame."""
        rounds, rest = divmod(self.count - 1, len(self.sizes))
        return rounds * sum(self.sizes) + sum(self.sizes[:rest]) + self.final


#: LUTs a bit that is held, by the units of a piece that comes, at most so many (0: any number), as measured.
_SLOT_LUTS = ((1, 0.8), (2, 1.0), (3, 1.4), (4, 2.6), (8, 4.5), (0, 5.1))


@dataclass(frozen=True, kw_only=True)
class RepackConfig:
    """Values that come in pieces of one kind and leave in pieces of another.

    Parameters
    ----------
    shape : Shape
        Of a value.
    takes, gives : Pieces
        How a frame comes, and how it leaves.

    Raises
    ------
    ConfigError
        If a frame has not as many values on either side.
    """

    shape: Shape
    takes: Pieces
    gives: Pieces

    def __post_init__(self) -> None:
        if self.takes.values != self.gives.values:
            raise ConfigError(f"values of a frame must be {self.takes.values} on either side, not {self.gives.values}")

    @cached_property
    def unit(self) -> int:
        """Values that are never parted."""
        sides = self.takes, self.gives
        return gcd(*(size for side in sides for size in (*side.sizes, side.final)))

    @cached_property
    def depth(self) -> int:
        """Units that are held: the least that never make either side wait for another reason than the other side.

        Neither side's handshake depends on the other's in the same cycle, which takes the smaller of the two pieces
        more; where pieces are of several sizes, the difference waits.
        """
        takes, gives = self.takes, self.gives
        values = takes.most + gives.most + min(takes.most, gives.most) - self.unit
        return (values + takes.most - takes.least + gives.most - gives.least) // self.unit

    @property
    def interval(self) -> int:
        """Cycles a frame, if nobody stalls: a piece a cycle on the side that has more of them."""
        return max(self.takes.count, self.gives.count)

    @cached_property
    def resources(self) -> Resources:
        cost, bits = Cost(), self.depth * self.unit * self.shape.width
        level = counter_bits(self.depth + 1)
        counters = counter_bits(self.gives.count) + counter_bits(len(self.gives.sizes))
        if self.takes.least < self.takes.most:  # otherwise nobody asks which piece comes
            counters += counter_bits(self.takes.count) + counter_bits(len(self.takes.sizes))
        cost.ff += bits + level + counters
        units = self.takes.most // self.unit
        each = next(luts for most, luts in _SLOT_LUTS if units <= most or most == 0)
        shifts = len({*self.gives.sizes, self.gives.final})
        cost.lut += bits * (each + (0.8 if shifts > 1 else 0)) + 3 * level + counters
        return cost.resources

    def component(self) -> Repack:
        return Repack(self)


class Repack(wiring.Component):
    """Holds a few pieces, and moves values down to the bottom as they leave.

    Parameters
    ----------
    config : RepackConfig

    Members
    -------
    i : In(stream)
        Pieces as ``config.takes`` has them, their values from the lowest on; what is above them may be anything.
    o : Out(stream)
        ``data``: pieces as ``config.gives`` has them, zero above their values. ``last``: of a frame.

    Latency and throughput
        A piece can leave in the cycle after its last value came. ``config.interval`` cycles a frame.
    Reset
        Drops what is held; the next piece is the first of a frame.
    """

    def __init__(self, config: RepackConfig):
        self._config = config
        given = data.StructLayout({"data": data.ArrayLayout(config.shape, config.gives.most), "last": 1})
        super().__init__(
            {
                "i": In(stream.Signature(data.ArrayLayout(config.shape, config.takes.most))),
                "o": Out(stream.Signature(given)),
            }
        )

    @property
    def config(self) -> RepackConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        config = self.config
        unit, depth = config.unit, config.depth
        width = unit * config.shape.width
        slots = [Signal(width, name=f"slot_{number}", reset_less=True) for number in range(depth)]
        level = Signal(range(depth + 1), name="units_held")  # units held
        take, give = Signal(name="input_transfer"), Signal(name="output_transfer")
        taken, _ = _sizes(m, "input", config.takes, unit, take)
        given, last = _sizes(m, "output", config.gives, unit, give)
        m.d.comb += [
            self.i.ready.eq(level <= depth - config.takes.most // unit),
            take.eq(self.i.valid & self.i.ready),
            self.o.valid.eq(level >= given),
            give.eq(self.o.valid & self.o.ready),
            self.o.payload.last.eq(last),
        ]
        piece = self.o.payload.data.as_value()
        for number, slot in enumerate(slots[: config.gives.most // unit]):
            there = slot if number < config.gives.least // unit else Mux(number < given, slot, 0)
            m.d.comb += piece[number * width : (number + 1) * width].eq(there)
        kept = Signal.like(level, name="units_kept")
        m.d.comb += kept.eq(Mux(give, level - given, level))
        m.d.sync += level.eq(kept + Mux(take, taken, 0))

        piece = self.i.payload.as_value()
        places = counter_bits(config.takes.most // unit)
        for number, slot in enumerate(slots):
            moved = Mux(give, self._above(slots, number, given), slot)
            # A piece is put on top of what is kept; what comes above it may be anything.
            place = (number - kept)[:places]
            m.d.sync += slot.eq(Mux(number < kept, moved, piece.word_select(place, width)))
        return m

    def _above(self, slots: list[Signal], number: int, given: Value) -> Value:
        """What comes down into a slot when a piece leaves; anything where nothing may."""
        gives, unit = self.config.gives, self.config.unit
        sizes = sorted({size // unit for size in (*gives.sizes, gives.final)})
        found: Value | None = None
        for size in (size for size in sizes if number + size < len(slots)):
            found = slots[number + size] if found is None else Mux(given == size, slots[number + size], found)
        return slots[number] if found is None else found


def _sizes(m: Module, name: str, pieces: Pieces, unit: int, move: Value) -> tuple[Value, Value]:
    """Units of the piece that is next, and whether it is a frame's last."""
    piece, last = Signal(range(pieces.count), name=f"{name}_piece_index"), Signal(name=f"{name}_is_last")
    m.d.comb += last.eq(piece == pieces.count - 1)
    sizes = [size // unit for size in pieces.sizes]
    size = Signal(range(pieces.most // unit + 1), name=f"{name}_units")
    m.d.comb += size.eq(sizes[0])
    if len(sizes) > 1:
        fold = Signal(range(len(sizes)), name=f"{name}_size_index")
        with m.Switch(fold):
            for number, each in enumerate(sizes):
                with m.Case(number):
                    m.d.comb += size.eq(each)
        with m.If(move):
            m.d.sync += fold.eq(Mux(last | (fold == len(sizes) - 1), 0, fold + 1))
    if pieces.final != pieces.sizes[(pieces.count - 1) % len(sizes)]:
        with m.If(last):
            m.d.comb += size.eq(pieces.final // unit)
    with m.If(move):
        m.d.sync += piece.eq(Mux(last, 0, piece + 1))
    return size, last
