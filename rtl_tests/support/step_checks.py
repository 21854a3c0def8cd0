"""Components without a line buffer, and models around a single layer: random maps, beats, and the checks of both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from accelerators import integers
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx_writing import as_model
from referees import integer_session
from testbench import channel_lanes, pack

import hwgen
from hwgen.gateware.stream import BeatFormat
from hwgen.network import golden
from hwgen.network.onnx.importer import to_network

SHAPE = (6, 5, 4)


def around(
    *nodes: onnx.NodeProto,
    outputs: Sequence[str] = ("y",),
    shape: Sequence[int] = SHAPE,
    opset: int = 18,
    **constants: Any,
) -> onnx.ModelProto:
    """Return a model of uint8 maps: a convolution that keeps the shape turns ``x`` into ``c``, dequantised ``real``.

    ``nodes`` are the rest of the model. Each of ``outputs`` is an integer map.
    """
    random, channels = np.random.default_rng(0), shape[0]
    weights = random.integers(-63, 64, (channels, channels, 1, 1)).astype(np.int8)  # sums of two fit int16
    arrays = {"s": np.float32(0.05), "z": np.uint8(100), "w_s": np.float32(0.02), "w_z": np.int8(0), "w": weights}
    first = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["whole"]),
        helper.make_node("DequantizeLinear", ["w", "w_s", "w_z"], ["weights"]),
        helper.make_node("Conv", ["whole", "weights"], ["sums"], name="conv"),
        helper.make_node("QuantizeLinear", ["sums", "s", "z"], ["c"]),
        helper.make_node("DequantizeLinear", ["c", "s", "z"], ["real"]),
    ]
    return as_model(
        [*first, *nodes],
        {"x": (TensorProto.UINT8, ("batch", *shape))},
        {name: (TensorProto.UINT8, [f"{name}_{axis}" for axis in range(4)]) for name in outputs},
        arrays | constants,
        opset=opset,
    )


def quantised(*names: str, to: Sequence[str] = ("y",)) -> list[onnx.NodeProto]:
    return [helper.make_node("QuantizeLinear", [name, "s", "z"], [y]) for name, y in zip(names, to, strict=True)]


def check_model(model: onnx.ModelProto, count: int = 3) -> None:
    """Check that the golden model has ONNX Runtime's integers at every output."""
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim[1:]]
    frames = np.random.default_rng(1).integers(0, 256, (count, *shape)).astype(np.uint8)
    theirs = integer_session(model)[0].run(None, {"x": frames})
    ours = golden.outputs(to_network(model, "model"), frames)
    for values, expected in zip(ours, map(np.asarray, theirs), strict=True):
        np.testing.assert_array_equal(values.reshape(expected.shape), expected)


def kinds(model: onnx.ModelProto) -> list[str]:
    return [layer.kind for layer in to_network(model, "model").layers]


def in_hardware(model: onnx.ModelProto, folder: Path, **options) -> None:
    """Through Amaranth's simulator: all values of ONNX Runtime, and the cycles that were predicted."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim[1:]]
    frames = np.random.default_rng(1).integers(0, 256, (3, *shape)).astype(np.uint8)
    design = hwgen.load(path).plan("zedboard", multipliers="dsp", **options)
    result = design.simulate(frames, simulator="amaranth")
    assert result.mismatches == 0
    assert (result.latency, result.interval) == (result.predicted_latency, result.predicted_interval)
    (theirs,) = integer_session(model)[0].run(None, {"x": frames})
    np.testing.assert_array_equal(result.outputs, theirs)


FRAMES = 3


@st.composite
def beats(draw, max_bits: int = 9) -> BeatFormat:
    channels, width = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    return BeatFormat(
        channels=channels,
        height=draw(st.integers(1, 4)),
        width=width,
        lanes=draw(st.integers(1, channels)),
        bits=draw(st.integers(2, max_bits)),
        signed=draw(st.booleans()),
        pixels=draw(st.integers(1, width)),
    )


def maps(beat: BeatFormat, seed: int) -> np.ndarray:
    """``(frames, channels, height, width)``."""
    shape = (FRAMES, beat.channels, beat.height, beat.width)
    return integers(np.random.default_rng(seed), *beat.value_range, shape)


def padded(beat: BeatFormat, frames: np.ndarray, seed: int) -> np.ndarray:
    """``(frames, height, steps of a row, beats of a pixel, lanes, pixels)``; past channels and rows there is noise."""
    count, _, height, width = frames.shape
    steps = -(-width // beat.pixels)
    shape = (count, beat.folds * beat.lanes, height, steps * beat.pixels)
    full = integers(np.random.default_rng(seed + 1), *beat.value_range, shape)
    full[:, channel_lanes(beat), :, :width] = frames
    split = full.reshape(count, beat.folds, beat.lanes, height, steps, beat.pixels)
    return split.transpose(0, 3, 4, 1, 2, 5)


def words(beat: BeatFormat, values: np.ndarray) -> list[int]:
    """Payload bits, one beat after the other; the mark of a frame's end is of no account here."""
    return [pack(each, beat.bits) for each in values.reshape(-1, beat.lanes * beat.pixels).tolist()]
