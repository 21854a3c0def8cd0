"""QONNX's Trunc against the ``qonnx`` package: of feature maps, and of sums of average pools, as in Brevitas."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from dialects import QONNX, tensors_by_qonnx
from hypothesis import HealthCheck, given, settings
from onnx import TensorProto, helper, numpy_helper

import hwgen
from hwgen.network import golden, host
from hwgen.network.onnx.importer import to_network
from hwgen.network.quantise import prepare_inputs

SIGNED_MODES = ("FLOOR", "CEIL", "ROUND", "HALF_EVEN")
MODES = (*SIGNED_MODES, "UP", "DOWN", "HALF_UP", "HALF_DOWN")


class Truncated:
    """Writer of a model: a Quant, an average times its number of pixels or nothing, a Trunc, and a convolution."""

    def __init__(self, *, bits: int, signed: bool, shape: tuple[int, int, int] = (3, 6, 6), scale: float = 0.0713):
        self.bits, self.signed, self.shape, self.scale = bits, signed, shape, np.float32(scale)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.version = 1
        flags = {"signed": int(signed), "narrow": 0, "rounding_mode": "ROUND"}
        self.tensor = self.add("Quant", "x", self.scale, np.float32(0), np.float32(bits), domain=QONNX, **flags)

    def add(self, operator: str, tensor: str, *constants: np.generic | np.ndarray, **attributes) -> str:
        names = [f"c{len(self.constants) + index}" for index in range(len(constants))]
        self.constants += [
            numpy_helper.from_array(np.asarray(value), name) for value, name in zip(constants, names, strict=True)
        ]
        output = f"t{len(self.nodes)}"
        name = f"{operator.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, [tensor, *names], [output], name=name, **attributes))
        return output

    def summed(self, operator: str, count: int, **attributes) -> None:
        self.tensor = self.add("Mul", self.add(operator, self.tensor, **attributes), np.float32(count))

    def truncate(self, first: int, last: int, mode: str, *, scale: float | None = None, zero: int = 0) -> None:
        given = self.scale if scale is None else np.float32(scale)
        constants = given, np.float32(zero), np.float32(first), np.float32(last)
        self.tensor = self.add("Trunc", self.tensor, *constants, domain=QONNX, rounding_mode=mode)

    def truncate_to_scale(self, shift: int, last: int, mode: str, *, signed: bool, narrow: bool) -> None:
        """Version 2, with an output scale."""
        self.version = 2
        output_scale = np.float32(self.scale * np.float32(2.0**shift))
        constants = self.scale, np.float32(0), np.float32(8), output_scale, np.float32(last)
        flags = {"signed": int(signed), "narrow": int(narrow), "rounding_mode": mode}
        self.tensor = self.add("Trunc", self.tensor, *constants, domain=QONNX, **flags)

    def convolve(self) -> None:
        weights = np.random.default_rng(2).integers(-3, 4, (4, self.shape[0], 1, 1)).astype(np.float32)
        flags = {"signed": 1, "narrow": 0, "rounding_mode": "ROUND"}
        quantised = self.add("Quant", "w", np.float32(1), np.float32(0), np.float32(4), domain=QONNX, **flags)
        self.constants.append(numpy_helper.from_array(weights, "w"))
        self.nodes.append(helper.make_node("Conv", [self.tensor, quantised], ["sums"], name="conv"))
        self.tensor = self.add("Quant", "sums", np.float32(0.37), np.float32(0), np.float32(8), domain=QONNX, **flags)

    def model(self, batch: int) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "truncated",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, *self.shape])],
            [helper.make_tensor_value_info(self.tensor, TensorProto.FLOAT, [None] * 4)],
            self.constants,
        )
        imports = [helper.make_opsetid("", 13), helper.make_opsetid(QONNX, self.version)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)

    def frames(self, count: int) -> np.ndarray:
        random = np.random.default_rng(5)
        middle = 0 if self.signed else 1 << self.bits - 1
        offsets = random.normal(middle, 1 << self.bits - 2, (count, self.shape[0], 1, 1))
        return ((random.normal(0, 1 << self.bits - 3, (count, *self.shape)) + offsets) * self.scale).astype(np.float32)

    def check(self, count: int = 40) -> list[str]:
        """Every value equals the package's; return the kinds of layers."""
        x = self.frames(count)
        theirs = tensors_by_qonnx(self.model(count), x)[self.tensor]
        network = to_network(self.model(count), "network")
        ours = host.outputs(network, golden.run(network, prepare_inputs(network, x)), 0)
        assert len(np.unique(theirs)) > 2
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        return [layer.kind for layer in network.layers]


