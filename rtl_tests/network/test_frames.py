"""The axis of a batch's frames in the tensors of an ONNX graph, and nodes that mix frames.

Referee: ONNX's reference implementation on tensors that hold the index of their frame.
"""

from __future__ import annotations

from math import prod
from typing import Any

import hypothesis.strategies as st
import numpy as np
import onnx
from hypothesis import given
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from hwgen.network.onnx.frames import Frames, FrameSearch
from hwgen.network.onnx.infer import Shapes

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
        graph = helper.make_graph(
            self.nodes,
            "chain",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [self.batch or "batch", *self.frame])],
            [helper.make_tensor_value_info(self.tensor, TensorProto.FLOAT, None if rank is None else [None] * rank)],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=10)

    def search(self) -> tuple[FrameSearch, list[tuple[onnx.NodeProto, str]]]:
        model = self.model(len(self.shape))
        arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in self.constants}
        search = FrameSearch(Shapes(model), arrays, self.batch, _OPSET)
        return search, search.mixing({"x"}, self.nodes)

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
