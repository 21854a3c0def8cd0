"""Classes for what the importer knows of an ONNX tensor: its state, feature map, layout, and unfinished layers.

- ``Floats``: a float input of the model, before its first QuantizeLinear;
- ``Foreign``: the output of an operator that can't be built;
- ``Integers``: a feature map, as the hardware computes it;
- ``Reals``: a feature map after DequantizeLinear, perhaps with pointwise operators applied. A table stores the float
  that each integer has become;
- ``AccumulatorState``: accumulators of a convolution, before their QuantizeLinear;
- ``Ended``: floats that the host computes from the accumulators of a last convolution;
- ``Pending``: another layer whose QuantizeLinear must be the next node;
- ``Joined``: the result of an operator on several feature maps, or of an LRN of one map, before its QuantizeLinear;
- ``Wide``: floats that the hardware holds in fixed point: a map whose small scale the importer chose;
- ``Expression``: the result of pointwise operators on such maps and others, before a layer computes it in fixed point.

`Map` and `PendingLayer` are feature maps and layers in the making. A `Value` combines all that is known of a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

from hwgen.network.maps import FeatureMap, IntegerType, Rule, Window
from hwgen.network.onnx.file import attribute
from hwgen.network.onnx.views import View
from hwgen.network.ops import Conv, Join, Op


@dataclass
class Map:
    """Feature map during ONNX import, whose zero point and scale can become known later than its shape.

    Parameters
    ----------
    channels, height, width : int
        Size of the map.
    type : IntegerType
        Type of the integers in the model.
    zero_point : int, optional
        Integer that stands for 0; ``None`` until it is known.
    scale : float32, optional
        Real value of one step; ``None`` until it is known.
    bounds : tuple of int, optional
        Lowest and highest integer, where the model clips them.
    origin : str
        Name of the model's input that the map is; empty if a layer computes the map.
    """

    channels: int
    height: int
    width: int
    type: IntegerType
    zero_point: int | None = None
    scale: np.float32 | None = None
    bounds: tuple[int, int] | None = None
    origin: str = ""

    def sized(self, channels: int, height: int, width: int) -> Map:
        """Return a feature `Map` of another size with the same integer type, zero point and scale."""
        return Map(channels, height, width, self.type, self.zero_point, self.scale)

    @property
    def reach(self) -> int:
        """Maximum distance of an integer of the map's type from the zero point."""
        return self.type.reach(self.zero_point or 0)

    def frozen(self) -> FeatureMap:
        """Return this map as a finished `FeatureMap`, which import can no longer change.

        If the model clips the integers, the map has the narrowest type that holds all of them and the zero point.
        """
        integer_type = self.type if self.bounds is None else self.type.narrowed(*self.bounds, self.zero_point or 0)
        return FeatureMap(
            channels=self.channels,
            height=self.height,
            width=self.width,
            type=integer_type,
            zero_point=self.zero_point or 0,
            scale=None if self.scale is None else float(self.scale),
        )


@dataclass
class PendingLayer:
    """Layer that import has not finished: a convolution, or a layer class ``kind`` with its ``parameters``.

    Its outputs are integers from ``low`` to ``high``.
    """

    name: str
    input: Map
    output: Map
    window: Window
    weights: np.ndarray | None = None
    bias: np.ndarray | None = None
    requantisation: Rule | None = None
    low: int = 0
    high: int = 0
    groups: int = 1
    kind: type[Op] = Conv
    parameters: dict[str, Any] = field(default_factory=dict)
    more: tuple[Map, ...] = ()
    """Tuple of the layer's further input maps, each a `Map`, after its first one."""
    fraction: int = 0
    """Number of fraction bits in the ``bias`` of an unfinished convolution; products have none."""
    sources: tuple[PendingLayer | None, ...] = (None,)
    """Tuple of the `PendingLayer` that computes each input map of this layer; ``None``: an input of the model."""
    fit: Callable[[PendingLayer, FeatureMap], None] | None = None
    """Function of this `PendingLayer` and its final input map that adapts the convolution's bias; run once."""

    def frozen(self, *sources: FeatureMap) -> Op:
        """Return this unfinished layer as a finished layer (`Op`) with the finished input maps ``sources``."""
        if self.kind is Conv:
            if self.fit is not None:
                self.fit(self, sources[0])
                self.fit = None
            return self.convolution(sources[0])
        more = {"more": sources[1:]} if issubclass(self.kind, Join) else {}
        output = self.output.frozen()
        if self.kind.keeps_type:
            output = replace(output, type=sources[0].type)
        parameters = self.kind.narrowed(self.parameters, self.input.type, sources[0].type)
        return self.kind(name=self.name, input=sources[0], output=output, window=self.window, **more, **parameters)

    def convolution(self, source: FeatureMap) -> Conv:
        """Return this unfinished layer as a finished convolution (`Conv`) with the finished input map ``source``."""
        assert self.weights is not None
        assert self.bias is not None
        return Conv(
            name=self.name,
            input=source,
            output=self.output.frozen(),
            window=self.window,
            weights=self.weights,
            bias=self.bias,
            requantisation=self.requantisation and replace(self.requantisation, low=self.low, high=self.high),
            groups=self.groups,
            fraction=self.fraction,
        )


