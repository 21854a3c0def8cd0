"""The onnx package's own cases of every operator that the importer knows, quantised: equal, or refused for a reason.

How many cases of an operator are equal to ONNX Runtime in every value, and how many are refused for each reason, is
counted for one version of both packages (`COUNTED`). With others each case is still equal, or refused for one of these.
"""

from __future__ import annotations

import re
import tomllib
import warnings
from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test.case.node as case_modules
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.case.utils import import_recursive
from referees import FLOAT_OPERATORS, RARELY, integer_session

import hwgen
from hwgen.errors import HwgenError, ObstaclesError
from hwgen.network.onnx import functions
from hwgen.network.onnx.file import line
from hwgen.network.onnx.operators import OPERATORS

_SEVERAL = {"Add", "Concat", "Div", "Max", "Mean", "Min", "Mul", "Pow", "Sub", "Sum"}
"""Operators whose inputs are all feature maps, if they have one shape. Of other operators only the first input is."""
_WEIGHTS = {"Conv": 1, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1}
"""Index of the input that is quantised like weights, by operator."""
_BY_ITSELF = (set(functions.OPERATORS) | _SEVERAL | {"Clip", "Dropout", "Identity", "Relu"}) - {
    *("BatchNormalization", "Concat", "Less", "Where")
}
"""Operators that compute each value by itself: their cases of up to three dimensions are one frame each."""
_OPSETS = 13, 24
"""First and last opset in which ONNX Runtime has QuantizeLinear. Newer operators are written in the last opset."""


@dataclass(frozen=True)
class Quantised:
    """A model, and batches of its inputs by their names."""

    model: onnx.ModelProto
    batches: tuple[dict[str, np.ndarray], ...]


@dataclass
class Verdict:
    """Result of a case: the reason of its refusal, or the number of values, and how many of them differ by rounding."""

    refused: str = ""
    values: int = 0
    different: int = 0
    floats: bool = False


