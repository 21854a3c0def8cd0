"""Export of PyTorch modules to float ONNX models. PyTorch is imported only here, and hwgen does not require it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import onnx

from hwgen import installing, processes
from hwgen.errors import ModelError, ToolError
from hwgen.network.onnx import file


def arrays(values: Any) -> Any:
    """Convert PyTorch tensors, also in a sequence or mapping, to NumPy arrays; return other values unchanged."""
    if isinstance(values, Mapping):
        return {name: arrays(value) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [arrays(value) for value in values]
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values


def exported(module: Any, example: Any, where: str) -> onnx.ModelProto:
    """Export a PyTorch module with PyTorch's own exporter, and return it as a float ONNX model.

    Parameters
    ----------
    module : torch.nn.Module
        Network, which is exported in evaluation mode.
    example : tensor, or tuple of tensor
        Inputs of one call.
    where : str
        Begin of error messages.

    Raises
    ------
    ToolError
        If torch or onnxscript, which its exporter needs, is not installed.
    ModelError
        If PyTorch can't export the module.
    """
    try:
        torch = import_module("torch")
        import_module("onnxscript")  # PyTorch would report its absence in words of its own
    except ImportError as error:
        need = f"{installing.command('torch')} onnxscript"
        raise ToolError(f"from_torch needs {error.name}, which is not installed: {need}") from None
    given = tuple(example) if isinstance(example, list | tuple) else (example,)
    with processes.workplace() as folder, _evaluating(module), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = folder / "exported.onnx"
        try:
            torch.onnx.export(module, given, str(path), dynamo=True, external_data=True, verbose=False)
        except OSError:  # the cause is the folder, not the module
            raise
        except Exception as error:  # PyTorch and the module itself raise exceptions of many classes
            text = " ".join(str(error).split())[:300]
            raise ModelError(f"{where}: PyTorch could not export it: {text}") from None
        return file.read(path)


@contextmanager
def _evaluating(module: Any) -> Iterator[None]:
    """Context manager that puts a PyTorch module into evaluation mode, and restores all modes afterwards."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True
