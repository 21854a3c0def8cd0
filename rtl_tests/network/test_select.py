"""Selections, crops and constant padding: components, hardware, and Split, Slice, Gather and Pad of ONNX Runtime."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from pieces import Piece, check
from step_checks import FRAMES, around, beats, check_model, in_hardware, kinds, maps, padded, quantised, words
from testbench import Pattern, patterns, run, unpack

import hwgen
from hwgen.errors import ConfigError, ModelError
from hwgen.gateware.cost import Resources
from hwgen.gateware.reorder import ReorderConfig
from hwgen.gateware.select import SelectConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.network.maps import UINT8, FeatureMap, Window
from hwgen.network.onnx.importer import to_network
from hwgen.network.ops import Crop, Pad, Select
from hwgen.tools import synthesis
from hwgen.tools.paths import LogicPath


@st.composite
def selections(draw) -> SelectConfig:
    beat = draw(beats())
    index = draw(st.lists(st.integers(0, beat.channels - 1), min_size=1, max_size=7))
    return SelectConfig(input=beat, index=tuple(index), lanes=draw(st.integers(1, len(index))))


def check_selected(config: SelectConfig, found: list[int], frames: np.ndarray) -> None:
    """In every channel and pixel of the map; lanes past them may hold anything."""
    source, folds = config.input, config.output_folds
    steps = config.row_steps
    values = np.array([unpack(word, source.bits, source.signed, config.lanes * source.pixels) for word in found])
    values = values.reshape(len(frames), source.height, steps, folds, config.lanes, source.pixels)
    values = values.transpose(0, 3, 4, 1, 2, 5).reshape(len(frames), -1, source.height, steps * source.pixels)
    np.testing.assert_array_equal(values[:, : len(config.index), :, : source.width], frames[:, list(config.index)])


@settings(max_examples=26)
@given(config=selections(), seed=st.integers(0, 2**32), offer=patterns(), room=patterns())
def test_the_component(config, seed, offer, room):
    """Every step and every beat in the first cycle in which it may come."""
    source = config.input
    frames, component = maps(source, seed), config.component()
    given_beats, steps = words(source, padded(source, frames, seed)), FRAMES * config.windows * config.output_folds
    watch = {"start": component.start, "offered": component.i.valid, "room": component.room}
    trace = run(component, given_beats, steps, offer=offer, drive=[(component.room, room)], watch=watch)
    check_selected(config, trace.words, frames)
    starts = [cycle for cycle, start in enumerate(trace.watched["start"]) if start]
    assert trace.times == [cycle + config.latency for cycle in starts]
    given_steps = taken = 0
    for cycle, (offered, there) in enumerate(zip(trace.watched["offered"], trace.watched["room"], strict=True)):
        if given_steps == steps:
            break
        pixel, fold = divmod(given_steps, config.output_folds)
        start = there and taken >= (pixel + 1) * source.folds
        ends = start and fold == config.output_folds - 1
        # The last beat of a pixel when all steps of those before are given, or just are.
        whole, beat = divmod(taken, source.folds)
        takes = offered and (beat < source.folds - 1 or whole <= pixel + ends)
        assert trace.watched["start"][cycle] == start
        if taken < len(given_beats):
            assert (taken < len(trace.taken) and trace.taken[taken] == cycle) == takes
        given_steps, taken = given_steps + start, taken + takes


@settings(max_examples=10)
@given(config=selections(), seed=st.integers(0, 2**32), reset_at=st.integers(0, 60))
def test_after_a_reset(config, seed, reset_at):
    source = config.input
    frames, component = maps(source, seed), config.component()
    steps = FRAMES * config.windows * config.output_folds
    after = words(source, padded(source, frames, seed)), steps
    before = words(source, padded(source, maps(source, seed + 1), seed)) * 4
    trace = run(component, before, 4 * steps, reset_at=reset_at, after=after, drive=[(component.room, Pattern())])
    assert trace.reset is not None
    check_selected(config, trace.words[trace.reset[2] :], frames)


def test_what_configurations_refuse() -> None:
    beat = BeatFormat(channels=3, height=1, width=1, lanes=2, bits=8, signed=True)
    with pytest.raises(ConfigError, match=r"^index must list channels from 0 to 2, not \(0, 3\)$"):
        SelectConfig(input=beat, index=(0, 3), lanes=1)
    with pytest.raises(ConfigError, match=r"^lanes must be 1 to the 2 channels of the output, not 3$"):
        SelectConfig(input=beat, index=(0, 1), lanes=3)
    source = FeatureMap(channels=3, height=1, width=1, type=UINT8)
    output, window = replace(source, channels=2), Window(kernel=(1, 2), padding=(0, 1, 0, 1))
    with pytest.raises(ConfigError, match=r"^part: index must be 2 of the channels 0 to 2, not \(0,\)$"):
        Select(name="part", input=source, output=output, window=Window(kernel=(1, 1)), index=(0,))
    with pytest.raises(ConfigError, match=r"^part: a layer that selects channels must have no window"):
        Select(name="part", input=source, output=replace(output, width=2), window=window, index=(0, 1))


# Models.


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("parts", [[2, 4], [1, 2, 3], [3, 3], [6]])
def test_splits(opset: int, parts: list[int]) -> None:
    """Each part is an output, one with a Relu that must not bound the others; with sizes given as each version does."""
    names = [f"part{number}" for number in range(len(parts))]
    to = [f"y{number}" for number in range(len(parts))]
    inputs = ["real"]
    constants: dict[str, Any] = {}
    attributes: dict[str, Any] = {"axis": 1 if opset == 11 else -3}
    if len(set(parts)) > 1 or len(parts) == 1:
        if opset < 13:
            attributes["split"] = parts
        else:
            inputs.append("sizes")
            constants["sizes"] = np.array(parts)
    elif opset == 18:
        attributes["num_outputs"] = len(parts)
    split = helper.make_node("Split", inputs, names, name="split", **attributes)
    relu = helper.make_node("Relu", [names[-1]], ["positive"])
    ends = quantised(*names[:-1], "positive", to=to)
    model = around(split, relu, *ends, outputs=to, opset=opset, **constants)
    check_model(model)
    assert kinds(model).count("select") == (len(parts) if len(parts) > 1 else 0)


def test_unequal_parts() -> None:
    split = helper.make_node("Split", ["real"], ["a", "b"], axis=1, num_outputs=2)
    check_model(around(split, *quantised("b"), shape=(5, 2, 3)))


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ([1], [4], [1], None),
        ([-3], [2**62], [1], [2]),
        ([5], [-(2**62)], [1], [-1]),
        ([0, 4], [2**31 - 1, 0], [0, -3], [1, -3]),
        ([0, 2], [2**31 - 1, 5], None, None),
        ([0, 0, 0], [6, 5, 4], [1, 2, 3], [1, 1, 1]),
    ],
)
def test_slices_of_channels(starts, ends, axes, steps) -> None:
    constants: dict[str, Any] = {"starts": np.array(starts), "ends": np.array(ends)}
    inputs = ["real", "starts", "ends"]
    for name, values in (("axes", axes), ("steps", steps)):
        inputs.append(name if values is not None else "")
        if values is not None:
            constants[name] = np.array(values)
    node = helper.make_node("Slice", inputs, ["part"], name="slice")
    check_model(around(node, *quantised("part"), **constants))


def test_slices_of_old() -> None:
    """Attributes, not inputs."""
    node = helper.make_node("Slice", ["c"], ["y"], starts=[1], ends=[-1], axes=[1])
    reals = [helper.make_node("MaxPool", ["y"], ["most"], kernel_shape=[2, 2])]
    model = around(node, *reals, outputs=["most"], opset=12)
    model.opset_import[0].version = 12
    for place, name in enumerate(("starts", "ends", "axes"), start=1):
        model.graph.initializer.append(numpy_helper.from_array(np.array([[1], [-1], [1]][place - 1]), name))
        model.graph.node[-2].input.append(name)
    del model.graph.node[-2].attribute[:]
    check_model(model)


def test_a_shuffle_between_sums_and_a_product() -> None:
    """Values that were added to move with their channels; a float operator among dequantised values stays in floats."""
    nodes = [
        helper.make_node("Add", ["real", "added"], ["more"]),
        helper.make_node("Gather", ["more", "shuffle"], ["moved"], axis=1),
        *quantised("moved", to=["m"]),
        helper.make_node("DequantizeLinear", ["m", "s", "z"], ["m_real"]),
        helper.make_node("Gather", ["real", "shuffle"], ["other"], axis=1),
        helper.make_node("Add", ["m_real", "other"], ["sum"]),
        *quantised("sum"),
    ]
    added = np.linspace(-2, 2, 6, dtype=np.float32).reshape(6, 1, 1)
    model = around(*nodes, added=added, shuffle=np.array([0, 2, 4, 1, 3, -1]))
    check_model(model)


def test_constants_of_channels_move_with_them() -> None:
    """A slope for each channel in front of a shuffle and one behind it, and both of them used twice."""
    nodes = [
        helper.make_node("PRelu", ["real", "slopes"], ["bent"]),
        helper.make_node("Gather", ["bent", "shuffle"], ["moved"], axis=1),
        helper.make_node("Sigmoid", ["moved"], ["gate"]),
        helper.make_node("Mul", ["moved", "gate"], ["product"]),
        helper.make_node("Mul", ["product", "slopes"], ["scaled"]),
        *quantised("scaled"),
    ]
    slopes = np.linspace(0.1, 1.1, 6, dtype=np.float32).reshape(6, 1, 1)
    check_model(around(*nodes, slopes=slopes, shuffle=np.array([5, 2, 4, 1, 3, 0])))


@pytest.mark.parametrize("operator", ["Slice", "Split", "Gather"])
def test_sums_of_what_was_selected(operator: str) -> None:
    """Ties show whether ONNX Runtime adds integers or floats behind them."""
    first, second = np.arange(3), np.arange(3, 6)
    if operator == "Split":
        nodes = [helper.make_node("Split", ["real"], ["a", "b"], axis=1, num_outputs=2)]
    elif operator == "Gather":
        nodes = [helper.make_node("Gather", ["real", name], [out], axis=1) for name, out in (("i", "a"), ("j", "b"))]
    else:
        nodes = [helper.make_node("Slice", ["real", *names, "one"], [out]) for names, out in (("oi", "a"), ("ij", "b"))]
        first, second = np.array([3]), np.array([6])
    nodes += [
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("QuantizeLinear", ["sum", "t", "z"], ["y"]),
    ]
    model = around(
        *nodes,
        **{"i": first, "j": second, "o": np.array([0]), "one": np.array([1])},
        **{"s": np.float32(0.0625), "t": np.float32(0.125), "z": np.uint8(101)},
    )
    check_model(model, 20)


def test_one_selection_of_two() -> None:
    """A shuffle and a split are as many selections as there are parts."""
    nodes = [
        helper.make_node("Gather", ["c", "shuffle"], ["moved"], axis=1),
        helper.make_node("Split", ["moved"], ["a", "b"], axis=1, num_outputs=2),
        helper.make_node("MaxPool", ["a"], ["left"], kernel_shape=[1, 2]),
        helper.make_node("MaxPool", ["b"], ["right"], kernel_shape=[2, 1]),
    ]
    model = around(*nodes, outputs=["left", "right"], shuffle=np.array([0, 3, 1, 4, 2, 5]))
    check_model(model)
    found = [layer.index for layer in to_network(model, "model").layers if isinstance(layer, Select)]
    assert found == [(0, 3, 1), (4, 2, 5)]


def test_a_shuffle_as_exporters_write_it() -> None:
    """Reshape, Transpose, Reshape take a layer only in front of what needs the order."""
    nodes = [
        helper.make_node("Reshape", ["c", "parted"], ["p"]),
        helper.make_node("Transpose", ["p"], ["t"], perm=[0, 2, 1, 3, 4]),
        helper.make_node("Reshape", ["t", "joined"], ["j"]),
        helper.make_node("Slice", ["j", "one", "five", "one"], ["part"]),
        helper.make_node("MaxPool", ["part"], ["y"], kernel_shape=[2, 2]),
    ]
    shapes = {"parted": np.array([0, 2, 3, 5, 4]), "joined": np.array([0, 6, 5, 4])}
    model = around(*nodes, **shapes, one=np.array([1]), five=np.array([5]))
    check_model(model)
    found = [layer.index for layer in to_network(model, "model").layers if isinstance(layer, Select)]
    assert found == [(3, 1, 4, 2)]


def test_dimensions_in_another_order() -> None:
    """Channels last: a Split of channels, a Slice of columns and a Pad of rows."""
    nodes = [
        helper.make_node("Transpose", ["c"], ["last"], perm=[0, 2, 3, 1]),
        helper.make_node("Split", ["last", "sizes"], ["a", "b"], axis=-1),
        helper.make_node("Slice", ["b", "one", "far", "two"], ["narrow"]),
        helper.make_node("DequantizeLinear", ["narrow", "s", "z"], ["n_real"]),
        helper.make_node("Pad", ["n_real", "pads"], ["high"]),
        helper.make_node("Transpose", ["high"], ["first"], perm=[0, 3, 1, 2]),
        *quantised("first", to=["f"]),
        helper.make_node("MaxPool", ["f"], ["y"], kernel_shape=[2, 1]),
    ]
    constants: dict[str, Any] = {
        "sizes": [2, 4],
        "one": [1],
        "two": [2],
        "far": [9],
        "pads": [0, 2, 0, 0, 0, 1, 0, 0],
    }
    model = around(*nodes, **{name: np.array(values) for name, values in constants.items()})
    check_model(model)
    assert kinds(model) == ["conv", "select", "crop", "pad", "maxpool"]


REFUSED = [
    (
        helper.make_node("Split", ["real"], ["a", "b"], axis=0, num_outputs=2),
        "axis must not be 0, which holds the frames",
    ),
    (helper.make_node("Split", ["real", "none"], ["a", "b"], axis=1), r"must split 6 into 2 .*, not \[0, 6\]"),
    (helper.make_node("Split", ["real"], ["a", "b"], axis=1, num_outputs=3), "num_outputs must be 2, "),
    (helper.make_node("Gather", ["real", "square"], ["a"], axis=1), "indices must be a list"),
    (helper.make_node("Gather", ["real", "far"], ["a"], axis=1), r"indices must be -6 to 5, not \[6\]"),
    (helper.make_node("Gather", ["real", "sizes"], ["a"], axis=0), "axis must not be 0, which holds the frames"),
    (helper.make_node("Slice", ["real", "sizes", "sizes"], ["a"]), "must leave all frames of a batch"),
    (helper.make_node("Slice", ["real", "far", "far", "ax"], ["a"]), "selects no channels; it must keep at least one"),
]


@pytest.mark.parametrize(("node", "message"), REFUSED, ids=lambda value: getattr(value, "op_type", None))
def test_what_is_refused(node: onnx.NodeProto, message: str) -> None:
    node.name = "pick"
    constants: dict[str, Any] = {
        "sizes": np.array([2, 2, 2]),
        "none": np.array([0, 6]),
        "far": np.array([6]),
        "ax": np.array([1]),
    }
    constants["square"] = np.array([[1, 2]])
    model = around(node, *quantised("a"), **constants)
    if "square" in node.input:
        model.graph.output[0].type.tensor_type.shape.dim.add()
    with pytest.raises(ModelError, match=f"^model: {node.op_type} node 'pick': .*{message}"):
        to_network(model, "model")


def shuffling() -> onnx.ModelProto:
    """In the manner of ShuffleNet v2: a half goes on, the other is convolved; both are joined and shuffled."""
    nodes = [
        helper.make_node("Split", ["real"], ["keep", "work"], axis=1, num_outputs=2),
        *quantised("work", to=["w_q"]),
        helper.make_node("DequantizeLinear", ["w_q", "s", "z"], ["w_real"]),
        helper.make_node("DequantizeLinear", ["k", "w_s", "w_z"], ["kernel"]),
        helper.make_node("Conv", ["w_real", "kernel"], ["worked"], name="depthwise", group=3, pads=[1] * 4),
        *quantised("worked", to=["d_q"]),
        helper.make_node("DequantizeLinear", ["d_q", "s", "z"], ["d_real"]),
        helper.make_node("Concat", ["keep", "d_real"], ["both"], axis=1),
        *quantised("both", to=["b_q"]),
        helper.make_node("DequantizeLinear", ["b_q", "s", "z"], ["b_real"]),
        helper.make_node("Gather", ["b_real", "shuffle"], ["moved"], axis=1),
        *quantised("moved"),
    ]
    kernel = np.random.default_rng(5).integers(-127, 128, (3, 1, 3, 3)).astype(np.int8)
    return around(*nodes, k=kernel, shuffle=np.array([0, 3, 1, 4, 2, 5]))


@pytest.mark.long
def test_in_hardware(tmp_path: Path) -> None:
    in_hardware(shuffling(), tmp_path)


def test_pyramids_refuse(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    nodes = [helper.make_node("Gather", ["c", "i"], ["m"], axis=1)]
    nodes.append(helper.make_node("MaxPool", ["m"], ["y"], kernel_shape=[2, 2]))
    onnx.save(around(*nodes, i=np.array([1, 0, 2, 2])), path)
    with pytest.raises(hwgen.HwgenError, match=re.escape("pyramids can't compute a layer of kind 'select'")):
        hwgen.load(path).plan("zedboard", template="pyramid")


@pytest.mark.parametrize(
    ("operator", "constant", "axis"),
    [
        ("Gather", [0, 0], 1),
        ("Gather", [0, 0], -4),
        ("Pad", [0, 1, 0, 0, 0] * 2, None),
        ("Pad", [0, 1] + [0] * 8, None),
    ],
)
def test_dimensions_of_one_value(operator, constant, axis) -> None:
    """A dimension of size 1 can't become longer where no axis of the map has the size 1."""
    nodes = [
        helper.make_node("Unsqueeze", ["real", "one"], ["long"]),
        helper.make_node(
            operator, ["long", "constant"], ["part"], name="node", **({} if axis is None else {"axis": axis})
        ),
        helper.make_node("Reshape", ["part", "sizes"], ["short"]),
    ]
    constants: dict[str, Any] = {"one": np.array([1]), "constant": np.array(constant), "sizes": np.array([0, -1, 5, 4])}
    follows = [
        helper.make_node("DequantizeLinear", ["part_q", "s", "z"], ["again"]),
        helper.make_node("GlobalAveragePool", ["again"], ["mean"]),
    ]
    model = around(*nodes, *quantised("short", to=["part_q"]), *follows, *quantised("mean"), **constants)
    with pytest.raises(
        ModelError, match=rf"^model: {operator} node 'node': works along dimension 1, whose size is 1, but"
    ):
        to_network(model, "model")


