"""Pipelined data path of fixed-point operations on each value of a map: tables, shifts, products, sums, polynomials.

A `DataPath` builds the circuit of one lane and counts its cost at the same time. A `PathNumber` knows its first
valid cycle, and adds registers if a step needs it later. A configuration finds its latency and its cost by
building one lane in a module that it discards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, product

from amaranth import Cat, Const, Module, Mux, Shape, Signal, Value, signed
from amaranth.hdl import Fragment
from amaranth.lib import data, memory

from hwgen.devices import Device, MultiplierSlice
from hwgen.errors import ConfigError
from hwgen.gateware.arithmetic.slice_chain import slice_cascade
from hwgen.gateware.channels import Beats, ChannelTables
from hwgen.gateware.cost import Cost, Resources, constant_adder_luts
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.layer import Arithmetic, Weightless
from hwgen.gateware.lookup import bits_for_range, delayed, named, read_port
from hwgen.gateware.product_rows import extended
from hwgen.gateware.rounding import signed_bits
from hwgen.gateware.stream import at_pixel
from hwgen.gateware.value_tables import MAX_BITS

Range = tuple[int, int]


def slice_pieces(first_bits: int, second_bits: int, multiplier_slice: MultiplierSlice) -> list[tuple[int, int]]:
    """Return a list of index pairs, in order: the operands' pieces that each DSP slice of a product multiplies.

    A pair has the index of a piece of each operand. An operand that fits the slice's wide port is not divided if the
    other one is.
    """

    def pieces(bits: int) -> int:
        return max(1, -(-(bits - 1) // multiplier_slice.cascade_shift))

    counts = [(pieces(first_bits), pieces(second_bits))]
    counts += [(counts[0][0], 1)] * (second_bits <= multiplier_slice.wide_bits)
    counts += [(1, counts[0][1])] * (first_bits <= multiplier_slice.wide_bits)
    first, second = min(counts, key=lambda pair: pair[0] * pair[1])
    return sorted(product(range(first), range(second)), key=sum)


class PathNumber:
    """Integer in a data path under construction: signal, first valid cycle, range, and registers that delay it.

    Parameters
    ----------
    path : NumberPath
        Data path.
    name : str
        Name of the value's signals.
    value : Value
        Value, in its first valid cycle.
    cycle : int
        First valid cycle, counted from the layer's step.
    ends : tuple of int
        Smallest and largest value.
    register : bool
        Whether ``value`` is a register outside of memories and DSP slices.
    zeros : int
        Number of lowest bits that are always 0.
    """

    def __init__(self, path: NumberPath, name: str, value: Value, cycle: int, ends: Range, register: bool, zeros: int):
        self.name, self.cycle, self.ends, self.zeros = name, cycle, ends, zeros
        self.bits = signed_bits(*ends)
        self._path, self._register = path, register
        self._stages = [value]
        self._read: dict[int, bool] = {}  # by cycle of a read: whether only DSP slices read the value

    def at(self, cycle: int, *, in_slice: bool = False) -> Value:
        """Return the value's signal as valid in ``cycle``, delayed by registers if that is after its first cycle.

        With ``in_slice``, the reader is a DSP slice, which has input registers.
        """
        while self.cycle + len(self._stages) <= cycle and not isinstance(self._stages[-1], Const):
            self._stages.append(delayed(self._path.m, f"{self.name}_after_{len(self._stages)}", self._stages[-1], 1))
        self._read[cycle] = self._read.get(cycle, True) and in_slice
        return self._stages[min(cycle - self.cycle, len(self._stages) - 1)]

    def piece(self, cycle: int, index: int, count: int) -> Value:
        """Return piece ``index`` of ``count`` of the value, for a DSP slice that reads it in ``cycle``.

        The last piece is signed and has all remaining bits.
        """
        value = extended(self.at(cycle, in_slice=True), self.bits)[: self.bits].as_signed()
        shift = self._path.device.multiplier_slice.cascade_shift
        return value[index * shift :].as_signed() if index == count - 1 else value[index * shift : (index + 1) * shift]

    def add_register_cost(self, cost: Cost) -> None:
        """Add to ``cost`` the registers that delay the value; the registers between two reads form one delay line."""
        if isinstance(self._stages[0], Const):
            return
        width, begin = len(self._stages[0]) - self.zeros, self.cycle - self._register
        for cycle, in_slice in sorted(self._read.items()):
            inside = min(cycle - begin, 2) * in_slice
            cost.in_slices(width * inside)
            cost.delay(width, cycle - begin - inside)
            begin = max(begin, cycle)


class NumberPath:
    """Builder of a pipelined integer data path, which adds sums, shifts, comparisons and products, and their cost.

    Parameters
    ----------
    m : Module
        Module of the data path.
    device : Device
        Device family.
    name : str
        Beginning of the names of signals and submodules.
    """

    def __init__(self, m: Module, device: Device, name: str):
        self.m, self.device, self.name, self.cost = m, device, name, Cost(device)
        self._numbers: list[PathNumber] = []

    def new_number(
        self, name: str, value: Value, cycle: int, ends: Range, *, register: bool = False, zeros: int = 0
    ) -> PathNumber:
        """Add to the data path, and return, a `PathNumber` that is valid from ``cycle``; parameters as in the class."""
        self._numbers.append(PathNumber(self, f"{self.name}_{name}", value, cycle, ends, register, zeros))
        return self._numbers[-1]

    def new_constant(self, name: str, value: int) -> PathNumber:
        """Add to the data path, and return, a `PathNumber`: an integer constant, valid in every cycle."""
        return self.new_number(name, Const(value, bits_for_range(value, value)), 0, (value, value))

    def registered(self, name: str, value: Value, cycle: int, ends: Range, luts: float) -> PathNumber:
        """Add a register for ``value``, valid in ``cycle``, that ``luts`` LUTs compute; return a `PathNumber`."""
        register = Signal(bits_for_range(*ends), name=f"{self.name}_{name}", reset_less=True)
        self.m.d.sync += register.eq(value)
        self.cost.lut += luts
        return self.new_number(name, register, cycle + 1, ends, register=True)

    def add(self, name: str, first: PathNumber, second: PathNumber, sign: int = 1) -> PathNumber:
        """Add a registered adder, or a subtractor if ``sign`` is -1, to the path; return a `PathNumber`: the sum."""
        cycle = max(first.cycle, second.cycle)
        least, most = sorted(sign * end for end in second.ends)
        ends = first.ends[0] + least, first.ends[1] + most
        left, right = first.at(cycle), second.at(cycle)
        bits = signed_bits(*ends)
        luts = constant_adder_luts(sign * right.value, bits) if isinstance(right, Const) else bits
        return self.registered(name, left + right if sign > 0 else left - right, cycle, ends, luts)

    def shift(self, name: str, value: PathNumber, bits: int) -> PathNumber:
        """Add a rounding right shift by ``bits`` bits, ties upwards (left if negative); return a `PathNumber`."""
        now = value.at(value.cycle)
        if bits <= 0:
            ends = value.ends[0] << -bits, value.ends[1] << -bits
            now = now.shift_left(-bits) if bits else now
            return self.new_number(name, now, value.cycle, ends, zeros=-bits)
        half = 1 << (bits - 1)
        ends = (value.ends[0] + half) >> bits, (value.ends[1] + half) >> bits
        rounded = named((now >> (bits - 1)) + 1, f"{name}_doubled") >> 1
        return self.registered(name, rounded, value.cycle, ends, 1)

    def extreme(self, name: str, first: PathNumber, second: PathNumber, greatest: bool) -> PathNumber:
        """Add a registered comparator to the data path; return a `PathNumber`: maximum or minimum of its inputs."""
        cycle = max(first.cycle, second.cycle)
        low, high = ((max if greatest else min)(*pair) for pair in zip(first.ends, second.ends, strict=True))
        left, right = first.at(cycle), second.at(cycle)
        is_left = left > right if greatest else left < right
        constant = isinstance(right, Const)
        luts = max(first.bits, second.bits) / 2 + signed_bits(low, high) * (0.5 if constant else 1)
        return self.registered(name, Mux(is_left, left, right), cycle, (low, high), luts)

    def multiply(
        self, name: str, first: PathNumber, second: PathNumber, *, offset: PathNumber | int = 0, shift: int = 0
    ) -> PathNumber:
        """Add a cascade of DSP slices to the data path; return a `PathNumber`: ``(first * second + offset) >> shift``.

        The first slice adds the offset. An offset too wide for a slice is added later.
        """
        cycle = max(first.cycle, second.cycle)
        products = [a * b for a, b in product(first.ends, second.ends)]
        added = offset.ends if isinstance(offset, PathNumber) else (offset, offset)
        ends = min(products) + added[0], max(products) + added[1]
        steps = slice_pieces(first.bits, second.bits, self.device.multiplier_slice)
        if late := signed_bits(*added) >= self.device.multiplier_slice.sum_bits - 1:
            ends = min(products), max(products)
        total = offset if isinstance(offset, PathNumber) else self.new_constant(f"{name}_half", offset)
        added_first = Const(0) if late else total.at(cycle + 1, in_slice=cycle - total.cycle < 2)
        result = self._cascade(name, first, second, cycle, steps, added_first, 0 if late else shift)
        result = self.new_number(name, result[: signed_bits(*ends)].as_signed(), cycle + len(steps) + 1, ends)
        if late:
            result = self.add(f"{name}_rounded", result, total)
            result.zeros = shift  # nothing reads these bits
        ends, value = (result.ends[0] >> shift, result.ends[1] >> shift), result.at(result.cycle)
        return self.new_number(f"{name}_shifted", value >> shift, result.cycle, ends, register=late)

    def _cascade(
        self,
        name: str,
        first: PathNumber,
        second: PathNumber,
        cycle: int,
        steps: list[tuple[int, int]],
        total: Value,
        unused: int,
    ) -> Value:
        """Add the cascade of DSP slices that computes ``first * second + total``, and return this sum.

        The operands are valid in ``cycle``. Nothing reads the ``unused`` lowest bits of the sum.
        """
        multiplier_slice, counts = (
            self.device.multiplier_slice,
            [1 + max(pieces) for pieces in zip(*steps, strict=True)],
        )
        shift, dropped = multiplier_slice.cascade_shift, 0
        factors = (
            (first.piece(cycle + step, pieces[0], counts[0]), second.piece(cycle + step, pieces[1], counts[1]))
            for step, pieces in enumerate(steps)
        )
        prefix = f"{self.name}_{name}"
        names = f"{prefix}_product_{{}}", f"{prefix}_sum_{{}}", f"{prefix}_low_{{}}"
        result, slices = slice_cascade(self.m, names, steps, factors, total, shift)
        for step, (pieces, (multiplied, added)) in enumerate(zip(steps, slices, strict=True)):
            sizes = zip((first, second), pieces, counts, strict=True)
            bits = [
                multiplier_slice.piece_bits(number.bits, index, count) - number.zeros for number, index, count in sizes
            ]
            self.cost.dsp += multiplier_slice.multiplies(*bits)
            self.cost.in_slices(len(multiplied) + len(added), len(added))
            if step + 1 < len(steps) and sum(steps[step + 1]) > sum(pieces):
                dropped += shift
                self.cost.delay(max(0, min(shift, dropped - unused)), len(steps) - 1 - step)
        return result

    def add_register_costs(self) -> None:
        """Add the delay registers of all values to the data path's cost, once all reads of the values are known."""
        for number in self._numbers:
            number.add_register_cost(self.cost)


