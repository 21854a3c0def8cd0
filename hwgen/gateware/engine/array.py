"""Multiply-accumulate array of the engine: chains of DSP slices for output maps and pixels, and memories for sums.

A *step* is one cycle of the array's work. A *lane* computes one output pixel. A *slot* stores one partial sum for each
output map and lane.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from amaranth import Cat, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.config import CHAIN, LANES, EngineConfig
from hwgen.gateware.lookup import delayed, delayed_fast, named, ram, read_port, write_port
from hwgen.gateware.multipliers.booth import BoothMultiplier
from hwgen.gateware.multipliers.lut_multiplier import DotOperands, DotProducts

#: Number of values that one 6-input LUT per bit combines by a bitwise or: plain values, and values with mask bits.
_OR_INPUTS, _MASKED_OR_INPUTS = 6, 3
#: Multiplier circuit of the lanes (output pixels) whose products are computed in LUTs instead of DSP slices.
_LUT_MULTIPLIER = BoothMultiplier()
#: Offset in bits of the upper field in a DSP chain's sum, which packs two sums of four products.
FIELD_BITS = 17
#: Width in bits of the upper field in a DSP chain's packed sum; its value can be ``2**16``.
_HIGH_BITS = FIELD_BITS + 1
#: Cycles from a step's input words at the array's port to its operands at the first DSP slice of each chain.
_OPERAND_CYCLES = 2
#: Cycles from a step's operands at the first DSP slice to the chain's sum: one for the product, and one per slice.
_CHAIN_CYCLES = 1 + CHAIN


def control_layout(config: EngineConfig) -> data.StructLayout:
    """Return the Amaranth layout of the multiply-accumulate array's control word for one step, a cycle of products.

    `step_layout` explains ``zero``, ``resume``, ``ends`` and ``half``.
    """
    return data.StructLayout(
        {
            "zero": 1,
            "resume": 1,
            "ends": 1,
            "slot": range(config.slots),
            "half": 1,
            "channelwise": 1,
            "maximum": 1,
            "pad": signed(8),
        }
    )


def select_layout(config: EngineConfig) -> data.StructLayout:
    """Return the Amaranth layout of the array's readout address: slot of sums, lane (pixel) per word, block of 8 maps.

    A word has 8 sums of one lane; all words have the same slot and block.
    """
    lanes = data.ArrayLayout(range(config.pixels), config.beat_words)
    return data.StructLayout({"slot": range(config.slots), "lanes": lanes, "block": range(config.blocks)})


def lut_products(config: EngineConfig) -> DotProducts:
    """Return the `DotProducts` of multipliers in LUTs for one pixel: four channels by four output maps."""
    return DotProducts(
        device=config.device,
        operand=Shape(8, signed=True),
        weight_bits=8,
        weight_range=(-128, 127),
        terms=(1,) * CHAIN,
        sum_bits=(min(_HIGH_BITS, config.sum_bits),) * CHAIN,
    )


@lru_cache
def slice_delay(config: EngineConfig) -> int:
    """Return how many cycles DSP slices' operands are delayed, to match the slower multipliers in LUTs."""
    return max(_LUT_MULTIPLIER.latency(lut_products(config)) - _CHAIN_CYCLES, 0) if config.lut_pixels else 0


def sum_cycles(config: EngineConfig) -> int:
    """Return the cycles from a step's input words at the array to its sums of four products, not yet accumulated."""
    return _OPERAND_CYCLES + slice_delay(config) + _CHAIN_CYCLES


def sum_latency(config: EngineConfig) -> int:
    """Return the cycles from the input words of a pixel group's last step until the group's sums can be selected."""
    return sum_cycles(config) + 1


def yield_latency(config: EngineConfig) -> int:
    """Return the cycles from a step's input words until the step blocks the readout, if it resumes stored sums."""
    return sum_cycles(config) - 2


