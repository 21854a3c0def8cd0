"""Builder that turns the operators of a quantised ONNX graph into integer layers, one node after the other.

QDQ and QOperator models meet in the same two places. A convolution is emitted when its accumulators are quantised. A
table of integers becomes the output bounds of the convolution before it. If scales differ, the table becomes a 1x1
convolution whose outputs were all compared with the table. Any other table becomes a lookup.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from hwgen.errors import ConfigError
from hwgen.network.float32 import quantize_linear
from hwgen.network.floats import FloatLayer
from hwgen.network.maps import INT32, MAX_SIDE, MAX_WEIGHTS, UINT8, IntegerType, Requantisation, Window, check_window
from hwgen.network.onnx.constants import TYPES, Bias, Constants, Quantisation, QuantisedWeights
from hwgen.network.onnx.file import attribute, by, named, title
from hwgen.network.onnx.function_tables import Function
from hwgen.network.onnx.ledger import RefusalError
from hwgen.network.onnx.levels import bias_fitter
from hwgen.network.onnx.runtime import Kernels
from hwgen.network.onnx.values import (
    AccumulatorState,
    Addend,
    Integers,
    Joined,
    Map,
    Pending,
    PendingLayer,
    Reals,
    State,
    Value,
)
from hwgen.network.onnx.views import COLUMNS, View
from hwgen.network.onnx.windows import WHOLE_MAPS, padding_mode, window_of
from hwgen.network.ops import Join, Lookup, MaxPool, Op, Pad, Select
from hwgen.network.ops.join import MAX_BITS
from hwgen.network.options import ModelOptions
from hwgen.network.rescale import add_constant, fit_table, rule_of

_SLACK = float(np.finfo(np.float32).eps)
"""Maximum float32 distance of a Clip's bounds from its quantiser's range such that ONNX Runtime drops the Clip."""
_RELU = (0.0, math.inf)
"""Pair: bounds of a Relu, which ONNX Runtime drops only if the quantiser's range begins at 0."""
_MAX_OFF = 0.01
"""Maximum relative difference between a bias's scale and the accumulators' scale that gives no warning."""
_FLOATS = "; ONNX Runtime computes this operator in float32, so scales must be nearer to 1"
"""End of error messages about scales that take numbers out of the range of float32."""
_FLOAT32, _INT32 = np.finfo(np.float32), np.iinfo(np.int32)
_DROPPED = {"Dropout", "Expand", "Identity"}
"""Set of names of ONNX operators that compute nothing, and that ONNX Runtime removes."""
_LARGEST_TABLE = 1 << 27
"""Maximum number of entries in a table of a function's values for every integer of every channel.

It is enough for 2,048 channels of 16 bits.
"""