def test_the_whole_of_a_dimension_of_one_value() -> None:
    nodes = [
        helper.make_node("Unsqueeze", ["real", "one"], ["long"]),
        helper.make_node("Gather", ["long", "zero"], ["part"], axis=1),
        helper.make_node("Squeeze", ["part", "one"], ["short"]),
    ]
    model = around(*nodes, *quantised("short"), one=np.array([1]), zero=np.array([0]))
    check_model(model)
    assert kinds(model) == ["conv"]


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


def padding(pads: list[int], value: Any = None, *, axes: list[int] | None = None, to: str = "s") -> onnx.ModelProto:
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
        (padding([0, 0, 1, 2, 0, 0, 3, 0]), "pad"),
        (padding([1, 2, 0, 1], axes=[3, -2]), "pad"),
        (padding([0, 0, -1, 2, 0, 0, 1, -1], 2.5), "pad"),
        (padding([0, 0, -1, 0, 0, 0, 0, -1]), "crop"),
        (padding([0, 0, 9, 1, 0, 0, -8, 0], 2.5), "pad"),
        (padding([0, 0, -8, 0, 0, 0, 9, 1], 2.5), "pad"),
        (padding([0, 0, 1, 2, 0, 0, 3, 0], -np.inf), "pad"),
        (padding([0, 0, 1, 2, 0, 0, 3, 0], 0.123), "pad"),
        (padding([0, 0, 1, 2, 0, 0, 3, 0], -5.0, to="t"), "pad"),
    ],
)
def test_padding(model, kind: str) -> None:
    """Any value that is an integer's, and others where the quantiser behind is that of the map."""
    check_model(model)
    assert kinds(model)[1] == kind


