"""Crops and constant padding: Slice and Split along rows and columns, and Pad, against ONNX Runtime and in hardware."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from pieces import Piece, check
from step_checks import around, check_model, in_hardware, kinds, quantised

import hwgen
from hwgen.errors import ConfigError, ModelError
from hwgen.network.maps import UINT8, FeatureMap, Window
from hwgen.network.onnx.importer import to_network
from hwgen.network.ops import Crop, Pad


def sliced(starts: list[int], ends: list[int], axes: list[int], steps: list[int], **more: Any) -> onnx.ModelProto:
    node = helper.make_node("Slice", ["real", "starts", "ends", "axes", "steps"], ["part"], name="slice")
    constants: dict[str, Any] = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
    return around(node, *quantised("part"), **{name: np.array(value) for name, value in constants.items()}, **more)


@pytest.mark.parametrize(
    ("window", "layers"),
    [
        (([1], [4], [2], [1]), ["conv", "crop"]),
        (([0, 1], [5, 4], [2, 3], [2, 2]), ["conv", "crop"]),
        (([1, 2, -1], [5, 3, 2**31 - 1], [1, 2, 3], [2, 1, 1]), ["conv", "select", "crop"]),
        (([-1, 3], [-9, 4], [2, 3], [-7, 5]), ["conv", "crop"]),
    ],
)
def test_slices_of_rows_and_columns(window, layers) -> None:
    """One layer for both axes."""
    model = sliced(*window)
    check_model(model)
    assert kinds(model) == layers


def test_splits_of_rows() -> None:
    split = helper.make_node("Split", ["real", "sizes"], ["a", "b"], axis=2)
    model = around(split, *quantised("a", "b", to=["y", "z2"]), outputs=["y", "z2"], sizes=np.array([2, 3]))
    check_model(model)
    assert kinds(model) == ["conv", "crop", "crop"]


def test_focus() -> None:
    """YOLOv5's first layer: every second pixel, four times, one behind the other."""
    nodes, names = [], []
    for row, column in ((0, 0), (1, 0), (0, 1), (1, 1)):
        name = f"part{row}{column}"
        names.append(name)
        nodes.append(helper.make_node("Slice", ["real", f"at{row}{column}", "ends", "axes", "steps"], [name]))
    nodes.append(helper.make_node("Concat", names, ["all"], axis=1))
    starts: dict[str, Any] = {f"at{row}{column}": np.array([row, column]) for row in (0, 1) for column in (0, 1)}
    ends = {"ends": np.array([6, 4]), "axes": np.array([2, 3]), "steps": np.array([2, 2])}
    check_model(around(*nodes, *quantised("all"), shape=(2, 6, 4), **starts, **ends))


def padded(pads: list[int], value: Any = None, *, axes: list[int] | None = None, to: str = "s") -> onnx.ModelProto:
    names = ["pads", "" if value is None else "value", "" if axes is None else "axes"]
    while not names[-1]:
        names.pop()
    nodes = [
        helper.make_node("Pad", ["real", *names], ["wide"], name="pad"),
        helper.make_node("QuantizeLinear", ["wide", to, "z"], ["y"]),
    ]
    constants: dict[str, Any] = {"pads": np.array(pads), "t": np.float32(0.07)}
    constants |= {} if value is None else {"value": np.float32(value)}
    constants |= {} if axes is None else {"axes": np.array(axes)}
    return around(*nodes, **constants)


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (padded([0, 0, 1, 2, 0, 0, 3, 0]), "pad"),
        (padded([1, 2, 0, 1], axes=[3, -2]), "pad"),
        (padded([0, 0, -1, 2, 0, 0, 1, -1], 2.5), "pad"),
        (padded([0, 0, -1, 0, 0, 0, 0, -1]), "crop"),
        (padded([0, 0, 9, 1, 0, 0, -8, 0], 2.5), "pad"),
        (padded([0, 0, -8, 0, 0, 0, 9, 1], 2.5), "pad"),
        (padded([0, 0, 1, 2, 0, 0, 3, 0], -np.inf), "pad"),
        (padded([0, 0, 1, 2, 0, 0, 3, 0], 0.123), "pad"),
        (padded([0, 0, 1, 2, 0, 0, 3, 0], -5.0, to="t"), "pad"),
    ],
)
def test_padding(model, kind: str) -> None:
    """Any value that is an integer's, and others where the quantiser behind is that of the map."""
    check_model(model)
    assert kinds(model)[1] == kind