def load(operator: str | None = None) -> None:
    """Have the package make its cases, those of one operator or, which takes seconds, all."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if operator is None:
            import_recursive(case_modules)
        else:
            import_module(f"{case_modules.__name__}.{operator.lower()}")


def cases() -> dict[str, list[TestCase]]:
    """Return the loaded cases whose operators the importer knows, by operator.

    Those of ``several`` nodes are functions in terms of other operators.
    """
    found: dict[str, list[TestCase]] = {}
    for case in case_modules._NodeTestCases:
        graph = case.model.graph
        operators = {node.op_type for node in graph.node}
        if graph.input and operators - {"Constant"} <= set(OPERATORS):
            found.setdefault(operators.pop() if len(graph.node) == 1 else "several", []).append(case)
    return found


def quantised(case: TestCase, kind: type[np.integer]) -> Quantised | None:
    """Return the case quantised to integers of ``kind``; ``None`` if it has values that are no NumPy arrays."""
    given = [*zip(case.model.graph.input, case.data_sets[0][0], strict=False)]
    results = [*zip(case.model.graph.output, case.data_sets[0][1], strict=True)]
    if not all(isinstance(values, np.ndarray | np.generic) for _, values in (*given, *results)):
        return None
    writer = _Writer(case.model, np.dtype(kind))
    for place, (value, values) in enumerate(given):
        writer.take(value, np.asarray(values), place)
    for value, values in results:
        writer.give(value, np.asarray(values))
    return writer.quantised()


class _Writer:
    def __init__(self, model: onnx.ModelProto, kind: np.dtype) -> None:
        self._source, self._kind = model, kind
        self._operators = {node.op_type for node in model.graph.node}
        self._shapes: set[tuple[int, ...]] = set()
        self._before: list[onnx.NodeProto] = []
        self._nodes: list[onnx.NodeProto] = []
        self._behind: list[onnx.NodeProto] = []
        for number, node in enumerate(model.graph.node):
            self._nodes.append(onnx.NodeProto())
            self._nodes[-1].CopyFrom(node)
            self._nodes[-1].name = node.name or f"node{number}"
        self._constants: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._arrays: dict[str, np.ndarray] = {}

    def take(self, value: onnx.ValueInfoProto, values: np.ndarray, place: int) -> None:
        """One of the case's inputs."""
        real = values.dtype == np.float32
        self._shapes.add(values.shape)
        if place and (not self._operators & _SEVERAL or len(self._shapes) > 1):
            weights = real and any(_WEIGHTS.get(operator) == place for operator in self._operators)
            (self._weights if weights else self._constant)(value.name, values)
            return
        values = self._framed(values)
        self._inputs.append(_declared(value.name, values))
        self._arrays[value.name] = values
        if real:
            integers = f"{value.name}_integers"
            label = self._label(value.name, values, 1)
            self._before.append(helper.make_node("QuantizeLinear", [value.name, *label], [integers]))
            self._dequantise(value.name, integers, label)

    def give(self, value: onnx.ValueInfoProto, values: np.ndarray) -> None:
        """One of its outputs; its scale is another than any input's, so that no case is without a layer.

        But for Pad, whose constant need not be a multiple of its input's scale.
        """
        values = self._framed(values)
        if values.dtype != np.float32:
            self._outputs.append(_declared(value.name, values))
            return
        integers = f"{value.name}_integers"
        padded = self._operators == {"Pad"}
        label = self._before[-1].input[1:] if padded else self._label(value.name, values, 1.1)
        self._behind.append(helper.make_node("QuantizeLinear", [value.name, *label], [integers]))
        self._outputs.append(_declared(integers, np.nan_to_num(values, posinf=0, neginf=0).astype(self._kind)))

    def _framed(self, values: np.ndarray) -> np.ndarray:
        return values[None] if self._operators <= _BY_ITSELF and values.ndim <= 3 else values

    def _constant(self, name: str, values: np.ndarray) -> str:
        self._constants.append(numpy_helper.from_array(values, name))
        return name

    def _label(self, name: str, values: np.ndarray, factor: float) -> list[str]:
        values = np.nan_to_num(values, posinf=1, neginf=-1)  # the largest of no values is -inf
        low, high = min(float(values.min(initial=0)), 0), max(float(values.max(initial=0)), 0)
        scale = np.float32(factor * (high - low) / 250 or 1 / 64)
        limits = np.iinfo(self._kind)
        zero = np.clip(np.rint(limits.min - low / scale), limits.min, limits.max).astype(self._kind)
        return [self._constant(f"{name}_scale", np.array(scale)), self._constant(f"{name}_zero", np.array(zero))]

    def _weights(self, name: str, values: np.ndarray) -> None:
        scale = np.float32(np.abs(values).max() / 127)
        integers = self._constant(f"{name}_integers", np.rint(values / scale).astype(np.int8))
        label = [self._constant(f"{name}_scale", scale), self._constant(f"{name}_zero", np.array(0, np.int8))]
        self._dequantise(name, integers, label)

    def _dequantise(self, name: str, integers: str, label: list[str]) -> None:
        """Replace ``name`` in all nodes by the dequantised integers."""
        self._before.append(helper.make_node("DequantizeLinear", [integers, *label], [f"{name}_real"]))
        for node in self._nodes:
            for place, each in enumerate(node.input):
                if each == name:
                    node.input[place] = f"{name}_real"

    def quantised(self) -> Quantised:
        nodes = [*self._before, *self._nodes, *self._behind]
        graph = helper.make_graph(nodes, "case", self._inputs, self._outputs, self._constants)
        low, high = _OPSETS
        (opset,) = {entry.version for entry in self._source.opset_import if not entry.domain}
        if not self._before and not self._behind:
            low = opset
        version = helper.make_opsetid("", min(max(opset, low), high))
        draw = np.random.default_rng(1)
        others = [
            {name: draw.permuted(values.reshape(-1)).reshape(values.shape) for name, values in self._arrays.items()}
            for _ in range(3)
        ]
        return Quantised(helper.make_model(graph, opset_imports=[version], ir_version=10), (self._arrays, *others))


def _declared(name: str, values: np.ndarray) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), values.shape)


