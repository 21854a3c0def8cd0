"""Cache of simulators, Verilog and plans on disk, each under a digest of its inputs.

Entries are folders ``KIND/KEY`` in ``$HWGEN_CACHE``, by default in the user's cache folder. A rename makes a complete
entry visible in one step. The entry lists the sizes and digests of its files, so that a broken or incomplete entry
counts as missing and is computed again. If several processes need the same entry, one computes it and the others wait.
All entries together take at most `LIMIT` bytes; the least recently used entries are dropped first.

Simulators in the cache are programs that hwgen runs. Therefore hwgen refuses a cache that another user owns or can
write, and an entry that another user owns or can write counts as missing. The cache folder is created with access for
its user only.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from hwgen import processes
from hwgen.errors import ToolError

try:
    import fcntl
except ImportError:  # not on Windows, where several processes can compute the same entry
    fcntl = None

LIMIT = 4 << 30
"""Maximum size of the whole cache in bytes; the environment variable ``HWGEN_CACHE_LIMIT`` overrides it, in MiB."""
GRACE = 600.0
"""Seconds after a cache entry's last use during which it is not dropped, because a process may be about to read it."""
STALE = 86400.0
"""Age in seconds after which `trim` removes an unfinished cache entry; if files can be locked, it is removed
earlier."""
KINDS = ("plans", "verilog", "proofs", "simulators", "objects", "runtimes")
"""Names of the kinds of cache entries, each a subfolder of the cache: plans, Verilog with memory files, proofs,
simulators, and object files. Simulators are linked from the object files of components (``objects``) and of
Verilator's runtime (``runtimes``)."""
_LIST = "entry.json"
_LOCK = ".lock-"
_UNFINISHED = (".build-", ".made-", ".broken-", ".gone-")
"""Tuple of name prefixes of the temporary folders where cache entries are prepared, or removed."""
_OURS = re.compile(r"(\.\w+-)?[0-9a-f]{16,32}")


def folder() -> Path:
    """Return the path of the cache: ``$HWGEN_CACHE``, or by default ``hwgen`` in the user's cache folder."""
    if configured := os.environ.get("HWGEN_CACHE"):
        return Path(configured).absolute()
    return platformdirs.user_cache_path("hwgen", appauthor=False)


def limit() -> int:
    """Return the maximum size of the whole cache in bytes: ``$HWGEN_CACHE_LIMIT`` (in MiB), or `LIMIT`.

    Raises
    ------
    ToolError
        If the variable is set to anything but a number of MiB.
    """
    configured = os.environ.get("HWGEN_CACHE_LIMIT", "").strip()
    if not configured:
        return LIMIT
    if not re.fullmatch(r"[0-9]{1,12}", configured):
        raise ToolError(f"HWGEN_CACHE_LIMIT must be a number of MiB, as in 2000, not {configured!r}")
    return int(configured) << 20


def write_error(error: OSError) -> ToolError:
    """Return a ToolError which says that the cache can't be written, and why, from the file system's ``error``."""
    return ToolError(f"the cache {folder()} can't be written: {error.strerror or error}; set HWGEN_CACHE")


def check() -> None:
    """Raise ToolError if another user owns or can write the cache folder, because hwgen runs programs from it.

    Raises
    ------
    ToolError
        If the cache is unsafe, or its limit is not a number.
    """
    limit()
    root = folder()
    for path in (root, *(root / kind for kind in KINDS)):
        with suppress(FileNotFoundError, NotADirectoryError):
            if reason := _unsafe_reason(path.stat()):
                raise ToolError(
                    f"the cache {root} is not used, because {reason.format(path)}: hwgen runs programs from its cache; "
                    "set HWGEN_CACHE to a folder of your own, or remove this one"
                )


def _unsafe_reason(status: os.stat_result) -> str | None:
    """Return why a file or folder with this ``stat`` is unsafe, with ``{}`` for its path; ``None`` if it is safe."""
    if os.name != "posix":
        return None
    if status.st_uid != os.geteuid():
        return f"another user ({status.st_uid}) owns {{}}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"other users can write in {{}} (mode {stat.S_IMODE(status.st_mode):o}; chmod go-w)"
    return None


@functools.cache
def _remove_unfinished(path: Path) -> None:
    """Remove the unfinished entries that killed processes left in the cache folder ``path``, once per process."""
    for kind in KINDS:
        processes.remove_abandoned(path / kind, *_UNFINISHED)


def _kind_folder(kind_name: str) -> Path:
    """Return the folder of all cache entries of a kind; create it, with access for its user only, if it is missing.

    Raises
    ------
    OSError
        If the folder can't be created.
    ToolError
        If the cache is unsafe, or its limit is not a number.
    """
    root = folder()
    root.parent.mkdir(parents=True, exist_ok=True)
    for path in (root, root / kind_name):
        path.mkdir(mode=0o700, exist_ok=True)
    check()
    return root / kind_name


# One entry


def find(kind_name: str, key: str, *, sums: bool = True) -> Path | None:
    """Return the folder of a cache entry, checked and marked as used; ``None`` if it is missing or damaged.

    With ``sums`` the digests of all files are checked, else only their sizes, because reading all files can take long.

    Raises
    ------
    ToolError
        If the cache is unsafe, or its limit is not a number.
    """
    check()
    _remove_unfinished(folder())
    path = folder() / kind_name / key
    try:
        if any(_unsafe_reason(file.stat()) for file in (path, path / _LIST)):
            return None
        listed = json.loads((path / _LIST).read_bytes())
        for name, expected in listed.items():
            status = (path / name).stat()
            if status.st_size != expected[0] or _unsafe_reason(status) or (sums and _digest(path / name) != expected):
                return None
        os.utime(path / _LIST)
    except (OSError, ValueError, AttributeError, LookupError, TypeError):
        return None
    return path


