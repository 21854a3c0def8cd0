"""Arithmetic of a convolution: chains of multiply-adds, a tree that adds the chains' sums, and accumulators.

A chain computes ``m[i] <= a[i] * w[i]; p[i] <= p[i-1] + m[i]``. Operands arrive one cycle later at each further
position. Synthesis maps a chain to a cascade of DSP slices, joined by PCIN and PCOUT, without an adder in fabric.

A `Multiplier` (`hwgen.gateware.multipliers`) defines the units of a chain and the split of its sum into lanes. The
parts of the configuration are in `hwgen.gateware.convolution`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from amaranth import Const, Module, Mux, Signal, Value
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, connect

from hwgen.errors import ConfigError
from hwgen.gateware.convolution.multiply_cost import MultiplyCost
from hwgen.gateware.convolution.parts import ConvolutionParts
from hwgen.gateware.cost import Resources
from hwgen.gateware.layer import Arithmetic
from hwgen.gateware.load.loaded_memory import LoadedMemory, add_store, writes_of
from hwgen.gateware.lookup import delayed, read_port
from hwgen.gateware.multipliers import Demand
from hwgen.gateware.product_sums import Chains, ProductSums
from hwgen.gateware.weights import Bounds, Weights


@dataclass(frozen=True, kw_only=True)
class MultiplyConfig(ConvolutionParts):
    """Configuration of a convolution's arithmetic: weight memories, multiplier chains, adder trees and accumulators.

    `ConvolutionParameters` describes the parameters.

    Raises
    ------
    ConfigError
        If a size is not positive, the weights do not fit the geometry or their width, the multiplier refuses the
        layer, or a channelwise walk has other lanes or outputs than its input.
    """

    operation = "convolution"

    def __post_init__(self) -> None:
        for name in ("outputs", "lanes", "weight_bits", "sum_bits", "chain"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be a positive integer, not {getattr(self, name)!r}")
        self._check_lanes()
        self._check_weights()
        if self.slice_lanes:
            self.kinds.in_slices.check(
                Demand(
                    operands=replace(self.units.operands, weight_range=self.weights.extremes),
                    lanes=self.slice_lanes,
                    pixels=self.window.pixels,
                    channelwise=self.window.channelwise,
                    locate=self._locate_weight,
                )
            )
        if self.bias and not self.kinds.whole:
            raise ConfigError(
                f"bias must be empty, not {len(self.bias)} values, unless one step computes a whole window and a slice "
                "does two MACs"
            )
        if len(self.bias) not in (0, self.outputs):
            raise ConfigError(f"bias must have one entry for each of {self.outputs} outputs, not {len(self.bias)}")

    def _check_lanes(self) -> None:
        source, groups, folds = self.window.input, self.groups, self.folds
        if self.outputs % groups:
            raise ConfigError(f"outputs must be a multiple of the {groups} groups, not {self.outputs!r}")
        if self.window.channelwise and (self.outputs, self.lanes) != (source.channels, source.lanes):
            raise ConfigError(
                f"outputs and lanes must equal a channelwise input's, {source.channels} and {source.lanes}, "
                f"not {self.outputs!r} and {self.lanes!r}"
            )
        if not self.window.channelwise and self.lanes > self.outputs // groups:
            raise ConfigError(
                f"lanes must be at most the {self.outputs // groups} output channels"
                f"{' of a group' if groups > 1 else ''}, not {self.lanes!r}"
            )
        if not 0 <= self.lut_lanes <= self.lanes:
            raise ConfigError(f"lut_lanes must be 0 to {self.lanes}, not {self.lut_lanes!r}")
        if self.window.output_folds != folds:
            raise ConfigError(f"window.output_folds must be {folds}, not {self.window.output_folds!r}")

    def _check_weights(self) -> None:
        if len(self.weights) != self.window_products:
            raise ConfigError(f"weights must have {self.window_products} integers, not {len(self.weights)}")
        limit = 1 << (self.weight_bits - 1)
        smallest, largest = self.weights.extremes
        if not (-limit <= smallest and largest < limit):
            raise ConfigError(f"weights must fit {self.weight_bits} bits, not {smallest!r} .. {largest!r}")
        if self.loaded:
            self.memories.check_ram("weights_in", self.weights_in, self.rom_depth)
        elif self.weights_in not in (None, "lut", "block"):
            raise ConfigError(f"weights_in must be 'lut' or 'block', not {self.weights_in!r}")
        if self.weights_joined and not self.weights_in_blocks:
            raise ConfigError("weights_joined must be False, not True, if the weights are in LUTs")

    def _locate_weight(self, weight: int) -> str:
        """Return a text with output channel, input channel and tap of the first weight equal to ``weight``."""
        index = self.weights.values.tolist().index(weight)
        index, column = divmod(index, self.window.kernel[1])
        index, row = divmod(index, self.window.kernel[0])
        index, channel = divmod(index, self.group_channels)
        return f"output {index}, channel {channel}, tap ({row}, {column})"

    @property
    def multipliers(self) -> int:
        """Number of DSP slices of the convolution's multipliers, even if synthesis builds products from LUTs."""
        return self.units.slices_of(self.units.slice_kinds.total())

    @property
    def in_luts(self) -> bool:
        """Whether synthesis builds all products from LUTs instead of DSP slices, because the operands are narrow."""
        return self.kinds.in_slices.is_soft(self.kinds.operand, self.weight_bits)

    @property
    def latency(self) -> int:
        """Cycles from the last operands of an output value on port ``i`` to its sum of products on port ``o``."""
        return self.pipeline.to_sum + 1 + self.pipeline.has_accumulators

    @property
    def window_products(self) -> int:
        """Number of products that one output pixel needs, over all output channels."""
        return self.outputs * self.output_weights

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Tuple of integers to add to the output channels' sums: activation offset times sum of weights."""
        if not self.kinds.offset:
            return (0,) * self.outputs
        return tuple(self.kinds.offset * sum(sums) for sums in self.weights.sums(self.outputs))

    @property
    def stores(self) -> tuple[LoadedMemory, ...]:
        """Tuple of each `LoadedMemory` for weights that are loaded at run time; empty if the weights are constants."""
        return self.weight_words.stores

    @property
    def stored_contents(self) -> tuple[tuple[int, ...], ...]:
        """Tuple of initial words (integers) of each weight memory that is loaded at run time; empty without any."""
        return self.weight_words.contents if self.loaded else ()

    @property
    def blank(self) -> MultiplyConfig:
        """Copy (`MultiplyConfig`) with all weights 0 if weights are loaded at run time; else this one itself."""
        return replace(self, weights=Weights([0] * len(self.weights))) if self.loaded else self

    @property
    def circuit(self) -> MultiplyConfig:
        """Copy (`MultiplyConfig`) with only the weights' range, equal for convolutions with the same circuit."""
        ranges = (multiplier.representative(self.units.operands) for multiplier in self.kinds.used)
        smallest, largest = zip(*ranges, strict=True)
        extremes = max(smallest), min(largest)  # of all kinds, because another kind may compute a wider range
        return replace(self, weights=Bounds(len(self.weights), extremes, self.kinds.weights_nonzero))

    @cached_property
    def resources(self) -> Resources:
        return MultiplyCost(self).resources()

    def component(self) -> Multiply:
        return Multiply(self)