def judged(case: TestCase, kind: type[np.integer], folder) -> Verdict:
    """Compare the golden model's outputs with ONNX Runtime's, and return the verdict or the reason of a refusal.

    Raises AssertionError where they differ.
    """
    made = quantised(case, kind)
    if made is None:
        return Verdict("the case holds no arrays")
    try:
        session, optimised = integer_session(made.model)
        theirs = [session.run(None, batch) for batch in made.batches]
    except Exception as error:
        return Verdict(f"ONNX Runtime: {line(error)}")
    path = folder / "case.onnx"
    onnx.save(made.model, path)
    try:
        model = hwgen.load(path)
    except ObstaclesError as error:
        return Verdict(error.lines[1])
    except HwgenError as error:
        return Verdict(str(error).removeprefix(f"{path}: "))
    verdict = Verdict(floats=bool({node.op_type for node in optimised.graph.node} & FLOAT_OPERATORS))
    for batch, expected in zip(made.batches, theirs, strict=True):
        found = model.golden(batch)
        outputs = [*found.values()] if isinstance(found, dict) else [found]
        for ours, values in zip(outputs, expected, strict=True):
            _hold(verdict, ours, np.asarray(values), case.name)
    return verdict


def _hold(verdict: Verdict, ours: np.ndarray, theirs: np.ndarray, name: str) -> None:
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), name
    if not verdict.floats:
        np.testing.assert_array_equal(ours, theirs, name)
    difference = np.abs(ours.astype(np.float64) - theirs)
    assert difference.max(initial=0) <= 1, name
    verdict.values += theirs.size
    verdict.different += int(np.count_nonzero(difference))


def check_rounded(verdicts: list[Verdict]) -> None:
    """Check that at most one in `RARELY` values of all cases differs, where operators compute in floats."""
    assert sum(each.different for each in verdicts) * RARELY <= max(sum(each.values for each in verdicts), RARELY)


VERSIONS = tuple(".".join(package.__version__.split(".")[:2]) for package in (onnx, onnxruntime))
"""Installed versions of onnx and ONNX Runtime, major and minor."""
COUNTED = ("1.23", "1.32")
"""Versions of onnx and ONNX Runtime with which the numbers of cases in the tests were counted."""


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
    "no layer": r"^holds no layer to build: |: no layer \(convolution, matrix product or pool\) comes before it$",
    "frames": "|".join(
        [
            r": axis must be 1 to \d, not -?\d: the batch must not be cut off$|, but its input is laid out as \(N \* ",
            r": axis must not be 0, which holds the frames$",
            r": must leave all frames of a batch$",
            r" the batch the first dimension, not be \[",
            r": must flatten to \(\d+, \d+\) by shape .* behind the batch, not \[",
        ]
    ),
    "channels": r": axis must be 1, the channels, not |: must be the channels'",
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
    "matrices": r": matrix must have \d+ rows, one per input value, not |: weights must be a kernel or a matrix, not ",
    "attributes": r": transA must be 0, as the batch is |: (alpha|beta) must be a positive number, not ",
    "bias": r": bias must have the shape ",
    "repeats": r": must not repeat values: ",
    "indices": r": indices must be a list, which keeps the axis, not of shape ",
    "cut": r": the shape \(4, 3\) cuts across dimensions",
    "mode": r": mode must be nearest or linear, not ",
    "factors": "|".join(
        [
            r": (scales|sizes) must be four, positive, and change only rows and columns, not ",
            r": keep_aspect_ratio_policy must be stretch, not ",
            r": coordinate_transformation_mode 'tf_crop_and_resize' is not supported; crop with a Slice$",
            r": interpolates maps of \(N, C, H, W\) with at most 8 bits, without antialias, not ",
        ]
    ),
    "nothing left": r": selects no channels; it must keep at least one$",
    "value": r": value 1.2 is not a multiple of its input's scale, so its output must be quantised as its input$",
    "two maps": r": must take one feature map and constants, or maps that are requantised before it$",
    "one dimension": r"ConvTranspose node 'node0': must take \(N, C, H, W\), but its input is laid out as \(N, 1, W\)",
    "output size": r": output must be at most 9x7 pixels, not 10x8$",
}

#: Of each operator the number of cases that are equal, and of those that are not, by reason.
EXPECTED = tomllib.loads((Path(__file__).parent / "node_cases.toml").read_text(encoding="utf-8"))

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
        found = {"equal": len(verdicts) - len(reasons), **Counter(reasons)}
        assert found == EXPECTED[operator]


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
