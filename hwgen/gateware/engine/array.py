"""Multiply-accumulate array of the engine: one element per output map and pixel, with memories for partial sums.

A slot is the place for one partial sum in each element.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Array as Choice
from amaranth import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, memory
from amaranth.lib.wiring import In, Out

from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.lookup import delayed, ram_attributes
from hwgen.gateware.naming import named
from hwgen.gateware.ports import read_port, write_port

#: Number of values that one LUT combines by a bitwise or.
_JOINED = 6
#: Width of a product of two bytes, in bits. The two products of a slice are this many bits apart, because they are
#: separated before they are added to any sum.
_PRODUCT_BITS = 16


def control_layout(config: EngineConfig) -> data.StructLayout:
    """Return the layout of the control word that tells the multiply-accumulate array what to do in a step (one cycle).

    `step_layout` explains ``zero``, ``resume`` and ``ends``.
    """
    return data.StructLayout(
        {
            "zero": 1,
            "resume": 1,
            "ends": 1,
            "slot": range(config.slots),
            "channel": range(LANES),
            "channelwise": 1,
            "maximum": 1,
            "pad": signed(8),
        }
    )


def select_layout(config: EngineConfig) -> data.StructLayout:
    """Return the layout of a selection of 8 sums to drain from the array: slot (pixel group), lane, block of 8 maps."""
    return data.StructLayout({"slot": range(config.slots), "lane": range(config.pixels), "block": range(config.blocks)})


@dataclass(frozen=True, kw_only=True)
class ArrayConfig:
    """Configuration of the multiply-accumulate array of ``engine``, with its FPGA resources."""

    engine: EngineConfig

    @cached_property
    def resources(self) -> Resources:
        engine, cost = self.engine, Cost()
        word = LANES * engine.sum_bits
        words = engine.pixels * engine.blocks  # words of sums: one memory each, and the drain selects one of them
        joined = -(-words // _JOINED)
        elements, operands = engine.pixels * engine.maps, min(engine.pairs, LANES + 1)
        cost.dsp = engine.pixels * engine.pairs
        for _ in range(words):
            cost.ram(word, engine.slots, "lut")
        # An adder and a multiplexer for each sum, the drain's selection, operands, packed weights, maxima.
        cost.lut += elements * engine.sum_bits + word * (joined + _any_luts(joined))
        cost.lut += engine.pixels * 8 * (2 + operands) + engine.pairs * (_PRODUCT_BITS + 9) + engine.pixels * LANES * 6
        # Operands and weights are in the registers of the slices, except the words that they are taken from.
        cost.ff += elements * engine.sum_bits + engine.pixels * 8 * (LANES + 1) + word * (joined + 1)
        cost.ff += 36 + 6 * counter_bits(engine.slots) + words  # the control of a step, and read enables
        return cost.resources

    def component(self) -> Array:
        return Array(self.engine)


def _any_luts(values: int) -> int:
    """Return the number of LUTs per bit for a bitwise or of ``values`` values."""
    return 0 if values < 2 else -(-(values - 1) // (_JOINED - 1))


@dataclass
class _Stages:
    """Valid bits and control words of the steps in the array's pipeline, each in a list by pipeline stage.

    Stage 0 is the cycle in which a step's words arrive.
    """

    valid: list[Value]
    control: list[data.View]


class Array(ConfiguredComponent[EngineConfig]):
    """Multiply-accumulate array of ``maps / 2`` by ``pixels`` DSP slices, with two products and two accumulators each.

    The slice of pair ``8 h + j`` has the weight of map ``16 h + j`` in its low field, and the weight of map
    ``16 h + 8 + j`` in its high field. LUT RAM with one write port and one read port stores the sums of
    `EngineConfig.slots` groups. Groups that continue older sums share the read port with the drain; the drain yields.

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
    weights : In(array of ``maps`` signed bytes)
        Weights of the step, one cycle after ``words``.
    select : In
        Sums to drain (`select_layout`).
    yields : Out(1)
        Whether ``select`` is ignored in this cycle.
    sums : Out(array of 8 signed sums)
        Selected sums, `DRAIN_LATENCY` cycles after ``select``.

    Latency and throughput
        One step and one selection per cycle, without stalls except for ``yields``. A group can continue the sums of a
        slot if its first step comes at least `TURNAROUND` cycles after the last step with that slot. These sums can be
        selected `SUM_LATENCY` cycles after the words of that last step.

    Number range
        Sums wrap at ``sum_bits``. Products are products of bytes. With ``maximum``, weights are 1, and low fields keep
        the maximum byte since ``zero``; they can't continue older maxima.
    """

    #: Cycles from the words of a group's last step to the first cycle in which the drain can select the group's sums.
    SUM_LATENCY = 5
    #: Minimum cycles from the last step of a group to a step that continues the group's sums from their slot.
    TURNAROUND = 3
    #: Cycles from the words of a step that resumes stored sums to the cycle in which the step blocks the drain.
    YIELD = 2
    #: Cycles from the drain's selection of sums to these sums at the array's output.
    DRAIN_LATENCY = 4

    def __init__(self, config: EngineConfig):
        super().__init__(
            config,
            {
                "valid": In(1),
                "control": In(control_layout(config)),
                "words": In(data.ArrayLayout(data.ArrayLayout(signed(8), LANES), config.pixels)),
                "inside": In(config.pixels),
                "weights": In(data.ArrayLayout(signed(8), config.maps)),
                "select": In(select_layout(config)),
                "yields": Out(1),
                "sums": Out(data.ArrayLayout(signed(config.sum_bits), LANES)),
            },
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        valid: list[Value] = [self.valid]
        control = [self.control]
        for age in range(1, 6):
            valid.append(delayed(m, f"valid_stage_{age}", valid[-1], 1, reset_less=False))
            # With a reset, synthesis makes no shift register, whose output is late.
            later = Signal(control_layout(config), name=f"control_stage_{age}")
            m.d.sync += later.eq(control[-1])
            control.append(later)
        self._stages = _Stages(valid, control)
        operands = self._elaborate_operands(m)
        weights = self._elaborate_weights(m)
        read, cleared = self._elaborate_read(m)
        stored: list[Value] = []
        for lane in range(config.pixels):
            sums: dict[int, list[Signal]] = {}
            stored_words = []
            for block in range(config.blocks):
                old = Signal(
                    data.ArrayLayout(signed(config.sum_bits), LANES),
                    name=f"stored_sums_{lane}_{block}",
                    reset_less=True,
                )
                sums[block] = [old[row] for row in range(LANES)]
                stored_words.append(old.as_value())
            for pair in range(config.pairs):
                half, row = divmod(pair, LANES)
                low, high = self._elaborate_slice(m, operands[lane][pair], weights[pair], f"{lane}_{pair}")
                sums[2 * half][row] = self._elaborate_sum(
                    m, low, sums[2 * half][row], f"accumulator_{lane}_{2 * half}_{row}", maximum=half == 0
                )
                sums[2 * half + 1][row] = self._elaborate_sum(
                    m, high, sums[2 * half + 1][row], f"accumulator_{lane}_{2 * half + 1}_{row}", maximum=False
                )
            for block, old in enumerate(stored_words):
                self._elaborate_slots(m, lane, block, Cat(sums[block]), read, cleared[lane][block], old)
            stored += stored_words
        self._elaborate_choice(m, stored)
        return m

    def _elaborate_operands(self, m: Module) -> list[list[Signal]]:
        """Add the choice of each DSP slice's activation; return it by lane and pair of maps, two cycles later.

        Equal activations are shared.
        """
        config = self._config
        before, control = self._stages.control[0], self._stages.control[1]
        operands = []
        for lane in range(config.pixels):
            chosen = Signal(signed(8), name=f"channel_value_{lane}", reset_less=True)
            own = Signal(data.ArrayLayout(signed(8), LANES), name=f"pixel_word_{lane}", reset_less=True)
            m.d.sync += [
                chosen.eq(Choice(self.words[lane][channel] for channel in range(LANES))[before.channel]),
                own.eq(self.words[lane]),
            ]
            inside = self.inside[lane]
            values = []
            for pair in range(min(config.pairs, LANES + 1)):
                value = Signal(signed(8), name=f"operand_{lane}_{pair}", reset_less=True)
                mine = Mux(control.channelwise, own[pair], chosen) if pair < LANES else chosen
                m.d.sync += value.eq(Mux(inside, mine, control.pad))
                values.append(value)
            operands.append(values + values[-1:] * (config.pairs - len(values)))
        return operands

    def _elaborate_weights(self, m: Module) -> list[Signal]:
        """Pack both weights of each pair of output maps into a registered DSP operand, and return one operand per pair.

        The operands are zero without a step, so that sums do not change.
        """
        packed = []
        for pair in range(self._config.pairs):
            half, row = divmod(pair, LANES)
            low, high = self.weights[16 * half + row], self.weights[16 * half + LANES + row]
            both = Signal(signed(_PRODUCT_BITS + 9), name=f"packed_weights_{pair}", reset_less=True)
            below = Cat(low, low[-1].replicate(_PRODUCT_BITS - 8), named(high - low[-1], "high_weight")[:9])
            m.d.sync += both.eq(Mux(self._stages.valid[1], below, 0))
            packed.append(both)
        return packed

    def _elaborate_slice(self, m: Module, operand: Signal, weights: Signal, name: str) -> tuple[Value, Value]:
        """Add a DSP slice that multiplies an activation by two packed weights; return both products, two cycles later.

        The slice adds half of the high field's unit. So the high field is rounded, and is not one too small where the
        low product is negative. The addition inverts the sign bit of the low field.
        """
        product = Signal(signed(len(weights) + 8), name=f"packed_product_{name}", reset_less=True)
        rounded = Signal(signed(len(weights) + 8), name=f"rounded_product_{name}", reset_less=True)
        m.d.sync += [product.eq(operand * weights), rounded.eq(product + (1 << (_PRODUCT_BITS - 1)))]
        low, sign = rounded[: _PRODUCT_BITS - 1], rounded[_PRODUCT_BITS - 1]
        return Cat(low, ~sign).as_signed(), rounded[_PRODUCT_BITS : 2 * _PRODUCT_BITS].as_signed()

    def _elaborate_sum(self, m: Module, product: Value, old: Value, name: str, *, maximum: bool) -> Signal:
        control = self._stages.control[4]
        total = Signal(signed(self._config.sum_bits), name=name, reset_less=True)
        if not maximum:
            m.d.sync += total.eq(Mux(control.zero, 0, Mux(control.resume, old, total)) + product)
            return total
        greater = product[:8].as_signed() > total[:8].as_signed()
        with m.If(~control.maximum | control.zero | greater):
            base = named(Mux(control.zero | control.maximum, 0, Mux(control.resume, old, total)), "base_sum")
            m.d.sync += total.eq(base + product)
        return total

    def _elaborate_read(self, m: Module) -> tuple[Signal, list[list[Signal]]]:
        """Drive ``yields``; return the slot to read from all memories of partial sums, and a mask bit per memory.

        There is one memory, and one word to read, per lane and block of 8 maps. The mask clears the word.

        A group that resumes its sums reads all words. The drain reads the word that it selects.
        """
        config = self._config
        resumes = named(self._stages.valid[self.YIELD] & self._stages.control[self.YIELD].resume, "resumes")
        slot = Signal(range(config.slots), name="read_slot_index", reset_less=True)
        m.d.comb += self.yields.eq(resumes)
        m.d.sync += slot.eq(Mux(resumes, self._stages.control[self.YIELD].slot, self.select.slot))
        cleared = []
        for lane in range(config.pixels):
            cleared.append(
                [Signal(name=f"is_deselected_{lane}_{block}", reset_less=True) for block in range(config.blocks)]
            )
            for block, clear in enumerate(cleared[-1]):
                mine = (self.select.lane == lane) & (self.select.block == block)
                m.d.sync += clear.eq(~(resumes | mine))
        return slot, cleared

    def _elaborate_slots(
        self, m: Module, lane: int, block: int, sums: Value, read: Signal, cleared: Signal, old: Value
    ) -> None:
        """Add the memory that stores the partial sums of 8 maps and one lane, with one word per slot.

        It is written a cycle after a group's last sum, and read into ``old``.
        """
        config, stages = self._config, self._stages
        m.submodules[f"slots_{lane}_{block}"] = slots = memory.Memory(
            shape=len(sums), depth=config.slots, init=[], attrs=ram_attributes(config.slots, "lut")
        )
        to, of = write_port(slots), read_port(slots, domain="comb")
        m.d.comb += [
            to.en.eq(stages.valid[5] & stages.control[5].ends),
            to.addr.eq(stages.control[5].slot),
            to.data.eq(sums),
            of.addr.eq(read),
        ]
        m.d.sync += old.eq(Mux(cleared, 0, of.data))

    def _elaborate_choice(self, m: Module, stored: list[Value]) -> None:
        """Drive the output ``sums`` with the word of sums that the drain selects.

        It is the bitwise or of all words, where the others are masked to zero.
        """
        joined = []
        for first in range(0, len(stored), _JOINED):
            part = Signal(len(stored[0]), name=f"joined_sums_{first // _JOINED}", reset_less=True)
            m.d.sync += part.eq(_any(stored[first : first + _JOINED]))
            joined.append(part)
        m.d.sync += self.sums.as_value().eq(_any(joined))


def _any(values: list[Value]) -> Value:
    """Return the bitwise or of all values, built as a balanced tree."""
    while len(values) > 1:
        values = [
            values[first] | values[first + 1] if first + 1 < len(values) else values[first]
            for first in range(0, len(values), 2)
        ]
    return values[0]
