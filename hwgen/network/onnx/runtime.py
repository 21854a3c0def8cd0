"""ONNX Runtime sessions on one thread, for the small models that the importer runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnxruntime


def session(
    model: str | bytes, settings: Mapping[str, str] | None = None, *, optimised: bool = True
) -> onnxruntime.InferenceSession:
    """Return an ONNX Runtime session of a small model, on one thread and without log messages.

    Parameters
    ----------
    model : str or bytes
        Path of the file, or its contents.
    settings : mapping, optional
        Entries of the session's configuration.
    optimised : bool
        Whether ONNX Runtime can rewrite the graph.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for entry in (settings or {}).items():
        options.add_session_config_entry(*entry)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def reason(error: Exception) -> str:
    """Return the message of an ONNX Runtime error, without ONNX Runtime's own file and function names."""
    text = " ".join(str(error).split())
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    text = re.sub(r"^Load model from .*? failed: ?", "", text)
    text = re.sub(r"^Exception during initialization: ", "", text)
    text = re.sub(r"^/\S+:\d+ .*?\)(?: \[with .*?\])? (?=[A-Z(])", "", text)
    text = re.sub(r"^\(.*?\) was false\. (?=\S)", "", text)
    return text[:300] or type(error).__name__