class DataPath(NumberPath):
    """Builder of the fixed-point data path of one lane and pixel of a layer, one circuit per operation.

    Parameters
    ----------
    m : Module
        Module of the layer's arithmetic.
    config : FixedPointConfig
    lane, pixel : int
        Position of the data path in a beat.
    constants : dict
        Constants of all lanes and pixels by the names of their tables, for all tables that are already read.
    beats : Beats
        Index of the layer's step within its pixel.
    """

    def __init__(
        self,
        m: Module,
        config: FixedPointConfig,
        lane: int,
        pixel: int,
        constants: dict[str, list[Value]],
        beats: Beats,
    ):
        super().__init__(m, config.device, at_pixel(f"lane_{lane}", pixel, config.window.pixels))
        self.config, self.lane, self.pixel, self.beats = config, lane, pixel, beats
        self._constants, self._index = constants, lane * config.window.pixels + pixel

    def channel_constant(self, name: str, values: Sequence[int], cycle: int) -> PathNumber:
        """Return a `PathNumber`: the current channel's constant in table ``name``, valid from ``cycle``."""
        if len(set(values)) == 1:
            return self.new_constant(name, values[0])
        # All lanes have the same latency, those with one constant for all beats, too.
        varies = any(len(set(column)) > 1 for column in self.config.tables[name])
        cycle = max(cycle, 1 + self.config.tables_in_block_ram) if varies else 0
        if name not in self._constants:
            self._constants[name] = self.beats.read(name, cycle)
        return self.new_number(name, self._constants[name][self._index], cycle, (min(values), max(values)))

    def look_up(
        self, name: str, cycle: int, index: Value, columns: Sequence[Sequence[int]], *, block: bool
    ) -> list[PathNumber]:
        """Add a read-only memory; return a list: each column's `PathNumber` of the row ``index``, read in ``cycle``.

        With ``block``, the memory is in block RAM.
        """
        ends = [(min(*words, 0), max(*words, 0)) for words in columns]
        shapes = [bits_for_range(*pair) for pair in ends]
        depth, starts = len(columns[0]), [0, *accumulate(shape.width for shape in shapes)]
        packed = [
            sum(word % (1 << shape.width) << start for word, shape, start in zip(row, shapes, starts, strict=False))
            for row in zip(*columns, strict=True)
        ]
        style = self.config.memories.rom_style(depth, "block" if block else "lut")
        self.m.submodules[f"{self.name}_{name}"] = table = memory.Memory(
            shape=starts[-1], depth=depth, init=packed, attrs=style
        )
        port = read_port(table)
        self.m.d.comb += port.addr.eq(index)
        self.cost.table(packed, starts[-1], block=block)
        self.cost.ff += starts[-1] * block
        entry = delayed(self.m, f"{self.name}_{name}_entry", port.data, int(block))
        fields = [entry[start : start + shape.width] for start, shape in zip(starts, shapes, strict=False)]
        fields = [field.as_signed() if shape.signed else field for field, shape in zip(fields, shapes, strict=True)]
        named_fields = zip(fields, ends, strict=True)
        return [
            self.new_number(f"{name}_{column}", field, cycle + 1 + block, pair)
            for column, (field, pair) in enumerate(named_fields)
        ]

    def lane_tables(self, tables: Sequence[Sequence[int]]) -> list[Sequence[int]]:
        """Return the list of lookup tables of the lane's channels, one per beat of a pixel, or all lanes' only one."""
        if len(tables) == 1:
            return [tables[0]]
        return [tables[beat[self.lane] if self.lane < len(beat) else 0] for beat in self.config.beats]

    def run(self, step: data.View, steps: Sequence[OperationCircuit]) -> PathNumber:
        """Add the circuits of all operations, with operands in ``step``; return a `PathNumber`: the last result."""
        pixels = [beat.pixels for beat in self.config.window.inputs]
        values = [
            self.new_number(
                f"operand_{index}", step[f"operand_{index}"][self.lane][self.pixel % count], 0, beat.value_range
            )
            for index, (beat, count) in enumerate(zip(self.config.window.inputs, pixels, strict=True))
        ]
        for index, each in enumerate(steps):
            values.append(each.build(self, f"step_{index}", *(values[operand] for operand in each.operands)))
        values[-1].at(values[-1].cycle)
        self.add_register_costs()
        return values[-1]


