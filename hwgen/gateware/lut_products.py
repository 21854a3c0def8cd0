"""Component that computes dot products in LUTs, with a model for simulators that simply multiplies and adds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from amaranth import Const, Module, Shape, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from hwgen.gateware.circuit_forms import Modelled
from hwgen.gateware.lookup import delayed
from hwgen.gateware.multipliers import DotProducts, LutMultiplier
from hwgen.gateware.multipliers.lut_multiplier import DotOperands


@dataclass(frozen=True)
class LutProductsConfig:
    """Configuration of a component that computes dot products of activations and weights in LUTs, without DSP slices.

    Parameters
    ----------
    multiplier : LutMultiplier
        Multiplier that computes the products.
    dots : DotProducts
        Terms, widths and constants of the dot products.
    """

    multiplier: LutMultiplier
    dots: DotProducts

    @property
    def latency(self) -> int:
        """Cycles from the first activations of the dot products, which arrive over several cycles, to the sums."""
        return self.multiplier.latency(self.dots)

    @property
    def positions(self) -> tuple[int, ...]:
        """Tuple of positions, one per term of the dot products: cycles from the first operands' arrival to its own."""
        return tuple(position for position, terms in enumerate(self.dots.terms) for _ in range(terms))

    @property
    def step_shape(self) -> Shape | None:
        """Amaranth shape of the input ``step``, index into a weight's constants; ``None`` unless there are several."""
        if self.dots.constants is None:
            return None
        steps = len(self.dots.constants[0][0])
        return Shape.cast(range(steps)) if steps > 1 else None

    @cached_property
    def digest(self) -> str:
        """Hash of the configuration, eight hexadecimal digits, which makes the module's name unique."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:8]

    @property
    def module_name(self) -> str:
        """Name of the component's Verilog module, unique to this configuration."""
        return f"{self.multiplier.name}_products_{self.dots.channels}x{len(self.positions)}_{self.digest}"

    def component(self) -> LutProducts:
        return LutProducts(self)

    def add_to(
        self,
        m: Module,
        activations: Sequence[Value],
        weights: Sequence[Sequence[Value]],
        step: Value,
        name: str,
    ) -> list[Signal]:
        """Add the component to module ``m`` as submodule ``name``; return a list of sums (`Signal`), one per channel.

        Parameters
        ----------
        m : Module
            Module that gets the submodule.
        activations : sequence of Value
            Operands by term.
        weights : sequence of sequence of Value
            Weights by output channel and term; empty if the weights are constants.
        step : Value
            Index of the step whose operands of the first position arrive in this cycle.
        name : str
            Name of the submodule.
        """
        m.submodules[name] = products = self.component()
        m.d.comb += [port.eq(value) for port, value in zip(products.operands, activations, strict=True)]
        for ports, values in zip(products.weights, weights, strict=True):
            m.d.comb += [port.eq(value) for port, value in zip(ports, values, strict=True)]
        if self.step_shape is not None:
            m.d.comb += products.step.eq(step)
        return products.sums


