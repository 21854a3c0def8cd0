"""Removal of the outputs of an ONNX model that no input influences, such as a scale beside the values with it.

Exporters of quantised tensors give such outputs: the scale, the zero point and the number of bits of another output.
"""

from __future__ import annotations

import onnx

from hwgen.network.onnx.file import copied, data_inputs, takes

__all__ = ["without_constant_outputs"]

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
