"""Program files of the engine: a header, a description as JSON, and the initial content of memory.

======  =====  ================================================
offset  bytes  content
======  =====  ================================================
0       8      ``hwgenPRG``
8       4      version of the format; all integers are little-endian
12      4      CRC-32 of all bytes that follow
16      16     digits of the engine's digest
32      8      number of bytes of the JSON that follows
40      8      number of bytes of the image after the JSON
======  =====  ================================================
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwgen.errors import InputError
from hwgen.fields import Entries, Rule, content_of, entry, written
from hwgen.gateware.engine.check import faults
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.job import WORD_BITS, Job, accesses, digest, job_bytes, seal
from hwgen.network.maps import FeatureMap
from hwgen.program.batch import MAX_FRAMES
from hwgen.program.jobs import ADDRESSES
from hwgen.program.layout import WORD, map_bytes, pack_map
from hwgen.program.unfold import Unfold

MAGIC, VERSION = b"hwgenPRG", 5
#: Earlier versions of the program file format that `Program.read` accepts, too. Versions 2 and 3 have one ``input``.
_EARLIER = (2, 3, 4)
_HEADER = struct.Struct("<8sII16sQQ")
#: Number of bytes at the beginning of a program file that its CRC-32 doesn't cover.
_UNCHECKED = 16
_WORD_BYTES = WORD_BITS // 8
#: Checks of a feature map's fields in a program file: sizes of at least 1, and values of 1 to 32 bits.
_MAP_RULES = {
    **dict.fromkeys(("channels", "height", "width"), Rule(minimum=1)),
    "type": Rule(inner_rules={"bits": Rule(minimum=1, maximum=32)}),
}
#: Check of a byte address or distance in a program file: a multiple of 8, from 0 to 2**32 - 1.
_ADDRESS_RULE = {"minimum": 0, "maximum": ADDRESSES - 1, "unit": WORD}


@dataclass(frozen=True, kw_only=True)
class MapRegion:
    """Memory region of an input or output map of the network, which the host writes or reads.

    The maps of successive frames are ``frame_bytes`` apart; by default they are adjacent. An input with ``unfold`` is
    stored with rows and columns as channels.
    """

    name: str
    map: FeatureMap = entry(inner_rules=_MAP_RULES)
    address: int = entry(**_ADDRESS_RULE)
    frame_bytes: int | None = entry(None, is_brief=True, **_ADDRESS_RULE)
    unfold: Unfold | None = entry(None, is_brief=True)

    @property
    def size(self) -> int:
        """Number of bytes of one frame of the region's feature map, as memory stores it."""
        return map_bytes(self.unfold.map(self.map) if self.unfold else self.map)

    def pack(self, frame: np.ndarray) -> bytes:
        """Return the bytes that memory stores for one frame ``(C, H, W)`` of the region's feature map."""
        stored = self.unfold.apply(frame, self.map.type) if self.unfold else frame
        return pack_map(stored, self.map.type)

    def at(self, frame: int) -> slice:
        """Return the slice of memory bytes that stores one frame of the region's feature map."""
        begin = self.address + frame * (self.frame_bytes or self.size)
        return slice(begin, begin + self.size)