def steps_before(sources: Iterable[PendingLayer | None]) -> Iterator[PendingLayer]:
    """Yield, once each, every unfinished `PendingLayer` in ``sources``, and all that they depend on.

    ``None`` stands for an input of the model.
    """
    waiting, seen = [*sources], set()
    while waiting:
        step = waiting.pop()
        if step is not None and id(step) not in seen:
            seen.add(id(step))
            waiting += step.sources
            yield step


@dataclass
class Floats:
    """State of a float input of the ONNX model before its QuantizeLinear; ``shape`` is channels, rows, columns."""

    shape: tuple[int, int, int]
    origin: str = ""
    """Name of the float input of the ONNX model."""


@dataclass
class Foreign(Floats):
    """State of an ONNX tensor that no layer can compute, such as the output of an operator that can't be built.

    Or the tensor does not hold numbers. Nothing is built from the tensor, but the nodes after it are still checked. If
    its shape is known (``begins``), a QuantizeLinear starts a new feature map from it, as from a float input of the
    model.
    """

    cause: str = ""
    """Text for messages: name of the operator that keeps layers from computing the tensor."""
    begins: bool = False
    """Whether a QuantizeLinear can start a new feature map from this tensor, which no layer computes."""
    real: bool = True
    """Whether the tensor holds real values, not indices, shapes or conditions.

    A layer could process values.
    """


@dataclass
class Integers:
    """State of an ONNX tensor that is a feature map of integers, as the hardware computes it."""


@dataclass(frozen=True, eq=False)
class Ended:
    """State of a tensor that the host computes from the accumulators of a last convolution, where hardware ends.

    ``reals``: affine function from accumulators to the floats, gain and offset per channel.
    """

    reals: Affine


@dataclass(frozen=True)
class Addend:
    """Constant that an ONNX Add adds to a map, quantised: an integer per channel, scale, zero point and type.

    ``first``: whether the constant is the operator's first operand and has the map's full size.
    """

    values: np.ndarray
    scale: np.float32
    zero: int
    type: IntegerType
    first: bool


@dataclass(frozen=True, eq=False)
class ConstantOperand:
    """Constant operand of an ONNX operator on a map: one number, or one per channel in the shape ``(channels, 1, 1)``.

    ``label``: scale and zero point, where the values are integers that a DequantizeLinear dequantises.
    """

    values: np.ndarray
    label: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def reals(self) -> np.ndarray:
        """Real values of the constant, float64, one per channel or one for all."""
        values = self.values.ravel().astype(np.float64)
        return values if self.label is None else (values - self.label[1].item()) * np.float64(self.label[0].item())


