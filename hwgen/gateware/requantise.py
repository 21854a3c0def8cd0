"""From accumulators to the next layer's values: bias, scale, zero point, saturation.

The product is exact, so it may be rearranged freely as long as every output stays the same. Before there is
any hardware the configuration looks for the cheapest arrangement (`RequantiseConfig.recipe`):

- Channels with different shifts get one common shift: what a shift lacks goes into the significand while the
  multiplier has bits to spare, and only the rest into a barrel shifter.
- Accumulators that saturate anyway are clamped before the multiplier where that saves a DSP slice.
- Rounding is "add a half and cut". The correction that makes ties even is built only if a tie can occur between
  the two bounds; with a significand of many odd digits none can.
- The half and the zero point come in through the C port of the first DSP slice.

Where DSP slices are scarcer than LUTs the product may be made of these instead (``products_in``): two bits of the
factor choose a row each, and a tree of registered adders joins the rows, with the half and the zero point among them.

Outputs of 8 bits are rounded twice, as ONNX Runtime does it: to float32, then to an integer. The product need not be
rounded for that. Between ``n`` and ``n + 1`` float32 has steps of ``2**(e - 23)``, with ``e = floor(log2(n + 1/2))``,
and ``n + 1/2`` is one of them, so that a product within half a step of it becomes the tie ``n + 1/2``, the ends of that
band included: there the second significand that float32 has to choose from is odd. (Below 1/2 steps are half as wide,
but what lies there gives 0 either way.) So only products next to ties need a correction, to the even neighbour. What
float32 does to sums of ``2**24`` and more is done before the multiplier. Both are built only if some sum asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import count, repeat
from operator import or_

from amaranth import Cat, Const, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import wiring

from hwgen.devices import DEFAULT
from hwgen.errors import ConfigError
from hwgen.gateware.channels import Beats, ChannelsConfig, beat_values
from hwgen.gateware.cost import (
    LOGIC,
    Cost,
    Resources,
    constant_adder_luts,
    counter_bits,
)
from hwgen.gateware.lookup import delayed
from hwgen.gateware.naming import named
from hwgen.gateware.product_rows import ProductRows, extended
from hwgen.gateware.rounding import (
    SIGNIFICAND_BITS,
    Bands,
    round_half_even,
    scale_sum,
    signed_bits,
    tie_bands,
    useful_sums,
)
from hwgen.gateware.stream import channels_layout, pipeline_ports

#: Multiplier slice of the family that circuits are made for. A piece is what one slice takes of the longer operand.
_SLICE = DEFAULT.multiplier_slice
PIECE = _SLICE.cascade_shift
#: LUTs of a lane for products next to ties: about 9 find them, 8 add what is due.
_BESIDE_TIES = 17


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a requantiser computes ``(acc + bias) * scale``: ``clamp((acc + bias) << left) * factor / 2**shift``.

    ``left`` and ``factor`` are by channel. ``pieces`` DSP slices multiply; with ``split_factor`` each takes
    17 bits of the factor, otherwise 17 bits of the clamped sum. With no piece every factor is 0 or 1.
    ``operand_bits`` is the clamped sum's signed width; ``clamp`` tells whether it is clamped at all.
    """

    shift: int
    left: tuple[int, ...]
    factor: tuple[int, ...]
    pieces: int
    split_factor: bool
    clamp: bool
    operand_bits: int


