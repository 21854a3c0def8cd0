"""Programs of the engine that were changed, with a checksum that is right: for tests of all that reads them."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.job import Job, field_offsets, seal
from hwgen.program.file import Program

_HEADER = struct.Struct("<8sII16sQQ")
#: Values of other types, at the edges of ranges, and beyond.
_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 7, 8, 255, 256, 4096, 65_535, 1 << 28, (1 << 28) + 1, (1 << 31) - 1, 1 << 31,
    (1 << 32) - 8, (1 << 32) - 1, 1 << 32, 1 << 63, 1 << 64, 10**30, 1.5, -0.0, 1e308, "", "8", "x", [], {}, [[]],
    [1, 2, 3], {"size": 1}, [{}], "\u0000\\\"", "]}",
]  # fmt: skip


def parts(program: bytes) -> tuple[dict[str, Any], bytes]:
    """Return a program's description and its image."""
    told_size = _HEADER.unpack_from(program)[4]
    return json.loads(program[_HEADER.size :][:told_size]), program[_HEADER.size + told_size :]


def sealed(program: bytes, text: bytes, image: bytes) -> bytes:
    """Return a program with the header of another program, and with this text and this image."""
    magic, version, _, digest, _, _ = _HEADER.unpack_from(program)
    body = digest + struct.pack("<QQ", len(text), len(image)) + text + image
    return struct.pack("<8sII", magic, version, zlib.crc32(body)) + body


def resealed(program: bytes) -> bytes:
    """Return a program with its checksum corrected."""
    return program[:12] + struct.pack("<I", zlib.crc32(program[16:])) + program[16:]


def changed(program: bytes, rng: np.random.Generator) -> bytes:
    """Change up to three fields of a program; its checksum is right."""
    told, image = parts(program)
    change_fields(told, rng)
    return sealed(program, _text(told), image)


def spoilt(program: bytes, rng: np.random.Generator) -> bytes:
    """Change bytes of the text, the image or the header of a program; its checksum is right."""
    told, image = parts(program)
    way = int(rng.integers(6, 10))
    text = _text(told)
    if way < 8:
        return sealed(program, _spoilt(text, rng), image)
    if way == 8:
        size = int(rng.integers(0, 2 * len(image) + 1))
        return sealed(program, text, image[:size] if rng.integers(2) else image.ljust(size, b"\1"))
    return resealed(_spoilt(program, rng, first=8, end=_HEADER.size))


def _text(told: dict[str, Any]) -> bytes:
    return json.dumps(told).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each object or list in a value, with each of its keys."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])


def change_fields(document: dict[str, Any], rng: np.random.Generator) -> None:
    """Change up to three fields of what a file of JSON holds."""
    for _ in range(int(rng.integers(1, 4))):
        _change(document, rng)


def _change(told: dict[str, Any], rng: np.random.Generator) -> None:
    """Take a field away, or give it another value: any, or one near its own, or another field's."""
    #: Not in lists of jobs and layers, which are long: each field counts as much as another.
    places = [(holder, key) for holder, key in _places(told) if isinstance(key, str) or key < 2]
    if not places:
        return
    holder, key = places[int(rng.integers(len(places)))]
    way, value = int(rng.integers(6)), holder[key]
    other, other_key = places[int(rng.integers(len(places)))]
    if way == 0:
        holder.pop(key)
    elif way < 3 and isinstance(value, int) and not isinstance(value, bool):
        changes = (value + 1, value - 1, 2 * value, value // 2, value + 8, value ^ 1 << int(rng.integers(34)))
        holder[key] = changes[int(rng.integers(len(changes)))]
    elif way == 3 and other_key in (other if isinstance(other, dict) else range(len(other))):
        holder[key] = json.loads(json.dumps(other[other_key]))
    else:
        holder[key] = _VALUES[int(rng.integers(len(_VALUES)))]


def _spoilt(content: bytes, rng: np.random.Generator, first: int = 0, end: int | None = None) -> bytes:
    """Change, insert or drop bytes of a range; in a range with an end, only change them."""
    found, whole = bytearray(content), end is None
    for _ in range(int(rng.integers(1, 5))):
        index = int(rng.integers(first, len(found) if end is None else end))
        way = int(rng.integers(4)) if whole else 0
        byte = b'{}[]":,\\ 0189nt'[int(rng.integers(15))] if whole and rng.integers(2) else int(rng.integers(256))
        if way == 0:
            found[index] = byte
        elif way == 1:
            found.insert(index, byte)
        elif way == 2:
            del found[index]
        else:
            del found[index:]
        if not found:
            return b""
    return bytes(found)


def changed_job(program: bytes, engine: EngineConfig, rng: np.random.Generator) -> bytes:
    """Change up to three fields of one job of a program; its seal and the checksum are right."""
    job_index = int(rng.integers(len(parts(program)[0]["owners"])))
    offsets = {name: place for name, place in field_offsets().items() if name.startswith(("load.", "store."))}
    for name in rng.choice(list(offsets), int(rng.integers(1, 4)), replace=False):
        _, width = offsets[str(name)]
        part, _, key = str(name).partition(".")
        most = (1 << width) - 1
        value = [0, 1, most, int(rng.integers(most + 1)), 1 << int(rng.integers(width))][int(rng.integers(5))]
        program = with_job(program, engine, job_index, part, **{key: value})
    return program


def with_job(program: bytes, engine: EngineConfig, job_index: int, part: str, **values: int) -> bytes:
    """Return a program with other fields in one part of one job; its seal and the checksum are right."""
    told, image = parts(program)
    begin = job_index * Job.BYTES
    job = Job.unpack(image[begin : begin + Job.BYTES])
    packed = replace(job, **{part: replace(getattr(job, part), **values)}).pack()
    content = packed + seal(engine, job_index, packed).to_bytes(8, "little")
    return sealed(program, _text(told), image[:begin] + content + image[begin + Job.BYTES :])


def escapes(program: Program) -> Iterator[tuple[str, int, str, dict[str, int]]]:
    """Yield accesses that leave a program's memory, or write its image: a field's name, and a job's change.

    Each is the index of the job, the part, and the fields with their values, for `with_job`.
    """
    size, image = program.size, len(program.image)
    for part, address, count in (
        ("load", "x_address", "x_blocks"),
        ("load", "w_address", "w_steps"),
        ("load", "p_address", "p_words"),
        ("store", "address", "blocks"),
    ):
        jobs = enumerate(program.jobs)
        job_index = next(index for index, job in jobs if getattr(getattr(job, part), count))
        bad = [size, (1 << 32) - 8] + ([0, image - 8] if part == "store" else [])
        for value in bad:
            yield f"{part}.{address}", job_index, part, {address: value}
    for part, stride, count in (("store", "block_stride", "blocks"), ("store", "row_stride", "rows")):
        for job_index, job in enumerate(program.jobs):
            if getattr(getattr(job, part), count) > 1:
                yield f"{part}.address", job_index, part, {stride: size}
                break


def endless(program: Program) -> Iterator[tuple[int, str, dict[str, int]]]:
    """Yield boxes of no rows, as changes for `with_job`: the engine counts rows down to 1, so these have 65,536."""
    for part, prefix in (("load", "x_"), ("store", "")):
        jobs = enumerate(program.jobs)
        job_index = next(index for index, job in jobs if getattr(getattr(job, part), f"{prefix}blocks"))
        yield job_index, part, {f"{prefix}rows": 0, f"{prefix}row_stride": 8}