@dataclass(frozen=True, eq=False)
class Leaf:
    """Feature map in an expression over several maps, with the real value of each integer that it can hold.

    ``table``: float of each integer of the map's final type, float32 ``(channels or 1, integers)``; ``None`` for a map
    of fixed-point numbers.
    """

    value: Value
    table: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Applied:
    """Expression tree: an ONNX operator applied to maps, constants and other expressions.

    Parameters
    ----------
    node : NodeProto
        Node of the operator.
    operands : tuple
        One entry per input of the node. ``None`` is the map's values, an `Applied` another expression of the map, an
        `ConstantOperand` a constant, and an empty text an input that is left out. In an expression of several maps, a
        `Leaf` is one of them.
    """

    node: onnx.NodeProto
    operands: tuple[Operand, ...]

    def selected(self, index: np.ndarray) -> Applied:
        """Return an `Applied`: the expression restricted to the map's channels ``index``."""
        made: dict[int, Applied] = {}

        def taken(operand: Operand) -> Operand:
            if isinstance(operand, Applied):
                return made[id(operand)]
            if isinstance(operand, ConstantOperand) and operand.values.ndim:
                return replace(operand, values=operand.values[index])
            return operand

        for step in steps_in_order(self):
            made[id(step)] = Applied(step.node, tuple(map(taken, step.operands)))
        return made[id(self)]


Operand = Applied | ConstantOperand | Leaf | str | None
"""Type of an operand of an operator in an expression: `Applied`, `ConstantOperand`, `Leaf`, "" or ``None``."""


def steps_in_order(formula: Applied | None) -> Iterator[Applied]:
    """Yield each `Applied` operator of an expression once, after the operators whose results it reads."""
    done: set[int] = set()
    waiting = [] if formula is None else [formula]
    while waiting:
        step = waiting[-1]
        before = [operand for operand in step.operands if isinstance(operand, Applied) and id(operand) not in done]
        if before and id(step) not in done:
            waiting += before
            continue
        waiting.pop()
        if id(step) not in done:
            done.add(id(step))
            yield step


@dataclass
class Reals:
    """State of a dequantised tensor: map after a DequantizeLinear, with the pointwise operators applied since then."""

    node: onnx.NodeProto
    scale: np.float32
    """Scale (float32) of the DequantizeLinear of the map."""
    zero: int
    """Integer zero point of the DequantizeLinear of the map."""
    tensor: str
    """Name of the DequantizeLinear's output tensor, moved past operators that only rename axes, as ONNX Runtime does.
    """
    steps: list[onnx.NodeProto] = field(default_factory=list)
    """List of pointwise ONNX nodes applied since the DequantizeLinear, in order."""
    offset: np.ndarray | None = None
    """Constants that an ONNX Add has added to the dequantised values, float64 ``(channels,)``."""
    table: np.ndarray | None = None
    """Float that each integer in the map's range has become after ``steps``, float32 ``(channels or 1, integers)``."""
    addend: Addend | None = None
    """`Addend` of the last Add, if ONNX Runtime can fuse DequantizeLinear, Add and QuantizeLinear in integers."""
    bounds: list[tuple[float, float]] = field(default_factory=list)
    """List of bounds (low, high) of each Relu and Clip since the DequantizeLinear."""
    in_floats: bool = False
    """Whether ONNX Runtime computes a node since the DequantizeLinear, and so all later nodes, in float32."""
    padded: str = ""
    """Output name of a Pad with zeros that ONNX Runtime merges into the Conv after it; empty without such a Pad.

    ONNX Runtime computes no other node since the DequantizeLinear in floats.
    """
    formula: Applied | None = None
    """`Applied` expression that the pointwise nodes after the DequantizeLinear compute; ``None`` without any."""
    by_runtime: bool = False
    """Whether ONNX Runtime must be run for the float of each integer, because ``table`` does not hold it."""
    for_sums: bool = False
    """Whether ``steps`` contain arithmetic that can only be folded into a convolution directly after them."""
    pools: list[tuple[onnx.NodeProto, tuple[int, ...]]] = field(default_factory=list)
    """List of pairs (max pool node, its map axes) that must follow the table, as it changes the order of values."""
    arithmetic: Affine | None = None
    """`Affine` gain and offset per channel that equal ``steps``; ``None`` unless all are arithmetic."""

    def is_padded_by(self, node: onnx.NodeProto) -> bool:
        """Return whether ONNX Runtime merges the Pad before the Conv ``node`` into the Conv.

        No other node may read the Pad.
        """
        has_pads = attribute(node, "auto_pad", b"NOTSET") == b"NOTSET"
        return node.op_type == "Conv" and self.padded == node.input[0] and has_pads

    def selected(self, index: np.ndarray) -> Reals:
        """Return `Reals`: this state of a dequantised map restricted to the map's channels ``index``."""
        return replace(
            self,
            offset=None if self.offset is None else self.offset[index],
            table=self.table if self.table is None or len(self.table) == 1 else self.table[index],
            addend=None if self.addend is None else replace(self.addend, values=self.addend.values[index]),
            formula=None if self.formula is None else self.formula.selected(index),
            arithmetic=None if self.arithmetic is None else self.arithmetic.of_channels(index),
        )