@dataclass(frozen=True, kw_only=True)
class OperationCircuit(ABC):
    """Base class of fixed-point operations that add their circuit to a data path under construction.

    They have the parameters of the operations in `hwgen.network.ops.fixed_point`.

    Parameters
    ----------
    operands : tuple of int
        Indices of the operands among the inputs and the results of the operations.
    """

    operands: tuple[int, ...]

    @property
    def constants(self) -> tuple[int, ...]:
        """Constant operand as a tuple: one integer for all channels, or one per channel; empty without one."""
        return ()

    @abstractmethod
    def build(self, path: DataPath, name: str, *values: PathNumber) -> PathNumber:
        """Add the operation's circuit to a data path; return a `PathNumber`, whose signals begin with ``name``."""


@dataclass(frozen=True, kw_only=True)
class TableCircuit(OperationCircuit):
    """Fixed-point operation by lookup, in one table or one per channel: ``tables[channel][operand - low]``."""

    low: int
    tables: tuple[tuple[int, ...], ...]

    def build(self, path: DataPath, name: str, *values: PathNumber) -> PathNumber:
        (value,) = values
        address, words = value.at(value.cycle), []
        size = 1 << len(address)
        half = size >> 1 if address.shape().signed else 0
        for table in path.lane_tables(self.tables):
            entries = [(bits + half) % size - half - self.low for bits in range(size)]
            words += [table[entry] if 0 <= entry < len(table) else 0 for entry in entries]
        index = Cat(address, path.beats.beat_index(value.cycle)) if len(words) > size else address
        (result,) = path.look_up(name, value.cycle, index, [words], block=len(words) > 1 << MAX_BITS)
        return result


