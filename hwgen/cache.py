"""What took long to make and is kept: compiled simulators, Verilog, plans, each by the content of what it was made of.

Entries are folders ``KIND/KEY`` in ``$HWGEN_CACHE``, else in the user's cache folder. They appear at once, by a rename,
and say what their files must be, so that what is broken or half there counts as missing and is made anew. Of
processes that need the same entry one makes it, and the others wait. All entries together take at most ``LIMIT`` bytes:
those that were not used for longest go first.

Kept simulators are programs that are run. So a cache that another user owns or can write is refused, and such an entry
counts as missing; the cache is made for its user alone.
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
except ImportError:  # not on Windows, where processes that need the same entry each make it
    fcntl = None

__all__ = [
    "KINDS",
    "LIMIT",
    "Entry",
    "check",
    "clear",
    "entries",
    "find",
    "folder",
    "keep",
    "keep_files",
    "limit",
    "locked",
    "refused",
    "trim",
]

LIMIT = 4 << 30
"""Bytes of all entries together; ``HWGEN_CACHE_LIMIT`` says it otherwise, in MB."""
GRACE = 600.0
"""Seconds in which an entry that was used is not dropped: whoever found it may be about to read it."""
STALE = 86400.0
"""Seconds after which what a process was making, and never finished, is taken away where folders can't be locked."""
KINDS = ("plans", "verilog", "simulators", "objects", "runtimes")
"""What there is: plans; Verilog with its memory files; simulators, and what they are linked of: components of designs,
and what Verilator brings."""
_LIST = "entry.json"
_LOCK = ".lock-"
_UNFINISHED = (".build-", ".made-", ".broken-", ".gone-")
"""Prefixes of folders in which entries are made or taken away."""
_OURS = re.compile(r"(\.\w+-)?[0-9a-f]{16,32}")


def folder() -> Path:
    """Where entries are kept."""
    if given := os.environ.get("HWGEN_CACHE"):
        return Path(given).absolute()
    return platformdirs.user_cache_path("hwgen", appauthor=False)


def limit() -> int:
    """Bytes of all entries together."""
    with suppress(ValueError):
        return max(0, int(os.environ.get("HWGEN_CACHE_LIMIT", ""))) << 20
    return LIMIT


def refused(error: OSError) -> ToolError:
    """What is said where the cache can't be written."""
    return ToolError(f"the cache {folder()} can't be written: {error.strerror or error}; set HWGEN_CACHE")


def check() -> None:
    """Refuse a cache that another user owns or can write, because programs in it are run.

    Raises
    ------
    ToolError
    """
    place = folder()
    for path in (place, *(place / kind for kind in KINDS)):
        with suppress(FileNotFoundError, NotADirectoryError):
            if reason := _unsafe(path.stat()):
                raise ToolError(
                    f"the cache {place} is not used, because {reason.format(path)}: programs are kept there, and run; "
                    "set HWGEN_CACHE to a folder of your own, or take this one away"
                )


def _unsafe(status: os.stat_result) -> str | None:
    """Return why a file or folder of this status is not to be trusted; ``None`` if it is."""
    if os.name != "posix":
        return None
    if status.st_uid != os.geteuid():
        return f"another user ({status.st_uid}) owns {{}}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"other users can write in {{}} (mode {stat.S_IMODE(status.st_mode):o}; chmod go-w)"
    return None


@functools.cache
def _begin(place: Path) -> None:
    """Remove, once in a process, what killed processes left unfinished in a cache."""
    for kind in KINDS:
        processes.remove_abandoned(place / kind, *_UNFINISHED)


def _kind(kind: str) -> Path:
    """Return the folder of all entries of a kind, made for its user alone if it is missing.

    Raises
    ------
    OSError
        If it can't be made.
    ToolError
        If the cache is another user's.
    """
    place = folder()
    place.parent.mkdir(parents=True, exist_ok=True)
    for path in (place, place / kind):
        path.mkdir(mode=0o700, exist_ok=True)
    check()
    return place / kind


# One entry


def find(kind: str, key: str, *, sums: bool = True) -> Path | None:
    """The folder of an entry; ``None`` if it is not there, or not as it was made. It counts as used now.

    Without ``sums`` only the sizes of its files are looked at: they may be too large to be read each time.

    Raises
    ------
    ToolError
        If the cache is another user's, or others can write in it.
    """
    check()
    _begin(folder())
    place = folder() / kind / key
    try:
        if any(_unsafe(path.stat()) for path in (place, place / _LIST)):
            return None
        listed = json.loads((place / _LIST).read_bytes())
        for name, told in listed.items():
            status = (place / name).stat()
            if status.st_size != told[0] or _unsafe(status) or (sums and _sum(place / name) != told):
                return None
        os.utime(place / _LIST)
    except (OSError, ValueError, AttributeError, LookupError, TypeError):
        return None
    return place