@pytest.mark.parametrize(
    ("model", "layers"),
    [
        (padded([0, 0, 0, 0, 0, 3, 0, 0]), ["conv", "conv"]),
        (padded([0, 2, 0, 0, 0, 0, 0, 0], -5.0), ["conv", "conv"]),
        (padded([0, 1, 1, 0, 0, 2, 0, -1], 2.5), ["conv", "conv", "pad"]),
        (padded([0, -2, 0, 0, 0, 1, 0, 0], 0.5), ["conv", "conv"]),
        (padded([0, -1, 0, 0, 0, -2, 0, 0]), ["conv", "select"]),
        (padded([0, -1, 0, 0, 0, 0, 1, 0]), ["conv", "select", "pad"]),
        (padded([0, 0, -1, 0, 0, -2, 0, 0]), ["conv", "select", "crop"]),
        (padded([0, 1, 0, 0, 0, 0, 0, 0], np.inf), ["conv", "conv"]),
        (padded([0, 1, 0, 0, 0, 0, 0, 0], 0.123), ["conv", "conv"]),
        (padded([2, 1], axes=[1]), ["conv", "conv"]),
    ],
)
def test_channels(model, layers: list[str]) -> None:
    """More channels are a 1x1 convolution that copies the others; fewer are a selection."""
    check_model(model)
    assert kinds(model) == layers


def test_channels_that_a_relu_bounds() -> None:
    """The bounds of what comes before are not those of the padding."""
    nodes = [
        helper.make_node("Relu", ["real"], ["positive"]),
        *quantised("positive", to=["p_q"]),
        helper.make_node("DequantizeLinear", ["p_q", "s", "z"], ["p_real"]),
        helper.make_node("Pad", ["p_real", "pads", "value"], ["wide"]),
        *quantised("wide"),
    ]
    check_model(around(*nodes, pads=np.array([0, 1, 0, 0, 0, 0, 0, 0]), value=np.float32(-2.5)))


def shortcut() -> onnx.ModelProto:
    """A block of BlazeFace: the shortcut of a convolution to more channels has channels of zeros behind its own."""
    kernel = np.random.default_rng(7).integers(-127, 128, (9, 6, 1, 1)).astype(np.int8)
    nodes = [
        helper.make_node("DequantizeLinear", ["k", "w_s", "w_z"], ["kernel"]),
        helper.make_node("Conv", ["real", "kernel"], ["deep"], name="deep"),
        *quantised("deep", to=["deep_q"]),
        helper.make_node("DequantizeLinear", ["deep_q", "s", "z"], ["deep_real"]),
        helper.make_node("Pad", ["real", "pads"], ["wide"], name="wide"),
        *quantised("wide", to=["wide_q"]),
        helper.make_node("DequantizeLinear", ["wide_q", "s", "z"], ["wide_real"]),
        helper.make_node("Add", ["deep_real", "wide_real"], ["sum"], name="sum"),
        *quantised("sum"),
    ]
    return around(*nodes, k=kernel, pads=np.array([0, 0, 0, 0, 0, 3, 0, 0]))


def test_a_shortcut_to_more_channels(tmp_path: Path) -> None:
    check_model(shortcut())
    in_hardware(shortcut(), tmp_path)


@pytest.mark.parametrize("pads", [[0, 0, 9, 1, 0, 0, -8, 0], [0, 0, 0, -7, 0, 0, 0, 9]])
def test_nothing_left_but_the_frame(pads: list[int], tmp_path: Path) -> None:
    """More is left out at one side than the map has, so that outputs hold the constant alone."""
    in_hardware(padded(pads, 2.5), tmp_path)


def test_a_value_between_integers_and_other_steps() -> None:
    with pytest.raises(ModelError, match=r"^model: Pad node 'pad': value 0.123 is no multiple of its input's scale"):
        to_network(padded([0, 0, 1, 2, 0, 0, 3, 0], 0.123, to="t"), "model")


