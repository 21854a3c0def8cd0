"""The onnx package's own cases of every operator that the importer knows, quantised: equal, or refused for a reason.

How many cases of an operator are equal to ONNX Runtime in every value, and how many are refused for each reason, is
counted for one version of both packages (`COUNTED`). With others each case is still equal, or refused for one of these.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from node_cases import COUNTED, VERSIONS, cases, check_rounded, judged, load

#: By what is said of them. Some are no refusals: the case holds types that NumPy lacks, or ONNX Runtime can't run it.
REASONS = {
    "no arrays": r"^the case holds no arrays$",
    "ONNX Runtime": r"^ONNX Runtime: ",
    "dimensions": (
        r"^input '\w+' must be \(batch, channels, height, width\) or |"
        r"^contains three-dimensional convolutions or pools "
    ),
    "axes": r": must (average|reduce) rows and columns of each channel, not axes |: axes must not be empty",
    "no size": r"^input '\w+' has a dimension of 0 in \(.*\); sizes must be positive$",
    "outputs": r"output '\w+' is not supported, only the first is$",
    "no layer": r"^holds no layer to build: |: comes before any layer: ",
    "frames": "|".join(
        [
            r": axis must be 1, not -?\d: the batch must be the first of two dimensions$",
            r": axis must be another than 0, that of the frames$",
            r": must leave all frames of a batch$",
            r" the batch the first dimension, not be \[",
            r": must flatten to \(\d+, \d+\) by shape .* behind the batch, not \[",
        ]
    ),
    "channels": r": axis must be 1, that of the channels, not |: must be the channels'",
    "types": "|".join(
        [
            r"^input '\w+' must be float, int8, uint8, int16 or uint16, not ",
            r": scale must be float32, not float16$",
            r": must take quantised inputs ",
            r": must work on dequantised values ",
        ]
    ),
    "one a channel": r": a constant must have one value for each of \d+ channels, not shape ",
    "NaN": r": gives no number \(NaN\) where its map is ",
    "training": r": training_mode must be (false|0)",
    "scales": r": a feature map must have one scale, not 3 |: blocks of 2: blocked quantisation is not supported",
    "matrices": r": matrix must have \d+ rows, one an input value, not |: weights must be a kernel or a matrix, not ",
    "attributes": r": (transA|alpha|beta) must be (0|1.0), not ",
    "bias": r": bias must have the shape ",
    "repeats": r": must not repeat values: ",
    "indices": r": indices must be a list, which keeps the axis, not of shape ",
    "cut": r": the shape \(4, 3\) cuts across dimensions",
    "mode": r": mode must be nearest, not ",
    "factors": "|".join(
        [
            r": scales must be four, whole, of rows and columns alone, not ",
            r": must repeat each pixel 2 times, which ",
            r": keep_aspect_ratio_policy must be stretch, not ",
        ]
    ),
    "nothing left": r": leaves no channels$",
    "value": r": value 1.2 is no multiple of its input's scale, so its output must be quantised as its input$",
    "two maps": r": must take one feature map and constants, or maps that are quantised anew before it$",
    "one dimension": r"ConvTranspose node 'node0': must take \(N, C, H, W\), but its input is laid out as \(N, 1, W\)",
    "output size": r": output must be at most 9x7 pixels, not 10x8$",
}

#: Of each operator the cases that are equal, and those that are not, by reason.
EXPECTED: dict[str, tuple[int, dict[str, int]]] = {
    "Abs": (1, {}),
    "Acos": (1, {"NaN": 1}),
    "Acosh": (0, {"NaN": 2}),
    "Add": (1, {"types": 6, "one a channel": 1}),
    "Asin": (1, {"NaN": 1}),
    "Asinh": (2, {}),
    "Atan": (2, {}),
    "Atanh": (1, {"NaN": 1}),
    "AveragePool": (13, {"dimensions": 1, "ONNX Runtime": 6}),
    "BatchNormalization": (2, {"outputs": 2}),
    "Ceil": (2, {}),
    "Celu": (1, {"ONNX Runtime": 2}),
    "Clip": (9, {"no layer": 3}),
    "Concat": (4, {"dimensions": 2, "channels": 6}),
    "Conv": (6, {}),
    "ConvInteger": (1, {"ONNX Runtime": 1}),
    "ConvTranspose": (8, {"one dimension": 1, "dimensions": 1, "output size": 1}),
    "Cos": (2, {}),
    "Cosh": (2, {}),
    "DepthToSpace": (2, {}),
    "DequantizeLinear": (0, {"dimensions": 3, "scales": 2, "no arrays": 9}),
    "Div": (0, {"two maps": 2, "types": 7, "one a channel": 1}),
    "Dropout": (3, {"outputs": 5, "training": 3, "ONNX Runtime": 1}),
    "Elu": (3, {}),
    "Erf": (1, {}),
    "Exp": (2, {}),
    "Expand": (0, {"repeats": 2}),
    "Flatten": (3, {"frames": 6}),
    "Floor": (2, {}),
    "Gather": (1, {"frames": 1, "indices": 1, "dimensions": 1}),
    "Gelu": (4, {}),
    "Gemm": (6, {"bias": 1, "attributes": 4}),
    "GlobalAveragePool": (2, {}),
    "GlobalMaxPool": (2, {}),
    "HardSigmoid": (3, {}),
    "HardSwish": (1, {}),
    "Identity": (2, {"no layer": 1, "no arrays": 2}),
    "LRN": (2, {}),
    "LeakyRelu": (3, {}),
    "Less": (0, {"one a channel": 2, "types": 6}),
    "Log": (2, {}),
    "MatMul": (1, {"matrices": 4, "dimensions": 2}),
    "Max": (4, {"types": 8, "ONNX Runtime": 2}),
    "MaxPool": (13, {"outputs": 2, "dimensions": 4}),
    "Mean": (1, {"two maps": 2}),
    "Min": (4, {"types": 8, "ONNX Runtime": 2}),
    "Mish": (1, {}),
    "Mul": (2, {"types": 6, "one a channel": 1}),
    "Neg": (2, {}),
    "PRelu": (0, {"one a channel": 2}),
    "Pad": (3, {"types": 3}),
    "Pow": (1, {"two maps": 2, "one a channel": 1, "types": 6, "ONNX Runtime": 2}),
    "QLinearConv": (1, {}),
    "QLinearMatMul": (2, {"matrices": 2, "types": 4}),
    "QuantizeLinear": (0, {"dimensions": 3, "scales": 2, "no arrays": 8}),
    "Reciprocal": (2, {}),
    "ReduceMax": (0, {"axes": 8, "types": 1, "no size": 1, "ONNX Runtime": 1}),
    "ReduceMean": (0, {"axes": 8}),
    "Relu": (1, {}),
    "Reshape": (5, {"frames": 3, "cut": 1, "no size": 1}),
    "Resize": (3, {"factors": 12, "mode": 24}),
    "Round": (1, {}),
    "Selu": (3, {}),
    "Shrink": (2, {}),
    "Sigmoid": (2, {}),
    "Sign": (1, {}),
    "Sin": (2, {}),
    "Sinh": (2, {}),
    "Slice": (5, {"frames": 2, "nothing left": 1}),
    "Softmax": (0, {"no layer": 7}),
    "Softplus": (2, {}),
    "Softsign": (2, {}),
    "SpaceToDepth": (2, {"ONNX Runtime": 2}),
    "Split": (5, {"dimensions": 9, "no size": 2}),
    "Sqrt": (2, {}),
    "Squeeze": (1, {"frames": 1}),
    "Sub": (2, {"types": 6, "one a channel": 1}),
    "Sum": (3, {}),
    "Swish": (1, {}),
    "Tan": (2, {}),
    "Tanh": (2, {}),
    "ThresholdedRelu": (3, {}),
    "Tile": (0, {"repeats": 2}),
    "Transpose": (2, {"frames": 5}),
    "Where": (0, {"no layer": 1, "types": 1}),
    "Unsqueeze": (6, {"frames": 1}),
    "Upsample": (0, {"ONNX Runtime": 1}),
    "several": (5, {"axes": 2, "types": 5, "dimensions": 5}),
}

#: Looked at by default; the others in the long run.
FIRST = ("Conv", "LeakyRelu", "Slice")


def check(operator, kind, folder) -> None:
    verdicts = [judged(case, kind, folder) for case in cases()[operator]]
    reasons = []
    for verdict in verdicts:
        if verdict.refused:
            (line,) = verdict.refused.splitlines()
            (reason,) = [name for name, pattern in REASONS.items() if re.search(pattern, line)]
            reasons.append(reason)
    check_rounded(verdicts)
    if VERSIONS == COUNTED:
        assert (len(verdicts) - len(reasons), Counter(reasons)) == EXPECTED[operator]


@pytest.mark.parametrize("operator", FIRST)
def test_operator(operator, tmp_path):
    load(operator)
    check(operator, np.uint8, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("operator", EXPECTED)
def test_every_operator(operator, kind, tmp_path):
    load()
    check(operator, kind, tmp_path)


@pytest.mark.long
def test_all_are_counted():
    load()
    assert VERSIONS != COUNTED or set(cases()) == set(EXPECTED)