@dataclass(frozen=True, kw_only=True)
class ShiftCircuit(OperationCircuit):
    """Fixed-point operation that divides an operand by ``2**shift`` and rounds; multiplies if ``shift`` is negative."""

    shift: int

    def build(self, path: DataPath, name: str, *values: PathNumber) -> PathNumber:
        return path.shift(name, values[0], self.shift)


@dataclass(frozen=True, kw_only=True)
class MultiplyCircuit(OperationCircuit):
    """Fixed-point product of an operand and a constant, or of two operands, divided by ``2**shift`` and rounded."""

    shift: int
    factor: tuple[int, ...] = ()

    @property
    def constants(self) -> tuple[int, ...]:
        return self.factor

    def build(self, path: DataPath, name: str, *values: PathNumber) -> PathNumber:
        first, *others = values
        second = others[0] if others else path.channel_constant(name, self.factor, first.cycle)
        return path.multiply(name, first, second, offset=1 << self.shift >> 1, shift=self.shift)


@dataclass(frozen=True, kw_only=True)
class AddCircuit(OperationCircuit):
    """Fixed-point operation that adds a constant or second operand to an operand, or subtracts it if ``sign`` is -1."""

    sign: int = 1
    offset: tuple[int, ...] = ()

    @property
    def constants(self) -> tuple[int, ...]:
        return self.offset

    def build(self, path: DataPath, name: str, *values: PathNumber) -> PathNumber:
        first, *others = values
        second = others[0] if others else path.channel_constant(name, self.offset, first.cycle)
        return path.add(name, first, second, self.sign)


