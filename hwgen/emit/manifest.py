"""What a build wrote into a result folder, so that the next one takes away what it does not write any more."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

__all__ = ["NAME", "of", "read", "remove"]

NAME = "manifest.json"


def of(contents: Mapping[str, bytes]) -> bytes:
    """The manifest of files by their paths: each one's SHA-256."""
    files = {name: _digest(content) for name, content in sorted(contents.items())}
    return (json.dumps({"written_by": "hwgen", "files": files}, indent=1) + "\n").encode()


def read(folder: Path) -> dict[str, str]:
    """Paths and digests in a folder's manifest; none where there is no manifest, or none that ``of`` could have made.

    What is not a path within the folder is left out: a manifest may be anybody's.
    """
    if not _is_ours(folder, NAME):
        return {}
    with suppress(OSError, ValueError, RecursionError):
        given = json.loads((folder / NAME).read_bytes())
        if isinstance(given, dict) and given.get("written_by") == "hwgen" and isinstance(given.get("files"), dict):
            return {name: digest for name, digest in given["files"].items() if _within(name) and _is_digest(digest)}
    return {}


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
