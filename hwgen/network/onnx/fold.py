"""Constant folding of ONNX models: tensors that depend only on constants become initialisers.

ONNX Runtime evaluates each such node. It folds constants with the same kernels, so the values equal the reference's
values, and every operator that it knows can be folded. Shape inference first gives the sizes of a node's outputs. A
result that is too large or takes too long is refused before anything is computed.

ONNX Runtime can't be stopped inside a kernel, so a bound on its steps must be known before it starts (`work`). The
bound depends only on the model, never on the machine. Operators whose steps grow only with the size of their tensors
are listed, and so are products and pools. Every other operator has the bound of the worst kernel imaginable, which only
small tensors meet.

An operator that only moves the values of a dequantised constant moves the constant's integers. Weights after Transpose
or Reshape thus stay quantised. Shape is a constant if the sizes that it returns are known. A symbolic batch is folded
if it becomes the shape of a Reshape.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from hwgen.network.onnx.constants import NARROW
from hwgen.network.onnx.file import DOMAINS, attribute, copied, line, subgraphs
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.onnx.infer import BATCH, BATCHES, Shape
from hwgen.network.onnx.macs import macs_of
from hwgen.network.onnx.operator_traits import CONVOLUTIONS, MOVES, POINTWISE, PRODUCTS, Effect, traits_of, with_effect
from hwgen.network.onnx.rewrite import Made, Rewrite, Rewriter
from hwgen.network.onnx.runtime import session
from hwgen.network.onnx.tail import may_run

MAX_WORK = 1 << 32
"""Maximum number of computing steps for all constants of a model during import; they take some seconds."""
_LINEAR = with_effect(
    *(*POINTWISE, *MOVES, Effect.QUANTISER, Effect.PARTS, Effect.PLACE, Effect.SIZES, Effect.REDUCTION),
    *(Effect.SOFTMAX, Effect.NORMALISATION, Effect.TOKEN_NORMALISATION, Effect.GLOBAL_POOL),
)
"""Set of names of ONNX operators whose kernels read or write each value a bounded number of times."""
_POOLS = {"AveragePool": 1, "LpPool": 8, "MaxPool": 1}
"""Dictionary by ONNX operator: computing steps per tap of a pool's window; LpPool's powers are slow."""
_UNKNOWN_COST = 1 << 6
"""Number of computing steps that are assumed per value of an unknown ONNX operator.

Its kernel can be slow, or need memory.
"""


def work(node: onnx.NodeProto, shapes: Mapping[str, Shape]) -> int:
    """Return an upper bound on the computing steps that ONNX Runtime needs to run an ONNX node.

    ``shapes``: shapes of the tensors that the node reads and writes, by name.
    """
    sizes = [math.prod(shapes[name]) for name in (*node.input, *node.output) if name]
    linear, operator = sum(sizes), node.op_type
    if operator in _LINEAR:
        return linear
    is_product = operator in PRODUCTS or operator in CONVOLUTIONS or (operator == "Einsum" and len(node.input) == 2)
    if is_product and (macs := macs_of(node, shapes.get)) is not None:
        return linear + macs
    if operator in _POOLS:
        taps = math.prod(abs(int(size)) for size in attribute(node, "kernel_shape", ()))
        return linear + max(math.prod(shapes[name]) for name in node.output if name) * _POOLS[operator] * taps
    return _UNKNOWN_COST * math.prod(max(1, size) for size in (*sizes, *_magnitudes(node)))


def _magnitudes(node: onnx.NodeProto) -> list[int]:
    """Return a list of squares of the integers in an ONNX node's attributes, factors of a bound on its computing steps.

    These are lengths and windows, in two dimensions.
    """
    numbers = []
    for entry in node.attribute:
        value = helper.get_attribute_value(entry)
        entries = value if isinstance(value, list) else [value]
        numbers += [number * number for number in entries if isinstance(number, int)]
    return numbers


def column_bytes(node: onnx.NodeProto, shapes: Mapping[str, Shape]) -> int:
    """Return the size, in bytes per frame, of a convolution node's im2col columns; 0 for other operators."""
    weights = node.input[CONVOLUTIONS.get(node.op_type, len(node.input)) :]
    if not weights:
        return 0
    frame = node.input[0] if node.op_type == "ConvTranspose" else node.output[0]
    return 4 * math.prod(shapes[weights[0]][1:]) * math.prod(shapes[frame][2:])