@dataclass(frozen=True, kw_only=True)
class ExtremumCircuit(OperationCircuit):
    """Fixed-point operation that computes the maximum or minimum of two operands."""

    greatest: bool

    def build(self, path: DataPath, name: str, *values: PathNumber) -> PathNumber:
        return path.extreme(name, *values, greatest=self.greatest)


@dataclass(frozen=True, kw_only=True)
class LimitsCircuit(OperationCircuit):
    """Fixed-point operation that limits an operand to the range ``low`` to ``high``."""

    low: int
    high: int

    def build(self, path: DataPath, name: str, *values: PathNumber) -> PathNumber:
        (value,) = values
        if self.low > value.ends[0]:
            value = path.extreme(f"{name}_low", value, path.new_constant(f"{name}_least", self.low), True)
        if self.high < value.ends[1]:
            value = path.extreme(f"{name}_high", value, path.new_constant(f"{name}_most", self.high), False)
        return value


@dataclass(frozen=True, kw_only=True)
class CurveCircuit(OperationCircuit):
    """Fixed-point function by quadratic polynomials, one per segment of ``2**segment_bits`` operand values."""

    low: int
    segment_bits: int
    guard: int
    coefficients: tuple[tuple[int, ...], ...]

    def build(self, path: DataPath, name: str, *values: PathNumber) -> PathNumber:
        size, count = self.segment_bits, len(self.coefficients[0])
        place = path.add(f"{name}_place", values[0], path.new_constant(f"{name}_begin", self.low), -1)
        last = (count << size) - 1
        bits, now = last.bit_length(), extended(place.at(place.cycle), last.bit_length() + 1)
        limited = Mux(now[-1], 0, Mux(now[bits:-1].any(), last, now[:bits]))
        place = path.registered(f"{name}_limited", limited, place.cycle, (0, last), bits + (len(now) - bits) / 5)
        where, cycle = place.at(place.cycle), place.cycle
        block = path.config.memories.default_ram(count) == "block"
        constant, linear, square = path.look_up(f"{name}_pieces", cycle, where[size:], self.coefficients, block=block)
        inside = path.new_number(f"{name}_inside", where[:size], cycle, (0, (1 << size) - 1))
        moved = path.shift(f"{name}_linear", linear, -size)
        slope = path.multiply(f"{name}_slope", square, inside, offset=moved, shift=size)
        return path.multiply(name, slope, inside, offset=constant, shift=size + self.guard)


