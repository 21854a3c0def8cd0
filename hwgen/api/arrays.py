"""Arrays that models take and give, and the files that hold them."""

from __future__ import annotations

import math
import os
import stat
import warnings
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from hwgen.errors import InputError

__all__ = ["Inputs", "Values", "listed", "read_archive", "read_array", "read_inputs"]

Values = np.ndarray | dict[str, np.ndarray]
"""Outputs of a model: an array, or a dict of arrays by output name where the model has several outputs."""
Inputs = np.ndarray | Sequence[np.ndarray] | Mapping[str, np.ndarray]
"""Inputs of a model: an array, or, where the model has several inputs, arrays in their order or by input name."""


def read_inputs(paths: Sequence[str | Path], what: str = "input") -> Inputs:
    """The frames in some files: a ``.npy`` array for each input, or all of them in a ``.npz`` archive, by name.

    ``what`` they are called in messages.

    Raises
    ------
    InputError
        If a file can't be read, or is no such array or archive.
    """
    if len(paths) == 1:
        return (read_archive if str(paths[0]).endswith(".npz") else read_array)(paths[0], what)
    return [read_array(path, what) for path in paths]


def read_archive(path: str | Path, what: str = "input") -> dict[str, np.ndarray]:
    """The arrays in a ``.npz`` file, by name; ``what`` it is called in messages.

    Raises
    ------
    InputError
        If the file can't be read, or holds something else than plain ``.npy`` arrays.
    """
    found = {}
    try:
        if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
            raise InputError(f"{what} {path} can't be read: it is not a regular file")
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                with archive.open(info) as member:
                    name = info.filename.removesuffix(".npy")
                    found[name] = _read(cast(BinaryIO, member), f"{what} {path} ({name})", info.file_size)
    except OSError as error:
        raise InputError(f"{what} {path} can't be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error) as error:
        raise InputError(f"{what} {path} is not a .npz archive; write it with numpy.savez") from error
    if not found:
        raise InputError(f"{what} {path} is empty; write it with numpy.savez")
    return found


def read_array(path: str | Path, what: str = "input") -> np.ndarray:
    """The array in a ``.npy`` file, mapped from it: nothing is read before it is used, and nothing can be changed.

    ``what`` it is called in messages.

    Raises
    ------
    InputError
        If the file can't be read, or is not a plain ``.npy`` array.
    """
    try:
        # Nobody writes into a pipe or a device here, and some never end.
        if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
            raise InputError(f"{what} {path} can't be read: it is not a regular file")
        with open(path, "rb") as file:
            return _mapped(file, f"{what} {path}", os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise InputError(f"{what} {path} can't be read: {error.strerror or error}") from error


def _mapped(file: BinaryIO, called: str, size: int) -> np.ndarray:
    """The array in an open ``.npy`` file of so many bytes as `_read` gives it, but mapped."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's of headers as Python 2 wrote them
            shape, in_columns, dtype = _check_header(file, called, size)
    except (ValueError, EOFError, SyntaxError, OverflowError, TypeError) as error:
        raise InputError(f"{called} is not a .npy array; write it with numpy.save") from error
    offset = file.tell()
    if not math.prod(shape):  # nothing can be mapped of it
        return np.empty(shape, dtype.newbyteorder("="))
    array = np.memmap(file, dtype, "r", offset, shape, "F" if in_columns else "C").view(np.ndarray)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _read(file: BinaryIO, called: str, size: int) -> np.ndarray:
    """The array in an open ``.npy`` file of so many bytes, by what it is ``called`` in messages."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's of headers as Python 2 wrote them
            _check_header(file, called, size)
            file.seek(0)
            array = np.lib.format.read_array(file, allow_pickle=False)
    except (ValueError, EOFError, SyntaxError, OverflowError, TypeError) as error:
        raise InputError(f"{called} is not a .npy array; write it with numpy.save") from error
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _check_header(file: BinaryIO, called: str, size: int) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Refuse a ``.npy`` file of ``size`` bytes that says more, or something else, than it holds.

    NumPy allocates what a header promises before it reads. Leaves ``file`` behind the header.

    Returns
    -------
    tuple
        Shape, whether columns come first (Fortran's order), and type of the array.
    """
    magic = file.read(4)
    if magic in (b"PK\x03\x04", b"PK\x05\x06"):
        raise InputError(f"{called} is a .npz archive; a .npy array is needed (numpy.save), or a name in .npz")
    file.seek(0)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(file)
    try:
        # A third version only differs in its encoding, for the names of fields.
        shape, in_columns, dtype = readers.get(version, readers[(2, 0)])(file)
    except Exception as error:  # NumPy evaluates the header, and raises whatever that raises
        raise InputError(f"{called} has a header that can't be read; write it with numpy.save") from error
    if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None or dtype.kind not in "biuf":
        raise InputError(f"{called} must hold plain numbers, not {dtype}")
    if any(type(size) is not int or size < 0 for size in shape):
        raise InputError(f"{called} has a header with an impossible shape: {str(shape)[:60]}")
    needed, there = math.prod(shape) * dtype.itemsize, size - file.tell()
    if needed > there:
        raise InputError(
            f"{called} is cut short, or its header is wrong: shape {str(shape)[:60]} of {dtype} takes "
            f"{_bytes(needed)}, and there are {there:,}"
        )
    return shape, in_columns, dtype


def _bytes(count: int) -> str:
    return f"{count:,} bytes" if count < 10**18 else "more bytes than any file has"


def listed(values: Values) -> list[np.ndarray]:
    """Return the arrays of ``values``, in the order of the outputs."""
    return list(values.values()) if isinstance(values, dict) else [values]