def keep(kind: str, key: str, files: Iterable[Path]) -> Path:
    """Make an entry of some files, which are moved there, in place of one that is broken.

    Returns
    -------
    Path
        The entry's folder; another process may have made it in the meantime.

    Raises
    ------
    OSError
        If the cache can't be written.
    ToolError
        If the cache is another user's, or others can write in it.
    """
    place = _kind(kind) / key
    with _making(place) as made:
        for file in files:
            os.replace(file, made / file.name)
        _put(made, place)
    return place


def keep_files(kind: str, key: str, files: Mapping[str, bytes]) -> None:
    """The same of contents by name, of which it is no harm if they can't be kept; then drop what is too much."""
    with suppress(OSError):
        place = _kind(kind) / key
        with _making(place) as made:
            for name, content in files.items():
                (made / name).write_bytes(content)
            _put(made, place)
        trim()


@contextmanager
def locked(kind: str, key: str) -> Iterator[None]:
    """Let one process at a time into the block, of those that want this entry.

    Raises
    ------
    OSError
        If the cache can't be written.
    """
    if fcntl is None:
        yield
        return
    place = _kind(kind) / f"{_LOCK}{key}"
    with _lock(place):
        try:
            yield
        finally:
            place.unlink(missing_ok=True)


@contextmanager
def _lock(place: Path) -> Iterator[None]:
    """Hold a file that is there; who had it before may take it away while others wait for it."""
    assert fcntl is not None
    while True:
        file = place.open("w")
        with suppress(OSError):  # some network file systems know no locks: then both make it, which is no harm
            fcntl.flock(file, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), place.stat()):
                break
        file.close()
    with file:
        yield


@contextmanager
def _making(place: Path) -> Iterator[Path]:
    """A folder in which an entry is made, in the same file system."""
    with processes.folder(prefix=".made-", dir=place.parent) as made:
        yield made


def _put(made: Path, place: Path) -> None:
    """Make ``made`` the entry at ``place``, all at once."""
    listed = {file.name: _sum(file) for file in sorted(made.iterdir())}
    (made / _LIST).write_text(json.dumps(listed, indent=1))
    for file in made.iterdir():
        file.chmod(file.stat().st_mode & ~(stat.S_IWGRP | stat.S_IWOTH))
    try:
        os.rename(made, place)
    except OSError:
        if find(place.parent.name, place.name) is None:
            with processes.folder(prefix=".broken-", dir=place.parent) as broken:
                os.rename(place, broken)  # an empty folder gives way
                os.rename(made, place)


def _sum(file: Path) -> list[int | str]:
    """Size and digest of a file."""
    with file.open("rb") as opened:
        return [file.stat().st_size, hashlib.file_digest(opened, "sha256").hexdigest()]


# All entries


@dataclass(frozen=True)
class Entry:
    """``size`` in bytes; ``used`` in seconds since 1970, as ``time.time`` gives them."""

    kind: str
    place: Path
    size: int
    used: float


def entries() -> list[Entry]:
    """All that is kept, what was not used for longest first; what is broken or unfinished is not listed."""
    found = []
    for kind in _folders(folder()):
        for place in _folders(kind) if kind.name in KINDS else ():
            with suppress(OSError):
                used = (place / _LIST).stat().st_mtime
                size = sum(file.stat().st_size for file in place.iterdir())
                found.append(Entry(kind.name, place, size, used))
    return sorted(found, key=lambda entry: entry.used)


def clear() -> int:
    """Take away all that is kept, and nothing else; returns how many bytes that were.

    Raises
    ------
    OSError
        If something can't be removed.
    """
    freed = sum(entry.size for entry in entries())
    for kind in _folders(folder()):
        if kind.name in KINDS:
            for place in kind.iterdir():
                if place.is_dir() and _OURS.fullmatch(place.name):
                    shutil.rmtree(place)
                elif place.name.startswith(_LOCK):  # if somebody holds it, two may make the same, which is no harm
                    place.unlink(missing_ok=True)
            with suppress(OSError):  # someone is at work in it
                kind.rmdir()
    return freed


def _folders(place: Path) -> list[Path]:
    with suppress(OSError):
        return [each for each in place.iterdir() if each.is_dir()]
    return []


def trim() -> None:
    """Drop what was not used for longest, until the rest is within the limit, and what nobody will finish."""
    now, found = time.time(), entries()
    size = sum(entry.size for entry in found)
    for entry in found:
        if size <= limit() or now - entry.used < GRACE:
            break
        with suppress(OSError), processes.folder(prefix=".gone-", dir=entry.place.parent) as gone:
            os.rename(entry.place, gone)  # at once, so that nobody finds a part of it
            size -= entry.size
    for kind in _folders(folder()):
        for place in _folders(kind) if kind.name in KINDS else ():
            with suppress(OSError):
                if not (place / _LIST).is_file() and now - place.stat().st_mtime > STALE:
                    shutil.rmtree(place, ignore_errors=True)
