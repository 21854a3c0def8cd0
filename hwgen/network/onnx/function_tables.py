"""Tables of one-operand functions, which ONNX Runtime computes for every integer that a map can hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hwgen.network.float32 import Label
from hwgen.network.host import SETTINGS
from hwgen.network.maps import IntegerType
from hwgen.network.onnx.constants import Constants
from hwgen.network.onnx.file import copied, line, title
from hwgen.network.onnx.runtime import session
from hwgen.network.onnx.values import Applied, ConstantOperand, Map, Reals, steps_in_order
from hwgen.network.ops.join import MAX_BITS

_OPSET = 17
"""Version of ONNX's operator set in the small models that are run, if the user's model names none."""


@dataclass(frozen=True)
class Function:
    """Function of one value, made of ONNX nodes, that is applied to all values of a dequantised feature map.

    Parameters
    ----------
    constants : Constants
        Constants of the model.
    map : Map
        Map that the function is applied to.
    values : ndarray
        Integers that the map can hold, int64, rising.
    state : Reals
        Dequantised state of the map, with the operators that have been applied since.
    """

    constants: Constants
    map: Map
    values: np.ndarray
    state: Reals

    def reals(self) -> np.ndarray:
        """Return the real results for each integer that a map's value can take, float32 ``(channels or 1, n)``."""
        return self._tabulate(None)

    @property
    def rises(self) -> bool:
        """Whether the function never falls as the map's integers increase, so that a max pool can precede it."""
        return bool((np.diff(self.reals()) >= 0).all())

    def quantised(self, node: onnx.NodeProto, scale: np.float32, zero: int, integer_type: IntegerType) -> np.ndarray:
        """Return an int64 table by channel: the function's quantised output for each integer of the map.

        Its shape is ``(channels or 1, integers)``. The QuantizeLinear ``node`` quantises.

        Raises
        ------
        ModelError
            If the output has more than 8 bits, or the function has no value for one of the integers.
        """
        last = self.state.steps[-1]
        if integer_type.bits > MAX_BITS:
            raise self.constants.refusal(
                node, f"gives at most {MAX_BITS} bits after {title(last)!r}, not {integer_type}"
            )
        reals = self.reals()
        if np.isnan(reals).any():
            first = int(np.argwhere(np.isnan(reals))[0][1])
            (value,) = Label(float(self.state.scale), self.state.zero).reals(self.values[first : first + 1])
            raise self.constants.refusal(
                last, f"gives no number (NaN) where its map is {value:g}; put a Relu or Clip before it"
            )
        return np.clip(self._tabulate((scale, zero, integer_type)).astype(np.int64), *integer_type.ends)

    def _tabulate(self, result: tuple[np.float32, int, IntegerType] | None) -> np.ndarray:
        """Return an array: ONNX Runtime's outputs of the function per integer of the map, quantised if ``result`` is.

        ``result`` is the output's scale, zero point and type.
        """
        state, dtype = self.state, self.map.type.dtype
        writer = FunctionWriter(self.constants)
        source = writer.add(
            "DequantizeLinear", "x", writer.array(state.scale), writer.array(np.array(state.zero, dtype))
        )
        output = writer.expression(state.formula, source)
        if result is not None:
            scale, zero, integer_type = result
            output = writer.add(
                "QuantizeLinear", output, writer.array(scale), writer.array(np.array(zero, integer_type.dtype))
            )
        channels = self.map.channels if writer.by_channel else 1
        x = np.broadcast_to(self.values.astype(dtype), (1, channels, 1, len(self.values)))
        try:
            return writer.run(x, output, integers=not state.in_floats)[0, :, 0]
        except Exception as error:  # ONNX Runtime raises many types of errors
            why = f"ONNX Runtime can't run it on its own: {line(error)}"
            raise self.constants.refusal(state.steps[-1], why) from None


class FunctionWriter:
    """Writer of a small ONNX model that applies a function to all integers of a map, ``(1, channels, 1, integers)``."""

    def __init__(self, constants: Constants) -> None:
        self._model = constants.model
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._known: dict[int, str] = {}
        self.by_channel = False
        """Whether a constant of the written ONNX model has one value per channel."""

    def array(self, values: np.ndarray | np.float32) -> str:
        """Add a constant to the written ONNX model, and return its name."""
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(values).reshape(np.shape(values)), name))
        return name

    def add(self, operator: str, *inputs: str, name: str = "") -> str:
        """Add a node with a given operator and inputs to the written ONNX model; return its output's name."""
        return self._append(helper.make_node(operator, inputs, [], name=name))

    def _append(self, node: onnx.NodeProto) -> str:
        """Append a node to the written ONNX model, name its output, and return that name."""
        node.output.append(f"value_{len(self._nodes)}")
        self._nodes.append(node)
        return node.output[0]

    def expression(self, formula: Applied | None, source: str) -> str:
        """Add the nodes of the expression ``formula``, applied to the tensor ``source``; return the result's name."""
        for step in steps_in_order(formula):
            node = copied(step.node)
            del node.input[:], node.output[:]
            for operand in step.operands:
                if isinstance(operand, ConstantOperand):
                    node.input.append(self._constant(operand))
                elif isinstance(operand, str):
                    node.input.append(operand)
                else:
                    node.input.append(source if operand is None else self._known[id(operand)])
            self._known[id(step)] = self._append(node)
        return source if formula is None else self._known[id(formula)]

    def _constant(self, operand: ConstantOperand) -> str:
        """Add a constant operand, dequantised if it has a label, to the written ONNX model; return its name."""
        self.by_channel |= operand.values.size > 1
        values = self.array(operand.values)
        if operand.label is None:
            return values
        return self.add("DequantizeLinear", values, *(self.array(label.reshape(())) for label in operand.label))

    def run(self, x: np.ndarray, output: str, *, integers: bool) -> np.ndarray:
        """Run the written ONNX model on the array ``x`` in ONNX Runtime; return the array of tensor ``output``.

        ``integers``: whether ONNX Runtime can fuse nodes into integer kernels.
        """
        settings = {**SETTINGS, "session.disable_quant_qdq": "0" if integers else "1"}
        (result,) = session(self.model(x, output), settings).run(None, {"x": x})
        return np.asarray(result)

    def model(self, x: np.ndarray, output: str) -> bytes:
        """Return the written ONNX model as bytes, with an input of the type and shape of ``x``."""
        model = self._model
        element_type = helper.np_dtype_to_tensor_dtype(x.dtype)
        graph = helper.make_graph(
            self._nodes,
            "function",
            [helper.make_tensor_value_info("x", element_type, x.shape)],
            [onnx.ValueInfoProto(name=output)],
            self._constants,
        )
        versions = [*model.opset_import]
        if not any(entry.domain in ("", "ai.onnx") for entry in versions):
            versions.append(helper.make_opsetid("", _OPSET))
        return helper.make_model(graph, opset_imports=versions, ir_version=max(model.ir_version, 4)).SerializeToString()
