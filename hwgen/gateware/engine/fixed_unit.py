"""Fixed-point unit of the engine: executes a short program of operations on all pixels of a job's tile.

A layer of fixed-point steps computes values of up to `VALUE_BITS` bits from maps of 8 to 32 bits, and a convolution
with a wide output requantises its sums to such a map. Both are programs here. The unit has a register file of slots.
A slot holds one value of 8 channels for each pixel of the tile. An instruction reads one or two slots and writes one,
pixel by pixel, so that an instruction reads its operands after earlier ones have written them.

A job of the unit is a job whose drain part has both ``add`` and ``multiply``. Its sums arrive in a slot (`Arrival`).
If it has instructions, they begin when all its sums have arrived, and they write its output words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.hdl import Fragment
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hwgen.gateware.average import add_rounding
from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.config import LANES, PARAMETER_LAYOUT, EngineConfig
from hwgen.gateware.engine.drain import drain_beat_layout
from hwgen.gateware.fixed_point import NumberPath, PathNumber
from hwgen.gateware.lookup import delayed, delayed_fast, named, ram, read_port, write_port
from hwgen.gateware.rounding import SIGNIFICAND_BITS

#: Width in bits of a fixed-point value, width in bits of a product's second operand, and maximum right shift of a
#: product.
VALUE_BITS, FACTOR_BITS, MAX_SHIFT = 52, 25, 63
#: Maximum number of bits that a sum loses when it is rounded to float32.
_MAX_DROPPED_BITS = VALUE_BITS - 1 - SIGNIFICAND_BITS
#: Maximum number of slots (values per pixel) in the fixed-point unit's register file, and of instructions in a program.
MAX_SLOTS, MAX_INSTRUCTIONS = 16, 127
#: Indices of the tables that jobs load as the fixed-point unit's program, and as its lookup memory (the first of
#: several).
PROGRAM_TABLE, LOOKUP_TABLE = 4, 8
#: Width in bits of the low parts of a value, which have separate memories because a wide map arrives byte by byte.
_BYTE = 8
_BYTES = 4
#: Measured LUTs and flip-flops of one lane's pipeline without products, memories and lookups (Yosys, 7 series). They
#: include an eighth of the unit's control.
_LANE_LUTS, _LANE_REGISTERS = 695, 764
#: Measured LUTs and flip-flops of the rounding of one lane's sums to float32.
_FLOAT_LUTS, _FLOAT_REGISTERS = 129, 218
#: Width in bits of the counters of a tile's output columns.
_COLUMN_BITS = 12
#: Cycles from ``start`` to the first instruction of a job, and from the end of the last instruction to ``done``.
_BEGIN, _END = 1, 5


class Opcode(IntEnum):
    """Operation of a fixed-point instruction: add, subtract, minimum, maximum, multiply, look up, write, float add."""

    ADD = 0
    SUBTRACT = 1
    MINIMUM = 2
    MAXIMUM = 3
    MULTIPLY = 4
    """Multiply both operands, divide the product by ``2**shift``, and round the quotient (`Rounding`)."""
    LOOK_UP = 5
    """Read the lookup memory at the address given by the first operand plus ``base``."""
    WRITE = 6
    """Write byte ``shift`` of the first operand to row ``target`` of the output's ``second + 1`` rows per map row.

    Its highest bit is inverted if ``rounding`` is not 0.
    """
    ADD_FLOAT = 7
    """Add both operands, and round the sum to 24 significant bits, ties to even, as float32 does."""


class Rounding(IntEnum):
    """Rounding mode of a shifted product: down, to nearest with ties upwards, or to nearest with ties to even."""

    DOWN = 0
    UPWARDS = 1
    EVEN = 2


class Arrival(IntEnum):
    """Format of the sums that the array sends to the fixed-point unit: whole sums, or bytes of (un)signed values.

    The highest byte of a value arrives first.

    All bytes but the highest are stored with an inverted highest bit; the highest byte of an unsigned value, too.
    """

    SUMS = 0
    SIGNED_BYTES = 1
    UNSIGNED_BYTES = 2


#: Amaranth layout of an instruction of the fixed-point unit, one table word: operation, operands, target, shift ..
#: ``is_pixel`` marks an operand of one pixel for all pixels. A constant replaces the second operand, and the constant's
#: bits above the first `VALUE_BITS` replace the shift.
INSTRUCTION = data.StructLayout(
    {
        "code": 3,
        "first": 4,
        "first_is_pixel": 1,
        "second": 4,
        "second_is_pixel": 1,
        "second_is_constant": 1,
        "target": 4,
        "shift": 6,
        "shift_is_constant": 1,
        "rounding": 2,
        "constant": 8,
        "base": 11,
    }
)


def instruction_word(**values: int) -> int:
    """Return an instruction of the fixed-point unit as an integer, from `INSTRUCTION` fields; absent ones are 0."""
    return sum(value << INSTRUCTION[name].offset for name, value in values.items())


def run_cycles(engine: EngineConfig, pixels: Any, instructions: Any) -> Any:
    """Return the cycles (integer or array) of a job's program in the fixed-point unit: by pixels and instructions.

    Without instructions, it takes 0 cycles. The program delays the job's ``finished`` by as much.
    """
    if not engine.has_fixed_unit:
        return 0 * pixels
    min_cycles = FixedUnitConfig(engine=engine).latency
    longer = pixels + (min_cycles - pixels) * (pixels < min_cycles)
    return (instructions > 0) * (_BEGIN + instructions * longer + _END)


@dataclass(frozen=True, kw_only=True)
class FixedUnitConfig:
    """Configuration of the fixed-point unit (`FixedUnit`) in each core of an engine, with its FPGA resources."""

    engine: EngineConfig

    @cached_property
    def _product_path(self) -> tuple[Cost, int]:
        """Pair: `Cost` (LUTs, DSPs ..) of one lane's multiplier, and its cycles from operands to product."""
        m = Module()
        path = NumberPath(m, self.engine.device, "lane")
        cycle = _multiply(path, Signal(VALUE_BITS), Signal(FACTOR_BITS)).cycle
        path.add_register_costs()
        Fragment.get(m, None)  # Amaranth warns of a module that nothing uses
        return path.cost, cycle

    @property
    def product_cycles(self) -> int:
        """Cycles from the operands of a multiplication to its product, before shift and rounding."""
        return self._product_path[1]

    @property
    def latency(self) -> int:
        """Cycles of one instruction on one pixel, from its issue until the next instruction can read the result."""
        return 3 + self.product_cycles + 6

    @cached_property
    def resources(self) -> Resources:
        cost, engine, lanes = Cost(self.engine.device), self.engine, LANES
        for width in _part_bits():
            cost.ram(lanes * width, engine.fixed_words, "block", copies=2)
        cost.ram(64, engine.parameter_words, copies=lanes)
        cost.ram(INSTRUCTION.size, MAX_INSTRUCTIONS + 1, "lut")
        cost.add(self._product_path[0], lanes)
        cost.lut += lanes * _LANE_LUTS
        cost.ff += lanes * _LANE_REGISTERS
        if engine.lookup_words:  # an address, two registers per word, and the choice of the word
            cost.ram(VALUE_BITS, engine.lookup_words, "block", copies=lanes)
            cost.lut += lanes * (2 * VALUE_BITS + counter_bits(engine.lookup_words) + 3)
            cost.ff += lanes * (2 * VALUE_BITS + counter_bits(engine.lookup_words) + 2)
        if engine.float_sums:
            cost.lut += lanes * _FLOAT_LUTS
            cost.ff += lanes * _FLOAT_REGISTERS
            if engine.lookup_words:  # the rounding takes the delay's place, and the choice of the word masks its sum
                cost.lut -= lanes * (VALUE_BITS + _MAX_DROPPED_BITS)
        return cost.resources

    def component(self) -> FixedUnit:
        return FixedUnit(self)