MAX_BYTES = 1 << 29
"""Maximum total size, in bytes, of the constants computed during constant folding.

Each constant is copied several times meanwhile.
"""
_LAZY = {"Constant", "DequantizeLinear", "Identity", "QuantizeLinear"}
"""Set of names of ONNX operators on constants that constant folding leaves to the importer unless another constant
needs the result.

Their outputs are computed only where another constant needs them.
"""
_MOVING = with_effect(*MOVES)
"""Set of names of ONNX operators that only change the positions of their first input's values."""


class _UnknownError(Exception):
    """Signal that a constant can't be folded because its size is not known before it is computed."""


class _Folding:
    """Rewrite that folds constants: computes all nodes of an ONNX model that depend only on constants."""

    def __init__(self, at: Rewriter) -> None:
        self._at, self._model = at, at.graph.model
        self._tensors = {**at.graph.initialisers}
        """Dictionary of constant tensors whose values are known, by name."""
        self._lazy: dict[str, onnx.NodeProto] = {}
        """Dictionary of nodes that compute constants which no other constant has needed yet, by the constant's name."""
        self._sizes: set[str] = set()
        """Set of names of tensors that depend only on constants and on sizes of hardware layers' tensors."""
        needed = at.graph.needed
        self._needed = {id(node) for node in needed}
        self._before: set[int] = set()
        """Set of nodes (``id``) that a layer of the hardware depends on; the host computes the others.

        After the last layer the host computes shapes itself.
        """
        if any(node.op_type == "Shape" for node in needed):
            layers = [node for node in needed if not may_run(node) or node.op_type == "QuantizeLinear"]
            self._before = {id(node) for node in at.graph.backwards(name for node in layers for name in node.output)}

    def __call__(self, node: onnx.NodeProto) -> Made:
        """Fold the constants that a node computes; return the nodes in its place, or ``None`` if it stays."""
        if id(node) not in self._needed:
            return None
        try:
            return self._fold(node)
        except _UnknownError:
            return None

    def _fold(self, node: onnx.NodeProto) -> Made:
        """Return the nodes that replace a node, none if it only computes constants; ``None`` if the node stays.

        Raises
        ------
        _UnknownError
            If a constant can't be folded.
        """
        inputs = [name for name in node.input if name]
        if node.op_type == "Reshape" and len(inputs) > 1 and inputs[1] in self._sizes and not self._known(inputs[:1]):
            return self._fold_reshape(node)
        if subgraphs(node) or _is_random(node):
            return None
        others = [name for name in inputs if name not in self._sizes]
        if (node.op_type == "Shape" and id(node) in self._before) or (
            len(others) < len(inputs) and self._known(others)
        ):
            return self._fold_sizes(node)
        if not self._known(inputs) or not (inputs or node.op_type == "Constant"):
            return None
        if node.op_type in _LAZY:
            self._lazy[node.output[0]] = node
            return None
        if node.op_type in _MOVING and (moved := self._move_constant(node)):
            return [moved]
        return self._keep_all(self._evaluated(node, [self._value(name) for name in dict.fromkeys(inputs)]))

    def _known(self, names: Sequence[str]) -> bool:
        """Return whether all tensors called ``names`` are constants."""
        return all(name in self._tensors or name in self._lazy for name in names)

    def _value(self, name: str) -> TensorProto:
        """Return the constant tensor ``name`` as a TensorProto, computed if needed.

        Raises
        ------
        _UnknownError
            If the size is not known before the constant is computed, as for texts.
        """
        if name not in self._tensors:
            node = self._lazy[name]
            operands = [self._value(operand) for operand in dict.fromkeys(node.input) if operand]
            values = self._evaluated(node, operands)
            if not values:
                raise _UnknownError
            self._tensors |= values
        return self._tensors[name]

    def _add_tensor(self, name: str, tensor: TensorProto) -> str:
        """Add an initialiser called ``name`` to the folded model, and return the name."""
        made = copied(tensor)
        made.name = name
        self._tensors[name] = made
        self._at.made.append(made)
        return name

    def _keep_all(self, values: Mapping[str, TensorProto]) -> Made:
        """Add initialisers to the folded model; return an empty list of nodes, or ``None`` if there are none."""
        for name, tensor in values.items():
            self._add_tensor(name, tensor)
        return [] if values else None

    # Constants that ONNX Runtime computes.

    def _evaluated(self, node: onnx.NodeProto, operands: Sequence[TensorProto]) -> dict[str, TensorProto]:
        """Compute a node from constant ``operands``; return a dict of outputs by name, empty if a size is unknown."""
        outputs = [name for name in node.output if name]
        values = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs]
        imports = [entry for entry in self._model.opset_import if entry.domain in DOMAINS]
        graph = helper.make_graph([node], "constant", [], values, operands)
        model = helper.make_model(graph, opset_imports=imports, ir_version=max(self._model.ir_version, 4))
        for value in model.graph.output:
            value.ClearField("type")
        try:
            inferred = shape_inference.infer_shapes(model, data_prop=True).graph.output
        except (onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
            raise self._at.refusal(node, f"can't be computed: {line(error)}") from None
        sizes = [_bytes(value) for value in inferred]
        if len(sizes) != len(outputs) or any(size is None for size in sizes):
            return {}
        self._check(node, operands, inferred, sum(filter(None, sizes)))
        del model.graph.output[:]
        model.graph.output.extend(inferred)
        return {name: numpy_helper.from_array(value, name) for name, value in self._run(node, model, outputs).items()}

    def _check(
        self,
        node: onnx.NodeProto,
        operands: Sequence[TensorProto],
        outputs: Sequence[onnx.ValueInfoProto],
        size: int,
    ) -> None:
        """Refuse to compute a constant that needs too much memory or time, or that divides integers by 0."""
        cost = self._at.cost
        cost["bytes"] += size
        if cost["bytes"] > MAX_BYTES:
            raise self._at.refusal(
                node,
                f"makes {cost['bytes']:,} bytes of constants of the model up to here ({size:,} by itself); "
                f"at most {MAX_BYTES:,} are computed",
            )
        shapes = {tensor.name: tuple(tensor.dims) for tensor in operands}
        shapes |= {value.name: tuple(_dims(value)) for value in outputs}
        steps = work(node, shapes)
        cost["steps"] += steps
        if cost["steps"] > MAX_WORK:
            raise self._at.refusal(
                node,
                f"takes {steps:,} steps, {cost['steps']:,} with the model's constants up to here, and at most "
                f"{MAX_WORK:,} are done on import; put its values in its place",
            )
        if (columns := column_bytes(node, shapes)) > MAX_BYTES:
            raise self._at.refusal(
                node,
                f"needs {columns:,} bytes while it is computed, and import allows at most {MAX_BYTES:,}; "
                "put its values in its place",
            )
        if node.op_type in ("Div", "Mod"):
            values = {tensor.name: tensor for tensor in operands}
            dividend, divisor = (numpy_helper.to_array(values[name]) for name in node.input)
            if divisor.dtype.kind in "iu":
                lowest = np.iinfo(divisor.dtype).min
                wraps = lowest < 0 and (divisor == -1).any() and (dividend == lowest).any()
                if wraps or (divisor == 0).any():
                    raise self._at.refusal(node, "divides integers by 0, or beyond their range")

    def _run(self, node: onnx.NodeProto, model: onnx.ModelProto, outputs: list[str]) -> dict[str, np.ndarray]:
        """Run a model that computes one constant node in ONNX Runtime, and return a dict of its outputs by name."""
        try:
            values = session(model.SerializeToString(), optimised=False).run(outputs, {})
        except Exception as error:  # ONNX Runtime raises many types of errors
            text = " ".join(str(error).split())[:300]
            raise self._at.refusal(node, f"ONNX Runtime can't compute this constant: {text}") from None
        return {name: np.asarray(value) for name, value in zip(outputs, values, strict=True)}

    # Quantised constants that are moved.

    def _move_constant(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        """Return a DequantizeLinear of moved integers in place of ``node``; ``None`` if it moves no such constant."""
        dequantise = self._lazy.get(node.input[0])
        while dequantise is not None and dequantise.op_type == "Identity":
            dequantise = self._lazy.get(dequantise.input[0])
        if dequantise is None or dequantise.op_type != "DequantizeLinear" or attribute(dequantise, "block_size", 0):
            return None
        integers, scale, *zero = (self._value(name) for name in dequantise.input if name)
        element, values = integers.data_type, numpy_helper.to_array(integers)
        if element in NARROW:
            values = values.astype(NARROW[element].dtype)
        labels = [numpy_helper.to_array(label) for label in (scale, *zero)]
        axis = int(attribute(dequantise, "axis", 1))
        if labels[0].size > 1:
            if not -values.ndim <= axis < values.ndim or values.shape[axis] != labels[0].size:
                return None
            broadcast_shape = [-1 if dimension == axis % values.ndim else 1 for dimension in range(values.ndim)]
            indices = np.broadcast_to(np.arange(labels[0].size).reshape(broadcast_shape), values.shape)
            along = _axis(self._apply_move(node, indices.astype(np.int64)))
            if along is None:
                return None
            axis, order = along
            labels = [label[order] if label.size > 1 else label for label in labels]
        moved = self._apply_move(node, values)
        output = node.output[0]
        whole = numpy_helper.from_array(moved)
        if element in NARROW:
            dtype = helper.tensor_dtype_to_np_dtype(element)
            whole = numpy_helper.from_array(moved.astype(dtype))
        names = [self._add_tensor(self._at.unused(f"{output}_integers"), whole)]
        for what, label, original in zip(("scale", "zero"), labels, (scale, *zero), strict=False):
            tensor = numpy_helper.from_array(np.asarray(label))
            tensor.data_type = original.data_type
            names.append(self._add_tensor(self._at.unused(f"{output}_{what}"), tensor))
        moved_node = copied(dequantise)
        del moved_node.input[:], moved_node.output[:]
        moved_node.input.extend(names)
        moved_node.output.append(output)
        others = [entry for entry in moved_node.attribute if entry.name != "axis"]
        del moved_node.attribute[:]
        moved_node.attribute.extend([*others, *([helper.make_attribute("axis", axis)] if labels[0].size > 1 else [])])
        self._lazy[output] = moved_node
        return moved_node

    def _apply_move(self, node: onnx.NodeProto, values: np.ndarray) -> np.ndarray:
        """Return the output array of a node that only moves values, applied to ``values`` as its first input."""
        if node.op_type == "Dropout":
            return values
        single = copied(node)
        single.input[0] = "values"
        del single.output[1:]
        operands = [numpy_helper.from_array(values, "values")]
        operands += [self._value(name) for name in dict.fromkeys(node.input[1:]) if name]
        tensors = self._evaluated(single, operands)
        if not tensors:
            raise self._at.refusal(node, "computes a constant whose size is not known before it runs")
        return numpy_helper.to_array(tensors[node.output[0]])

    # Sizes of feature maps.

    def _fold_sizes(self, node: onnx.NodeProto) -> Made:
        """Add constants that replace a node of known sizes; return ``[]``, or ``None`` if sizes depend on the batch."""
        self._sizes |= {*node.output}
        sizes = {name: self._at.graph.shapes.sizes(name) for name in node.output if name}
        known = {name: array for name, array in sizes.items() if array is not None and not (array == BATCH).any()}
        if len(known) < len(sizes):
            return None
        return self._keep_all({name: numpy_helper.from_array(array) for name, array in known.items()})

    def _fold_reshape(self, node: onnx.NodeProto) -> Made:
        """Return, in a list, a Reshape with a constant shape in place of one that depends on the batch, or ``None``."""
        shape, graph = self._at.graph.shapes.sizes(node.input[1]), self._at.graph
        if shape is None or shape.ndim != 1 or (shape == BATCH).sum() != 1:
            return None
        (position,) = np.flatnonzero(shape == BATCH)
        if position and (shape == -1).any():
            return None
        first_sizes = tuple((graph.shapes.for_batch(n).tensor(node.input[0]).shape or (0,))[0] for n in BATCHES)
        # 0 copies the first size, which can be a multiple of the batch.
        copies = not position and not attribute(node, "allowzero", 0)
        copies &= first_sizes in (BATCHES, (0, 0)) or bool((shape == -1).any())
        shape[position] = 0 if copies else -1
        if (shape == -1).sum() > 1:
            return None
        reshape = copied(node)
        reshape.input[1] = self._add_tensor(self._at.unused(f"{node.output[0]}_shape"), numpy_helper.from_array(shape))
        return [reshape]


def fold(graph: GraphIndex, where: str) -> GraphIndex:
    """Return a `GraphIndex`: an ONNX model whose tensors that depend only on constants are initialisers.

    A model without such tensors is returned unchanged. ``where`` starts error messages.

    Raises
    ------
    ModelError
        If constants need more than `MAX_BYTES` together, or ONNX Runtime can't compute one of them.
    """
    folded = Rewriter(graph, where).apply(RULES)
    return graph if folded is graph else folded.with_nodes(folded.needed)


RULES = (Rewrite("constants", "compute what depends on constants only, and move integers of constants", _Folding),)
"""Tuple of rewrite rules that turn tensors which depend only on constants into initialisers."""


def why_unfolded(node: onnx.NodeProto) -> str:
    """Return a text that says why constant folding leaves this node, although its inputs are constant."""
    if node.domain not in DOMAINS:
        return f"makes no constant: nothing is known of operators of the domain {node.domain!r}"
    if _is_random(node):
        return "makes no constant: it gives other values each time; put the values that are meant in its place"
    if subgraphs(node):
        return "makes no constant: what holds graphs is not computed on import; put its values in its place"
    return "makes no constant: the size of what it gives is known only when it is computed; put its values in its place"


def _is_random(node: onnx.NodeProto) -> bool:
    """Return whether an ONNX node's output is random."""
    trains = node.op_type == "Dropout" and len(node.input) > 2 and bool(node.input[2])
    return trains or traits_of(node).effect is Effect.RANDOM


def _dims(value: onnx.ValueInfoProto) -> list[int]:
    """Return a list of the sizes of a tensor's dimensions, from its declared ONNX type."""
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


def _bytes(value: onnx.ValueInfoProto) -> int | None:
    """Return the size of a numeric tensor, in bytes, from its declared type; ``None`` if shape or type is not known."""
    tensor = value.type.tensor_type
    known = tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim)
    if not known or tensor.elem_type in (TensorProto.UNDEFINED, TensorProto.STRING):
        return None
    return math.prod(_dims(value)) * helper.tensor_dtype_to_np_dtype(tensor.elem_type).itemsize


def _axis(indices: np.ndarray) -> tuple[int, np.ndarray] | None:
    """Return the only axis along which ``indices`` differ, and the indices along it; ``None`` if several or empty."""
    for axis in range(indices.ndim):
        entries = np.moveaxis(indices, axis, 0).reshape(indices.shape[axis], -1)
        if entries.size and (entries == entries[:, :1]).all():
            return axis, entries[:, 0]
    return None
