"""What a value is on its way through an ONNX graph.

- ``Floats``: a float input of the model, before its first QuantizeLinear;
- ``Foreign``: what an operator gives that can't be built;
- ``Integers``: a feature map, in the state the hardware sees;
- ``Reals``: a feature map seen through DequantizeLinear, perhaps with pointwise operators applied: a table of
  what every integer has become;
- ``Sums``: the accumulators of a convolution that no QuantizeLinear has met yet;
- ``Pending``: another layer that needs the QuantizeLinear right behind it;
- ``Joined``: what several feature maps give together, or an LRN of one, which no QuantizeLinear has met yet.

`Map` and `Step` are the feature maps and layers that are made meanwhile. A `Value` is all that is known of a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

from hwgen.network.maps import FeatureMap, IntegerType, Window
from hwgen.network.onnx.file import attribute
from hwgen.network.onnx.views import View
from hwgen.network.ops import Conv, Join, Op
from hwgen.network.requantise import Requantisation


@dataclass
class Map:
    """A feature map whose zero point and scale may become known later than its shape.

    ``type`` is the model's; ``bounds`` are the least and the greatest integer where the model clips them.
    """

    channels: int
    height: int
    width: int
    type: IntegerType
    zero_point: int | None = None
    scale: np.float32 | None = None
    bounds: tuple[int, int] | None = None
    origin: str = ""
    """The model's input that it is, if no layer gives it."""

    def sized(self, channels: int, height: int, width: int) -> Map:
        """Return a map of another size whose integers are of the same type, zero point and scale."""
        return Map(channels, height, width, self.type, self.zero_point, self.scale)

    def frozen(self) -> FeatureMap:
        """With the narrowest type that holds all integers, the zero point included, where the model clips them."""
        kind = self.type if self.bounds is None else self.type.narrowed(*self.bounds, self.zero_point or 0)
        return FeatureMap(
            channels=self.channels,
            height=self.height,
            width=self.width,
            type=kind,
            zero_point=self.zero_point or 0,
            scale=None if self.scale is None else float(self.scale),
        )


@dataclass
class Step:
    """A layer in the making: a convolution, or with ``kind`` a layer without weights, with ``parameters`` of its own.

    Outputs lie between ``low`` and ``high``.
    """

    name: str
    input: Map
    output: Map
    window: Window
    weights: np.ndarray | None = None
    bias: np.ndarray | None = None
    requantisation: Requantisation | None = None
    low: int = 0
    high: int = 0
    groups: int = 1
    kind: type[Op] = Conv
    parameters: dict[str, Any] = field(default_factory=dict)
    more: tuple[Map, ...] = ()
    """Its inputs after the first."""
    fraction: int = 0
    """Bits of the bias below a step of the products."""
    sources: tuple[Step | None, ...] = (None,)
    """What makes its inputs; ``None`` is the model's input."""

    def frozen(self, *sources: FeatureMap) -> Op:
        """The layer, behind maps that are known by now."""
        if self.kind is Conv:
            return self.convolution(sources[0])
        more = {"more": sources[1:]} if issubclass(self.kind, Join) else {}
        output = self.output.frozen()
        if self.kind.keeps_type:
            output = replace(output, type=sources[0].type)
        parameters = self.kind.narrowed(self.parameters, self.input.type, sources[0].type)
        return self.kind(name=self.name, input=sources[0], output=output, window=self.window, **more, **parameters)

    def convolution(self, source: FeatureMap) -> Conv:
        """The same of a step that has weights."""
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


def steps_before(sources: Iterable[Step | None]) -> Iterator[Step]:
    """Yield each layer that some layers depend on, once, these layers included; ``None`` is the model's input."""
    waiting, seen = [*sources], set()
    while waiting:
        step = waiting.pop()
        if step is not None and id(step) not in seen:
            seen.add(id(step))
            waiting += step.sources
            yield step


@dataclass
class Floats:
    """A float input of the model, before its first QuantizeLinear; ``shape`` is channels, rows, columns."""

    shape: tuple[int, int, int]
    origin: str = ""
    """Its name."""


@dataclass
class Foreign(Floats):
    """What no layer gives: an operator that can't be built does, or it is no tensor of floats or integers at all.

    Nothing is built of it, but what can't be built behind it is still looked for. As from the model's float input, a
    QuantizeLinear begins a new feature map from it, if its shape is known (``begins``).
    """

    cause: str = ""
    """The operator that can't be built, for people."""
    begins: bool = False
    real: bool = True
    """Whether it holds what a layer may work on; otherwise it holds indices, shapes or conditions."""


