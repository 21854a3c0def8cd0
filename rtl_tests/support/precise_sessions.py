"""Sessions of ONNX Runtime, the referee of many tests, that do not saturate on x86 processors without VNNI."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from referees import saturates

PRECISE = "session.x64quantprecision"
_Session = onnxruntime.InferenceSession


class PreciseSession(_Session):
    """A session in ONNX Runtime's precise mode; in its usual mode if it can't load the model in the other one."""

    def __init__(self, model: Any, sess_options: Any = None, *args: Any, **kwargs: Any) -> None:
        options = onnxruntime.SessionOptions() if sess_options is None else sess_options
        for loaded in (lambda: model, lambda: _with_own_constants(model)):
            _state(options, "1")
            with contextlib.suppress(Exception):  # ONNX Runtime raises many types of errors
                super().__init__(loaded(), options, *args, **kwargs)
                return
        _state(options, "0")
        super().__init__(model, options, *args, **kwargs)


def _state(options: onnxruntime.SessionOptions, mode: str) -> None:
    """State the mode in options, without ONNX Runtime's warning if they state it already."""
    onnxruntime.set_default_logger_severity(3)
    options.add_session_config_entry(PRECISE, mode)
    onnxruntime.set_default_logger_severity(2)


def _with_own_constants(model: bytes | str | Path) -> bytes:
    """Return a model in which each node has its own copy of its constants, and of the nodes that dequantise them.

    The precise mode can't load weights or zero points that several nodes share.
    """
    copied = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)
    graph = copied.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    dequantised = {
        node.output[0]: node
        for node in graph.node
        if node.op_type == "DequantizeLinear" and set(node.input) <= set(constants)
    }
    nodes = [node for node in graph.node if node.output[0] not in dequantised]
    del graph.initializer[:]

    def own(name: str, reader: str) -> str:
        """Add a reader's copy of a constant, if a name is a constant's, and return the copy's name."""
        if name not in constants:
            return name
        tensor = graph.initializer.add()
        tensor.CopyFrom(constants[name])
        tensor.name = f"{name} of {reader}"
        return tensor.name

    written = []
    for count, node in enumerate(nodes):
        for index, name in enumerate(node.input):
            reader = f"{count}.{index}"
            if name in dequantised:
                copy = onnx.NodeProto()
                copy.CopyFrom(dequantised[name])
                copy.ClearField("name")
                copy.input[:] = [own(operand, f"{reader}.{place}") for place, operand in enumerate(copy.input)]
                node.input[index] = copy.output[0] = f"{name} of {reader}"
                written.append(copy)
            else:
                node.input[index] = own(name, reader)
        written.append(node)
    del graph.node[:]
    graph.node.extend(written)
    return copied.SerializeToString()


def install() -> None:
    """Let all sessions that tests of this process make be precise, if the processor's sums saturate otherwise."""
    if saturates():  # asked first, so that it keeps the processor's answer
        onnxruntime.InferenceSession = PreciseSession
