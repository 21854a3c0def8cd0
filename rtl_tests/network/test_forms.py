"""Files that are read in another form: float16, sizes left open, weights in blocks, QONNX with channels last.

Referees: ONNX Runtime on the file, or where it rounds to float16 on the same model in float32; the qonnx package.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
import pytest
from dialects import WEIGHTS, single, tensors_by_qonnx
from foreign import Writer
from onnx import TensorProto, helper
from referees import by_onnxruntime, integer_session
from refusals import refusals_in

import hwgen
from hwgen.cli import main as cli
from hwgen.errors import HwgenError

RANDOM = np.random.default_rng(11)


def written(frame: tuple[int, ...] = (4, 8, 8)) -> Writer:
    """Return a model in the making with a dequantised input of 8 bits."""
    writer = Writer(frame)
    writer.tensor = writer.dequantise(writer.quantise("x"))
    return writer


def finished(writer: Writer, weights: str, operator: str = "Conv", opset: int = 21) -> onnx.ModelProto:
    """Return the model that multiplies its input by weights, and quantises."""
    made = writer.quantise(writer.add(operator, writer.tensor, weights))
    writer.give(writer.dequantise(made), rank=4 if operator == "Conv" else 2)
    return writer.model(opset=opset)


def by_session(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return integer_session(model)[0].run(None, {model.graph.input[0].name: x})[0]


def loaded(model: onnx.ModelProto, folder: Path, **options) -> hwgen.Model:
    onnx.save(model, folder / "model.onnx")
    return hwgen.load(folder / "model.onnx", **options)


# float16


def of_eleven_bits(number: float) -> np.ndarray:
    return np.array(number, np.float16).astype(np.float32)


@pytest.mark.parametrize("how", ["constants", "weights", "quantised", "everything"])
def test_float16(how: str, tmp_path: Path) -> None:
    """The same graph with float32 in place of float16 is built; ONNX Runtime computes that one in integers."""

    def model(kind: type, element: int) -> onnx.ModelProto:
        random, everything = np.random.default_rng(1), how == "everything"
        writer = Writer(kind=element if everything else TensorProto.FLOAT)
        scale = writer.constant(of_eleven_bits(0.05).astype(kind if everything else np.float32))
        label = scale, writer.constant(np.uint8(100))
        writer.tensor = writer.add("DequantizeLinear", writer.add("QuantizeLinear", "x", *label), *label)
        integers = random.integers(-64, 65, (4, 4, 3, 3)).astype(np.int8)  # larger ones saturate without VNNI
        step, zero = writer.constant(of_eleven_bits(0.01).astype(kind)), writer.constant(np.int8(0))
        floats = writer.constant((integers * np.float32(0.01)).astype(np.float16).astype(kind))
        if how == "constants":  # floats that are converted before they are quantised
            step = writer.constant(np.float32(0.01))
            weights = writer.add("Cast", floats, to=TensorProto.FLOAT)
            weights = writer.add("DequantizeLinear", writer.add("QuantizeLinear", weights, step, zero), step, zero)
        else:
            given = writer.constant(integers)
            if how == "weights":
                given = writer.add("QuantizeLinear", floats, step, zero)
            weights = writer.add("DequantizeLinear", given, step, zero)
            if not everything:
                weights = writer.add("Cast", weights, to=TensorProto.FLOAT)
        sums = writer.add("Conv", writer.tensor, weights)
        label = (
            writer.constant(of_eleven_bits(0.4).astype(kind if everything else np.float32)),
            writer.constant(np.uint8(128)),
        )
        writer.give(
            writer.add("DequantizeLinear", writer.add("QuantizeLinear", sums, *label), *label),
            element if everything else TensorProto.FLOAT,
        )
        return writer.model(opset=19)

    x = np.random.default_rng(2).normal(0, 3, (40, 4, 8, 8)).astype(np.float16).astype(np.float32)
    part = loaded(model(np.float16, TensorProto.FLOAT16), tmp_path)
    theirs = by_session(model(np.float32, TensorProto.FLOAT), x)
    assert len(np.unique(theirs)) > 50
    np.testing.assert_array_equal(part.golden(x), theirs)
    assert "float16 numbers are computed as float32" in part.network.warnings[0]


# Sizes


def opened(*sizes: int | str | None) -> onnx.ModelProto:
    """Return a model whose input has other sizes than its weights ask for, or symbolic ones."""
    writer = written()
    model = finished(writer, writer.constant(RANDOM.normal(0, 0.2, (3, 4, 3, 3)).astype(np.float32)), opset=17)
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes))
    return model


def test_sizes_that_the_model_leaves_open(tmp_path: Path) -> None:
    model = opened("batch", 4, "height", "width")
    x = RANDOM.normal(0, 3, (3, 4, 10, 7)).astype(np.float32)
    np.testing.assert_array_equal(loaded(model, tmp_path, shape=(10, 7)).golden(x), by_session(model, x))
    square = opened(None, 4, "side", "side")
    x = RANDOM.normal(0, 3, (3, 4, 9, 9)).astype(np.float32)
    np.testing.assert_array_equal(loaded(square, tmp_path, shape=(9,)).golden(x), by_session(square, x))


def test_shape_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "model.onnx")
    onnx.save(opened("batch", 4, "height", "width"), path)
    assert cli.main(["check", path, "--shape", "10x7"]) == 0
    assert cli.main(["plan", path, "--board", "zedboard", "--shape", "10"]) == 2
    assert "--shape must have 2 sizes, not 1, for the inputs (x: batch, 4, height, width)" in capsys.readouterr().err
    assert cli.main(["check", "lenet5", "--shape", "10x7"]) == 2
    assert "a built-in network's size is in its name" in capsys.readouterr().err
    assert cli.main(["check", path, "--shape", "10,7"]) == 2
    assert "must be positive integers, as in 224x320, not '10,7'" in capsys.readouterr().err


# Weights in blocks


def blocked(operator: str, ratios: list[float], zero: int) -> onnx.ModelProto:
    """Return a model with weights in blocks of 4 input channels, whose scales are ``ratios`` of one per output."""
    random = np.random.default_rng(4)
    if operator == "Conv":
        writer, shape, least, axis = written((8, 6, 6)), (5, 8, 3, 3), random.uniform(0.01, 0.02, (5, 1, 1, 1)), 1
        blocks = 5, 2, 3, 3
    else:
        writer, shape, least, axis = written((8,)), (8, 6), random.uniform(0.01, 0.02, (1, 6)), 0
        blocks = 2, 6
    scales = (least.astype(np.float32) * random.choice(np.float32(ratios), blocks)).astype(np.float32)
    scales.reshape(-1)[0] = least.astype(np.float32).reshape(-1)[0]
    inputs = [writer.constant(random.integers(-8, 8, shape).astype(np.int8)), writer.constant(scales)]
    if zero:
        inputs.append(writer.constant(np.full(blocks, zero, np.int8)))
    return finished(writer, writer.add("DequantizeLinear", *inputs, axis=axis, block_size=4), operator)


@pytest.mark.parametrize("operator", ["Conv", "MatMul"])
@pytest.mark.parametrize("zero", [0, 2])
def test_weights_in_blocks(operator: str, zero: int, tmp_path: Path) -> None:
    """Equal to ONNX Runtime's own floats, without its optimiser, which fuses blocks into integer kernels."""
    model = blocked(operator, [1, 2, 4], zero)
    x = RANDOM.normal(0, 3, (50, *(dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim[1:])))
    part, theirs = loaded(model, tmp_path), by_onnxruntime(model, x.astype(np.float32))
    assert len(np.unique(theirs)) > 20
    assert (part.golden(x.astype(np.float32)) != theirs).sum() <= theirs.size // 10_000


