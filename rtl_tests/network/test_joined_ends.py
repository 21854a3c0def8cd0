"""Outputs that the host makes of several integer tensors: heads of different sizes in one, differences in floats."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from foreign import Writer, begun, by_onnxruntime, conv
from onnx import TensorProto

import hwgen
from hwgen.cli import main as cli
from hwgen.errors import ModelError
from hwgen.network import host


def load(model: onnx.ModelProto, folder, **options) -> hwgen.Model:
    onnx.save(model, folder / "model.onnx")
    return hwgen.load(folder / "model.onnx", **options)


def check_equal(model: onnx.ModelProto, writer: Writer, folder, count: int = 4) -> hwgen.Model:
    """All outputs of the whole model, in every value those of ONNX Runtime."""
    ours = load(model, folder)
    frames = writer.frames(count)
    batch = model.graph.input[0].type.tensor_type.shape.dim[0].dim_value or count
    runs = [by_onnxruntime(model, frames[start : start + batch]) for start in range(0, count, batch)]
    theirs = {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}
    found = ours.golden(frames)
    found = found if isinstance(found, dict) else {next(iter(theirs)): found}
    assert list(found) == list(theirs)
    for name, values in theirs.items():
        assert values.dtype == found[name].dtype
        np.testing.assert_array_equal(found[name], values, name)
    return ours


# Heads of different sizes.


def pyramid(sizes: int = 3, **options) -> tuple[Writer, list[str]]:
    """Maps of 8x8, 4x4 and 2x2 pixels, as integers."""
    writer, maps = begun(**options), []
    for size in range(sizes):
        writer.layer(conv if not size else lambda w, x: w.conv(x, strides=[2, 2]))
        maps.append(writer.tensor)
    return writer, maps


def head(writer: Writer, tensor: str, channels: int, *, between: bool, values: int = 4, batch: int = 0) -> str:
    """A convolution and its values, ``(batch, boxes, values)``; ``between``: quantised anew behind each operator."""

    def moved(tensor: str) -> str:
        return writer.dequantise(writer.quantise(tensor)) if between else tensor

    tensor = writer.quantise(writer.conv(writer.dequantise(tensor), outputs=channels))
    tensor = moved(writer.add("Transpose", writer.dequantise(tensor), perm=[0, 2, 3, 1]))
    return moved(writer.add("Reshape", tensor, writer.constant(np.array([batch, -1, values]))))


@pytest.mark.parametrize(("between", "behind"), [(True, True), (False, False), (True, False), (False, True)])
def test_heads(between: bool, behind: bool, tmp_path) -> None:
    """As ONNX Runtime's quantiser writes them, with a quantiser behind each operator, or without some of these."""
    writer, maps = pyramid()
    tensor = writer.add("Concat", *(head(writer, each, 8, between=between) for each in maps), axis=1)
    writer.give(writer.dequantise(writer.quantise(tensor)) if behind else tensor, rank=3)
    model = check_equal(writer.model(), writer, tmp_path)
    assert len(model.network.output_layers) == 3
    assert {layer.kind for layer in model.network.layers} == {"conv"}
    assert "Concat" in host.line(model.network)
    assert host.part_line(model.network) == ""
    assert [each["shape"] for each in model.host["outputs"]] == [[128, 4], [32, 4], [8, 4]]
    assert "Concat" in model.host["host"]["behind"]
    assert "until" not in model.host


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_fixed_batches(batch: int, tmp_path) -> None:
    writer, maps = pyramid(2)
    tensor = writer.add("Concat", *(head(writer, each, 8, between=False, batch=batch) for each in maps), axis=1)
    writer.give(tensor, rank=3)
    model = writer.model()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = batch
    check_equal(model, writer, tmp_path, 6)


