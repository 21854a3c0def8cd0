"""Import of a quantised ONNX model as a network of integer layers.

docs/explanation/architecture.md says which file of this folder does what, and their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import onnx

from hwgen.errors import ConfigError, ModelError
from hwgen.network.graph import Network
from hwgen.network.onnx import adaptive_pools, redundant_nodes
from hwgen.network.onnx.check import check
from hwgen.network.onnx.float_operands import OPERANDS, WEIGHTS
from hwgen.network.onnx.fold import fold
from hwgen.network.onnx.head import without_head
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.onnx.infer import with_output_shapes
from hwgen.network.onnx.kernels import Kernels
from hwgen.network.onnx.qonnx import is_qonnx, rewritten, stand_in
from hwgen.network.onnx.redundant_nodes import without_constant_outputs
from hwgen.network.onnx.rest import auto_part, walked, whole_network
from hwgen.network.onnx.rewrite import Rewriter
from hwgen.network.onnx.walk import FoldedModel
from hwgen.network.options import AS_IT_IS, ModelOptions


def to_network(
    model: onnx.ModelProto, name: str, where: str | None = None, options: ModelOptions = AS_IT_IS
) -> Network:
    """Import the whole quantised ONNX ``model`` as a network of integer layers called ``name``.

    Parameters
    ----------
    where : str, optional
        Path that starts error messages; ``name`` by default.
    options : ModelOptions
        Options for reading the model.

    Raises
    ------
    ModelError
        If the model is not valid, or a part of it can't be built; several such parts are an ObstaclesError.
    """
    where = where or name
    with checked(model, where, options) as folded:
        walk, joins = walked(folded, where)
        if walk.ledger.obstacles:
            walk.ledger.check(auto_part(walk)[0])
        return whole_network(walk, joins, name)


@contextmanager
def checked(model: onnx.ModelProto, where: str, options: ModelOptions = AS_IT_IS) -> Iterator[FoldedModel]:
    """Check an ONNX model, fold its constants, and yield the result (context); ConfigErrors become ModelErrors.

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
    graph = fold(GraphIndex(model), where)
    if qonnx:
        graph = fold(rewritten(graph, where), where)
    try:
        with np.errstate(all="ignore"):
            graph, constant_outputs = without_constant_outputs(graph)
            rewriter = Rewriter(graph, where)
            # A new quantiser of an operand can equal one that the model has.
            for rules in (
                redundant_nodes.RULES,
                adaptive_pools.RULES,
                () if qonnx else WEIGHTS,
                OPERANDS,
                redundant_nodes.RULES,
            ):
                rewriter.apply(rules)
            graph, head, removed = without_head(rewriter.graph, where)
            removed |= {name: ("folded", other.reason) for name, other in rewriter.replaced.items()}
            yield FoldedModel(
                graph=graph,
                head=head,
                removed=removed,
                replaced={name: other.tensor for name, other in rewriter.replaced.items()},
                float_tensors=rewriter.float_tensors,
                optimised=not qonnx,
                kernels=kernels,
                constant_outputs=constant_outputs,
                options=options,
            )
    except ConfigError as error:
        raise ModelError(f"{where}: {error}") from None