def keep(kind_name: str, key: str, files: Iterable[Path]) -> Path:
    """Move files into a new cache entry, which replaces a damaged one, and return the entry's folder.

    Returns
    -------
    Path
        Folder of the entry. Another process can have made the same entry in the meantime.

    Raises
    ------
    OSError
        If the cache can't be written.
    ToolError
        If the cache is unsafe, or its limit is not a number.
    """
    path = _kind_folder(kind_name) / key
    with _make_temporary(path) as made:
        for file in files:
            os.replace(file, made / file.name)
        _store_entry(made, path)
    return path


def keep_files(kind_name: str, key: str, files: Mapping[str, bytes]) -> None:
    """Store file contents, given by file name, as a cache entry, then trim the cache.

    Errors of the file system are ignored.
    """
    with suppress(OSError):
        path = _kind_folder(kind_name) / key
        with _make_temporary(path) as made:
            for name, content in files.items():
                (made / name).write_bytes(content)
            _store_entry(made, path)
        trim()


@contextmanager
def locked(kind_name: str, key: str) -> Iterator[None]:
    """Context manager that locks a cache entry, so that only one process at a time makes it.

    Raises
    ------
    OSError
        If the cache can't be written.
    """
    if fcntl is None:
        yield
        return
    path = _kind_folder(kind_name) / f"{_LOCK}{key}"
    with _lock(path):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Context manager that waits for the lock of the file ``path`` and holds it in its block.

    The previous holder can remove the file while other processes wait for its lock. They then lock the new file.
    """
    assert fcntl is not None
    while True:
        file = path.open("w")
        with suppress(OSError):  # some network file systems have no locks; two processes can then make the same entry
            fcntl.flock(file, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                break
        file.close()
    with file:
        yield


@contextmanager
def _make_temporary(path: Path) -> Iterator[Path]:
    """Context manager that yields a temporary folder, where the files of the cache entry ``path`` are prepared."""
    with processes.folder(prefix=".made-", dir=path.parent) as made:
        yield made


def _store_entry(made: Path, path: Path) -> None:
    """Turn the temporary folder ``made`` into the cache entry ``path``, with a list of its files.

    A damaged entry is replaced.
    """
    listed = {file.name: _digest(file) for file in sorted(made.iterdir())}
    (made / _LIST).write_text(json.dumps(listed, indent=1))
    for file in made.iterdir():
        file.chmod(file.stat().st_mode & ~(stat.S_IWGRP | stat.S_IWOTH))
    try:
        os.rename(made, path)
    except OSError:
        if find(path.parent.name, path.name) is None:
            with processes.folder(prefix=".broken-", dir=path.parent) as broken:
                os.rename(path, broken)  # an empty folder is replaced
                os.rename(made, path)


def _digest(file: Path) -> list[int | str]:
    """Return a list of two values for a file: its size in bytes, and its SHA-256 digest in hexadecimal."""
    with file.open("rb") as opened:
        return [file.stat().st_size, hashlib.file_digest(opened, "sha256").hexdigest()]


# All entries


@dataclass(frozen=True)
class CacheEntry:
    """Description of a complete entry of the cache: kind, folder, size and time of last use.

    Attributes
    ----------
    kind : str
        Kind of the entry, one of `KINDS`.
    path : Path
        Folder of the entry.
    size : int
        Size of all its files, in bytes.
    used : float
        Time of the last use, in seconds since 1970 as from ``time.time``.
    """

    kind: str
    path: Path
    size: int
    used: float


def entries() -> list[CacheEntry]:
    """Return a list of each complete `CacheEntry` of the cache, the least recently used first."""
    listed = []
    for kind in _folders(folder()):
        for path in _folders(kind) if kind.name in KINDS else ():
            with suppress(OSError):
                used = (path / _LIST).stat().st_mtime
                size = sum(file.stat().st_size for file in path.iterdir())
                listed.append(CacheEntry(kind.name, path, size, used))
    return sorted(listed, key=lambda entry: entry.used)


def clear() -> int:
    """Remove all entries of the cache, but no foreign files, and return the number of bytes removed.

    Raises
    ------
    OSError
        If a file can't be removed.
    """
    freed = sum(entry.size for entry in entries())
    for kind in _folders(folder()):
        if kind.name in KINDS:
            for path in kind.iterdir():
                if path.is_dir() and _OURS.fullmatch(path.name):
                    shutil.rmtree(path)
                elif path.name.startswith(
                    _LOCK
                ):  # if a process holds the lock, two can make the same entry, which is harmless
                    path.unlink(missing_ok=True)
            with suppress(OSError):  # another process is at work in the folder
                kind.rmdir()
    return freed


def _folders(path: Path) -> list[Path]:
    with suppress(OSError):
        return [child for child in path.iterdir() if child.is_dir()]
    return []


def trim() -> None:
    """Remove stale unfinished cache entries, and the least recently used ones until the cache is within its limit.

    Entries used in the last `GRACE` seconds stay.
    """
    now, listed = time.time(), entries()
    size = sum(entry.size for entry in listed)
    for entry in listed:
        if size <= limit() or now - entry.used < GRACE:
            break
        with suppress(OSError), processes.folder(prefix=".gone-", dir=entry.path.parent) as gone:
            os.rename(entry.path, gone)  # in one step, so that no process finds a part of the entry
            size -= entry.size
    for kind in _folders(folder()):
        for path in _folders(kind) if kind.name in KINDS else ():
            with suppress(OSError):
                if not (path / _LIST).is_file() and now - path.stat().st_mtime > STALE:
                    shutil.rmtree(path, ignore_errors=True)
