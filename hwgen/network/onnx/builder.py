"""Layers in the making: how the operators of a quantised ONNX graph become layers of integers.

QDQ and QOperator models meet in the same two places: a convolution is emitted when its accumulators are quantised, and
a table of integers becomes bounds of the convolution before it or, where scales differ, a 1x1 convolution whose every
output was compared with the table. What is neither is a lookup.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from hwgen.errors import ConfigError
from hwgen.network.float32 import quantize_linear
from hwgen.network.maps import MOST_SIDE, MOST_WEIGHTS, UINT8, IntegerType, Window, check_window
from hwgen.network.onnx.constants import TYPES, Constants, Weights
from hwgen.network.onnx.file import attribute, by, title
from hwgen.network.onnx.ledger import RefusalError
from hwgen.network.onnx.tables import Function
from hwgen.network.onnx.values import Addend, Integers, Joined, Map, Reals, State, Step, Sums, Value
from hwgen.network.onnx.views import COLUMNS, View
from hwgen.network.onnx.windows import padding_mode, window_of
from hwgen.network.ops import Join, Lookup, MaxPool, Op, Pad, Select
from hwgen.network.ops.join import MOST_BITS
from hwgen.network.requantise import Requantisation
from hwgen.network.rescale import add_constant, fit_table, multiplier

_SLACK = float(np.finfo(np.float32).eps)
"""By so much ONNX Runtime lets a Clip fall short of its quantiser's range and still drops it."""
_FLOATS = ", in which ONNX Runtime computes this operator; scales must be nearer to 1"
_FLOAT32, _INT32 = np.finfo(np.float32), np.iinfo(np.int32)
_DROPPED = {"Dropout", "Expand", "Identity"}
"""Operators that do nothing, and that ONNX Runtime drops."""
_LARGEST_TABLE = 1 << 27
"""Entries of a table of what every integer of every channel has become: 2,048 channels of 16 bits."""


