"""The array: pairs of maps by pixels of multiply-accumulate elements, their slots, and the way out of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Array as Choice
from amaranth import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.lookup import delayed, ram_attributes
from hwgen.gateware.ports import read_port, write_port

#: Values that one LUT joins.
_JOINED = 6
#: Width of a product of two bytes; two products of a slice lie so many bits apart, as each is parted from the other
#: before it is added to anything.
_PRODUCT_BITS = 16


def control_layout(config: EngineConfig) -> data.StructLayout:
    """What the elements do in a step; of ``zero``, ``resume`` and ``ends`` see `step_layout`."""
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
    """Which sums are drained: those of a block of maps and a lane in a slot."""
    return data.StructLayout({"slot": range(config.slots), "lane": range(config.pixels), "block": range(config.blocks)})


@dataclass(frozen=True, kw_only=True)
class ArrayConfig:
    """The array of ``engine``, and what it takes."""

    engine: EngineConfig

    @cached_property
    def resources(self) -> Resources:
        engine, cost = self.engine, Cost()
        word = LANES * engine.sum_bits
        kept = engine.pixels * engine.blocks  # words of sums: as many memories, and as many to choose from
        joined = -(-kept // _JOINED)
        elements, operands = engine.pixels * engine.maps, min(engine.pairs, LANES + 1)
        cost.dsp = engine.pixels * engine.pairs
        for _ in range(kept):
            cost.ram(word, engine.slots, "lut")
        # An adder with its choice for each sum, the drain's choice, operands, packed weights, maxima.
        cost.lut += elements * engine.sum_bits + word * (joined + _any_luts(joined))
        cost.lut += engine.pixels * 8 * (2 + operands) + engine.pairs * (_PRODUCT_BITS + 9) + engine.pixels * LANES * 6
        # Operands and weights lie in the slices' own registers, but for the words that they are taken from.
        cost.ff += elements * engine.sum_bits + engine.pixels * 8 * (LANES + 1) + word * (joined + 1)
        cost.ff += 36 + 6 * counter_bits(engine.slots) + kept  # what goes along with a step; who is read
        return cost.resources

    def component(self) -> Array:
        return Array(self.engine)


def _any_luts(values: int) -> int:
    """LUTs of the bitwise or of so many values, a bit."""
    return 0 if values < 2 else -(-(values - 1) // (_JOINED - 1))


@dataclass
class _Stages:
    """The control of the step that is at each stage, counted from the words' arrival."""

    valid: list[Value]
    control: list[data.View]


