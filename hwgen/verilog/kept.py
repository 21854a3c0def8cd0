"""Verilog that took a while to write is kept, and written again only if something of the hardware changed."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Callable, Mapping

from hwgen import cache, digest

__all__ = ["STEP", "written"]

STEP = "writing the Verilog"
"""What is said of it."""
LEAST = 0.5
"""Seconds that writing takes, of what is kept."""
MOST = 256 << 20
"""Bytes of all files, of what is kept."""
_NAME = "files.zip"


def written(
    of: object, write: Callable[[], dict[str, bytes]], *, say: Callable[[str], None] = lambda step: None
) -> dict[str, bytes]:
    """What ``write`` gives, or gave before.

    Parameters
    ----------
    of : object
        All that it depends on besides hwgen itself, as `hwgen.digest` takes it.
    write : callable
        Writes files: contents by name.
    say : callable
        Told if they are written now.
    """
    key = digest.of(digest.source(), of)
    if (place := cache.find("verilog", key)) is not None:
        with zipfile.ZipFile(place / _NAME) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    say(STEP)
    begin = time.perf_counter()
    files = write()
    if time.perf_counter() - begin > LEAST and sum(map(len, files.values())) < MOST:
        cache.keep_files("verilog", key, {_NAME: _archive(files)})
    return files


def _archive(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()
