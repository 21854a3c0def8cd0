"""ConvTranspose and dilated windows: against loops over integers, against ONNX Runtime, and in hardware."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx_models import by_hwgen, frames_for, quantised_chain
from onnx_writing import as_model
from pieces import Piece
from referees import by_onnxruntime, integer_session
from refusals import refusals_in
from resource_layers import DILATED, config_of, network_of
from step_checks import in_hardware, kinds

import hwgen
from hwgen.cli import main as cli
from hwgen.errors import ModelError
from hwgen.explore.pyramid import reuse_words
from hwgen.network import golden, shapes
from hwgen.network.onnx.importer import to_network
from hwgen.network.onnx.layers import RuntimeLayers
from hwgen.plan import read, write
from hwgen.schedule.buffers import ample_rows

#: Scales that have so little in common that ties are rare.
ZERO, SCALE, OF_WEIGHTS, AFTER = 100, np.float32(0.05), np.float32(0.02), np.float32(0.311723)


def transposed(
    shape: tuple[int, int, int],
    weights: np.ndarray,
    *,
    w_scale: np.ndarray | np.float32 = OF_WEIGHTS,
    bias: np.ndarray | None = None,
    behind: tuple[str, ...] = (),
    added: np.ndarray | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """uint8 maps around one node, with operators such as Relu ``behind`` it."""
    constants: dict[str, Any] = {"s": SCALE, "z": np.uint8(ZERO), "t": AFTER, "w": weights, "w_s": w_scale}
    constants["w_z"] = np.zeros(np.shape(w_scale), np.int8)
    inputs = ["real", "weights"]
    axis = {"axis": 1} if np.ndim(w_scale) else {}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["real"]),
        helper.make_node("DequantizeLinear", ["w", "w_s", "w_z"], ["weights"], **axis),
    ]
    if bias is not None:
        groups = attributes.get("group", 1)
        of_bias = np.tile(np.atleast_1d(w_scale), groups) if np.ndim(w_scale) else w_scale
        constants |= {"b": bias, "b_s": np.float32(SCALE * of_bias), "b_z": np.zeros(np.shape(of_bias), np.int32)}
        nodes.append(helper.make_node("DequantizeLinear", ["b", "b_s", "b_z"], ["bias"], axis=0))
        inputs.append("bias")
    nodes.append(helper.make_node("ConvTranspose", inputs, ["made0"], name="up", **attributes))
    for number, operator in enumerate(behind):
        more = {"MaxPool": {"kernel_shape": [2, 2]}}.get(operator, {})
        names = [f"made{number}", *(["added"] if operator == "Add" else [])]
        nodes.append(helper.make_node(operator, names, [f"made{number + 1}"], **more))
    if added is not None:
        constants["added"] = added
    nodes.append(helper.make_node("QuantizeLinear", [f"made{len(behind)}", "t", "z"], ["y"]))
    return as_model(
        nodes,
        {"x": (TensorProto.UINT8, ("batch", *shape))},
        {"y": (TensorProto.UINT8, ["batch", "m", "h", "w"])},
        constants,
        opset=18,
    )


def scattered(
    frames: np.ndarray, weights: np.ndarray, groups: int, strides: Any, dilations: Any, pads: Any, more: Any
) -> np.ndarray:
    """Sums in integers: each input is added, times each weight, where ONNX says."""
    count, channels, height, width = frames.shape
    _, outputs, *kernel = weights.shape
    full = [
        (size - 1) * stride + (taps - 1) * dilation + 1 + extra
        for size, stride, taps, dilation, extra in zip((height, width), strides, kernel, dilations, more, strict=True)
    ]
    total = np.zeros((count, outputs * groups, *full), np.int64)
    values = frames.astype(np.int64) - ZERO
    for c, y, x in np.ndindex(channels, height, width):
        first = c // (channels // groups) * outputs
        for i, j in np.ndindex(*kernel):
            row, column = y * strides[0] + i * dilations[0], x * strides[1] + j * dilations[1]
            products = values[:, c, y, x, None] * weights[c, :, i, j].astype(np.int64)
            total[:, first : first + outputs, row, column] += products
    return total[:, :, pads[0] : full[0] - pads[2], pads[1] : full[1] - pads[3]]


def requantised(sums: np.ndarray, w_scale: np.ndarray | np.float32, groups: int) -> np.ndarray:
    factor = np.float32(SCALE * np.asarray(w_scale, np.float32)) / AFTER
    if factor.ndim:
        factor = np.tile(factor, groups)[:, None, None]
    rounded = np.rint(sums.astype(np.float32) * factor.astype(np.float32)).astype(np.int64) + ZERO
    return np.clip(rounded, 0, 255).astype(np.uint8)


@st.composite
def windows(draw) -> dict[str, Any]:
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
    strides, dilations, kernel = draw(pair), draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (3, 2)])), draw(pair)
    more = tuple(draw(st.integers(0, max(stride, dilation) - 1)) for stride, dilation in zip(strides, dilations))  # noqa: B905
    return {
        "kernel_shape": kernel,
        "strides": strides,
        "dilations": dilations,
        "output_padding": more,
        "pads": tuple(draw(st.integers(0, 2)) for _ in range(4)),
        "group": draw(st.sampled_from([1, 1, 2])),
    }


@settings(max_examples=50)
@given(window=windows(), seed=st.integers(0, 2**32))
def test_any_window(window, seed):
    """Values and size of the integer reference, with a bias and scales of channels."""
    random, groups = np.random.default_rng(seed), window["group"]
    channels, outputs = groups * int(random.integers(1, 3)), int(random.integers(1, 4))
    shape = (channels, *map(int, random.integers(1, 5, 2)))
    weights = random.integers(-127, 128, (channels, outputs, *window["kernel_shape"])).astype(np.int8)
    w_scale = np.float32(random.uniform(0.01, 0.03, outputs)) if seed % 2 else np.float32(0.02)
    frames = random.integers(0, 256, (2, *shape)).astype(np.uint8)
    pads, more = window["pads"], window["output_padding"]
    full = [
        (size - 1) * stride + (taps - 1) * dilation + 1 + extra
        for size, stride, taps, dilation, extra in zip(
            shape[1:], window["strides"], window["kernel_shape"], window["dilations"], more, strict=True
        )
    ]
    assume(pads[0] + pads[2] < full[0] and pads[1] + pads[3] < full[1])
    bias = random.integers(-5000, 5000, outputs * groups).astype(np.int32)
    model = transposed(shape, weights, w_scale=w_scale, bias=bias, **window)
    sums = scattered(frames, weights, groups, window["strides"], window["dilations"], pads, more)
    expected = requantised(sums + bias[:, None, None], w_scale, groups)
    np.testing.assert_array_equal(golden.run(to_network(model, "model"), frames), expected)


NAMED = [
    {"kernel_shape": [2, 2], "strides": [2, 2]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
    {"kernel_shape": [4, 4], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 4], "strides": [2, 3], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "VALID"},
    {"kernel_shape": [3, 3], "strides": [3, 2], "output_shape": [14, 10]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "output_shape": [10, 8], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [1, 1], "strides": [3, 2]},
    {"kernel_shape": [3, 3], "dilations": [2, 2], "strides": [2, 2], "group": 2},
    {"kernel_shape": [2, 2], "strides": [2, 2], "group": 4},
]


@pytest.mark.parametrize("window", NAMED, ids=str)
@pytest.mark.parametrize("behind", [(), ("Relu",), ("Add", "Relu", "MaxPool")])
def test_against_onnx_runtime(window: dict[str, Any], behind: tuple[str, ...]) -> None:
    """It sums floats: of 10,000 values one may differ, by 1."""
    random, groups = np.random.default_rng(2), window.get("group", 1)
    weights = random.integers(-127, 128, (4, 4 // groups, *window["kernel_shape"])).astype(np.int8)
    bias = random.integers(-5000, 5000, 4).astype(np.int32)
    added = np.linspace(-9, 9, 4, dtype=np.float32).reshape(4, 1, 1)
    model = transposed((4, 5, 5), weights, bias=bias, behind=behind, added=added, **window)
    frames = random.integers(0, 256, (8, 4, 5, 5)).astype(np.uint8)
    (theirs,) = integer_session(model)[0].run(None, {"x": frames})
    ours = golden.run(to_network(model, "model"), frames).astype(int)
    differ = np.abs(ours - np.asarray(theirs).astype(int))
    assert differ.shape == np.shape(theirs)
    assert differ.max() <= 1
    assert (differ > 0).sum() <= max(1, differ.size // 10_000)


@pytest.mark.parametrize("biased", [False, True])
def test_floats_at_the_end(biased: bool, tmp_path: Path) -> None:
    """The hardware ends at the moved accumulators, and the host makes floats of them."""
    piece = Piece((4, 5, 6), scale=0.0213, zero=121)
    weights = piece.weights((4, 3, 4, 4), axis=1, most=127, scale=0.0031)
    bias = [piece.floats(3)] if biased else []
    made = piece.node("ConvTranspose", piece.real(), weights, *bias, strides=[2, 2], pads=[1] * 4)
    model, x = piece.model(piece.node("Sigmoid", made)), piece.frames(3)
    onnx.save(model, tmp_path / "model.onnx")
    loaded = hwgen.load(tmp_path / "model.onnx")
    (theirs,) = integer_session(model)[0].run(None, {"x": x})
    np.testing.assert_allclose(loaded.golden(x), theirs, rtol=0, atol=2.0**-21)
    assert [layer.kind for layer in loaded.network.layers] == ["conv", "depthtospace", "crop"]
    runtime = RuntimeLayers(model, loaded.network, "model")
    _, found = runtime.run([x])
    layer, expected = [*golden.trace(loaded.network, x)][-1]
    assert (np.abs(found[layer.name] - expected) <= runtime.roundings[layer.name]).all()


@pytest.mark.parametrize(
    ("window", "layers", "taps"),
    [
        (NAMED[0], ["conv", "depthtospace"], 1),
        (NAMED[1], ["conv", "depthtospace"], 4),
        (NAMED[2], ["conv", "depthtospace", "crop"], 4),
        (NAMED[3], ["conv"], 9),
        (NAMED[11], ["conv", "select", "depthtospace"], 1),
    ],
)
def test_layers(window: dict[str, Any], layers: list[str], taps: int) -> None:
    """As few taps as there can be, and no layer that does nothing."""
    weights = np.ones((4, 4 // window.get("group", 1), *window["kernel_shape"]), np.int8)
    model = transposed((4, 5, 5), weights, **window)
    assert kinds(model) == layers
    assert to_network(model, "model").layers[0].taps == taps


@pytest.mark.parametrize(("window", "message"), refusals_in("transposed_what_is_refused.txt"))
def test_what_is_refused(window: dict[str, Any], message: str) -> None:
    model = transposed((4, 5, 5), np.ones((4, 4, 2, 2), np.int8), **window)
    with pytest.raises(ModelError, match=f"^model: ConvTranspose node 'up': .*{message}"):
        to_network(model, "model")


@pytest.mark.parametrize("window", [NAMED[0], NAMED[2]], ids=["2x2", "4x4"])
def test_in_hardware(window: dict[str, Any], tmp_path: Path) -> None:
    """Weights of few values, so that floats hold all sums."""
    random = np.random.default_rng(2)
    weights = random.integers(-3, 4, (2, 3, *window["kernel_shape"])).astype(np.int8)
    in_hardware(transposed((2, 3, 4), weights, **window), tmp_path)


def test_a_group_in_turn(tmp_path: Path) -> None:
    """Cut between the convolution and the pixels of its phases."""
    path = tmp_path / "model.onnx"
    weights = np.random.default_rng(2).integers(-3, 4, (2, 3, 2, 2)).astype(np.int8)
    onnx.save(transposed((2, 3, 4), weights, strides=[2, 2]), path)
    frames = np.random.default_rng(1).integers(0, 256, (3, 2, 3, 4)).astype(np.uint8)
    result = (
        hwgen.load(path).plan("zedboard", multipliers="dsp", groups="up,up_2").simulate(frames, simulator="amaranth")
    )
    assert result.mismatches == 0


def test_paddings_far_larger_than_kernels() -> None:
    """What they leave out is computed and skipped: windows stay small."""
    random = np.random.default_rng(2)
    weights = random.integers(-127, 128, (2, 3, 3, 2)).astype(np.int8)
    frames = random.integers(0, 256, (2, 2, 12, 12)).astype(np.uint8)
    for pads in ([9, 0, 0, 9], [0, 8, 7, 0], [10, 7, 8, 12]):
        model = transposed((2, 12, 12), weights, strides=[2, 2], pads=pads)
        sums = scattered(frames, weights, 1, (2, 2), (1, 1), pads, (0, 0))
        np.testing.assert_array_equal(golden.run(to_network(model, "model"), frames), requantised(sums, OF_WEIGHTS, 1))
        assert to_network(model, "model").layers[0].taps <= 4


def test_strides_far_larger_than_maps() -> None:
    """Outputs of phases that no tap meets are the bias alone."""
    weights = np.full((1, 1, 3, 1), 5, np.int8)
    model = transposed((1, 1, 1), weights, bias=np.array([900], np.int32), strides=[700, 1])
    frames = np.array([[[[ZERO + 20]]]], np.uint8)
    sums = scattered(frames, weights, 1, (700, 1), (1, 1), (0, 0, 0, 0), (0, 0)) + 900
    np.testing.assert_array_equal(golden.run(to_network(model, "model"), frames), requantised(sums, OF_WEIGHTS, 1))


@pytest.fixture
def file(tmp_path):
    """Three layers over 2 x 21 x 23: dilations 2, 3 x 2 with strides, and a pool with 2 x 3."""
    model = quantised_chain(
        ("Conv", {"dilations": (2, 2), "auto_pad": "SAME_UPPER"}),
        ("Conv", {"dilations": (3, 2), "strides": (1, 2), "pads": (3, 2, 3, 1)}),
        ("MaxPool", {"kernel_shape": (2, 2), "dilations": (2, 3), "pads": (1, 0, 0, 1)}),
        shape=(2, 21, 23),
    )
    path = tmp_path / "dilated.onnx"
    onnx.save(model, path)
    return path


def padded(file):
    """The same for ONNX Runtime, which wants padding in numbers where windows are dilated."""
    model = onnx.load(file)
    (node,) = (node for node in model.graph.node if node.name == "node0")
    del node.attribute[:]
    node.attribute.extend([onnx.helper.make_attribute("dilations", (2, 2))])
    node.attribute.extend([onnx.helper.make_attribute("pads", (2, 2, 2, 2))])
    return model


PLANS = [
    pytest.param({"dsp": 40}, marks=pytest.mark.long),
    pytest.param({"dsp": 220, "macs_per_dsp": 2}, marks=pytest.mark.long),
    pytest.param({"template": "pyramid", "tile": (3, 4), "dsp": 60}, marks=pytest.mark.long),
    {"template": "pyramid", "tile": (4, 3), "overlap": "reload", "dsp": 200},
    pytest.param({"template": "pyramid", "tile": (5, 9), "overlap": "recompute", "dsp": 60}, marks=pytest.mark.long),
    {"groups": "node0-node1,node2", "in_turn": True},
]


@pytest.mark.long
@pytest.mark.parametrize("options", PLANS)
def test_three_layers(file, options):
    """Values as ONNX Runtime has them, cycles as the schedule says, and the plan as it was written."""
    model = hwgen.load(file)
    assert [layer.window.dilation for layer in model.network.layers] == [(2, 2), (3, 2), (2, 3)]
    design = model.plan("zedboard", multipliers="dsp", **options)
    assert write(read(design.to_json(), design.network, design.board)) == design.to_json()
    reference = padded(file)
    x = frames_for(reference, 3)
    np.testing.assert_array_equal(by_hwgen(onnx.load(file), x), by_onnxruntime(reference, x))
    result = design.simulate(x, simulator="amaranth")
    assert result.ok
    assert result.as_predicted


def test_explored(file, capsys):
    """What neighbouring windows share follows from what they cover: (K - 1) D + 1 pixels."""
    assert cli.main(["explore", str(file)]) == 0
    assert "node2" in capsys.readouterr().out
    first, second, third = shapes.load(file).layers
    assert reuse_words([first]) == 2 * (4 * 23 + 4 * 1)
    assert reuse_words([first, second]) == reuse_words([second]) + 2 * (4 * 23 + 4 * 1)
    assert reuse_words([second]) == 2 * (6 * 23 + (5 - 2) * 1)
    assert reuse_words([third]) == 2 * (2 * third.width + 3 * 1)


def test_not_blocked(file, capsys):
    """The loops of ``hwgen block`` have no gaps: refused, with the layer's name."""
    assert cli.main(["block", str(file), "--memory", "32KB"]) == 2
    assert "node0: loops over a window with dilation 2x2 can't be blocked, 1x1 can" in capsys.readouterr().err


def test_rows_of_a_dilated_window():
    """A line buffer holds all rows that a window covers."""
    (shape,) = (shape for shape in DILATED if shape.name == "dilated3x3-far")
    (layer,) = config_of(shape).layers
    assert layer.min_rows == 13
    assert 13 <= layer.window.rows <= ample_rows(network_of(shape).layers[0].window, 20, 2) == 2 * 13 + 1 + 12 + 1
