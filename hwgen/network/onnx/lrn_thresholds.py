"""Import of ONNX LRN (local response normalisation), computed in float32 as ONNX Runtime computes it.

The sum of squares needs float32 additions only (`Scale`). hwgen has no formula for the rest, the power above all.
Instead ONNX Runtime's own LRN is run to locate the scales where the output changes (`Falls`), by bisection and then by
all scales around. Its power can be off by one unit. An output can therefore return for a few scales after such a fall.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

from hwgen.errors import ConfigError
from hwgen.network.maps import IntegerType, Window
from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.file import attribute
from hwgen.network.onnx.joins import bounds
from hwgen.network.onnx.qdq import plain_operand
from hwgen.network.onnx.runtime import session
from hwgen.network.onnx.values import Joined, Map
from hwgen.network.ops import LRN, Lookup
from hwgen.network.ops.join import MAX_BITS
from hwgen.network.ops.lrn import RIPPLE, Falls, Scale, from_bits, magnitudes

#: Accepted ranges (low, high) of LRN's attributes: all intermediate results are normal float32 numbers within them.
_ALPHAS, _BETAS, _BIASES = (1e-12, 1e6), (0.01, 4.0), (1e-6, 1e6)

#: Input value so small that adding its square does not change any scale of LRN.
_TINY = np.float32(2.0**-40)

_OPSET = 17
"""Version of ONNX's operator set in the small LRN models that are run to tabulate LRN's outputs."""


def tabulate_falls(scale: Scale, beta: float, x_scale: np.float32, y_scale: np.float32, limit: int) -> Falls:
    """Return `Falls`: by the input's magnitude, the sums (bases of LRN's power) where LRN's output drops.

    The output is its distance from the zero point, which saturates at ``limit``.

    Raises
    ------
    ConfigError
        If the power changes so slowly that an output comes and goes over more than `RIPPLE` scales.
    """
    x = np.arange(len(scale.terms)).astype(np.float32) * x_scale
    outputs = _Outputs(x, y_scale, limit, _Power(beta))
    # Scales where ONNX Runtime's power can be off by a unit, to either side, are within half of this distance.
    reach = int(np.ceil(8 / beta))
    low, high = scale.ranges[0] - reach, scale.ranges[1] + reach
    lowest, highest = (outputs.of(np.arange(len(x)), end) for end in (high, low))
    counts = highest - lowest
    owner = np.repeat(np.arange(len(x)), counts)
    # The outputs of a magnitude from the greatest one down, without the last.
    left = np.concatenate(
        [np.zeros(0, np.int64), *(np.arange(end, begin, -1) for begin, end in zip(lowest, highest, strict=True))]
    )
    first = np.concatenate([[0], np.cumsum(counts)])
    falling = _bisect_first_bases(outputs, owner, left, low[owner], high[owner])
    at, ripples = _search_exceptions(outputs, owner, left, falling, reach)
    return Falls(last_distance=lowest, first=first, at=at, ripples=ripples)


def _bisect_first_bases(
    outputs: _Outputs, owner: np.ndarray, left: np.ndarray, before: np.ndarray, after: np.ndarray
) -> np.ndarray:
    """Return an array of the first bases (float32 bits) of LRN's power whose output is below ``left``, by bisection."""
    while (after - before > 1).any():
        middle = (before + after) // 2
        is_reached = outputs.of(owner, middle) >= left
        before, after = np.where(is_reached, middle, before), np.where(is_reached, after, middle)
    return after


