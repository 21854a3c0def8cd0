"""Whole models against ONNX Runtime's integer kernels, every value, with any scales; some of them through the hardware.

The referee is a CPU session with default optimisation and integer kernels for int8. Where its optimised graph still has
an operator in float32, each convolution is held against it alone, on the same integers: there 1 value in 10,000 may
differ by 1, since float32 rounds the sums on the way, and everywhere else none.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from referees import by_emulation, by_integer_kernels, saturates, segments
from sklearn.datasets import load_sample_image
from test_onnx import Writer, by_hwgen, last_integers

import hwgen
from hwgen.network.quantise import quantise

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None or shutil.which("make") is None, reason="Verilator needs g++ and make"
)
RARELY = 10_000


def random_chain(seed: int) -> Writer:
    """One to nine layers of any kind, int8 or uint8, scales of any size, one a tensor or one a channel."""
    draw = np.random.default_rng([seed, 9])
    writer = Writer(seed, qdq=seed % 3 > 0, powers=False, channels=int(draw.integers(1, 9)), tame=saturates())
    flat = False
    for number in range(1, int(draw.integers(1, 10)) + 1):
        flat = flat or draw.random() < 0.1 * number / 3
        if flat:
            writer.dense(f"layer{number}")
        elif number > 1 and draw.random() < 0.25:
            writer.pool(f"layer{number}")
        else:
            writer.conv(f"layer{number}")
    return writer


def compared(model: onnx.ModelProto, frames: np.ndarray) -> tuple[int, list[tuple[int, int]]]:
    """Values compared with integer kernels (all of them equal), and for each float operator its values, and how many
    of them differ by 1."""
    theirs, floats = by_integer_kernels(model, frames)
    if not floats:
        np.testing.assert_array_equal(by_hwgen(model, frames).reshape(theirs.shape), theirs)
        return theirs.size, []
    strict, lax = 0, []
    for part in segments(model):
        theirs, floats = by_integer_kernels(part, frames)
        ours = by_hwgen(part, frames).reshape(theirs.shape)
        if floats:
            difference = np.abs(ours.astype(np.int64) - theirs)
            assert difference.max(initial=0) <= 1
            lax.append((theirs.size, np.count_nonzero(difference)))
        else:
            np.testing.assert_array_equal(ours, theirs)
            strict += theirs.size
        frames = ours
    return strict, lax


@pytest.mark.parametrize(("count", "frames"), [(30, 6), pytest.param(400, 24, marks=pytest.mark.long)])
def test_random_models(count: int, frames: int) -> None:
    """Of a float operator of 10,000 values or more, 1 in 10,000 may differ; of all smaller ones together too."""
    strict, lax = 0, []
    for seed in range(count):
        writer = random_chain(seed)
        equal, floats = compared(writer.model(), writer.frames(frames))
        strict, lax = strict + equal, lax + floats
    large = [(size, other) for size, other in lax if size >= RARELY]
    small = np.sum([pair for pair in lax if pair not in large], axis=0, initial=0, dtype=int)
    print(
        f"{count} models: {strict} values equal; of float operators {len(large)} with {large} values that differ by 1"
    )
    print(f"in the {len(lax) - len(large)} smaller ones together: {small}")
    assert strict > 150 * count
    assert all(other * RARELY <= size for size, other in large)
    size, other = np.broadcast_to(small, 2)
    assert other * RARELY <= max(size, RARELY)


@pytest.mark.parametrize(
    "seed", [15, 28, 38, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 28) if seed != 15)]
)
def test_random_models_in_hardware(seed: int, tmp_path: Path) -> None:
    """Through Icarus, or Amaranth's simulator without it: what the golden model says, and so what ONNX Runtime says."""
    writer = random_chain(seed)
    path = tmp_path / "random.onnx"
    onnx.save(writer.model(), path)
    try:
        design = hwgen.load(path).plan("vc709", dsp=400)
    except hwgen.HwgenError as error:
        pytest.skip(str(error))
    result = design.simulate(writer.frames(2), simulator="icarus" if shutil.which("iverilog") else "amaranth")
    assert result.mismatches == 0


# Networks deep enough that a single value that differs becomes many.

CNV = ["64", "64", "P", "128", "128", "P", "256", "256", "D512", "D512", "D10"]
"""FINN's CNV: 3x3 convolutions without padding, 2x2 pools, dense layers."""
ALL_CNN_C = ["96p", "96p", "96ps", "192p", "192p", "192ps", "192", "192k", "10k"]
"""All-CNN-C without its average pool; p: padded, s: stride 2, k: 1x1."""


