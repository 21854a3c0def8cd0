"""Output pipeline of the engine: turns complete sums into output words, and stores them in the output buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from amaranth import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hwgen.gateware.arithmetic.bound import Bound, BoundConfig
from hwgen.gateware.arithmetic.scale import PLACES, ScaleConfig, ScaleUnit
from hwgen.gateware.arithmetic.shares import TABLES, WHOLE_BITS
from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.add import TABLE_WRITE, TableAdd, TableAddConfig, add_table
from hwgen.gateware.engine.config import LANES, PARAMETER_LAYOUT, TABLE_WORDS, EngineConfig
from hwgen.gateware.engine.drain import drain_beat_layout
from hwgen.gateware.engine.fixed_unit import FixedUnit, FixedUnitConfig
from hwgen.gateware.engine.map_product import MapProduct, MapProductConfig
from hwgen.gateware.engine.pool import ADDRESS_BITS, COLUMN_BITS, Pool, PoolConfig
from hwgen.gateware.engine.writes import BankWrite, addend_side, write_to
from hwgen.gateware.lookup import delayed, delayed_fast, ram, read_port, write_port
from hwgen.gateware.rounding import SIGNIFICAND_BITS

#: Index of the activation table among the lookup tables that jobs load; the tables for adding maps have lower indices.
ACTIVATION = len(TABLES)
#: Latency in cycles of a lookup in the activation table.
_ACTIVATION_CYCLES = 2
#: Width in bits of a half of a requantisation parameter word: the bias, or significand and shift.
_HALF_BITS = 32


@dataclass(frozen=True, kw_only=True)
class FinishConfig:
    """Configuration of an engine core's output pipeline (`Finish`), from the array's sums to the output buffer."""

    engine: EngineConfig

    #: Read latency of the output buffer, in cycles.
    read_latency = 2
    #: Cycles from a beat of sums to its word of the map that is added to outputs, or multiplied by sums.
    operand_cycles = 2

    @property
    def scale(self) -> ScaleConfig:
        """`ScaleConfig` of each lane's `ScaleUnit`, which adds the bias to a sum and multiplies it by the scale."""
        return ScaleConfig(device=self.engine.device, sum_bits=self.engine.sum_bits)

    @property
    def bound(self) -> BoundConfig:
        """`BoundConfig` of each lane's saturating adder of the zero point, after the sum is scaled."""
        return BoundConfig(device=self.engine.device, bits=PLACES + 1)

    @property
    def sum_bound(self) -> BoundConfig:
        """`BoundConfig` of each lane's saturating adder of the zero point, used after an addition of maps."""
        return BoundConfig(device=self.engine.device, bits=WHOLE_BITS)

    @property
    def product(self) -> MapProductConfig:
        """`MapProductConfig` of the circuit that multiplies sums by another feature map, before requantisation."""
        return MapProductConfig(device=self.engine.device)

    @property
    def add(self) -> TableAddConfig:
        """`TableAddConfig` of the circuit that adds another feature map to requantised outputs, by lookup tables."""
        return TableAddConfig(device=self.engine.device)

    @property
    def pool(self) -> PoolConfig:
        """`PoolConfig` of the 2 x 2 maximum pool that outputs pass before they enter the output buffer."""
        return PoolConfig(device=self.engine.device, words=self.engine.pool_words, blocks=self.engine.blocks)

    @property
    def fixed(self) -> tuple[FixedUnitConfig, ...]:
        """Tuple of the `FixedUnitConfig` of the unit that computes layers in fixed point; empty without the unit."""
        return (FixedUnitConfig(engine=self.engine),) if self.engine.has_fixed_unit else ()

    @property
    def parameter_cycles(self) -> int:
        """Read latency of the memory of requantisation parameters, in cycles: 1 for LUT RAM, 2 for block RAM."""
        return 1 if self.engine.memories.default_ram(self.engine.parameter_words) == "lut" else 2

    @property
    def sum_cycles(self) -> int:
        """Cycles from a beat of sums to the requantiser's input: the sums, or their products with another map."""
        return self.operand_cycles + self.product.latency

    @property
    def requantised_cycles(self) -> int:
        """Cycles from a beat of sums to its requantised outputs, before another feature map is added."""
        return self.sum_cycles + self.scale.latency + self.bound.latency

    @property
    def added_cycles(self) -> int:
        """Cycles from a beat of sums to its outputs after another map is added, before the activation lookup."""
        return self.requantised_cycles + self.add.latency + self.sum_bound.latency

    @property
    def latency(self) -> int:
        """Cycles from a beat of sums until its output word can be read from the output buffer.

        In this cycle ``finished`` is high.
        """
        return self.write_cycles + 1

    @property
    def write_cycles(self) -> int:
        """Cycles from a beat of sums to the write of its output words into the output buffer."""
        return self.added_cycles + _ACTIVATION_CYCLES + self.pool.latency + 2 * (self.engine.beat_words > 1)

    @cached_property
    def resources(self) -> Resources:
        lanes = (*self.engine.requantisers * (self.scale, self.bound), *LANES * (self.sum_bound,))
        components = (self.product, self.add, self.pool, *lanes, *self.fixed)
        return sum((component.resources for component in components), self._own_resources)

    @property
    def _own_resources(self) -> Resources:
        """`Resources` of the pipeline's own logic, not its components': memories, delays and multiplexers."""
        cost, engine, word = Cost(self.engine.device), self.engine, LANES * 8
        cost.ram(_HALF_BITS, engine.parameter_words, copies=2 * LANES)
        cost.ff += 2 * LANES * _HALF_BITS * (self.parameter_cycles - 1)
        cost.ram(8, TABLE_WORDS, "block", copies=LANES)
        cost.ram(word, engine.output_words // engine.output_banks, "block", copies=engine.output_banks)
        cost.ff += PARAMETER_LAYOUT.size + 1 + self.latency  # the registered write, and valid bits
        for _ in range(LANES):  # the sum; `ScaleUnit` chooses between it and its product in the LUTs that add the bias
            cost.delay(8, self.operand_cycles)  # the bits that are multiplied
            cost.delay(8, self.product.latency - 1)
            cost.delay(engine.sum_bits - 8, self.sum_cycles - 1)
            cost.ff += engine.sum_bits
        choices, outputs = {1: 0, 2: 1, 4: 1, 8: 3}, engine.output_banks
        row_bits = counter_bits(engine.output_words // outputs)
        if outputs > 1 and not engine.has_cores:  # the order of output words, and the rows that they are read from
            cost.delay(engine.output_bank_bits, self.read_latency)
            cost.lut += engine.bus_words * choices[outputs] * word + (outputs - 1) * row_bits
        if engine.beat_words > 1:  # sums and outputs of the further words, and their banks
            further = engine.beat_words - 1
            cost.delay_fast(further * LANES * engine.sum_bits, self.sum_cycles)
            cost.delay_fast(further * word, self.write_cycles - 1 - self.requantised_cycles)
            cost.delay_fast(engine.beat_words, self.write_cycles - 1)
            cost.lut += outputs * (choices[outputs] * word + 2) + (outputs - 1) * row_bits
            cost.ff += outputs * (word + row_bits + 1) + word + ADDRESS_BITS + 1
        banks, depth = engine.row_engine.bus_words, engine.addend_words // engine.row_engine.bus_words
        if banks > 1:  # the choice of an addend's bank
            cost.delay(engine.row_engine.lane_bits, self.operand_cycles)
            cost.lut += choices[banks] * word
        # The addend; words that are delayed as long as their addition and their lookup take; the words that are read.
        cost.ram(word, depth, "block", copies=banks)
        addend_lut, addend_ff = addend_side(engine.row_engine).cost
        cost.lut += addend_lut
        cost.ff += addend_ff + (banks + outputs - 1) * word
        cost.delay(word, self.requantised_cycles - self.operand_cycles)
        cost.delay(word, self.added_cycles - self.requantised_cycles - 1)
        cost.ff += word * (1 + _ACTIVATION_CYCLES + 1)
        cost.delay(counter_bits(engine.parameter_words), self.sum_cycles - self.parameter_cycles)
        cost.delay(counter_bits(engine.parameter_words), self.scale.scale_cycle)
        cost.delay(3 * 8, self.requantised_cycles)
        cost.delay(3 * 8 + ADDRESS_BITS + COLUMN_BITS, self.added_cycles)
        cost.lut += 2 * word + 2 * LANES  # multiplexers after the addition and the lookup, and write enables
        if self.fixed:  # the choice of the word that is written, and the end of a job's sums
            cost.lut += outputs * (word + row_bits + 1)
            cost.delay(1, self.latency)
        return cost.resources

    def component(self) -> Finish:
        return Finish(self)


def rows_layout(engine: EngineConfig) -> data.ArrayLayout:
    """Return the Amaranth layout of an output buffer's read addresses, one row index per bank."""
    return data.ArrayLayout(range(engine.output_words // engine.output_banks), engine.output_banks)


def row_addresses(engine: EngineConfig, address: Value) -> list[Value]:
    """Return a list (by bank of an output buffer) of the rows with successive words, starting at ``address``.

    A bank below the first word's bank has a word of the next row.
    """
    banks = engine.output_banks
    return [(address + (banks - 1 - bank))[engine.output_bank_bits :] for bank in range(banks)]


def words_in_order(engine: EngineConfig, words: Value, first: Value) -> Value:
    """Return a bus beat's words, in address order, from the words read from all output buffer banks.

    Bank ``first`` has the first word.
    """
    banks, bits = engine.output_banks, LANES * 8
    by_bank = [words.word_select(bank, bits) for bank in range(banks)]
    in_lane = (Array(by_bank[(lane + bank) % banks] for bank in range(banks)) for lane in range(engine.bus_words))
    return Cat(words_of_lane[first] for words_of_lane in in_lane)


class Finish(ConfiguredComponent[FinishConfig]):
    """Output pipeline of the engine: requantises sums, adds another map, looks outputs up, pools and stores them.

    Another map is added by tables. Sums can instead be multiplied by another map before they are requantised.

    Parameters
    ----------
    config : FinishConfig

    Members
    -------
    beats : In(stream, always ready)
        Complete sums from the core.
    parameters : In(stream, always ready)
        Words of parameters and tables. A beat can use a word two or more cycles after its write. The host of this
        component must not overwrite words that beats in flight use.
    addends : In(stream, always ready)
        Words of maps that are added or multiplied (`addend_side`), under the same rules.
    finished : Out
        Pulse when all words of a job, up to its ``last`` beat, are in the buffer.
    address : In, with one core
        Word address in the output buffer.
    rows : In(`rows_layout`), with several cores
        Address of each bank of the output buffer. The cores share the order of the words (`OutputWords`).
    data : Out(64 or more)
        Word at ``address``, ``config.read_latency`` cycles later. The lowest byte is lane 0. With a bus of several
        words, the next words follow. With several cores: the words of all banks at their ``rows``.

    Latency and throughput
        One beat per cycle. Its words are in the buffer ``config.latency`` cycles later. Never stalls.
    """

    def __init__(self, config: FinishConfig):
        engine = config.engine
        super().__init__(
            config,
            {
                "beats": In(stream.Signature(drain_beat_layout(engine), always_ready=True)),
                "parameters": In(stream.Signature(PARAMETER_LAYOUT, always_ready=True)),
                "addends": In(addend_side(engine.row_engine).signature),
                "finished": Out(1),
                **(
                    {"rows": In(rows_layout(engine))}
                    if engine.has_cores
                    else {"address": In(range(engine.output_words))}
                ),
                "data": Out(LANES * 8 * (engine.output_banks if engine.has_cores else engine.bus_words)),
            },
        )

    def elaborate(self, platform):
        m = Module()
        config, beat = self.config, self.beats.payload
        looked_up = config.added_cycles + _ACTIVATION_CYCLES
        write = self._register_writes(m)
        tables = stream.Signature(TABLE_WRITE, always_ready=True).create(path=("table_write",))
        m.d.comb += [
            tables.valid.eq(self._writes_lookup_tables(write)),
            tables.payload.index.eq(write.payload.index),
            tables.payload.data.eq(write.payload.data),
        ]
        operand = self._elaborate_operands(m)
        sums = [*self._elaborate_products(m, operand), *self._elaborate_further_sums(m)]
        requantised = self._elaborate_outputs(m, write, sums)
        outputs = self._elaborate_sums(m, requantised[:LANES], operand, tables)
        looking = delayed(m, "uses_table", beat.table, looked_up)
        m.submodules.pool = pooled = Pool(config.pool)
        for lane, value in enumerate(outputs):
            entry = add_table(
                m, config.engine.device, f"activation_{lane}", tables, ACTIVATION, signed(8), value.as_unsigned()
            )
            value = delayed(m, f"output_{lane}", value, _ACTIVATION_CYCLES)
            m.d.comb += pooled.i.payload.data[lane].eq(Mux(looking, entry, value))
        m.d.comb += [
            pooled.i.valid.eq(delayed(m, "valid", self._has_output(beat), looked_up, reset_less=False)),
            pooled.i.payload.address.eq(delayed(m, "address", beat.address, looked_up)),
            pooled.last_column.eq(delayed_fast(m, "last_column", (beat.columns - 1)[:COLUMN_BITS], looked_up)),
            *(
                getattr(pooled, port).eq(delayed_fast(m, f"beat_{name}", beat[name], looked_up))
                for port, name in (("pool", "pool"), ("pixel_end", "pixel_end"), ("last", "fold_end"))
            ),
        ]
        writes = self._elaborate_bank_writes(m, pooled, requantised[LANES:])
        unit = self._elaborate_fixed(m, write) if config.fixed else None
        self._elaborate_buffer(m, writes if unit is None else self._with_fixed_writes(unit, writes))
        ended = delayed(m, "job_end", self.beats.valid & beat.last, config.latency, reset_less=False)
        m.d.comb += self.finished.eq(ended if unit is None else (ended & ~unit.start) | unit.done)
        return m

    def _has_output(self, beat: data.View) -> Value:
        """Return a bit: this pipeline computes outputs from the beat's sums, not only the fixed-point unit."""
        return self.beats.valid & ~(beat.add & beat.multiply) if self.config.fixed else self.beats.valid

    def _writes_lookup_tables(self, write: Any) -> Value:
        """Return a bit: the write is for this pipeline's lookup tables, not for the fixed-point unit's."""
        writes = write.valid & write.payload.tables
        return writes & ~write.payload.index[10:].any() if self.config.fixed else writes

    def _elaborate_fixed(self, m: Module, write: Any) -> FixedUnit:
        """Add and return the `FixedUnit` for fixed-point layers, connected to sums, parameters and job start."""
        config, beat = self.config, self.beats.payload
        m.submodules.fixed_unit = unit = FixedUnit(config.fixed[0])
        has_program = self.beats.valid & beat.last & beat.add & beat.multiply & (beat.a_zero_point != 0)
        starts = delayed(m, "program_start", has_program, config.latency, reset_less=False)
        m.d.comb += [
            unit.beats.valid.eq(self.beats.valid),
            unit.beats.payload.eq(beat),
            unit.parameters.valid.eq(write.valid),
            unit.parameters.payload.eq(write.payload),
            unit.start.eq(starts),
        ]
        return unit

    def _with_fixed_writes(self, unit: FixedUnit, writes: Sequence[BankWrite]) -> list[BankWrite]:
        """Return a list of output buffer writes by bank, merged with the fixed-point unit's, which never coincide."""
        bits = self.config.engine.output_bank_bits
        return [
            BankWrite(
                Mux(unit.valid, unit.address[:bits] == bank, each.enable),
                Mux(unit.valid, unit.address[bits:], each.address),
                Mux(unit.valid, unit.word, each.word),
            )
            for bank, each in enumerate(writes)
        ]

    def _register_writes(self, m: Module) -> Any:
        """Return a registered copy of the stream of parameter and table writes, which drives many memories."""
        write = stream.Signature(PARAMETER_LAYOUT, always_ready=True).create(path=("parameter_write",))
        m.d.sync += [write.valid.eq(self.parameters.valid), write.payload.eq(self.parameters.payload)]
        return write

    def _elaborate_products(self, m: Module, operand: Value) -> list[Value]:
        """Add the multiplier of sums by another map; return a list by lane: sum or product after ``sum_cycles``."""
        config, beat = self.config, self.beats.payload
        m.submodules.product = products = MapProduct(config.product)
        early = config.operand_cycles
        m.d.comb += [
            products.second.as_value().eq(operand),
            products.first_zero.eq(delayed(m, "sum_zero_point", beat.a_low, early)),
            products.second_zero.eq(delayed(m, "operand_zero_point", beat.a_zero_point, early)),
        ]
        multiplying, sums = delayed_fast(m, "multiplies_map", beat.multiply, config.sum_cycles), []
        for lane in range(LANES):
            value = delayed(m, f"sum_{lane}", beat.sums[lane], early)
            m.d.comb += products.first[lane].eq(value[:8].as_signed())
            value = delayed_fast(m, f"sum_{lane}_beside_product", value, config.product.latency)
            sums.append(Mux(multiplying, products.o[lane], value))
        return sums

    def _elaborate_further_sums(self, m: Module) -> list[Value]:
        """Return a list of the sums of a beat's second and further pixels, by lane, delayed by ``config.sum_cycles``.

        They are never multiplied.
        """
        lanes, sums = range(LANES, self.config.engine.requantisers), self.beats.payload.sums
        return [delayed_fast(m, f"sum_{lane}", sums[lane], self.config.sum_cycles) for lane in lanes]

    def _elaborate_outputs(self, m: Module, write: Any, sums: Sequence[Value]) -> list[Value]:
        """Add each lane's requantiser; return a list of its outputs, ``config.requantised_cycles`` after the beat.

        Lanes of the same map have the same parameters, whatever their pixel.
        """
        config, outputs = self.config, []
        scale, bound = config.scale, config.bound
        rule = self._delay_bounds(m, "", config.sum_cycles + scale.latency)
        parameters = [self._elaborate_parameters(m, lane, write) for lane in range(LANES)]
        for lane, value in enumerate(sums):
            m.submodules[f"scale_{lane}"] = scaled = ScaleUnit(scale)
            bias, factor = parameters[lane % LANES]
            m.d.comb += [
                scaled.sum.eq(value),
                scaled.bias.eq(bias),
                scaled.significand.eq(factor[:SIGNIFICAND_BITS]),
                scaled.shift.eq(factor[SIGNIFICAND_BITS:]),
            ]
            m.submodules[f"bound_{lane}"] = bounded = Bound(bound)
            m.d.comb += [bounded.whole.eq(scaled.whole), bounded.carry.eq(scaled.carry)]
            m.d.comb += [getattr(bounded, name).eq(value) for name, value in rule.items()]
            outputs.append(bounded.o)
        return outputs

    def _elaborate_sums(self, m: Module, outputs: Sequence[Value], operand: Value, tables: Any) -> list[Value]:
        """Add the adder of another map; return a list by lane: sum or unchanged output, after ``added_cycles``."""
        config, add_cycles = self.config, self.config.added_cycles - self.config.requantised_cycles
        m.submodules.add = sums = TableAdd(config.add)
        m.d.comb += [
            sums.write.valid.eq(tables.valid),
            sums.write.payload.eq(tables.payload),
            sums.first.as_value().eq(Cat(outputs)),
            sums.second.as_value().eq(delayed(m, "addend", operand, config.requantised_cycles - config.operand_cycles)),
        ]
        adding = delayed_fast(m, "adds_map", self.beats.payload.add, config.added_cycles)
        rule = self._delay_bounds(m, "a_", config.requantised_cycles + config.add.latency)
        added = []
        for lane, output in enumerate(outputs):
            m.submodules[f"sum_bound_{lane}"] = bounded = Bound(config.sum_bound)
            m.d.comb += [bounded.whole.eq(sums.whole[lane]), bounded.carry.eq(sums.carry[lane])]
            m.d.comb += [getattr(bounded, name).eq(value) for name, value in rule.items()]
            added.append(Mux(adding, bounded.o, delayed_fast(m, f"requantised_{lane}", output, add_cycles)))
        return added

    def _delay_bounds(self, m: Module, prefix: str, cycle: int) -> dict[str, Value]:
        """Return a dict by port: a beat's zero point and bounds, delayed for a `Bound` with inputs in ``cycle``."""
        cycles = {"zero_point": cycle, **dict.fromkeys(("low", "high"), cycle + BoundConfig.bounds_cycle)}
        beat = self.beats.payload
        return {name: delayed(m, f"{prefix}{name}", beat[f"{prefix}{name}"], delay) for name, delay in cycles.items()}

    def _elaborate_operands(self, m: Module) -> Value:
        """Add the buffer of the map to be added or multiplied; return its word (8 channels) for each beat of sums.

        The word is available ``config.operand_cycles`` cycles after the beat.
        """
        engine, address = self.config.engine, self.beats.payload.addend
        bits, depth = engine.row_engine.lane_bits, engine.addend_words // engine.row_engine.bus_words
        read = []
        for bank, write in enumerate(addend_side(engine.row_engine).bank_writes(m, self.addends)):
            words = ram(engine.device, LANES * 8, depth, "block")
            m.submodules[f"addends_{bank}"] = words
            write_to(m, write_port(words), write)
            out = read_port(words)
            m.d.comb += out.addr.eq(address[bits:])
            read.append(delayed(m, f"addend_word_{bank}", out.data, self.config.operand_cycles - 1))
        return Array(read)[delayed(m, "addend_bank", address[:bits], self.config.operand_cycles)]

    def _elaborate_parameters(self, m: Module, lane: int, write: Any) -> list[Value]:
        """Add a lane's parameter memories; return a list: bias, and the scale's significand and shift in one value."""
        config, beat, into = self.config, self.beats.payload, write.payload
        depth, cycles = config.engine.parameter_words, config.parameter_cycles
        first = config.sum_cycles - cycles
        index = into.index
        halves = []
        for half, cycle in enumerate((first, first + config.scale.scale_cycle)):
            m.submodules[f"parameters_{lane}_{half}"] = words = ram(config.engine.device, _HALF_BITS, depth)
            port, out = write_port(words), read_port(words)
            m.d.comb += [
                port.en.eq(write.valid & ~into.tables & (index[:3] == lane)),
                port.addr.eq(index[3:]),
                port.data.eq(into.data.word_select(half, _HALF_BITS)),
                out.addr.eq(delayed(m, f"parameter_address_{lane}_{half}", beat.parameter, cycle)),
            ]
            halves.append(delayed(m, f"parameter_word_{lane}_{half}", out.data, cycles - 1))
        return halves

    def _elaborate_bank_writes(self, m: Module, words: Pool, further: Sequence[Value]) -> list[BankWrite]:
        """Return a list with the write of a beat's output words into each bank of the output buffer.

        ``further`` has the requantised outputs of the second and further pixels, by lane.
        """
        config, engine, word = self.config, self.config.engine, words.o.payload
        bits = engine.output_bank_bits
        if engine.beat_words == 1:
            first = word.address[:bits]
            banks = range(engine.output_banks)
            return [
                BankWrite(words.o.valid & (first == bank), word.address[bits:], word.data.as_value()) for bank in banks
            ]
        valid = delayed(m, "pooled_valid", words.o.valid, 1, reset_less=False)
        first_address, first_word = (
            delayed(m, f"pooled_{name}", value, 1)
            for name, value in (("address", word.address), ("word", word.data.as_value()))
        )
        present = delayed_fast(m, "present", self.beats.payload.present, config.write_cycles - 1)
        present = Cat(present, Const(0, engine.output_banks - engine.beat_words))
        outputs = [
            delayed_fast(m, f"further_{lane}", value, config.write_cycles - 1 - config.requantised_cycles)
            for lane, value in enumerate(further)
        ]
        by_word = [first_word, *(Cat(outputs[lane : lane + LANES]) for lane in range(0, len(outputs), LANES))]
        writes = []
        for bank, row in enumerate(row_addresses(engine, first_address)):
            index = Signal(bits, name=f"word_of_bank_{bank}")
            m.d.comb += index.eq(bank - first_address[:bits])
            enable = Signal(name=f"bank_write_{bank}")
            m.d.sync += enable.eq(valid & present.bit_select(index, 1))
            address = delayed(m, f"bank_address_{bank}", row, 1)
            writes.append(BankWrite(enable, address, delayed(m, f"bank_word_{bank}", Array(by_word)[index], 1)))
        return writes

    def _elaborate_buffer(self, m: Module, writes: Sequence[BankWrite]) -> None:
        """Add the output buffer, the memory of output words that wait to be stored off-chip.

        It has as many banks as a beat of the bus, or a beat of sums, has words.
        """
        engine, banks = self.config.engine, self.config.engine.output_banks
        depth = engine.output_words // banks
        rows = self.rows if engine.has_cores else row_addresses(engine, self.address)
        read_words = []
        for bank, write in enumerate(writes):
            buffer = ram(engine.device, LANES * 8, depth, "block")
            m.submodules[f"buffer_{bank}"] = buffer
            write_to(m, write_port(buffer), write)
            out = read_port(buffer)
            m.d.comb += out.addr.eq(rows[bank])
            read_words.append(delayed(m, f"buffer_word_{bank}", out.data, 1))
        ordered = Cat(read_words)
        if not engine.has_cores:
            first = delayed(m, "first_bank", self.address[: engine.output_bank_bits], self.config.read_latency)
            ordered = words_in_order(engine, ordered, first)
        m.d.comb += self.data.eq(ordered)