def test_several_outputs(tmp_path) -> None:
    """Boxes, classes behind Softmax, and a map that is an output and read by others."""
    writer, maps = pyramid(2, frame=(4, 6, 6))
    boxes = writer.add("Concat", *(head(writer, each, 8, between=True) for each in maps), axis=1)
    classes = writer.add("Concat", *(head(writer, each, 6, between=True, values=3) for each in maps), axis=1)
    writer.give(boxes, rank=3)
    writer.give(writer.add("Softmax", classes, axis=-1), rank=3)
    writer.give(maps[0], TensorProto.UINT8)
    model = check_equal(writer.model(), writer, tmp_path)
    assert len(model.network.output_layers) == 5


def test_joined_by_an_operator_on_integers(tmp_path) -> None:
    """QLinearConcat, as in QOperator models."""
    writer, maps = pyramid(2)
    inputs = []
    for each in maps:
        flat = writer.add("Flatten", writer.dequantise(each))
        inputs += [writer.quantise(flat), writer.scale, writer.zero]
    label = writer.constant(np.float32(1 / 8)), writer.constant(np.uint8(90))
    joined = writer.add("QLinearConcat", *label, *inputs, axis=1, domain="com.microsoft")
    writer.give(joined, TensorProto.UINT8, 2)
    model = check_equal(writer.model("com.microsoft"), writer, tmp_path)
    assert model.network.host.remainder.operators.count("QLinearConcat") == 1


def test_what_the_hardware_can_join_it_does(tmp_path) -> None:
    """Maps of one size, along the channels, with a quantiser behind."""
    writer, (first,) = pyramid(1)
    tensor = writer.add("Concat", *(writer.dequantise(each) for each in (first, first)), axis=1)
    writer.tensor = writer.quantise(tensor)
    model = check_equal(writer.model(), writer, tmp_path)
    assert [layer.kind for layer in model.network.layers] == ["conv", "concat"]
    assert host.line(model.network) == "on the host: QuantizeLinear before"


# Floats at the end.


def _difference(writer: Writer, tensor: str) -> str:
    """As a network that gives the noise: the input as it was quantised."""
    return writer.add("Sub", writer.dequantise("t0"), tensor)


def _from_floats(writer: Writer, tensor: str) -> str:
    """The same, as operators on integers leave it: the model's own input."""
    return writer.add("Sub", "x", tensor)


def _weighted(writer: Writer, tensor: str) -> str:
    """Maps of two layers, and more operators behind."""
    writer.layer(conv)
    other = writer.add("Sigmoid", writer.dequantise(writer.tensor))
    return writer.add("Relu", writer.add("Mul", tensor, other))


@pytest.mark.parametrize("write", [_difference, _from_floats, _weighted])
def test_floats(write: Callable[[Writer, str], str], tmp_path) -> None:
    writer = begun()
    writer.layer(conv)
    writer.give(write(writer, writer.dequantise(writer.tensor)))
    model = check_equal(writer.model(), writer, tmp_path)
    integers = model.golden(writer.frames())
    if write is _from_floats:  # where integers are given, the floats that they stand for
        scale, zero = np.float32(1 / 16), 100
        given = np.clip(np.rint(writer.frames() / scale) + zero, 0, 255).astype(np.uint8)
        other = model.golden(given)
        np.testing.assert_array_equal(
            other, *by_onnxruntime(writer.model(), (given.astype(np.float32) - zero) * scale).values()
        )
        assert (other != integers).any()


# What it is for people, and in hardware.