@dataclass
class Integers:
    """A feature map, in the state that the hardware sees."""


@dataclass(frozen=True)
class Addend:
    """A quantised constant that Add adds to a map: integers, one a channel, their scale, zero point and type.

    ``first``: whether the operator's first operand is this one, and of the map's size, so that nothing spreads it.
    """

    values: np.ndarray
    scale: np.float32
    zero: int
    type: IntegerType
    first: bool


@dataclass(frozen=True, eq=False)
class Operand:
    """A constant that goes with a map: a number, or one a channel, of the shape ``(channels, 1, 1)``.

    ``label``: scale and zero point, where the values are integers behind a DequantizeLinear.
    """

    values: np.ndarray
    label: tuple[np.ndarray, np.ndarray] | None = None


@dataclass(frozen=True, eq=False)
class Applied:
    """An operator applied to dequantised values: an expression of one map.

    Parameters
    ----------
    node : NodeProto
    operands : tuple
        For each input of the node what it is: the map's values (``None``), another expression of them, a constant, or
        nothing, an empty text.
    """

    node: onnx.NodeProto
    operands: tuple[Applied | Operand | str | None, ...]

    def selected(self, index: np.ndarray) -> Applied:
        """The same of channels ``index`` of the map."""
        made: dict[int, Applied] = {}

        def taken(operand: Applied | Operand | str | None) -> Applied | Operand | str | None:
            if isinstance(operand, Applied):
                return made[id(operand)]
            if isinstance(operand, Operand) and operand.values.ndim:
                return replace(operand, values=operand.values[index])
            return operand

        for step in steps_in_order(self):
            made[id(step)] = Applied(step.node, tuple(map(taken, step.operands)))
        return made[id(self)]


def steps_in_order(formula: Applied | None) -> Iterator[Applied]:
    """All steps of an expression, each once, behind what it takes."""
    done: set[int] = set()
    waiting = [] if formula is None else [formula]
    while waiting:
        step = waiting[-1]
        before = [each for each in step.operands if isinstance(each, Applied) and id(each) not in done]
        if before and id(step) not in done:
            waiting += before
            continue
        waiting.pop()
        if id(step) not in done:
            done.add(id(step))
            yield step


@dataclass
class Reals:
    """``scale`` and ``zero`` of the DequantizeLinear ``node``, and the pointwise operators since."""

    node: onnx.NodeProto
    scale: np.float32
    zero: int
    tensor: str
    """What counts as that DequantizeLinear's output: ONNX Runtime moves it past operators that only rename axes."""
    steps: list[onnx.NodeProto] = field(default_factory=list)
    offset: np.ndarray | None = None
    """What Add has added, float64 (channels,)."""
    table: np.ndarray | None = None
    """float32 (channels or 1, integers of the map's range)."""
    addend: Addend | None = None
    """What Add has added, where ONNX Runtime may have one integer kernel for the three operators."""
    bounds: list[tuple[float, float]] = field(default_factory=list)
    """Of the Relu and Clip behind it."""
    in_floats: bool = False
    """Whether an operator stands behind it that ONNX Runtime leaves in float32, so that what follows is, too."""
    padded: str = ""
    """The output of a Pad of zeros that alone is in floats: ONNX Runtime makes it part of a Conv right behind it."""
    formula: Applied | None = None
    """The last of ``steps``, with what it takes."""
    by_runtime: bool = False
    """Whether ONNX Runtime has to say what has become of the integers: ``table`` doesn't."""
    for_sums: bool = False
    """Whether one of ``steps`` is arithmetic that only a convolution right behind them takes in."""
    pools: list[tuple[onnx.NodeProto, tuple[int, ...]]] = field(default_factory=list)
    """Max pools over values whose order is not that of the integers, as of `Sums`: they come behind the table."""
    arithmetic: Affine | None = None
    """What ``steps`` do, if all are arithmetic with constants, in the order of the map's channels."""

    def is_padded_by(self, node: onnx.NodeProto) -> bool:
        """Whether ONNX Runtime makes a Pad, which no other node takes, part of ``node``."""
        alone = attribute(node, "auto_pad", b"NOTSET") == b"NOTSET"
        return node.op_type == "Conv" and self.padded == node.input[0] and alone

    def selected(self, index: np.ndarray) -> Reals:
        """The same of channels ``index`` of the map."""
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
    """``gain * value + offset``, float64 (channels,) each."""

    gain: np.ndarray
    offset: np.ndarray

    def behind(self, first: Affine) -> Affine:
        """First that, then this."""
        return Affine(self.gain * first.gain, self.gain * first.offset + self.offset)

    def of_channels(self, index: np.ndarray) -> Affine:
        """The same of channels ``index``."""
        return Affine(self.gain[index], self.offset[index])

    @property
    def uniform(self) -> bool:
        """Whether all channels have the same."""
        return bool((self.gain == self.gain[0]).all() and (self.offset == self.offset[0]).all())


