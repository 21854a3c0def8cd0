"""Manifest of a result folder, ``manifest.json``: the files that hwgen wrote there, with SHA-256 digests.

The next build removes the files of the manifest that it does not write any more, and overwrites no other files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from hwgen import processes

#: Name of the manifest in a result folder.
NAME = "manifest.json"


def of(contents: Mapping[str, bytes], others: Mapping[str, str] | None = None) -> bytes:
    """Return ``manifest.json`` of a result folder as bytes, with the SHA-256 digest of each file.

    Parameters
    ----------
    contents : mapping of str to bytes
        Files of the build by their paths, listed with their SHA-256.
    others : mapping of str to str, optional
        Digests of files that other commands wrote into the folder. A build can overwrite these files, but does not
        remove them.
    """
    return _text({name: _digest(content) for name, content in contents.items()}, others or {})


def _text(files: Mapping[str, str], others: Mapping[str, str]) -> bytes:
    document: dict[str, object] = {"written_by": "hwgen", "files": dict(sorted(files.items()))}
    if others:
        document["others"] = dict(sorted(others.items()))
    return (json.dumps(document, indent=1) + "\n").encode()


def read(folder: Path, key: str = "files") -> dict[str, str]:
    """Return a dict of the SHA-256 digests (hexadecimal text) that a result folder's manifest lists, by file path.

    The result is empty if the folder has no manifest of hwgen. A path that leads out of the folder is left out,
    because a manifest can be written by anybody.

    Parameters
    ----------
    folder : Path
        Result folder.
    key : str
        Section of the manifest: ``files`` of the build, or ``others``, which later commands wrote.
    """
    entries = _document(folder).get(key)
    if not isinstance(entries, dict):
        return {}
    return {name: digest for name, digest in entries.items() if _is_inside(name) and _is_digest(digest)}


def without_digest(folder: Path) -> list[str]:
    """Return a list of the paths in a manifest that `read` leaves out, because their entries are malformed."""
    files = _document(folder).get("files", {})
    return [name for name in files if name not in read(folder)]


def _document(folder: Path) -> dict[str, Any]:
    """Return a dict: the JSON object of a result folder's manifest, or empty if hwgen wrote no manifest there."""
    if _is_ours(folder, NAME):
        with suppress(OSError, ValueError, RecursionError):
            document = json.loads((folder / NAME).read_bytes())
            if (
                isinstance(document, dict)
                and document.get("written_by") == "hwgen"
                and isinstance(document.get("files"), dict)
            ):
                return document
    return {}


def foreign(folder: Path, contents: Mapping[str, bytes]) -> list[str]:
    """Return a list of names in ``contents`` of existing files that hwgen did not write, or that were changed since.

    Symbolic links and special files are included, folders are not.
    """
    known = read(folder) | read(folder, "others")

    def is_foreign(name: str, content: bytes) -> bool:
        path = folder / name
        if not os.path.lexists(path) or path.is_dir():
            return False
        if path.is_file():
            present = path.read_bytes()
            if present == content or (_is_ours(folder, name) and _digest(present) == known.get(name)):
                return False
        return name != NAME or not _document(folder)

    return [name for name, content in contents.items() if is_foreign(name, content)]


def changed(folder: Path) -> list[str]:
    """Return a list of paths of files in a folder's manifest that are missing or changed since the build."""

    def is_changed(name: str, digest: str) -> bool:
        try:
            return _digest((folder / name).read_bytes()) != digest
        except OSError:
            return True

    return [name for name, digest in read(folder).items() if is_changed(name, digest)]


def note(path: Path) -> None:
    """Add a file that hwgen wrote after the build to its folder's manifest, if the folder has one."""
    folder = path.parent
    if not _document(folder) or not _is_inside(path.name):
        return
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    files, others = read(folder), read(folder, "others")
    (files if path.name in files else others)[path.name] = digest
    with processes.folder(".hwgen-", folder) as work:
        (work / NAME).write_bytes(_text(files, others))
        os.replace(work / NAME, folder / NAME)


def remove(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Delete an earlier build's files unless changed since, and emptied folders; return, as a list, the paths kept.

    Symbolic links below the folder are neither followed nor deleted.

    Parameters
    ----------
    folder : Path
        Result folder.
    files : mapping of str to str
        SHA-256 digest of each file, by path in the folder.

    Returns
    -------
    list of str
        Paths of the files that stay, because they were changed or can't be deleted.
    """
    kept = []
    for name, digest in files.items():
        path = folder / name
        if not _is_ours(folder, name):
            continue
        try:
            if _digest(path.read_bytes()) != digest:
                kept.append(name)
                continue
            path.unlink()
        except OSError:
            kept.append(name)
    parents = {parent for name in files for parent in PurePosixPath(name).parents if parent.parts}
    for parent in sorted(parents, key=lambda parent: len(parent.parts), reverse=True):
        if _is_ours(folder, str(parent), stat.S_ISDIR):
            with suppress(OSError):
                (folder / parent).rmdir()
    return kept


def _is_ours(folder: Path, name: str, has_type: Callable[[int], bool] = stat.S_ISREG) -> bool:
    """Return whether a path in a result folder is a file (or of another type), with no symbolic link on the way."""
    *parents, last = PurePosixPath(name).parts
    directory = folder
    with suppress(OSError, ValueError):  # a ValueError if the text can't be the name of a file
        for parent in parents:
            directory /= parent
            if not stat.S_ISDIR(os.lstat(directory).st_mode):
                return False
        return has_type(os.lstat(directory / last).st_mode)
    return False


def _is_inside(name: str) -> bool:
    """Return whether a path from a manifest, with POSIX separators, stays within the result folder."""
    path = PurePosixPath(name)
    return (
        str(path) == name
        and bool(path.parts)
        and not path.is_absolute()
        and not re.search(r"[\\\0:]", name)
        and (".." not in path.parts and name != NAME)
    )


def _is_digest(text: object) -> bool:
    return isinstance(text, str) and re.fullmatch(r"[0-9a-f]{64}", text) is not None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