@pytest.mark.long
def test_check_and_simulation(tmp_path, capsys) -> None:
    writer, maps = pyramid(2, frame=(4, 6, 6))
    writer.give(writer.add("Concat", *(head(writer, each, 4, between=True) for each in maps), axis=1), rank=3)
    model = writer.model()
    path = tmp_path / "heads.onnx"
    onnx.save(model, path)
    assert cli.main(["check", str(path), "--json", str(tmp_path / "check.json")]) == 0
    report = json.loads((tmp_path / "check.json").read_text())
    assert report["supported"]
    assert report["until"] is None
    assert report["macs_covered"] == 1
    (concat,) = [each for each in report["operators"] if each["op"] == "Concat"]
    assert (concat["verdict"], concat["reason"]) == ("host", "behind the last integer tensor")
    np.save(tmp_path / "x.npy", writer.frames(2))
    few = ["--multipliers", "dsp", "--dsp", "40"]
    assert cli.main(["plan", str(path), "--board", "zedboard", *few, "-o", str(tmp_path / "plan.json")]) == 0
    command = ["simulate", str(path), "--board", "zedboard", "--plan", str(tmp_path / "plan.json")]
    command += ["--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "y.npy"), "--simulator", "amaranth"]
    assert cli.main([*command, "--json", str(tmp_path / "result.json")]) == 0
    expected = by_onnxruntime(model, writer.frames(2))
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), next(iter(expected.values())))
    cycles = json.loads((tmp_path / "result.json").read_text())["cycles"]
    assert cycles["latency"] == cycles["predicted_latency"]
    assert "of the model, until" not in capsys.readouterr().out


# What stays an error.


def _quantised_function(writer: Writer, maps: list[str]) -> None:
    """Behind it the file means integers."""
    tensor = writer.add("Concat", *(head(writer, each, 8, between=False) for each in maps), axis=1)
    writer.tensor = writer.quantise(writer.add("Sigmoid", writer.dequantise(writer.quantise(tensor))))


def _product(writer: Writer, maps: list[str]) -> None:
    tensor = writer.add("Concat", *(head(writer, each, 8, between=True) for each in maps), axis=1)
    matrix = writer.add("DequantizeLinear", writer.constant(np.ones((4, 2), np.int8)), writer.constant(np.float32(1)))
    writer.tensor = writer.quantise(writer.add("MatMul", writer.dequantise(writer.quantise(tensor)), matrix))


def _sum(writer: Writer, maps: list[str]) -> None:
    writer.tensor = writer.add("Add", writer.dequantise(maps[0]), writer.dequantise("t0"))


def _unknown(writer: Writer, maps: list[str]) -> None:
    tensor = writer.add("Concat", *(head(writer, each, 8, between=True) for each in maps), axis=1)
    writer.tensor = writer.add("Det", writer.add("Reshape", tensor, writer.constant(np.array([0, -1, 4, 4]))))


def _two_inputs(writer: Writer, maps: list[str]) -> None:
    """The input quantised twice, by different scales: the host gets those integers that the hardware gets."""
    other = writer.add("QuantizeLinear", "x", writer.constant(np.float32(1 / 4)), writer.zero)
    real = writer.add("DequantizeLinear", other, writer.constant(np.float32(1 / 4)), writer.zero)
    writer.tensor = writer.add("Sub", real, writer.dequantise(maps[0]))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (_quantised_function, r"Concat node '\w+': must take maps of one size, not 8x8x8 and 8x4x4"),
        (_product, r"Concat node '\w+': must take maps of one size, not 8x8x8 and 8x4x4"),
        (_sum, r"Add node '\w+': gives floats; a QuantizeLinear must follow"),
        (_unknown, r"2 things .*"),
        (
            _two_inputs,
            r"2 things .*\n.* takes floats that go to .*\n.*'sub12': gives floats; a QuantizeLinear must follow",
        ),
    ],
)
def test_refused(write: Callable[[Writer, list[str]], None], message: str, tmp_path) -> None:
    writer, maps = pyramid(2)
    write(writer, maps)
    ranks = {_quantised_function: 3, _product: 3, _unknown: 2}
    kind = TensorProto.UINT8 if writer.nodes[-1].op_type == "QuantizeLinear" else TensorProto.FLOAT
    writer.give(writer.tensor, kind, ranks.get(write, 4))
    with pytest.raises(ModelError, match=rf"^.*model\.onnx: {message}"):
        load(writer.model(), tmp_path)
