"""The axis of a batch's frames in the tensors of an ONNX graph, and nodes that mix frames.

Referees: ONNX's reference implementation on tensors that hold the index of their frame, and ONNX Runtime on the same
frame in two batches.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import hypothesis.strategies as st
import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_writing import as_model
from pieces import Piece

from hwgen.network.onnx.frames import Frames, FrameSearch
from hwgen.network.onnx.frames.search import RULES
from hwgen.network.onnx.index import GraphIndex

_OPSET = 21


class Chain:
    """Writer of random operators on dimensions, one behind the other, with the shape for one number of frames."""

    def __init__(self, draw: st.DrawFn, frame: tuple[int, ...], batch: int | None) -> None:
        self.draw, self.batch = draw, batch
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.tensor, self.frame = "x", frame
        self.shape = (batch or 7, *frame)
        """Shape of the last tensor, with 7 frames if the batch is symbolic."""

    def add(self, operator: str, *constants: np.ndarray, **attributes: Any) -> None:
        names = [f"c{len(self.nodes)}_{index}" for index in range(len(constants))]
        self.constants += [numpy_helper.from_array(values, name) for values, name in zip(constants, names, strict=True)]
        output = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, [self.tensor, *names], [output], **attributes))
        self.tensor = output
        (values,) = ReferenceEvaluator(self.model(None)).run(None, {"x": np.zeros(self._first, np.float32)})
        self.shape = values.shape

    @property
    def _first(self) -> tuple[int, ...]:
        return (self.batch or 7, *self.frame)

    def grow(self) -> None:
        """Append a random operator."""
        rank = len(self.shape)
        axis = self.draw(st.integers(0, max(0, rank - 1)))
        operator = self.draw(st.sampled_from(["Transpose", "Reshape", "Flatten", "Unsqueeze", "ReduceMax", "Gather"]))
        if operator == "Transpose":
            self.add("Transpose", perm=self.draw(st.permutations(range(rank))))
        elif operator == "Flatten":
            self.add("Flatten", axis=self.draw(st.integers(0, rank)))
        elif operator == "Unsqueeze":
            self.add("Unsqueeze", np.array([self.draw(st.integers(-rank - 1, rank))]))
        elif operator == "Reshape":
            self.add("Reshape", self._shape())
        elif rank > 1 and self.shape[axis] in (1, *self.frame):
            sign = self.draw(st.sampled_from([0, rank]))
            if operator == "Gather":
                self.add("Gather", np.array(0), axis=axis - sign)
            else:
                self.add("ReduceMax", np.array([axis - sign]), keepdims=self.draw(st.integers(0, 1)))

    def _shape(self) -> np.ndarray:
        """Draw a shape with as many values, some entries 0 or -1."""
        factors = [factor for size in self.shape for factor in _primes(size)]
        cuts = sorted(self.draw(st.lists(st.integers(0, len(factors)), max_size=3)))
        sizes = [prod(factors[begin:end]) for begin, end in zip([0, *cuts], [*cuts, len(factors)], strict=True)]
        free = [index for index, size in enumerate(sizes) if size % 7 == 0] if self.batch is None else [0]
        sizes[free[0]] = -1
        for index, size in enumerate(self.shape[: len(sizes)]):
            if sizes[index] == size and self.draw(st.booleans()):
                sizes[index] = 0
        return np.array(sizes)

    def model(self, rank: int | None) -> onnx.ModelProto:
        return as_model(
            self.nodes,
            {"x": (TensorProto.FLOAT, [self.batch or "batch", *self.frame])},
            {self.tensor: (TensorProto.FLOAT, None if rank is None else [None] * rank)},
            self.constants,
            opset=_OPSET,
            ir_version=10,
        )

    def search(self) -> tuple[FrameSearch, list[tuple[onnx.NodeProto, str]]]:
        model = self.model(len(self.shape))
        arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in self.constants}
        search = FrameSearch(GraphIndex(model), arrays, self.batch)
        return search, search.mixing({"x": Frames(0)}, self.nodes)

    def indices(self, count: int) -> np.ndarray:
        """Run the operators on tensors of which each value is the index of its frame."""
        x = np.broadcast_to(
            np.arange(count, dtype=np.float32).reshape(-1, *[1] * len(self.frame)), (count, *self.frame)
        )
        (values,) = ReferenceEvaluator(self.model(None)).run(None, {"x": x})
        return values


def _primes(size: int) -> list[int]:
    return next(([prime, *_primes(size // prime)] for prime in (2, 3, 5, 7) if size % prime == 0), [])


def _agrees(frames: Frames, values: np.ndarray, count: int) -> bool:
    """Return whether the values are the indices of frames along this position."""
    size = values.shape[frames.axis]
    if size != frames.before * count * frames.behind:
        return False
    expected = (np.arange(size) // frames.behind % count).reshape(-1, *[1] * (values.ndim - 1 - frames.axis))
    return bool((values == expected).all())


@given(st.data())
def test_the_axis_is_followed(data: st.DataObject) -> None:
    frame = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3)))
    batch = data.draw(st.sampled_from([None, 2, 3, 5, 7]))
    chain = Chain(data.draw, frame, batch)
    counts = [2, 3, 7] if batch is None else [batch]
    for _ in range(data.draw(st.integers(1, 5))):
        tensor, nodes, constants, shape = chain.tensor, [*chain.nodes], [*chain.constants], chain.shape
        chain.grow()
        search, mixing = chain.search()
        if mixing:
            (node, _), *others = mixing
            assert not others
            assert node is chain.nodes[-1]
            if node.op_type == "Reshape":
                _check_none(chain, counts)
            else:
                before = search.frames[tensor]
                assert node.op_type in ("Gather", "ReduceMax")
                assert before.axis == _only_axis(chain, node) % len(shape)
            chain.tensor, chain.nodes, chain.constants, chain.shape = tensor, nodes, constants, shape
        elif chain.tensor in search.frames:
            frames = search.frames[chain.tensor]
            for count in counts:
                assert _agrees(frames, chain.indices(count), count), (frames, count, chain.nodes)


def _only_axis(chain: Chain, node: onnx.NodeProto) -> int:
    if node.op_type == "Gather":
        return node.attribute[0].i
    return int(numpy_helper.to_array(chain.constants[-1])[0])


def _check_none(chain: Chain, counts: list[int]) -> None:
    """Check that no position describes the frames for all numbers of frames."""
    try:
        results = [chain.indices(count) for count in counts]
    except Exception:
        return
    for axis in range(results[0].ndim):
        for behind in range(1, results[0].shape[axis] // counts[0] + 1):
            fits = []
            for count, values in zip(counts, results, strict=True):
                before, left = divmod(values.shape[axis], count * behind)
                fits.append(not left and _agrees(Frames(axis, before, behind), values, count))
            assert not all(fits), (axis, behind, chain.nodes)


# Each operator of the table.


def _quantised(piece: Piece, tensor: str = "x") -> str:
    return piece.quantise(tensor, 0.05, 100)


_LABEL = (np.float32(0.05), np.uint8(100))


def _weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).normal(size=shape).astype(np.float32)


def _bytes(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 255, shape).astype(np.uint8)


def _rows(piece: Piece) -> str:
    return piece.node("Flatten", "x", axis=1)


def _recurrent(piece: Piece, operator: str, gates: int) -> str:
    """The batch is along axis 1."""
    sequence = piece.node("Transpose", piece.node("Reshape", "x", np.array([0, 18, 6])), perm=[1, 0, 2])
    more = _weights(1, gates * 4, 6), _weights(1, gates * 4, 4)
    return piece.node(operator, sequence, *more, hidden_size=4, outputs=3 if operator == "LSTM" else 2)


def _microsoft(operator: str, *inputs: Any, **attributes: Any) -> Callable[[Piece], str]:
    def write(piece: Piece) -> str:
        given = [_quantised(piece) if each is None else each for each in inputs]
        return piece.node(operator, *given, domain="com.microsoft", **attributes)

    return write


_POINTS = np.random.default_rng(6).uniform(-1, 1, (1, 4, 4, 2)).astype(np.float32)
_UNARY = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Elu", "Erf"),
    *("Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Log", "Mish"),
    *("Neg", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus"),
    *("Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu", "Dropout", "Hardmax", "LogSoftmax", "Softmax"),
    *("LpNormalization", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "Trilu", "Flatten"),
)
_BINARY = (
    "Add",
    "Div",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Max",
    "Mean",
    "Min",
    "Mul",
    "PRelu",
)
_REDUCING = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
_INTEGERS: dict[str, Callable[[Piece, str], str]] = {
    "BitShift": lambda piece, x: piece.node("BitShift", x, np.uint8([[[3]]]), direction="LEFT"),
    "BitwiseNot": lambda piece, x: piece.node("BitwiseNot", x),
    "BitwiseAnd": lambda piece, x: piece.node("BitwiseAnd", x, np.uint8(99)),
    "BitwiseOr": lambda piece, x: piece.node("BitwiseOr", x, np.uint8(99)),
    "BitwiseXor": lambda piece, x: piece.node("BitwiseXor", x, np.uint8(99)),
    "Mod": lambda piece, x: piece.node("Mod", x, np.uint8(7)),
    "ConvInteger": lambda piece, x: piece.node("ConvInteger", x, _bytes(2, 3, 3, 3)),
    "MatMulInteger": lambda piece, x: piece.node("MatMulInteger", x, _bytes(6, 2)),
    "QLinearConv": lambda piece, x: piece.node("QLinearConv", x, *_LABEL, _bytes(2, 3, 3, 3), *_LABEL, *_LABEL),
    "QLinearMatMul": lambda piece, x: piece.node("QLinearMatMul", x, *_LABEL, _bytes(6, 2), *_LABEL, *_LABEL),
    "OneHot": lambda piece, x: piece.node("OneHot", piece.node("Cast", x, to=7), np.array(200), _weights(2), axis=2),
    "DequantizeLinear": lambda piece, x: piece.dequantise(x, 0.05, 100),
}
PER_FRAME: dict[str, Callable[[Piece], str]] = {
    **{operator: (lambda piece, operator=operator: piece.node(operator, "x")) for operator in _UNARY},
    **{
        operator: (lambda piece, operator=operator: piece.node(operator, "x", _weights(3, 1, 6)))
        for operator in _BINARY
    },
    **{
        f"Reduce{what}": (lambda piece, what=what: piece.node(f"Reduce{what}", "x", np.array([-1, 1]), keepdims=0))
        for what in _REDUCING
    },
    **{operator: (lambda piece, w=write: w(piece, _quantised(piece))) for operator, write in _INTEGERS.items()},
    **{
        operator: (
            lambda piece, operator=operator: piece.node(
                operator, *[piece.node("Greater", "x", limit) for limit in (np.float32(0), np.float32(0.5))]
            )
        )
        for operator in ("And", "Or", "Xor")
    },
    "Not": lambda piece: piece.node("Not", piece.node("Less", "x", np.float32(0))),
    "Equal": lambda piece: piece.node("Equal", piece.node("Sign", "x"), np.float32(1)),
    "Sub": lambda piece: piece.node("Sub", "x", piece.node("ReduceMean", "x", np.array([1, 2, 3]))),
    "Sum": lambda piece: piece.node("Sum", "x", "x", np.float32(2)),
    "Pow": lambda piece: piece.node("Pow", "x", np.float32(2)),
    "Where": lambda piece: piece.node("Where", piece.node("Less", "x", np.float32(0)), np.float32(3), "x"),
    "Cast": lambda piece: piece.node("Cast", "x", to=TensorProto.INT32),
    "CastLike": lambda piece: piece.node("CastLike", "x", np.int32(0)),
    "QuantizeLinear": lambda piece: piece.node("QuantizeLinear", "x", np.float32([1, 2, 3]), np.uint8([1, 2, 3])),
    "LayerNormalization": lambda piece: piece.node("LayerNormalization", "x", _weights(6, 6), axis=2),
    "ArgMax": lambda piece: piece.node("ArgMax", "x", axis=1, keepdims=0),
    "ArgMin": lambda piece: piece.node("ArgMin", "x", axis=-1),
    "TopK": lambda piece: piece.node("TopK", "x", np.array([2]), axis=1, outputs=2),
    "Split": lambda piece: piece.node("Split", "x", np.array([1, 2]), axis=1, outputs=2),
    "CumSum": lambda piece: piece.node("CumSum", "x", np.array(2)),
    "MeanVarianceNormalization": lambda piece: piece.node("MeanVarianceNormalization", "x", axes=[1, 2, 3]),
    "AveragePool": lambda piece: piece.node("AveragePool", "x", kernel_shape=[2, 2]),
    "LpPool": lambda piece: piece.node("LpPool", "x", kernel_shape=[2, 2]),
    "MaxPool": lambda piece: piece.node("MaxPool", "x", kernel_shape=[2, 2]),
    "BatchNormalization": lambda piece: piece.node("BatchNormalization", "x", *[np.abs(_weights(3))] * 4),
    "Det": lambda piece: piece.node("Det", piece.node("Slice", "x", *map(np.array, ([0, 0], [6, 6], [2, 3])))),
    "Conv": lambda piece: piece.node("Conv", "x", _weights(4, 3, 3, 3)),
    "ConvTranspose": lambda piece: piece.node("ConvTranspose", "x", _weights(3, 2, 3, 3)),
    "Col2Im": lambda piece: piece.node(
        "Col2Im", piece.node("Reshape", "x", np.array([0, 4, 27])), np.array([4, 10]), np.array([2, 2])
    ),
    "DepthToSpace": lambda piece: piece.node(
        "DepthToSpace", piece.node("Concat", "x", "x", "x", "x", axis=1), blocksize=2
    ),
    "SpaceToDepth": lambda piece: piece.node("SpaceToDepth", "x", blocksize=2),
    "GroupNormalization": lambda piece: piece.node("GroupNormalization", "x", _weights(3), _weights(3), num_groups=3),
    "InstanceNormalization": lambda piece: piece.node("InstanceNormalization", "x", _weights(3), _weights(3)),
    "LRN": lambda piece: piece.node("LRN", "x", size=3),
    "GridSample": lambda piece: piece.node(
        "GridSample",
        "x",
        piece.node(
            "Transpose",
            piece.node("Tanh", piece.node("Slice", "x", *map(np.array, ([0], [2], [1])))),
            perm=[0, 2, 3, 1],
        ),
    ),
    "GRU": lambda piece: _recurrent(piece, "GRU", 3),
    "LSTM": lambda piece: _recurrent(piece, "LSTM", 4),
    "RNN": lambda piece: _recurrent(piece, "RNN", 1),
    "Compress": lambda piece: piece.node("Compress", "x", np.array([True, False, True]), axis=1),
    "Slice": lambda piece: piece.node("Slice", "x", *map(np.array, ([0, -2], [1 << 40, -9], [0, 2], [1, -1]))),
    "Pad": lambda piece: piece.node("Pad", "x", np.array([0, 1, 2, 0, 0, 0, 1, 3])),
    "Tile": lambda piece: piece.node("Tile", "x", np.array([1, 2, 1, 1])),
    "Expand": lambda piece: piece.node("Expand", piece.node("ReduceMax", "x", np.array([1])), np.array([5, 6, 6])),
    "Resize": lambda piece: piece.node("Resize", "x", "", np.float32([1, 1, 2, 1.5]), mode="linear"),
    "Transpose": lambda piece: piece.node("Transpose", "x", perm=[1, 2, 0, 3]),
    "Squeeze": lambda piece: piece.node("Squeeze", piece.node("ReduceMax", "x", np.array([1])), np.array([-3])),
    "Unsqueeze": lambda piece: piece.node("Unsqueeze", "x", np.array([0, -1])),
    "Reshape": lambda piece: piece.node("Reshape", "x", np.array([-1, 54])),
    "Concat": lambda piece: piece.node("Concat", "x", piece.node("Relu", "x"), axis=-2),
    "Gather": lambda piece: piece.node("Gather", _weights(6, 2), piece.node("ArgMax", "x", axis=3)),
    "GatherElements": lambda piece: piece.node("GatherElements", "x", piece.node("ArgMax", "x", axis=2), axis=2),
    "ScatterElements": lambda piece: piece.node(
        "ScatterElements", "x", piece.node("ArgMax", "x", axis=2), piece.node("ReduceMin", "x", np.array([2])), axis=2
    ),
    "GatherND": lambda piece: piece.node(
        "GatherND", "x", piece.node("Unsqueeze", piece.node("ArgMax", "x", axis=1), np.array([-1])), batch_dims=1
    ),
    "ScatterND": lambda piece: piece.node(
        "ScatterND",
        piece.node("Transpose", "x", perm=[1, 0, 2, 3]),
        np.array([[2]]),
        piece.node("Transpose", piece.node("ReduceMax", "x", np.array([1])), perm=[1, 0, 2, 3]),
    ),
    "FusedMatMul": _microsoft("FusedMatMul", "x", _weights(6, 2), alpha=2.0),
    "MatMul": lambda piece: piece.node("MatMul", "x", piece.node("Transpose", "x", perm=[0, 1, 3, 2])),
    "Gemm": lambda piece: piece.node("Gemm", _weights(108, 4), _rows(piece), _weights(4, 1), transA=1, transB=1),
    "Einsum": lambda piece: piece.node("Einsum", "x", _weights(3, 2), "x", equation="nchw,co,nchw->hno"),
    "ReverseSequence": lambda piece: piece.node(
        "ReverseSequence",
        piece.node("Transpose", "x", perm=[2, 1, 0, 3]),
        np.array([2, 3, 1]),
        time_axis=0,
        batch_axis=1,
    ),
    "FastGelu": _microsoft("FastGelu", "x"),
    "QuickGelu": _microsoft("QuickGelu", "x"),
    "BiasGelu": _microsoft("BiasGelu", "x", _weights(6)),
    "FusedConv": lambda piece: piece.node(
        "FusedConv", "x", _weights(3, 3, 1, 1), _weights(3), "x", activation="Relu", domain="com.microsoft"
    ),
    "FusedGemm": lambda piece: piece.node(
        "FusedGemm", _rows(piece), _weights(108, 4), _weights(4), activation="Relu", domain="com.microsoft"
    ),
    "QLinearAdd": _microsoft("QLinearAdd", None, *_LABEL, None, *_LABEL, *_LABEL),
    "QLinearMul": _microsoft("QLinearMul", None, *_LABEL, _bytes(6), *_LABEL, *_LABEL),
    "QLinearSigmoid": _microsoft("QLinearSigmoid", None, *_LABEL, *_LABEL),
    "QLinearLeakyRelu": _microsoft("QLinearLeakyRelu", None, *_LABEL, *_LABEL),
    "QLinearSoftmax": _microsoft("QLinearSoftmax", None, *_LABEL, *_LABEL, opset=13),
    "QLinearConcat": _microsoft("QLinearConcat", *_LABEL, None, *_LABEL, None, *_LABEL, axis=1),
    "QLinearAveragePool": _microsoft("QLinearAveragePool", None, *_LABEL, *_LABEL, kernel_shape=[2, 2]),
    "QLinearGlobalAveragePool": _microsoft("QLinearGlobalAveragePool", None, *_LABEL, *_LABEL, channels_last=0),
    "QGemm": lambda piece: piece.node(
        "QGemm",
        piece.quantise(_rows(piece), 0.05, 100),
        *_LABEL,
        _bytes(108, 4),
        *_LABEL,
        "",
        np.float32(9),
        np.uint8(100),
        domain="com.microsoft",
    ),
}
"""A node of each operator that computes each frame by itself."""
_OPSETS = {"CumProd": 26, "RMSNormalization": 23, "Swish": 24, "Upsample": 9}
"""Versions of operators that version 21 lacks."""
PER_FRAME |= {
    "RMSNormalization": lambda piece: piece.node("RMSNormalization", "x", _weights(6)),
    "Upsample": lambda piece: piece.node("Upsample", "x", np.float32([1, 1, 2, 2])),
}
UNTRIED = {"CumProd", "DeformConv", "Swish"}
"""Operators that ONNX Runtime lacks as yet; their rules are those of CumSum, GridSample and Sigmoid."""


def _searched(piece: Piece, tensor: str, batch: int | None) -> tuple[FrameSearch, list[str], onnx.ModelProto]:
    """A search of a piece's frames, the reasons why nodes mix them, and the model."""
    names = [name for node in piece.nodes if tensor in node.output for name in node.output]
    model = piece.model(*names, opsets=[helper.make_opsetid("com.microsoft", 1)])
    arrays = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    search = FrameSearch(GraphIndex(model), arrays, batch)
    return search, [f"{node.op_type}: {why}" for node, why in search.mixing({"x": Frames(0)}, model.graph.node)], model