class Builder:
    """Builder of a network's layers from ONNX nodes; it holds the current tensor's value and all layers so far."""

    def __init__(self, constants: Constants, kernels: Kernels, options: ModelOptions) -> None:
        self.constants, self.kernels, self.options = constants, kernels, options
        self.steps: list[PendingLayer] = []
        self.batch: int | None = None
        """Number of frames per batch that the ONNX model fixes; ``None`` if the model allows any number."""
        self.map = Map(1, 1, 1, UINT8)
        """Builder's current map: the feature map that the current node's input or output is laid out on."""
        self.view = View.channels_first((1, 1, 1))
        """Layout of the current node's value on its feature map, or on the map that it becomes when it is quantised."""
        self.state: State = Integers()
        self.source: PendingLayer | None = None
        """Layer that computes the current feature map (unfinished); ``None`` if the map is an input of the model."""
        self.shared = False
        """Whether other nodes read the current feature map, so that the layer that computes it must not change.

        The layer must not change either if other nodes read a map that the current map is selected from.
        """
        self.operands: list[Value] = []
        """List of the `Value` of each tensor that the current node reads, the builder's current value first."""
        self.results: list[Value] = []
        """List of the `Value` of each output of the current node (unused ones included) if it has several outputs."""
        self.warnings: list[str] = []
        """List of warnings about parts of the ONNX model that can be built, but are hardly intended."""
        self.float_layers: list[FloatLayer] = []
        """List of layers that ONNX Runtime computes in float32, each with the bound on its error."""
        self.units: Mapping[str, float] = {}
        """Mapping from a float tensor's name (without quantiser) to the maximum step (real value) of its fixed-point
        numbers."""
        self.aligned: dict[tuple[int, float], Value] = {}
        """Dictionary of the `Value` of each fixed-point copy of a map, by a pair: the original map's ``id``, the copy's
        scale."""
        self.absorbed: dict[int, str] = {}
        """Dictionary from an ONNX node's ``id`` to the name of the fixed-point layer that computes it along with other
        nodes."""
        self.made: dict[int, list[str]] = {}
        """Dictionary of names of the layers that each ONNX node was turned into, by the node's ``id``."""
        self.optimised = True
        """Whether layers must equal ONNX Runtime's optimised session in every bit, not each operator in floats.

        See `hwgen.network.onnx.walk.FoldedModel`.
        """
        self.merged: list[tuple[PendingLayer, onnx.NodeProto]] = []
        """List of pad and selection layers that a later node's layer includes, each paired with that node.

        They are dropped if no other layer reads them.
        """
        self._names: set[str] = set()
        self._weights = 0

    @property
    def value(self) -> Value:
        """Current tensor as a `Value`: state of import, feature map, layout on the map, and computing layer."""
        return Value(self.state, self.map, self.view, self.source, self.shared)

    def enter(self, value: Value) -> None:
        """Make ``value`` the builder's current value, which the next node reads.

        Several nodes can read the value, so lists in its state are copied, and no node changes them for another one.
        """
        self.map, self.view, self.source, self.shared = value.map, value.view, value.source, value.shared
        self.state = value.state
        state = value.state
        if isinstance(state, Reals):
            self.state = replace(state, steps=[*state.steps], bounds=[*state.bounds], pools=[*state.pools])
        elif isinstance(state, Joined):
            self.state = replace(state, bounds=[*state.bounds], pools=[*state.pools])
        elif isinstance(state, AccumulatorState):
            self.state = replace(state, pools=[*state.pools])

    def refusal(self, node: onnx.NodeProto, why: str) -> RefusalError:
        """Return, not raise, the `RefusalError` that says why the ONNX node ``node`` can't be built."""
        return self.constants.refusal(node, why)

    def label(self, node: onnx.NodeProto, scale: np.float32 | None, zero: int) -> None:
        """Set the current map's scale and zero point unless known; refuse the node if its zero point differs.

        The scale can differ from the scale that the map was quantised with. Later nodes then read the integers in steps
        of ``scale``.
        """
        here = self.map
        if here.zero_point is not None and here.zero_point != zero:
            raise self.refusal(node, f"zero point must be {here.zero_point}, as its input was quantised, not {zero}")
        for labelled in self.maps_of_one_type():
            labelled.zero_point = zero
            labelled.scale = scale if labelled.scale is None else labelled.scale

    def maps_of_one_type(self) -> list[Map]:
        """Return a list: the current `Map`, and each `Map` before it that leads to it without a new integer type."""
        maps, step = [self.map], self.source
        while step is not None and step.kind.keeps_type:
            maps.append(step.input)
            (step,) = step.sources
        return maps

    def integer_input(
        self, node: onnx.NodeProto, scale: np.float32 | None, zero: int, integer_type: IntegerType
    ) -> None:
        """Refuse a node unless its input is a feature map of this scale, zero point and integer type."""
        if not isinstance(self.state, Integers):
            raise self.refusal(node, "must take integers, but its input gives floats; put a QuantizeLinear before it")
        if integer_type != self.map.type:
            raise self.refusal(node, f"zero point must be {self.map.type} as its input is, not {integer_type}")
        self.label(node, scale, zero)

    def quantised_input(self, node: onnx.NodeProto, first: int) -> tuple[np.float32, int]:
        """Check the feature map that an operator on integers reads, and return a pair: its scale and zero point.

        ``first``: index of the node's input that holds the scale; the zero point follows.
        """
        scale, zero, integer_type = self.constants.per_tensor(node, first, self.map.type.dtype)
        self.integer_input(node, scale, zero, integer_type)
        return scale, zero

    # Quantising.

    def requantise_sums(self, state: AccumulatorState, to: Quantisation) -> None:
        """Append the convolution layer whose accumulators a QuantizeLinear quantises, and the pools after it."""
        low, high = quantize_linear(np.array([state.low, state.high], np.float32), *to).tolist()
        self._emit_conv(state, to, low, high)
        if state.opened is not None:
            state.opened.make()
        self.emit_pools(state.pools)

    def requantise_reals(self, node: onnx.NodeProto, state: Reals, to: Quantisation) -> None:
        """Quantise the current map's dequantised values: clip the last convolution, or append a layer if needed.

        The layer is a table, or a convolution with a weight per channel.
        """
        if state.for_sums:
            raise self.refusal(state.steps[-1], "works on dequantised values; a Conv, Gemm or MatMul must take it in")
        values = self._values()
        wanted = self._tabulate_outputs(node, state, to)
        conv, here = self.computing_layer(), self.map
        low, high = int(wanted.min()), int(wanted.max())
        clips = (wanted == np.clip(values, low, high)).all() and (to.type, to.zero) == (here.type, here.zero_point)
        if clips and not self.shared and conv is not None and conv.requantisation is not None:
            conv.low, conv.high = low, high
            if conv.output.bounds is not None:
                conv.output.bounds = low, high
            step = self.source
            while step is not conv and step is not None:
                step.output.scale = to.scale
                (step,) = step.sources
            conv.output.scale = to.scale
        elif not (clips and to.scale == state.scale and (wanted == values).all()):
            self._emit_table(state.steps[0] if state.steps else node, state, wanted, to)

    def _tabulate_outputs(self, node: onnx.NodeProto, state: Reals, to: Quantisation) -> np.ndarray:
        """Return an int64 table, by channel, of QuantizeLinear's output for each integer of the current map.

        Its shape is ``(channels or 1, integers)``.
        """
        if state.by_runtime:
            return self.function(state).quantised(node, *to)
        addend = state.addend
        spared = are_dropped(state.bounds, *to) and not state.in_floats
        if addend is None or not self.map.type == addend.type == to.type or to.type.bits != 8 or not spared:
            return quantize_linear(self.table(state), *to)
        wanted = add_constant(self._values(), (state.scale, state.zero), addend, to.scale, to.zero)
        if wanted is None:
            raise self.refusal(node, f"scale {to.scale:g} is so small that sums leave int32 in steps of it")
        return np.clip(wanted, *to.type.ends)

    def add_reals(self, node: onnx.NodeProto, state: Reals, values: np.ndarray, addend: Addend | None = None) -> None:
        """Add one constant per channel to the dequantised values of the current map.

        Parameters
        ----------
        values : ndarray
            Constants, ``(channels,)``.
        addend : Addend, optional
            Quantised form of the constants, if they are quantised.
        """
        if state.steps:
            raise self.refusal(node, f"can't follow {title(state.steps[-1])!r} without a QuantizeLinear between")
        if (entries := self.map.channels * len(self._values())) > _LARGEST_TABLE:
            raise self.refusal(
                node,
                f"adds to {self.map.channels:,} channels of {self.map.type}: {entries:,} cases are too many to try",
            )
        state.table = self.table(state) + values.astype(np.float32)[:, None]
        state.offset = values
        state.addend = addend

    def addend(
        self, node: onnx.NodeProto, values: np.ndarray, scale: np.ndarray, zero: np.ndarray, *, first: bool
    ) -> Addend | None:
        """Return an Add's quantised constant as an `Addend`; ``None`` for several scales or other types.

        ``first``: whether the constant is the first operand.
        """
        if scale.size != 1 or zero.size != 1 or values.dtype not in TYPES:
            return None
        here = self.map
        spread = values.size < here.channels * here.height * here.width
        by_channel = self.constants.by_channel(node, values, self.view)
        integer_type = TYPES[values.dtype]
        return Addend(by_channel, np.float32(scale.item()), int(zero.item()), integer_type, first and not spread)

    def function(self, state: Reals) -> Function:
        """Return, as a `Function`, the operators applied to the current map since its DequantizeLinear."""
        return Function(self.constants, self.map, self._values(), state)

    def table(self, state: Reals) -> np.ndarray:
        """Return a float32 table by channel: the real number that each integer of the current map becomes.

        Its shape is ``(channels or 1, integers)``.
        """
        if state.table is not None:
            return state.table
        return ((self._values() - state.zero).astype(np.float32) * state.scale)[None]

    def _values(self) -> np.ndarray:
        """Return all integers that the current feature map can hold, ascending, as an int64 array."""
        low, high = self.range()
        return np.arange(low, high + 1)

    def range(self) -> tuple[int, int]:
        """Return the lowest and the highest integer that the current feature map can hold, a pair."""
        source = self.computing_layer()
        if source is not None:
            return source.low, source.high
        return self.computed_map().bounds or self.map.type.ends

    def computed_map(self) -> Map:
        """Return the feature `Map` that the current map is derived from by layers that only select values.

        If no layer only selects, the result is the current map itself.
        """
        step, source_map = self.source, self.map
        while step is not None and step.kind.selects:
            source_map = step.input
            (step,) = step.sources
        return source_map

    def computing_layer(self) -> PendingLayer | None:
        """Return the `PendingLayer` that computed the current map's integers; ``None`` if they are the input.

        Layers that only select are skipped.
        """
        step = self.source
        while step is not None and step.kind.selects:
            (step,) = step.sources
        return step

    # Layers.

    def reserve(self, names: Iterable[str]) -> None:
        """Reserve ``names``, so that no layer is given one of them."""
        self._names.update(names)

    def _unique_name(self, node: onnx.NodeProto) -> str:
        """Return a name for a layer of an ONNX node that no other layer has, with a number appended if needed."""
        name = base = title(node)
        count = 1
        while name in self._names:
            count += 1
            name = f"{base}_{count}"
        self._names.add(name)
        return name

    def _convolution(self, sums: AccumulatorState, output: Map) -> PendingLayer:
        """Return a `PendingLayer`: a convolution with the output map ``output``, not yet requantised."""
        self._count_weights(sums.node, sums.weights.size)
        step = PendingLayer(self._unique_name(sums.node), self.map, output, sums.window, sums.weights, sums.bias)
        step.groups, step.fraction = sums.groups, sums.fraction
        return step

    def _emit_conv(self, sums: AccumulatorState, to: Quantisation, low: int, high: int) -> None:
        """Append a convolution layer whose accumulators are requantised to integers from ``low`` to ``high``."""
        scale, zero, integer_type = to
        step = self._convolution(sums, Map(len(sums.weights), *sums.size, integer_type, zero, scale))
        bound = self.accumulator_bound(step)
        factor = sums.x_scale * sums.w_scale / scale if sums.factor is None else sums.factor
        if not np.isfinite(factor).all():
            raise self.refusal(
                sums.node, "x_scale * w_scale / y_scale overflows float32; quantise the model with a larger y_scale"
            )
        factors = np.broadcast_to(np.ldexp(factor, -sums.fraction), len(sums.weights))
        # ONNX Runtime's integer kernels, for 8 bits, round products to float32; so does a Mul of a mean.
        float32 = sums.factor is None or (sums.averages and not sums.bias.any())
        float32 &= max(operand_type.bits for operand_type in (step.input.type, sums.w_type, integer_type)) <= 8
        step.requantisation = rule = rule_of(factors, bound, (low, high), zero, float32=float32)
        step.low, step.high = low, high
        if sums.first is not None and (sums.chosen is not None or not self.optimised):
            step.fit = bias_fitter(self.constants, sums, (scale, zero))
        self._check_reals(step, sums, scale, factor)
        self._note_floats(step, sums, factor)
        if rule.float32 and self.optimised:
            self._check_wraps(step, sums)
        self._append(sums.node, step)

    def emit_accumulators(self, sums: AccumulatorState) -> None:
        """Append a convolution layer that outputs its int32 accumulators; refuse one that can leave int32."""
        step = self._convolution(sums, Map(len(sums.weights), *sums.size, INT32, 0))
        self._append(sums.node, step)
        if self.accumulator_bound(step) > INT32.maximum:
            raise self.refusal(sums.node, "accumulators must fit int32; its kernel has too many values")

    def _check_reals(self, step: PendingLayer, sums: AccumulatorState, scale: np.float32, factor: np.ndarray) -> None:
        """Refuse a convolution whose scales take inputs, weights, outputs or sums out of the range of float32.

        ONNX Runtime computes some convolutions in float32. If it has an integer kernel, only the quotient of the scales
        counts, and an overflow is a warning.
        """
        ranges = {
            "inputs": (step.input.scale, step.input.reach),
            "weights": (sums.w_scale.max(), max(int(sums.weights.max()), -int(sums.weights.min()))),
            "outputs": (scale, step.output.reach),
        }
        large = {
            what: size
            for what, (size, largest) in ranges.items()
            if size is not None and not np.isfinite(np.float32(size) * np.float32(largest))
        }
        rule = step.requantisation
        assert isinstance(rule, Requantisation)
        if rule.float32 and not (sums.bounded or sums.fraction or step.input.type.signed != step.output.type.signed):
            for what, size in large.items():
                self.warnings.append(
                    f"{step.name}: scale {size:g} is so large that its {what} overflow float32; integers are right"
                )
            return
        for what, size in large.items():
            raise self.refusal(sums.node, f"scale {size:g} is so large that its {what} overflow float32{_FLOATS}")
        step_sizes = factor.astype(np.float64) * float(scale)
        if (largest := float(step_sizes.max()) * 2.0**-sums.fraction * self.accumulator_bound(step)) > _FLOAT32.max:
            raise self.refusal(
                sums.node, f"scales are so large that sums, up to {largest:g}, overflow float32{_FLOATS}"
            )
        if (smallest := float(step_sizes[step_sizes > 0].min(initial=math.inf))) < _FLOAT32.smallest_normal:
            raise self.refusal(
                sums.node, f"scales are so small that products, in steps of {smallest:g}, lose bits in float32{_FLOATS}"
            )

    def _note_floats(self, step: PendingLayer, sums: AccumulatorState, factor: np.ndarray) -> None:
        """Record a convolution that ONNX Runtime computes in float32, with a bound on its difference in LSBs."""
        if sums.averages or self.kernels.is_in_floats(sums.node):
            self.float_layers.append(FloatLayer.of_convolution(step.convolution(step.input.frozen()), factor))

    def in_floats(self, layers: Iterable[Op]) -> tuple[FloatLayer, ...]:
        """Return a tuple of float32 layers of ONNX Runtime among the finished ``layers``, each with its error bound."""
        names = {layer.name for layer in layers}
        return tuple(layer for layer in self.float_layers if layer.name in names)

    def _check_wraps(self, step: PendingLayer, sums: AccumulatorState) -> None:
        """Refuse a convolution whose sums can leave int32, where ONNX Runtime's integer kernels wrap around."""
        conv = step.convolution(step.input.frozen())
        bias = conv.bias >> conv.fraction
        lowest, highest = (bias + end for end in conv.product_range)
        beyond = np.flatnonzero((highest > _INT32.max) | (lowest < _INT32.min))
        if len(beyond):
            channel = int(beyond[0])
            end = int(highest[channel]) if highest[channel] > _INT32.max else int(lowest[channel])
            raise self.refusal(
                sums.node,
                f"sums of output channel {channel} can reach {end:,} with its bias {int(bias[channel]):,}: they leave "
                "int32, and ONNX Runtime would wrap them; biases must be smaller, or weights fewer",
            )

    def check_outputs(self, node: onnx.NodeProto, count: int, what: str = "output channels") -> None:
        """Refuse a node that computes more channels than a feature map can have; ``what``: name of the channels."""
        if count > MAX_SIDE:
            raise self.refusal(node, f"must have at most {MAX_SIDE:,} {what}, not {count:,}")

    def _count_weights(self, node: onnx.NodeProto, weights: int) -> None:
        """Add a new layer's weights to the network's count, and refuse the layer if the sum exceeds `MAX_WEIGHTS`."""
        self._weights += weights
        if self._weights > MAX_WEIGHTS:
            raise self.refusal(
                node,
                f"makes {self._weights:,} weights of the network up to here ({weights:,} by itself); "
                f"at most {MAX_WEIGHTS:,} are supported",
            )

    def accumulator_bound(self, step: PendingLayer) -> int:
        """Return an upper bound on the accumulators' magnitude, in LSBs, of the unfinished convolution ``step``."""
        return step.convolution(step.input.frozen()).accumulator_bound

    def emit_pool(self, node: onnx.NodeProto, axes: tuple[int, ...]) -> None:
        """Append a max pool layer over the current map, whose window extends along the map axes ``axes``."""
        here = self.map
        window, size = self.pool_window(node, (here.height, here.width), axes)
        window = self._padded(node, window, here.type.minimum)
        self.emit(node, MaxPool, window, here.sized(here.channels, *size))

    def emit_pools(self, pools: Iterable[tuple[onnx.NodeProto, tuple[int, ...]]]) -> None:
        """Append a max pool layer per pair in ``pools``: its ONNX node, and the map axes its window extends along."""
        for node, axes in pools:
            self.emit_pool(node, axes)

    def emit(self, node: onnx.NodeProto, kind: type[Op], window: Window, output: Map, **parameters: Any) -> None:
        """Append a layer of the class ``kind`` without weights that reads the current map."""
        step = PendingLayer(self._unique_name(node), self.map, output, window, kind=kind, parameters=parameters)
        step.low, step.high = output.type.ends
        self._append(node, step)

    def emit_select(self, node: onnx.NodeProto, index: Sequence[int]) -> None:
        """Append a layer that selects channels: output channel ``j`` is channel ``index[j]`` of the current map.

        Channels can be left out and repeated. Two selections in a row become one selection from the first one's input.
        """
        channels = tuple(index)
        if channels == tuple(range(self.map.channels)):
            return
        self.check_outputs(node, len(channels))
        if isinstance(self.state, Reals):
            if self.state.for_sums:
                last = title(self.state.steps[-1])
                raise self.refusal(node, f"can't follow {last!r} without a QuantizeLinear between")
            self.state = self.state.selected(np.array(channels))
        if self.source is not None and self.source.kind is Select:
            before = self.source.parameters["index"]
            channels = tuple(before[channel] for channel in channels)
            self.merged.append((self.source, self.constants.owner or node))
            self.map, (self.source,), self.shared = self.source.input, self.source.sources, True
        here = self.map
        if channels != tuple(range(here.channels)):
            output = here.sized(len(channels), here.height, here.width)
            self.emit(node, Select, Window(kernel=(1, 1)), output, index=channels)

    def emit_join(
        self, node: onnx.NodeProto, kind: type[Join], operands: Sequence[Value], output: Map, **parameters: Any
    ) -> None:
        """Append a layer that combines several feature maps, for example a sum.

        ``parameters`` belong to its operator class ``kind``, ``low`` and ``high`` among them if it has bounds.
        """
        step = PendingLayer(
            self._unique_name(node), operands[0].map, output, Window(kernel=(1, 1)), kind=kind, parameters=parameters
        )
        step.low, step.high = parameters.get("low", output.type.minimum), parameters.get("high", output.type.maximum)
        step.more = tuple(value.map for value in operands[1:])
        self._append(node, step, tuple(value.source for value in operands))

    def _append(
        self, node: onnx.NodeProto, step: PendingLayer, sources: tuple[PendingLayer | None, ...] | None = None
    ) -> None:
        """Append the layer ``step`` to the network, and make its output the current feature map.

        ``sources``: layers of the input maps; by default the layer of the current map.
        """
        self.made.setdefault(id(self.constants.owner or node), []).append(step.name)
        step.sources = (self.source,) if sources is None else sources
        self.steps.append(step)
        # A selection has the bounds of the layer before it, which other nodes may read.
        self.map, self.source, self.shared = step.output, step, self.shared and step.kind.selects

    def remove_layers_from(self, count: int) -> None:
        """Remove all layers starting at index ``count``, with all that was noted about them."""
        gone = {step.name for step in self.steps[count:]}
        del self.steps[count:]
        self._names -= gone
        self.aligned.clear()
        self.float_layers = [layer for layer in self.float_layers if layer.name not in gone]
        for key in [key for key, name in self.absorbed.items() if name in gone]:
            del self.absorbed[key]
        for key, names in [*self.made.items()]:
            self.made[key] = [name for name in names if name not in gone]
            if not self.made[key]:
                del self.made[key]

    def _emit_table(self, node: onnx.NodeProto, state: Reals, wanted: np.ndarray, to: Quantisation) -> None:
        """Append a layer that maps each integer of the current map to its entry in the table ``wanted``.

        The layer is a 1x1 convolution of each channel with itself, whose multipliers ``fit_table`` searches channel by
        channel. If the search fails, or no factor is known, the layer is a lookup.
        """
        if state.by_runtime:
            self.emit_lookup(node, wanted, *to)
            return
        channels = self.map.channels
        offset = np.zeros(channels) if state.offset is None else state.offset
        distinct, inverse = np.unique(offset, return_inverse=True)
        if len(wanted) == 1:
            wanted = np.broadcast_to(wanted, (channels, wanted.shape[1]))
        first = np.array([int(np.argmax(inverse == index)) for index in range(len(distinct))])
        of_all_channels, wanted = wanted, wanted[first]
        values = self._values() - state.zero
        low, high = int(wanted.min()), int(wanted.max())
        scales, bits = (float(state.scale), float(to.scale)), max(self.map.type.bits, to.type.bits)
        fitted = fit_table(values, distinct, wanted, *scales, (to.zero, low, high), bits)
        if fitted is None and bits <= MAX_BITS:
            self.emit_lookup(node, of_all_channels, *to)
            return
        if fitted is None:
            raise self.refusal(
                node, f"can't be done in integers: no multiplier gives what it computes at scale {to.scale}"
            )
        parameters, zero_point = fitted
        weights, bias, significand, shift = parameters[:, inverse]
        output = Map(channels, self.map.height, self.map.width, to.type, to.zero, to.scale)
        rule = Requantisation(significand=significand, shift=shift, zero_point=zero_point, low=low, high=high)
        self.emit_diagonal(node, weights, bias, rule, output)

    def emit_diagonal(
        self, node: onnx.NodeProto, weights: np.ndarray, bias: np.ndarray, rule: Requantisation, output: Map
    ) -> None:
        """Append a 1x1 convolution that scales each channel by a weight of its own and adds a bias."""
        self.emit_mixture(node, np.diag(weights), bias, rule, output)

    def emit_mixture(
        self, node: onnx.NodeProto, weights: np.ndarray, bias: np.ndarray, rule: Requantisation, output: Map
    ) -> None:
        """Append a 1x1 convolution with the integers ``weights``, ``(output channels, input channels)``."""
        self._emit_kernel(node, Window(kernel=(1, 1)), weights[..., None, None], bias, rule, output)

    def emit_sum(self, node: onnx.NodeProto, window: Window, weight: int, rule: Requantisation, output: Map) -> None:
        """Append a depthwise convolution with equal weights, to sum each channel over a window."""
        groups = self.map.channels
        weights = np.full((groups, 1, *window.kernel), weight, np.int64)
        self._emit_kernel(node, window, weights, np.zeros(groups, np.int64), rule, output, groups)

    def _emit_kernel(
        self,
        node: onnx.NodeProto,
        window: Window,
        weights: np.ndarray,
        bias: np.ndarray,
        rule: Requantisation,
        output: Map,
        groups: int = 1,
    ) -> None:
        """Append a convolution that the importer adds (it is not a node of the model), with its requantisation."""
        self._count_weights(node, weights.size)
        step = PendingLayer(self._unique_name(node), self.map, output, window, weights, bias, rule, rule.low, rule.high)
        step.groups = groups
        self._append(node, step)

    def emit_lookup(
        self, node: onnx.NodeProto, wanted: np.ndarray, scale: np.float32, zero: int, integer_type: IntegerType
    ) -> None:
        """Append a layer that looks up each integer of the current map in the table ``wanted``.

        An integer that the map never holds has the entry of the nearest integer that the map can hold.
        """
        here, values = self.map, self._values()
        if (wanted == wanted[:1]).all():
            wanted = wanted[:1]
        integers = np.arange(here.type.minimum, here.type.maximum + 1)
        table = wanted[:, np.clip(integers, values[0], values[-1]) - values[0]]
        output = Map(here.channels, here.height, here.width, integer_type, zero, scale)
        self.emit(node, Lookup, Window(kernel=(1, 1)), output, table=table)
        self.steps[-1].low, self.steps[-1].high = int(wanted.min()), int(wanted.max())

    # Windows and sums.

    def bias(self, node: onnx.NodeProto, outputs: int, unit: np.ndarray) -> Bias:
        """Return the `Bias` (input 2) of a convolution or matrix product as ONNX Runtime's kernel adds it.

        ``unit``: real value of a step of the accumulators, float32 ``(M,)`` or ``(1,)``.
        """
        return self.as_kernel_adds(node, self.constants.bias(node, 2, outputs, unit), unit)

    def as_kernel_adds(self, node: onnx.NodeProto, bias: Bias, unit: np.ndarray) -> Bias:
        """Return ``bias``, or a `Bias` of its integers as accumulator steps if ONNX Runtime's kernel adds them as is.

        A warning says so if the steps differ by more than `_MAX_OFF`.
        """
        stated = bias.stated
        if stated is None or not stated.is_bias or not self.kernels.takes_bias_integers(node):
            return bias
        scale = stated.scale.reshape(-1)
        differences = np.abs(scale / unit - 1)
        if differences.max() > _MAX_OFF or stated.zero.any():
            index = int(np.broadcast_to(differences, len(bias.steps)).argmax())
            own, steps = (float(np.broadcast_to(values, len(bias.steps))[index]) for values in (scale, unit))
            self.warnings.append(
                f"{title(node)}: the bias has the scale {own:g} and zero point {int(stated.zero.flat[0])}, not the "
                f"scale x_scale * w_scale = {steps:g} and 0; ONNX Runtime adds its integers as they are, and so does "
                "the hardware"
            )
        return Bias.of_integers(stated, len(bias.steps))

    def leave_in_floats(self) -> None:
        """Record that ONNX Runtime computes the current node in float32, if it reads dequantised values.

        ONNX Runtime moves a DequantizeLinear past some operators (MaxPool, Reshape), so that integer kernels can
        follow, but not past others.
        """
        if isinstance(self.state, Reals | Joined):
            self.state.in_floats = True
        elif isinstance(self.state, AccumulatorState):
            self.state.rounded = False
        elif isinstance(self.state, Pending) and self.state.in_floats is not None:
            self.state = replace(self.state, make=self.state.in_floats)

    def note_moved_quantisers(self, node: onnx.NodeProto) -> None:
        """Note that ONNX Runtime moves the DequantizeLinear or QuantizeLinear past the current node.

        The node must not change values.
        """
        if isinstance(self.state, Reals) and self.state.tensor == node.input[0]:
            self.state.tensor = node.output[0]
        if isinstance(self.state, Reals) and self.state.padded == node.input[0] and node.op_type in _DROPPED:
            self.state.padded = node.output[0]
        elif isinstance(self.state, AccumulatorState):
            self.state.moved |= node.op_type not in _DROPPED

    def spatial_axes(self, node: onnx.NodeProto) -> tuple[int, ...]:
        """Put the current map's channels in order; return a tuple: each other dimension's map axis (1 rows, 2 columns).

        Channels in another order than the map's are reordered by a selection layer.

        Raises
        ------
        ModelError
            Unless the channels are the first dimension after the batch, and each other dimension is a whole axis.
        """
        axes, order = self.view.spatial_axes(), self.view.channel_order()
        if axes is None or order is None or not axes:
            flat = "must come before Flatten; " if len(self.view.dims) == 1 else ""
            raise self.refusal(
                node, f"{flat}needs channels, rows and columns in this order, but its input is laid out as {self.view}"
            )
        if (order != np.arange(len(order))).any():
            self.reorder_channels(node, order)
        return axes

    def reorder_channels(self, node: onnx.NodeProto, order: np.ndarray) -> None:
        """Append a layer that permutes channels: channel ``order[i]`` of the current map becomes channel ``i``.

        The value has channels first afterwards.
        """
        if not isinstance(self.state, Integers | Reals):
            raise self.refusal(
                node,
                f"its input's channels are not in its map's order, as after a channel shuffle ({self.view}); "
                "it must be quantised first",
            )
        axes = self.view.spatial_axes() or ()
        self.emit_select(node, order.tolist())
        self.view = View.channels_first(self.view.sizes, axes)

    def whole_maps(self, node: onnx.NodeProto) -> View:
        """Return a `View`: the output layout of a node that reduces each channel of the current map to one value.

        Raises
        ------
        ModelError
            If the node does not reduce exactly the pixels of the map.
        """
        if "Global" not in node.op_type:
            return self._reduced(node)
        layout = self.view.averaged()
        if layout is None or len(self.view.dims) == 1:
            flat = "must come before Flatten; " if len(self.view.dims) == 1 else ""
            raise self.refusal(node, f"{flat}needs channels first, but its input is laid out as {self.view}")
        return layout

    def _reduced(self, node: onnx.NodeProto) -> View:
        """Return a `View`: output layout of a ReduceMean, ReduceSum or ReduceMax over the pixels of the current map."""
        rank = 1 + len(self.view.dims)
        signed_axes = self.constants.listed(node, 1, "axes") or []
        if any(not -rank <= axis < rank for axis in signed_axes):
            raise self.refusal(node, f"axes must be {-rank} to {rank - 1}, not {signed_axes}")
        if not signed_axes and not attribute(node, "noop_with_empty_axes", 0):
            signed_axes = [*range(rank)]
        axes = sorted({axis % rank for axis in signed_axes})
        layout = None
        if 0 not in axes:
            layout = self.view.reduced([axis - 1 for axis in axes], keeps=bool(attribute(node, "keepdims", 1)))
        if layout is None:
            verb = "average" if node.op_type == "ReduceMean" else "reduce"
            raise self.refusal(
                node,
                f"must {verb} rows and columns of each channel, not axes {axes} of {self.view}; {verb} both in one "
                "node; the host runs it at the end, if no layer and no QuantizeLinear follows",
            )
        return layout

    def pool_window(
        self, node: onnx.NodeProto, sizes: tuple[int, int], axes: tuple[int, ...]
    ) -> tuple[Window, tuple[int, int]]:
        """Return a pair: the `Window` of an ONNX pool over the current map, and its output's rows and columns.

        Parameters
        ----------
        sizes : tuple of int
            Rows and columns of the map.
        axes : tuple of int
            Map axes along which the pool's window extends.
        """
        if node.op_type in WHOLE_MAPS:
            return Window(kernel=sizes), (1, 1)
        kernel = tuple(attribute(node, "kernel_shape", ()))
        if int(attribute(node, "storage_order", 0)):
            raise self.refusal(node, "storage_order 1 is not supported, 0 is")
        window, size = self._window(node, kernel, sizes, axes)
        pads, covers = tuple(attribute(node, "pads", [0] * 2 * len(kernel))), kernel
        if padding_mode(node) != "NOTSET":
            pads, covers = window.padding, window.kernel
        if any(p >= k for p, k in zip(pads, (*covers, *covers), strict=True)):
            raise self.refusal(node, f"padding must be smaller than the kernel {by(kernel)}, not {pads}")
        return window, size

    def _window(
        self, node: onnx.NodeProto, kernel: tuple[int, ...], sizes: tuple[int, int], axes: tuple[int, ...]
    ) -> tuple[Window, tuple[int, int]]:
        """Return a pair: the `Window` of a Conv-like ONNX node or a pool, and its output's rows and columns."""
        height, width = sizes
        try:
            window = window_of(node, kernel, sizes, tuple(axis - 1 for axis in axes))
        except ConfigError as error:
            raise self.refusal(node, str(error)) from None
        check_window(named(self.constants.owner or node), window, 1, height, width)
        return window, window.output_size(height, width)

    def accumulate(
        self,
        node: onnx.NodeProto,
        kernels: QuantisedWeights,
        bias: np.ndarray,
        x_scale: np.float32,
    ) -> AccumulatorState:
        """Return the sums (`AccumulatorState`) of a Conv-like node over the current map, and set the current layout.

        Parameters
        ----------
        kernels : QuantisedWeights
            Weights, ``(M, C // groups, Kh, Kw)`` or ``(M, C // groups, K)``.
        bias : ndarray
            Bias in steps of the accumulators, ``(M,)``.
        x_scale : float32
            Scale of the input.
        """
        weights = kernels.values
        if not 3 <= weights.ndim <= 4:
            raise self.refusal(node, f"must be one- or two-dimensional, not {weights.ndim - 2}-dimensional")
        axes = self.spatial_axes(node)
        groups = int(attribute(node, "group", 1))
        if weights.ndim != 2 + len(axes):
            raise self.refusal(
                node, f"must be {len(axes)}-dimensional as its input, not {weights.ndim - 2}-dimensional"
            )
        channels = self.map.channels
        if groups < 1 or channels % groups or len(weights) % groups:
            raise self.refusal(
                node, f"group must divide its {channels} input and {len(weights)} output channels, not {groups}"
            )
        if weights.shape[1] != channels // groups:
            of_a_group = f" of each of {groups} groups" if groups > 1 else ""
            raise self.refusal(
                node, f"weights must have {channels // groups} input channels{of_a_group}, not {weights.shape[1]}"
            )
        kernel = tuple(attribute(node, "kernel_shape", weights.shape[2:]))
        if kernel != weights.shape[2:]:
            raise self.refusal(node, f"kernel_shape must be {by(weights.shape[2:])} like the weights, not {by(kernel)}")
        self.check_outputs(node, len(weights))
        window, size = self._window(node, kernel, (self.map.height, self.map.width), axes)
        self.view = View.channels_first((len(weights), *size), axes)
        if axes[0] == COLUMNS:
            weights = weights.swapaxes(2, 3) if len(axes) == 2 else weights
        weights = weights.reshape(*weights.shape[:2], *window.kernel)
        window = self._padded(node, window, self.map.zero_point)
        return AccumulatorState(node, window, weights, bias, x_scale, kernels.scale, kernels.type, size, groups=groups)

    def _padded(self, node: onnx.NodeProto, window: Window, value: int | None) -> Window:
        """Return the `Window` with the previous Pad layer's padding merged in, if that layer pads by ``value``.

        The Pad's input then becomes the current map.
        """
        pad = self.source
        if pad is None or pad.kind is not Pad or pad.parameters["value"] != value or min(pad.window.padding) < 0:
            return window
        if isinstance(self.state, Reals) and self.state.arithmetic is not None and self.state.arithmetic.offset.any():
            return window  # the offset applies to the Pad's pixels, but not to the pixels that a convolution pads
        self.map, (self.source,) = pad.input, pad.sources
        self.merged.append((pad, self.constants.owner or node))
        top, left, bottom, right = (sum(both) for both in zip(window.padding, pad.window.padding, strict=True))
        return replace(window, padding=(top, left, bottom, right))

    def multiply(
        self,
        node: onnx.NodeProto,
        matrix: QuantisedWeights,
        bias: np.ndarray,
        x_scale: np.float32,
    ) -> AccumulatorState:
        """Return the sums (`AccumulatorState`) of a matrix product over the last dimension; set the current layout.

        The product becomes a convolution. Its kernel covers the whole map if the value has two dimensions, and
        otherwise the part of the map that the last dimension holds.

        Parameters
        ----------
        matrix : QuantisedWeights
            Weights, ``(M, values of the last dimension)``.
        bias : ndarray
            Bias in steps of the accumulators, ``(M,)``.
        x_scale : float32
            Scale of the input.
        """
        values, part = matrix.values, self.view.summed_dimension()
        if part is None or ("Gemm" in node.op_type and self.view.rank != 2):
            raise self.refusal(
                node,
                "must follow Flatten (or a Reshape to two dimensions), or multiply along a last dimension that holds "
                f"all channels; its input is laid out as {self.view}",
            )
        if values.ndim != 2 or values.shape[1] != part.size:
            raise self.refusal(node, f"matrix must have {part.size} rows, one per input value, not {values.shape[-1]}")
        self.check_outputs(node, len(values), "outputs")
        self.view = self.view.multiplied(len(values))
        kernel = part.sizes[1:]
        weights, window = part.layout.to_maps(values), Window(kernel=kernel, stride=kernel)
        return AccumulatorState(node, window, weights, bias, x_scale, matrix.scale, matrix.type, self.view.sizes[1:])


def are_dropped(bounds: Sequence[tuple[float, float]], scale: np.float32, zero: int, integer_type: IntegerType) -> bool:
    """Return whether a quantiser saturates at least as tightly as Relus and Clips, so that ONNX Runtime drops them.

    It drops a Clip whose bounds are quantised to the ends of the integer type, or beyond; or are within `_SLACK` of
    these ends.
    """
    limits = np.array([integer_type.minimum, integer_type.maximum])
    reals = (limits - zero).astype(np.float32) * np.float32(scale)

    def is_dropped(pair: tuple[float, float]) -> bool:
        with np.errstate(over="ignore", invalid="ignore"):
            low, high = np.rint(np.array(pair, np.float32) / np.float32(scale)).astype(np.float64) + zero
        if low <= limits[0] and high >= limits[1]:
            return True
        return pair != _RELU and bool(pair[0] - reals[0] <= _SLACK and reals[1] - pair[1] <= _SLACK)

    return all(map(is_dropped, bounds))