def test_what_a_relu_behind_a_frame_does() -> None:
    """It bounds what is put around the map too, which no bound of the layer in front does."""
    nodes = [
        helper.make_node("Pad", ["real", "pads", "value"], ["wide"]),
        helper.make_node("Relu", ["wide"], ["positive"]),
        *quantised("positive"),
    ]
    check_model(around(*nodes, pads=np.array([0, 0, 1, 1, 0, 0, 1, 1]), value=np.float32(-2.5)))


def test_integers_before_they_are_dequantised() -> None:
    """The zero point that DequantizeLinear names is that of the map in front of the Pad, too, which a Conv takes in."""
    piece = Piece(zero=3)
    wide = piece.node("Pad", "x", np.array([0, 0, 1, 1, 0, 0, 1, 1]), np.uint8(3))
    network = check(piece.model(piece.quantise(piece.conv(piece.dequantise(wide, 0.7, 3)), 11.3, 100)), piece.frames(9))
    assert [layer.kind for layer in network.layers] == ["conv"]
    assert network.input.zero_point == 3


def test_channels_of_integers_before_they_are_dequantised() -> None:
    """What the padding is above the zero point is not known yet."""
    piece = Piece(zero=3)
    wide = piece.node("Pad", "x", np.array([0, 1, 0, 0, 0, 0, 0, 0]), np.uint8(3))
    model = piece.model(piece.quantise(piece.dequantise(wide, 0.7, 3), 11.3, 100))
    with pytest.raises(
        ModelError, match=r"^model: Pad node 'Pad0': must take a dequantised input \(DequantizeLinear\)"
    ):
        to_network(model, "model")


def test_sums_of_frames() -> None:
    """Ties show that ONNX Runtime adds floats behind a Pad."""
    nodes = [
        helper.make_node("Pad", ["real", "pads"], ["wide"]),
        helper.make_node("Pad", ["real", "pads_2"], ["other"]),
        helper.make_node("Add", ["wide", "other"], ["sum"]),
        helper.make_node("QuantizeLinear", ["sum", "t", "z"], ["y"]),
    ]
    pads = {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "pads_2": np.array([0, 0, 2, 0, 0, 0, 0, 2])}
    scales: dict[str, Any] = {"s": np.float32(0.0625), "t": np.float32(0.125), "z": np.uint8(101)}
    check_model(around(*nodes, **pads, **scales), 20)


def convolved(value: float, *, kind: str = "Conv", **window: Any) -> onnx.ModelProto:
    """A Pad before a convolution or a pool of 3x3, as TensorFlow's exporters write them."""
    nodes = [helper.make_node("Pad", ["real", "pads", "value"], ["wide"]), *quantised("wide", to=["w_q"])]
    nodes.append(helper.make_node("DequantizeLinear", ["w_q", "s", "z"], ["w_real"]))
    if kind == "Conv":
        nodes.append(helper.make_node("DequantizeLinear", ["k", "w_s", "w_z"], ["kernel"]))
        nodes.append(helper.make_node("Conv", ["w_real", "kernel"], ["found"], name="second", **window))
    else:
        nodes.append(helper.make_node(kind, ["w_real"], ["found"], kernel_shape=[3, 3], **window))
    kernel = np.random.default_rng(5).integers(-127, 128, (4, 6, 3, 3)).astype(np.int8)
    pads = np.array([0, 0, 1, 0, 0, 0, 2, 3])
    return around(*nodes, *quantised("found"), k=kernel, pads=pads, value=np.float32(value))