@dataclass(frozen=True)
class Opened:
    """What a transposed convolution makes of the sums of its phases.

    ``channels``: for each channel of the sums that of the map that is made. ``make`` emits the layers behind the
    convolution.
    """

    channels: np.ndarray
    make: Callable[[], None]


@dataclass
class Sums:
    """Accumulators of a convolution, in units of ``scale`` (float32, one an output channel)."""

    node: onnx.NodeProto
    window: Window
    weights: np.ndarray
    bias: np.ndarray
    x_scale: np.float32
    w_scale: np.ndarray
    w_type: IntegerType
    """Of the weights in the file."""
    size: tuple[int, int]
    low: float = -math.inf
    high: float = math.inf
    pools: list[tuple[onnx.NodeProto, tuple[int, ...]]] = field(default_factory=list)
    """Max pools behind it, each with the axes of the map along which it goes."""
    groups: int = 1
    opened: Opened | None = None
    residue: np.ndarray = field(default_factory=lambda: np.zeros(1))
    """By how much the bias in the model, a real number, exceeds ``bias``, float64 (M,) or (1,)."""
    rounded: bool = True
    """Whether ONNX Runtime rounds the model's bias to steps of the accumulators; of a product of matrices without one,
    whether it would round one that is added.

    It does that where a bias of floats is the node's own, DequantizeLinear stands right in front and QuantizeLinear
    right behind, perhaps with Relu and Clip between them, and then pools and operators of other dimensions.
    """
    added: bool = False
    """Whether an Add behind the node is part of the bias."""
    moved: bool = False
    """Whether such pools and operators stand behind it, past which ONNX Runtime moves a QuantizeLinear but no Relu."""
    affine: Affine | None = None
    """What is done to the real values that they stand for."""
    factor: np.ndarray | None = None
    """float32 (M,), if it is known without ``x_scale`` and ``w_scale``."""
    fraction: int = 0
    """Bits of ``bias`` below a step of the products."""

    @property
    def bounded(self) -> bool:
        """Whether a Relu or Clip stands behind them."""
        return (self.low, self.high) != (-math.inf, math.inf)

    @property
    def unit(self) -> np.ndarray:
        """The step of the accumulators, float64 (M,)."""
        return np.broadcast_to(np.float64(self.x_scale) * self.w_scale.astype(np.float64), len(self.weights))

    def of_channels(self, values: np.ndarray) -> np.ndarray:
        """For each accumulator's channel what ``values`` have for the channel that it is of."""
        return values if self.opened is None else values[self.opened.channels]


@dataclass
class Pending:
    """A layer between DequantizeLinear and QuantizeLinear, which has to come right behind it.

    ``make`` adds the layer, for the scale, the zero point and the type of its output.
    """

    node: onnx.NodeProto
    make: Callable[[np.float32, int, IntegerType], None]


@dataclass
class Joined:
    """What a node makes of dequantised maps, mostly of several, perhaps with Relu or Clip behind it."""

    node: onnx.NodeProto
    make: Callable[[Joined, np.float32, int, IntegerType], None]
    """Adds the layer, for the scale, the zero point and the type of its output."""
    bounds: list[tuple[float, float]] = field(default_factory=list)
    in_floats: bool = False
    """As that of `Reals`, or because one of the maps was in floats."""
    pools: list[tuple[onnx.NodeProto, tuple[int, ...]]] = field(default_factory=list)
    """Max pools behind it, as of `Sums`: quantising keeps the order, so they may as well come behind that."""


State = Floats | Integers | Joined | Pending | Reals | Sums


@dataclass(frozen=True)
class Value:
    """All that is known of a tensor.

    Parameters
    ----------
    state : State
    map : Map
        The last feature map.
    view : View
        How it lies on that map, or on the map that its state will become.
    source : Step or None
        The layer that made that map; ``None``: it is the model's input.
    shared : bool
        Whether others read that map: then what makes it must stay as it is.
    """

    state: State
    map: Map
    view: View
    source: Step | None
    shared: bool