class Builder:
    """The current value, and the layers so far."""

    def __init__(self, constants: Constants) -> None:
        self.constants = constants
        self.steps: list[Step] = []
        self.batch: int | None = None
        """Frames of a batch, if the model fixes them."""
        self.map = Map(1, 1, 1, UINT8)
        """The last feature map."""
        self.view = View.channels_first((1, 1, 1))
        """How the value lies on that map, or on the one that it will become when it is quantised."""
        self.state: State = Integers()
        self.source: Step | None = None
        """The layer that made the last feature map; ``None``: it is the input."""
        self.shared = False
        """Whether others read that map, or what it was selected from, so that its layer must stay as it is."""
        self.operands: list[Value] = []
        """All values that the present node takes, the current one first."""
        self.results: list[Value] = []
        """What the present node gives, if it has several outputs: a value for each, unused ones included."""
        self.warnings: list[str] = []
        """What can be built, but hardly be meant."""
        self.made: dict[int, list[str]] = {}
        """Names of the layers that were made of each node, by its identity."""
        self.optimised = True
        """Whether ONNX Runtime's optimised session is the model's referee: see `hwgen.network.onnx.walk.Given`."""
        self.merged: list[tuple[Step, onnx.NodeProto]] = []
        """Layers that nodes took into theirs; they are none if nobody else reads them."""
        self._names: set[str] = set()
        self._weights = 0

    @property
    def value(self) -> Value:
        """All that is known of the current value."""
        return Value(self.state, self.map, self.view, self.source, self.shared)

    def enter(self, value: Value) -> None:
        """Go on with a value. What several nodes take, none of them may change."""
        self.map, self.view, self.source, self.shared = value.map, value.view, value.source, value.shared
        self.state = value.state
        if isinstance(value.state, Reals):
            state = value.state
            self.state = replace(state, steps=[*state.steps], bounds=[*state.bounds], pools=[*state.pools])

    def refusal(self, node: onnx.NodeProto, why: str) -> RefusalError:
        """The error that names ``node`` and says why it can't be built."""
        return self.constants.refusal(node, why)

    def label(self, node: onnx.NodeProto, scale: np.float32 | None, zero: int) -> None:
        """Note, or compare, the current map's scale and zero point."""
        here = self.map
        if here.zero_point is not None and here.zero_point != zero:
            raise self.refusal(
                node, f"zero point must be {here.zero_point}, with which its input was quantised, not {zero}"
            )
        if None not in (here.scale, scale) and here.scale != scale:
            raise self.refusal(node, f"scale must be {here.scale}, with which its input was quantised, not {scale}")
        maps, step = [here], self.source
        while step is not None and step.kind.keeps_type:
            maps.append(step.input)
            (step,) = step.sources
        for each in maps:
            each.zero_point = zero
            each.scale = scale if each.scale is None else each.scale

    def integer_input(self, node: onnx.NodeProto, scale: np.float32 | None, zero: int, kind: IntegerType) -> None:
        """Check the input of an operator on integers against what it says of it."""
        if not isinstance(self.state, Integers):
            raise self.refusal(node, "must take integers")
        if kind != self.map.type:
            raise self.refusal(node, f"zero point must be {self.map.type} as its input is, not {kind}")
        self.label(node, scale, zero)

    def quantised_input(self, node: onnx.NodeProto, first: int) -> tuple[np.float32, int]:
        """Check the input of an operator on integers; return its scale and zero point, the inputs from ``first`` on."""
        scale, zero, kind = self.constants.per_tensor(node, first, self.map.type.dtype)
        self.integer_input(node, scale, zero, kind)
        return scale, zero

    # Quantising.

    def requantise_sums(self, state: Sums, scale: np.float32, zero: int, kind: IntegerType) -> None:
        """Accumulators become integers: emit their convolution, and the pools behind it."""
        low, high = quantize_linear(np.array([state.low, state.high], np.float32), scale, zero, kind).tolist()
        self.emit_conv(state, scale, zero, kind, low, high)
        if state.opened is not None:
            state.opened.make()
        for pool, axes in state.pools:
            self.emit_pool(pool, axes)

    def requantise_reals(
        self, node: onnx.NodeProto, state: Reals, scale: np.float32, zero: int, kind: IntegerType
    ) -> None:
        """Dequantised values become integers: nothing, bounds of the convolution before, or a layer of its own."""
        if state.for_sums:
            raise self.refusal(state.steps[-1], "works on dequantised values; a Conv, Gemm or MatMul must take it in")
        values = self._values()
        wanted = self._wanted(node, state, scale, zero, kind)
        conv = self.maker()
        low, high = int(wanted.min()), int(wanted.max())
        clips = (wanted == np.clip(values, low, high)).all() and (kind, zero) == (self.map.type, self.map.zero_point)
        if clips and not self.shared and conv is not None and conv.requantisation is not None:
            conv.low, conv.high = low, high
            if conv.output.bounds is not None:
                conv.output.bounds = low, high
            step = self.source
            while step is not conv and step is not None:
                step.output.scale = scale
                (step,) = step.sources
            conv.output.scale = scale
        elif not (clips and scale == state.scale and (wanted == values).all()):
            self._emit_table(state.steps[0] if state.steps else node, state, wanted, scale, zero, kind)

    def _wanted(
        self, node: onnx.NodeProto, state: Reals, scale: np.float32, zero: int, kind: IntegerType
    ) -> np.ndarray:
        """What every integer of the current map shall become, int64 (channels or 1, integers)."""
        if state.by_runtime:
            return self.function(state).quantised(node, scale, zero, kind)
        addend = state.addend
        spared = moot(state.bounds, scale, zero, kind) and not state.in_floats
        if addend is None or not self.map.type == addend.type == kind or kind.bits != 8 or not spared:
            return quantize_linear(self.table(state), scale, zero, kind)
        wanted = add_constant(self._values(), (state.scale, state.zero), addend, scale, zero)
        if wanted is None:
            raise self.refusal(node, f"scale {scale:g} is so small that sums leave int32 in steps of it")
        return np.clip(wanted, kind.minimum, kind.maximum)

    def add_reals(self, node: onnx.NodeProto, state: Reals, values: np.ndarray, addend: Addend | None = None) -> None:
        """Add ``values``, one a channel, to what every integer has become; ``addend``: what they are quantised."""
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
        """The quantised constant of an Add; ``first``: whether it is the first operand. None if it has many scales."""
        if scale.size != 1 or zero.size != 1 or values.dtype not in TYPES:
            return None
        here = self.map
        spread = values.size < here.channels * here.height * here.width
        by_channel = self.constants.by_channel(node, values, self.view)
        kind = TYPES[values.dtype]
        return Addend(by_channel, np.float32(scale.item()), int(zero.item()), kind, first and not spread)

    def function(self, state: Reals) -> Function:
        """What has been applied to the current map since it was dequantised."""
        return Function(self.constants, self.map, self._values(), state)

    def table(self, state: Reals) -> np.ndarray:
        """What every integer of the current map has become, float32 (channels or 1, integers)."""
        if state.table is not None:
            return state.table
        return ((self._values() - state.zero).astype(np.float32) * state.scale)[None]

    def _values(self) -> np.ndarray:
        """All integers that the current map can hold, int64."""
        low, high = self.range()
        return np.arange(low, high + 1)

    def range(self) -> tuple[int, int]:
        """The least and the greatest integer that the current map can hold."""
        source = self.maker()
        if source is not None:
            return source.low, source.high
        return self.made_map().bounds or (self.map.type.minimum, self.map.type.maximum)

    def made_map(self) -> Map:
        """The map that a layer made, or the network's input, of which the current map is, or was selected."""
        step, found = self.source, self.map
        while step is not None and step.kind.selects:
            found = step.input
            (step,) = step.sources
        return found

    def maker(self) -> Step | None:
        """The layer that made the integers of the current map; ``None`` if they are the input's."""
        step = self.source
        while step is not None and step.kind.selects:
            (step,) = step.sources
        return step

    # Layers.

    def reserve(self, names: Iterable[str]) -> None:
        """Give no layer one of these names."""
        self._names.update(names)

    def _unique(self, node: onnx.NodeProto) -> str:
        name = base = title(node)
        count = 1
        while name in self._names:
            count += 1
            name = f"{base}_{count}"
        self._names.add(name)
        return name

    def emit_conv(
        self, sums: Sums, scale: np.float32 | None, zero: int, kind: IntegerType, low: int, high: int
    ) -> None:
        """A convolution that gives integers from ``low`` to ``high``; without ``scale`` its accumulators."""
        self._count(sums.node, sums.weights.size)
        output = Map(len(sums.weights), *sums.size, kind, zero, scale)
        step = Step(self._unique(sums.node), self.map, output, sums.window, sums.weights, sums.bias)
        step.groups, step.fraction = sums.groups, sums.fraction
        if scale is not None:
            bound = self.bound(step)
            factor = sums.x_scale * sums.w_scale / scale if sums.factor is None else sums.factor
            if not np.isfinite(factor).all():
                raise self.refusal(sums.node, "x_scale * w_scale / y_scale must be finite in float32")
            significand, shift = multiplier(np.ldexp(factor, -sums.fraction), bound)
            significand, shift = (np.broadcast_to(a, len(sums.weights)).copy() for a in (significand, shift))
            step.requantisation = Requantisation(
                significand=significand,
                shift=shift,
                zero_point=zero,
                low=low,
                high=high,
                # Where ONNX Runtime has integer kernels.
                float32=sums.factor is None and max(each.bits for each in (step.input.type, sums.w_type, kind)) <= 8,
            )
            step.low, step.high = low, high
            self._check_reals(step, sums, scale, factor)
            if step.requantisation.float32 and self.optimised:
                self._check_wraps(step, sums)
        self._append(sums.node, step)

    def _check_reals(self, step: Step, sums: Sums, scale: np.float32, factor: np.ndarray) -> None:
        """Hold what integers stand for against float32, in which ONNX Runtime computes some convolutions.

        Where it has an integer kernel, only the quotient of the scales counts: then what overflows is a warning.
        """

        def reach(map_: Map) -> int:
            zero = map_.zero_point or 0
            return max(map_.type.maximum - zero, zero - map_.type.minimum)

        parts = {
            "inputs": (step.input.scale, reach(step.input)),
            "weights": (sums.w_scale.max(), max(int(sums.weights.max()), -int(sums.weights.min()))),
            "outputs": (scale, reach(step.output)),
        }
        large = {
            what: size
            for what, (size, most) in parts.items()
            if size is not None and not np.isfinite(np.float32(size) * np.float32(most))
        }
        rule = step.requantisation
        assert rule is not None
        if rule.float32 and not (sums.bounded or sums.fraction or step.input.type.signed != step.output.type.signed):
            for what, size in large.items():
                self.warnings.append(
                    f"{step.name}: scale {size:g} is so large that its {what} overflow float32; integers are right"
                )
            return
        for what, size in large.items():
            raise self.refusal(sums.node, f"scale {size:g} is so large that its {what} overflow float32{_FLOATS}")
        step_sizes = factor.astype(np.float64) * float(scale)
        if (most := float(step_sizes.max()) * 2.0**-sums.fraction * self.bound(step)) > _FLOAT32.max:
            raise self.refusal(sums.node, f"scales are so large that sums, up to {most:g}, overflow float32{_FLOATS}")
        if (least := float(step_sizes[step_sizes > 0].min(initial=math.inf))) < _FLOAT32.smallest_normal:
            raise self.refusal(
                sums.node, f"scales are so small that products, in steps of {least:g}, lose bits in float32{_FLOATS}"
            )

    def _check_wraps(self, step: Step, sums: Sums) -> None:
        """Refuse sums that may leave int32, in which ONNX Runtime's integer kernels wrap."""
        conv = step.convolution(step.input.frozen())
        positive, negative = conv.signed_sums
        zero, kind = conv.input.zero_point, conv.input.type
        above, below = kind.maximum - zero, kind.minimum - zero
        bias = conv.bias >> conv.fraction
        most, least = bias + positive * above + negative * below, bias + positive * below + negative * above
        beyond = np.flatnonzero((most > _INT32.max) | (least < _INT32.min))
        if len(beyond):
            channel = int(beyond[0])
            end = int(most[channel]) if most[channel] > _INT32.max else int(least[channel])
            raise self.refusal(
                sums.node,
                f"sums of output channel {channel} can reach {end:,} with its bias {int(bias[channel]):,}, beyond "
                "int32, in which ONNX Runtime wraps; biases must be smaller, or weights fewer",
            )

    def _count(self, node: onnx.NodeProto, weights: int) -> None:
        """Note the weights of a layer that is about to be made; all of a network's must stay within `MOST_WEIGHTS`."""
        self._weights += weights
        if self._weights > MOST_WEIGHTS:
            raise self.refusal(
                node,
                f"makes {self._weights:,} weights of the network up to here ({weights:,} by itself); "
                f"at most {MOST_WEIGHTS:,} are supported",
            )

    def bound(self, step: Step) -> int:
        """The largest magnitude of the accumulators of ``step``."""
        return step.convolution(step.input.frozen()).accumulator_bound

    def emit_pool(self, node: onnx.NodeProto, axes: tuple[int, ...]) -> None:
        """A max pool of the current map along some of its ``axes``."""
        here = self.map
        window, size = self.pool_window(node, (here.height, here.width), axes)
        window = self._padded(node, window, here.type.minimum)
        self.emit(node, MaxPool, window, here.sized(here.channels, *size))

    def emit(self, node: onnx.NodeProto, kind: type[Op], window: Window, output: Map, **parameters: Any) -> None:
        """A layer without weights over the current map; ``parameters`` are its kind's own."""
        step = Step(self._unique(node), self.map, output, window, kind=kind, parameters=parameters)
        step.low, step.high = output.type.minimum, output.type.maximum
        self._append(node, step)

    def emit_select(self, node: onnx.NodeProto, index: Sequence[int]) -> None:
        """Channel ``j`` of the current map is now the one that was channel ``index[j]``; any may be missing or repeat.

        One selection behind another is a single one of what the first one takes.
        """
        places = tuple(index)
        if len(places) > MOST_SIDE:
            raise self.refusal(node, f"must have at most {MOST_SIDE:,} output channels, not {len(places):,}")
        if isinstance(self.state, Reals):
            if self.state.for_sums:
                last = title(self.state.steps[-1])
                raise self.refusal(node, f"can't follow {last!r} without a QuantizeLinear between")
            self.state = self.state.selected(np.array(places))
        if places == tuple(range(self.map.channels)):
            return
        if self.source is not None and self.source.kind is Select:
            before = self.source.parameters["index"]
            places = tuple(before[place] for place in places)
            self.merged.append((self.source, node))
            self.map, (self.source,), self.shared = self.source.input, self.source.sources, True
        here = self.map
        if places != tuple(range(here.channels)):
            output = here.sized(len(places), here.height, here.width)
            self.emit(node, Select, Window(kernel=(1, 1)), output, index=places)

    def emit_join(
        self, node: onnx.NodeProto, kind: type[Join], operands: Sequence[Value], output: Map, **parameters: Any
    ) -> None:
        """A layer over several maps; ``parameters`` are its kind's own, ``low`` and ``high`` among them."""
        step = Step(
            self._unique(node), operands[0].map, output, Window(kernel=(1, 1)), kind=kind, parameters=parameters
        )
        step.low, step.high = parameters["low"], parameters["high"]
        step.more = tuple(value.map for value in operands[1:])
        self._append(node, step, tuple(value.source for value in operands))

    def _append(self, node: onnx.NodeProto, step: Step, sources: tuple[Step | None, ...] | None = None) -> None:
        """Add the layer of a node over the current map, or over those of ``sources``; its output is the current map."""
        self.made.setdefault(id(node), []).append(step.name)
        step.sources = (self.source,) if sources is None else sources
        self.steps.append(step)
        # What selects has the bounds of the layer before it, which others may read.
        self.map, self.source, self.shared = step.output, step, self.shared and step.kind.selects

    def _emit_table(
        self,
        node: onnx.NodeProto,
        state: Reals,
        wanted: np.ndarray,
        scale: np.float32,
        zero: int,
        kind: IntegerType,
    ) -> None:
        """A 1x1 convolution of each channel with itself that does what ``wanted`` says, integer by integer.

        ``fit_table`` looks for it, channel by channel. Where it finds none, and where nobody knows a factor, a lookup.
        """
        if state.by_runtime:
            self._emit_lookup(node, wanted, scale, zero, kind)
            return
        channels = self.map.channels
        offset = np.zeros(channels) if state.offset is None else state.offset
        distinct, inverse = np.unique(offset, return_inverse=True)
        if len(wanted) == 1:
            wanted = np.broadcast_to(wanted, (channels, wanted.shape[1]))
        first = np.array([int(np.argmax(inverse == index)) for index in range(len(distinct))])
        every, wanted = wanted, wanted[first]
        values = self._values() - state.zero
        low, high = int(wanted.min()), int(wanted.max())
        found = fit_table(
            values,
            distinct,
            wanted,
            float(state.scale),
            float(scale),
            (zero, low, high),
            max(self.map.type.bits, kind.bits),
        )
        if found is None and max(self.map.type.bits, kind.bits) <= MOST_BITS:
            self._emit_lookup(node, every, scale, zero, kind)
            return
        if found is None:
            raise self.refusal(
                node, f"can't be done in integers: no multiplier gives what it computes at scale {scale}"
            )
        numbers, middle = found
        weights, bias, significand, shift = numbers[:, inverse]
        output = Map(channels, self.map.height, self.map.width, kind, zero, scale)
        rule = Requantisation(significand=significand, shift=shift, zero_point=middle, low=low, high=high)
        self.emit_diagonal(node, weights, bias, rule, output)

    def emit_diagonal(
        self, node: onnx.NodeProto, weights: np.ndarray, bias: np.ndarray, rule: Requantisation, output: Map
    ) -> None:
        """A 1x1 convolution of each channel with itself, with a weight and a bias for each."""
        channels = len(weights)
        self._count(node, channels * channels)
        square = np.diag(weights).reshape(channels, channels, 1, 1)
        step = Step(
            self._unique(node), self.map, output, Window(kernel=(1, 1)), square, bias, rule, rule.low, rule.high
        )
        self._append(node, step)

    def _emit_lookup(
        self, node: onnx.NodeProto, wanted: np.ndarray, scale: np.float32, zero: int, kind: IntegerType
    ) -> None:
        """A table that does what ``wanted`` says; values that the map never holds have their neighbours' entry."""
        here, values = self.map, self._values()
        if (wanted == wanted[:1]).all():
            wanted = wanted[:1]
        every = np.arange(here.type.minimum, here.type.maximum + 1)
        table = wanted[:, np.clip(every, values[0], values[-1]) - values[0]]
        output = Map(here.channels, here.height, here.width, kind, zero, scale)
        self.emit(node, Lookup, Window(kernel=(1, 1)), output, table=table)
        self.steps[-1].low, self.steps[-1].high = int(wanted.min()), int(wanted.max())

    # Windows and sums.

    def leave_in_floats(self) -> None:
        """Note that ONNX Runtime computes the present node in float32, if it stands among dequantised values.

        It moves a DequantizeLinear past some operators (MaxPool, Reshape), so that integer kernels can follow, but not
        past others.
        """
        if isinstance(self.state, Reals | Joined):
            self.state.in_floats = True
        elif isinstance(self.state, Sums):
            self.state.rounded = False

    def follow(self, node: onnx.NodeProto) -> None:
        """Note that ONNX Runtime moves DequantizeLinear and QuantizeLinear past the present node, which leaves values
        as they are."""
        if isinstance(self.state, Reals) and self.state.tensor == node.input[0]:
            self.state.tensor = node.output[0]
        if isinstance(self.state, Reals) and self.state.padded == node.input[0] and node.op_type in _DROPPED:
            self.state.padded = node.output[0]
        elif isinstance(self.state, Sums):
            self.state.moved |= node.op_type not in _DROPPED

    def spatial_axes(self, node: onnx.NodeProto) -> tuple[int, ...]:
        """The axis of the map (1: rows, 2: columns) for each dimension of the value behind its channels.

        Raises ModelError unless channels are the first dimension behind the batch, in the map's order, and each of the
        others is a whole axis.
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
        """Make the current value plain, whose channel ``i`` is the channel ``order[i]`` of its map."""
        if not isinstance(self.state, Integers | Reals):
            raise self.refusal(
                node,
                f"its input's channels are in another order than its map's, as behind a channel shuffle ({self.view}); "
                "it must be quantised first",
            )
        axes = self.view.spatial_axes() or ()
        self.emit_select(node, order.tolist())
        self.view = View.channels_first(self.view.sizes, axes)

    def pool_window(
        self, node: onnx.NodeProto, sizes: tuple[int, int], axes: tuple[int, ...]
    ) -> tuple[Window, tuple[int, int]]:
        """A pool's window over a map of ``sizes`` along some of its ``axes``, and its output's rows and columns."""
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
        """The node's window, and its output's rows and columns."""
        height, width = sizes
        try:
            window = window_of(node, kernel, sizes, tuple(axis - 1 for axis in axes))
        except ConfigError as error:
            raise self.refusal(node, str(error)) from None
        check_window(f"{node.op_type} node {title(node)!r}", window, 1, height, width)
        return window, window.output_size(height, width)

    def accumulate(
        self,
        node: onnx.NodeProto,
        of: Weights,
        bias: np.ndarray,
        x_scale: np.float32,
    ) -> Sums:
        """The sums of a Conv-like node over the current map, weights as (M, C // groups, Kh, Kw) or (.., K)."""
        weights = of.values
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
                node, f"weights must be for {channels // groups} channels{of_a_group}, not {weights.shape[1]}"
            )
        kernel = tuple(attribute(node, "kernel_shape", weights.shape[2:]))
        if kernel != weights.shape[2:]:
            raise self.refusal(
                node, f"kernel_shape must be that of the weights, {by(weights.shape[2:])}, not {by(kernel)}"
            )
        if len(weights) > MOST_SIDE:
            raise self.refusal(node, f"must have at most {MOST_SIDE:,} output channels, not {len(weights):,}")
        window, size = self._window(node, kernel, (self.map.height, self.map.width), axes)
        self.view = View.channels_first((len(weights), *size), axes)
        if axes[0] == COLUMNS:
            weights = weights.swapaxes(2, 3) if len(axes) == 2 else weights
        weights = weights.reshape(*weights.shape[:2], *window.kernel)
        window = self._padded(node, window, self.map.zero_point)
        return Sums(node, window, weights, bias, x_scale, of.scale, of.type, size, groups=groups)

    def _padded(self, node: onnx.NodeProto, window: Window, value: int | None) -> Window:
        """A window over the current map, or one with more padding over the map that a Pad with this value takes."""
        pad = self.source
        if pad is None or pad.kind is not Pad or pad.parameters["value"] != value or min(pad.window.padding) < 0:
            return window
        if isinstance(self.state, Reals) and self.state.arithmetic is not None and self.state.arithmetic.offset.any():
            return window  # what is added goes to what was padded, too, but not to what a convolution pads
        self.map, (self.source,) = pad.input, pad.sources
        self.merged.append((pad, node))
        top, left, bottom, right = (sum(both) for both in zip(window.padding, pad.window.padding, strict=True))
        return replace(window, padding=(top, left, bottom, right))

    def multiply(
        self,
        node: onnx.NodeProto,
        of: Weights,
        bias: np.ndarray,
        x_scale: np.float32,
    ) -> Sums:
        """The sums of a product along the last dimension, weights as (M, values of it).

        It is a convolution whose kernel is the whole map if the value has two dimensions, otherwise that part of it
        which lies in the last one.
        """
        matrix, part = of.values, self.view.product()
        if part is None or ("Gemm" in node.op_type and len(self.view.dims) > 1):
            raise self.refusal(
                node,
                "must follow Flatten (or a Reshape to two dimensions), or multiply along a last dimension that holds "
                f"all channels; its input is laid out as {self.view}",
            )
        if matrix.ndim != 2 or matrix.shape[1] != part.size:
            raise self.refusal(node, f"matrix must have {part.size} rows, one an input value, not {matrix.shape[-1]}")
        if len(matrix) > MOST_SIDE:
            raise self.refusal(node, f"must have at most {MOST_SIDE:,} outputs, not {len(matrix):,}")
        self.view = self.view.multiplied(len(matrix))
        kernel = part.sizes[1:]
        weights, window = part.layout.to_maps(matrix), Window(kernel=kernel, stride=kernel)
        return Sums(node, window, weights, bias, x_scale, of.scale, of.type, self.view.sizes[1:])


def moot(bounds: Sequence[tuple[float, float]], scale: np.float32, zero: int, kind: IntegerType) -> bool:
    """Whether these bounds leave all that a quantiser can tell apart, so that ONNX Runtime drops them."""
    limits = (np.array([kind.minimum, kind.maximum], np.float32) - np.float32(zero)) * scale
    return all(low - limits[0] <= _SLACK and limits[1] - high <= _SLACK for low, high in bounds)
