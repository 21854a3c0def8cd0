"""Last step of local response normalisation (LRN): outputs from values and running sums, exact by table look-up.

A product estimates each output, and a comparison with a table entry decides between the two candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from amaranth import Cat, Module, Mux, Shape, Signal, Value, signed, unsigned
from amaranth.lib import memory

from hwgen.devices import Device, Memories
from hwgen.errors import ConfigError
from hwgen.gateware.cost import Cost, Resources, counter_bits, varying_columns
from hwgen.gateware.layer import Arithmetic, Weightless
from hwgen.gateware.lookup import (
    bits_for_range,
    delayed,
    delayed_fast,
    dense_table,
    look_up,
    named,
    read_port,
    registered,
)
from hwgen.gateware.running_scale import RunningScaleConfig
from hwgen.gateware.stream import at_pixel, numbered
from hwgen.gateware.weights import Weights

#: Maximum number of words in a constant table that LUTs store: enough for a table of all distances.
_MAX_LUT_WORDS = 256
#: Maximum number of words in a constant table in one bank of block RAM, which takes no cycle to select among banks.
_MAX_ONE_BANK_WORDS = 512
#: Number of words per part of a larger constant table; each part is divided into banks separately.
_MAX_PART_WORDS = 4096


@dataclass(frozen=True, kw_only=True)
class NormaliseConfig(Weightless):
    """Configuration of LRN's last step, which scales a value's distance from the zero point by a running sum's factor.

    Let ``v`` be the distance of an input value from its zero point. The output's distance is ``k`` or ``k + 1``, with

        k = min(v * factors[scale >> shift] >> fraction, limit)

    The distance is ``k + 1`` while the scale is below the *fall* ``falls[first[v] + k]``, and ``k`` at the fall and
    above. A *ripple* lists exceptions: scales shortly above the fall whose distance is ``k + 1`` again. The author of
    the tables (`hwgen.templates.normalise`) proves that no other output occurs.

    Parameters
    ----------
    window : RunningScaleConfig
        Source of values and scales.
    zero : int
        Zero point of the values.
    factors : tuple of int
        Factors, by the leading bits of a scale.
    shift, fraction : int
        Number of low scale bits that do not select a factor, and number of fraction bits of a factor.
    limit : int
        Largest ``k``.
    first : tuple of int
        For each ``v`` from 0 to the largest distance: offset that is added to ``k`` for the address of the fall.
    falls : Weights
        Falls, as scales.
    kinds : Weights
        For each fall: index of its ripple in ``ripples``.
    ripples : tuple of int
        Ripples as bit masks. Bit ``d`` means that the distance is ``k + 1`` again at ``d`` above the fall. Bit 0 is
        never set. Ripple 0 is empty.
    zero_point : int
        Zero point of the outputs.
    low, high : int
        Bounds of the output.
    bits, signed : int, bool
        Type of the output.

    Raises
    ------
    ConfigError
        If some scales have no factor; if some distances have no entry in ``first``; if ``kinds`` and ``falls`` differ
        in length; or if a ripple has bit 0 set.
    """

    operation = "local response normalisation"

    window: RunningScaleConfig
    zero: int
    factors: tuple[int, ...]
    shift: int
    fraction: int
    limit: int
    first: tuple[int, ...]
    falls: Weights
    kinds: Weights
    ripples: tuple[int, ...]
    zero_point: int
    low: int
    high: int
    bits: int
    signed: bool

    def __post_init__(self) -> None:
        lowest, highest = self.window.input.value_range
        if len(self.first) != self._distance(lowest, highest) + 1:
            raise ConfigError(f"first must have {self._distance(lowest, highest) + 1} entries, not {len(self.first)}")
        if len(self.factors) << self.shift < 1 << self.window.scale_bits:
            raise ConfigError(
                f"factors must have one entry per scale of {self.window.scale_bits} bits, not {len(self.factors)}"
            )
        if len(self.falls) != len(self.kinds):
            raise ConfigError(f"kinds must have one entry per fall ({len(self.falls)}), not {len(self.kinds)}")
        if not self.ripples or self.ripples[0] or any(ripple & 1 for ripple in self.ripples):
            raise ConfigError(f"ripples must begin with 0, and none may be at its fall itself, not {self.ripples!r}")

    def _distance(self, lowest: int, highest: int) -> int:
        return max(highest - self.zero, self.zero - lowest)

    @property
    def has_single_factor(self) -> bool:
        """Whether LRN has a single scale factor, so that an output's estimate depends only on its input value.

        The value's distance from the zero point then also determines the fall.
        """
        return len(self.factors) == 1

    @property
    def multipliers(self) -> int:
        """Number of DSP slices of LRN's last step: one per pixel of a beat (``Tp``), or none with one scale factor."""
        return 0 if self.has_single_factor else self.window.pixels

    @property
    def result(self) -> Shape:
        """Amaranth shape of one normalised output value."""
        return Shape(self.bits, self.signed)

    @property
    def signs(self) -> tuple[bool, bool]:
        """Pair of booleans: the input type has values below the zero point, and it has values above."""
        lowest, highest = self.window.input.value_range
        return lowest < self.zero, self.zero < highest

    @cached_property
    def guesses(self) -> tuple[int, ...]:
        """Estimates ``k`` of outputs, a tuple indexed by the input's distance from its zero point; for one factor only.

        The output's distance from its zero point is ``k`` or ``k + 1``.
        """
        return tuple(min(v * self.factors[0] >> self.fraction, self.limit) for v in range(len(self.first)))

    @cached_property
    def guess_bits(self) -> int:
        """Width in bits of ``k``, the estimate of an output's distance from its zero point."""
        return max(min(self.largest_guess, self.limit), 1).bit_length()

    @cached_property
    def largest_guess(self) -> int:
        """Largest possible estimate (integer) of an output's distance from its zero point, before it is clamped."""
        return (len(self.first) - 1) * max(self.factors) >> self.fraction

    @cached_property
    def words(self) -> tuple[int, ...]:
        """Tuple of integers, LRN's correction memory: running sum where an output drops by 1, index of its ripple.

        This sum is called a fall. The index is in the bits above the fall. If there is one
        factor, the address is the value's distance.
        """
        bits = self.window.scale_bits
        words = [kind << bits | fall for fall, kind in zip(self.falls.values, self.kinds.values, strict=True)]
        if self.has_single_factor:
            return tuple(words[first + k] for first, k in zip(self.first, self.guesses, strict=True))
        return tuple(words)

    @property
    def word_bits(self) -> int:
        """Width in bits of a word of LRN's correction memory: a running sum and the index of a ripple above it."""
        return self.window.scale_bits + self.ripple_bits

    @property
    def ripple_bits(self) -> int:
        """Width in bits of an index into ``ripples``, masks of the sums after a drop by 1 that give 1 more again."""
        return counter_bits(len(self.ripples))

    @property
    def ripple_distance_bits(self) -> int:
        """Width in bits of a distance, from the sum where LRN's output drops by 1 to a larger one that gives 1 more."""
        return counter_bits(max(self.ripples).bit_length())

    @property
    def ripple_table(self) -> list[int]:
        """Table, as a flat list of bits: 1 if the sum at a distance above an output's drop by 1 gives 1 more again.

        The address consists of the distance and, above it, the index into ``ripples``.
        """
        return [
            self.ripples[ripple] >> offset & 1
            for ripple in range(len(self.ripples))
            for offset in range(1 << self.ripple_distance_bits)
        ]

    @property
    def read_cycles(self) -> int:
        """Read latency, in cycles, of LRN's correction memory, which stores running sums where outputs drop by 1."""
        return _read_cycles(self.words)

    @property
    def factor_cycles(self) -> int:
        """Cycles of LRN's table lookup from an encoded running sum (scale) to its factor; 0 with a single factor."""
        return 0 if self.has_single_factor else _read_cycles(self.factors)

    @property
    def address_cycles(self) -> int:
        """Cycles from the input of a value and its running sum to the value's address for LRN's correction memory."""
        return 1 if self.has_single_factor else self.factor_cycles + 4

    @property
    def latency(self) -> int:
        """Cycles from an input value and its running sum to the normalised output on ``o``.

        The memory of falls is read first, and five more stages follow.
        """
        return self.address_cycles + self.read_cycles + 5

    @cached_property
    def resources(self) -> Resources:
        cost, one = Cost(self.device), Cost(self.device, dsp=not self.has_single_factor)
        distance, scale = counter_bits(len(self.first)), self.window.scale_bits
        one.ff += distance
        one.lut += 1.5 * distance if self.zero != self.window.input.value_range[0] else 0
        _count_table(one, self.words, self.word_bits)
        if self.has_single_factor:
            _count_table(one, self.guesses, self.guess_bits)
        else:
            address = counter_bits(len(self.words))
            _count_table(one, self.factors, max(self.factors).bit_length())
            _count_table(one, [entry % (1 << address) for entry in self.first], address)
            one.ff += 2 * address + self.guess_bits
            one.lut += address + 2 * self.guess_bits * (self.largest_guess > self.limit)
            one.delay(self.guess_bits, self.read_cycles + 2)
        one.ff += scale + 2 + 2 + len(self.ripple_table) // 64
        one.lut += scale + scale / 5
        one.delay(scale, self.address_cycles + self.read_cycles)
        one.ff += 3 * self.guess_bits + 3 + self.bits
        one.lut += self.guess_bits + 2 * self.bits
        cost.add(one, self.window.pixels)
        cost.ff += self.latency
        return cost.resources

    def component(self) -> Normalise:
        return Normalise(self)


