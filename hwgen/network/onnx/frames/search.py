"""Search for ONNX nodes on the host that mix the frames of a batch.

The host computes any number of frames at a time, and every frame has a result of its own. A node that reduces, selects
or reorders values along the axis of the frames would make a frame's result depend on other frames. The axis can be
another one than the first, after a Transpose, and it can be a part of a longer dimension, after a Reshape. Therefore
the axis is followed from the hardware's tensors through the nodes, by a rule for each operator (`RULES`). A node whose
operator has no rule is refused.

A model can also compute with the number of frames itself, for example ``Shape -> Gather(0) -> Div``. Tensors that only
depend on this number are evaluated for several batches. A tensor mixes frames if its values depend on the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

import numpy as np
import onnx
from onnx import numpy_helper

from hwgen.network.onnx.file import DOMAINS, attribute, constant_array, data_inputs, named, takes, with_inner
from hwgen.network.onnx.frames import arithmetic, moving
from hwgen.network.onnx.frames.operands import (
    HELP,
    FrameOperands,
    Frames,
    MixedError,
    OneFrameError,
    Position,
    Rule,
    Special,
    Tensors,
)
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.onnx.operator_traits import Effect, traits_of

RULES: Mapping[str, Rule] = {**arithmetic.RULES, **moving.RULES}
"""Dictionary of rules for the axis of a batch's frames in a node's outputs, by operator of ONNX or com.microsoft."""


RAGGED: Mapping[str, Special] = {
    "NonMaxSuppression": Special.ADDRESSES,
    "NonZero": Special.RAGGED,
    "Unique": Special.RAGGED,
}
"""Mapping by ONNX operator whose output size depends on its inputs' values: kind of output (`Special`)."""


def after_ragged(operands: FrameOperands, kinds: Sequence[Special | None]) -> Position:
    """Return the frames' place in an output, or its `Special` kind, if an input's rows per frame depend on values.

    ``kinds``: contents of the node's inputs; ``None`` for inputs without such rows.
    """
    operator = operands.node.op_type
    if operator in ("Cast", "Identity"):
        return kinds[0] or Special.RAGGED
    if operator == "Shape":
        return Special.SIZES
    if operator == "ConstantOfShape" and kinds[0] is Special.SIZES:
        return Special.ALIKE
    if operator == "ScatterND" and [*kinds] == [None, Special.ADDRESSES, Special.ALIKE]:
        if operands.frames(0) is None:
            operands.check_alike(0, 0, Frames(0), whole=True)
        elif operands.frames(0) != Frames(0):
            return Special.RAGGED
        return Frames(0)
    return Special.RAGGED


def is_after_ragged(graph: GraphIndex, output: str) -> bool:
    """Return whether an output depends on an operator with a data-dependent output size, such as NonMaxSuppression."""
    nodes = with_inner(graph.backwards([output]))
    return any(node.op_type in RAGGED or node.op_type == "Compress" for node in nodes)


def declares_rows(model: onnx.ModelProto, output: str) -> bool:
    """Return whether a model declares an output as one row of fixed sizes for each frame of its inputs."""
    declared = next(value for value in model.graph.output if value.name == output).type.tensor_type.shape.dim
    batch = [value.type.tensor_type.shape.dim[0] for value in data_inputs(model) if value.type.tensor_type.shape.dim]
    sizes = {(dim.dim_value, dim.dim_param) for dim in (*declared[:1], *batch)}
    return bool(declared) and len(sizes) == 1 and sizes != {(0, "")} and all(dim.dim_value for dim in declared[1:])


