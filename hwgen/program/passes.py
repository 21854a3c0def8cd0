"""Layers as the engine computes them: each is one pass over its maps, or several, or none where only addresses move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwgen.errors import ModelError
from hwgen.gateware.engine.config import LANES, STRIDES, EngineConfig
from hwgen.network.maps import FeatureMap, Window
from hwgen.network.ops import Conv, GlobalAveragePool, MaxPool, Op
from hwgen.network.requantise import Requantisation
from hwgen.program.layout import blocks, offset

#: Weights of two maps share a DSP slice.
MOST_WEIGHT = 127
#: What a job's fields count, kernels and dilations: 8 bits.
MOST_TAPS = 255


@dataclass(frozen=True, kw_only=True, eq=False)
class Parameters:
    """What makes outputs of a pass's sums: bias int64 ``(M,)``, and the requantisation, in the signed form."""

    bias: np.ndarray
    requantisation: Requantisation


@dataclass(frozen=True, kw_only=True, eq=False)
class Pass:
    """A convolution or a channelwise operation, on whole blocks of its maps.

    Parameters
    ----------
    name : str
        Of the layer.
    sources : tuple of (str, int)
        The maps that are read, by their edges, and the first block of each.
    target : tuple of (str, int)
        The map that is written, and its first block.
    height, width : int
        Of the maps that are read.
    channels : int
        That each fold reads: all of a convolution's, 8 of a channelwise pass.
    maps : int
        Output channels.
    window : Window
    rows, columns : int
        Of the map that is written.
    pad : int
        What windows read beyond the map, signed.
    channelwise, maximum : bool
        Kind of the steps.
    weights : ndarray or None
        int64 ``(M, C, Kh, Kw)``, C being 1 of channelwise passes; ``None`` if not known. Of 8 maps, if all folds of a
        channelwise pass have the same.
    parameters : Parameters or None
        ``None`` if not known; of 8 maps likewise.
    """

    name: str
    sources: tuple[tuple[str, int], ...]
    target: tuple[str, int]
    height: int
    width: int
    channels: int
    maps: int
    window: Window
    rows: int
    columns: int
    pad: int
    weights: np.ndarray | None
    parameters: Parameters | None
    channelwise: bool = False
    maximum: bool = False

    def fold_maps(self, engine: EngineConfig) -> int:
        """Output channels of a fold."""
        return LANES if self.channelwise else engine.maps

    def folds(self, engine: EngineConfig) -> int:
        return -(-self.maps // self.fold_maps(engine))

    @property
    def stride(self) -> int:
        return self.window.stride[0]

    @property
    def shape(self) -> tuple[object, ...]:
        """All that its jobs depend on but addresses: equal for two passes that are cut alike."""
        sizes = (self.height, self.width, self.channels, self.maps, self.rows, self.columns, self.window)
        kinds = (len(self.sources), self.channelwise, self.shares_weights, self.shares_parameters)
        return (*sizes, *kinds)

    @property
    def shares_weights(self) -> bool:
        """Whether all folds have the same."""
        return self.channelwise and self.weights is not None and len(self.weights) <= LANES

    @property
    def shares_parameters(self) -> bool:
        """Whether all folds have the same."""
        return self.channelwise and self.parameters is not None and len(self.parameters.bias) <= LANES

    def needed(self, axis: int, begin: int, end: int) -> tuple[int, int]:
        """Rows (axis 0) or columns of the input for outputs ``begin`` to ``end``: one at least, and none beyond it."""
        limit = (self.height, self.width)[axis]
        first, last = self.window.reach(axis, begin, end)
        first = min(max(first, 0), limit - 1)
        return first, max(min(last, limit), first + 1)


def passes(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    """The passes of a layer that takes these maps.

    Raises
    ------
    ModelError
        If the engine can't compute it exactly, with the reason.
    """
    make = _PASSES.get(type(op))
    if make is None:
        raise ModelError(f"{op.name}: the engine has no {op.kind}; layers that it computes are {', '.join(kinds())}")
    for each in (*op.inputs, op.output):
        if each.type.bits > LANES:
            raise ModelError(f"{op.name}: the engine computes with values of at most 8 bits, not with a map of {each}")
    _check_window(op)
    return make(op, edges)


def kinds() -> list[str]:
    """Kinds of layers that the engine computes."""
    return [kind.kind for kind in _PASSES]


def _check_window(op: Op) -> None:
    window = op.window
    if window.kernel == window.extent == op.input.shape[1:] and op.output.shape[1:] == (1, 1):
        stride = (1, 1)
    else:
        stride = window.stride
    if stride[0] != stride[1] or stride[0] not in STRIDES:
        raise ModelError(f"{op.name}: the engine takes strides of 1 to {STRIDES[-1]}, the same both ways, not {stride}")
    if max(*window.kernel, *window.dilation) > MOST_TAPS:
        raise ModelError(f"{op.name}: the engine takes kernels and dilations of at most {MOST_TAPS}, not {window}")


def _window(op: Op) -> Window:
    """Its window; of one output only, strides say nothing."""
    window = op.window
    if op.output.shape[1:] == (1, 1):
        return Window(kernel=window.kernel, padding=window.padding, dilation=window.dilation)
    return window


def _geometry(op: Op, source: FeatureMap) -> dict[str, Any]:
    """What every pass of a layer has."""
    return {
        "name": op.name,
        "height": source.height,
        "width": source.width,
        "window": _window(op),
        "rows": op.output.height,
        "columns": op.output.width,
        "pad": op.pad_value - offset(source.type),
    }


def _signed(rule: Requantisation, kind: Any) -> Requantisation:
    """To values in the signed form."""
    less = offset(kind)
    return Requantisation(
        significand=rule.significand,
        shift=rule.shift,
        zero_point=rule.zero_point - less,
        low=rule.low - less,
        high=rule.high - less,
        float32=True,
    )


def _conv(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    assert isinstance(op, Conv)
    known = op.requantisation is not None
    parameters = None
    if known:
        _check_weights(op)
        zero = op.input.zero_point - offset(op.input.type)
        bias = op.bias - zero * op.weights.sum(axis=(1, 2, 3))
        parameters = Parameters(bias=bias, requantisation=_checked(op, op.requantisation, bias))
    (edge,) = edges
    if op.groups > 1 and op.groups == op.channels == op.outputs:
        whole = Pass(
            sources=((edge, 0),),
            target=(op.name, 0),
            channels=LANES,
            maps=op.outputs,
            weights=op.weights if known else None,
            parameters=parameters,
            channelwise=True,
            **_geometry(op, op.input),
        )
        return (whole,)
    return tuple(_group(op, edge, group, parameters) for group in range(op.groups))


def _group(op: Conv, edge: str, group: int, parameters: Parameters | None) -> Pass:
    channels, maps = op.channels // op.groups, op.outputs // op.groups
    if op.groups > 1 and (channels % LANES or maps % LANES):
        raise ModelError(
            f"{op.name}: the engine takes groups of multiples of {LANES} channels, or of one channel each, "
            f"not {op.groups} groups of {channels} to {maps}"
        )
    those = slice(group * maps, (group + 1) * maps)
    rule = parameters and Parameters(bias=parameters.bias[those], requantisation=parameters.requantisation.of(those))
    return Pass(
        sources=((edge, group * blocks(channels)),),
        target=(op.name, group * blocks(maps)),
        channels=channels,
        maps=maps,
        weights=op.weights[those] if parameters else None,
        parameters=rule,
        **_geometry(op, op.input),
    )


def _check_weights(op: Conv) -> None:
    low, high = op.weight_range
    if low < -MOST_WEIGHT or high > MOST_WEIGHT:
        beyond = (op.weights < -MOST_WEIGHT) | (op.weights > MOST_WEIGHT)
        channel = int(np.flatnonzero(beyond.any(axis=(1, 2, 3)))[0])
        raise ModelError(
            f"{op.name}: weights must be from -{MOST_WEIGHT} to {MOST_WEIGHT} in the engine, as two share a DSP slice; "
            f"output channel {channel} has {int(op.weights[channel][beyond[channel]][0])}"
        )
    if op.fraction:
        raise ModelError(f"{op.name}: the engine can't add a bias finer than its products (by {op.fraction} bits)")


def _checked(op: Op, rule: Requantisation | None, bias: np.ndarray) -> Requantisation:
    """The requantisation in the signed form, if the engine has its like."""
    assert rule is not None
    if not rule.float32:
        raise ModelError(f"{op.name}: the engine rounds to float32, as integer kernels of 8 bits do")
    if max(int(bias.max()), -int(bias.min()) - 1) >= 1 << 31:
        raise ModelError(f"{op.name}: biases must fit 32 bits with the zero point folded in, not {np.abs(bias).max()}")
    return _signed(rule, op.output.type)


def _max_pool(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    kind, less = op.output.type, offset(op.output.type)
    one = Requantisation(
        significand=np.full(LANES, 1 << 23),
        shift=np.full(LANES, 23),
        zero_point=0,
        low=kind.minimum - less,
        high=kind.maximum - less,
        float32=True,
    )
    parameters = Parameters(bias=np.zeros(LANES, np.int64), requantisation=one)
    return (_pool(op, edges, parameters, maximum=True),)


def _global_average(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    assert isinstance(op, GlobalAveragePool)
    zero = op.input.zero_point - offset(op.input.type)
    bias = np.full(op.outputs, -zero * op.taps)
    rule = _checked(op, op.requantisation, bias)
    return (_pool(op, edges, Parameters(bias=bias, requantisation=rule)),)


def _pool(op: Op, edges: Sequence[str], parameters: Parameters, *, maximum: bool = False) -> Pass:
    (edge,) = edges
    return Pass(
        sources=((edge, 0),),
        target=(op.name, 0),
        channels=LANES,
        maps=op.outputs,
        weights=np.ones((LANES, 1, *op.window.kernel), np.int64),
        parameters=parameters,
        channelwise=True,
        maximum=maximum,
        **_geometry(op, op.input),
    )


_PASSES: dict[type[Op], Callable[[Op, Sequence[str]], tuple[Pass, ...]]] = {
    Conv: _conv,
    MaxPool: _max_pool,
    GlobalAveragePool: _global_average,
}
