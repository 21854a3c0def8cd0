"""What an accelerator takes of a device, from the configurations alone, component by component.

DSP slices, block RAM and registers follow from how a component is built. LUTs are counted where they are plain to see
(memories, multiplexers, adders, tables); what remains is control logic, in proportion to a few sizes of it. The
proportions were fitted to what Yosys 0.66 makes of many components (bench/resources.py shows how well they fit).

What Yosys does, and what is counted on here:

- A register without reset that only delays, three cycles or more, is a shift register in LUTs: one LUT a bit.
- A DSP slice takes up to two registers in front of its activation operand, and the one behind a weight in block RAM.
- Bits of a read-only memory in LUTs that are equal in every word are one; constant ones are none.
- A multiplexer of up to 4 ways is one LUT a bit, one of up to 8 ways two, one of up to 16 ways four.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import gcd
from typing import Any

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.fifo import FRONT_DEPTH, FifoConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.lookup import LUT_DEPTH, bits_for_range
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.gateware.pieces import piece_depth
from hwgen.gateware.pool import MaxPoolConfig
from hwgen.gateware.pyramid.buffer import HALVES, PyramidBufferConfig
from hwgen.gateware.pyramid.layer import PyramidLayerConfig
from hwgen.gateware.pyramid.reuse import IN_FLIGHT, ReuseBufferConfig
from hwgen.gateware.pyramid.spans import Axis, Cut
from hwgen.gateware.regroup import RegroupConfig
from hwgen.gateware.requantise import PIECE, SIGNIFICAND_BITS, AddBiasConfig, RequantiseConfig, signed_bits
from hwgen.gateware.unload import UnloadConfig
from hwgen.plan.memory import block_rams, memory_luts


@dataclass(frozen=True, kw_only=True)
class Resources:
    """DSP48E1 slices, 36 kbit block RAMs (in halves: a RAMB18 is 0.5), LUTs and flip-flops."""

    dsp: int = 0
    bram36: float = 0
    lut: int = 0
    ff: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            dsp=self.dsp + other.dsp,
            bram36=self.bram36 + other.bram36,
            lut=self.lut + other.lut,
            ff=self.ff + other.ff,
        )

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def estimate(config: AcceleratorConfig) -> Resources:
    """Of all layers together."""
    return sum((layer_resources(layer) for layer in config.layers), Resources())


def layer_resources(layer: LayerConfig) -> Resources:
    """Of one layer: all of its components."""
    return sum((component_resources(part) for part in components(layer).values()), Resources())


def components(layer: LayerConfig) -> dict[str, Any]:
    """The configurations of a layer's components, by name; the layer's own stands for its credits."""
    tiled = isinstance(layer, PyramidLayerConfig)
    parts: dict[str, Any] = {
        "window": None if tiled else layer.window,
        "reuse": layer.reuse if tiled and layer.reuse.needed else None,
        "tiles": layer.tiles if tiled else None,
        "compute": layer.compute,
        "unload": layer.unload,
        "finish": layer.finish,
        "fifo": layer.fifo,
        "regroup": layer.regroup if layer.regroup.needed else None,
        "credits": layer,
    }
    return {name: part for name, part in parts.items() if part is not None}


def component_resources(part: Any) -> Resources:
    """Of one component, by its configuration; a `LayerConfig` stands for the credits of the layer."""
    for kind, cost in _COSTS.items():
        if isinstance(part, kind):
            return cost(part)
    raise AssertionError(f"nothing is known of a {type(part).__name__}")


# Pieces that many components are made of.


@dataclass
class _Cost:
    """Adds up."""

    dsp: int = 0
    bram36: float = 0
    lut: float = 0
    ff: int = 0

    def delay(self, bits: int, cycles: int) -> None:
        """A delay without reset."""
        if cycles < 3:
            self.ff += bits * cycles
        else:
            self.lut += bits * -(-cycles // 32)

    def rom(self, columns: Iterable[int], depth: int, width: int, block: bool | None = None) -> None:
        """A read-only memory and its output register; ``columns`` are its bits, as `_columns` gives them.

        ``block``: whether it lies in block RAM, by its depth if not given.
        """
        if depth > LUT_DEPTH if block is None else block:
            self.bram36 += block_rams(width, max(depth, LUT_DEPTH + 1))  # as for deep ones
            return
        distinct = set(columns)
        self.ff += len(distinct)
        plain = _address_columns(depth)
        # Up to four words, the register's set and reset often do.
        each = 0.57 if depth <= 4 else -(-depth // LUT_DEPTH)
        self.lut += each * sum(column not in plain for column in distinct)

    def ram(self, width: int, depth: int) -> None:
        """A memory with a write port and a read port, and the latter's register."""
        self.bram36 += block_rams(width, depth)
        if depth == 1:
            self.ff += 2 * width
        elif depth <= LUT_DEPTH:
            self.ff += width
            self.lut += memory_luts(width, depth)

    @property
    def resources(self) -> Resources:
        return Resources(dsp=self.dsp, bram36=self.bram36, lut=round(self.lut), ff=self.ff)