class FrameSearch:
    """Search for the frames' axis in the tensors of an ONNX graph, and for nodes that mix frames.

    Parameters
    ----------
    graph : GraphIndex
        Graph of the model.
    constants : mapping
        Values of constants, by name.
    batch : int or None
        Fixed number of frames per batch; ``None`` if the model takes any number. A single frame can't be mixed.
    """

    def __init__(self, graph: GraphIndex, constants: Mapping[str, np.ndarray], batch: int | None) -> None:
        self.batch = batch
        self.tensors = Tensors(graph, constants, batch)

    @property
    def frames(self) -> dict[str, Frames]:
        """Dictionary by tensor name: place of the batch's frames (`Frames`) in each tensor that holds them."""
        positions = self.tensors.frames.items()
        return {name: position for name, position in positions if isinstance(position, Frames)}

    def mixing(
        self, sources: Mapping[str, Frames], nodes: Iterable[onnx.NodeProto]
    ) -> list[tuple[onnx.NodeProto, str]]:
        """Return a list of the nodes that mix the frames of a batch, or may do so, each with the reason.

        Parameters
        ----------
        sources : mapping
            Position of the frames in tensors, by name.
        nodes : iterable of NodeProto
            Nodes after them, in topological order.
        """
        if self.batch == 1:
            return []
        frames = self.tensors.frames
        frames |= sources
        mixing = []
        for node in nodes:
            try:
                self._note_outputs(node)
            except MixedError as error:
                mixing.append((node, str(error)))
                frames |= dict.fromkeys(filter(None, node.output), Special.MIXED)
        return mixing

    def _note_outputs(self, node: onnx.NodeProto) -> None:
        """Note the frames' axis in a node's outputs; compute outputs that do not depend on the frames.

        Raises
        ------
        MixedError
            If the node mixes frames, or is not known not to.
        """
        if not any(name in self.tensors.frames for name in takes(node)):
            self._evaluate(node)
            return
        position = self._frames_in_outputs(node)
        if position is not None:
            positions = [position] * len(node.output) if isinstance(position, Frames | Special) else position
            outputs = zip(node.output, positions, strict=False)
            self.tensors.frames |= {name: here for name, here in outputs if name and here is not None}

    def of(self, tensor: str) -> Frames | Special | None:
        """Return the place of the batch's frames in a tensor; ``None`` if it does not depend on them."""
        return Frames(0) if self.batch == 1 else self.tensors.frames.get(tensor)

    def depends_on_count(self, tensor: str) -> bool:
        """Return whether a tensor without frames depends, or may depend, on the number of frames."""
        return self.tensors.depends_on_count(tensor)

    def _evaluate(self, node: onnx.NodeProto) -> None:
        """Note the values of the outputs of a node that does not depend on the frames."""
        tensors, names = self.tensors, takes(node)
        if node.op_type == "Constant" and (value := constant_array(node)) is not None:
            tensors.note(node.output[0], [value] * len(tensors.counts))
        elif traits_of(node).effect is not Effect.RANDOM:
            tensors.evaluate(node)
        known = (name for name in node.output if tensors.of(name) is not None)
        if next(known, None) is None and (
            traits_of(node).effect is Effect.RANDOM or any(map(tensors.depends_on_count, names))
        ):
            tensors.unknown |= {*filter(None, node.output)}

    def _frames_in_outputs(self, node: onnx.NodeProto) -> Position | Sequence[Position | None] | None:
        """Return the axis of a batch's frames in a node's outputs (one `Position`, or one per output), or ``None``.

        It is ``None`` if the outputs depend only on the number of frames, as Shape's do.

        Raises
        ------
        MixedError
            If the node mixes frames, or is not known not to.
        """
        operands = FrameOperands(node, self.tensors)
        special = {here for name in takes(node) if isinstance(here := self.tensors.frames.get(name), Special)}
        for contents in (Special.MIXED, Special.ONE_FRAME):
            if contents in special:
                return contents
        if node.op_type in RAGGED and node.domain in DOMAINS:
            return RAGGED[node.op_type]
        if special:
            kinds = [self.tensors.frames.get(name) for name in node.input]
            return after_ragged(operands, [contents if isinstance(contents, Special) else None for contents in kinds])
        if node.op_type in ("Shape", "Size"):
            self._note_size(node)
            return None
        if node.op_type == "If":
            return self._branch(operands)
        rule = RULES.get(node.op_type) if node.domain in DOMAINS else None
        if rule is None:
            raise MixedError(f"is not known to compute each frame of a batch by itself; use other operators{HELP}")
        self._check_rank(node)
        try:
            return rule(operands)
        except OneFrameError:
            if self.batch is not None:
                raise MixedError(f"fits only one frame, not a batch of {self.batch}; reshape each{HELP}") from None
            return Special.ONE_FRAME

    def _branch(self, operands: FrameOperands) -> list[Position | None]:
        """Follow the branch that an If always takes, and return a list of axes of the batch's frames in its outputs.

        Raises
        ------
        MixedError
            If the branch depends on the frames or on their number, or mixes frames.
        """
        (chosen,) = operands.constant("", 0) or [False]
        graph = attribute(operands.node, "then_branch" if chosen else "else_branch", None)
        for tensor in graph.initializer:
            self.tensors.note(tensor.name, [numpy_helper.to_array(tensor)] * len(operands.counts))
        for node in graph.node:
            try:
                self._note_outputs(node)
            except MixedError as error:
                raise MixedError(f"its {named(node)} {error}") from None
        return [self.tensors.frames.get(value.name) for value in graph.output]

    def _check_rank(self, node: onnx.NodeProto) -> None:
        """Refuse a node after a Squeeze without axes that works along an axis counted from the first dimension."""
        if not any(self.frames[name].vanishes for name in takes(node) if name in self.frames):
            return
        if not arithmetic.is_elementwise(node.op_type) and attribute(node, "axis", 0) != -1:
            raise MixedError(
                f"takes the output of a Squeeze without axes, whose rank depends on the number of frames; "
                f"give the Squeeze its axes{HELP}"
            )

    def _note_size(self, node: onnx.NodeProto) -> None:
        """Note the output of a Shape or Size node for each batch size, if all other sizes are known."""
        name, values = node.input[0], self.tensors
        position, shape = self.frames[name], self.tensors.shape(name)
        if shape is None or position.vanishes or 0 in (*shape[: position.axis], *shape[position.axis + 1 :]):
            self.tensors.unknown.add(node.output[0])
            return
        before, after = shape[: position.axis], shape[position.axis + 1 :]
        shapes = [np.array([*before, position.size(count), *after], np.int64) for count in values.counts]
        if node.op_type == "Size":
            values.note(node.output[0], [np.array(prod(sizes.tolist())) for sizes in shapes])
        else:
            span = slice(attribute(node, "start", 0), attribute(node, "end", None))
            values.note(node.output[0], [sizes[span] for sizes in shapes])
