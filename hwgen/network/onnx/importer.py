"""Import of a quantised ONNX model as a network of integer layers.

docs/explanation/architecture.md says which file of this folder does what, and their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import onnx

from hwgen.errors import ConfigError, ModelError
from hwgen.network.graph import Network
from hwgen.network.onnx.check import check
from hwgen.network.onnx.file import copied, data_inputs, takes
from hwgen.network.onnx.float_weights import with_quantised_weights
from hwgen.network.onnx.fold import fold
from hwgen.network.onnx.head import without_head
from hwgen.network.onnx.infer import with_output_shapes
from hwgen.network.onnx.kernels import Kernels
from hwgen.network.onnx.moved_floats import with_quantised_operands
from hwgen.network.onnx.qonnx import is_qonnx, rewritten, stand_in
from hwgen.network.onnx.redundant_nodes import Simplified, without_redundant
from hwgen.network.onnx.rest import auto_part, walked, whole_network
from hwgen.network.onnx.walk import FoldedModel
from hwgen.network.options import AS_IT_IS, ModelOptions

_RANDOM = ("Bernoulli", "Multinomial", "Random")
"""First letters of the ONNX operators whose outputs are no constants, although they may read none but constants."""


def without_constant_outputs(model: onnx.ModelProto) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """Return an ONNX model without its constant outputs, and their names.

    A model whose outputs are all constant is returned as it is.
    """
    variable = {value.name for value in data_inputs(model)}
    for node in model.graph.node:
        if node.op_type.startswith(_RANDOM) or not variable.isdisjoint(takes(node)):
            variable.update(node.output)
    kept = [value for value in model.graph.output if value.name in variable]
    names = tuple(value.name for value in model.graph.output if value.name not in variable)
    if not names or not kept:
        return model, ()
    rest = copied(model)
    del rest.graph.output[:]
    rest.graph.output.extend(kept)
    return rest, names


def to_network(
    model: onnx.ModelProto, name: str, where: str | None = None, options: ModelOptions = AS_IT_IS
) -> Network:
    """Import the quantised ONNX ``model`` as a network of integer layers called ``name``.

    Parameters
    ----------
    where : str, optional
        Path that starts error messages; ``name`` by default.
    options : ModelOptions
        Options with which the model is read.

    Raises
    ------
    ModelError
        If the model is not valid, or a part of it can't be built; several such parts are an ObstaclesError.
    """
    where = where or name
    with checked(model, where, options) as folded:
        walk, joins = walked(folded, where)
        if walk.ledger.obstacles:
            walk.ledger.check(part=auto_part(walk)[0] is not None)
        return whole_network(walk, joins, name)


@contextmanager
def checked(model: onnx.ModelProto, where: str, options: ModelOptions = AS_IT_IS) -> Iterator[FoldedModel]:
    """Check an ONNX model, fold its constants, and yield the result; turn ConfigErrors in the context into ModelErrors.

    The result is without redundant nodes. Errors start with ``where``. Absurd scales can overflow in NumPy; the checks
    that matter refuse them.
    """
    model = with_output_shapes(model)
    check(stand_in(model) if is_qonnx(model) else model, where)
    if model.graph.sparse_initializer:
        initialiser = model.graph.sparse_initializer[0].values.name
        raise ModelError(f"{where}: initialiser {initialiser!r} is sparse; only dense ones are read")
    qonnx = is_qonnx(model)
    kernels = Kernels(model, is_optimised=not qonnx)
    model = fold(model, where)
    if qonnx:
        model = fold(rewritten(model, where), where)
    try:
        with np.errstate(all="ignore"):
            model, constant_outputs = without_constant_outputs(model)
            simplified = without_redundant(model)
            if not qonnx:
                simplified = replace(simplified, model=with_quantised_weights(simplified.model))
            early, operands = with_quantised_operands(simplified.model, simplified.float_tensors)
            # A new quantiser of an operand can equal one that the model has.
            merged = without_redundant(early)
            simplified = Simplified(
                merged.model, simplified.replaced | merged.replaced, simplified.float_tensors | merged.float_tensors
            )
            rest, head, removed = without_head(merged.model, where)
            removed |= {name: ("folded", other.reason) for name, other in simplified.replaced.items()}
            yield FoldedModel(
                model=rest,
                head=head,
                removed=removed,
                replaced={name: other.tensor for name, other in simplified.replaced.items()},
                float_tensors=simplified.float_tensors | operands,
                optimised=not qonnx,
                kernels=kernels,
                constant_outputs=constant_outputs,
                options=options,
            )
    except ConfigError as error:
        raise ModelError(f"{where}: {error}") from None