POOLS = {
    "windows": ("AveragePool", 4, {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "uneven": ("AveragePool", 6, {"kernel_shape": [2, 3], "strides": [1, 2]}),
    "padded": ("AveragePool", 9, {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1}),
    "whole": ("GlobalAveragePool", 36, {}),
}


@pytest.mark.parametrize(("pool", "mode"), [([*POOLS][index % 4], mode) for index, mode in enumerate(MODES)])
def test_sums_of_averages(pool: str, mode: str) -> None:
    operator, count, attributes = POOLS[pool]
    net = Truncated(bits=4, signed=False)
    net.summed(operator, count, **attributes)
    net.truncate(4 + (count - 1).bit_length(), 4, mode)
    net.convolve()
    assert net.check() == ["conv", "conv"]


@pytest.mark.parametrize("mode", SIGNED_MODES)
def test_signed_sums(mode: str) -> None:
    net = Truncated(bits=5, signed=True)
    net.summed("AveragePool", 4, kernel_shape=[2, 2])
    net.truncate(7, 5, mode)
    net.check()


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_maps(data: st.DataObject) -> None:
    """Both versions, of maps that are not summed."""
    signed = data.draw(st.booleans())
    bits = data.draw(st.integers(3, 8))
    mode = data.draw(st.sampled_from(SIGNED_MODES if signed else MODES))
    net = Truncated(bits=bits, signed=signed, shape=(2, 3, 4), scale=data.draw(st.sampled_from([0.0713, 0.25, 1.7])))
    shift = data.draw(st.integers(0, bits - 2))
    if data.draw(st.booleans()):
        net.truncate(bits, bits - shift, mode)
    else:
        last = data.draw(st.integers(2, 6))
        net.truncate_to_scale(shift, last, mode, signed=signed, narrow=data.draw(st.booleans()))
    if data.draw(st.booleans()):
        net.convolve()
    net.check(30)


def _signed_half_up(net: Truncated) -> None:
    net.truncate(4, 2, "HALF_UP")


def _other_scale(net: Truncated) -> None:
    net.truncate(4, 2, "FLOOR", scale=0.05)


def _zero_point(net: Truncated) -> None:
    net.truncate(4, 2, "FLOOR", zero=1)


def _mean(net: Truncated) -> None:
    net.tensor = net.add("GlobalAveragePool", net.tensor)
    net.truncate(9, 4, "FLOOR")


def _sum_of_maps(net: Truncated) -> None:
    net.nodes.append(helper.make_node("Add", [net.tensor, net.tensor], ["sum"], name="sum"))
    net.tensor = "sum"
    net.truncate(5, 4, "FLOOR")


def _uncounted(net: Truncated) -> None:
    net.summed("AveragePool", 9, kernel_shape=[3, 3], pads=[1] * 4)
    net.truncate(9, 4, "FLOOR")


def _large(net: Truncated) -> None:
    net.tensor = net.add("Quant", "x", net.scale, np.float32(0), np.float32(15), domain=QONNX, rounding_mode="ROUND")
    net.summed("AveragePool", 81, kernel_shape=[9, 9], pads=[4] * 4, count_include_pad=1)
    net.truncate(22, 15, "FLOOR")


def _growing(net: Truncated) -> None:
    net.truncate(4, 6, "FLOOR")


@pytest.mark.long
def test_in_hardware(tmp_path) -> None:
    net = Truncated(bits=4, signed=False)
    net.summed("AveragePool", 4, kernel_shape=[2, 2], strides=[2, 2])
    net.truncate(6, 4, "FLOOR")
    net.convolve()
    onnx.save(net.model(3), tmp_path / "network.onnx")
    result = hwgen.load(tmp_path / "network.onnx").plan("zedboard").simulate(net.frames(3), simulator="amaranth")
    assert result.mismatches == 0
    assert result.as_predicted


OTHERWISE = ".*; or quantise the average or the sum in front of it anew, by a Quant with ROUND$"
REFUSED = {
    _signed_half_up: "Trunc node 'trunc1': rounding_mode HALF_UP of numbers below 0 is not supported; FLOOR, CEIL and ",
    _other_scale: "Trunc node 'trunc1': scale must be that of the integers in front, 0.0713, not 0.05" + OTHERWISE,
    _zero_point: "Trunc node 'trunc1': must have one scale, and no zero point" + OTHERWISE,
    _mean: "Trunc node 'trunc2': scale must be that of the integers in front, 0.00198056, not 0.0713" + OTHERWISE,
    _sum_of_maps: "Trunc node 'trunc2': must follow a Quant without zero point, or an average of one that is "
    + OTHERWISE,
    _uncounted: "AveragePool node 'averagepool1': in front of a Trunc must count padding, and have ceil_mode 0"
    + OTHERWISE,
    _large: "Trunc node 'trunc4': sums must be at most 1,048,576, not 1,327,104: float32 would round them$",
    _growing: "Trunc node 'trunc1': must drop 0 to 16 bits, not -2$",
}


@pytest.mark.parametrize("write", REFUSED)
def test_refused(write) -> None:
    net = Truncated(bits=4, signed=True)
    write(net)
    with pytest.raises(hwgen.ModelError, match=f"^network: {REFUSED[write]}") as error:
        to_network(net.model(1), "network")
    assert "\n" not in str(error.value)