@dataclass(frozen=True)
class Affine:
    """Linear function per channel, ``gain * value + offset``, both float64 ``(channels,)``."""

    gain: np.ndarray
    offset: np.ndarray

    def after(self, first: Affine) -> Affine:
        """Return the `Affine` function that applies ``first``, then this function."""
        return Affine(self.gain * first.gain, self.gain * first.offset + self.offset)

    def of_channels(self, index: np.ndarray) -> Affine:
        """Return the `Affine` function restricted to the channels ``index``."""
        return Affine(self.gain[index], self.offset[index])

    @property
    def uniform(self) -> bool:
        """Whether the affine function has the same gain and offset in all channels."""
        return bool((self.gain == self.gain[0]).all() and (self.offset == self.offset[0]).all())


@dataclass(frozen=True)
class PhaseChannels:
    """Output channel of a ConvTranspose for each channel of its convolution, and a function that appends later layers.

    ``channels``: for each channel of the sums, the channel of the map. ``make`` appends the layers after the
    convolution.
    """

    channels: np.ndarray
    make: Callable[[], None]


@dataclass
class AccumulatorState:
    """State of a convolution's sums (accumulators) that no QuantizeLinear has quantised yet.

    Their real unit is ``x_scale * w_scale``, one per output channel.
    """

    node: onnx.NodeProto
    window: Window
    weights: np.ndarray
    bias: np.ndarray
    x_scale: np.float32
    w_scale: np.ndarray
    w_type: IntegerType
    """`IntegerType` of the convolution's weights in the ONNX model."""
    size: tuple[int, int]
    low: float = -math.inf
    high: float = math.inf
    pools: list[tuple[onnx.NodeProto, tuple[int, ...]]] = field(default_factory=list)
    """List of max pools after the convolution, each with the map axes that its window covers."""
    groups: int = 1
    opened: PhaseChannels | None = None
    residue: np.ndarray = field(default_factory=lambda: np.zeros(1))
    """Rounding error of the integer ``bias``: the model's real bias minus ``bias``, float64 ``(M,)`` or ``(1,)``."""
    rounding: np.ndarray = field(default_factory=lambda: np.zeros(1))
    """Value of ``residue`` if ONNX Runtime rounds the bias to integers, float64 ``(M,)`` or ``(1,)``."""
    rounded: bool = True
    """Whether ONNX Runtime rounds the convolution's bias to steps of the accumulators.

    For a product of matrices without a bias: whether ONNX Runtime would round a bias that is added. ONNX Runtime rounds
    a bias of floats of the node's own under two conditions. DequantizeLinear directly precedes the node. QuantizeLinear
    follows it, with at most Relu and Clip, and then pools and operators on dimensions, in between.
    """
    added: bool = False
    """Whether an ONNX Add after the convolution is part of its bias."""
    moved: bool = False
    """Whether pools or operators on dimensions follow, past which ONNX Runtime moves a QuantizeLinear but no Relu."""
    affine: Affine | None = None
    """`Affine` gain and offset per channel that later nodes apply to the accumulators' real values, or ``None``."""
    factor: np.ndarray | None = None
    """Requantisation factors that `settled` computed, float32 ``(M,)``; ``None``: ``x_scale * w_scale / y_scale``."""
    fraction: int = 0
    """Number of fraction bits in the ``bias`` of these convolution sums; products have none."""
    first: Affine | None = None
    """`Affine` gain and offset from accumulators without ``bias`` to real outputs; ``None`` if not known.

    Its gain is the real value of one accumulator step.
    """
    formula: Applied | None = None
    """`Applied` expression of the convolution's real output that later nodes compute; ``None`` without any."""
    signs: np.ndarray | None = None
    """Sign (1, 0 or -1) that each output channel's weights of the model were multiplied by, int64 ``(M,)``."""
    averages: bool = False
    """Whether the sums are a mean that ONNX Runtime computes in floats, rounding each operator's result to float32."""
    chosen: tuple[float, float] | None = None
    """Pair of output values below and above the threshold, if Less and Where choose between constants."""

    @property
    def bounded(self) -> bool:
        """Whether a Relu or Clip limits the convolution's sums."""
        return (self.low, self.high) != (-math.inf, math.inf)

    @property
    def unit(self) -> np.ndarray:
        """Real value of one step of the convolution's accumulators, float64 ``(M,)``."""
        return np.broadcast_to(np.float64(self.x_scale) * self.w_scale.astype(np.float64), len(self.weights))

    def of_channels(self, values: np.ndarray) -> np.ndarray:
        """Return an array: the entry of ``values`` (one per output-map channel) for each accumulator channel."""
        return values if self.opened is None else values[self.opened.channels]


