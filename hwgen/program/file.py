"""Programs as files: a header, what lies where as JSON, and the bytes that lie in memory before the first frame.

======  =====  ================================================
offset  bytes  what
======  =====  ================================================
0       8      ``hwgenPRG``
8       4      version of this format, little endian as all
12      4      CRC-32 of all that follows
16      16     digits of the engine's digest
32      8      bytes of the JSON that follows
40      8      bytes of the image behind it
======  =====  ================================================
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from hwgen.errors import ConfigError, InputError
from hwgen.fields import Entries
from hwgen.gateware.engine.check import faults
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.job import WORD_BITS, Job, accesses, digest, seal
from hwgen.network.maps import FeatureMap, IntegerType
from hwgen.program.batch import MOST_FRAMES
from hwgen.program.jobs import ADDRESSES
from hwgen.program.layout import WORD, map_bytes

MAGIC, VERSION = b"hwgenPRG", 2
#: Of programs that compute several frames: readers of the other version take programs for those of one.
BATCH_VERSION = 3
_HEADER = struct.Struct("<8sII16sQQ")
#: Bytes of the header that the checksum doesn't cover.
_UNCHECKED = 16
_WORD_BYTES = WORD_BITS // 8


@dataclass(frozen=True, kw_only=True)
class Region:
    """A map that the host writes or reads, and its address; that of the next frame lies ``frame_bytes`` behind it, or
    at its end if they are not given."""

    name: str
    map: FeatureMap
    address: int
    frame_bytes: int | None = None

    @property
    def size(self) -> int:
        """Bytes of a frame."""
        return map_bytes(self.map)

    def at(self, frame: int) -> slice:
        """The bytes of a frame in memory."""
        begin = self.address + frame * (self.frame_bytes or self.size)
        return slice(begin, begin + self.size)


@dataclass(frozen=True, kw_only=True)
class Program:
    """What an engine needs to compute frames of a network.

    Parameters
    ----------
    name : str
        The network's.
    engine : EngineConfig
    image : bytes
        What lies in memory from address 0 on before the first frame, the first job first.
    size : int
        Bytes of memory, maps included.
    input : Region
    outputs : tuple of Region
    layers : tuple of str
        Of each pass the layer.
    owners : tuple of int
        Of each job the pass.
    ends : dict
        The model's tensors at both ends, as ``plan.json`` has them: by these, software quantises and dequantises.
    batch : int
        Frames of a run.
    """

    name: str
    engine: EngineConfig
    image: bytes
    size: int
    input: Region
    outputs: tuple[Region, ...]
    layers: tuple[str, ...]
    owners: tuple[int, ...]
    ends: dict[str, Any] = field(default_factory=dict)
    batch: int = 1

    @property
    def jobs(self) -> tuple[Job, ...]:
        packed = (self.image[Job.BYTES * number :][: Job.BYTES] for number in range(len(self.owners)))
        return tuple(map(Job.unpack, packed))

    @property
    def version(self) -> int:
        """Of its file."""
        return VERSION if self.batch == 1 else BATCH_VERSION

    def __bytes__(self) -> bytes:
        """The contents of the file."""
        told = json.dumps(
            {
                "name": self.name,
                "engine": asdict(self.engine),
                "size": self.size,
                "input": _told(self.input),
                "outputs": [_told(each) for each in self.outputs],
                "layers": self.layers,
                "owners": self.owners,
                "ends": self.ends,
                **({"batch": self.batch} if self.batch > 1 else {}),
            }
        ).encode()
        body = digest(self.engine).encode() + struct.pack("<QQ", len(told), len(self.image)) + told + self.image
        return MAGIC + struct.pack("<II", self.version, zlib.crc32(body)) + body

    def write(self, path: Path) -> None:
        """Write the file, or leave what was there."""
        draft = path.with_name(f"{path.name}.part")
        draft.write_bytes(bytes(self))
        draft.replace(path)

    @classmethod
    def read(cls, path: Path, engine: EngineConfig | None = None) -> Program:
        """Read a file, for this engine if one is given.

        Raises
        ------
        InputError
            If it can't be read, is none, of another version, cut off or changed, or for another engine; if a job is one
            that engines refuse.
        """
        try:
            data = path.read_bytes()
        except (OSError, ValueError) as error:  # a name with a zero in it is no OSError
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"program {path} can't be read: {reason}; make it with hwgen compile") from None
        if len(data) < _HEADER.size or not data.startswith(MAGIC):
            raise InputError(f"{path}: is not a program of hwgen, which begins with {MAGIC.decode()}")
        _, version, checksum, made_for, told_size, image_size = _HEADER.unpack_from(data)
        if version not in (VERSION, BATCH_VERSION):
            raise InputError(
                f"{path}: has version {version} of the format, this hwgen reads {VERSION} and {BATCH_VERSION}; "
                "compile it again"
            )
        if len(data) != _HEADER.size + told_size + image_size:
            size = _HEADER.size + told_size + image_size
            raise InputError(f"{path}: has {len(data):,} bytes where {size:,} should be; copy or compile it again")
        if zlib.crc32(data[_UNCHECKED:]) != checksum:
            raise InputError(f"{path}: has been changed or damaged, its checksum differs; copy or compile it again")
        if engine is not None and made_for.decode() != digest(engine):
            raise InputError(
                f"{path}: is for engine {made_for.decode()}, this one is {digest(engine)}; compile it for this one"
            )
        told, image = data[_HEADER.size : _HEADER.size + told_size], data[_HEADER.size + told_size :]
        program = cls._of(Entries.parsed(told, f"{path}: its description", help="compile it again"), image)
        if version != program.version:  # which the checksum doesn't cover
            raise InputError(
                f"{path}: has been changed: its version is not that of its frames; copy or compile it again"
            )
        for fault in _faults(program):
            raise InputError(f"{path}: {fault}; compile it again")
        return program

    @classmethod
    def _of(cls, told: Entries, image: bytes) -> Program:
        """Return the program of a description whose fields fit each other and the image."""
        known = [each.name for each in fields(EngineConfig)]
        try:
            engine = EngineConfig(**told.entries("engine").sizes(known))
        except ConfigError as error:
            told.refuse(f"describes no engine: {error}")
        layers = told.texts("layers")
        program = cls(
            name=told.text("name"),
            engine=engine,
            image=image,
            size=told.integer("size", len(image), ADDRESSES),
            input=_region(told.entries("input")),
            outputs=tuple(map(_region, told.objects("outputs"))),
            layers=layers,
            owners=told.integers("owners", 0, len(layers) - 1),
            ends=dict(told.entries("ends", {}).values),
            batch=told.integer("batch", 1, MOST_FRAMES, default=1),
        )
        program._check_places(told)
        return program

    def _check_places(self, told: Entries) -> None:
        """Refuse jobs and maps that don't lie in memory."""
        if not self.outputs:
            told.refuse("has no outputs")
        if len(self.owners) * Job.BYTES > len(self.image):
            told.refuse(f"has {len(self.owners):,} jobs, more than the image of {len(self.image):,} bytes")
        for region in (self.input, *self.outputs):
            if region.frame_bytes is not None and region.frame_bytes < region.size:
                told.refuse(f"puts frames of map {region.name!r} {region.frame_bytes:,} bytes apart, into each other")
            if (end := region.at(self.batch - 1).stop) > self.size:
                told.refuse(f"ends map {region.name!r} at byte {end:,}, behind its memory of {self.size:,}")
        if self.input.address < len(self.image):
            told.refuse(f"puts the input at byte {self.input.address:,}, into the image of {len(self.image):,}")


