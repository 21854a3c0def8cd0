"""The 3-D convolution: chains of multiply-adds, a tree that joins them, accumulators over the folds.

A chain is written as ``p[i] <= p[i-1] + m[i]; m[i] <= a[i] * w[i]`` with operands skewed by one cycle a position:
synthesis maps it to a cascade of DSP slices joined by PCIN and PCOUT, without an adder in fabric.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from functools import cached_property

from amaranth import Module, Mux, Shape, Signal, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.lookup import delayed, rom_attributes


@dataclass(frozen=True, kw_only=True)
class MultiplyConfig:
    """``Tk x Tn`` products for each of ``Tm`` output channels in every step, accumulated over a fold.

    Parameters
    ----------
    window : LineBufferConfig
        Where the steps come from.
    outputs : int
        ``M``: output channels of the layer.
    lanes : int
        ``Tm``: output channels at once.
    weights : array of int
        ``(M, C, Kh, Kw)``, flat in row-major order.
    weight_bits : int
        Width of a weight, two's complement.
    sum_bits : int
        Width of the accumulators; the caller proves that no partial sum overflows it.
    chain : int
        Slices in a chain at most.

    Raises
    ------
    ConfigError
        If a number is not positive or the weights don't fit the geometry or their width.
    """

    window: LineBufferConfig
    outputs: int
    lanes: int
    weights: array = field(repr=False, compare=False)
    weight_bits: int
    sum_bits: int
    chain: int = 16

    def __post_init__(self) -> None:
        for name in ("outputs", "lanes", "weight_bits", "sum_bits", "chain"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be a positive integer, not {getattr(self, name)!r}")
        if self.lanes > self.outputs:
            raise ConfigError(f"lanes must be at most the {self.outputs} output channels, not {self.lanes!r}")
        size = self.outputs * self.window.input.channels * self.window.kernel[0] * self.window.kernel[1]
        if len(self.weights) != size:
            raise ConfigError(f"weights must be {size} integers, not {len(self.weights)}")
        limit = 1 << (self.weight_bits - 1)
        if not (-limit <= min(self.weights) and max(self.weights) < limit):
            raise ConfigError(
                f"weights must fit {self.weight_bits} bits, not {min(self.weights)!r} .. {max(self.weights)!r}"
            )
        if self.window.output_folds != self.folds:
            raise ConfigError(f"window.output_folds must be {self.folds}, not {self.window.output_folds!r}")

    @property
    def folds(self) -> int:
        """Output folds: ``ceil(M / Tm)``."""
        return -(-self.outputs // self.lanes)

    @property
    def products(self) -> int:
        """Products of one output channel in a step: ``Tk * Tn``."""
        return self.window.taps * self.window.input.lanes

    @property
    def multipliers(self) -> int:
        return self.products * self.lanes

    @property
    def chains(self) -> int:
        """Chains of one output channel."""
        return -(-self.products // self.chain)

    @property
    def positions(self) -> int:
        """Slices in the longest chain."""
        return -(-self.products // self.chains)

    @property
    def tree_levels(self) -> int:
        return (self.chains - 1).bit_length()

    @property
    def accumulates(self) -> bool:
        return self.window.steps > 1

    @property
    def latency(self) -> int:
        """Cycles from the last step of a fold to its sums."""
        return 2 + self.positions + self.tree_levels + self.accumulates

    @property
    def rom_depth(self) -> int:
        """Words of each position's weight memory: steps of one window."""
        return self.window.window_cycles

    @property
    def rom_widths(self) -> tuple[int, ...]:
        """Width of each position's weight memory in bits."""
        return tuple(
            self.weight_bits
            * self.lanes
            * sum(self.lane_of(chain, position) is not None for chain in range(self.chains))
            for position in range(self.positions)
        )

    @property
    def memory_bits(self) -> int:
        return self.rom_depth * self.multipliers * self.weight_bits

    @property
    def operand(self) -> Shape:
        """Shape of a multiplier's activation operand."""
        return self.window.input.shape

    def lane_of(self, chain: int, position: int) -> int | None:
        """The product (tap, then channel) at a chain's position; short chains lack their first positions."""
        missing = self.positions * self.chains - self.products
        if position == 0:
            return chain - missing if chain >= missing else None
        return (self.chains - missing) + (position - 1) * self.chains + chain

    @cached_property
    def contents(self) -> tuple[tuple[int, ...], ...]:
        """The weight memories, by position: words in the order of the steps.

        A word holds the weights of all output lanes, lowest first, and of all chains of each; a chain that lacks the
        position has none.
        """
        window = self.window
        kernel_height, kernel_width = window.kernel
        patch_taps = [(i, j) for i in range(window.patch[0]) for j in range(window.patch[1])]
        tn, channels, taps = window.input.lanes, window.input.channels, kernel_height * kernel_width
        mask = (1 << self.weight_bits) - 1
        lanes = [
            [lane for chain in range(self.chains) if (lane := self.lane_of(chain, position)) is not None]
            for position in range(self.positions)
        ]
        words: list[list[int]] = [[] for _ in range(self.positions)]
        for fold in range(self.folds):
            outputs = range(fold * self.lanes, (fold + 1) * self.lanes)
            for top, left in window.patches:
                offsets = [(top + i) * kernel_width + left + j for i, j in patch_taps]
                for first in range(0, channels, tn):
                    for position in range(self.positions):
                        word = shift = 0
                        for output in outputs:
                            for lane in lanes[position]:
                                tap, channel = divmod(lane, tn)
                                if output < self.outputs and first + channel < channels:
                                    index = (output * channels + first + channel) * taps + offsets[tap]
                                    word |= (self.weights[index] & mask) << shift
                                shift += self.weight_bits
                        words[position].append(word)
        return tuple(tuple(column) for column in words)


