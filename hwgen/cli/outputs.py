"""Output files of a command: their paths are checked before the work, and all are written at the end."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from hwgen import processes
from hwgen.errors import InputError

if TYPE_CHECKING:
    import numpy as np

OUTPUTS = ("output", "json", "plot", "waves", "report")
Content = bytes | Callable[[BinaryIO], None]
"""Type of an output file's contents: bytes, or a function that writes them to an open binary file."""
ENGINE_FILES = (".json", ".v", ".mem")
INPUTS = ("model", "layer", "input", "labels", "calibration", "plan", "board", "program")


class Outputs:
    """Output files of a command: all paths are checked first, and all files are written together at the end.

    Parameters
    ----------
    arguments : argparse.Namespace
        Command line.
    folder : Path, optional
        Result folder that the verb reads. Options can name files in it, but none that the build wrote.

    Raises
    ------
    InputError
        If an option names a file that can't be written, that another option names, or that the verb reads.
    """

    def __init__(self, arguments: argparse.Namespace, folder: Path | None = None) -> None:
        check_outputs(arguments)
        if folder is not None:
            _check_result(arguments, folder)
        self._files: list[tuple[Path, Content]] = []

    def add(self, path: str | None, content: Content) -> None:
        """Add a file and its contents for `write`; do nothing if ``path`` is ``None``."""
        if path is not None:
            self._files.append((Path(path), content))

    def write(self) -> None:
        """Write all added files, each to a temporary file in the same folder, which then replaces the target.

        A symbolic link stays, and the file that it leads to is replaced.

        Raises
        ------
        InputError
            If a file can't be written.
        """
        ready: list[tuple[str, Path]] = []
        path = Path()
        try:
            for path, content in self._files:
                target = Path(os.path.realpath(path))
                handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
                ready.append((name, target))
                with os.fdopen(handle, "wb") as file:
                    if isinstance(content, bytes):
                        file.write(content)
                    else:
                        content(file)
                os.chmod(name, 0o666 & ~_umask())
            with processes.held():
                while ready:
                    name, path = ready[0]
                    os.replace(name, path)
                    ready.pop(0)
            for path, _ in self._files:
                _note(path)
        except OSError as error:
            raise InputError(f"output {path} can't be written: {error.strerror or error}") from error
        finally:
            for name, _ in ready:
                with suppress(OSError):
                    os.unlink(name)


def _note(path: Path) -> None:
    """Add a written file to the manifest of its folder, if the folder has a ``manifest.json``."""
    if path.with_name("manifest.json").is_file():
        from hwgen.emit import manifest  # only result folders need this package

        manifest.note(path)


def check_default(path: str, head: bytes) -> None:
    """Raise InputError if a default output file exists with a beginning other than ``head``, so not hwgen's own.

    Raises
    ------
    InputError
        If the file exists and does not begin with ``head``, as hwgen's own files of this type do.
    """
    try:
        with open(path, "rb") as file:
            begin = file.read(len(head))
    except OSError:  # the file is missing, or writing it will report the error
        return
    if begin != head:
        raise InputError(f"output {path} would overwrite a file that hwgen did not write: give another file with -o")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def npy_bytes(array: np.ndarray) -> bytes:
    """Return the contents of a ``.npy`` file with the array ``values``, as bytes."""
    import io

    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def write_frames(file: BinaryIO, count: int, batches: Iterable[np.ndarray]) -> tuple[int, np.dtype]:
    """Write frames to one ``.npy`` file, ``count`` in all; return, as a pair, (number of values, NumPy type)."""
    import numpy as np

    size, dtype = 0, np.dtype(np.float32)
    for batch in batches:
        if not size:
            head = {"descr": np.lib.format.dtype_to_descr(batch.dtype), "fortran_order": False}
            np.lib.format.write_array_header_1_0(file, {**head, "shape": (count, *batch.shape[1:])})
        file.write(np.ascontiguousarray(batch).data)
        size, dtype = size + batch.size, batch.dtype
    return size, dtype


def values_bytes(values: np.ndarray | dict[str, np.ndarray]) -> bytes:
    """Return the bytes of a ``.npy`` file with one array, or of a ``.npz`` file with several arrays by name."""
    import io
    import zipfile

    if not isinstance(values, dict):
        return npy_bytes(values)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in values.items():
            # A fixed date, so that equal values make equal files.
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), npy_bytes(array))
    return buffer.getvalue()