class Array(wiring.Component):
    """``maps / 2`` by ``pixels`` DSP slices with two products each, and a sum in fabric for each product.

    The slice of pair ``8 h + j`` has the weight of map ``16 h + j`` in its low field, and that of map ``16 h + 8 + j``
    in its high one. Sums of `EngineConfig.slots` groups lie in LUT RAM with a write port and a read port. Groups that
    go on with older sums and the drain share the latter: the drain yields.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    valid : In(1)
        There is a step.
    control : In
        `control_layout`.
    words : In(array of ``pixels`` arrays of 8 signed bytes)
        8 channels of each lane's pixel.
    inside : In(pixels)
        A cycle later: lanes whose word counts; the others have ``pad``.
    weights : In(array of ``maps`` signed bytes)
        A cycle later.
    select : In
        `select_layout`.
    yields : Out(1)
        ``select`` isn't heard in this cycle.
    sums : Out(array of 8 signed sums)
        What was selected, `DRAIN_LATENCY` cycles later.

    Latency and throughput
        A step and a selection a cycle, without stalls, except for ``yields``. A group may go on with the sums of a
        slot if its first step comes `TURNAROUND` cycles or more after the last one with that slot. They may be
        selected `SUM_LATENCY` cycles after that one's words.

    Number range
        Sums wrap at ``sum_bits``. Products are those of bytes. With ``maximum`` weights are 1, and low fields keep the
        greatest byte since ``zero``; they can't go on with older ones.
    """

    #: Cycles from a step's words to the first cycle in which its sums may be selected.
    SUM_LATENCY = 5
    #: Cycles from a step to another one that goes on with its sums from their slot.
    TURNAROUND = 3
    #: Cycles from a step's words to the one in which it keeps the drain from its selection.
    YIELD = 2
    #: Cycles from a selection to its sums.
    DRAIN_LATENCY = 4

    def __init__(self, config: EngineConfig):
        self._config = config
        super().__init__(
            {
                "valid": In(1),
                "control": In(control_layout(config)),
                "words": In(data.ArrayLayout(data.ArrayLayout(signed(8), LANES), config.pixels)),
                "inside": In(config.pixels),
                "weights": In(data.ArrayLayout(signed(8), config.maps)),
                "select": In(select_layout(config)),
                "yields": Out(1),
                "sums": Out(data.ArrayLayout(signed(config.sum_bits), LANES)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        valid: list[Value] = [self.valid]
        control = [self.control]
        for age in range(1, 6):
            valid.append(delayed(m, f"valid_stage_{age}", valid[-1], 1, reset_less=False))
            # With a reset: no shift register, whose output is late.
            later = Signal(control_layout(config), name=f"control_stage_{age}")
            m.d.sync += later.eq(control[-1])
            control.append(later)
        self._stages = _Stages(valid, control)
        operands = self._elaborate_operands(m)
        weights = self._elaborate_weights(m)
        read, cleared = self._elaborate_read(m)
        kept = []
        for lane in range(config.pixels):
            sums: dict[int, list[Signal]] = {}
            kept.append([])
            for block in range(config.blocks):
                old = Signal(
                    data.ArrayLayout(signed(config.sum_bits), LANES),
                    name=f"stored_sums_{lane}_{block}",
                    reset_less=True,
                )
                sums[block] = [old[number] for number in range(LANES)]
                kept[-1].append(old)
            for pair in range(config.pairs):
                half, number = divmod(pair, LANES)
                low, high = self._elaborate_slice(m, operands[lane][pair], weights[pair], f"{lane}_{pair}")
                sums[2 * half][number] = self._elaborate_sum(
                    m, low, sums[2 * half][number], f"accumulator_{lane}_{2 * half}_{number}", maximum=half == 0
                )
                sums[2 * half + 1][number] = self._elaborate_sum(
                    m, high, sums[2 * half + 1][number], f"accumulator_{lane}_{2 * half + 1}_{number}", maximum=False
                )
            for block in range(config.blocks):
                self._elaborate_slots(
                    m, lane, block, Cat(sums[block]), read, cleared[lane][block], kept[lane][block].as_value()
                )
        self._elaborate_choice(m, [old.as_value() for each in kept for old in each])
        return m

    def _elaborate_operands(self, m: Module) -> list[list[Signal]]:
        """Each lane's value for each pair, two cycles behind the words; pairs that get the same share it."""
        config = self._config
        before, control = self._stages.control[0], self._stages.control[1]
        operands = []
        for lane in range(config.pixels):
            chosen = Signal(signed(8), name=f"channel_value_{lane}", reset_less=True)
            own = Signal(data.ArrayLayout(signed(8), LANES), name=f"pixel_word_{lane}", reset_less=True)
            m.d.sync += [
                chosen.eq(Choice(self.words[lane][number] for number in range(LANES))[before.channel]),
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
        """Two weights beside each other for each pair; zero without a step, so that sums stay."""
        packed = []
        for pair in range(self._config.pairs):
            half, number = divmod(pair, LANES)
            low, high = self.weights[16 * half + number], self.weights[16 * half + LANES + number]
            both = Signal(signed(_PRODUCT_BITS + 9), name=f"packed_weights_{pair}", reset_less=True)
            below = Cat(low, low[-1].replicate(_PRODUCT_BITS - 8), (high - low[-1])[:9])
            m.d.sync += both.eq(Mux(self._stages.valid[1], below, 0))
            packed.append(both)
        return packed

    def _elaborate_slice(self, m: Module, operand: Signal, weights: Signal, name: str) -> tuple[Value, Value]:
        """Both products, two cycles later. Half of the high field's unit is added, so that it is rounded, and not less
        by one where the low one is negative; that turns the low one's sign."""
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
            kept = Mux(control.zero | control.maximum, 0, Mux(control.resume, old, total))
            m.d.sync += total.eq(kept + product)
        return total

    def _elaborate_read(self, m: Module) -> tuple[Signal, list[list[Signal]]]:
        """The slot that is read, and of which lanes and blocks not: all are, or those that the drain selects."""
        config = self._config
        resumes = self._stages.valid[self.YIELD] & self._stages.control[self.YIELD].resume
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
        """The slots of 8 maps and a lane: written a cycle after a group's last sum, read into ``old``."""
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

    def _elaborate_choice(self, m: Module, kept: list[Value]) -> None:
        """The sums that were selected: all others are zero."""
        joined = []
        for number in range(0, len(kept), _JOINED):
            some = Signal(len(kept[0]), name=f"joined_sums_{number // _JOINED}", reset_less=True)
            m.d.sync += some.eq(_any(kept[number : number + _JOINED]))
            joined.append(some)
        m.d.sync += self.sums.as_value().eq(_any(joined))


def _any(values: list[Value]) -> Value:
    """Bitwise or, by twos, so that expressions stay shallow."""
    while len(values) > 1:
        values = [
            values[number] | values[number + 1] if number + 1 < len(values) else values[number]
            for number in range(0, len(values), 2)
        ]
    return values[0]
