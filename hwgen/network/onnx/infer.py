"""Types and shapes of a model's tensors, by ONNX shape inference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import onnx
from onnx import TensorProto, helper, shape_inference

from hwgen.network.onnx.file import copied, data_inputs, takes
from hwgen.network.onnx.frame_shapes import FrameShapes

Shape = tuple[int, ...]
"""Type of a tensor's shape: the sizes of its dimensions; 0 where a size is not known."""

_LARGEST = 64
"""Largest number of values of a constant that is passed to shape inference, because it can be a shape."""


@dataclass(frozen=True)
class InferredTensor:
    """Element type and shape of an ONNX tensor, as far as they are known.

    Parameters
    ----------
    type : int
        Element type of ONNX; 0 if it is not known, or the value is no tensor.
    shape : tuple of int, optional
        Sizes with the batch; ``None`` if not even the rank is known.
    """

    type: int = TensorProto.UNDEFINED
    shape: Shape | None = None


class Shapes:
    """Element types and shapes of all tensors of an ONNX model, by shape inference.

    Shape inference runs on a copy of the model without weights, because it needs only their sizes.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._noted: dict[str, onnx.ValueInfoProto] = {}
        self._found: dict[str, InferredTensor] | None = None
        self._inferred_with = 0
        self._one_frame: tuple[int, FrameShapes] | None = None

    def note(self, name: str, element_type: int, frame: Sequence[int | None]) -> None:
        """Set the type and shape of a tensor that shape inference can't infer.

        Operators that are not ONNX's own have such tensors.

        Parameters
        ----------
        element_type : int
            Element type of ONNX.
        frame : sequence of int or None
            Sizes without the batch; ``None`` where a size is not known.
        """
        if name not in self._noted:
            self._noted[name] = helper.make_tensor_value_info(name, element_type, [None, *frame])

    def of(self, name: str) -> InferredTensor:
        """Return the element type and shape of the tensor ``name``, as far as they are known."""
        if name in self._constants:
            return InferredTensor(self._constants[name].data_type, tuple(self._constants[name].dims))
        if self._found is None:
            self._found = self._infer()
        shape = self._found.get(name, InferredTensor()).shape
        if (shape is None or 0 in shape[1:]) and len(self._noted) > self._inferred_with:
            self._found = self._infer()
        return self._found.get(name, InferredTensor())

    def of_one_frame(self, name: str) -> Shape | None:
        """Return a tensor's shape for a batch of one frame, or for the fixed batch; ``None`` if a size is not known.

        It is known behind operators of other domains and computed shapes, too.
        """
        if self._one_frame is None or len(self._noted) > self._one_frame[0]:
            self._one_frame = len(self._noted), FrameShapes(self._model, lambda other: self.of(other).shape)
        return self._one_frame[1].of(name)

    def _infer(self) -> dict[str, InferredTensor]:
        """Run ONNX's shape inference, and return the types and shapes of all tensors, by name."""
        graph, skeleton = self._model.graph, onnx.ModelProto()
        self._inferred_with = len(self._noted)
        skeleton.ir_version = max(self._model.ir_version, 4)
        skeleton.opset_import.extend(self._model.opset_import)
        skeleton.functions.extend(self._model.functions)
        skeleton.graph.name = "skeleton"
        skeleton.graph.node.extend(graph.node)
        skeleton.graph.input.extend(data_inputs(self._model))
        skeleton.graph.output.extend(graph.output)
        for tensor in graph.initializer:
            if prod(tensor.dims) <= _LARGEST:
                skeleton.graph.initializer.append(tensor)
            else:
                skeleton.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        declared = {value.name: value for value in graph.value_info}
        ends = {value.name for value in (*skeleton.graph.input, *graph.output)}
        skeleton.graph.value_info.extend(value for name, value in (declared | self._noted).items() if name not in ends)
        try:
            inferred = shape_inference.infer_shapes(skeleton, data_prop=True).graph
        except (shape_inference.InferenceError, ValueError, RuntimeError, TypeError):
            inferred = skeleton.graph
        return {value.name: _tensor(value) for value in (*inferred.input, *inferred.value_info, *inferred.output)}


def with_output_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return an ONNX model in which outputs without a shape have the inferred one, if there is one."""
    bare = [
        index
        for index, value in enumerate(model.graph.output)
        if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape")
    ]
    if not bare:
        return model
    result, inferred = copied(model), Shapes(model)
    for index in bare:
        value = result.graph.output[index]
        tensor = inferred.of(value.name)
        shape = tensor.shape or _of_frames(model, inferred, value.name)
        element_type = value.type.tensor_type.elem_type or tensor.type
        if shape is not None and element_type:
            sizes = [size or None for size in shape]
            value.CopyFrom(helper.make_tensor_value_info(value.name, element_type, sizes))
    return result


def _of_frames(model: onnx.ModelProto, inferred: Shapes, name: str) -> Shape | None:
    """Return the shape of a tensor behind operators that ONNX does not infer; a symbolic batch is 0."""
    shape = inferred.of_one_frame(name)
    batches = [value.type.tensor_type.shape.dim[:1] for value in data_inputs(model)]
    is_symbolic = any(dim.dim_value < 1 for dims in batches for dim in dims)
    return (0, *shape[1:]) if shape and is_symbolic else shape


def cause_without_shape(model: onnx.ModelProto, name: str) -> onnx.NodeProto | None:
    """Return the first node before the tensor ``name`` whose output's shape does not follow from its inputs' shapes."""
    inferred = Shapes(model)
    wanted, causes = {name}, []
    for node in reversed(model.graph.node):
        unknown = [tensor for tensor in node.output if tensor in wanted and inferred.of_one_frame(tensor) is None]
        if unknown:
            wanted.update(takes(node))
            if all(inferred.of_one_frame(tensor) is not None for tensor in takes(node)):
                causes.append(node)
    return causes[-1] if causes else None


def _tensor(value: onnx.ValueInfoProto) -> InferredTensor:
    """Return the element type and shape of a tensor, as the ONNX model declares them."""
    if not value.type.HasField("tensor_type"):
        return InferredTensor()
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return InferredTensor(tensor.elem_type)
    return InferredTensor(tensor.elem_type, tuple(max(dim.dim_value, 0) for dim in tensor.shape.dim))