@pytest.mark.parametrize(
    ("model", "layers"),
    [
        (padding([0, 0, 0, 0, 0, 3, 0, 0]), ["conv", "conv"]),
        (padding([0, 2, 0, 0, 0, 0, 0, 0], -5.0), ["conv", "conv"]),
        (padding([0, 1, 1, 0, 0, 2, 0, -1], 2.5), ["conv", "conv", "pad"]),
        (padding([0, -2, 0, 0, 0, 1, 0, 0], 0.5), ["conv", "conv"]),
        (padding([0, -1, 0, 0, 0, -2, 0, 0]), ["conv", "select"]),
        (padding([0, -1, 0, 0, 0, 0, 1, 0]), ["conv", "select", "pad"]),
        (padding([0, 0, -1, 0, 0, -2, 0, 0]), ["conv", "select", "crop"]),
        (padding([0, 1, 0, 0, 0, 0, 0, 0], np.inf), ["conv", "conv"]),
        (padding([0, 1, 0, 0, 0, 0, 0, 0], 0.123), ["conv", "conv"]),
        (padding([2, 1], axes=[1]), ["conv", "conv"]),
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
    in_hardware(padding(pads, 2.5), tmp_path)


def test_a_value_between_integers_and_other_steps() -> None:
    with pytest.raises(ModelError, match=r"^model: Pad node 'pad': value 0.123 is not a multiple of its input's scale"):
        to_network(padding([0, 0, 1, 2, 0, 0, 3, 0], 0.123, to="t"), "model")


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


@pytest.mark.parametrize("mode", ["reflect", "edge"])
@pytest.mark.parametrize("pads", [(2, 1, 3, 3), (0, 1, -1, -2), (-1, 0, 3, -1)])
def test_pads_from_inside(mode: str, pads: tuple[int, int, int, int]) -> None:
    """Rows and columns that repeat or reflect those of the map, some after others are removed."""
    top, left, bottom, right = pads
    node = helper.make_node("Pad", ["real", "pads"], ["a"], mode=mode)
    model = around(node, *quantised("a"), pads=np.array([0, 0, top, left, 0, 0, bottom, right]))
    check_model(model)
    assert kinds(model) == ["conv", "resample"]


def test_pads_from_inside_in_hardware(tmp_path: Path) -> None:
    """A reflected border in front of a convolution, and a Resize downwards: predicted cycles, all values."""
    nodes = [
        helper.make_node("Pad", ["real", "pads"], ["a"], mode="reflect"),
        *quantised("a", to=["b"]),
        helper.make_node("DequantizeLinear", ["b", "s", "z"], ["b_real"]),
        helper.make_node("DequantizeLinear", ["k", "w_s", "w_z"], ["kernel"]),
        helper.make_node("Conv", ["b_real", "kernel"], ["found"], name="second"),
        *quantised("found", to=["d"]),
        helper.make_node("DequantizeLinear", ["d", "s", "z"], ["d_real"]),
        helper.make_node("Resize", ["d_real", "", "scales"], ["small"]),
    ]
    constants = {
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        "k": np.random.default_rng(5).integers(-127, 128, (4, 6, 3, 3)).astype(np.int8),
        "scales": np.float32([1, 1, 0.6, 1.4]),
    }
    model = around(*nodes, *quantised("small"), **constants)
    assert kinds(model) == ["conv", "resample", "conv", "resample"]
    in_hardware(model, tmp_path)


BACKWARDS = {"last": np.array([-1]), "far": np.array([-(2**31)]), "rows": np.array([2]), "back": np.array([-1])}


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Slice", ["real", "last", "far", "rows", "back"], ["a"]),
        helper.make_node("Gather", ["real", "places"], ["a"], axis=3),
        helper.make_node("Gather", ["real", "places"], ["a"], axis=2),
    ],
    ids=["backwards", "columns", "rows"],
)
def test_rows_and_columns_in_any_order(node: onnx.NodeProto) -> None:
    model = around(node, *quantised("a"), places=np.array([3, 0, 0, 2, -1]), **BACKWARDS)
    check_model(model)
    assert kinds(model) == ["conv", "resample"]


