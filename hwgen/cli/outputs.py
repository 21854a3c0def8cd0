"""Files that a verb writes: checked before it begins, and written when it is done."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
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
"""What a file holds, or a function that writes it."""
ENGINE_FILES = (".json", ".v", ".mem")
INPUTS = ("model", "layer", "input", "labels", "calibration", "plan", "board", "program")


class Outputs:
    """Files to be written at the end, all of them or none.

    Refuses at once options that name files which can't be written, are one and the same, or are read as well.

    Raises
    ------
    InputError
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        check_outputs(arguments)
        self._files: list[tuple[Path, Content]] = []

    def add(self, path: str | None, content: Content) -> None:
        if path is not None:
            self._files.append((Path(path), content))

    def write(self) -> None:
        """Write everything beside its place, then move it there; a symbolic link is written through.

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
    """Note a file in the manifest of the result folder that it is in, if it is in one."""
    if path.with_name("manifest.json").is_file():
        from hwgen.emit import manifest  # a verb that writes elsewhere needs nothing of what is emitted

        manifest.note(path)


def check_default(path: str, head: bytes) -> None:
    """Refuse a default output that exists and does not begin as hwgen's own files of its kind do.

    Raises
    ------
    InputError
    """
    try:
        with open(path, "rb") as file:
            begin = file.read(len(head))
    except OSError:  # it is missing, or what is wrong with it is said where it is written
        return
    if begin != head:
        raise InputError(f"output {path} would overwrite a file that hwgen did not write: name one with -o")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def npy_bytes(array: np.ndarray) -> bytes:
    """The contents of a ``.npy`` file."""
    import io

    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def write_frames(file: BinaryIO, count: int, parts: Iterable[np.ndarray]) -> tuple[int, np.dtype]:
    """Write a ``.npy`` file of ``count`` frames, of which some come at a time; number and type of the values."""
    import numpy as np

    size, kind = 0, np.dtype(np.float32)
    for part in parts:
        if not size:
            head = {"descr": np.lib.format.dtype_to_descr(part.dtype), "fortran_order": False}
            np.lib.format.write_array_header_1_0(file, {**head, "shape": (count, *part.shape[1:])})
        file.write(np.ascontiguousarray(part).data)
        size, kind = size + part.size, part.dtype
    return size, kind


def values_bytes(values: np.ndarray | dict[str, np.ndarray]) -> bytes:
    """The contents of a ``.npy`` file; of several arrays by name those of a ``.npz`` file."""
    import io
    import zipfile

    if not isinstance(values, dict):
        return npy_bytes(values)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in values.items():
            # Of a fixed date, so that the same values make the same file.
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), npy_bytes(array))
    return buffer.getvalue()


def add_page(outputs: Outputs, path: str, document: dict[str, Any]) -> None:
    """Add the page of a document, which ``--report`` asks for.

    What a page there says of the same design beyond this document stays.
    """
    from hwgen.report.page import html

    outputs.add(path, html.render(html.merged(document, path)))


def check_values_file(path: str | None, names: Sequence[str]) -> None:
    """Refuse a name that says ``.npy`` for the values of several outputs.

    Raises
    ------
    InputError
    """
    if path is not None and len(names) > 1 and not path.endswith(".npz"):
        raise InputError(
            f"output {path} can't hold {len(names)} outputs ({', '.join(names)}): give a file that ends in .npz"
        )


def json_bytes(value: dict[str, Any], indent: int = 2) -> bytes:
    """The contents of a ``.json`` file."""
    return (json.dumps(value, indent=indent) + "\n").encode()


def check_outputs(arguments: argparse.Namespace) -> None:
    """Refuse outputs that can't be written, two of one file, and those that would overwrite what is read.

    A file is the same by whatever path, symbolic link or hard link.

    Raises
    ------
    InputError
    """
    outputs = list(_paths(arguments, OUTPUTS))
    for name, path in outputs:
        _check_writable(path)
        for given, source in (*_paths(arguments, INPUTS), *_engine_files(arguments)):
            if os.path.isfile(source) and _same(path, source):
                what = "the model" if given in ("--model", "--layer") else f"what {given} reads"
                raise InputError(f"{name} {path} would overwrite {what}: give another file")
    for (one, path), (other, second) in combinations(outputs, 2):
        if _same(path, second):
            raise InputError(f"{one} {path} and {other} {second} are one file: give two")


def _paths(arguments: argparse.Namespace, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name in names:
        value = getattr(arguments, name, None)
        for path in value if isinstance(value, list) else [value]:
            if path is not None:
                yield f"--{name}", path


def _engine_files(arguments: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """What is read of the folder of an engine, where programs may be written."""
    if (folder := getattr(arguments, "engine", None)) is not None:
        yield from (("--engine", str(path)) for path in Path(folder).glob("engine.*") if path.suffix in ENGINE_FILES)


def _check_writable(path: str) -> None:
    if not path:
        raise InputError("output '' can't be written: give the name of a file")
    folder = Path(os.path.realpath(path) if os.path.islink(path) else path).parent
    if os.path.islink(os.path.realpath(path)):
        raise InputError(f"output {path} can't be written: it is a loop of symbolic links")
    if Path(path).is_dir():
        raise InputError(f"output {path} can't be written: it is a folder")
    special = os.path.abspath(path).startswith(("/dev/", "/proc/"))  # /dev/stdout may lead to a plain file
    if os.path.exists(path) and (special or not os.path.isfile(path)):
        raise InputError(f"output {path} can't be written: it is no plain file")
    if not folder.is_dir():
        raise InputError(f"output {path} can't be written: there is no folder {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"output {path} can't be written: no permission to write in {folder}")


def _same(one: str, other: str) -> bool:
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)