class Normalise(Arithmetic[NormaliseConfig]):
    """Component of LRN's last step: estimates outputs by table or product, and corrects them by the running sum.

    Parameters
    ----------
    config : NormaliseConfig

    Members
    -------
    i : In(stream, always ready)
        Steps of a `RunningScale`.
    o : Out(stream, always ready)
        ``Tp`` outputs, ``[lane][pixel]`` of one lane.

    Latency and throughput
        One step per cycle. Outputs leave ``config.latency`` cycles later. Never stalls.
    """

    def elaborate(self, platform):
        m = Module()
        config, pixels = self.config, self.config.window.pixels
        for pixel in range(pixels):
            value, scale = (self.i.payload[field][0][pixel] for field in ("operand", "scale"))
            output = self._normalise(m, at_pixel("lane", pixel, pixels), value, scale)
            m.d.comb += self.o.payload[0][pixel].eq(output)
        m.d.comb += self.o.valid.eq(delayed(m, "valid", self.i.valid, config.latency, reset_less=False))
        return m

    def _normalise(self, m: Module, name: str, value: Value, scale: Value) -> Value:
        config, bits = self.config, self.config.window.scale_bits
        distance = Signal(range(len(config.first)), name=f"{name}_distance", reset_less=True)
        m.d.sync += distance.eq(Mux(value < config.zero, config.zero - value, value - config.zero))
        find = self._look_up_guess if config.has_single_factor else self._multiply_guess
        word, guess = find(m, name, distance, scale)
        delayed_scale = delayed_fast(m, f"{name}_scale", scale, config.address_cycles + config.read_cycles)
        since = registered(m, f"{name}_scale_since_fall", delayed_scale - word[:bits], signed(bits + 1))
        before = registered(m, f"{name}_is_before_fall", since[-1], 1)
        above: Value = before
        if config.ripple_distance_bits:
            ripple = delayed(m, f"{name}_ripple_kind", word[bits:], 1)
            near = Signal(name=f"{name}_is_near_fall", reset_less=True)
            m.d.sync += near.eq(~since[config.ripple_distance_bits :].any())
            index = Cat(since[: config.ripple_distance_bits], ripple)
            back = look_up(m, config.device, f"{name}_ripples", unsigned(1), config.ripple_table, index)
            above = before | (near & back)
        output = Signal(range((1 << config.guess_bits) + 1), name=f"{name}_output_distance", reset_less=True)
        m.d.sync += output.eq(delayed_fast(m, f"{name}_guess", guess, 2) + above)
        return self._output(
            m, name, output, delayed_fast(m, f"{name}_is_negative", value < config.zero, config.latency - 2)
        )

    def _look_up_guess(self, m: Module, name: str, distance: Value, scale: Value) -> tuple[Value, Value]:
        """Look up an output's estimate by the input's distance from zero point; return (correction word, estimate).

        Only if there is one factor. A word is as in `NormaliseConfig.words`. The estimate is ``k``.
        """
        config = self.config
        guess = look_up(m, config.device, f"{name}_guesses", unsigned(config.guess_bits), config.guesses, distance)
        return self._fall(m, name, distance), delayed(m, f"{name}_guess_delayed", guess, config.read_cycles - 1)

    def _multiply_guess(self, m: Module, name: str, distance: Value, scale: Value) -> tuple[Value, Value]:
        """Estimate an output by distance from zero point times factor; return (correction word, estimate).

        The word, from memory, is as in `NormaliseConfig.words`. The estimate is ``k``.
        """
        config, address_bits = self.config, counter_bits(len(self.config.words))
        factors, bits = config.factors, max(config.factors).bit_length()
        factor = _read_table(m, config.device, f"{name}_factors", bits, factors, scale[config.shift :])
        delayed_distance = delayed(m, f"{name}_distance", distance, config.factor_cycles - 1)
        first = [entry % (1 << address_bits) for entry in config.first]
        begin = look_up(m, config.device, f"{name}_first_addresses", unsigned(address_bits), first, delayed_distance)
        product = Signal(len(delayed_distance) + len(factor), name=f"{name}_product", reset_less=True)
        multiplied = Signal.like(product, name=f"{name}_multiplier_output")
        m.d.sync += [multiplied.eq(delayed_distance * factor), product.eq(multiplied)]
        guess = Signal(config.guess_bits, name=f"{name}_product_guess", reset_less=True)
        exact = product[config.fraction :]
        saturates = config.largest_guess > config.limit
        m.d.sync += guess.eq(Mux(exact > config.limit, config.limit, exact) if saturates else exact)
        address = Signal(address_bits, name=f"{name}_fall_address", reset_less=True)
        m.d.sync += address.eq(delayed(m, f"{name}_first_address", begin, 2) + guess)
        return self._fall(m, name, address), delayed(m, f"{name}_guess_delayed", guess, 1 + config.read_cycles)

    def _fall(self, m: Module, name: str, address: Value) -> Value:
        return _read_table(m, self.config.device, f"{name}_falls", self.config.word_bits, self.config.words, address)

    def _output(self, m: Module, name: str, distance: Value, negative: Value) -> Signal:
        """Return a `Signal`, two cycles later: zero point plus (or minus, if ``negative``) ``distance``, clamped.

        The clamp is to the output's bounds, ``low`` to ``high``.
        """
        config = self.config
        largest, (below, above) = 1 << config.guess_bits, config.signs
        reach = bits_for_range(config.zero_point - largest * below, config.zero_point + largest * above)
        total = Signal(reach, name=f"{name}_unclamped_output", reset_less=True)
        result = Signal(config.result, name=f"{name}_output", reset_less=True)
        away = named(
            Mux(negative, -distance, distance) if below and above else -distance if below else distance,
            "signed_distance",
        )
        m.d.sync += [
            total.eq(config.zero_point + away),
            result.eq(Mux(total > config.high, config.high, Mux(total < config.low, config.low, total))),
        ]
        return result