def test_any_order_in_hardware(tmp_path: Path) -> None:
    """Rows from the last to the first, and columns that are repeated and left out: predicted cycles, all values."""
    nodes = [
        helper.make_node("Slice", ["real", "last", "far", "rows", "back"], ["turned"]),
        helper.make_node("Gather", ["turned", "places"], ["a"], axis=3),
    ]
    model = around(*nodes, *quantised("a"), places=np.array([3, 0, 0, 2]), **BACKWARDS)
    assert kinds(model) == ["conv", "resample", "resample"]
    in_hardware(model, tmp_path)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (
            helper.make_node("Pad", ["real", "pads"], ["a"], mode="wrap"),
            "mode must be constant, reflect or edge, not wr",
        ),
        (helper.make_node("Pad", ["real", "more"], ["a"], mode="edge"), "must pad only rows and columns with mode ed"),
        (
            helper.make_node("Pad", ["real", "high"], ["a"], mode="reflect"),
            "can pad 5 pixels by at most 4, not by 5 and 0",
        ),
        (helper.make_node("Pad", ["real", "early"], ["a"]), "must pad only channels, rows and columns, not frames"),
        (helper.make_node("Pad", ["real", "deep"], ["a"]), "drops all of 6 channels"),
        (helper.make_node("Pad", ["real", "wide"], ["a"]), "must have at most 65,535 output channels, not 1,000,006"),
        (helper.make_node("Pad", ["real", "less"], ["a"]), "crops away all of a map of 5x4 pixels"),
        (helper.make_node("Pad", ["real", "pads", "nan"], ["a"]), "value must be a number, not NaN"),
    ],
)
def test_pads_that_are_refused(node: onnx.NodeProto, message: str) -> None:
    node.name = "move"
    constants: dict[str, Any] = {
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        "early": np.array([1, 0, 0, 0, 0, 0, 0, 0]),
        "deep": np.array([0, -2, 0, 0, 0, -4, 0, 0]),
        "wide": np.array([0, 0, 0, 0, 0, 10**6, 0, 0]),
        "less": np.array([0, 0, -2, 0, 0, 0, -3, 0]),
        "more": np.array([0, 1, 0, 0, 0, 0, 0, 0]),
        "high": np.array([0, 0, 5, 0, 0, 0, 0, 0]),
        "nan": np.float32(np.nan),
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


def test_pads_in_hardware(tmp_path: Path) -> None:
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


Measured = list[tuple[ReorderConfig | SelectConfig, Resources, LogicPath | None]]


@pytest.fixture(scope="module")
def measured() -> Measured:
    """Components with what Yosys makes of them: all in one run, as it takes seconds to start."""
    beat = BeatFormat(channels=32, height=4, width=12, lanes=4, bits=8, signed=True, groups=4)
    parts: list[ReorderConfig | SelectConfig] = [
        ReorderConfig(input=beat, blocks=(2, 2), opens=True),
        ReorderConfig(input=replace(beat, width=2), blocks=(2, 2), opens=True),
        ReorderConfig(input=replace(beat, groups=1, lanes=5), blocks=(2, 3), opens=False),
        ReorderConfig(input=beat, blocks=(1, 4), opens=True),
    ]
    beat = BeatFormat(channels=24, height=3, width=4, lanes=5, bits=8, signed=True)
    shuffle = tuple(np.arange(24).reshape(3, 8).T.ravel().tolist())
    parts += [
        SelectConfig(input=beat, index=shuffle, lanes=4),
        SelectConfig(input=replace(beat, pixels=2, lanes=24), index=shuffle, lanes=1),
        SelectConfig(input=beat, index=tuple(range(7, 16)), lanes=9),
    ]
    return list(zip(parts, *synthesis.measure_paths(parts), strict=True))


@pytest.mark.long
@pytest.mark.parametrize(("kind", "count"), [(ReorderConfig, 4), (SelectConfig, 3)])
def test_resources(measured: Measured, kind: type, count: int) -> None:
    """Flip-flops within a tenth, and of selections within a few; LUTs within a quarter."""
    some = [row for row in measured if isinstance(row[0], kind)]
    assert len(some) == count
    for part, found, path in some:
        expected = part.resources
        assert (expected.dsp, expected.bram36) == (found.dsp, found.bram36)
        selects = kind is SelectConfig
        assert abs(expected.ff - found.ff) <= (4 if selects else 0.1 * found.ff + 2), part
        assert abs(expected.lut - found.lut) <= 0.25 * found.lut + (6 if selects else 8), part
        assert path is None or path.delay <= 3.3
