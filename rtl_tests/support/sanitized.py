"""C drivers under AddressSanitizer and UndefinedBehaviorSanitizer: an access out of bounds ends the process.

The engine's driver is compiled into a program that loads the programs that it reads, each into memory of exactly the
size that it is told, and runs what was loaded with maps of exactly their sizes.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from c_driver import GCC, compiled, gcc
from texts import read_text

SANITIZERS = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def library() -> str:
    """Return the path of AddressSanitizer's library, empty if it is missing."""
    if GCC is None:
        return ""
    said = subprocess.run([GCC, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout
    return said.strip() if Path(said.strip()).is_absolute() else ""


needs_sanitizers = pytest.mark.skipif(not library(), reason="gcc with libasan is missing: apt-get install gcc")

_PLATFORM = read_text("sanitized_platform.h")

_MAIN = read_text("sanitized_main.c")
#: C functions that mark the bytes behind the memory, up to the end of its allocation, as forbidden.
_POISON = read_text("sanitized_poison.c")


def engine_bench(built: Path, folder: Path, digest: str) -> Path:
    """Compile the driver of an engine, and what loads programs with it."""
    main = _MAIN.replace("@low@", digest[8:]).replace("@high@", digest[:8]).replace("int main", f"{_POISON}\nint main")
    (folder / "sanitized.h").write_text(_PLATFORM)
    (folder / "main.c").write_text(main)
    program = folder / "engine_bench"
    includes = [f"-I{folder}", f"-I{built}", '-DHWGEN_PLATFORM="sanitized.h"']
    gcc("-std=c11", *SANITIZERS, "-Wno-pedantic", *includes, folder / "main.c", "-o", program)
    return program


def load_all(bench: Path, cases: Iterable[tuple[bytes, int]]) -> list[int]:
    """Return the driver's status for each program with its number of bytes of memory.

    Raises
    ------
    AssertionError
        If a sanitizer ended the process, with what it said.
    """
    given = b"".join(struct.pack("<II", len(content), size) + content for content, size in cases)
    done = subprocess.run([bench], input=given, capture_output=True, check=False, timeout=600)
    statuses = [int(line) for line in done.stdout.split()]
    assert done.returncode == 0, f"case {len(statuses)}: {done.stderr.decode()[:3000]}"
    return statuses


def accelerator_runs(built: Path, folder: Path, seed: int, runs: int) -> Counter[str]:
    """Run an accelerator's driver on the model of the hardware (`sanitized_driver`), and count the results."""
    library_path = compiled(built, folder, SANITIZERS)
    environment = os.environ | {
        "LD_PRELOAD": library(),
        "PYTHONMALLOC": "malloc",  # so that each object has an allocation of its own
        "ASAN_OPTIONS": "detect_leaks=0",
    }
    script = Path(__file__).with_name("sanitized_driver.py")
    command = [sys.executable, script, built, library_path, str(seed), str(runs)]
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, f"{done.stderr[:2000]}\n..\n{done.stderr[-1000:]}"
    return Counter({name: int(count) for name, count in (line.split() for line in done.stdout.splitlines())})
