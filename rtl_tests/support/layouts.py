"""Random quantised models whose tensors wander: through other orders of dimensions, more of them and fewer."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx_models import Writer
from referees import saturates

Move = tuple[str, Any]
"""An operator and its parameter: an order, a shape or a place, all without the batch."""
Frame = tuple[int, ...]


def moved(shape: Frame, move: Move) -> Frame:
    kind, how = move
    if kind == "Transpose":
        return tuple(shape[place] for place in how)
    if kind == "Reshape":
        return how
    if kind == "Flatten":
        return (prod(shape),)
    if kind == "Unsqueeze":
        return (*shape[:how], 1, *shape[how:])
    if kind == "Squeeze":
        return (*shape[:how], *shape[how + 1 :])
    return shape


def back(shape: Frame, move: Move) -> Move:
    """Return the move that undoes ``move`` of a tensor of ``shape``."""
    kind, how = move
    if kind == "Transpose":
        return kind, tuple(int(place) for place in np.argsort(how))
    if kind in ("Reshape", "Flatten"):
        return "Reshape", shape
    return {"Unsqueeze": "Squeeze", "Squeeze": "Unsqueeze"}.get(kind, kind), how


class Wanderer(Writer):
    """Writes layers over (C, H, W) or (C, L); in between tensors are moved to and fro.

    ``shape`` is what the next layer takes, ``pending`` the moves that give it. Moves stand before the quantiser behind
    a layer, on integers, or in front of the next layer.
    """

    def __init__(self, seed: int, *, rank: int = 3, channels: int = 0) -> None:
        super().__init__(seed, qdq=seed % 3 > 0, powers=seed % 4 == 0, channels=channels, tame=saturates())
        self.pending: list[Move] = []
        if rank == 2:
            self.shape = (self.shape[0], int(self.random.integers(9, 30)))
        self.nodes.clear()
        self.input_shape = self.shape
        moves = self.walk(int(self.random.integers(3)))
        for move in moves:
            self.input_shape = moved(self.input_shape, move)
        if len(self.input_shape) > 3:  # no input of a model that is built
            self.input_shape, self.pending = self.shape, []
        tensor = self.some("image", early=self.random.random() < 0.5)
        self.tensor = self.add("QuantizeLinear", "input", tensor, self.scale, self.zero)

    def walk(self, count: int, kinds: tuple[str, ...] = ()) -> list[Move]:
        """Return ``count`` random moves away from ``shape``. The moves that lead back are added to ``pending``."""
        shape, moves = self.shape, []
        for _ in range(count):
            move = self.a_move(shape, kinds)
            moves.append(move)
            self.pending.insert(0, back(shape, move))
            shape = moved(shape, move)
        return moves

    def a_move(self, shape: Frame, kinds: tuple[str, ...]) -> Move:
        several = len(shape) > 1
        usual = ["Dropout", "Flatten", "Identity", "Reshape", "Unsqueeze", *["Transpose"] * 5 * several]
        if several and 1 in shape:
            usual.append("Squeeze")
        kind = str(self.random.choice(kinds or usual))
        if kind == "Transpose":
            return kind, tuple(int(place) for place in self.random.permutation(len(shape)))
        if kind == "Unsqueeze":
            return kind, int(self.random.integers(len(shape) + 1))
        if kind == "Squeeze":
            return kind, shape.index(1)
        if kind == "Reshape":
            if several and self.random.random() < 0.6:
                place = int(self.random.integers(len(shape) - 1))
                return kind, (*shape[:place], shape[place] * shape[place + 1], *shape[place + 2 :])
            place = int(self.random.integers(len(shape)))
            factors = [each for each in range(1, shape[place] + 1) if shape[place] % each == 0]
            factor = int(self.random.choice(factors))
            return kind, (*shape[:place], shape[place] // factor, factor, *shape[place + 1 :])
        return kind, None

    def emit(self, tensor: str, move: Move) -> str:
        kind, how = move
        if kind == "Transpose":
            return self.add(kind, "move", tensor, perm=[0, *(1 + place for place in how)])
        if kind == "Reshape":
            rest = list(how)
            way = self.random.integers(3)
            if way == 1:
                rest[self.random.integers(len(rest))] = -1
            return self.add(kind, "move", tensor, self.constant(np.array([-1 if way == 0 else 0, *rest])))
        if kind in ("Squeeze", "Unsqueeze"):
            return self.add(kind, "move", tensor, self.constant(np.array([1 + how])))
        if kind == "Dropout" and not self.is_float(tensor):
            kind = "Identity"
        return self.add(kind, "move", tensor)

    def is_float(self, tensor: str) -> bool:
        producers = {node.output[0]: node for node in self.nodes}
        while tensor.startswith("move"):
            tensor = producers[tensor].input[0]
        return tensor == "image" or (self.qdq and producers[tensor].op_type != "QuantizeLinear")

    def some(self, tensor: str, *, early: bool = True) -> str:
        """Emit a random number of the pending moves, none without ``early``, and return the tensor behind them."""
        while early and self.pending and self.random.random() < 0.7:
            tensor = self.emit(tensor, self.pending.pop(0))
        return tensor

    def rest(self, tensor: str) -> str:
        while self.pending:
            tensor = self.emit(tensor, self.pending.pop(0))
        return tensor

    def dequantised(self) -> str:
        self.tensor = self.some(self.tensor, early=self.random.random() < 0.4)
        self.real = self.rest(super().dequantised())
        return self.real

    def product(self, operator: str, name: str, shape: Frame, axis: int, output: Frame, **attributes: Any) -> None:
        self.after = output
        super().product(operator, name, shape, axis, output, **attributes)

    def add(self, operator: str, name: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        if name == "quantise":  # behind a layer
            self.shape = self.after
            tensor, averaged = inputs[0], "Average" in self.nodes[-1].op_type
            kinds = ("Transpose", "Unsqueeze", "Identity") if averaged and self.shape[1:] else ()
            for move in self.walk(int(self.random.integers(3)) if self.random.random() < 0.5 else 0, kinds):
                tensor = self.emit(tensor, move)
            inputs = (tensor, *inputs[1:])
        return super().add(operator, name, *inputs, domain=domain, **attributes)

    def wander(self) -> None:
        """Emit random moves of integer tensors, sometimes with rows and columns exchanged for good."""
        self.tensor = self.rest(self.tensor)
        if len(self.shape) == 3 and self.random.random() < 0.3:
            self.tensor = self.emit(self.tensor, ("Transpose", (0, 2, 1)))
            self.shape = (self.shape[0], self.shape[2], self.shape[1])
        for move in self.walk(int(self.random.integers(3))):
            self.tensor = self.emit(self.tensor, move)

    def at_rest(self) -> str:
        """Return the tensor that a layer reads: floats, or integers in QOperator models."""
        if self.qdq:
            return self.dequantised()
        self.tensor = self.rest(self.tensor)
        return self.tensor

    # Layers over one dimension or two.

    def along(self, kernel: list[int], dilation: list[int]) -> tuple[dict[str, Any], Frame]:
        stride = [int(each) for each in self.random.integers(1, 3, len(kernel))]
        pads = [int(self.random.integers(0, k)) for k in (*kernel, *kernel)]
        size = tuple(
            (side + before + after - (k - 1) * d - 1) // s + 1
            for side, before, after, k, d, s in zip(
                self.shape[1:], pads, pads[len(kernel) :], kernel, dilation, stride, strict=False
            )
        )
        return {"strides": stride, "pads": pads}, size

    def a_kernel(self) -> list[int]:
        return [int(min(side, self.random.integers(1, 4))) for side in self.shape[1:]]

    def layer(self, name: str) -> None:
        """Add a random convolution."""
        kernel = self.a_kernel()
        dilation = [
            2 if k > 1 and 2 * k - 1 <= side and self.random.random() < 0.3 else 1
            for k, side in zip(kernel, self.shape[1:], strict=True)
        ]
        attributes, size = self.along(kernel, dilation)
        groups = self.shape[0] if self.random.random() < 0.3 else 1
        outputs = groups * int(self.random.integers(1, 3)) if groups > 1 else int(self.random.integers(1, 7))
        self.at_rest_for_product()
        weights = (outputs, self.shape[0] // groups, *kernel)
        self.product("Conv", name, weights, 0, (outputs, *size), dilations=dilation, group=groups, **attributes)

    def at_rest_for_product(self) -> None:
        if not self.qdq:
            self.tensor = self.rest(self.tensor)

    def max_pool(self, name: str) -> None:
        kernel = self.a_kernel()
        attributes, size = self.along(kernel, [1] * len(kernel))
        tensor = self.add("MaxPool", name, self.at_rest(), kernel_shape=kernel, **attributes)
        self.shape = self.after = (self.shape[0], *size)
        self.tensor = self.add("QuantizeLinear", "quantise", tensor, self.scale, self.zero) if self.qdq else tensor

    def average(self, name: str, *, whole: bool = False) -> None:
        kernel = self.a_kernel()
        attributes, size = self.along(kernel, [1] * len(kernel))
        attributes |= {"kernel_shape": kernel, "count_include_pad": int(self.random.integers(2))}
        if whole:
            attributes, size = {}, (1,) * len(kernel)
        operator = "GlobalAveragePool" if whole else "AveragePool"
        before, after = (self.scale, self.zero), self.quantisation(float(self.values(self.scale)) / 2)
        if self.qdq:
            pooled = self.add(operator, name, self.at_rest(), **attributes)
            self.after = (self.shape[0], *size)
            self.tensor = self.add("QuantizeLinear", "quantise", pooled, *after)
        else:
            operands = [self.at_rest(), *before, *after]
            self.tensor = self.add(f"QLinear{operator}", name, *operands, domain="com.microsoft", **attributes)
            self.shape = (self.shape[0], *size)
        self.scale, self.zero = after

    def residual(self, name: str) -> None:
        """Add a pointwise convolution, and join its output with its input by Add, Mul or Concat, both moved alike."""
        self.at_rest_for_product()
        if self.qdq and self.pending:
            self.tensor = self.rest(self.tensor)
        before = self.tensor, self.scale, self.zero
        channels = self.shape[0]
        self.product("Conv", name, (channels, channels, *[1] * (len(self.shape) - 1)), 0, self.shape)
        real = self.real if self.qdq else ""
        self.tensor = self.rest(self.tensor)
        after = self.tensor, self.scale, self.zero
        operator = str(self.random.choice(["Add", "Mul", "Concat"]))
        moves = self.walk(int(self.random.integers(3)), ("Transpose", "Identity"))
        order = list(range(len(self.shape)))
        for kind, how in moves:
            order = [order[place] for place in how] if kind == "Transpose" else order
        axis: dict[str, Any] = {"axis": 1 + order.index(0)} if operator == "Concat" else {}
        about = float(max(self.values(scale) for _, scale, _ in (before, after))) * 1.5
        if operator == "Mul":
            about = 60 * float(np.prod([self.values(scale) for _, scale, _ in (before, after)]))
        quantisation = self.quantisation(about)
        operands = []
        shared = self.qdq and self.random.random() < 0.3
        for tensor, scale, zero in (before, after):
            if shared and tensor == before[0]:  # the same DequantizeLinear as the convolution's
                tensor = real
                for move in moves:
                    tensor = self.emit(tensor, move)
                operands.append(tensor)
                continue
            early = int(self.random.integers(len(moves) + 1)) if self.qdq else len(moves)
            for move in moves[:early]:
                tensor = self.emit(tensor, move)
            if self.qdq:
                tensor = Writer.add(self, "DequantizeLinear", "dequantise", tensor, scale, zero)
                for move in moves[early:]:
                    tensor = self.emit(tensor, move)
                operands.append(tensor)
            else:
                operands += [tensor, scale, zero]
        if operator == "Concat":
            self.shape = (2 * channels, *self.shape[1:])
        if self.qdq:
            tensor = Writer.add(self, operator, f"{name}_join", *operands, **axis)
            self.tensor = Writer.add(self, "QuantizeLinear", "joined", tensor, *quantisation)
        else:
            operands = [*quantisation, *operands] if operator == "Concat" else [*operands, *quantisation]
            self.tensor = self.add(f"QLinear{operator}", f"{name}_join", *operands, domain="com.microsoft", **axis)
        self.scale, self.zero = quantisation

    def rows(self, name: str) -> None:
        """Add a MatMul along the channels, which are moved to the end and back."""
        order = (*range(1, len(self.shape)), 0)
        self.at_rest_for_product()
        if self.qdq:
            self.tensor = self.rest(self.tensor)
        self.tensor = self.emit(self.tensor, ("Transpose", order))
        outputs = int(self.random.integers(1, 7))
        self.shape = (*self.shape[1:], self.shape[0])
        self.product("MatMul", name, (self.shape[-1], outputs), 1, (*self.shape[:-1], outputs))
        self.tensor = self.rest(self.tensor)
        last = len(self.shape) - 1
        self.tensor = self.emit(self.tensor, ("Transpose", (last, *range(last))))
        self.shape = (self.shape[-1], *self.shape[:-1])

    def dense(self, name: str) -> None:
        """Add a dense layer of all values in the present layout, so that pending moves are never made."""
        self.tensor = self.some(self.tensor)
        if self.pending:
            self.pending.clear()
            kind = "Flatten"
        else:
            kind = str(self.random.choice(["Flatten", "Reshape"]))
        size = prod(self.shape)
        source = Writer.dequantised(self) if self.qdq else self.tensor
        if kind == "Flatten":
            self.tensor = self.add("Flatten", "flatten", source)
        else:
            self.tensor = self.add("Reshape", "reshape", source, self.constant(np.array([0, -1])))
        if self.qdq:
            self.tensor = Writer.add(self, "QuantizeLinear", "flat", self.tensor, self.scale, self.zero)
        self.shape = (size,)
        outputs = int(self.random.integers(1, 9))
        self.product("Gemm", name, (outputs, size), 0, (outputs,), transB=1)

    def model(self) -> onnx.ModelProto:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        graph = helper.make_graph(
            self.nodes,
            "random",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", *self.input_shape])],
            [helper.make_tensor_value_info(self.tensor, kind, [None] * (1 + len(self.shape)))],
            self.constants,
        )
        imports = [helper.make_opsetid("", [13, 17, 21][self.count % 3]), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=9)


def random_wanderer(seed: int) -> Wanderer:
    writer = Wanderer(seed, rank=2 + seed % 2)
    kinds = ["layer", "layer", "max_pool", "average", "residual", "rows"]
    for number in range(1 + seed % 4):
        getattr(writer, str(writer.random.choice(kinds)))(f"layer{number}")
        if writer.random.random() < 0.5:
            writer.wander()
    if seed % 5 == 0:
        writer.average("whole", whole=True)
    if seed % 3 == 0:
        writer.dense("dense")
    elif not any("Conv" in node.op_type or "Pool" in node.op_type or "MatMul" in node.op_type for node in writer.nodes):
        writer.layer("last")
    writer.tensor = writer.rest(writer.tensor)
    return writer