def _search_exceptions(
    outputs: _Outputs, owner: np.ndarray, left: np.ndarray, falling: np.ndarray, reach: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return a pair of arrays: first bases with an output below ``left``, and bit masks of later ones that aren't.

    Bit ``i`` of a mask is set if the output is not below ``left`` at the ``i``-th base after the first one.
    """
    near = falling[:, None] + np.arange(-reach, RIPPLE + reach)
    is_reached = outputs.of(owner[:, None], near) >= left[:, None]
    first = np.argmin(is_reached, axis=1)
    since = np.arange(near.shape[1]) - first[:, None]
    if not is_reached[:, :1].all() or (is_reached & (since >= RIPPLE)).any():
        raise ConfigError(f"beta is so small that outputs come and go over more than {RIPPLE} scales")
    bits = np.where(is_reached & (since >= 0), 1 << np.clip(since, 0, RIPPLE), 0)
    return falling - reach + first, bits.sum(axis=1)


@dataclass(frozen=True)
class _Outputs:
    """Function that computes LRN outputs by ONNX Runtime, as distances from the output's zero point."""

    x: np.ndarray
    """Array of the real value (float32) of each distance of an input from its zero point."""
    y_scale: np.float32
    limit: int
    power: _Power

    def of(self, sizes: np.ndarray, bits: np.ndarray) -> np.ndarray:
        """Return LRN outputs, int64, for input magnitudes ``sizes`` and float32 bases of the power, given as bits."""
        with np.errstate(over="ignore"):
            real = self.power.of(bits) * self.x[sizes]
            return np.minimum(np.rint(real / self.y_scale), self.limit).astype(np.int64)


@dataclass(frozen=True)
class _Power:
    """ONNX Runtime's float32 power ``scale ** -beta``, found bit for bit by running its LRN on three channels.

    The middle channel is almost 0, so that only the others' squares make the scale.
    """

    beta: float

    def of(self, bits: np.ndarray) -> np.ndarray:
        """Return the powers ``scale ** -beta``, float32, of LRN's bases ``scale``, given as bits of float32 numbers."""
        scales = from_bits(bits.ravel())
        powers = np.empty_like(scales)
        _, exponents = np.frexp(scales)
        for exponent in np.unique(exponents):
            chosen = exponents == exponent
            powers[chosen] = self._powers_to_next(np.ldexp(np.float32(0.5), exponent), scales[chosen])
        return powers.reshape(bits.shape)

    def _powers_to_next(self, bias: np.float32, scales: np.ndarray) -> np.ndarray:
        """Return an array of powers ``scale ** -beta``, for scales from ``bias`` (a power of two) to below twice it."""
        # The kernel computes the last numbers of a tensor, three at most, in other code.
        wanted = np.resize(scales, max(len(scales), 4))
        # Each scale is the bias plus two squares. The greater square approaches the scale from below.
        great = np.sqrt(wanted - bias)
        for _ in range(2):
            great = np.where(great > 0, np.nextafter(great, np.float32(0)), great)
        close = bias + great * great
        small = np.sqrt(wanted - close)
        assert (close + small * small == wanted).all()
        x = np.stack([great, np.full_like(great, _TINY), small])[None, :, None, :]
        return _normalised(x, self.beta, float(bias))[0, 1, 0, : len(scales)] / _TINY


def _normalised(x: np.ndarray, beta: float, bias: float) -> np.ndarray:
    """Return the output of ONNX Runtime's LRN, with windows of three channels, for values ``(1, C, H, W)``.

    The attribute alpha makes each scale the bias plus the sum of the squares.
    """
    node = helper.make_node("LRN", ["x"], ["y"], size=3, alpha=3.0, beta=beta, bias=bias)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in "xy"]
    model = helper.make_model(
        helper.make_graph([node], "lrn", ends[:1], ends[1:]), opset_imports=[helper.make_opsetid("", _OPSET)]
    )
    model.ir_version = 8
    (y,) = session(model.SerializeToString()).run(None, {"x": x})
    return np.asarray(y)


def _lrn(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX LRN between DequantizeLinear and QuantizeLinear as one layer, whose outputs are tabulated."""
    state = plain_operand(build, node)
    if len(build.spatial_axes(node)) != 2:
        raise build.refusal(node, "must take tensors of four dimensions, as ONNX Runtime asks")
    size, alpha = int(attribute(node, "size", 0)), np.float32(attribute(node, "alpha", 1e-4))
    beta, bias = (np.float32(attribute(node, name, usual)) for name, usual in (("beta", 0.75), ("bias", 1.0)))
    if size < 1 or size % 2 == 0:
        raise build.refusal(node, f"size must be odd and positive, as ONNX Runtime asks, not {size}")
    for name, value, (low, high) in (("alpha", alpha, _ALPHAS), ("beta", beta, _BETAS), ("bias", bias, _BIASES)):
        if not low <= value <= high:
            raise build.refusal(node, f"{name} must be from {low:g} to {high:g}, not {value:g}")
    if build.map.type.bits > MAX_BITS:
        raise build.refusal(
            node, f"its input must have at most {MAX_BITS} bits for a table of all values, not {build.map.type}"
        )
    operand = build.value

    def make(joined: Joined, y_scale: np.float32, zero: int, integer_type: IntegerType) -> None:
        build.enter(operand)
        here = build.map
        output = Map(here.channels, here.height, here.width, integer_type, zero, y_scale)
        if integer_type.bits > MAX_BITS:
            raise build.refusal(node, f"its output must have at most {MAX_BITS} bits, not {integer_type}")
        low, high = bounds(joined.bounds, output)
        sizes = np.arange(magnitudes(here.type.minimum, here.type.maximum, state.zero)).astype(np.float32)
        x = sizes * state.scale
        try:
            terms = alpha / np.float32(size) * (x * x)
            scale = Scale(bias=float(bias), size=size, channels=here.channels, terms=terms)
            output_falls = tabulate_falls(scale, float(beta), state.scale, y_scale, max(high - zero, zero - low))
        except ConfigError as error:
            raise build.refusal(node, str(error)) from None
        _emit(build, node, output, scale, output_falls, low, high)

    build.state = Joined(node, make)


def _emit(build: Builder, node: onnx.NodeProto, output: Map, scale: Scale, falls: Falls, low: int, high: int) -> None:
    """Append an LRN layer, or a lookup table if no output depends on neighbouring channels."""
    window, here = Window(kernel=(1, 1)), build.map
    if len(falls.at):
        build.emit(node, LRN, window, output, scale=scale, falls=falls, low=low, high=high)
    else:  # the output doesn't depend on the channels around
        values = np.arange(here.type.minimum, here.type.maximum + 1) - (here.zero_point or 0)
        table = np.clip((output.zero_point or 0) + np.sign(values) * falls.last_distance[np.abs(values)], low, high)
        build.emit(node, Lookup, window, output, table=table[None])
    build.steps[-1].low, build.steps[-1].high = low, high


OPERATORS = {"LRN": _lrn}
"""Dictionary of functions that import LRN, by the ONNX operator's name."""