def _session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _frame(values: np.ndarray, frames: Frames, count: int, index: int) -> np.ndarray:
    turned = np.moveaxis(values, frames.axis, 0)
    return turned.reshape(frames.before, count, frames.behind, *turned.shape[1:])[:, index]


def test_every_operator_is_tried() -> None:
    assert {*PER_FRAME} | UNTRIED == {*RULES}


def _check_by_themselves(operator: str, write: Callable[[Piece], str]) -> None:
    """Check that a frame's values are the same at another position of a longer batch of other frames.

    All sizes but the frames' axis are known, as a Reshape or Flatten that follows needs them.
    """
    batch = 3 if operator == "ReverseSequence" else None
    piece = Piece(kind=np.float32, opset=_OPSETS.get(operator, 21), batch=batch or "n")
    search, errors, model = _searched(piece, write(piece), batch)
    assert not errors
    first, second = piece.frames(3), piece.frames(batch or 5, seed=2)
    moved = {0: 0} if batch else {0: 4, 2: 1}
    for index, other in moved.items():
        second[other] = first[index]
    session = _session(model)
    pairs = [*zip(model.graph.output, session.run(None, {"x": first}), session.run(None, {"x": second}), strict=True)]
    assert model.graph.node[-1].op_type == operator
    for output, values, others in pairs:
        frames = search.frames[output.name]
        sizes = search.tensors.shape(output.name)
        assert sizes is not None
        assert np.delete(sizes, frames.axis).tolist() == np.delete(values.shape, frames.axis).tolist()
        parts = [_frame(values, frames, len(first), index) for index in range(len(first))]
        assert operator in ("IsInf", "IsNaN") or (parts[0] != parts[1]).any()
        for index, other in moved.items():
            np.testing.assert_allclose(parts[index], _frame(others, frames, len(second), other), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("operator", PER_FRAME)
def test_frames_by_themselves(operator: str) -> None:
    _check_by_themselves(operator, PER_FRAME[operator])


@pytest.mark.parametrize(
    ("equation", "sizes"),
    [
        ("...hw, hw -> ...", (6, 6)),
        ("nchw,cd", (3, 2)),
        ("...c,cd", (6, 2)),
        ("nc...,c...->...n", (3, 1, 6)),
        ("a...d,...d", (3, 6, 6)),
    ],
)
def test_equations(equation: str, sizes: tuple[int, ...]) -> None:
    _check_by_themselves("Einsum", lambda piece: piece.node("Einsum", "x", _weights(*sizes), equation=equation))


@pytest.mark.parametrize("transposed", [{}, {"transA": 1}, {"transB": 1}, {"transA": 1, "transB": 1}])
def test_transposed_products(transposed: dict[str, int]) -> None:
    _check_by_themselves(
        "FusedMatMul",
        lambda piece: piece.node("FusedMatMul", "x", "x", alpha=0.5, domain="com.microsoft", **transposed),
    )


def _count(piece: Piece) -> str:
    return piece.node("Gather", piece.node("Shape", "x"), np.array([0]))


_ALONG_0 = "works along axis 0, which holds the frames"
MIXING: dict[str, tuple[Callable[[Piece], str], str]] = {
    "Einsum": (
        lambda piece: piece.node("Einsum", "x", "x", equation="nchw,mchw->nchw"),
        "Einsum: works along 'm' of 'nchw,mchw->nchw'",
    ),
    "Einsum without a result": (
        lambda piece: piece.node("Einsum", "x", "x", equation="nchw,nchw"),
        "Einsum: works along 'n' of 'nchw,nchw'",
    ),
    "Einsum of too few letters": (
        lambda piece: piece.node("Einsum", "x", equation="nhw->hwn"),
        "Einsum: its equation 'nhw->hwn' has 3 letters for input 1 of 4 dimensions",
    ),
    "batches transposed": (
        lambda piece: piece.node("FusedMatMul", "x", "x", transBatchA=1, domain="com.microsoft"),
        "FusedMatMul: transposes the batch; use a Transpose",
    ),
    "another frame's product": (
        lambda piece: piece.node("Einsum", "x", "x", equation="nchw,mchw->nm"),
        "different axes",
    ),
    "ReverseSequence": (
        lambda piece: piece.node("ReverseSequence", "x", np.array([2, 2, 2]), batch_axis=1, time_axis=0),
        _ALONG_0,
    ),
    "Compress": (lambda piece: piece.node("Compress", "x", np.array([False, True]), axis=0), _ALONG_0),
    "Resize": (lambda piece: piece.node("Resize", "x", "", np.float32([0.5, 1, 1, 1]), mode="nearest"), _ALONG_0),
    "Trilu": (lambda piece: piece.node("Trilu", _rows(piece)), "works along axis -2, which holds the frames"),
    "LSTM": (
        lambda piece: piece.node(
            "LSTM",
            piece.node("Reshape", "x", np.array([0, 18, 6])),
            _weights(1, 16, 6),
            _weights(1, 16, 4),
            hidden_size=4,
        ),
        "LSTM: must have the frames of a batch along axis 1 of its input",
    ),
    "MeanVarianceNormalization": (lambda piece: piece.node("MeanVarianceNormalization", "x"), _ALONG_0),
    "EyeLike": (lambda piece: piece.node("EyeLike", _rows(piece)), "EyeLike: is not known to compute each frame"),
    "DynamicQuantizeLinear": (
        lambda piece: piece.node("DynamicQuantizeLinear", "x", outputs=3),
        "DynamicQuantizeLinear: is not known to compute each frame of a batch by itself; use other operators",
    ),
    "RoiAlign": (
        lambda piece: piece.node("RoiAlign", "x", np.float32([[0, 0, 2, 2]]), np.array([1])),
        "RoiAlign: is not known to compute each frame",
    ),
    "MaxPool": (
        lambda piece: piece.node("Cast", piece.node("MaxPool", "x", kernel_shape=[2, 2], outputs=2) + "_1", to=1),
        "MaxPool: its second output counts in all frames",
    ),
    "a table": (
        lambda piece: piece.node(
            "ReduceSum", piece.node("Gather", _weights(6, 2), piece.node("ArgMax", "x", axis=3)), np.array([0])
        ),
        _ALONG_0,
    ),
    "indices of frames": (
        lambda piece: piece.node(
            "Gather", _rows(piece), piece.node("ArgMax", _rows(piece), axis=1, keepdims=0), axis=1
        ),
        "Gather: takes values of frames by indices of other frames",
    ),
    "Reshape": (
        lambda piece: piece.node("Reshape", "x", piece.node("Concat", np.array([108]), _count(piece), axis=0)),
        "Reshape: its shape that the model computes depends on the number of frames",
    ),
    "half a batch": (
        lambda piece: piece.node(
            "Slice", "x", np.array([0]), piece.node("Div", _count(piece), np.array([2])), np.array([0])
        ),
        _ALONG_0,
    ),
    "ten frames at most": (
        lambda piece: piece.node("Slice", "x", *map(np.array, ([0], [10], [0]))),
        _ALONG_0,
    ),
    "a million frames at most": (
        lambda piece: piece.node("Slice", "x", *map(np.array, ([0], [1_000_000], [0]))),
        _ALONG_0,
    ),
    "eight frames at most, computed": (
        lambda piece: piece.node(
            "Slice", "x", np.array([0]), piece.node("Min", _count(piece), np.array([8])), np.array([0])
        ),
        _ALONG_0,
    ),
    "whether there are many frames": (
        lambda piece: piece.node(
            "Mul", "x", piece.node("Cast", piece.node("Greater", _count(piece), np.array([16])), to=1)
        ),
        "Mul: computes with the number of frames",
    ),
    "a reversed batch": (
        lambda piece: piece.node(
            "Slice", "x", piece.node("Sub", _count(piece), np.array([1])), *map(np.array, ([-(2**40)], [0], [-1]))
        ),
        _ALONG_0,
    ),
    "as many channels as frames": (
        lambda piece: piece.node("Slice", "x", np.array([0]), _count(piece), np.array([1])),
        "Slice: computes with the number of frames",
    ),
    "Pad": (
        lambda piece: piece.node("Pad", "x", piece.node("Concat", _count(piece), np.zeros(7, np.int64), axis=0)),
        _ALONG_0,
    ),
    "Tile": (
        lambda piece: piece.node("Tile", "x", piece.node("Concat", np.ones(3, np.int64), _count(piece), axis=0)),
        "Tile: computes with the number of frames",
    ),
    "rows of a constant": (
        lambda piece: piece.node("Add", "x", _weights(4, 1, 1, 1)),
        r"Add: its constant 'c0' has 4 rows along axis 0, which holds any number of frames; give it one row",
    ),
    "rows to choose from": (
        lambda piece: piece.node("Where", np.array([[[[True]]], [[[False]]]]), "x", np.float32(0)),
        "Where: its constant 'c0' has 2 rows along axis 0",
    ),
    "a random number": (
        lambda piece: piece.node("Add", "x", piece.node("RandomNormal", shape=[1])),
        "Add: computes with the number of frames",
    ),
    "a vector's axis": (
        lambda piece: piece.node(
            "ReduceMax", piece.node("Squeeze", piece.node("ReduceMax", "x", np.array([2, 3]))), np.array([1])
        ),
        "ReduceMax: takes the output of a Squeeze without axes",
    ),
    "batches of two": (lambda piece: piece.node("Reshape", "x", np.array([216])), "fits only a batch of 2 frames"),
}
"""Operators that mix frames, and a part of the message."""


@pytest.mark.parametrize("way", MIXING)
def test_frames_that_are_mixed(way: str) -> None:
    piece = Piece(kind=np.float32, opset=21)
    write, message = MIXING[way]
    _, (error, *others), _ = _searched(piece, write(piece), None)
    assert not others
    assert message in error


def test_sizes_behind_a_computed_shape() -> None:
    """A constant that is expanded to the shape behind a Reshape with -1 is the same for each frame."""
    piece = Piece(kind=np.float32, opset=21)
    pairs = piece.node("Reshape", "x", piece.node("Concat", _count(piece), np.array([-1, 2]), axis=0))
    scales = piece.node("Expand", _weights(1, 54, 2), piece.node("Shape", pairs))
    product = piece.node("Mul", pairs, scales)
    search, errors, model = _searched(piece, product, None)
    assert not errors
    assert search.frames[product] == Frames(0)
    frames = piece.frames(3)
    (batch,), (last,) = (_session(model).run(None, {"x": x}) for x in (frames, frames[2:]))
    np.testing.assert_array_equal(batch[2:], last)


def test_one_frame_at_a_time() -> None:
    """Behind a Reshape that fits one frame only, nothing can mix frames."""
    piece = Piece(kind=np.float32, opset=21)
    row = piece.node("Softmax", piece.node("Reshape", "x", np.array([1, 108])), axis=0)
    search, errors, _ = _searched(piece, row, None)
    assert not errors
    assert search.frames == {"x": Frames(0)}