class Multiply(wiring.Component):
    """Weights, multipliers, chains, trees and accumulators of one convolution.

    Parameters
    ----------
    config : MultiplyConfig

    Members
    -------
    i : In(stream, always ready)
        Steps, as the line buffer walks them.
    o : Out(stream, always ready)
        ``Tm`` sums, once a fold.

    Latency and throughput
        A step a cycle; sums ``config.latency`` cycles after the fold's last step. Never stalls.

    Number range
        Exact, while every partial sum fits ``config.sum_bits``.
    """

    def __init__(self, config: MultiplyConfig):
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(config.window.step_layout, always_ready=True)),
                "o": Out(stream.Signature(data.ArrayLayout(signed(config.sum_bits), config.lanes), always_ready=True)),
            }
        )

    @property
    def config(self) -> MultiplyConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        config = self.config
        activations = self._elaborate_activations(m)
        weights = self._elaborate_weights(m)
        to_sum = 1 + config.positions + config.tree_levels  # from a step to the input of the accumulator
        valid = delayed(m, "valid", self.i.valid, to_sum, reset_less=False)
        first = delayed(m, "first", self.i.payload.first, to_sum)
        last = delayed(m, "last", self.i.payload.last, to_sum)
        done = Signal()
        m.d.sync += done.eq(valid & last)
        if config.accumulates:
            first_next = Signal(reset_less=True)
            done_next = Signal()
            m.d.sync += [first_next.eq(first), done_next.eq(done)]
            m.d.comb += self.o.valid.eq(done_next)
        else:
            m.d.comb += self.o.valid.eq(done)
        for lane in range(config.lanes):
            sums = []
            for chain in range(config.chains):
                sums.append(self._elaborate_chain(m, activations, weights, lane, chain))
            total = self._elaborate_tree(m, sums, f"lane_{lane}")
            if config.accumulates:
                accumulator = Signal(signed(config.sum_bits), name=f"lane_{lane}_accumulator", reset_less=True)
                m.d.sync += accumulator.eq(Mux(first_next, 0, accumulator) + total)
                total = accumulator
            m.d.comb += self.o.payload[lane].eq(total)
        return m

    def _elaborate_activations(self, m: Module) -> dict[tuple[int, int], Signal]:
        """Operand of every (chain, position), skewed; shared by all output lanes."""
        config = self.config
        operands = {}
        for position in range(config.positions):
            for chain in range(config.chains):
                lane = config.lane_of(chain, position)
                if lane is None:
                    continue
                tap, channel = divmod(lane, config.window.input.lanes)
                value = Signal(config.operand, name=f"activation_{tap}_{channel}")
                m.d.comb += value.eq(self.i.payload.taps[tap][channel])
                operands[chain, position] = delayed(m, value.name, value, position + 1)
        return operands

    def _elaborate_weights(self, m: Module) -> dict[tuple[int, int, int], Signal]:
        """Weight of every (output lane, chain, position), as skewed as the activation."""
        config = self.config
        address = Signal(range(config.rom_depth))
        with m.If(self.i.valid):
            m.d.sync += address.eq(Mux(address == config.rom_depth - 1, 0, address + 1))
        weights = {}
        position_address = address
        for position in range(config.positions):
            chains = [c for c in range(config.chains) if config.lane_of(c, position) is not None]
            layout = data.ArrayLayout(signed(config.weight_bits), config.lanes * len(chains))
            rom = memory.Memory(
                shape=layout.size,
                depth=config.rom_depth,
                init=config.contents[position],
                attrs=rom_attributes(config.rom_depth),
            )
            m.submodules[f"weights_{position}"] = rom
            read = rom.read_port()
            m.d.comb += read.addr.eq(position_address)
            if position < config.positions - 1:
                position_address = delayed(m, f"address_{position}", position_address, 1, reset_less=False)
            word = Signal(layout, name=f"weight_{position}")
            m.d.comb += word.as_value().eq(read.data)
            for lane in range(config.lanes):
                for number, chain in enumerate(chains):
                    weights[lane, chain, position] = word[lane * len(chains) + number]
        return weights

    def _elaborate_chain(self, m: Module, activations, weights, lane: int, chain: int) -> Signal:
        config = self.config
        product_bits = config.weight_bits + config.operand.width + (not config.operand.signed)
        total = None
        terms = 0
        for position in range(config.positions):
            if (chain, position) not in activations:
                continue
            terms += 1
            name = f"lane_{lane}_chain_{chain}_{position}"
            product = Signal(signed(product_bits), name=f"{name}_product", reset_less=True)
            width = min(product_bits + (terms - 1).bit_length(), max(config.sum_bits, product_bits))
            partial = Signal(signed(width), name=f"{name}_sum", reset_less=True)
            m.d.sync += product.eq(activations[chain, position] * weights[lane, chain, position])
            m.d.sync += partial.eq(product if total is None else total + product)
            total = partial
        assert total is not None
        return total

    def _elaborate_tree(self, m: Module, sums: list[Signal], name: str) -> Signal:
        """A registered adder tree; every level takes one cycle for all."""
        level = 0
        while len(sums) > 1:
            following = []
            for number in range(0, len(sums), 2):
                pair = sums[number : number + 2]
                width = min(max(len(value) for value in pair) + len(pair) - 1, self.config.sum_bits)
                total = Signal(signed(width), name=f"{name}_tree_{level}_{number // 2}", reset_less=True)
                m.d.sync += total.eq(pair[0] + pair[1] if len(pair) == 2 else pair[0])
                following.append(total)
            sums, level = following, level + 1
        return sums[0]