@dataclass(frozen=True, kw_only=True)
class RequantiseConfig(ChannelsConfig):
    """``clip(round_half_even((acc + bias) * significand / 2**shift) + zero_point, low, high)``, by channel.

    With ``float32`` both the sum and its product are first rounded to 24 significant bits, ties to even.

    Parameters
    ----------
    lanes : int
        Channels a beat.
    accumulator_bits : int
        Width of an accumulator, signed.
    bias : tuple of int
        By channel, the input's zero point folded in.
    significand : tuple of int
        By channel, from 1 to ``2**24 - 1``.
    shift : tuple of int
        By channel, 0 or more.
    zero_point, low, high : int
        Of the output; ``low`` and ``high`` within its type.
    bits, signed : int, bool
        Shape of an output.
    float32 : bool
        Whether to round to float32 on the way. An output has at most 8 bits then.
    products_in : str
        What multiplies: ``dsp`` slices, or ``lut``.
    fraction : int
        Bits of the bias below an accumulator's lowest one: the sum is ``(acc << fraction) + bias``.
    beats : tuple of tuple of int
        The channels each beat of a pixel carries, lowest lane first.
    pixels : int
        Neighbouring pixels a beat; a channel's values for all of them lie side by side.

    Raises
    ------
    ConfigError
        If a number is out of range, or the tuples don't fit each other.
    """

    significand: tuple[int, ...]
    shift: tuple[int, ...]
    zero_point: int
    low: int
    high: int
    bits: int
    signed: bool
    float32: bool = False
    products_in: str = "dsp"
    fraction: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.products_in not in ("dsp", "lut"):
            raise ConfigError(f"products_in must be 'dsp' or 'lut', not {self.products_in!r}")
        if self.bits < 1:
            raise ConfigError(f"bits must be a positive integer, not {self.bits!r}")
        if self.fraction < 0:
            raise ConfigError(f"fraction must not be negative, not {self.fraction!r}")
        if self.float32 and self.bits > 8:
            raise ConfigError(f"bits must be at most 8 with float32, not {self.bits!r}")
        for name in ("significand", "shift"):
            if len(getattr(self, name)) != self.channels:
                raise ConfigError(
                    f"{name} must have one entry for each of {self.channels} channels, not {getattr(self, name)!r}"
                )
        if not all(1 <= value < 1 << SIGNIFICAND_BITS for value in self.significand):
            raise ConfigError(f"significand must be between 1 and 2**24 - 1, not {self.significand!r}")
        if min(self.shift) < 0:
            raise ConfigError(f"shift must not be negative, not {self.shift!r}")
        least, most = self._bounds
        for name in ("zero_point", "low", "high"):
            if not least <= getattr(self, name) <= most:
                raise ConfigError(f"{name} must be between {least} and {most}, not {getattr(self, name)!r}")
        if self.low > self.high:
            raise ConfigError(f"low must be at most high ({self.high}), not {self.low!r}")

    @property
    def output(self) -> Shape:
        return Shape(self.bits, self.signed)

    @property
    def _bounds(self) -> tuple[int, int]:
        least = -(1 << (self.bits - 1)) if self.signed else 0
        return least, least + (1 << self.bits) - 1

    def compute(self, channel: int, accumulator: int) -> int:
        """The output for one accumulator, as defined (the hardware is arranged otherwise)."""
        total = (accumulator << self.fraction) + self.bias[channel]
        scaled = scale_sum(total, self.significand[channel], self.shift[channel], self.float32)
        return min(max(scaled + self.zero_point, self.low), self.high)

    # What matters of each channel.

    def _sums(self, channel: int) -> tuple[int, int]:
        """Least and greatest accumulator + bias."""
        half = 1 << (self.accumulator_bits - 1)
        return self.bias[channel] - (half << self.fraction), self.bias[channel] + ((half - 1) << self.fraction)

    @property
    def outputs(self) -> tuple[int, int]:
        """The bounds, counted from the zero point."""
        return self.low - self.zero_point, self.high - self.zero_point

    @cached_property
    def _useful_sums(self) -> tuple[tuple[int, int], ...]:
        """By channel: the sums between which the output still changes; any sum beyond may be clamped to them."""
        sums = map(self._sums, range(self.channels))
        return tuple(map(useful_sums, sums, self.significand, self.shift, repeat(self.outputs), repeat(self.float32)))

    @cached_property
    def rounded_bits(self) -> int:
        """How many bits more than 24 a sum has for which it matters that float32 rounds it; 0 if none has."""
        if not self.float32:
            return 0
        most = max(abs(end) for ends in self._useful_sums for end in ends)
        return max(0, (most - 1).bit_length() - SIGNIFICAND_BITS)

    def _round(self, total: int) -> int:
        """A sum as it meets the multiplier."""
        excess = min(self.rounded_bits, max(0, abs(total).bit_length() - SIGNIFICAND_BITS))
        return round_half_even(total, excess) << excess

    @cached_property
    def _operands(self) -> tuple[tuple[int, int], ...]:
        """By channel: least and greatest sum that meets the multiplier."""
        sums = map(self._sums, range(self.channels))
        return tuple((self._round(least), self._round(most)) for least, most in sums)

    @cached_property
    def _useful(self) -> tuple[tuple[int, int], ...]:
        """`_useful_sums` as they meet the multiplier."""
        return tuple((self._round(least), self._round(most)) for least, most in self._useful_sums)

    @cached_property
    def _scales(self) -> tuple[tuple[int, int], ...]:
        """By channel: an odd factor and a shift (which may be negative), or (0, 0) if every product rounds to 0."""
        scales = []
        for channel, (factor, shift) in enumerate(zip(self.significand, self.shift, strict=True)):
            greatest = max(abs(total) for total in self._operands[channel])
            if 2 * greatest * factor <= 1 << shift:
                scales.append((0, 0))
            elif factor > 1 << (shift + self.bits + 1):  # any sum but 0 saturates
                scales.append((1, -self.bits - 1))
            else:
                zeros = (factor & -factor).bit_length() - 1
                scales.append((factor >> zeros, shift - zeros))
        return tuple(scales)

    @cached_property
    def ties(self) -> bool:
        """Whether some sum lies exactly between two outputs."""
        for (factor, shift), (least, most) in zip(self._scales, self._useful, strict=True):
            if factor and shift > 0:
                # An odd factor keeps the trailing zeros: odd multiples of half a step, and no others.
                half = 1 << (shift - 1)
                first = -(-least // half)
                if (first | 1) * half <= most:
                    return True
        return False

    @cached_property
    def bands(self) -> Bands:
        """Which products of all channels lie next to ties, where float32 takes them for ties."""
        found = Bands()
        if self.float32:
            for (factor, shift), operands in zip(self._scales, self._operands, strict=True):
                found |= tie_bands(operands, factor, shift, self.outputs)
        return found

    @property
    def beside_ties(self) -> bool:
        """Whether products next to ties are corrected: those of some sum give another output in float32."""
        return self.bands.beside

    @cached_property
    def recipe(self) -> Recipe:
        """The arrangement with the fewest DSP slices, then the least shifting, then no clamp, then whole operands.

        A slice that multiplies the whole sum adds the bias in its pre-adder. Of LUTs the narrowest operands are best,
        which a clamp is worth that saves more than a bit.
        """
        if self.products_in == "lut" and not (recipes := list(self._recipes(0))):
            recipes = self._recipes(1, in_slices=False)
            return min(recipes, key=lambda recipe: (max(recipe.left), recipe.operand_bits + 2 * recipe.clamp))
        for pieces in count():
            recipes = list(self._recipes(pieces))
            if recipes:
                return min(recipes, key=lambda recipe: (max(recipe.left), recipe.clamp, not recipe.split_factor))
        raise AssertionError("unreachable")

    def _recipes(self, pieces: int, *, in_slices: bool = True) -> Iterator[Recipe]:
        common = max(1, *(shift for factor, shift in self._scales if factor), 1)
        missing = [common - shift if factor else 0 for factor, shift in self._scales]
        # Which operand is cut into pieces; the other must fit the wide port.
        geometries = [
            (False, SIGNIFICAND_BITS, pieces * PIECE + 1),
            (True, pieces * PIECE, _SLICE.wide_bits),
        ]
        if pieces == 0 or not in_slices:
            geometries = [(False, SIGNIFICAND_BITS if pieces else 1, None)]
        for split_factor, factor_bits, most_bits in geometries:
            spare = [factor_bits - factor.bit_length() for factor, _ in self._scales]
            if min(spare) < 0:
                continue
            into = [min(pair) for pair in zip(missing, spare, strict=True)]
            left = [all_ - part for all_, part in zip(missing, into, strict=True)]
            factors = [factor << part for (factor, _), part in zip(self._scales, into, strict=True)]
            for clamp in (False, True):
                ends = self._useful if clamp else self._operands
                bits = max(
                    signed_bits(least << shift, most << shift) for (least, most), shift in zip(ends, left, strict=True)
                )
                if most_bits is None or bits <= most_bits:
                    yield Recipe(
                        shift=common,
                        left=tuple(left),
                        factor=tuple(factors),
                        pieces=pieces,
                        split_factor=split_factor,
                        clamp=clamp,
                        operand_bits=bits,
                    )

    # The arithmetic after the multiplier.

    @property
    def aligned_bits(self) -> int:
        """``k > 0`` if an output is ``k`` bits counted from ``low`` and the rest of it is constant; 0 if not."""
        bits = (self.high - self.low).bit_length()
        full = self.high - self.low == (1 << bits) - 1
        return bits if full and (bits == self.bits or self.low % (1 << bits) == 0) else 0

    @property
    def zero(self) -> int:
        """The zero point, counted from ``low`` if that is aligned."""
        return self.zero_point - (self.low if self.aligned_bits else 0)

    @property
    def ties_down(self) -> bool:
        """Ties are first rounded down and then, if odd, up; otherwise the other way round.

        Either way the correction of exact ties writes the lowest bit alone: to 1 where an odd zero point is counted
        in, to 0 where it is even. Where products beside ties are corrected, too, this moves the ends of the bands by
        one place: the ones above ties become products that need no comparison of all their bits.
        """
        if self.beside_ties:
            return self.bands.above and not self.bands.below
        return self.ties and self.zero % 2 == 1

    @cached_property
    def offset(self) -> int:
        """Half a step and the zero point, in the scale of the product; no zero point if that is added later."""
        zero = 0 if self.beside_ties else self.zero
        return ((2 * zero + 1) << (self.recipe.shift - 1)) - self.ties_down

    @property
    def whole_bits(self) -> int:
        """Width of a rounded product before products beside ties are corrected, signed; larger ones saturate."""
        least, most = self.outputs
        return signed_bits(least - 1, most + 1)

    @property
    def offset_place(self) -> str:
        """Where the offset is added: in the "bias", the "slice", or "late" (in fabric, after the product)."""
        recipe = self.recipe
        if recipe.pieces == 0:
            return "late" if any(recipe.left) or 0 in recipe.factor or self.rounded_bits else "bias"
        return "slice" if signed_bits(self.offset) < _SLICE.sum_bits else "late"

    @cached_property
    def product_bits(self) -> int:
        """Width of the product, with and without the offset, signed."""
        recipe = self.recipe
        half = 1 << (recipe.operand_bits - 1)
        products = []
        for channel, (left, factor) in enumerate(zip(recipe.left, recipe.factor, strict=True)):
            least, most = self._operands[channel]
            products.append(max(least << left, -half) * factor)
            products.append(min(most << left, half - 1) * factor)
        return signed_bits(min(products) + self.offset, max(products) + self.offset, *products)

    @property
    def sum_bits(self) -> int:
        """Width of accumulator + bias, signed."""
        early = self.offset if self.offset_place == "bias" else 0
        return signed_bits(*(end + early for channel in range(self.channels) for end in self._sums(channel)))

    @property
    def rounded_sum_bits(self) -> int:
        """Width of accumulator + bias after float32 has rounded it, signed."""
        return signed_bits(*(end for pair in self._operands for end in pair)) if self.rounded_bits else self.sum_bits

    @cached_property
    def tables(self) -> dict[str, list[tuple[int, ...]]]:
        recipe = self.recipe
        early = self.offset if self.offset_place == "bias" else 0
        tables = {
            "bias": self.table([bias + early for bias in self.bias]),
            "left": self.table(recipe.left),
            "present": self.present,
        }
        if recipe.split_factor:
            for piece in range(recipe.pieces):
                tables[f"factor_{piece}"] = self.table(
                    [(factor >> (piece * PIECE)) % (1 << PIECE) for factor in recipe.factor]
                )
        else:
            tables["factor"] = self.table(recipe.factor)
        return tables

    # Cost.

    @property
    def latency(self) -> int:
        """Cycles from a beat to its outputs."""
        recipe, multiply = self.recipe, self.product_cycles
        early = 2 + self.tables_in_block_ram + 2 * (self.rounded_bits > 0) + any(recipe.left) + recipe.clamp
        return early + multiply + (self.offset_place == "late") + self.beside_ties + 1

    @property
    def in_slices(self) -> bool:
        """Whether DSP slices multiply."""
        return self.recipe.pieces > 0 and self.products_in == "dsp"

    @cached_property
    def product_rows(self) -> ProductRows:
        """What multiplies where products are made of LUTs."""
        return ProductRows(
            operand_bits=self.recipe.operand_bits,
            factor_bits=max(self.recipe.factor).bit_length(),
            offset=self.offset if self.offset_place == "slice" else None,
            product_bits=self.product_bits,
            unused_bits=self._unused_bits,
        )

    @property
    def product_cycles(self) -> int:
        """Cycles from an operand to its product."""
        if self.in_slices or not self.recipe.pieces:
            return self.recipe.pieces + (self.recipe.pieces > 0)
        return self.product_rows.latency

    @property
    def multipliers(self) -> int:
        """DSP slices, as Yosys counts them: wiring and tiny products take none."""
        if not self.in_slices:
            return 0
        recipe = self.recipe
        total = 0
        for piece in range(recipe.pieces):
            top = piece == recipe.pieces - 1
            bits = recipe.operand_bits if recipe.split_factor else recipe.operand_bits - piece * PIECE if top else PIECE
            table = self.tables[f"factor_{piece}" if recipe.split_factor else "factor"]
            total += sum(_takes_slice(bits, column) for column in table)
        return total * self.pixels

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(dsp=self.multipliers)
        recipe = self.recipe
        sums = self.lanes * self.pixels
        # Beats are counted where something depends on them.
        varies = any(len(set(column)) > 1 for table in self.tables.values() for column in table)
        beat = counter_bits(len(self.beats)) * varies
        cost.ff += beat + self.latency
        cost.lut += beat
        late = self.tables_in_block_ram
        cycle, latest = self._count_operands(cost)
        if recipe.split_factor and recipe.pieces:
            for piece in range(recipe.pieces):
                if self._count_table(cost, f"factor_{piece}"):
                    latest = max(latest, cycle + piece)
        elif self._count_table(cost, "factor"):
            latest = max(latest, cycle)
            cost.lut += sums * recipe.operand_bits * (not recipe.pieces)
        if recipe.pieces and not self.in_slices:
            for column in self.tables["factor"]:
                self.product_rows.count(cost, column, self.pixels)
        cycle += self.product_cycles
        for piece in range(recipe.pieces - 1):
            low = min(PIECE, max(0, (piece + 1) * PIECE - self._unused_bits))
            cost.delay(sums * low, recipe.pieces - 1 - piece)
        if self.offset_place == "late":
            # Bits below the half that is added pass by; without ties they are not looked at any more.
            cost.ff += sums * (self.product_bits - self._unused_bits)
            cost.lut += sums * constant_adder_luts(self.offset, self.product_bits)
            cycle += 1
        if self.beside_ties:
            # The whole number, what is due and what saturates; the comparison, and an adder for what is due.
            cost.ff += sums * (self.whole_bits + 1 + (self.low < self.zero_point))
            cost.lut += sums * _BESIDE_TIES
            cycle += 1
        if self._count_table(cost, "present"):
            latest = max(latest, cycle)
        cost.ff += beat * (latest - 1 - late)
        bits = (self.high - self.low).bit_length()
        cost.ff += sums * bits
        # A LUT for each bit looks at the bit, the sign, and up to three bits above; more of them take one of their own.
        cost.lut += sums * (bits + (self.product_bits - recipe.shift - bits > 4))
        return cost.resources

    def component(self) -> Requantise:
        return Requantise(self)

    def _count_operands(self, cost: Cost) -> tuple[int, int]:
        """From accumulators to what meets the multiplier, which takes the last register into its slice.

        Returns the cycle in which the factor is read, and the last one in which another table is.
        """
        recipe = self.recipe
        sums = self.lanes * self.pixels
        moves, rounds, in_slice = any(recipe.left), self.rounded_bits > 0, self.in_slices
        late = self.tables_in_block_ram
        cycle, latest = 2 + late, 1 + late
        # Each slice of a split factor adds the bias in its pre-adder.
        pre_adders = in_slice and recipe.split_factor and not (moves or recipe.clamp or rounds)
        if self._count_table(cost, "bias") and pre_adders and late:
            cost.ff += sums * signed_bits(*self.bias) * (recipe.pieces - 1)
        # Sums wait for their bias; a slice takes but the last register.
        cost.ff += sums * self.accumulator_bits * late
        if pre_adders:
            return cycle, latest
        cost.ff += sums * self.accumulator_bits
        for column in self.tables["bias"]:
            bits = self.sum_bits - self.fraction - 1  # the sign takes the last carry
            constant = len(set(column)) == 1
            cost.lut += self.pixels * (constant_adder_luts(column[0] >> self.fraction, bits) if constant else bits)
        last = "clamp" if recipe.clamp else "shift" if moves else "rounded" if rounds else "sum"
        if not (in_slice and last == "sum"):
            cost.ff += sums * self.sum_bits
        if rounds:
            # Which bits go, and then they do; beside them the sum waits for a cycle.
            cost.ff += sums * (self.rounded_bits + 1 + self.sum_bits)
            cost.lut += sums * (3 * self.rounded_bits + self.rounded_sum_bits)
            if not (in_slice and last == "rounded"):
                cost.ff += sums * self.rounded_sum_bits
            cycle += 2
        if moves:
            bits = self.rounded_sum_bits + max(recipe.left) if recipe.clamp else recipe.operand_bits
            if self._count_table(cost, "left"):
                latest = cycle
            if not (in_slice and last == "shift"):
                cost.ff += sums * bits
            cost.lut += sums * bits * LOGIC.mux_luts(len(set(recipe.left)))
            cycle += 1
        if recipe.clamp:
            if not in_slice:
                cost.ff += sums * recipe.operand_bits
            cost.lut += sums * recipe.operand_bits
            cycle += 1
        return cycle, latest

    @property
    def _unused_bits(self) -> int:
        """Bits of the product, from the lowest one, at which nothing looks."""
        if self.beside_ties:
            ends = self.bands.above and self.bands.below
            return 0 if ends else max(0, self.recipe.shift - SIGNIFICAND_BITS - 1)
        return 0 if self.ties else self.recipe.shift


def _takes_slice(operand_bits: int, factors: Sequence[int]) -> bool:
    """Whether a product with one of ``factors`` is worth a DSP slice: Yosys leaves 1 x n bits and less than 9 bits."""
    bits = max(factors).bit_length()
    if len(set(factors)) == 1 and bits:
        bits -= (factors[0] & -factors[0]).bit_length() - 1  # a constant's zeros at the end are wiring
    return bits > 1 and operand_bits + bits > 8


@dataclass(frozen=True, kw_only=True)
class _Rounded:
    """A rounded product in registers: ``whole + round_up``. It saturates if ``is_beyond``: ``whole`` is too narrow."""

    whole: Value
    round_up: Value
    negative: Value
    is_beyond: Value


def _shifted(value: Value, places: int) -> Value:
    return value.shift_left(places) if places else value


class Requantise(wiring.Component):
    """Scales accumulators, rounds to nearest even, adds the zero point, saturates.

    Parameters
    ----------
    config : RequantiseConfig

    Members
    -------
    i : In(stream, always ready)
        ``lanes`` accumulators of ``pixels`` pixels, ``[lane][pixel]``.
    o : Out(stream, always ready)
        Their outputs; lanes without a channel are 0.

    Latency and throughput
        A beat a cycle; it leaves ``config.latency`` cycles after it came, and never stalls. The first beat after
        reset is a pixel's first.

    Number range
        Every accumulator of ``accumulator_bits`` bits gives the result that ``config.compute`` defines; nothing
        overflows in between.

    Stages: the accumulator meets its bias (2 cycles, 3 where tables lie in block RAM); it is rounded to 24 bits where
    float32 does that (2), shifted and clamped where the recipe says so (1 each); with ``n`` DSP slices the product
    takes ``n + 1``, of LUTs ``config.product_cycles``; the offset 1 if it is late; products next to ties 1 where they
    are corrected; bounds 1.
    """

    def __init__(self, config: RequantiseConfig):
        self._config = config
        shapes = (config.accumulator, config.output)
        super().__init__(pipeline_ports(*(channels_layout(shape, config.lanes, config.pixels) for shape in shapes)))

    @property
    def config(self) -> RequantiseConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        config, recipe = self.config, self.config.recipe
        beats = Beats(m, config, self.i.valid)
        cycle = 1 + config.tables_in_block_ram
        biases = beats.read("bias", cycle)
        accumulators = [
            delayed(m, f"accumulator_{lane}", value, cycle) for lane, value in enumerate(beat_values(self.i))
        ]

        def sums(delay: int) -> list[Value]:
            """Accumulators with bias, ``delay`` cycles late. Each delay has adders of its own."""
            late = [
                named(
                    _shifted(delayed(m, f"accumulator_{lane}_delayed", accumulator, delay), config.fraction)
                    + _delayed(m, f"bias_{lane}_delayed", bias, delay),
                    "biased_sum",
                )
                for lane, (accumulator, bias) in enumerate(zip(accumulators, biases, strict=True))
            ]
            return self._registers(m, f"sum_{delay}" if delay else "sum", late, signed(config.sum_bits))

        values = sums(0)
        cycle += 1
        if config.rounded_bits:
            values = self._rounded_sums(m, values)
            cycle += 2
        if any(recipe.left):
            lefts = beats.read("left", cycle)
            bits = config.rounded_sum_bits + max(recipe.left) if recipe.clamp else recipe.operand_bits
            shifted = [named(value << left, "shifted_sum") for value, left in zip(values, lefts, strict=True)]
            values = self._registers(m, "shifted", shifted, signed(bits))
            cycle += 1
        if recipe.clamp:
            clamped = [_clamp(value, recipe.operand_bits) for value in values]
            values = self._registers(m, "clamped", clamped, signed(recipe.operand_bits))
            cycle += 1
        operands = [values]
        for piece in range(1, recipe.pieces):
            # Yosys 0.66 takes a sum that several slices multiply into the pre-adder of one and leaves the others
            # without, so each slice gets an adder of its own: its pre-adder, which costs nothing.
            own = recipe.split_factor and not (any(recipe.left) or recipe.clamp or config.rounded_bits)
            late = [delayed(m, f"operand_{lane}_{piece}", value, piece) for lane, value in enumerate(values)]
            operands.append(sums(piece) if own else late)
        values = self._multiply(m, beats, operands, cycle)
        cycle += config.product_cycles
        if config.offset_place == "late":
            zeros = (config.offset & -config.offset).bit_length() - 1
            step = config.offset >> zeros
            values = [extended(value, zeros + 1) for value in values]
            upper = [named(value[zeros:].as_signed() + step, "upper_product") for value in values]
            moved = [Cat(value[:zeros], high).as_signed() for value, high in zip(values, upper, strict=True)]
            values = self._registers(m, "product_with_offset", moved, signed(config.product_bits))
            cycle += 1
        if config.beside_ties:
            bounded = [self._bound_even(self._to_even(m, lane, value)) for lane, value in enumerate(values)]
            cycle += 1
        else:
            bounded = [self._bound(value) for value in values]
        present = beats.read("present", cycle)
        bounded = [Mux(here, value, 0) for value, here in zip(bounded, present, strict=True)]
        outputs = self._registers(m, "output", bounded, config.output)
        m.d.comb += self.o.valid.eq(beats.valid(cycle + 1))
        m.d.comb += [place.eq(output) for place, output in zip(beat_values(self.o), outputs, strict=True)]
        return m

    def _registers(self, m: Module, name: str, values: Sequence[Value], shape: Shape) -> list[Value]:
        registers = [Signal(shape, name=f"{name}_{lane}", reset_less=True) for lane in range(len(values))]
        m.d.sync += [register.eq(value) for register, value in zip(registers, values, strict=True)]
        return list(registers)

    def _multiply(self, m: Module, beats: Beats, operands: list[list[Value]], cycle: int) -> list[Value]:
        """Products (and the offset, if it comes in here) of operands: by piece, valid ``piece`` cycles after ``cycle``.

        The pieces of a product form a cascade, one cycle apart: each slice adds its piece to the sum before it
        shifted right by 17; the 17 bits shifted out are final.
        """
        config, recipe = self.config, self.config.recipe
        pieces = range(recipe.pieces)
        if recipe.split_factor:
            factors = [beats.read(f"factor_{piece}", cycle + piece) for piece in pieces]
        else:
            factors = [beats.read("factor", cycle)]
        if not pieces:
            masked = 0 in recipe.factor
            return [Mux(f, value, 0) if masked else value for f, value in zip(factors[0], operands[0], strict=True)]
        if not config.in_slices:
            pairs = zip(operands[0], factors[0], strict=True)
            return [config.product_rows.multiply(m, lane, *pair) for lane, pair in enumerate(pairs)]

        products = []
        for lane in range(config.lanes * config.pixels):
            total: Value = Const(config.offset if config.offset_place == "slice" else 0)
            done = []
            for piece in pieces:
                top = piece == recipe.pieces - 1
                left = operands[piece][lane]
                if recipe.split_factor:
                    right = factors[piece][lane]
                else:
                    start = piece * PIECE
                    left = left[start:].as_signed() if top else left[start : start + PIECE]
                    right = _delayed(m, f"factor_{lane}_{piece}", factors[0][lane], piece)
                product = delayed(m, f"product_{lane}_{piece}", left * right, 1)
                total = delayed(m, f"partial_product_{lane}_{piece}", product + total, 1)
                if not top:
                    low = extended(total, PIECE)[:PIECE]
                    done.append(delayed(m, f"product_low_{lane}_{piece}", low, recipe.pieces - 1 - piece))
                    total = named(total >> PIECE, "remaining_product")
            products.append(Cat(*done, total)[: config.product_bits].as_signed())
        return products

    def _rounded_sums(self, m: Module, values: Sequence[Value]) -> list[Value]:
        """Sums rounded to 24 significant bits, ties to even, as far as `rounded_bits` asks for it; 2 cycles.

        Where ``j`` bits go, half of their range less one is added, and one more if the lowest bit that stays is set.
        """
        config = self.config
        rounded = []
        for lane, value in enumerate(values):
            longer, odd = [], Const(0, 1)
            for j in range(1, config.rounded_bits + 1):  # at least j bits go
                above = value[SIGNIFICAND_BITS + j - 1 :]
                longer.append(above.any() & ~above.all())
                odd = Mux(longer[-1], value[j], odd)
            gone = delayed(m, f"dropped_bits_{lane}", Cat(longer), 1)
            odd = delayed(m, f"lowest_bit_{lane}", odd, 1)
            late = delayed(m, f"sum_{lane}_delayed", value, 1)
            total = (Cat(1, late).as_signed() + Cat(odd, gone[1:]))[1:]
            rounded.append(Cat(total[: len(gone)] & ~gone, total[len(gone) :]).as_signed())
        return self._registers(m, "rounded", rounded, signed(config.rounded_sum_bits))

    def _to_even(self, m: Module, lane: int, value: Value) -> _Rounded:
        """A product with offset, cut; odd ones next to a tie are made even.

        Where the fraction is next to 0 the even neighbour is the one below, where it is next to 1 the one above. Next
        to them means that all its bits from the weight of ``2**(e - 24)`` up are equal. ``2**e`` is the weight of the
        highest bit of the tie's magnitude, ``e = -1`` that of 1/2.
        """
        config, shift = self.config, self.config.recipe.shift
        least, most = config.outputs
        value = extended(value, shift + config.whole_bits + 1)
        whole, sign = value[shift:], value[-1] if least < 0 else Const(0, 1)

        def fraction(weight: int) -> Value:
            place = shift + weight - SIGNIFICAND_BITS
            # Where ties are rounded down first, a product lies less than its last bit below what it was.
            return value[place] if place >= 0 else Const(config.ties_down, 1)

        up = fraction(SIGNIFICAND_BITS - 1)
        highest = (2 * max(most, -least) - 1).bit_length() - 2
        # The odd product's lowest bit belongs to the tie's magnitude only if the tie lies on the far side of it.
        magnitude = [(whole[weight] if weight else up) ^ sign for weight in range(highest + 1)]
        equal = [named(fraction(weight) == up, "is_bit_equal") for weight in range(-1, SIGNIFICAND_BITS - 1)]
        pairs = list(zip(magnitude, equal, strict=False))
        enough = named(reduce(or_, _carry(pairs)), "is_magnitude_enough") if pairs else Const(1)
        near = enough & Cat(equal[len(pairs) :]).all()
        if config.bands.above and config.bands.below:
            near |= self._at_end(magnitude, [fraction(weight) for weight in range(-1, SIGNIFICAND_BITS)], value)
        near &= whole[0]
        low, beyond = whole[: config.whole_bits - 1], whole[config.whole_bits - 1 :]
        parts = {
            "whole": Cat(low[0] & ~(near & ~up), low[1:]),
            "round_up": near & up,
            "negative": sign,
            "is_beyond": beyond.any() & ~beyond.all(),
        }
        if least >= 0:  # what is negative gives the same as 0
            parts = {name: Mux(whole[-1], 0, part) for name, part in parts.items()}
        return _Rounded(**{name: delayed(m, f"{name}_{lane}", part, 1) for name, part in parts.items()})

    def _at_end(self, magnitude: Sequence[Value], bits: Sequence[Value], value: Value) -> Value:
        """Whether the fraction is ``2**(e - 24)``; ``bits`` are its first ones, the last of them the highest."""
        chosen = Const(1)
        wanted: list[Value] = []
        for bit in reversed(magnitude):
            wanted.insert(0, chosen & bit)
            chosen = chosen & ~bit
        wanted.insert(0, chosen)
        first = Cat(bits) == Cat(wanted)
        return first & ~value[: max(0, self.config.recipe.shift - len(bits))].any()

    def _bound_even(self, value: _Rounded) -> Value:
        """The output for a rounded product: add the zero point and what is still due, saturate."""
        config = self.config
        bits, (least, _) = config.aligned_bits, config.outputs
        low, high = (0, (1 << bits) - 1) if bits else (config.low, config.high)
        whole = Cat(value.whole, value.negative).as_signed()
        total = named(whole + value.round_up, "rounded_value")
        if config.zero:
            zero = Const(config.zero, signed(config.bits + 2))
            total = named(Cat(1, whole).as_signed() + Cat(value.round_up, zero).as_signed(), "rounded_value")
            total = total[1:].as_signed()
        below, above = (total[-1], total[bits:].any()) if bits else (total < low, total > high)
        inside = named(Mux(value.is_beyond | above, high, total[:bits] if bits else total), "value_below_limit")
        if least:  # else nothing lies below: what is negative was made 0
            inside = Mux(Mux(value.is_beyond, value.negative, below), low, inside)
        return self._from_low(inside) if bits else inside

    def _from_low(self, inside: Value) -> Value:
        """What is counted from ``low``, if that is aligned, as an output."""
        config = self.config
        low, bits = config.low, config.aligned_bits
        return Cat(inside[:bits] ^ (low % (1 << bits)), Const(low >> bits, signed(config.bits + 1)))

    def _bound(self, value: Value) -> Value:
        """The output for a product with offset: cut the fraction, make ties even, saturate."""
        config = self.config
        shift, bits = config.recipe.shift, config.aligned_bits
        value = extended(value, shift + bits + 1)
        rounded = value[shift:].as_signed()
        whole = rounded
        if config.ties:
            fraction = value[:shift]
            tie = fraction.all() if config.ties_down else ~fraction.any()
            whole = Cat(Mux(tie, int(config.ties_down), rounded[0]), rounded[1:]).as_signed()
        if bits:
            # Counted from ``low``: the sign says too little, the bits above say too much. Neither sees the correction,
            # which writes the lowest bit alone.
            inside = named(
                Mux(rounded[-1], 0, Mux(rounded[bits:].any(), (1 << bits) - 1, whole[:bits])), "clamped_value"
            )
            return self._from_low(inside)
        # The correction makes an odd value even, counted from the zero point: a bound must not miss that.
        if config.ties_down:
            below, above = rounded < config.low, rounded >= config.high
        else:
            below, above = rounded <= config.low, rounded > config.high
        return Mux(below, config.low, Mux(above, config.high, whole))


def _delayed(m: Module, name: str, value: Value, cycles: int) -> Value:
    """``value``, so many cycles later; a constant stays one (a register that starts at 0 would not)."""
    return value if isinstance(value, Const) else delayed(m, name, value, cycles)


def _clamp(value: Value, bits: int) -> Value:
    """``value`` in the range of a signed integer of ``bits`` bits."""
    sign, fits = value[-1], (value[bits - 1 :].all() | ~value[bits - 1 :].any())
    return Mux(fits, value[:bits], Cat((~sign).replicate(bits - 1), sign)).as_signed()


def _carry(steps: Sequence[tuple[Value, Value]]) -> tuple[Value, Value]:
    """Of ``(generate, propagate)``, the lowest first: whether all of them together generate a carry, or pass one on."""
    if len(steps) == 1:
        return steps[0]
    half = len(steps) // 2
    (low_generates, low_passes), (generates, passes) = _carry(steps[:half]), _carry(steps[half:])
    return named(generates | (passes & low_generates), "carry"), named(passes & low_passes, "carry_passes")