def _bits(count: int) -> int:
    """Width of a counter of ``count`` values from 0."""
    return (count - 1).bit_length()


def _even(number: int) -> int:
    """How often ``number`` can be halved; 0 for 0."""
    return (number & -number).bit_length() - 1 if number else 0


def _mux(ways: int) -> int:
    """LUTs a bit of a multiplexer."""
    return 0 if ways < 2 else 1 if ways <= 4 else -(-ways // 4)


#: LUTs a bit of the multiplexer that picks one of so many column banks, without padding and with it, as measured.
_ROTATION = {
    **{1: (0, 0.7), 2: (1, 1.1), 3: (1, 1), 4: (2, 2), 5: (2, 2.8), 6: (2, 3), 7: (3.2, 4), 8: (2, 2)},
    **dict.fromkeys((9, 10), (4, 4)),
    **dict.fromkeys(range(11, 17), (3, 3)),
}


def _rotation(banks: int, padded: bool) -> float:
    return _ROTATION[banks][padded] if banks in _ROTATION else 0.3 * banks


def _columns(words: Sequence[int], width: int) -> list[int]:
    """Bits of a table that are not the same in every word: bit ``b`` of word ``n`` is bit ``n`` of column ``b``."""
    # Transposed through strings, which is fast enough for words of thousands of bits.
    rows = [f"{word:0{width}b}" for word in words]
    columns = ["".join(bits) for bits in zip(*rows, strict=True)] if width else []
    constant = {"0" * len(words), "1" * len(words)}
    return [int(column[::-1], 2) for column in columns if column not in constant]


def _address_columns(depth: int) -> set[int]:
    """The columns that are an address bit: they take no logic."""
    return set(_columns(range(depth), _bits(depth)))


def _table_bits(values: Iterable[int]) -> int:
    """Different bits, not constant ones, of a table's values."""
    values = list(values)
    return len(set(_columns([value - min(values) for value in values], _bits(max(values) - min(values) + 1))))


# Components.


def _fifo(config: FifoConfig) -> Resources:
    cost = _Cost()
    address, level, beat = _bits(config.depth), _bits(config.depth + 1), _bits(config.beats)
    cost.ram(config.width, config.depth)
    cost.ff += 2 * address + level + 1 + beat
    cost.lut += max(0, 2 * address + 4.2 * level + 1.7 * beat - 5.6)
    if config.in_block_ram:
        place, pieces = _bits(FRONT_DEPTH), -(-config.depth // piece_depth(config.width, config.depth))
        cost.ram(config.width + 1, FRONT_DEPTH)
        cost.ram(config.width, FRONT_DEPTH)
        # Between them: a register for each piece's word, where it goes and when; and the choice of the two.
        cost.ff += config.width * pieces + 4 * place + _bits(FRONT_DEPTH + 1) + 4
        cost.lut += config.width + 14
    return cost.resources


def _unload(config: UnloadConfig) -> Resources:
    cost = _Cost()
    bits = config.shape.width * config.pixels
    if config.latency:
        moved = max(config.lanes_in - config.lanes_out, 0)
        cost.ff += config.lanes_in * bits + _bits(len(config.fold_beats)) + _bits(max(config.fold_beats) + 1)
        cost.lut += moved * bits + _bits(max(config.fold_beats) + 1) + 1
    counts = [len(beat) for beat in config.beats]
    if config.clears and min(counts) < config.lanes_out:
        cost.ff += _bits(len(counts))
        cost.lut += _bits(len(counts)) + sum(bits for lane in range(config.lanes_out) if lane >= min(counts))
    return cost.resources


def _credits(config: LayerConfig) -> Resources:
    bits = _bits(config.fifo_depth + 1)
    return Resources(ff=bits, lut=2 * bits)


def _multiply(config: MultiplyConfig) -> Resources:
    cost = _Cost(dsp=config.multipliers)
    window = config.window
    positions, pixels = config.positions, window.pixels
    to_sum = config.to_sum
    for position in range(positions):
        chains = sum(config.lane_of(chain, position) is not None for chain in range(config.chains))
        cost.delay(chains * pixels * config.operand.width, max(position - 1 - config.whole, 0))
        width = config.rom_widths[position]
        columns = _columns(config.contents[position], width) if config.memory == "lut" else ()
        cost.rom(columns, config.rom_depth, width, block=config.memory == "block")
    address = _bits(config.rom_depth)
    enabled = config.memory == "block"
    cost.ff += (address + enabled) * positions
    cost.lut += 1.2 * address + enabled
    cost.ff += to_sum + 1 + 2 * config.accumulates
    cost.delay(1, to_sum)  # last
    if config.accumulates:
        cost.delay(1, to_sum)  # first
    cost.lut += config.products * pixels * bool(config.operand_offset)  # an inverter each
    pairs = config.lanes // 2 if config.macs_per_dsp == 2 else 0
    alone = config.lanes - 2 * pairs
    product = config.weight_bits + config.operand.width + (not config.operand.signed)
    widths = []
    for chain in range(config.chains):
        terms = sum(config.lane_of(chain, position) is not None for position in range(positions))
        widths.append(min(product + (terms - 1).bit_length(), max(config.sum_bits, product)))
    if not config.whole:
        _sums(cost, config, alone * pixels, widths)
    if config.whole:
        for lane in range(config.lanes):
            chains = widths if lane == 2 * pairs else [config.field_bits] * config.chains
            _whole_sums(cost, config, lane, chains, config.chains if lane % 2 else 0)
    elif pairs:
        fields = [config.field_bits] * config.chains
        _sums(cost, config, pairs * pixels, fields)
        _sums(cost, config, pairs * pixels, fields, config.chains)
    return cost.resources


def _sums(cost: _Cost, config: MultiplyConfig, sums: int, widths: list[int], carries: int = 0) -> None:
    """So many equal adder trees and their accumulators, if there are any; with ``carries`` of each to be taken."""
    if carries and not config.accumulates:
        carries -= 1
        widths = [*widths, 2]
    alone = 0
    for level in range(config.tree_levels):
        pairs = [widths[number : number + 2] for number in range(0, len(widths), 2)]
        alone = _pass_on(cost, sums * widths[-1], len(widths), alone)
        taken = min(carries, len(widths) // 2)
        cost.delay(sums * taken, level)
        carries -= taken
        widths = [min(max(pair) + len(pair) - 1, config.sum_bits) for pair in pairs]
        added = sum(width for width, pair in zip(widths, pairs, strict=True) if len(pair) == 2)
        cost.ff += sums * added
        cost.lut += sums * added
        if config.macs_per_dsp == 2:
            # The highest bit of a sum that grows is a carry, which takes no LUT.
            cost.lut -= sums * sum(
                len(pair) == 2 and width > max(pair) for width, pair in zip(widths, pairs, strict=True)
            )
    cost.delay(sums * widths[0], alone)
    cost.delay(sums * carries, config.tree_levels)
    if config.accumulates:
        cost.ff += sums * config.sum_bits
        # The choice of 0 or the accumulator is part of the adder's LUTs only where the other operand is narrower.
        cost.lut += sums * config.sum_bits * (2 if widths[0] == config.sum_bits else 1)


#: LUTs of a requantiser's lane for products next to ties: about 9 find them, 8 add what is due.
_BESIDE_TIES = 17
#: LUTs a bit of an adder of so many values, one of which may be a constant, and their carries; as measured.
_LAST_LEVEL = {2: 0.5, 3: 1.9, 4: 2.8, 5: 5.6}


def _whole_sums(cost: _Cost, config: MultiplyConfig, lane: int, widths: list[int], carries: int) -> None:
    """The adder trees of one output lane in a layer that computes whole windows."""
    pixels = config.window.pixels
    bits = min(config.whole_bits[lane], config.sum_bits)
    bias = bool(config.bias and config.bias[lane])
    joined = False
    registers = 0  # that the last value has passed since it was added up, that of its sum included
    for level in range(config.tree_levels - 1):
        *pairs, last = [widths[number : number + 2] for number in range(0, len(widths), 2)]
        alone = len(last) == 1 and joined
        with_bias = len(last) == 1 and not joined
        joined |= with_bias
        taken = min(len(widths) // 2 + with_bias, carries)
        cost.delay(pixels * taken, level)
        carries -= taken
        if not alone:
            _shift_register(cost, pixels * last[-1], registers)
        registers = registers + 1 if alone else 1
        cost.lut += pixels * sum(max(pair) for pair in pairs)
        sums = [min(max(pair) + 1, bits) for pair in pairs]
        if len(last) == 2:
            cost.lut += pixels * max(last)
            sums.append(min(max(last) + 1, bits))
        elif with_bias and bias:
            cost.lut += pixels * bits / 2
            sums.append(bits)
        else:
            sums += last
        cost.ff += pixels * sum(sums)
        widths = sums
    _shift_register(cost, pixels * widths[-1], registers)
    cost.delay(pixels * carries, config.tree_levels - 1)
    cost.ff += pixels * bits
    cost.lut += pixels * bits * _LAST_LEVEL[len(widths) + (not joined)]


def _shift_register(cost: _Cost, bits: int, registers: int) -> None:
    """Registers in a row, counted as such, that are a shift register."""
    if registers >= 3:
        cost.ff -= bits * registers
        cost.delay(bits, registers)


def _pass_on(cost: _Cost, bits: int, values: int, alone: int) -> int:
    """The last of an odd number of values passes a level of a tree by itself, as it did the ``alone`` levels before.

    Returns how many levels that has lasted; a delay is counted when it ends, at the latest in the tree's last level.
    """
    if values % 2:
        return alone + 1
    cost.delay(bits, alone)
    return 0


def _pool(config: MaxPoolConfig) -> Resources:
    cost = _Cost()
    lanes, bits, taps = config.lanes * config.window.pixels, config.window.input.bits, config.window.taps
    compare = 1.75 * bits  # a comparison, and the choice of the greater
    comparisons = taps - 1 + config.accumulates
    left, alone = taps, 0
    while left > 1:
        cost.ff += lanes * (left // 2) * bits
        alone = _pass_on(cost, lanes * bits, left, alone)
        left = -(-left // 2)
    cost.ff += lanes * config.accumulates * bits
    cost.lut += lanes * comparisons * compare
    cost.ff += config.levels + config.accumulates
    cost.delay(1, config.levels)
    if config.accumulates:
        cost.delay(1, config.levels)
    return cost.resources


def _add_bias(config: AddBiasConfig) -> Resources:
    cost = _Cost()
    sums = config.lanes * config.pixels
    beat = _bits(len(config.beats))
    # Bits of an output above the sum's are its sign, once.
    total = max(signed_bits(*config.bias), config.accumulator_bits) + 1
    cost.ff += beat + config.latency + sums * (config.accumulator_bits + min(total, config.bits))
    cost.ff += sums * config.accumulator_bits * config.tables_in_block_ram
    cost.lut += beat + sums * config.accumulator_bits
    for name in ("bias", "present"):
        _table(cost, config, name)
    return cost.resources


def _table(cost: _Cost, config: AddBiasConfig | RequantiseConfig, name: str) -> int:
    """A table of parameters: its memory. Returns whether it has one."""
    varying = [column for column in config.tables[name] if len(set(column)) > 1]
    columns: list[int] = []
    width = 0
    for values in varying:
        shape = bits_for_range(min(values), max(values))
        width += shape.width
        if len(values) <= LUT_DEPTH:
            mask = (1 << shape.width) - 1
            columns += _columns([value & mask for value in values], shape.width)
    if varying:
        cost.rom(columns, len(config.beats), width)
    return bool(varying)


def _requantise(config: RequantiseConfig) -> Resources:
    cost = _Cost(dsp=config.multipliers)
    recipe = config.recipe
    sums = config.lanes * config.pixels
    beat = _bits(len(config.beats))
    moves = any(recipe.left)
    rounds = config.rounded_bits > 0
    own = recipe.pieces > 0 and recipe.split_factor and not moves and not recipe.clamp and not rounds
    cost.ff += beat + config.latency
    cost.lut += beat

    late = config.tables_in_block_ram
    cycle = 2 + late
    latest = 1 + late
    if _table(cost, config, "bias") and own and late:
        cost.ff += sums * signed_bits(*config.bias) * (recipe.pieces - 1)
    # Sums wait for their bias; a slice takes but the last register.
    cost.ff += sums * config.accumulator_bits * late
    if not own:
        cost.ff += sums * config.accumulator_bits
        cost.lut += sums * config.sum_bits
        in_slice = recipe.pieces > 0
        last = "clamp" if recipe.clamp else "shift" if moves else "rounded" if rounds else "sum"
        if not (in_slice and last == "sum"):
            cost.ff += sums * config.sum_bits
        if rounds:
            # Which bits go, and then they do; beside them the sum waits for a cycle.
            cost.ff += sums * (config.rounded_bits + 1 + config.sum_bits)
            cost.lut += sums * (3 * config.rounded_bits + config.rounded_sum_bits)
            if not (in_slice and last == "rounded"):
                cost.ff += sums * config.rounded_sum_bits
            cycle += 2
        bits = config.rounded_sum_bits + max(recipe.left) if recipe.clamp else recipe.operand_bits
        if moves:
            if _table(cost, config, "left"):
                latest = cycle
            if not (in_slice and last == "shift"):
                cost.ff += sums * bits
            cost.lut += sums * bits * _mux(len(set(recipe.left)))
            cycle += 1
        if recipe.clamp:
            if not in_slice:
                cost.ff += sums * recipe.operand_bits
            cost.lut += sums * (recipe.operand_bits + 4)
            cycle += 1
    if recipe.split_factor and recipe.pieces:
        for piece in range(recipe.pieces):
            if _table(cost, config, f"factor_{piece}"):
                latest = max(latest, cycle + piece)
    elif _table(cost, config, "factor"):
        latest = max(latest, cycle)
        cost.lut += sums * recipe.operand_bits * (not recipe.pieces)
    cycle += recipe.pieces + 1 if recipe.pieces else 0
    for piece in range(recipe.pieces - 1):
        start = piece * PIECE
        low = min(PIECE, max(0, start + PIECE - _unused(config)))
        cost.delay(sums * low, recipe.pieces - 1 - piece)
    if config.offset_place == "late":
        # Bits below the half that is added pass by; without ties they are not looked at any more.
        cost.ff += sums * (config.product_bits - _unused(config))
        cost.lut += sums * (config.product_bits - _even(config.offset))
        cycle += 1
    if config.beside_ties:
        # The whole number, what is due and what saturates; the comparison, and an adder for what is due.
        cost.ff += sums * (config.whole_bits + 1 + (config.low < config.zero_point))
        cost.lut += sums * _BESIDE_TIES
        cycle += 1
    if _table(cost, config, "present"):
        latest = max(latest, cycle)
    cost.ff += beat * (latest - 1 - late)
    bits = (config.high - config.low).bit_length()
    cost.ff += sums * bits
    cost.lut += sums * (bits + 1)
    return cost.resources


def _unused(config: RequantiseConfig) -> int:
    """Bits of the product, from the lowest one, at which nothing looks."""
    if config.beside_ties:
        ends = config.bands.above and config.bands.below
        return 0 if ends else max(0, config.recipe.shift - SIGNIFICAND_BITS - 1)
    return 0 if config.ties else config.recipe.shift


def _regroup(config: RegroupConfig) -> Resources:
    cost = _Cost()
    bits = config.output.bits * config.output.pixels
    fill = _bits(max(config.positions) + max(config.advances) + 1)
    beat_in, beat_out = _bits(len(config.counts)), _bits(len(config.sizes))
    cost.ff += config.held * bits + fill + beat_in + beat_out + 1
    chosen = 0
    for lane, sources in enumerate(config.lane_sources):
        chosen += _mux(len(sources) + (lane + config.output.lanes < config.held))
    cleared = config.output.lanes - min(config.sizes)
    cost.lut += 1.6 * bits * (chosen + cleared) + 0.9 * fill + 1.4 * (beat_in + beat_out) + 5
    return cost.resources


def _line_buffer(config: LineBufferConfig) -> Resources:
    cost = _Cost()
    source = config.input
    row_banks, column_banks, word = config.row_banks, config.column_banks, config.word_bits
    patch_rows, reads = config.patch[0], config.read_columns
    for _ in range(row_banks * column_banks):
        cost.ram(word, config.bank_depth)

    # Data path behind the memories.
    if config.registers_words:
        cost.ff += row_banks * column_banks * config.pieces * word
        cost.lut += row_banks * column_banks * word * _mux(config.pieces)
    elif row_banks > 1:
        cost.ff += patch_rows * column_banks * word
    if row_banks > 1:
        cost.lut += patch_rows * column_banks * word * (_mux(row_banks) if _turns(config) else 0)
    cost.ff += patch_rows * reads * word
    cost.lut += patch_rows * reads * word * _rotation(column_banks, any(config.padding))
    if config.chooses:
        cost.ff += config.pixels * config.taps * word
        cost.lut += (
            config.pixels
            * word
            * sum(_mux(sum(tap < len(taps) for taps in config.step_taps)) for tap in range(config.taps))
        )
    # Data path in front of them: a bank that gets nothing in this cycle is given zeros.
    if column_banks > 1:
        turns = column_banks // gcd(column_banks, source.pixels)
        cost.lut += column_banks * word * (turns > 1)

    # Control.
    stage = config.word_stage
    cost.ff += _control_ff(config) + 2 * _bits(config.pieces) * row_banks * column_banks
    if column_banks > 1:
        cost.delay(_bits(column_banks), stage)
    if row_banks > 1 and _turns(config):
        cost.delay(_bits(config.rows), 3)
        cost.ff += _bits(config.rows) * config.registers_words
    if any(config.padding):
        cost.delay(patch_rows * reads, stage)
    if config.chooses:
        cost.delay(_bits(config.tap_folds), config.latency - 1)
    cost.ff += config.latency
    cost.delay(2, config.latency)
    cost.lut += _control_lut(config)
    return cost.resources


def _control_lut(config: LineBufferConfig) -> float:
    """LUTs of counters, tables and write enables: fitted."""
    width = max(1, _bits(config.bank_depth))
    columns = config.column_banks
    total = 1.33 * (_control_ff(config) - columns * width) + 0.7 * columns * width + 2.6 * _entries(config)
    if columns > 1:
        total += 4 * columns
    if any(config.padding):
        total += 2.4 * config.patch[0] * config.read_columns
    if config.row_banks == 1:
        total += 3.6 * config.rows
    if config.chooses:
        total += 3.3 * config.tap_folds
    return total


def window_tables(config: LineBufferConfig) -> tuple[list[list[int]], list[list[int]]]:
    """The line buffer's two tables by window, of ``needed`` and ``released``: by row end, by column, by row.

    What `LineBufferConfig.need_steps` and `LineBufferConfig.release_steps` come down to, without visiting every
    window: inside a row, windows advance alike in every row that counts at all.
    """
    rows, last = range(config.output_height), config.row_steps - 1
    bottom = rows[-1]

    def column_steps(of: Callable[[int, int], int], row: int) -> list[int]:
        return [of(row, column + 1) - of(row, column) for column in range(last)]

    need_ends = [config.needed(row + 1, 0) - config.needed(row, last) for row in rows[:-1]]
    need_ends.append(config.input.frame_pixels + config.needed(0, 0) - config.needed(bottom, last))
    need = [need_ends, column_steps(config.needed, 0), [1] * len(rows) if last else []]

    tops = [row * config.stride[0] - config.padding[0] for row in rows]
    counts = [int(top + config.stride[0] > 0 and top < config.input.height) for top in tops]
    befores = [0, *(config.released(row, last) for row in rows[:-1])]
    release_ends = [
        config.released(row, last) - (config.released(row, last - 1) if last else before)
        for row, before in zip(rows, befores, strict=True)
    ]
    columns = [0] * last
    if last and any(counts):
        row = counts.index(1)
        columns = [config.released(row, 0) - befores[row], *column_steps(config.released, row)[:-1]]
    return need, [release_ends, columns, [count * any(columns) for count in counts] if last else []]


def _entries(config: LineBufferConfig) -> int:
    """Entries of these tables that are not the commonest value."""
    return sum(_uncommon(table) for tables in window_tables(config) for table in tables)


def _uncommon(table: Iterable[int]) -> int:
    """Entries of a table that are not its commonest value."""
    counts = Counter(table)
    return sum(counts.values()) - max(counts.values(), default=0)


def _turns(config: LineBufferConfig) -> bool:
    """Whether windows begin in different rows of the ring."""
    frame = config.input.height - (config.output_height - 1) * config.stride[0]
    return bool(config.stride[0] % config.rows or frame % config.rows or config.patch[0] % config.rows)


def _control_ff(config: LineBufferConfig) -> int:
    """Registers of the counters."""
    source = config.input
    folds, pixels, banks = source.folds, source.pixels, config.column_banks
    total = 0
    # Writer.
    width = max(1, (config.bank_depth - 1).bit_length())
    total += _bits(source.row_steps) + _bits(folds) + _bits(config.rows)
    if pixels % banks:
        total += _bits(banks)
    word_step = folds * (1 if pixels % banks else pixels // banks)
    if config.row_banks == 1 and config.rows > 1:
        word_step = gcd(word_step, config.row_words)
    if config.row_words > folds or (config.row_banks == 1 and config.rows > 1):
        total += max(0, _bits(config.bank_depth) - _even(word_step))
    # Flow.
    most = 2 * source.frame_pixels + config.rows * source.width
    total += bits_for_range(-most, most).width
    capacity = config.rows * source.width
    total += bits_for_range(-pixels, capacity + source.frame_pixels - pixels).width
    (needs, need_columns, _), (ends, columns, _) = window_tables(config)
    total += 2 * _table_bits({0, *ends, *columns})
    if config.window_cycles > 1:
        total += _table_bits({0, *needs, *need_columns})
    # Walk.
    for stride, positions in (
        (config.stride[0], [row * config.stride[0] - config.padding[0] for row in range(config.output_height)]),
        (
            config.stride[1] * config.pixels,
            [step * config.pixels * config.stride[1] - config.padding[1] for step in range(config.row_steps)],
        ),
    ):
        if len(positions) > 1:
            total += bits_for_range(positions[0], positions[-1]).width - _even(stride)
    total += _bits(config.output_folds) + _bits(config.group_folds) + _bits(config.kernel[1])
    turns = config.tap_folds if config.chooses else config.kernel[0] // config.patch[0]
    total += _bits(turns)
    if not config.chooses and turns > 1 and any(config.padding):
        total += _bits(config.kernel[0])
    total += _bits(folds)
    if config.groups > 1:
        total += _bits(folds) + _bits(config.fold_folds)
    total += 2 * (width - _even(folds))
    if banks > 1:
        total += 2 * _bits(banks)
    if _turns(config):
        total += 2 * _bits(config.rows)
    # Addresses.
    total += width + banks * width
    if folds & (folds - 1):
        total += banks * (_bits(folds) + 1)
    else:  # the banks' sums have all bits but the highest in common
        total += _bits(folds) + banks - 1
    return total


def _reuse(config: ReuseBufferConfig) -> Resources:
    cost = _Cost()
    width = config.input.data_bits
    depths = [depth for depth in (config.right_depth, config.bottom_depth) if depth]
    for depth in depths:
        cost.ram(width, depth)
    # The last beat, and a word of each band; where a beat may want what is still on its way, the beats that bring it.
    # And the choice of all these.
    near = bool(depths) and config.distance <= IN_FLIGHT
    cost.ff += width * (1 + len(depths) + (IN_FLIGHT - 1) * near) + IN_FLIGHT * len(depths) * near
    cost.lut += width * len(depths) * (1 + near)
    control = _reuse_control_ff(config)
    cost.ff += control
    cost.lut += 1.54 * control + 0.23 * _reuse_entries(config) + 2.8
    return cost.resources


def _reuse_entries(config: ReuseBufferConfig) -> int:
    """Entries of the tables by span that are not the commonest value."""
    total = 0
    for cuts in (config.row_cuts, config.column_cuts):
        total += sum(_uncommon(getattr(cut, name) for cut in cuts) for name in ("size", "kept", "unused"))
        total += _uncommon(after.kept and after.first - cut.first for cut, after in pairwise(cuts))
    return total


def _reuse_control_ff(config: ReuseBufferConfig) -> int:
    folds = config.input.folds
    total = _bits(folds) + 6
    for cuts in (config.row_cuts, config.column_cuts):
        total += _bits(len(cuts)) + _bits(max(cut.size for cut in cuts))
    if config.right_depth:
        along = _bits(max(cut.size for cut in config.column_cuts) * folds)
        total += 1 + _bits(config.right_depth + 1) - _even(config.right_pitch) + 2 * along
        total += 4 + 2 * _bits(config.right_depth)
    if config.bottom_depth:
        across, along = _bits(config.bottom_depth + 1) - _even(config.bottom_pitch), _bits(config.bottom_pitch + 1)
        total += 1 + 2 * across + 2 * along - _even(folds)
        total += 4 + 2 * _bits(config.bottom_depth)
    return total


def _tile_buffer(config: PyramidBufferConfig) -> Resources:
    cost = _Cost()
    window, source = config.window, config.window.input
    word, banks = window.word_bits, config.row_banks * config.column_banks
    turned = config.column_banks if config.phase_bits(1) else 1
    address = _bits(config.bank_depth)
    row_phase, column_phase = config.phase_bits(0), config.phase_bits(1)
    for _ in range(banks):
        cost.ram(word, config.bank_depth)

    # Data path behind the memories. Padding is a register's reset.
    stage = 3
    if config.row_banks > 1 or config.registers_words:
        cost.ff += banks * word
        stage += 1
    if config.row_banks > 1:
        cost.lut += banks * word * _mux(config.row_banks) * bool(row_phase)
        cost.delay(row_phase, 3)
        cost.ff += row_phase * config.registers_words
    cost.delay(column_phase, stage)
    pixels = window.patch[0] * window.patch[1]
    cost.ff += pixels * word
    cost.lut += pixels * word * (1.5 if turned == 4 else _rotation(turned, False))
    if window.chooses:
        cost.ff += window.taps * word
        cost.lut += word * sum(_mux(sum(tap < len(taps) for taps in window.step_taps)) for tap in range(window.taps))
        cost.delay(_bits(window.tap_folds), config.latency - 1)
    cost.ff += config.latency
    cost.delay(2, config.latency)

    # Control. Banks that are never turned are all read at the same address.
    ports = (config.row_banks if row_phase else 1) * turned
    control = _tile_control_ff(config)
    cost.ff += control + ports * address
    cost.lut += 1.15 * control + 1.3 * ports * address
    # In front of the memories: which pixel of a beat a bank gets.
    cost.lut += config.column_banks * word * _mux(min(_fill_phases(config), source.pixels))
    return cost.resources


def _fill_phases(config: PyramidBufferConfig) -> int:
    """Banks in which the first pixel of a beat may lie."""
    banks, pixels, axis = config.column_banks, config.window.input.pixels, config.columns
    begins = {cut.first + cut.unused * pixels - axis.origin(cut.span) for cut in config.column_cuts if cut.used}
    return len({(begin + beat * pixels) % banks for begin in begins for beat in range(banks)})


def _banks(config: PyramidBufferConfig) -> tuple[int, int]:
    return config.row_banks, config.column_banks


def _tile_control_ff(config: PyramidBufferConfig) -> int:
    """Registers of the counters, but for the addresses that are read at."""
    window = config.window
    folds = window.input.folds
    total = 2 * HALVES + 5 + 2 * _bits(folds) + _bits(window.tap_folds) + _bits(window.output_folds)
    if window.groups > 1:
        total += _bits(folds) - _even(window.group_folds) + _bits(window.fold_folds)
    total += not all(config.fills)
    total += _bits(folds) + 1
    for place, (axis, cuts, pitch, base) in enumerate(
        (
            (config.rows, config.row_cuts, config.row_words, config.half_depth),
            (config.columns, config.column_cuts, folds, 0),
        )
    ):
        banks, patch = _banks(config)[place], window.patch[place]
        # Writer.
        words = _bits(base + ((axis.tile + cuts[0].pixels) // banks + 1) * pitch + 1) - _even(pitch)
        total += _bits(len(cuts)) + _bits(max(cut.used for cut in cuts)) + _fill_phase_bits(axis, cuts, banks)
        total += words * (2 if cuts[0].pixels > 1 else 1)
        # Walk.
        words = _bits((axis.tile // banks + 1) * pitch + 1) - _even(pitch)
        phase = config.phase_bits(place)
        total += _bits(len(axis.walks)) + _bits(max(span.windows for span in axis.walks)) + words + phase
        if patch < axis.kernel:
            total += words + phase + _bits(axis.kernel) - _even(patch)
        total += (banks if phase else 1) * min(words + 1, _bits(config.bank_depth) - _even(pitch))
        if _inside(axis):
            total += _bits(axis.tile) - _even(axis.stride) + 3 * _bits(axis.tile + 1) + 2
            total += patch * (2 if config.row_banks > 1 else 1)
            total += sum(_table_bits(limits) for limits in _limits(axis))
    return total


def _limits(axis: Axis) -> tuple[list[int], list[int]]:
    """Where tiles begin and end in the map, from their first window on."""
    needs = [(span.windows - 1) * axis.stride + axis.kernel for span in axis.walks]
    ends = [span.end - axis.origin(span) for span in axis.walks]
    return (
        [min(max(0, -axis.origin(span)), axis.tile) for span in axis.walks],
        [axis.tile if need <= end else max(end, 0) for need, end in zip(needs, ends, strict=True)],
    )


def _inside(axis: Axis) -> bool:
    """Whether windows reach into padding."""
    begins, ends = _limits(axis)
    return any(begins) or any(end < axis.tile for end in ends)


def _fill_phase_bits(axis: Axis, cuts: tuple[Cut, ...], banks: int) -> int:
    begins = [cut.first + cut.unused * cut.pixels - axis.origin(cut.span) if cut.used else 0 for cut in cuts]
    return _bits(banks) if cuts[0].pixels % banks or any(begin % banks for begin in begins) else 0


_COSTS: dict[type, Any] = {
    ReuseBufferConfig: _reuse,
    PyramidBufferConfig: _tile_buffer,
    LineBufferConfig: _line_buffer,
    MultiplyConfig: _multiply,
    MaxPoolConfig: _pool,
    UnloadConfig: _unload,
    RequantiseConfig: _requantise,
    AddBiasConfig: _add_bias,
    FifoConfig: _fifo,
    RegroupConfig: _regroup,
    LayerConfig: _credits,
}
