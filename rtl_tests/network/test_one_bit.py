"""Maps of -1 and 1 through layers of other kinds than convolutions: against the ``qonnx`` package, and in hardware."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from dialects import QONNX, Dialect, by_qonnx, maps

import hwgen

FRAMES = 3


def signs(net: Dialect, channels: int, *, pads: int = 1, group: int = 1) -> Dialect:
    """A 3x3 convolution of weights of -1 and 1, and the signs of its sums."""
    before, rows, columns = net.shape
    kernels = net.constant(net.rng.normal(0, 1, (channels, before // group, 3, 3)))
    weights = net.node("BipolarQuant", kernels, net.constant(1), domain=QONNX)
    net.tensor = net.node("Conv", net.tensor, weights, kernel_shape=[3, 3], pads=[pads] * 4, group=group)
    net.shape = (channels, rows + 2 * pads - 2, columns + 2 * pads - 2)
    net.tensor = net.node("BipolarQuant", net.tensor, net.constant(1), domain=QONNX)
    return net


def two_maps(net: Dialect) -> tuple[str, str]:
    """Two maps of signs of the same map."""
    before, shape = net.tensor, net.shape
    first = signs(net, 4).tensor
    net.tensor, net.shape = before, shape
    return first, signs(net, 4).tensor


def concatenated(net: Dialect) -> Dialect:
    net.tensor = net.quantised(net.node("Concat", *two_maps(net), axis=1), 1, 2)
    net.shape = (8, *net.shape[1:])
    return signs(net, 5)


def joined(operator: str) -> Callable[[Dialect], Dialect]:
    def make(net: Dialect) -> Dialect:
        net.tensor = net.quantised(net.node(operator, *two_maps(net)), 1, 3)
        return signs(net, 5)

    return make


def upsampled(net: Dialect) -> Dialect:
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    net.tensor = net.node("Resize", signs(net, 4).tensor, "", net.constant([1, 1, 2, 2]), **how)
    net.shape = (4, 2 * net.shape[1], 2 * net.shape[2])
    return signs(net, 5, pads=0)


def cropped(net: Dialect) -> Dialect:
    ends = ([1, 1], [5, 5], [2, 3])
    net.tensor = net.node("Slice", signs(net, 4).tensor, *(net.constant(values, np.int64) for values in ends))
    net.shape = (4, 4, 4)
    return signs(net, 5)


def averaged(net: Dialect) -> Dialect:
    net.tensor = net.quantised(net.node("GlobalAveragePool", signs(net, 4).tensor), 2.0**-5, 6)
    net.shape = (4, 1, 1)
    return net


NETS: dict[str, tuple[Callable[[Dialect], Dialect], str]] = {
    "pool": (lambda net: signs(signs(net, 4).pool(), 5), "MaxPool"),
    "depthwise": (lambda net: signs(signs(net, 4), 4, pads=0, group=4), "Conv"),
    "concatenation": (concatenated, "Concat"),
    "addition": (joined("Add"), "Add"),
    "product": (joined("Mul"), "Mul"),
    "upsampling": (upsampled, "Upsample"),
    "crop": (cropped, "Crop"),
    "average": (averaged, "GlobalAveragePool"),
}


@pytest.mark.parametrize(
    "name",
    [name if name == "product" else pytest.param(name, marks=pytest.mark.long) for name in NETS],
)
@pytest.mark.parametrize("multipliers", ["dsp", pytest.param("lut", marks=pytest.mark.long)])
def test_signs(name: str, multipliers: str, tmp_path: Path) -> None:
    """Values and cycles of the hardware, and the package's values."""
    make, kind = NETS[name]
    net = Dialect("qonnx", 0, shape=(3, 6, 6))
    net.tensor = net.quantised(net.tensor, 0.5, 3)
    net = make(net)
    onnx.save(net.model(), tmp_path / "network.onnx")
    model, frames = hwgen.load(tmp_path / "network.onnx"), net.frames(FRAMES)
    assert type(model.network.layers[-1 if kind in ("Conv", "GlobalAveragePool") else -2]).__name__ == kind
    assert maps(model.network)[1] in ("uint1", "int2", "int3")
    result = model.plan("zedboard", dsp=60, multipliers=multipliers).simulate(frames, simulator="amaranth")
    assert result.mismatches == 0
    assert (result.latency, result.interval) == (result.predicted_latency, result.predicted_interval)
    theirs = by_qonnx(net.fixed(FRAMES), frames)
    np.testing.assert_array_equal(result.outputs, theirs)
    assert len(np.unique(theirs)) > 1