def _part_bits() -> list[int]:
    """Return a list of widths in bits of a value's parts in separate memories, lowest first: 8, 8, 8 and the rest."""
    return [_BYTE] * (_BYTES - 1) + [VALUE_BITS - (_BYTES - 1) * _BYTE]


def _multiply(path: NumberPath, first: Value, second: Value) -> PathNumber:
    """Add a pipelined multiplier to ``path``; return a `PathNumber`: the product, with its latency ``cycle``."""
    numbers = [
        path.new_number(name, value.as_signed(), 0, (-(1 << len(value) - 1), (1 << len(value) - 1) - 1))
        for name, value in (("first", first), ("second", second))
    ]
    product = path.multiply("product", *numbers)
    product.at(product.cycle)
    return product


class FixedUnit(ConfiguredComponent[FixedUnitConfig]):
    """Fixed-point unit of an engine core: a register file, and a pipeline that executes a job's program on it.

    Parameters
    ----------
    config : FixedUnitConfig

    Members
    -------
    beats : In(stream, always ready)
        Complete sums of the core, also of other jobs.
    parameters : In(stream, always ready)
        Words of the program, constants and lookups. A constant is a parameter word.
    start : In(1)
        Pulse that starts the instructions of the last job, whose sums have all arrived.
    valid, address, word : Out
        Write of an output word into the output buffer.
    done : Out(1)
        Pulse when all output words are in the output buffer.

    Latency and throughput
        An instruction takes a cycle per pixel, at least ``config.latency``. ``done`` follows ``start`` after
        `run_cycles`.
    """

    def __init__(self, config: FixedUnitConfig):
        engine = config.engine
        super().__init__(
            config,
            {
                "beats": In(stream.Signature(drain_beat_layout(engine), always_ready=True)),
                "parameters": In(stream.Signature(PARAMETER_LAYOUT, always_ready=True)),
                "start": In(1),
                "valid": Out(1),
                "address": Out(range(engine.output_words)),
                "word": Out(8 * LANES),
                "done": Out(1),
            },
        )

    def elaborate(self, platform):
        m = Module()
        engine = self.config.engine
        self._slot = range(engine.fixed_words)
        self._elaborate_arrival(m)
        fetched = self._elaborate_program(m)
        self._elaborate_run(m, fetched)
        operands = self._elaborate_operands(m)
        results = [self._elaborate_lane(m, lane, *pair) for lane, pair in enumerate(zip(*operands, strict=True))]
        self._elaborate_registers(m, results)
        self._elaborate_outputs(m, list(operands[0]))
        return m

    def _elaborate_arrival(self, m: Module) -> None:
        """Count the sums that arrive from the array, track their byte format, and register the job's fields."""
        beat, bits = self.beats.payload, counter_bits(self.config.engine.fixed_words)
        arrives = named(self.beats.valid & beat.add & beat.multiply, "sums_arrive")
        begins = Signal(name="is_first_beat", init=1)
        pixel, byte = Signal(self._slot, name="arriving_pixel"), Signal(2, name="arriving_byte")
        now = named(Mux(begins, beat.high[:2], byte), "current_byte")
        self._pixels = Signal(range(self.config.engine.fixed_words + 1), name="pixels", reset_less=True)
        self._base, self._across = (Signal(16, name=name, reset_less=True) for name in ("output_base", "columns"))
        self._pitch, self._count = Signal(4, name="slot_bits"), Signal(7, name="instructions")
        self._constants = Signal(8, name="constants_base", reset_less=True)
        with m.If(arrives):
            m.d.sync += [begins.eq(beat.last), byte.eq(now), pixel.eq(Mux(beat.fold_end, 0, pixel + 1))]
            with m.If(beat.fold_end):
                m.d.sync += [byte.eq(now - 1), self._pixels.eq(pixel + 1)]
        with m.If(arrives & begins):
            m.d.sync += [
                *(self._base.eq(beat.address), self._across.eq(beat.addend), self._pitch.eq(beat.low)),
                *(self._count.eq(beat.a_zero_point), self._constants.eq(beat.parameter)),
            ]
        kind, top = beat.zero_point[:2], named(now == beat.high[:2], "is_highest_byte")
        is_sum = named(kind == Arrival.SUMS, "is_sum")
        flips = named(~top | (kind == Arrival.UNSIGNED_BYTES), "inverts")
        self._arrives = delayed(m, "arrives", arrives, 1, reset_less=False)
        self._arrival_address = delayed(m, "arrival_address", (beat.columns << beat.low[:4])[:bits] | pixel, 1)
        places, words = range(_BYTES), []
        enables = [is_sum | (now == byte_index) | (top & (now < byte_index)) for byte_index in places]
        for lane in range(LANES):
            sums = beat.sums[lane]
            byte_value = sums[:_BYTE] ^ (flips << _BYTE - 1)
            sign = named(byte_value[-1] & ~flips, f"sign_{lane}")
            wide = Cat(sums, sums[-1].replicate(VALUE_BITS - len(sums)))
            parts, begin = [], 0
            for byte_index, width in enumerate(_part_bits()):
                narrow = Mux(now == byte_index, Cat(byte_value, sign.replicate(width - _BYTE)), sign.replicate(width))
                parts.append(Mux(is_sum, wide[begin : begin + width], narrow))
                begin += width
            words.append(parts)
        self._arrival_enables = delayed(m, "arrival_enables", Cat(enables), 1)
        self._arrival_words = [
            delayed(m, f"arrival_part_{byte_index}", Cat(lane[byte_index] for lane in words), 1)
            for byte_index in places
        ]

    def _elaborate_program(self, m: Module) -> data.View:
        """Add the program memory; return the instruction at the program counter, valid one cycle later."""
        write, device = self.parameters.payload, self.config.engine.device
        m.submodules.program = words = ram(device, INSTRUCTION.size, MAX_INSTRUCTIONS + 1, "lut")
        into, out = write_port(words), read_port(words)
        self._index = Signal(range(MAX_INSTRUCTIONS + 1), name="next_instruction")
        m.d.comb += [
            into.en.eq(self.parameters.valid & write.tables & (write.index[8:] == PROGRAM_TABLE)),
            into.addr.eq(write.index),
            into.data.eq(write.data),
            out.addr.eq(self._index),
        ]
        return data.View(INSTRUCTION, out.data)

    def _elaborate_run(self, m: Module, fetched: data.View) -> None:
        """Add the counters of instructions and pixels, the current instruction's register, and the pulse ``done``."""
        min_cycles, bits = self.config.latency, counter_bits(self.config.engine.fixed_words)
        runs, fetches = Signal(name="runs"), Signal(name="fetches")
        cycle = Signal(
            range(max(self.config.engine.fixed_words, min_cycles)), name="instruction_cycle", reset_less=True
        )
        self._now = now = Signal(INSTRUCTION, name="instruction", reset_less=True)
        self._pixel = Signal(self._slot, name="pixel", reset_less=True)
        self._bases = {
            name: Signal(bits, name=f"{name}_base", reset_less=True) for name in ("first", "second", "target")
        }
        ends = named(runs & (cycle == 0), "instruction_ends")
        takes = named(fetches | (ends & (self._index != self._count)), "takes_instruction")
        stops = named(ends & (self._index == self._count), "stops")
        self._works = Signal(name="has_pixel")
        cycles_needed = Mux(self._pixels < min_cycles, min_cycles, self._pixels)
        longest = delayed(m, "longest_instruction", cycles_needed - 1, 1)
        m.d.sync += [fetches.eq(self.start), cycle.eq(cycle - 1), self._pixel.eq(self._pixel + 1)]
        with m.If(self._pixel == self._pixels - 1):
            m.d.sync += self._works.eq(0)
        with m.If(takes):
            m.d.sync += [now.eq(fetched), cycle.eq(longest), self._pixel.eq(0), self._works.eq(1)]
            m.d.sync += [runs.eq(1), self._index.eq(self._index + 1)]
            m.d.sync += [base.eq((fetched[name] << self._pitch)[:bits]) for name, base in self._bases.items()]
        with m.If(stops):
            m.d.sync += [runs.eq(0), self._index.eq(0)]
        m.d.comb += self.done.eq(delayed(m, "stopped", stops, _END, reset_less=False))

    def _elaborate_operands(self, m: Module) -> tuple[list[Value], list[Value]]:
        """Add the register file; return all lanes' first and second operands, three cycles after the pixel index."""
        engine, parts, now = self.config.engine, _part_bits(), self._now
        self._writes, operands = [], []
        for name in ("first", "second"):
            address = Mux(now[f"{name}_is_pixel"], 0, self._pixel) | self._bases[name]
            read = []
            for place, width in enumerate(parts):
                memory = ram(engine.device, LANES * width, engine.fixed_words, "block")
                m.submodules[f"{name}_{place}"] = memory
                self._writes.append((place, write_port(memory)))
                port = read_port(memory)
                m.d.comb += port.addr.eq(address)
                read.append(delayed(m, f"{name}_part_{place}", port.data, 1))
            by_lane = [Cat(part.word_select(lane, len(part) // LANES) for part in read) for lane in range(LANES)]
            operands.append(by_lane)
        constants = [self._elaborate_constants(m, lane) for lane in range(LANES)]
        is_constant = delayed(m, "second_is_constant", now.second_is_constant, 2)
        self._shifts = [
            delayed(m, f"constant_shift_{lane}", word[VALUE_BITS:][:6], 1) for lane, word in enumerate(constants)
        ]
        second = [
            Mux(is_constant, word[:VALUE_BITS], value) for word, value in zip(constants, operands[1], strict=True)
        ]
        first, second = (
            [delayed(m, f"{name}_operand_{lane}", value, 1).as_signed() for lane, value in enumerate(values)]
            for name, values in (("first", operands[0]), ("second", second))
        )
        return first, second

    def _elaborate_constants(self, m: Module, lane: int) -> Value:
        """Add a lane's memory of constants; return the instruction's constant, two cycles after the pixel index."""
        write, engine = self.parameters.payload, self.config.engine
        m.submodules[f"constants_{lane}"] = words = ram(engine.device, 64, engine.parameter_words)
        into, out = write_port(words), read_port(words)
        m.d.comb += [
            into.en.eq(self.parameters.valid & ~write.tables & (write.index[:3] == lane)),
            into.addr.eq(write.index[3:]),
            into.data.eq(write.data),
            out.addr.eq(self._constants + self._now.constant),
        ]
        return delayed(m, f"constant_{lane}", out.data, 1)

    def _elaborate_lane(self, m: Module, lane: int, first: Value, second: Value) -> Value:
        """Add one lane's arithmetic; return the instruction's result, in the cycle that writes the register file."""
        code = delayed_fast(m, f"code_of_lane_{lane}", self._now.code, 3)
        product = _multiply(NumberPath(m, self.config.engine.device, f"lane_{lane}"), first, second[:FACTOR_BITS])
        rounded = self._elaborate_rounding(m, lane, product)
        subtracts = named(code == Opcode.SUBTRACT, f"subtracts_{lane}")
        total = delayed(m, f"sum_{lane}", (first + Mux(subtracts, ~second, second) + subtracts)[:VALUE_BITS], 1)
        is_less = delayed(m, f"is_less_{lane}", first < second, 1)
        pair = delayed(m, f"compared_{lane}", Cat(first, second), 1)
        later = delayed(m, f"code_{lane}", code, 1)
        chosen = Mux(is_less ^ (later == Opcode.MAXIMUM), pair[:VALUE_BITS], pair[VALUE_BITS:])
        simple = Mux(later[1] & ~later[2], chosen, total)
        other, waits = delayed(m, f"simple_{lane}", simple, 1), 0
        if self.config.engine.float_sums:
            rounds = delayed(m, f"rounds_sum_{lane}", later == Opcode.ADD_FLOAT, 1)
            rounded_sum = add_rounding(m, f"lane_{lane}", other, _MAX_DROPPED_BITS, settles=True, rounds=rounds)
            other, waits = rounded_sum, 2
        elif self.config.engine.lookup_words:
            other, waits = delayed(m, f"simple_later_{lane}", other, 2), 2
        if self.config.engine.lookup_words:
            looks = delayed(m, f"looks_up_{lane}", later == Opcode.LOOK_UP, 1)
            other = Mux(delayed(m, f"looked_up_{lane}", looks, 2), self._look_up(m, lane, first), other)
        left = self.config.product_cycles + 4 - 2 - waits
        other = delayed(m, f"other_{lane}", other, left)
        multiplies = delayed_fast(m, f"multiplies_{lane}", later == Opcode.MULTIPLY, self.config.product_cycles + 3)
        return delayed(m, f"result_{lane}", Mux(multiplies, rounded, other), 1)

    def _look_up(self, m: Module, lane: int, first: Value) -> Value:
        """Add one lane's lookup memory; return its word at address ``first`` plus ``base``, four cycles later."""
        write, engine = self.parameters.payload, self.config.engine
        m.submodules[f"lookups_{lane}"] = words = ram(engine.device, VALUE_BITS, engine.lookup_words, "block")
        into, out = write_port(words), read_port(words)
        base = delayed(m, f"lookup_base_{lane}", self._now.base, 3)
        m.d.comb += [
            into.en.eq(self.parameters.valid & write.tables & write.index[11]),
            into.addr.eq(write.index),
            into.data.eq(write.data),
            out.addr.eq(delayed(m, f"lookup_address_{lane}", (first + base)[: len(out.addr)], 1)),
        ]
        return delayed(m, f"lookup_word_{lane}", out.data, 2)

    def _elaborate_rounding(self, m: Module, lane: int, product: PathNumber) -> Value:
        """Add the right shift and rounding of a product; return its low 52 bits, four cycles after the product."""
        cycle = 3 + product.cycle
        shift = self._now.shift
        by_constant = delayed(m, f"shift_is_constant_{lane}", self._now.shift_is_constant, 3)
        shift = Mux(by_constant, self._shifts[lane], delayed(m, f"stated_shift_{lane}", shift, 3))
        shift = delayed_fast(m, f"shift_{lane}", shift, product.cycle)
        value, sticky = Cat(Const(0, 1), product.at(product.cycle)).as_signed(), Const(0, 1)
        for level, (low, width) in enumerate(((4, VALUE_BITS + 17), (2, VALUE_BITS + 5), (0, VALUE_BITS + 2))):
            part = shift[low : low + 2]
            lost = [named((value[: count << low].any()) & (part == count), f"lost_{count}") for count in range(1, 4)]
            moved = self._chosen([value >> (count << low) for count in range(4)], part)[:width]
            sticky = delayed(m, f"is_inexact_{level}_of_lane_{lane}", sticky | Cat(lost).any(), 1)
            value = delayed(m, f"shifted_{level}_of_lane_{lane}", moved, 1).as_signed()
            shift = delayed(m, f"shift_{level}_of_lane_{lane}", shift, 1)
        rounding = delayed_fast(m, f"rounding_{lane}", self._now.rounding, cycle + 3)
        up = value[0] & Mux(rounding == Rounding.EVEN, sticky | value[1], rounding == Rounding.UPWARDS)
        return delayed(m, f"rounded_{lane}", ((value >> 1) + up)[:VALUE_BITS], 1)

    def _elaborate_registers(self, m: Module, results: Sequence[Value]) -> None:
        """Connect the register file's write ports to arriving sums or, otherwise, to the lanes' results."""
        cycles = self.config.latency - 1
        writes = delayed(m, "writes_result", self._works & (self._now.code != Opcode.WRITE), cycles, reset_less=False)
        address = delayed(m, "result_address", self._bases["target"] | self._pixel, cycles)
        begins = [sum(_part_bits()[:place]) for place in range(_BYTES)]
        for place, port in self._writes:
            width = _part_bits()[place]
            result = Cat(value[begins[place] : begins[place] + width] for value in results)
            m.d.comb += [
                port.en.eq(Mux(self._arrives, self._arrival_enables[place], writes)),
                port.addr.eq(Mux(self._arrives, self._arrival_address, address)),
                port.data.eq(Mux(self._arrives, self._arrival_words[place], result)),
            ]

    def _elaborate_outputs(self, m: Module, values: Sequence[Value]) -> None:
        """Add the writes of output words: bytes of the first operand, with one row per byte for each map row."""
        now = self._now
        left = Signal(_COLUMN_BITS, name="output_columns_left", reset_less=True)
        output_place = Signal(16, name="output_place", reset_less=True)
        across = self._across[:_COLUMN_BITS]
        multiples = (across, across << 1, across + (across << 1))
        columns = [delayed(m, f"columns_times_{count}", value, 1) for count, value in enumerate(multiples, start=1)]
        columns.insert(0, Const(0, _COLUMN_BITS))
        last = delayed(m, "columns_after_first", across - 1, 1)[:_COLUMN_BITS]
        below = delayed(m, "step_to_row_below", self._chosen(columns, now.second) + 1, 1)
        begin = delayed(m, "first_place", (self._base + self._chosen(columns, now.target))[:16], 1)
        first = delayed(m, "is_first_pixel", self._pixel == 0, 1)
        works = delayed(m, "has_output", self._works & (now.code == Opcode.WRITE), 1, reset_less=False)
        ends_row = named(left == 0, "ends_row")
        with m.If(first):
            m.d.sync += [output_place.eq(begin), left.eq(last)]
        with m.Else():
            m.d.sync += [
                output_place.eq(output_place + Mux(ends_row, below, 1)),
                left.eq(Mux(ends_row, last, left - 1)),
            ]
        byte = delayed(m, "written_byte", now.shift[:2], 3)
        flips = delayed(m, "inverts_byte", now.rounding.any(), 3)
        chosen = [value.word_select(byte, _BYTE) ^ (flips << _BYTE - 1) for value in values]
        m.d.comb += [
            self.valid.eq(delayed(m, "output_valid", works, 3, reset_less=False)),
            self.address.eq(delayed(m, "output_address", output_place, 2)),
            self.word.eq(delayed(m, "output_word", Cat(value[:_BYTE] for value in chosen), 1)),
        ]

    @staticmethod
    def _chosen(values: Sequence[Value], index: Value) -> Value:
        """Return a multiplexer's output: the one of four values that the two lowest bits of ``index`` select."""
        pairs = [Mux(index[0], values[number + 1], values[number]) for number in (0, 2)]
        return Mux(index[1], pairs[1], pairs[0])
