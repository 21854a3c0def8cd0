"""Cache of Verilog that took long to write. It is written again only if the hardware, or hwgen, changed."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Callable, Mapping

from hwgen import cache, digest

__all__ = ["STEP", "written"]

STEP = "writing the Verilog"
"""Name of the step, for reports of progress."""
LEAST = 0.5
"""Smallest writing time of files that are cached, in seconds."""
MOST = 256 << 20
"""Largest total size of files that are cached, in bytes."""
_NAME = "files.zip"


def written(
    inputs: object, write: Callable[[], dict[str, bytes]], *, say: Callable[[str], None] = lambda step: None
) -> dict[str, bytes]:
    """Return the files that a function writes, from the cache if they were written before.

    Parameters
    ----------
    inputs : object
        Everything that the files depend on besides hwgen itself, in a form that `hwgen.digest` accepts.
    write : callable
        Function that returns the contents of the files, by name.
    say : callable
        Receiver of the step's name if the files are written now.
    """
    key = digest.of(digest.source(), inputs)
    if (cached := cache.find("verilog", key)) is not None:
        with zipfile.ZipFile(cached / _NAME) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    say(STEP)
    begin = time.perf_counter()
    files = write()
    if time.perf_counter() - begin > LEAST and sum(map(len, files.values())) < MOST:
        cache.keep_files("verilog", key, {_NAME: _archive(files)})
    return files


def _archive(files: Mapping[str, bytes]) -> bytes:
    """Return files as a ZIP archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()