@dataclass(frozen=True, kw_only=True)
class Program:
    """Program of an engine for one network: initial memory content (jobs, weights, tables), and addresses of the maps.

    Parameters
    ----------
    name : str
        Name of the network.
    engine : EngineConfig
    image : bytes
        Bytes of memory, starting at address 0, before the first frame. The first job comes first.
    size : int
        Number of bytes of memory, maps included.
    inputs, outputs : tuple of MapRegion
    layers : tuple of str
        Layer of each pass.
    owners : tuple of int
        Index of each job's pass.
    ends : dict
        Tensors of the model at both ends, as in ``plan.json``. Software quantises and dequantises by these.
    batch : int
        Number of frames of a run.
    """

    name: str
    engine: EngineConfig
    image: bytes
    size: int
    inputs: tuple[MapRegion, ...]
    outputs: tuple[MapRegion, ...]
    layers: tuple[str, ...]
    owners: tuple[int, ...]
    ends: dict[str, Any] = entry(default_factory=dict)
    batch: int = entry(1, minimum=1, maximum=MAX_FRAMES, is_brief=True)

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Tuple of each `Job` of the program, unpacked from its memory image."""
        size, variant = job_bytes(self.engine), self.engine.variant
        packed = (self.image[size * index :][:size] for index in range(len(self.owners)))
        return tuple(Job.unpack(job, variant) for job in packed)

    def __bytes__(self) -> bytes:
        """Return the complete contents of the program file: header, description as JSON, and memory image."""
        description = json.dumps(written(self, leave_out=["image"])).encode()
        body = (
            digest(self.engine).encode()
            + struct.pack("<QQ", len(description), len(self.image))
            + description
            + self.image
        )
        return MAGIC + struct.pack("<II", VERSION, zlib.crc32(body)) + body

    def write(self, path: Path) -> None:
        """Write the program to a file; a write that fails leaves an existing file unchanged."""
        draft = path.with_name(f"{path.name}.part")
        draft.write_bytes(bytes(self))
        draft.replace(path)

    @classmethod
    def read(cls, path: Path, engine: EngineConfig | None = None) -> Program:
        """Return the `Program` in a file; refuse a damaged file, or one made for another engine.

        Raises
        ------
        InputError
            If the file can't be read, is not a program, has another version, is truncated or changed, or is for another
            engine; if the engine would refuse one of its jobs.
        """
        data = content_of(path, "make it with hwgen compile", f"program {path}")
        if len(data) < _HEADER.size or not data.startswith(MAGIC):
            raise InputError(f"{path}: is not a program of hwgen, which begins with {MAGIC.decode()}")
        _, version, checksum, made_for, description_size, image_size = _HEADER.unpack_from(data)
        if version not in (*_EARLIER, VERSION):
            raise InputError(
                f"{path}: has version {version} of the format, this hwgen reads {VERSION}; compile it again"
            )
        if len(data) != _HEADER.size + description_size + image_size:
            size = _HEADER.size + description_size + image_size
            raise InputError(f"{path}: must have {size:,} bytes, not {len(data):,}; copy or compile it again")
        if zlib.crc32(data[_UNCHECKED:]) != checksum:
            raise InputError(f"{path}: has been changed or damaged, its checksum differs; copy or compile it again")
        if engine is not None and made_for.decode() != digest(engine):
            raise InputError(
                f"{path}: is for engine {made_for.decode()}, this one is {digest(engine)}; compile it for this one"
            )
        description, image = (
            data[_HEADER.size : _HEADER.size + description_size],
            data[_HEADER.size + description_size :],
        )
        program = cls._parse(Entries.parsed(description, f"{path}: its description", help="compile it again"), image)
        for fault in _faults(program):
            raise InputError(f"{path}: {fault}; compile it again")
        return program

    @classmethod
    def _parse(cls, description: Entries, image: bytes) -> Program:
        """Return the `Program` of a file's JSON description and memory image; refuse contradictory fields."""
        known = {} if "input" not in description else {"inputs": (description.value("input", MapRegion),)}
        engine, passes = description.entries("engine").exact(EngineConfig), description.value("layers", tuple[str, ...])
        rules = {
            "size": Rule(minimum=len(image), maximum=ADDRESSES),
            "owners": Rule(minimum=0, maximum=len(passes) - 1),
        }
        program = description.record(cls, rules, engine=engine, image=image, layers=passes, **known)
        program._check_addresses(description)
        return program

    def _check_addresses(self, description: Entries) -> None:
        """Refuse a program whose jobs, input or output maps exceed its memory."""
        for side, regions in (("inputs", self.inputs), ("outputs", self.outputs)):
            if not regions:
                description.refuse(f"has no {side}")
        if len(self.owners) * job_bytes(self.engine) > len(self.image):
            description.refuse(f"has {len(self.owners):,} jobs, more than the image of {len(self.image):,} bytes")
        for region in (*self.inputs, *self.outputs):
            values = region.map.type
            if not values.minimum <= region.map.zero_point <= values.maximum:
                description.refuse(f"has map {region.name!r} of {values} with zero point {region.map.zero_point}")
            if region.frame_bytes is not None and region.frame_bytes < region.size:
                description.refuse(
                    f"puts frames of map {region.name!r} only {region.frame_bytes:,} bytes apart, so that they overlap"
                )
            if (end := region.at(self.batch - 1).stop) > self.size:
                description.refuse(f"ends map {region.name!r} at byte {end:,}, beyond its memory of {self.size:,}")
        for region in self.inputs:
            if region.address < len(self.image):
                description.refuse(
                    f"puts input {region.name!r} at byte {region.address:,}, into the image of {len(self.image):,}"
                )


def _faults(program: Program) -> Iterator[str]:
    """Yield messages that say why an engine would refuse a job of the program, such as a wrong checksum."""
    job_index, end, size = 0, False, job_bytes(program.engine)
    while not end:
        sealed = program.image[job_index * size :][:size]
        packed, word = sealed[:-_WORD_BYTES], int.from_bytes(sealed[-_WORD_BYTES:], "little")
        if len(sealed) < size or word != seal(program.engine, job_index, packed):
            yield f"job {job_index} is damaged, of another engine or of another place in a program"
            return
        job = Job.unpack(packed, program.engine.variant)
        yield from faults(program.engine, job_index, job)
        yield from _escapes(program, job_index, job)
        job_index, end = job_index + 1, job.load.end
    if job_index != len(program.owners):
        yield f"describes {len(program.owners):,} jobs, but has {job_index:,}"


def _escapes(program: Program, job_index: int, job: Job) -> Iterator[str]:
    """Yield an error message for each memory access of a job that leaves the memory, or overwrites the program's image.

    The image (jobs, weights, parameters, tables) is at the beginning of the memory.
    """
    for access in accesses(program.engine):
        begin, end = access.span(job, kept=True)
        if begin < end and not end <= program.engine.kept_words * WORD:
            yield (
                f"job {job_index}: {access.address} must keep its {end - begin:,} bytes within the map memory, not "
                f"begin at {begin:,}"
            )
        begin, end = access.span(job)
        first = len(program.image) if access.writes else 0
        if begin < end and not first <= begin < end <= program.size:
            yield (
                f"job {job_index}: {access.address} must keep its {end - begin:,} bytes within {first:,} to "
                f"{program.size:,} of the program's memory, not begin at {begin:,}"
            )
