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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hwgen.errors import InputError
from hwgen.gateware.engine.check import faults
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.job import WORD_BITS, Job, digest, seal
from hwgen.network.maps import FeatureMap, IntegerType
from hwgen.program.layout import map_bytes

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
        program = cls._of(json.loads(told), image)
        if version != program.version:  # which the checksum doesn't cover
            raise InputError(
                f"{path}: has been changed: its version is not that of its frames; copy or compile it again"
            )
        for fault in _faults(program):
            raise InputError(f"{path}: {fault}; compile it again")
        return program

    @classmethod
    def _of(cls, told: dict[str, Any], image: bytes) -> Program:
        return cls(
            name=told["name"],
            engine=EngineConfig(**told["engine"]),
            image=image,
            size=told["size"],
            input=_region(told["input"]),
            outputs=tuple(map(_region, told["outputs"])),
            layers=tuple(told["layers"]),
            owners=tuple(told["owners"]),
            ends=told.get("ends", {}),
            batch=told.get("batch", 1),
        )


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
        number, end = number + 1, job.load.end


def _told(region: Region) -> dict[str, Any]:
    return {name: value for name, value in asdict(region).items() if name != "frame_bytes" or value is not None}


def _region(told: dict[str, Any]) -> Region:
    source = FeatureMap(**told["map"] | {"type": IntegerType(**told["map"]["type"])})
    return Region(name=told["name"], map=source, address=told["address"], frame_bytes=told.get("frame_bytes"))
