"""Functions that an ONNX model defines itself: their nodes replace the calls, as ONNX Runtime reads the model."""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

import onnx
import onnx.inliner
from onnx import TensorProto, defs

from hwgen.errors import ModelError
from hwgen.network.onnx.subgraphs import with_inner

DEFAULT_DOMAINS = {"", "ai.onnx"}
"""Names of the domain of ONNX's own operators, in which ONNX Runtime reads no functions."""
_RUNTIME_DOMAIN = "com.microsoft"
"""Domain of ONNX Runtime's own operators, which precede functions of the same name."""
_Name = tuple[str, str]
"""Type of a function's domain and name. Several overloads can share both."""


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with the nodes of its functions in place of the calls; ``model`` is used up.

    The inliner of the onnx package ignores default values of a function's attributes. They are therefore added to the
    calls, and functions are inlined one by one, each before the functions that it calls. Initialisers stay outside.

    Raises
    ------
    ModelError
        If the functions call each other in a cycle or can't be inlined, or ONNX Runtime can have an operator of the
        same name.
    """
    _drop_built_in(model)
    if not model.functions:
        return model
    initialisers = [*model.graph.initializer]
    del model.graph.initializer[:]
    model.graph.initializer.extend(TensorProto(name=tensor.name) for tensor in initialisers)
    try:
        for name in _callers_first(model.functions):
            _add_defaults(model, name)
            model = onnx.inliner.inline_selected_functions(model, [name])
    except CycleError as error:
        names = " -> ".join(name for _, name in error.args[1])
        raise ModelError(f"its functions call each other in a cycle: {names}") from None
    except Exception as error:  # the inliner raises many types of errors
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"its functions can't be put in place of their calls ({reason})") from None
    del model.functions[:], model.graph.initializer[:]
    model.graph.initializer.extend(initialisers)
    return model


def _drop_built_in(model: onnx.ModelProto) -> None:
    """Remove the functions in whose place ONNX Runtime computes an operator of its own."""
    own = []
    for function in model.functions:
        if function.domain == _RUNTIME_DOMAIN:
            raise ModelError(
                f"its function {function.name!r} has the domain {_RUNTIME_DOMAIN}, whose operators ONNX Runtime "
                "prefers to functions; give it a domain of its own"
            )
        if function.domain not in DEFAULT_DOMAINS and not defs.has(function.name, function.domain):
            own.append(function)
    if len(own) < len(model.functions):
        del model.functions[:]
        model.functions.extend(own)


def _callers_first(functions: Iterable[onnx.FunctionProto]) -> list[_Name]:
    """Return the names of functions, each in front of the names of the functions that it calls."""
    callees: dict[_Name, set[_Name]] = {_name(function): set() for function in functions}
    for function in functions:
        called = {(node.domain, node.op_type) for node in with_inner(function.node)}
        callees[_name(function)] |= called & callees.keys()
    return [*TopologicalSorter(callees).static_order()][::-1]


def _add_defaults(model: onnx.ModelProto, name: _Name) -> None:
    """Add the default values of a function's attributes to the calls in the model's graph that lack them."""
    defaults = {function.overload: function.attribute_proto for function in model.functions if _name(function) == name}
    for node in with_inner(model.graph.node):
        if (node.domain, node.op_type) == name:
            present = {entry.name for entry in node.attribute}
            missing = [entry for entry in defaults.get(node.overload, ()) if entry.name not in present]
            node.attribute.extend(missing)


def _name(function: onnx.FunctionProto) -> _Name:
    """Return the domain and the name of a function."""
    return function.domain, function.name
