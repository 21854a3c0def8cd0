"""External data: tensors that an ONNX file keeps in other files beside it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from math import prod
from pathlib import Path

import onnx
from onnx import TensorProto, external_data_helper, helper

from hwgen.errors import ModelError


def fetch(model: onnx.ModelProto, path: Path) -> None:
    """Load the external data of ``model``, which was read from the file ``path``.

    Raises
    ------
    ModelError
        If data are missing, cut short, outside the model's folder, or described wrongly.
    """
    for tensor in _tensors(model):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        where = f"{path}: external data of initialiser {tensor.name!r}"
        _check(tensor, path.parent, where)
        try:
            external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
        except (OSError, ValueError, TypeError, onnx.checker.ValidationError) as error:
            reason = " ".join(str(getattr(error, "strerror", None) or error).split())
            raise ModelError(f"{where} can't be read: {reason[:300]}") from None
        tensor.data_location = TensorProto.DEFAULT
        del tensor.external_data[:]


def _tensors(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """Yield all tensors of an ONNX model that can have external data: initialisers, and values of Constant nodes.

    ONNX allows external data nowhere else that hwgen reads.
    """
    yield from model.graph.initializer
    for node in model.graph.node:
        yield from (entry.t for entry in node.attribute if entry.HasField("t"))


def _check(tensor: TensorProto, folder: Path, where: str) -> None:
    """Refuse a tensor whose external data can't be read; add the data's length where the model states none."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if not location:
        raise ModelError(f"{where}: no file is named (location)")
    file = folder / location
    try:
        # Unlike Path.resolve, realpath takes a loop of symbolic links; stat then says what is wrong with it.
        if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder)):
            raise ModelError(f"{where} must lie in the model's folder, not outside, in {location}")
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ModelError(f"{where}: {location} is not a regular file")
        size = status.st_size
    except FileNotFoundError:
        raise ModelError(f"{where} are missing: there is no file {location} beside the model") from None
    except (OSError, ValueError) as error:  # e.g. a name that is too long, or a loop of symbolic links
        raise ModelError(f"{where} can't be read: {getattr(error, 'strerror', None) or error}") from None
    begin, needed = _number(entries, "offset", where) or 0, _bytes(tensor, where)
    length = _number(entries, "length", where)
    if length is None:
        tensor.external_data.add(key="length", value=str(needed))
    elif length != needed:
        raise ModelError(f"{where}: length must be {needed:,} bytes, for shape {list(tensor.dims)}, not {length:,}")
    if begin + needed > size:
        raise ModelError(f"{where} are cut short: {location} has {size:,} bytes, but {begin + needed:,} are needed")


def _number(entries: dict[str, str], key: str, where: str) -> int | None:
    """Return an integer among the entries of a tensor's external data; ``None`` if the entry is missing."""
    text = entries.get(key)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ModelError(f"{where}: {key} must be a number of bytes, not {text[:40]!r}")
    return int(text)


def _bytes(tensor: TensorProto, where: str) -> int:
    """Return the size of a tensor's values, in bytes."""
    if any(size < 0 for size in tensor.dims):
        raise ModelError(f"{where}: shape {list(tensor.dims)} has a negative dimension")
    try:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except KeyError:
        raise ModelError(f"{where}: there is no type of elements {tensor.data_type}") from None
    if dtype.kind not in "biuf":
        raise ModelError(f"{where}: elements must be plain numbers, not {dtype}")
    return prod(tensor.dims) * dtype.itemsize