@pytest.mark.parametrize(("operator", "ratios", "zero", "message"), refusals_in("forms_weights_in_blocks.txt"))
def test_blocks_that_are_refused(operator: str, ratios: list[float], zero: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(HwgenError, match=message):
        loaded(blocked(operator, ratios, zero), tmp_path)


# QONNX


@pytest.mark.parametrize("whole", [False, True])
def test_channels_last(whole: bool, tmp_path: Path) -> None:
    """Also with ``whole``, where the package makes the input's channels last, too."""
    pytest.importorskip("qonnx")
    with warnings.catch_warnings(), mock.patch.object(onnx, "IR_VERSION", 10):
        warnings.simplefilter("ignore")
        from qonnx.core.modelwrapper import ModelWrapper
        from qonnx.transformation.channels_last import ConvertToChannelsLastAndClean
        from qonnx.transformation.infer_shapes import InferShapes

        given = single(WEIGHTS, 0.0625, 0, 5)
        (convolution,) = (node for node in given.graph.node if node.op_type == "Conv")
        window = {"kernel_shape": [3, 3], "pads": [0] * 4, "strides": [1, 1], "dilations": [1, 1], "group": 1}
        convolution.attribute.extend(helper.make_attribute(name, value) for name, value in window.items())
        pooled = helper.make_node("MaxPool", ["y"], ["z"], kernel_shape=[2, 2], strides=[2, 2], pads=[0] * 4)
        given.graph.node.append(pooled)
        given.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", TensorProto.FLOAT, [4, 4, 2, 2]))
        wrapped = ModelWrapper(given).transform(InferShapes())
        model = wrapped.transform(ConvertToChannelsLastAndClean(make_input_channels_last=whole)).model
    assert {node.op_type for node in model.graph.node if "channels_last" in node.domain} == {"Conv", "MaxPool"}
    x = RANDOM.normal(0, 4, (4, 3, 6, 6)).astype(np.float32)
    x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if whole else x
    theirs = tensors_by_qonnx(model, x)[model.graph.output[0].name]
    assert len(np.unique(theirs)) > 10
    np.testing.assert_array_equal(loaded(model, tmp_path).golden(x), theirs)


@pytest.mark.parametrize("where", ["first", "last"])
@pytest.mark.parametrize("signed", [0, 1])
@pytest.mark.parametrize("mode", ["FLOOR", "CEIL", "UP", "DOWN", "HALF_UP", "HALF_DOWN"])
def test_rounding_modes(mode: str, signed: int, where: str, tmp_path: Path) -> None:
    """Of the model's input and of a convolution's sums, among which many are ties, or integers."""
    model = single(WEIGHTS, 0.0625, 0, 5)
    node = next(node for node in model.graph.node if node.name == where)
    for name, value in (("signed", signed), ("rounding_mode", mode)):
        entry = next(entry for entry in node.attribute if entry.name == name)
        entry.CopyFrom(helper.make_attribute(name, value))
    if signed and mode not in ("FLOOR", "CEIL"):
        with pytest.raises(HwgenError, match=f"rounding_mode {mode} of a signed feature map is not supported"):
            loaded(model, tmp_path)
        return
    x = (RANDOM.integers(-300, 300, (4, 3, 6, 6)) / 16).astype(np.float32)
    theirs = tensors_by_qonnx(model, x)["y"]
    assert len(np.unique(theirs)) > 20
    np.testing.assert_array_equal(loaded(model, tmp_path).golden(x), theirs)