def add_page(outputs: Outputs, path: str, document: dict[str, Any]) -> None:
    """Add the HTML page of ``--report``, with a document's sections, to the output files.

    If the file is already a page of the same design, its sections that the document lacks stay.
    """
    from hwgen.report.page import html

    outputs.add(path, html.render(html.merged(document, path)))


def check_values_file(path: str | None, names: Sequence[str], ragged: Collection[str] = ()) -> None:
    """Raise InputError if an output file's format can't hold the model's outputs: several need ``.npz``.

    Raises
    ------
    InputError
        If there are several outputs, and the file's name does not end in ``.npz``. If the number of rows of an output
        depends on the frame's values, so that frames do not make one array: ``ragged``.
    """
    if path is not None and (name := next((name for name in names if name in ragged), None)) is not None:
        raise InputError(
            f"output {path} can't hold {name}, whose number of rows differs between frames: give --integers, or use "
            "hwgen.Session in Python"
        )
    if path is not None and len(names) > 1 and not path.endswith(".npz"):
        raise InputError(
            f"output {path} can't hold {len(names)} outputs ({', '.join(names)}): give a file that ends in .npz"
        )


def json_bytes(value: dict[str, Any], indent: int = 2) -> bytes:
    """Return the bytes of a ``.json`` file with a JSON-like value."""
    return (json.dumps(value, indent=indent) + "\n").encode()


def check_outputs(arguments: argparse.Namespace) -> None:
    """Raise InputError if an output option's file can't be written, is named twice, or is an input file.

    Two paths name the same file also by way of symbolic links and hard links.

    Raises
    ------
    InputError
        If a file can't be written, two options name the same file, or an output would overwrite an input.
    """
    outputs = list(_paths(arguments, OUTPUTS))
    for name, path in outputs:
        _check_writable(path)
        for input_option, source in (*_paths(arguments, INPUTS), *_engine_files(arguments)):
            if os.path.isfile(source) and _is_same_file(path, source):
                what = "the model" if input_option in ("--model", "--layer") else f"what {input_option} reads"
                raise InputError(f"{name} {path} would overwrite {what}: give another file")
    for (one, path), (other, second) in combinations(outputs, 2):
        if _is_same_file(path, second):
            raise InputError(f"{one} {path} and {other} {second} are the same file: give two different files")


def _check_result(arguments: argparse.Namespace, folder: Path) -> None:
    """Raise InputError if an output option names a file that the build wrote in the result folder.

    Raises
    ------
    InputError
        If there is such an option.
    """
    from hwgen.emit import manifest  # only result folders need this package

    results = [folder, *(path for path in sorted(folder.iterdir()) if path.is_dir())]
    files = [str(result / written) for result in results for written in (*manifest.read(result), manifest.NAME)]
    for name, path in _paths(arguments, OUTPUTS):
        if any(_is_same_file(path, written) for written in files):
            raise InputError(f"{name} {path} would overwrite a file of the build in {folder}: give another file")


def _paths(arguments: argparse.Namespace, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name in names:
        value = getattr(arguments, name, None)
        for path in value if isinstance(value, list) else [value]:
            if path is not None:
                yield f"--{name}", path


def _engine_files(arguments: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield (option, path) of each file that ``--engine FOLDER`` reads, which outputs must not overwrite."""
    if (folder := getattr(arguments, "engine", None)) is not None:
        yield from (("--engine", str(path)) for path in Path(folder).glob("engine.*") if path.suffix in ENGINE_FILES)


def _check_writable(path: str) -> None:
    if not path:
        raise InputError("output '' can't be written: give the name of a file")
    folder = Path(os.path.realpath(path) if os.path.islink(path) else path).parent
    if os.path.islink(os.path.realpath(path)):
        raise InputError(
            f"output {path} can't be written: it is a symbolic link that refers to itself; give another path"
        )
    if Path(path).is_dir():
        raise InputError(f"output {path} can't be written: it is a folder; give a file in it")
    special = os.path.abspath(path).startswith(("/dev/", "/proc/"))  # /dev/stdout can lead to a plain file
    if os.path.exists(path) and (special or not os.path.isfile(path)):
        raise InputError(f"output {path} can't be written: it is not a regular file; give another path")
    if not folder.is_dir():
        raise InputError(f"output {path} can't be written: folder {folder} does not exist; create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"output {path} can't be written: no permission to write in {folder}; give another path")


def _is_same_file(one: str, other: str) -> bool:
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)