def _faults(program: Program) -> Iterator[str]:
    """For what an engine would refuse the program's jobs."""
    number, end = 0, False
    while not end:
        sealed = program.image[number * Job.BYTES :][: Job.BYTES]
        packed, word = sealed[:-_WORD_BYTES], int.from_bytes(sealed[-_WORD_BYTES:], "little")
        if len(sealed) < Job.BYTES or word != seal(program.engine, number, packed):
            yield f"job {number} is damaged, of another engine or of another place in a program"
            return
        job = Job.unpack(packed)
        yield from faults(program.engine, number, job)
        yield from _escapes(program, number, job)
        number, end = number + 1, job.load.end
    if number != len(program.owners):
        yield f"describes {len(program.owners):,} jobs, but has {number:,}"


def _escapes(program: Program, job_index: int, job: Job) -> Iterator[str]:
    """Yield which bytes a job accesses outside of the program's memory, or writes inside its image."""
    for access in accesses(program.engine):
        begin, end = access.span(job)
        first = len(program.image) if access.writes else 0
        if begin < end and not first <= begin < end <= program.size:
            yield (
                f"job {job_index}: {access.address} must keep its {end - begin:,} bytes within {first:,} to "
                f"{program.size:,} of the program's memory, not begin at {begin:,}"
            )


def _told(region: Region) -> dict[str, Any]:
    return {name: value for name, value in asdict(region).items() if name != "frame_bytes" or value is not None}


def _region(told: Entries) -> Region:
    """Return a map of at most 8 bits and its place."""
    entry = told.entries("map")
    number = entry.entries("type")
    kind = IntegerType(bits=number.integer("bits", 1, LANES), signed=number.flag("signed"))
    try:
        source = FeatureMap(
            channels=entry.integer("channels", 1),
            height=entry.integer("height", 1),
            width=entry.integer("width", 1),
            type=kind,
            zero_point=entry.integer("zero_point", kind.minimum, kind.maximum, default=0),
            scale=entry.number("scale", None),
        )
    except ConfigError as error:
        entry.refuse(f"is no map: {error}")
    return Region(
        name=told.text("name"),
        map=source,
        address=_address(told, "address"),
        frame_bytes=_address(told, "frame_bytes") if "frame_bytes" in told else None,
    )


def _address(told: Entries, key: str) -> int:
    """Return a place in memory, where a word begins."""
    address = told.integer(key, 0, ADDRESSES - 1)
    if address % WORD:
        told.refuse(f"must be a multiple of {WORD}, not {address:,}", key)
    return address