class LutProducts(Modelled[LutProductsConfig]):
    """Component that computes dot products in LUTs, one per output channel; weights are inputs or built-in constants.

    Parameters
    ----------
    config : LutProductsConfig

    Members
    -------
    operand_0, operand_1, .. : In
        Activations by term.
    weight_0_0, weight_0_1, .. : In
        Weights by output channel and term; only if the multiplier stores weights.
    step : In
        Index of the step whose operands of the first position arrive; only if constants depend on it.
    sum_0, sum_1, .. : Out(signed)
        Sums by output channel, ``config.latency`` cycles after the operands of the first position.
    """

    step: Signal

    def __init__(self, config: LutProductsConfig):
        dots, terms = config.dots, range(len(config.positions))
        ports = {f"operand_{term}": In(dots.operand) for term in terms}
        if config.multiplier.stores_weights:
            shape = config.multiplier.weight_shape(dots)
            ports |= {f"weight_{channel}_{term}": In(shape) for channel in range(dots.channels) for term in terms}
        if config.step_shape is not None:
            ports["step"] = In(config.step_shape)
        ports |= {f"sum_{channel}": Out(signed(bits)) for channel, bits in enumerate(dots.sum_bits)}
        super().__init__(config, ports)

    @property
    def module_name(self) -> str:
        return self.config.module_name

    @property
    def operands(self) -> list[Signal]:
        """List of input signals of the activations, shared by all output channels: one per dot-product term."""
        return [getattr(self, f"operand_{term}") for term in range(len(self.config.positions))]

    @property
    def weights(self) -> list[list[Signal]]:
        """List of input signals of the weights, by output channel and term; empty if the weights are constants."""
        if not self.config.multiplier.stores_weights:
            return []
        terms = range(len(self.config.positions))
        return [[getattr(self, f"weight_{channel}_{term}") for term in terms] for channel in self._channels]

    @property
    def sums(self) -> list[Signal]:
        """List of output signals of the dot products' sums, one per output channel."""
        return [getattr(self, f"sum_{channel}") for channel in self._channels]

    @property
    def _channels(self) -> range:
        return range(self.config.dots.channels)

    def circuit(self) -> Module:
        m, config = Module(), self.config
        operands = DotOperands(
            self._by_position(self.operands),
            [self._by_position(channel) for channel in self.weights],
            [f"channel_{channel}" for channel in self._channels],
            Const(0) if config.step_shape is None else self.step,
        )
        sums = config.multiplier.sums(m, config.dots, operands)
        m.d.comb += [port.eq(total) for port, total in zip(self.sums, sums, strict=True)]
        return m

    def _by_position(self, values: Sequence[Value]) -> list[list[Value]]:
        """Return ``values``, one per term of a dot product, as a list per position (cycle of arrival)."""
        remaining = iter(values)
        return [[next(remaining) for _ in range(terms)] for terms in self.config.dots.terms]

    # Model

    def model(self) -> Module:
        m, dots = Module(), self.config.dots
        bits = max(dots.sum_bits)
        operands = [_resized(m, f"extended_{index}", operand, bits) for index, operand in enumerate(self.operands)]
        factors = self._factors(m, bits)
        for channel, port in enumerate(self.sums):
            bias = dots.bias[channel] if dots.bias else 0
            total: Value = Const(bias & (1 << port.shape().width) - 1, port.shape().width)
            terms = list(zip(self.config.positions, operands, factors[channel], strict=True))
            last = max((position for position, _, factor in terms if factor is not None), default=-1)
            for position in range(last + 1):
                products = [
                    (operand * factor)[: len(total)]
                    for at, operand, factor in terms
                    if at == position and factor is not None
                ]
                addends = [total, *products] if position or bias or not products else products
                total = delayed(m, f"sum_{channel}_position_{position}", _wrapped_sum(addends), 1)
            if last >= 0:
                total = delayed(m, f"sum_{channel}_delayed", total, self.config.latency - 1 - last)
            m.d.comb += port.eq(total)
        return m

    def _factors(self, m: Module, bits: int) -> list[list[Value | None]]:
        """Return the model's weights, as a list per output channel, ``bits`` bits each; ``None`` for a constant 0."""
        multiplier, constants = self.config.multiplier, self.config.dots.constants
        if constants is None:
            return [
                [
                    _resized(m, f"factor_{channel}_{term}", multiplier.factor(weight), bits)
                    for term, weight in enumerate(weights)
                ]
                for channel, weights in enumerate(self.weights)
            ]
        if self.config.step_shape is None:
            mask = (1 << bits) - 1
            return [[Const(weight & mask, bits) if weight else None for (weight,) in channel] for channel in constants]
        return self._chosen_factors(m, np.array(constants), bits)

    def _chosen_factors(self, m: Module, constants: np.ndarray, bits: int) -> list[list[Value | None]]:
        """Add, per position, a table from the input ``step`` to constant weights; return weights per output channel.

        ``constants`` are ordered by output channel, term and step, and the weights by output channel and term.
        """
        dots, step = self.config.dots, self.step
        factors: list[list[Value | None]] = [[] for _ in self._channels]
        for position in range(len(dots.terms)):
            terms = [term for term, at in enumerate(self.config.positions) if at == position]
            table = constants[:, terms]
            word = Signal(table[..., 0].size * dots.weight_bits, name=f"weights_{position}")
            with m.Switch(step):
                for index in range(table.shape[2]):
                    with m.Case(index):
                        m.d.comb += word.eq(_packed(table[..., index].ravel().tolist(), dots.weight_bits))
            weights = iter(_fields(word, dots.weight_bits))
            for channel, own in zip(self._channels, table, strict=True):
                for term, steps in zip(terms, own, strict=True):
                    weight = _resized(m, f"factor_{channel}_{term}", next(weights).as_signed(), bits)
                    factors[channel].append(weight if steps.any() else None)
            step = delayed(m, f"step_{position + 1}", step, 1)
        return factors


def _wrapped_sum(values: Sequence[Value]) -> Value:
    """Return the sum of values of equal widths, wrapped at this width, by a balanced tree of additions."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return (_wrapped_sum(values[:half]) + _wrapped_sum(values[half:]))[: len(values[0])]


def _packed(values: Sequence[int], bits: int) -> int:
    """Return an integer made of the ``values``, each ``bits`` bits wide, the first one lowest."""
    mask = (1 << bits) - 1
    return sum((value & mask) << index * bits for index, value in enumerate(values))


def _fields(word: Signal, bits: int) -> Iterator[Value]:
    """Yield the adjacent fields of ``bits`` bits of a ``word``, the lowest field first."""
    for first in range(0, len(word), bits):
        yield word[first : first + bits]


def _resized(m: Module, name: str, value: Value, bits: int) -> Signal:
    """Add and return a signal with ``value`` extended or cut to ``bits`` bits, for sums modulo ``2**bits``."""
    extended = Signal(bits, name=name)
    m.d.comb += extended.eq(value)
    return extended
