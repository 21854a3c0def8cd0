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

SANITIZERS = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def library() -> str:
    """Return the path of AddressSanitizer's library, empty if it is missing."""
    if GCC is None:
        return ""
    said = subprocess.run([GCC, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout
    return said.strip() if Path(said.strip()).is_absolute() else ""


needs_sanitizers = pytest.mark.skipif(not library(), reason="gcc with libasan is missing: apt-get install gcc")

_PLATFORM = """
#include <stddef.h>
#include <stdint.h>
extern unsigned char *bench_memory;
uint32_t bench_read(uint32_t offset);
void bench_write(uint32_t offset, uint32_t value);
void bench_touch(const void *pointer, size_t bytes);
#define HWGEN_READ32(address) bench_read((uint32_t)(address))
#define HWGEN_WRITE32(address, value) bench_write((uint32_t)(address), (value))
#define HWGEN_BUS_ADDRESS(pointer) ((uint32_t)(0x10000000 + ((const unsigned char *)(pointer) - bench_memory)))
#define HWGEN_FLUSH(pointer, bytes) bench_touch((pointer), (bytes))
#define HWGEN_INVALIDATE(pointer, bytes) bench_touch((pointer), (bytes))
"""

_MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "engine_driver.c"

unsigned char *bench_memory;
static uint32_t done, bench_sum;

uint32_t bench_read(uint32_t offset)
{
    switch (offset) {
    case ENGINE_IDENTITY: return ENGINE_IDENTITY_IS;
    case ENGINE_VERSION: return ENGINE_VERSION_MAJOR_IS << 16;
    case ENGINE_BUILD_HASH_LOW: return (uint32_t)ENGINE_BUILD_HASH;
    case ENGINE_BUILD_HASH_HIGH: return (uint32_t)((uint64_t)ENGINE_BUILD_HASH >> 32);
    case ENGINE_DIGEST_LOW: return 0x@low@u;
    case ENGINE_DIGEST_HIGH: return 0x@high@u;
    case ENGINE_STATUS: return done ? ENGINE_STATUS_DONE : 0;
    default: return 0;
    }
}

void bench_write(uint32_t offset, uint32_t value)
{
    if (offset == ENGINE_CONTROL)
        done = value & ENGINE_CONTROL_START;
}

/* The instrumented loop reads every byte that would be flushed or invalidated. */
void bench_touch(const void *pointer, size_t bytes)
{
    const unsigned char *place = pointer;
    size_t at;

    for (at = 0; at < bytes; at++)
        bench_sum += place[at];
}

static unsigned char *allocated(size_t bytes)
{
    unsigned char *const found = malloc(bytes);

    if (found == NULL)
        abort();
    memset(found, 0x5A, bytes);
    return found;
}

static size_t values_in(const engine_device *device, const engine_map *map)
{
    return (size_t)device->frames * map->channels * map->height * map->width;
}

/* A run, with maps of exactly their sizes. */
static int run(engine_device *device)
{
    void *results[ENGINE_MOST_OUTPUTS];
    const void *maps[ENGINE_MOST_INPUTS];
    uint32_t input, output;
    int status;

    for (input = 0; input < device->input_count; input++)
        maps[input] = allocated(values_in(device, &device->inputs[input]));
    for (output = 0; output < device->output_count; output++)
        results[output] = allocated(values_in(device, &device->outputs[output]));
    status = engine_run(device, maps, results);
    if (status == ENGINE_OK && engine_run(device, NULL, results) != ENGINE_NO_BUFFER)
        abort();
    if (engine_run(device, maps, NULL) != ENGINE_NO_BUFFER || engine_start(device, NULL) != ENGINE_NO_BUFFER ||
        engine_finish(device, NULL) != ENGINE_NO_BUFFER)
        abort();
    for (output = 0; output < device->output_count; output++) {
        void *const kept = results[output];

        results[output] = NULL;
        if (engine_run(device, maps, results) != ENGINE_NO_BUFFER || engine_finish(device, results) != ENGINE_NO_BUFFER)
            abort();
        results[output] = kept;
        free(kept);
    }
    for (input = 0; input < device->input_count; input++) {
        const void *const kept = maps[input];

        maps[input] = NULL;
        if (engine_start(device, maps) != ENGINE_NO_BUFFER)
            abort();
        maps[input] = kept;
        free((void *)kept);
    }
    return status;
}

int main(void)
{
    uint32_t sizes[2];

    if (engine_open(NULL, 0, 3) != ENGINE_NO_BUFFER)
        abort();
    while (fread(sizes, sizeof sizes, 1, stdin) == 1) {
        engine_device device;
        unsigned char *const file = allocated(sizes[0]);
        int status;

        bench_memory = aligned_alloc(64, ((size_t)sizes[1] + 63) / 64 * 64);
        if (fread(file, 1, sizes[0], stdin) != sizes[0] || bench_memory == NULL ||
            engine_open(&device, 0, 3) != ENGINE_OK)
            abort();
        bench_poison(bench_memory, sizes[1]);
        if (engine_load(&device, NULL, sizes[0], bench_memory, sizes[1]) != ENGINE_NO_BUFFER ||
            engine_load(&device, file, sizes[0], NULL, sizes[1]) != ENGINE_NO_BUFFER)
            abort();
        status = engine_load(&device, file, sizes[0], bench_memory, sizes[1]);
        if (device.memory != (status == ENGINE_OK ? bench_memory : NULL))
            abort();
        free(file); /* it is not needed any more */
        if (status == ENGINE_OK)
            status = run(&device);
        printf("%d\\n", status);
        fflush(stdout);
        bench_unpoison(bench_memory, sizes[1]);
        free(bench_memory);
    }
    return 0;
}
"""
#: C functions that mark the bytes behind the memory, up to the end of its allocation, as forbidden.
_POISON = """
#include <sanitizer/asan_interface.h>
static size_t rest(uint32_t size)
{
    return (64 - size % 64) % 64;
}
static void bench_poison(unsigned char *memory, uint32_t size)
{
    memset(memory, 0x5A, size);
    __asan_poison_memory_region(memory + size, rest(size));
}
static void bench_unpoison(unsigned char *memory, uint32_t size)
{
    __asan_unpoison_memory_region(memory + size, rest(size));
}
"""


def engine_bench(built: Path, folder: Path, digest: str) -> Path:
    """Compile the driver of an engine, and what loads programs with it.

    Parameters
    ----------
    built : Path
        The folder of the design.
    folder : Path
        To work in.
    digest : str
        Of the engine, in hexadecimal.
    """
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