@pytest.mark.parametrize(
    ("model", "layers"),
    [
        (convolved(0), ["conv", "conv"]),
        (convolved(0, strides=[2, 2], pads=[0, 1, 1, 0]), ["conv", "conv"]),
        (convolved(0.5), ["conv", "pad", "conv"]),
        (convolved(-5.0, kind="MaxPool", strides=[2, 1]), ["conv", "maxpool"]),
        (convolved(0, kind="MaxPool", strides=[2, 2]), ["conv", "pad", "maxpool"]),
    ],
)
def test_frames_of_what_pads_alike(model, layers: list[str]) -> None:
    """A Pad with the value with which the next window pads is part of that window."""
    check_model(model)
    assert kinds(model) == layers


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (helper.make_node("Pad", ["real", "pads"], ["a"], mode="reflect"), "mode must be constant, not reflect"),
        (helper.make_node("Pad", ["real", "pads"], ["a"], mode="edge"), "mode must be constant, not edge"),
        (helper.make_node("Pad", ["real", "early"], ["a"]), "must pad channels, rows and columns alone, not frames"),
        (helper.make_node("Pad", ["real", "deep"], ["a"]), "leaves nothing of 6 channels"),
        (helper.make_node("Pad", ["real", "wide"], ["a"]), "must have at most 65,535 output channels, not 1,000,006"),
        (helper.make_node("Pad", ["real", "less"], ["a"]), "leaves nothing of a map of 5x4 pixels"),
        (helper.make_node("Pad", ["real", "pads", "nan"], ["a"]), "value must be a number, not NaN"),
        (helper.make_node("Pad", ["sums", "pads"], ["a"]), "must take a quantised input"),
        (helper.make_node("Slice", ["real", "last", "far", "rows", "back"], ["a"]), "must pick rows in their order"),
        (helper.make_node("Gather", ["real", "places"], ["a"], axis=3), "must pick columns in their order, at equal"),
    ],
)
def test_what_is_refused(node: onnx.NodeProto, message: str) -> None:
    node.name = "move"
    constants: dict[str, Any] = {
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        "early": np.array([1, 0, 0, 0, 0, 0, 0, 0]),
        "deep": np.array([0, -2, 0, 0, 0, -4, 0, 0]),
        "wide": np.array([0, 0, 0, 0, 0, 10**6, 0, 0]),
        "less": np.array([0, 0, -2, 0, 0, 0, -3, 0]),
        "nan": np.float32(np.nan),
        "places": np.array([0, 1, 3]),
        **{"last": np.array([-1]), "far": np.array([-(2**31)]), "rows": np.array([2]), "back": np.array([-1])},
    }
    with pytest.raises(ModelError, match=f"^model: {node.op_type} node 'move': .*{message}"):
        to_network(around(node, *quantised("a"), **constants), "model")


def test_what_layers_refuse() -> None:
    source = FeatureMap(channels=1, height=4, width=4, type=UINT8)
    window = Window(kernel=(1, 1), padding=(0, 1, 0, -1))
    with pytest.raises(ConfigError, match=r"^part: padding of a crop must be 0 or less, not \(0, 1, 0, -1\)$"):
        Crop(name="part", input=source, output=source, window=window)
    with pytest.raises(ConfigError, match=r"^wide: value must be uint8, not 256$"):
        Pad(name="wide", input=source, output=source, window=window, value=256)
    window = Window(kernel=(1, 2), padding=(0, 1, 0, 0))
    with pytest.raises(ConfigError, match=r"^wide: the window must be 1x1, not \(1, 2\)$"):
        Pad(name="wide", input=source, output=source, window=window, value=0)


def test_rows_that_are_left_out_are_not_held(tmp_path: Path) -> None:
    """Those above the part are given back before their frame begins: few rows are enough, not the eight above."""
    path = tmp_path / "model.onnx"
    onnx.save(sliced([8], [12], [2], [1], shape=(6, 12, 12)), path)
    (group,) = hwgen.load(path).plan("zedboard", dsp=12, multipliers="dsp").plan.groups
    (rows,) = (layer.line_rows for layer in group.layers if layer.kind == "crop")
    assert rows <= 3


def test_in_hardware(tmp_path: Path) -> None:
    """Every second row of a part of the map in a frame that is no zero."""
    nodes = [
        helper.make_node("Slice", ["real", "starts", "ends", "axes", "steps"], ["part"]),
        helper.make_node("Pad", ["part", "pads", "value"], ["wide"]),
        *quantised("wide"),
    ]
    constants: dict[str, Any] = {"starts": [2, 1], "ends": [5, 4], "axes": [2, 3], "steps": [2, 1]}
    constants = {name: np.array(value) for name, value in constants.items()}
    model = around(*nodes, pads=np.array([0, 0, 1, 2, 0, 0, 0, 1]), value=np.float32(0.5), **constants)
    assert kinds(model) == ["conv", "crop", "pad"]
    in_hardware(model, tmp_path)
