"""Manifest of a result folder: the files that hwgen wrote there, with digests.

By it the next build removes what it does not write any more, and overwrites nothing that is a user's own.
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

__all__ = ["NAME", "foreign", "note", "of", "read", "remove"]

NAME = "manifest.json"


def of(contents: Mapping[str, bytes], others: Mapping[str, str] | None = None) -> bytes:
    """Return the manifest of a build.

    Parameters
    ----------
    contents : mapping of str to bytes
        Files of the build by their paths, listed with their SHA-256.
    others : mapping of str to str, optional
        Digests of files that other verbs wrote into the folder. A build can overwrite these files, but does not
        remove them.
    """
    return _text({name: _digest(content) for name, content in contents.items()}, others or {})


def _text(files: Mapping[str, str], others: Mapping[str, str]) -> bytes:
    document: dict[str, object] = {"written_by": "hwgen", "files": dict(sorted(files.items()))}
    if others:
        document["others"] = dict(sorted(others.items()))
    return (json.dumps(document, indent=1) + "\n").encode()


def read(folder: Path, key: str = "files") -> dict[str, str]:
    """Return paths and digests in a folder's manifest; none where there is no manifest that ``of`` could have made.

    With the key ``others`` these are the files that other verbs wrote. A path that leads out of the folder is left
    out, because anybody can have written the manifest.
    """
    entries = _document(folder).get(key)
    if not isinstance(entries, dict):
        return {}
    return {name: digest for name, digest in entries.items() if _within(name) and _is_digest(digest)}


def _document(folder: Path) -> dict[str, Any]:
    """Return a folder's manifest as it is written; empty if there is none of hwgen's."""
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
    """Return the files that ``contents`` would change and that hwgen did not write, or that were changed since.

    Symbolic links and special files are among them, folders are not.
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


def note(path: Path) -> None:
    """Note in the manifest of its folder, if there is one, that hwgen has written a file there after the build."""
    folder = path.parent
    if not _document(folder) or not _within(path.name):
        return
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    files, others = read(folder), read(folder, "others")
    (files if path.name in files else others)[path.name] = digest
    with processes.folder(".hwgen-", folder) as work:
        (work / NAME).write_bytes(_text(files, others))
        os.replace(work / NAME, folder / NAME)


def remove(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Delete files that are still as their digests say, and the folders of theirs that become empty.

    No symbolic link is followed below the folder, and none deleted.

    Returns
    -------
    list of str
        What was left there, because somebody changed it or it can't be deleted.
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


def _is_ours(folder: Path, name: str, kind: Callable[[int], bool] = stat.S_ISREG) -> bool:
    """Whether a path leads to a file (or folder) through nothing but folders."""
    *parents, last = PurePosixPath(name).parts
    place = folder
    with suppress(OSError, ValueError):  # a ValueError where it can't be the name of a file
        for parent in parents:
            place /= parent
            if not stat.S_ISDIR(os.lstat(place).st_mode):
                return False
        return kind(os.lstat(place / last).st_mode)
    return False


def _within(name: str) -> bool:
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