@dataclass(frozen=True, kw_only=True)
class FixedPointConfig(ChannelTables, Weightless):
    """Configuration of a layer's arithmetic: a program of fixed-point operations that every value passes through.

    Parameters
    ----------
    window : JoinConfig
        Source of the layer's steps: a beat of each input. The last input can have one pixel for all pixels.
    steps : tuple of OperationCircuit
        Program. The result of the last operation is the arithmetic's; without operations, it is the first input.
    bits : int
        Width of a result, signed; 0 for the width of the last operation's result.

    Raises
    ------
    ConfigError
        If inputs are read in turn.
    """

    operation = "fixed-point program"

    window: JoinConfig
    steps: tuple[OperationCircuit, ...]
    bits: int = 0

    #: Memory of the tables of per-channel constants; ``None``: the number of beats of a pixel decides.
    tables_in = None

    def __post_init__(self) -> None:
        if self.window.in_turn:
            raise ConfigError(f"window must take all inputs at once, not {self.window!r}")

    @property
    def pixels(self) -> int:
        """Number of neighbouring pixels per beat."""
        return self.window.pixels

    @property
    def beats(self) -> tuple[range, ...]:
        """Tuple of channels in each of the beats of a pixel, lane 0 first: one range per beat."""
        return self.window.step_channels

    @cached_property
    def tables(self) -> dict[str, list[tuple[int, ...]]]:
        """Dictionary: operation (``step_0``) to a list, per lane, of tuples with one constant per beat of a pixel."""
        channels = self.window.input.channels
        constants = {f"step_{index}": step.constants for index, step in enumerate(self.steps)}
        return {name: self.table(values) for name, values in constants.items() if len(values) == channels > 1}

    @cached_property
    def _lane(self) -> tuple[Cost, PathNumber]:
        """Pair for one lane and pixel: `Cost` without tables of channels' constants, and result (`PathNumber`)."""
        m = Module()
        path = DataPath(m, self, 0, 0, {}, Beats(m, self, Const(0)))
        result = path.run(Signal(self.window.step_layout), self.steps)
        Fragment.get(m, None)  # Amaranth warns of a module that nothing uses
        return path.cost, result

    @property
    def latency(self) -> int:
        """Cycles from the operands at ``i`` to the result of the last fixed-point operation at ``o``."""
        return self._lane[1].cycle

    @property
    def result(self) -> Shape:
        """Amaranth shape of the last operation's result: signed, ``bits`` wide or as wide as needed."""
        return signed(self.bits or self._lane[1].bits)

    @property
    def lane_slices(self) -> int:
        """Number of DSP slices of the data path of one lane and pixel."""
        return self._lane[0].dsp

    @property
    def multipliers(self) -> int:
        """Number of DSP slices of the layer, for the products in all lanes and pixels."""
        return self.lanes * self.pixels * self.lane_slices

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.device, ff=self.latency)
        cost.add(self._lane[0], self.lanes * self.pixels)
        for name in self.tables:
            self._add_table_cost(cost, name)
        cost.counter(len(self.beats))
        return cost.resources

    def component(self) -> FixedPointUnit:
        return FixedPointUnit(self)


class FixedPointUnit(Arithmetic[FixedPointConfig]):
    """Component that applies a program of fixed-point operations to each value of a feature map.

    Parameters
    ----------
    config : FixedPointConfig

    Members
    -------
    i : In(stream, always ready)
        Steps of a `JoinUnit`.
    o : Out(stream, always ready)
        ``Tn x Tp`` results, ``[lane][pixel]``.

    Latency and throughput
        One step of the layer per cycle. Results are valid ``config.latency`` cycles later. Never stalls.
    """

    def elaborate(self, platform):
        m = Module()
        config, constants = self.config, {}
        beats = Beats(m, config, self.i.valid)
        for lane, pixel in product(range(config.lanes), range(config.pixels)):
            result = DataPath(m, config, lane, pixel, constants, beats).run(self.i.payload, config.steps)
            m.d.comb += self.o.payload[lane][pixel].eq(result.at(config.latency))
        m.d.comb += self.o.valid.eq(beats.valid(config.latency))
        return m