def _banks(memories: Memories, words: Sequence[int], bits: int) -> list[Sequence[int]]:
    """Return a constant table's words cut into runs of consecutive addresses, one list per memory (bank).

    A memory is as deep as the block RAMs that make up its width.
    """
    banks = []
    for first in range(0, len(words), _MAX_PART_WORDS):
        bank = words[first : first + _MAX_PART_WORDS]
        num_memories, depth = memories.stacked(bits, len(bank))
        banks += [bank[begin : begin + depth] for begin in range(0, len(bank), depth)] if num_memories > 1 else [bank]
    return banks


def _read_cycles(words: Sequence[int]) -> int:
    """Return the read latency of a constant table, in cycles: 1 to 3, depending on its number of words.

    Block RAM has an output register, and several banks need a choice.
    """
    return 1 if len(words) <= _MAX_LUT_WORDS else 2 if len(words) <= _MAX_ONE_BANK_WORDS else 3


def _read_table(m: Module, device: Device, name: str, bits: int, words: Sequence[int], address: Value) -> Value:
    """Add a constant table; return a `Value`: its word at ``address``, `_read_cycles` cycles later."""
    if len(words) <= _MAX_LUT_WORDS:
        return look_up(m, device, name, unsigned(bits), words, address)
    bank_words: list[Value] = []
    banks = _banks(device.memories, words, bits)
    for index, bank in enumerate(banks):
        here = numbered(name, index, len(banks))
        m.submodules[here] = table = memory.Memory(
            shape=bits, depth=len(bank), init=list(bank), attrs=device.memories.rom_style(len(bank), "block")
        )
        port = read_port(table)
        m.d.comb += port.addr.eq(address)
        bank_words.append(delayed(m, f"{here}_word", port.data, 1))
    if len(words) <= _MAX_ONE_BANK_WORDS:
        return bank_words[0]
    bank_of_address = [index for index, bank in enumerate(banks) for _ in range(-(-len(bank) // _MAX_ONE_BANK_WORDS))]
    bank_index = Signal(range(len(banks)), name=f"{name}_bank_index", reset_less=True)
    m.d.sync += bank_index.eq(
        dense_table(m, f"{name}_bank_of_address", address[counter_bits(_MAX_ONE_BANK_WORDS) :], bank_of_address)
    )
    chosen = Signal(bits, name=f"{name}_selected", reset_less=True)
    m.d.sync += chosen.eq(_select_word(delayed(m, f"{name}_bank_index", bank_index, 1), bank_words))
    return chosen


def _select_word(index: Value, words: Sequence[Value]) -> Value:
    """Return a `Value`: the element of ``words`` at ``index``, selected by a tree of two-way multiplexers."""
    for bit in index:
        pairs = [words[first : first + 2] for first in range(0, len(words), 2)]
        words = [Mux(bit, pair[1], pair[0]) if len(pair) == 2 else pair[0] for pair in pairs]
    return words[0]


def _count_table(cost: Cost, words: Sequence[int], bits: int) -> None:
    """Add the resources of a constant table of ``words``, ``bits`` bits wide, to ``cost``."""
    if len(words) <= _MAX_LUT_WORDS:
        cost.table(words, bits)
        return
    banks = _banks(cost.memories, words, bits)
    for bank in banks:
        bits_of_bank = len(set(varying_columns(bank, bits)))
        cost.rom([], len(bank), bits_of_bank, block=True)
        cost.ff += bits_of_bank
    if len(words) > _MAX_ONE_BANK_WORDS:
        cost.ff += bits + 2 * counter_bits(len(banks))
        cost.multiplexer(bits, len(banks))
        cost.lut += 2 * counter_bits(len(banks))
