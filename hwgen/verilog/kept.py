"""Cache of Verilog files that take long to write; a changed configuration, or a changed hwgen, writes them again.

They are written again only if the hardware, or hwgen, changed.
"""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Callable, Mapping

from hwgen import cache, digest

STEP = "writing the Verilog"
"""Text that names the writing of Verilog in progress reports."""
MIN_SECONDS = 0.5
"""Minimum time in seconds that writing Verilog files must take for them to be cached."""
MAX_BYTES = 256 << 20
"""Total size in bytes above which Verilog files that are written together are not cached."""
_NAME = "files.zip"


def written(
    inputs: object, write: Callable[[], dict[str, bytes]], *, say: Callable[[str], None] = lambda step: None
) -> dict[str, bytes]:
    """Return a dict of the Verilog files that ``write`` makes, as bytes by file name, from the cache if it has them.

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
    if time.perf_counter() - begin > MIN_SECONDS and sum(map(len, files.values())) < MAX_BYTES:
        cache.keep_files("verilog", key, {_NAME: _archive(files)})
    return files


def _archive(files: Mapping[str, bytes]) -> bytes:
    """Return the bytes of a ZIP archive of files, given as contents by name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()