def trained_like(layers: list[str], seed: int) -> tuple[onnx.ModelProto, np.ndarray]:
    """A float network on 32x32 images, He-normal weights by ``seed``, quantised on 16 patches of a photograph.

    And four other patches, float32.
    """
    random = np.random.default_rng(seed)
    photograph = load_sample_image("flower.jpg").astype(np.float32).transpose(2, 0, 1) / 127.5 - 1
    corners = [(40 + 80 * (n // 5), 30 + 110 * (n % 5)) for n in range(20)]
    images = np.stack([photograph[:, y : y + 64 : 2, x : x + 64 : 2] for y, x in corners])
    nodes, constants = [], []
    tensor, channels, size = "image", 3, 32

    def add(operator: str, *weights: np.ndarray, **attributes: object) -> None:
        nonlocal tensor
        names = [f"w{len(constants) + place}" for place in range(len(weights))]
        constants.extend(map(numpy_helper.from_array, weights, names))
        nodes.append(helper.make_node(operator, [tensor, *names], [f"t{len(nodes)}"], **attributes))
        tensor = nodes[-1].output[0]

    def normal(outputs: int, *inputs: int) -> list[np.ndarray]:
        weights = random.normal(0, np.sqrt(2 / np.prod(inputs)), (outputs, *inputs))
        return [weights.astype(np.float32), random.normal(0, 0.1, outputs).astype(np.float32)]

    for number, layer in enumerate(layers, start=1):
        if layer == "P":
            add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
            size //= 2
            continue
        if layer[0] == "D":
            if size:
                add("Flatten")
                channels, size = channels * size * size, 0
            add("Gemm", *normal(int(layer[1:]), channels), transB=1)
            channels = int(layer[1:])
        else:
            outputs, kernel = int(layer.rstrip("psk")), 1 if "k" in layer else 3
            pads, stride = [int("p" in layer)] * 4, 2 if "s" in layer else 1
            weights = normal(outputs, channels, kernel, kernel)
            add("Conv", *weights, kernel_shape=[kernel] * 2, pads=pads, strides=[stride] * 2)
            channels, size = outputs, (size + 2 * pads[0] - kernel) // stride + 1
        if number < len(layers):
            add("Relu")
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, 32, 32])],
        [helper.make_tensor_value_info(tensor, TensorProto.FLOAT, ["n", channels, *[size, size][: 2 * (size > 0)]])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return quantise(model, images[:16], "network"), images[16:]


def integers(model: onnx.ModelProto, frames: np.ndarray) -> np.ndarray:
    """What the hardware of a network of `trained_like` shall give; no operator of these networks is left in float32.

    The quantiser's weights have 8 bits: where ONNX Runtime saturates, it can't be the referee.
    """
    cut = last_integers(model)
    if saturates():
        return by_emulation(cut, frames)
    theirs, floats = by_integer_kernels(cut, frames)
    assert not floats
    np.testing.assert_array_equal(by_emulation(cut, frames), theirs)
    return theirs


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        # With exact products 16 of 40 outputs of the first differ, and 87 of 1,440 of the second.
        ("CNV", 5),
        ("All-CNN-C", 2),
        *(pytest.param("CNV", seed, marks=pytest.mark.long) for seed in (9, 11, 14, 17)),
        *(pytest.param("All-CNN-C", seed, marks=pytest.mark.long) for seed in (1, 3, 4)),
    ],
)
def test_deep_networks(name: str, seed: int) -> None:
    """Four frames, every output equal."""
    model, frames = trained_like({"CNV": CNV, "All-CNN-C": ALL_CNN_C}[name], seed)
    theirs = integers(model, frames)
    assert len(np.unique(theirs)) > 20
    assert np.mean((theirs == theirs.min()) | (theirs == theirs.max())) < 0.2
    np.testing.assert_array_equal(by_hwgen(model, frames).reshape(theirs.shape), theirs)


@pytest.mark.long
@needs_compiler
def test_deep_network_in_hardware(tmp_path: Path) -> None:
    """CNV through the generated Verilog, four frames back to back."""
    model, frames = trained_like(CNV, 5)
    path = tmp_path / "cnv.onnx"
    onnx.save(model, path)
    result = hwgen.load(path).plan("vc709", dsp=400).simulate(frames)
    assert result.mismatches == 0
    theirs = integers(model, frames)
    np.testing.assert_array_equal(result.integers.reshape(theirs.shape), theirs)