@dataclass
class Pending:
    """State of a tensor whose layer can be appended only once the next node, a QuantizeLinear, is known.

    ``make`` appends the layer, given the scale, zero point and type of its output. ``in_floats`` does so if ONNX
    Runtime computes the layer in float32; ``None`` if such a layer can't be built.
    """

    node: onnx.NodeProto
    make: Callable[[np.float32, int, IntegerType], None]
    in_floats: Callable[[np.float32, int, IntegerType], None] | None = None


@dataclass
class Joined:
    """State of a float result that waits for its QuantizeLinear: a join of several maps, an LRN or an average.

    A QuantizeLinear must follow, perhaps after Relu or Clip.
    """

    node: onnx.NodeProto
    make: Callable[[Joined, np.float32, int, IntegerType], None]
    """Function that appends the layer of the map-combining node, given its output's scale, zero point and type."""
    bounds: list[tuple[float, float]] = field(default_factory=list)
    """List of bounds (low, high) of each Relu and Clip after the node that combines maps."""
    in_floats: bool = False
    """Whether ONNX Runtime computes the combining node's result, or one of its maps, in float32.

    It is also true if ONNX Runtime computes a later operator so.
    """
    pools: list[tuple[onnx.NodeProto, tuple[int, ...]]] = field(default_factory=list)
    """List of max pool nodes after the node that combines maps, with their map axes.

    They can follow the quantisation, too, which keeps the order.
    """
    operands: Sequence[Value] = ()
    """Sequence of the `Value` of each dequantised map that the node combines; empty if fixed point can't replace the
    node."""
    sums: Callable[[], AccumulatorState] | None = None
    """Function that returns an average's floats as an `AccumulatorState`, for later operators; else ``None``."""


@dataclass
class Wide(Reals):
    """State of floats without a quantiser in the model, held in hardware as fixed-point integers of up to 32 bits.

    The scale is a power of two times the scale of a later QuantizeLinear. ``node`` is the node whose floats they are.
    """

    exact: bool = False
    """Whether the fixed-point numbers are exactly the model's floats."""


@dataclass(frozen=True, eq=False)
class Expression:
    """State of floats computed from several maps or fixed-point numbers, not yet stored by any layer.

    ``node`` gives the layer its name.
    """

    node: onnx.NodeProto
    formula: Applied | Leaf


State = Ended | Expression | Floats | Integers | Joined | Pending | Reals | AccumulatorState
"""Union of the states that an ONNX tensor can have during import."""


@dataclass(frozen=True)
class Value:
    """Knowledge of one ONNX tensor during import: its state, feature map, layout, and the layer of the map.

    Parameters
    ----------
    state : State
        State of the tensor.
    map : Map
        Last feature map that the tensor depends on.
    view : View
        Layout of the tensor on that map, or on the map that the state becomes when it is quantised.
    source : PendingLayer or None
        Layer that computes that map; ``None`` if the map is an input of the model.
    shared : bool
        Whether other nodes read that map, so that its layer must not change.
    """

    state: State
    map: Map
    view: View
    source: PendingLayer | None
    shared: bool