class Multiply(Arithmetic[MultiplyConfig]):
    """Component that computes a convolution's sums of products: weight memories, multipliers, adders, accumulators.

    Parameters
    ----------
    config : MultiplyConfig
        Configuration of the convolution.

    Members
    -------
    i : In(stream, always ready)
        Steps of the line buffer.
    o : Out(stream, always ready)
        ``Tm x Tp`` sums, ``[lane][pixel]``, once per fold. ``config.offsets`` are still to be added.
    writes : In
        Write port of each of ``config.stores``, by name; only if weights are loaded. Writes are between frames.

    Latency and throughput
        One step per cycle, starting in the second cycle after a reset. Sums are valid ``config.latency`` cycles after
        the last step of their fold. The component never stalls.

    Number range
        Sums are exact while every partial sum fits ``config.sum_bits``.
    """

    def __init__(self, config: MultiplyConfig):
        more = {"writes": In(writes_of(config.stores))} if config.loaded else {}
        super().__init__(config, **more)

    def elaborate(self, platform):
        m, config = Module(), self.config
        if config.kinds.has_chains:
            m.submodules.chains = chains = Chains(config.circuit)
            connect(m, multiply=wiring.flipped(self.i), chains=chains.i)
            connect(m, chains=chains.o, multiply=wiring.flipped(self.o))
            words = chains.words
        else:
            words = [
                Signal(width, name=f"weight_word_{position}")
                for position, width in enumerate(config.weight_words.rom_widths)
            ]
            ProductSums(config, self.i, self.o, words).add_to(m)
        for word, content in zip(words, self._elaborate_memories(m), strict=True):
            m.d.comb += word.eq(content)
        return m

    def _elaborate_memories(self, m: Module) -> Iterator[Value]:
        """Add the weight memories; yield, for each position in the multiplier chains, the weight word that is read.

        A word is delayed as the activation of its position. A word of block RAM or UltraRAM is one cycle earlier,
        because the memory reads the next step's word during the current step. The memory's output register therefore
        costs no cycle.
        """
        config = self.config
        positions = config.chains.positions
        if not any(config.units.weight_bits):
            yield from [Const(0, 0)] * positions
            return
        ahead = config.weights_in_blocks
        address = Signal(range(config.rom_depth), name="weight_address")
        enable: Value = Const(1)
        step: Value = self.i.valid
        if ahead:
            begun = Signal(name="has_begun")
            m.d.sync += begun.eq(1)
            step = enable = Signal(name="read_enable")
            m.d.comb += enable.eq(self.i.valid | ~begun)
        with m.If(step):
            m.d.sync += address.eq(Mux(address == config.rom_depth - 1, 0, address + 1))
        if config.loaded and ahead:
            address, enable = self._hold_address(m, address, step), Const(1)
        if config.weights_joined:
            joined = self._elaborate_memory(m, 0, address, enable)
            first = 0
            for position, width in enumerate(config.weight_words.rom_widths):
                cycles = position + 1 - config.pipeline.weight_registers(position)
                yield delayed(m, f"skewed_weight_word_{position}", joined[first : first + width], cycles)
                first += width
            return
        for position in range(positions):
            word = self._elaborate_memory(m, position, address, enable)
            if position < positions - 1:
                address = delayed(m, f"weight_address_{position}", address, 1, reset_less=False)
                if ahead and not config.loaded:
                    enable = delayed(m, f"read_enable_{position}", enable, 1, reset_less=False)
            yield word

    def _hold_address(self, m: Module, address: Signal, step: Value) -> Value:
        """Add a register that holds a weight memory's address in cycles without operands, and return the read address.

        This is for a memory in blocks of RAM that is loaded at run time. The word is read in every cycle, because the
        memory can be written between reads.
        """
        held, reading = Signal(len(address), name="held_address"), Signal(len(address), name="read_address")
        m.d.comb += reading.eq(Mux(step, address, held))
        m.d.sync += held.eq(reading)
        return reading

    def _elaborate_memory(self, m: Module, index: int, address: Value, enable: Value) -> Value:
        """Add the convolution's weight memory ``index``, and return its read data: one word of packed weights."""
        config = self.config
        depth, words = config.rom_depth, config.weight_words.contents[index]
        if config.loaded:
            store = config.stores[index]
            return add_store(m, store, words, getattr(self.writes, store.name), address, enable)
        m.submodules[config.weight_words.names[index]] = rom = memory.Memory(
            shape=config.weight_words.widths[index],
            depth=depth,
            init=words,
            attrs=config.memories.rom_style(depth, config.weight_memory),
        )
        if config.pipeline.reads_at_once:
            read = read_port(rom, domain="comb")
            m.d.comb += read.addr.eq(address)
            return read.data
        read = read_port(rom)
        m.d.comb += [read.addr.eq(address), read.en.eq(enable)]
        return read.data
