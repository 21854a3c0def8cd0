"""Arrays of a model's inputs and outputs, and readers of the ``.npy`` and ``.npz`` files that hold them."""

from __future__ import annotations

import math
import os
import stat
import warnings
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from hwgen.errors import InputError
from hwgen.network.options import ModelOptions
from hwgen.options import check_names

Values = np.ndarray | dict[str, np.ndarray]
"""Type of a model's outputs: one NumPy array, or, if the model has several outputs, a dict of arrays by name."""
Inputs = np.ndarray | Sequence[np.ndarray] | Mapping[str, np.ndarray]
"""Type of a model's input frames: one NumPy array; for several inputs, arrays in their order or by name."""


def read_inputs(paths: Sequence[str | Path], what: str = "input") -> Inputs:
    """Return frames read from files: an array from one ``.npy`` per input, or arrays by name from one ``.npz``.

    Parameters
    ----------
    paths : sequence of str or Path
        Files, in the order of the model's inputs.
    what : str
        Noun for the contents of the files in messages.

    Returns
    -------
    ndarray, list of ndarray, or dict of str to ndarray
        The array of a single ``.npy`` file, the arrays of several in the order of ``paths``, or a single ``.npz``
        file's arrays by name.

    Raises
    ------
    InputError
        If a file can't be read, or is not a ``.npy`` array; a single file can also be a ``.npz`` archive.
    """
    if len(paths) == 1:
        return (read_archive if str(paths[0]).endswith(".npz") else read_array)(paths[0], what)
    return [read_array(path, what) for path in paths]


def model_options(calibration: Inputs | str | Path | None, bits: int | None, options: dict[str, Any]) -> ModelOptions:
    """Return the options for reading a model as `ModelOptions`, after checks; read ``calibration`` if it is a path.

    Parameters
    ----------
    options : dict
        Values of the other options, by name.

    Returns
    -------
    ModelOptions
        Options, as `hwgen.network.load` takes them.

    Raises
    ------
    InputError
        If an option is unknown or does not accept its value, or the file can't be read.
    """
    check_names(options, ModelOptions, "a model")
    made = ModelOptions(calibration=calibration, bits=bits, **options)
    if isinstance(calibration, str | Path):
        return replace(made, calibration=read_inputs([calibration], "calibration"))
    return made


def read_archive(path: str | Path, what: str = "input") -> dict[str, np.ndarray]:
    """Return the arrays of a ``.npz`` file, read into memory, as a dict by name.

    Parameters
    ----------
    path : str or Path
        File to read.
    what : str
        Noun for the contents of the file in messages.

    Returns
    -------
    dict of str to ndarray
        Arrays by name.

    Raises
    ------
    InputError
        If the file can't be read, is empty, or holds anything but plain ``.npy`` arrays.
    """
    arrays = {}
    try:
        if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
            raise InputError(f"{what} {path} can't be read: it is not a regular file")
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                with archive.open(info) as member:
                    name = info.filename.removesuffix(".npy")
                    arrays[name] = _read_array(cast(BinaryIO, member), f"{what} {path} ({name})", info.file_size)
    except OSError as error:
        raise InputError(f"{what} {path} can't be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error) as error:
        raise InputError(f"{what} {path} is not a .npz archive; write it with numpy.savez") from error
    if not arrays:
        raise InputError(f"{what} {path} is empty; write it with numpy.savez")
    return arrays


def read_array(path: str | Path, what: str = "input") -> np.ndarray:
    """Return the array of a ``.npy`` file as a read-only memory map: its values are read only when they are used.

    Parameters
    ----------
    path : str or Path
        File to map.
    what : str
        Noun for the contents of the file in messages.

    Returns
    -------
    ndarray
        Array in the machine's byte order. It is copied from the file if the file has the other byte order.

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
            return _map_array(file, f"{what} {path}", os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise InputError(f"{what} {path} can't be read: {error.strerror or error}") from error


def _map_array(file: BinaryIO, called: str, size: int) -> np.ndarray:
    """Return the array of an open ``.npy`` file of ``size`` bytes, mapped into memory; errors name it ``called``.

    Returns
    -------
    numpy.ndarray
        Read-only array in the file's type and shape.

    Raises
    ------
    InputError
        If the file is not a ``.npy`` array of plain numbers.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy warns about headers that Python 2 wrote
            shape, in_columns, dtype = _check_header(file, called, size)
    except (ValueError, EOFError, SyntaxError, OverflowError, TypeError) as error:
        raise InputError(f"{called} is not a .npy array; write it with numpy.save") from error
    offset = file.tell()
    if not math.prod(shape):  # an empty array can't be mapped
        return np.empty(shape, dtype.newbyteorder("="))
    array = np.memmap(file, dtype, "r", offset, shape, "F" if in_columns else "C").view(np.ndarray)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _read_array(file: BinaryIO, called: str, size: int) -> np.ndarray:
    """Return the array of an open ``.npy`` file of ``size`` bytes, read into memory; errors name it ``called``.

    Returns
    -------
    numpy.ndarray
        Array in the file's type and shape.

    Raises
    ------
    InputError
        If the file is not a ``.npy`` array of plain numbers.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy warns about headers that Python 2 wrote
            _check_header(file, called, size)
            file.seek(0)
            array = np.lib.format.read_array(file, allow_pickle=False)
    except (ValueError, EOFError, SyntaxError, OverflowError, TypeError) as error:
        raise InputError(f"{called} is not a .npy array; write it with numpy.save") from error
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _check_header(file: BinaryIO, called: str, size: int) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Return shape, order and type (a triple) of the array in an open ``.npy`` file; InputError if it is too short.

    NumPy would allocate the array that the header promises before it reads any value. ``file`` is then positioned after
    the header.

    Returns
    -------
    shape : tuple of int
    in_columns : bool
        Whether the array is stored column by column (Fortran's order).
    dtype : dtype

    Raises
    ------
    InputError
        If the file is a ``.npz`` archive, its header can't be read or is impossible, or it is too short.
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
    """Return a model's outputs, one array or a dict of arrays by name, as a list in the model's order.

    Returns
    -------
    list of ndarray
        One array per output.
    """
    return list(values.values()) if isinstance(values, dict) else [values]