@dataclass(frozen=True, kw_only=True)
class ArrayConfig:
    """Configuration of the multiply-accumulate array of an engine, with the array's FPGA resources."""

    engine: EngineConfig

    @cached_property
    def resources(self) -> Resources:
        engine, cost = self.engine, Cost(self.engine.device)
        word = LANES * engine.sum_bits
        words = engine.pixels * engine.blocks  # words of sums: one memory each, and the drain selects one of them
        joined = -(-words // _words_per_lut(engine))
        sums, activations = engine.pixels * engine.maps, engine.pixels * LANES * 8
        cost.dsp = engine.slice_pixels * engine.pairs * CHAIN
        cost.ram(word, engine.slots, "lut", copies=words)
        # An adder and a multiplexer for each sum, the drain's selection, activations, maxima.
        cost.lut += sums * engine.sum_bits + engine.beat_words * word * (joined + _or_luts(joined))
        cost.lut += activations + engine.pixels * LANES * 6
        # The first registers of activations and weights are in the slices, except at late positions.
        self._count_lut_products(cost)
        cost.ff += sums * engine.sum_bits + engine.beat_words * word * (joined + 1)
        cost.ff += activations + engine.pixels * 2 * 8 * sum(max(position - 1, 0) for position in range(CHAIN))
        cost.ff += 36 + 6 * counter_bits(engine.slots) + words  # the control of a step, and read enables
        if engine.beat_words > 1:  # which word each lane is
            cost.registers(2 * engine.beat_words * engine.pixels)
        return cost.resources

    def _count_lut_products(self, cost: Cost) -> None:
        """Add to ``cost`` the multipliers in LUTs, and the registers that delay the operands of DSP slices."""
        engine, weights = self.engine, CHAIN * self.engine.maps
        if not engine.lut_pixels:
            return
        grid, grids = Cost(self.engine.device), engine.maps // CHAIN
        _LUT_MULTIPLIER.count_grid(grid, lut_products(engine), engine.lut_pixels)
        cost.products(grids * grid.lut, _LUT_MULTIPLIER.lut4_ratio)
        cost.ff += grids * grid.ff
        delay = slice_delay(engine)
        cost.ff += 2 * 8 * weights // 2 + engine.lut_pixels * 2 * 8 * CHAIN  # operands
        cost.lut += 8 * weights // 2  # the weights of odd maps
        cost.ff += delay * (engine.slice_pixels * (8 * LANES + 1) + 8 * weights + 11)

    def component(self) -> Array:
        return Array(self.engine)


def _words_per_lut(engine: EngineConfig) -> int:
    """Return how many words (8 sums each) one LUT per bit can merge as sums are read out of the array."""
    return _OR_INPUTS if engine.beat_words == 1 else _MASKED_OR_INPUTS


def _or_luts(values: int) -> int:
    """Return the number of LUTs per bit that a bitwise or of ``values`` values takes."""
    return 0 if values < 2 else -(-(values - 1) // (_OR_INPUTS - 1))


class Array(ConfiguredComponent[EngineConfig]):
    """Multiply-accumulate array: ``maps / 2`` by ``pixels`` chains of four DSP slices, with two accumulators per chain.

    In the last ``lut_pixels`` lanes, LUTs compute the products (`BoothMultiplier`), and the sums of four.

    A slice multiplies a channel of a pixel by the weights of two neighbouring output maps, and adds both products to
    the previous slice's sums. A chain therefore adds the products of four channels, and separates the two sums after
    its last slice. LUT RAM with one write port and one read port stores the sums of `EngineConfig.slots` groups. Groups
    that continue older sums share the read port with the drain; the drain yields.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    valid : In(1)
        Whether there is a step in this cycle.
    control : In
        Control word of the step (`control_layout`).
    words : In(array of ``pixels`` arrays of 8 signed bytes)
        8 channels of each lane's pixel.
    inside : In(pixels)
        Lanes whose word is inside of the map, one cycle after ``words``. The other lanes use ``pad``.
    weights : In(array of 4 arrays of ``maps`` signed bytes)
        Weights of each chain position, one cycle after ``words``, and one more per position. Byte ``2 p`` is the weight
        of map ``2 p``. Byte ``2 p + 1`` is the weight of map ``2 p + 1``, less 1 if the weight of map ``2 p`` is
        negative.
    select : In
        Sums to drain (`select_layout`).
    yields : Out(1)
        Whether ``select`` is ignored in this cycle.
    sums : Out(array of 8, 16 or 32 signed sums)
        Selected sums, `DRAIN_LATENCY` cycles after ``select``: 8 of each lane.

    Latency and throughput
        One step and one selection per cycle, without stalls except for ``yields``. A group can continue the sums of a
        slot if its first step comes at least `TURNAROUND` cycles after the last step with that slot. These sums can be
        selected `sum_latency` cycles after the words of that last step.

    Number range
        Sums wrap at ``sum_bits``. In a step, the four weights of an output map with an even index must not all be -128.
        With ``maximum``, weights are 1, and fields keep the maximum byte since ``zero``; they can't continue older
        maxima.
    """

    #: Minimum cycles from the last step of a pixel group to a later step that continues the group's stored sums.
    TURNAROUND = 3
    #: Cycles from a selection of sums at the input ``select`` to these sums at the output ``sums``.
    DRAIN_LATENCY = 4

    def __init__(self, config: EngineConfig):
        super().__init__(
            config,
            {
                "valid": In(1),
                "control": In(control_layout(config)),
                "words": In(data.ArrayLayout(data.ArrayLayout(signed(8), LANES), config.pixels)),
                "inside": In(config.pixels),
                "weights": In(data.ArrayLayout(data.ArrayLayout(signed(8), config.maps), CHAIN)),
                "select": In(select_layout(config)),
                "yields": Out(1),
                "sums": Out(data.ArrayLayout(signed(config.sum_bits), LANES * config.beat_words)),
            },
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        delay, slices = slice_delay(config), config.slice_pixels
        operands = [
            *self._elaborate_operands(m, range(slices), delay),
            *self._elaborate_operands(m, range(slices, config.pixels), 0),
        ]
        self._packed_weights, self._map_weights = self._elaborate_weights(m, delay)
        read, cleared = self._elaborate_read(m)
        self._delay_flags(m)
        stored: list[Value] = []
        for lane in range(config.pixels):
            for block in range(config.blocks):
                old = Signal(
                    data.ArrayLayout(signed(config.sum_bits), LANES),
                    name=f"stored_sums_{lane}_{block}",
                    reset_less=True,
                )
                sums = []
                for row, field in enumerate(self._elaborate_block(m, lane, block, operands[lane])):
                    name = f"accumulator_{lane}_{block}_{row}"
                    sums.append(self._elaborate_sum(m, field, old[row], name, maximum=block == 0))
                self._elaborate_slots(m, lane, block, Cat(sums), read, cleared[lane][block], old.as_value())
                stored.append(old.as_value())
        self._elaborate_output(m, stored)
        return m

    def _elaborate_block(self, m: Module, lane: int, block: int, operands: list[list[Value]]) -> list[Value]:
        """Add one lane's (pixel's) multipliers for 8 output maps; return a list: per map, its sum of four products."""
        fields: list[Value] = []
        for half in range(LANES // CHAIN):
            activations = operands[half if block == 0 else 0]
            first = block * LANES + half * CHAIN
            if lane >= self._config.slice_pixels:
                weights = self._map_weights[first : first + CHAIN]
                fields += self._elaborate_products(m, activations, weights, f"{lane}_{first}")
                continue
            for pair in range(first // 2, (first + CHAIN) // 2):
                fields += self._elaborate_chain(m, activations, self._packed_weights[pair], f"{lane}_{pair}")
        return fields

    def _elaborate_operands(self, m: Module, lanes: range, delay: int) -> list[list[list[Value]]]:
        """Select the activations; return nested lists by lane (pixel), half of the maps (4 of 8), and chain position.

        In a channelwise step, the first half of the maps reads channels 0 to 3, and the second half channels 4 to 7.
        Activations arrive one cycle later at each next position, and all of them ``delay`` cycles late.
        """
        if not lanes:
            return []
        # The first registers of slices are inside of these; LUTs need the fast output of a flip-flop.
        delay_line = delayed if lanes.start < self._config.slice_pixels else delayed_fast
        suffix = "_of_slices" if delay else ""
        upper, channelwise, pad = (
            delayed(m, f"{name}{suffix}", self.control[name], delay, reset_less=False)
            for name in ("half", "channelwise", "pad")
        )
        halves = [Signal(name=f"is_upper_half_{half}{suffix}") for half in range(2)]
        m.d.sync += [halves[0].eq(upper & ~channelwise), halves[1].eq(upper | channelwise)]
        pad = delayed(m, f"padding{suffix}", pad, 1)
        operands = []
        for lane in lanes:
            word = Signal(data.ArrayLayout(signed(8), LANES), name=f"pixel_word_{lane}", reset_less=True)
            m.d.sync += word.as_value().eq(
                delayed(m, f"pixel_word_{lane}_early", self.words[lane].as_value(), delay, reset_less=False)
            )
            inside = delayed(m, f"inside_{lane}", self.inside[lane], delay, reset_less=False)
            operands.append([])
            for half, upper_half in enumerate(halves):
                values = []
                for position in range(CHAIN):
                    value = Signal(signed(8), name=f"activation_{lane}_{half}_{position}")
                    channel = Mux(upper_half, word[CHAIN + position], word[position])
                    m.d.comb += value.eq(Mux(inside, channel, pad))
                    values.append(delay_line(m, value.name, value, 1 + position))
                operands[-1].append(values)
        return operands

    def _elaborate_weights(self, m: Module, delay: int) -> tuple[list[list[Signal]], list[list[Signal]]]:
        """Register the weights; return two nested lists: packed by map pair and position, and by map and position.

        They are zero without a step, so that sums do not change. Packed weights are ``delay`` cycles late.
        """
        config = self._config
        packed: list[list[Signal]] = [[] for _ in range(config.pairs if config.slice_pixels else 0)]
        map_weights: list[list[Signal]] = [[] for _ in range(config.maps if config.lut_pixels else 0)]
        early = delayed(m, "step_valid", self.valid, 1, reset_less=False)
        for position in range(CHAIN):
            late = delayed(m, f"step_valid_of_slices_{position}", early, delay, reset_less=False)
            for pair, weights in enumerate(packed):
                name = f"weights_{pair}_{position}"
                low, high = (
                    delayed(m, f"{name}_{field}", self.weights[position][2 * pair + field], delay, reset_less=False)
                    for field in range(2)
                )
                both = Signal(signed(FIELD_BITS + 8), name=f"packed_{name}", reset_less=True)
                m.d.sync += both.eq(Cat(low, low[-1].replicate(FIELD_BITS - 8), high))
                with m.If(~late):
                    m.d.sync += both.eq(0)
                weights.append(both)
            for row, weights in enumerate(map_weights):
                weight = Signal(signed(8), name=f"weight_{row}_{position}", reset_less=True)
                byte = self.weights[position][row]
                # The byte of an odd map is one less if the even map's weight is negative.
                m.d.sync += weight.eq(byte + self.weights[position][row - 1][-1] if row % 2 else byte)
                with m.If(~early):
                    m.d.sync += weight.eq(0)
                weights.append(weight)
            early = delayed(m, f"step_valid_{position}", early, 1, reset_less=False)
        return packed, map_weights

    def _elaborate_products(
        self, m: Module, activations: list[Value], weights: list[list[Signal]], name: str
    ) -> list[Value]:
        """Add LUT multipliers for one pixel and the maps of ``weights``; return a list: each map's sum of four."""
        config = self._config
        dots = lut_products(config)
        operands = DotOperands(
            [[activation] for activation in activations],
            [[[weight] for weight in weights_of_map] for weights_of_map in weights],
            [f"lut_sum_{name}_{row}" for row in range(len(weights))],
        )
        sums = _LUT_MULTIPLIER.sums(m, dots, operands)
        early = sum_cycles(config) - _OPERAND_CYCLES - _LUT_MULTIPLIER.latency(dots)
        return [delayed(m, f"lut_sum_{name}_{row}_delayed", total, early).as_signed() for row, total in enumerate(sums)]

    def _elaborate_chain(
        self, m: Module, activations: list[Value], weights: list[Signal], name: str
    ) -> tuple[Value, Value]:
        """Add a chain of four DSP slices; return a pair: its sums of four products for an even and an odd map.

        They are valid `sum_cycles` cycles after the words. The first slice adds half of the high field's unit, which
        rounds the high field; otherwise it would be one too small when the sum of the low field is negative. The
        addition inverts the sign bit of the low field.
        """
        total = None
        for position, (activation, weight) in enumerate(zip(activations, weights, strict=True)):
            product = Signal(signed(len(weight) + 8), name=f"packed_product_{name}_{position}", reset_less=True)
            bits = min(len(product) + position, FIELD_BITS + _HIGH_BITS)
            partial = Signal(signed(bits), name=f"chain_sum_{name}_{position}", reset_less=True)
            before = 1 << (FIELD_BITS - 1) if total is None else total
            m.d.sync += [product.eq(activation * weight), partial.eq(product + before)]
            total = partial
        assert total is not None
        low, sign = total[: FIELD_BITS - 1], total[FIELD_BITS - 1]
        return Cat(low, ~sign).as_signed(), total[FIELD_BITS:].as_signed()

    def _delay_flags(self, m: Module) -> None:
        """Delay a step's control flags and slot index until the step's sums of products arrive at the accumulators."""
        control, cycles = self.control, sum_cycles(self._config)
        self._maximum = delayed_fast(m, "is_maximum", control.maximum, cycles)
        self._opens = delayed_fast(m, "opens_sums", control.zero, cycles)
        self._from_zero = delayed_fast(m, "starts_from_zero", control.zero | control.maximum, cycles)
        self._resumes = delayed_fast(m, "resumes_sums", control.resume, cycles)
        self._written = delayed(m, "slot_write", self.valid & control.ends, cycles + 1, reset_less=False)
        self._slot = delayed_fast(m, "write_slot_index", control.slot, cycles + 1)

    def _elaborate_sum(self, m: Module, field: Value, old: Value, name: str, *, maximum: bool) -> Signal:
        total = Signal(signed(self._config.sum_bits), name=name, reset_less=True)
        base = named(Mux(self._from_zero, 0, Mux(self._resumes, old, total)), "base_sum")
        if not maximum:
            m.d.sync += total.eq(base + field)
            return total
        greater = field[:8].as_signed() > total[:8].as_signed()
        with m.If(~self._maximum | self._opens | greater):
            m.d.sync += total.eq(base + field)
        return total

    def _elaborate_read(self, m: Module) -> tuple[Signal, list[list[Signal]]]:
        """Drive ``yields``; return a pair: slot to read in all sum memories, and clear flags by lane and block.

        There is one memory, and one word to read, per lane and block of 8 maps. The flag clears the word that was read.

        A group that resumes its sums reads all words. The drain reads the word that it selects.
        """
        config, control = self._config, self.control
        cycles = yield_latency(config)
        resumes = delayed(m, "reads_sums", self.valid & control.resume, cycles, reset_less=False)
        resumed = delayed_fast(m, "resumed_slot_index", control.slot, cycles)
        slot = Signal(range(config.slots), name="read_slot_index", reset_less=True)
        m.d.comb += self.yields.eq(resumes)
        m.d.sync += slot.eq(Mux(resumes, resumed, self.select.slot))
        cleared = []
        for lane in range(config.pixels):
            cleared.append(
                [Signal(name=f"is_deselected_{lane}_{block}", reset_less=True) for block in range(config.blocks)]
            )
            for block, clear in enumerate(cleared[-1]):
                mine = Cat(selected == lane for selected in self.select.lanes).any() & (self.select.block == block)
                m.d.sync += clear.eq(~(resumes | mine))
        return slot, cleared

    def _elaborate_slots(
        self, m: Module, lane: int, block: int, sums: Value, read: Signal, cleared: Signal, old: Value
    ) -> None:
        """Add a lane's memory of partial sums for 8 maps: a slot is the word of 8 sums of one pixel.

        It is written a cycle after a group's last sum, and read into ``old``.
        """
        config = self._config
        m.submodules[f"slots_{lane}_{block}"] = slots = ram(config.device, len(sums), config.slots, "lut")
        to, of = write_port(slots), read_port(slots, domain="comb")
        m.d.comb += [to.en.eq(self._written), to.addr.eq(self._slot), to.data.eq(sums), of.addr.eq(read)]
        m.d.sync += old.eq(Mux(cleared, 0, of.data))

    def _elaborate_output(self, m: Module, stored: list[Value]) -> None:
        """Drive the output ``sums`` with the selected words of 8 sums, from the words that all memories have read.

        Each is the bitwise or of all words, with the others masked to zero. Words that are not selected at all are
        already zero, so masks are only needed if several words are selected.
        """
        config = self._config
        words, together = config.beat_words, _words_per_lut(config)
        sums = self.sums.as_value()
        for word in range(words):
            masked = stored
            if words > 1:
                picks = self._select_lanes(m, word)
                masked = [value & pick.replicate(len(value)) for value, pick in zip(stored, picks, strict=True)]
            joined = []
            for first in range(0, len(stored), together):
                name = f"joined_sums_{first // together}" + (f"_{word}" if words > 1 else "")
                part = Signal(len(stored[0]), name=name, reset_less=True)
                m.d.sync += part.eq(_or_tree(masked[first : first + together]))
                joined.append(part)
            m.d.sync += sums.word_select(word, len(stored[0])).eq(_or_tree(joined))

    def _select_lanes(self, m: Module, word: int) -> list[Value]:
        """Return a list of bits, one per lane and 8-map block: whether readout word ``word`` selects that lane."""
        config, lane = self._config, self.select.lanes[word]
        picks = []
        for index in range(config.pixels):
            mine = delayed(m, f"is_word_{word}_{index}", lane == index, 2)
            picks += [mine] * config.blocks
        return picks


def _or_tree(values: list[Value]) -> Value:
    """Return the bitwise or of all values, as a balanced tree of two-input ors."""
    while len(values) > 1:
        values = [
            values[first] | values[first + 1] if first + 1 < len(values) else values[first]
            for first in range(0, len(values), 2)
        ]
    return values[0]
