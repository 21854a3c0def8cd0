"""DepthToSpace, SpaceToDepth, Resize and Upsample: against ONNX Runtime, and in hardware."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx_models import by_hwgen
from onnx_writing import as_model
from pieces import Piece
from pieces import check as compare
from referees import integer_session
from step_checks import around, check_model, in_hardware, kinds, maps, padded, quantised, words
from testbench import Pattern, channel_lanes, patterns, run, unpack

import hwgen
from hwgen.blocking.problem import Problem
from hwgen.errors import ConfigError, ModelError, PlanError
from hwgen.gateware.reorder import ReorderConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.network.maps import UINT8, FeatureMap, Window
from hwgen.network.onnx.importer import to_network
from hwgen.network.ops import DepthToSpace


@st.composite
def reorderings(draw) -> ReorderConfig:
    blocks, opens = (draw(st.integers(1, 3)), draw(st.integers(1, 3))), draw(st.booleans())
    count, size = blocks[0] * blocks[1], draw(st.integers(1, 3))
    rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    beat = BeatFormat(
        channels=size * (count if opens else 1),
        height=rows if opens else rows * blocks[0],
        width=columns if opens else columns * blocks[1],
        lanes=draw(st.integers(1, size)),
        bits=draw(st.integers(2, 9)),
        signed=draw(st.booleans()),
        groups=count if opens else 1,
    )
    return ReorderConfig(input=beat, blocks=blocks, opens=opens)


def moved(config: ReorderConfig, frames: np.ndarray) -> np.ndarray:
    """By loops over pixels of a block, as ONNX defines both."""
    count, channels, rows, columns = frames.shape
    down, right = config.blocks
    if config.opens:
        size = channels // (down * right)
        result = np.empty((count, size, rows * down, columns * right), frames.dtype)
        for i, j in np.ndindex(down, right):
            first = (i * right + j) * size
            result[:, :, i::down, j::right] = frames[:, first : first + size]
        return result
    result = np.empty((count, channels * down * right, rows // down, columns // right), frames.dtype)
    for i, j in np.ndindex(down, right):
        first = (i * right + j) * channels
        result[:, first : first + channels] = frames[:, :, i::down, j::right]
    return result


def output_of(config: ReorderConfig) -> BeatFormat:
    """The stream that steps make, each one a beat."""
    channels = sum(map(len, config.step_channels))
    groups = 1 if config.opens else config.blocks[0] * config.blocks[1]
    size = {"height": config.output_height, "width": config.output_width}
    return replace(config.input, channels=channels, groups=groups, **size)


def check_moved(config: ReorderConfig, found: list[int], frames: np.ndarray) -> None:
    beat = output_of(config)
    values = np.array([unpack(word, beat.bits, beat.signed, beat.lanes) for word in found])
    values = values.reshape(len(frames), beat.height, beat.width, -1).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(values[:, channel_lanes(beat)], moved(config, frames))


@pytest.mark.long
@settings(max_examples=40)
@given(config=reorderings(), seed=st.integers(0, 2**32), offer=patterns(), room=patterns())
def test_the_component(config, seed, offer, room):
    """Every step and every beat in the first cycle in which it may come."""
    source = config.input
    frames, component = maps(source, seed), config.component()
    given_beats = words(source, padded(source, frames, seed))
    watch = {"start": component.start, "offered": component.i.valid, "room": component.room}
    trace = run(component, given_beats, len(given_beats), offer=offer, drive=[(component.room, room)], watch=watch)
    check_moved(config, trace.words, frames)
    starts = [cycle for cycle, start in enumerate(trace.watched["start"]) if start]
    assert trace.times == [cycle + config.latency for cycle in starts]
    # Which beat each step gives: numbers in place of values.
    first, second, run_beats = config.block
    order = np.arange(config.block_beats).reshape(first, second, run_beats).swapaxes(0, 1).ravel()
    free = 0
    for number, start in enumerate(starts):
        block, place = divmod(number, config.block_beats)
        there = trace.taken[block * config.block_beats + int(order[place])] + config.write_delay
        earliest = max(free, there)
        assert start == next(c for c in range(earliest, start + 1) if trace.watched["room"][c])
        free = start + 1
    free = 0
    for number, cycle in enumerate(trace.taken):
        before = (number // config.block_beats - 1) * config.block_beats - 1
        earliest = max(free, starts[before] + config.release_delay if before >= 0 else 0)
        assert cycle == next(c for c in range(earliest, cycle + 1) if trace.watched["offered"][c])
        free = cycle + 1


@settings(max_examples=10)
@given(config=reorderings(), seed=st.integers(0, 2**32), reset_at=st.integers(0, 60))
def test_after_a_reset(config, seed, reset_at):
    source = config.input
    frames, component = maps(source, seed), config.component()
    after = words(source, padded(source, frames, seed))
    before = words(source, padded(source, maps(source, seed + 1), seed)) * 4
    drive = [(component.room, Pattern())]
    trace = run(component, before, len(before), reset_at=reset_at, after=(after, len(after)), drive=drive)
    assert trace.reset is not None
    check_moved(config, trace.words[trace.reset[2] :], frames)


def test_what_configurations_refuse() -> None:
    beat = BeatFormat(channels=4, height=2, width=3, lanes=1, bits=8, signed=True, groups=4)
    with pytest.raises(ConfigError, match=r"^input.pixels must be 1, not 2$"):
        ReorderConfig(input=replace(beat, pixels=2), blocks=(2, 2), opens=True)
    with pytest.raises(ConfigError, match=r"^blocks must be positive and the input's groups, not \(2, 1\) of "):
        ReorderConfig(input=beat, blocks=(2, 1), opens=True)
    with pytest.raises(ConfigError, match=r"^blocks must divide the map, not \(2, 2\) of "):
        ReorderConfig(input=replace(beat, groups=1), blocks=(2, 2), opens=False)
    source = FeatureMap(channels=4, height=2, width=2, type=UINT8)
    output = replace(source, height=4, width=4)
    with pytest.raises(ConfigError, match=r"^wide: 4 pixels of 4 channels must be one of as many, not of 4$"):
        DepthToSpace(name="wide", input=source, output=output, window=Window(kernel=(1, 1)), blocks=(2, 2))


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("operator", ["DCR", "CRD", "SpaceToDepth"])
def test_models(operator: str, size: int) -> None:
    """With a Relu that bounds the convolution in front, as it would anywhere."""
    kind = "SpaceToDepth" if operator == "SpaceToDepth" else "DepthToSpace"
    mode = {} if kind == "SpaceToDepth" else {"mode": operator}
    nodes = [
        helper.make_node(kind, ["real"], ["other"], blocksize=size, **mode),
        helper.make_node("Relu", ["other"], ["positive"]),
        *quantised("positive"),
    ]
    shape = (2, 2 * size, 3 * size) if kind == "SpaceToDepth" else (2 * size**2, 2, 3)
    model = around(*nodes, shape=shape)
    check_model(model)
    moves = [] if size == 1 else ["select"] * (operator == "CRD") + [kind.lower()]
    assert kinds(model) == ["conv", *moves]


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (helper.make_node("DepthToSpace", ["real"], ["a"], blocksize=4), "6 channels must be a multiple of the 16"),
        (helper.make_node("SpaceToDepth", ["real"], ["a"], blocksize=2), "5x4 pixels must be whole blocks of 2x2"),
    ],
)
def test_what_is_refused(node: onnx.NodeProto, message: str) -> None:
    node.name = "move"
    relu = helper.make_node("Relu", ["real"], ["big"])
    model = around(relu, node, *quantised("a"))
    # Refused by the checker, too, if it knew the shapes.
    with pytest.raises(ModelError, match=f"^model: {node.op_type} node 'move': {message}"):
        to_network(model, "model")


@pytest.mark.parametrize("mode", ["DCR", "CRD", "SpaceToDepth"])
def test_in_hardware(mode: str, tmp_path: Path) -> None:
    """In the manner of ESPCN: pixels of channels at the end; and channels of pixels, before a convolution."""
    kernel = np.random.default_rng(5).integers(-127, 128, (4, 24, 1, 1)).astype(np.int8)
    if mode == "SpaceToDepth":
        nodes = [helper.make_node("SpaceToDepth", ["real"], ["deep"], blocksize=2), *quantised("deep", to=["d"])]
        nodes.append(helper.make_node("DequantizeLinear", ["d", "s", "z"], ["d_real"]))
        nodes.append(helper.make_node("DequantizeLinear", ["k", "w_s", "w_z"], ["kernel"]))
        nodes.append(helper.make_node("Conv", ["d_real", "kernel"], ["found"], name="second"))
        model = around(*nodes, *quantised("found"), shape=(6, 6, 4), k=kernel)
    else:
        node = helper.make_node("DepthToSpace", ["real"], ["wide"], blocksize=2, mode=mode)
        model = around(node, *quantised("wide"), shape=(12, 3, 5))
    in_hardware(model, tmp_path)


def _shuffled(piece: Piece, tensor: str, *, channels_first: bool) -> str:
    """Return a pixel shuffle of 8 channels, 3x4 pixels, written as Reshape, Transpose and Reshape."""
    order = [0, 1, 4, 2, 5, 3] if channels_first else [0, 3, 4, 1, 5, 2]
    parts = piece.node("Transpose", piece.node("Reshape", tensor, np.array([-1, 2, 2, 2, 3, 4])), perm=order)
    return piece.node("Reshape", parts, np.array([-1, 2, 6, 8]))


_BEHIND_SHUFFLES: dict[str, list] = {
    "ReduceMean": [np.array([2, 3])],
    "ReduceMax": [np.array([2, 3])],
    "Slice": [np.array([1, 1]), np.array([2, 6]), np.array([1, 2])],
    "Pad": [np.array([0, 0, 1, 2, 0, 0, 0, 1])],
}


@pytest.mark.parametrize("channels_first", [False, True])
@pytest.mark.parametrize("operator", _BEHIND_SHUFFLES)
def test_behind_a_shuffle_of_views(operator: str, channels_first: bool) -> None:
    piece = Piece(shape=(8, 3, 4))
    moved = _shuffled(piece, piece.real(), channels_first=channels_first)
    found = piece.node(operator, moved, *_BEHIND_SHUFFLES[operator])
    network = compare(piece.model(piece.quantise(found, *piece.label)), piece.frames(20))
    assert "depthtospace" in [layer.kind for layer in network.layers]


@pytest.mark.parametrize("operator", ["Add", "Concat"])
def test_joins_of_shuffles_in_both_orders(operator: str) -> None:
    """Two maps that are laid out differently are both turned into channels, rows and columns."""
    piece = Piece(shape=(8, 3, 4))
    x = piece.real()
    maps = [_shuffled(piece, x, channels_first=first) for first in (True, False)]
    joined = piece.node(operator, *maps, **({"axis": 1} if operator == "Concat" else {}))
    network = compare(piece.model(piece.quantise(joined, 1.3, 7)), piece.frames(20))
    assert [layer.kind for layer in network.layers].count("depthtospace") == 2


def test_loops_are_none() -> None:
    model = around(
        helper.make_node("DepthToSpace", ["real"], ["wide"], blocksize=2), *quantised("wide"), shape=(8, 3, 5)
    )
    with pytest.raises(PlanError, match=r"^\w+: a layer of the kind 'depthtospace' only moves values: it can't be "):
        Problem.of(to_network(model, "model").layers[-1])


def test_pyramids_refuse(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    node = helper.make_node("DepthToSpace", ["real"], ["wide"], blocksize=2)
    onnx.save(around(node, *quantised("wide"), shape=(8, 3, 5)), path)
    with pytest.raises(hwgen.HwgenError, match=re.escape("pyramids can't compute a layer of kind 'depthtospace'")):
        hwgen.load(path).plan("zedboard", template="pyramid")


WAYS = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric", "align_corners")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
SHAPE = (2, 3, 4)


def resizing(
    operator: str, *inputs: np.ndarray | None, opset: int = 19, shape=SHAPE, after: float = 0.5, **attributes
) -> onnx.ModelProto:
    """A model of integers around one operator; ``inputs`` are its constants, ``None`` where it has none."""
    constants = {"s": np.float32(0.5), "z": np.uint8(3), "t": np.float32(after)}
    names = ["real"]
    for number, value in enumerate(inputs):
        names.append("" if value is None else f"constant{number}")
        if value is not None:
            constants[names[-1]] = value
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["real"]),
        helper.make_node(operator, names, ["wide"], name="wider", **attributes),
        helper.make_node("QuantizeLinear", ["wide", "t", "z"], ["y"]),
    ]
    return as_model(
        nodes,
        {"x": (TensorProto.UINT8, (1, *shape))},
        {"y": (TensorProto.UINT8, (1, "c", "h", "w"))},
        constants,
        opset=opset,
    )


def check(model: onnx.ModelProto, shape=SHAPE) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (1, *shape)).astype(np.uint8)
    (theirs,) = integer_session(model)[0].run(None, {"x": frames})
    np.testing.assert_array_equal(by_hwgen(model, frames), theirs)


def scales(down: float, right: float) -> np.ndarray:
    return np.array([1, 1, down, right], np.float32)


@pytest.mark.parametrize(("way", "rounding"), list(product(WAYS, ROUNDINGS)))
def test_ways_and_roundings(way, rounding):
    """Factors that are whole and uneven, upwards and downwards: pixels are picked as ONNX Runtime picks them."""
    for factors, shape in product(((2, 2), (3, 1), (1.3, 4), (0.5, 0.7), (2.5, 0.25)), (SHAPE, (1, 3, 5))):
        how = {"coordinate_transformation_mode": way, "nearest_mode": rounding}
        check(resizing("Resize", np.zeros(0, np.float32), scales(*factors), shape=shape, **how), shape)


def test_kinds_of_resizes():
    """Only a Resize that does not repeat each pixel equally often is no upsampling."""
    floor = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    assert kinds(resizing("Resize", None, scales(2, 3), **floor)) == ["upsample"]
    assert kinds(resizing("Resize", None, scales(2, 3), **{**floor, "nearest_mode": "ceil"})) == ["resample"]
    assert kinds(resizing("Resize", None, scales(0.5, 3), **floor)) == ["resample"]
    assert kinds(resizing("Resize", None, scales(1, 1), after=0.25)) == ["conv"]


def test_sizes_and_older_versions():
    sizes = np.array([1, 2, 6, 12], np.int64)
    floor = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    check(resizing("Resize", None, None, sizes, **floor))
    check(resizing("Resize", None, None, sizes))
    check(resizing("Resize", None, scales(2, 1), after=0.25))  # other steps behind it
    check(resizing("Resize", scales(2, 3), opset=10))
    check(resizing("Resize", None, scales(1, 1), after=0.25))
    check(resizing("Resize", None, np.array([3, 2], np.float32), axes=[-1, 2]))
    check(resizing("Resize", None, None, np.array([12]), axes=[3]))
    check(resizing("Resize", None, None, np.array([1, 2, 7, 3])))
    check(resizing("Resize", scales(0.6, 0.5), opset=10))
    check(resizing("Resize", None, np.array([1.5, 0.5], np.float32), axes=[-1, 2]))
    check(resizing("Resize", None, np.array([2, 1, 1], np.float32), axes=[2, 0, 1]))


def computed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same; that its scales don't fit is seen only when they are computed."""
    model.graph.node.insert(0, helper.make_node("Exp", ["constant1"], ["scales"]))
    model.graph.node[2].input[2] = "scales"
    return model


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (resizing("Resize", None, scales(2, 2), mode="cubic"), "mode must be nearest or linear, not cubic"),
        (resizing("Resize", None, np.array([1, 2, 2, 2], np.float32)), "scales must be four, positive, and change"),
        (resizing("Resize", None, None, np.array([1, 3, 7, 8])), r"sizes must .* not \[1, 3, 7, 8\]"),
        (resizing("Resize", None, np.array([2, 3], np.float32), axes=[1, 2]), r"scales must .* not \[1, 2, 3, 1\]"),
        (computed(resizing("Resize", None, np.ones(2, np.float32), axes=[3])), r"axes must be as many as scales or"),
        (resizing("Resize", None, scales(np.nan, 2)), r"scales must be four, positive, .* not \[1, 1, nan, 2\]"),
        (resizing("Resize", None, scales(np.inf, 2)), r"scales must be four, positive, .* not \[1, 1, inf, 2\]"),
        (resizing("Resize", None, scales(2, 2).reshape(2, 2)), "scales must be four, positive"),
        (resizing("Resize", None, scales(30_000, 1)), "its output must have 1 to 65,535 pixels per side, not 90,000"),
        (
            resizing("Resize", None, scales(2, 2), coordinate_transformation_mode="tf_crop_and_resize"),
            "coordinate_transformation_mode 'tf_crop_and_resize' is not supported; crop with a Slice",
        ),
    ],
)  # fmt: skip
def test_resizes_that_are_refused(model, message):
    with pytest.raises(ModelError, match=rf"^model: Resize node 'wider': {message}"):
        by_hwgen(model, np.zeros((1, *SHAPE), np.uint8))
