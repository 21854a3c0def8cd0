"""Python driver of a programmable engine on a board, with NumPy arrays as inputs and outputs.

hwgen writes this file into the folder of an engine. The driver reads ``registers.json`` in the same folder, and
programs. It needs Python 3.10 and NumPy, but not hwgen. On a board::

    from engine_driver import connect

    engine = connect()
    engine.load("NAME.program")
    outputs = engine.run(frames)

`connect` uses PYNQ if it is installed, and otherwise drivers of the Linux kernel; on a PCI Express card, XDMA's.
`Engine` takes objects of another overlay as well.
"""

from __future__ import annotations

import asyncio
import math
import struct
import time
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hwgen.emit.board_driver import (
    _MAX_VALUE,
    DriverError,
    Hardware,
    Tensor,
    _check_frames,
    _connect,
    _Fields,
    _fields,
    _log,
    _parsed,
    _tensors,
)

#: Versions of the program format that this driver reads. Programs of versions 2 and 3 have one input, ``input``.
PROGRAM_VERSIONS = (2, 3, 4, 5)

#: Header of an engine program file: letters, version, CRC-32 of the bytes after it, digest of the engine, and the sizes
#: in bytes of the JSON object and of the image that follow.
_HEADER = struct.Struct("<8sII16sQQ")
#: Number of bytes at the beginning of an engine program file that its CRC-32 does not cover.
_UNCHECKED = 16
#: Alignment of an engine program in memory, in bytes.
_PAGE = 4096
#: Size of the checksum and engine digest at the end of an engine's job (descriptor), in bytes.
_JOB_SEAL = 8
#: Size of a word of an engine's feature maps, in bytes: 8 channels of a pixel.
_LANES = 8
#: Largest number of rows or columns of an unfolded input map.
_MAX_SIDE = (1 << 16) - 1


class Engine(Hardware):
    """Driver of the programmable engine on a board, which computes frames with a program in memory.

    Parameters
    ----------
    registers : object
        Object with ``read(offset)`` and ``write(offset, value)``: PYNQ's ``DefaultIP`` or ``MMIO``.
    allocate : callable
        Function ``allocate(shape=.., dtype=..)`` that returns a buffer for the engine: ``pynq.allocate``. The buffer
        has ``physical_address``. If the processor has caches, the buffer and its slices have ``flush()`` and
        ``invalidate()``.
    folder : path, optional
        Folder of the design. The default is the folder of this file.
    timeout : float
        Number of seconds per frame of a run after which the run fails.
    interrupt : object, optional
        Object with an awaitable ``wait()``, for `run_async`: PYNQ's ``Interrupt``.
    overlap : bool
        Whether the next frame is written and the last one read while one is computed. The program is then in memory
        twice, if there is room.

    Raises
    ------
    DriverError
        If the hardware is not the design of the folder.
    """

    _KIND, _IDENTITY = "engine", 0x48574745

    def __init__(self, registers, *, allocate, folder=None, timeout=10.0, interrupt=None, overlap=True):
        self._folder = Path(folder) if folder else Path(__file__).parent
        super().__init__(registers, self._folder)
        self._allocate, self._timeout, self._interrupt, self._overlap = allocate, timeout, interrupt, overlap
        # Frames per run, image, inputs and outputs of the loaded program, and memories that each hold it.
        self._batch, self._image = 1, b""
        self._memories: list[Any] = []
        self._inputs: list[Tensor] = []
        self._outputs: list[Tensor] = []
        self._check()
        self.stop()
        self.write("INTERRUPT_ENABLE", 0 if interrupt is None else self._bits("INTERRUPT_STATUS.DONE"))

    def load(self, program):
        """Load an engine program from a file into memory, replacing the previous program.

        Parameters
        ----------
        program : path
            File that ``hwgen build`` or ``hwgen compile`` wrote, relative to the current folder or to the folder of
            the design.

        Raises
        ------
        DriverError
            If the file can't be read, is not a program, is damaged, or is a program for another engine.
        """
        path = Path(program)
        told, image = _read_program(path if path.exists() else self._folder / path, self._fields.fields("engine"))
        size, batch = told.integer("size", len(image), 1 << 32), told.integer("batch", 1, default=1)
        ends = told.fields("ends") if told.has("ends") else None
        inputs, outputs = (
            _tensors(ends, side, _regions(told, f"{side}s", batch, size)) for side in ("input", "output")
        )
        self.stop()
        memory = self._load_image(image, size)
        self._memories = []  # so that no program runs if this is interrupted
        self._inputs, self._outputs, self._batch, self._image = inputs, outputs, batch, image
        self._memories = [memory]

    def _load_image(self, image, size):
        """Allocate a memory buffer of ``size`` bytes for an engine program, write the image into it, and return it."""
        try:
            memory = self._allocate(shape=(size,), dtype=np.uint8)
        except (MemoryError, OSError, RuntimeError) as error:
            raise DriverError(f"there are no {size:,} bytes of memory for the program: {error}") from error
        address = memory.physical_address
        if address % _PAGE or address + size > 1 << 32:
            raise DriverError(
                f"the buffer of the program must lie on a multiple of {_PAGE} below 4 GiB, not at {address:#x}; "
                "allocate it with pynq.allocate"
            )
        memory[: len(image)] = np.frombuffer(image, np.uint8)
        _synchronise(memory, "flush")
        return memory

    def _memories_for(self, runs):
        """Return the buffers, each with the program, for ``runs`` runs: two in turn, or one if memory is short."""
        if self._overlap and runs > 1 and len(self._memories) < 2:
            try:
                self._memories.append(self._load_image(self._image, len(self._memories[0])))
            except DriverError as error:
                self._overlap = False
                _log.info("frames are not written and read while others are computed: %s", error)
        return self._memories[:runs]

    def run(self, *x, integers=False):
        """Compute frames on the engine, polling its status; return the model's outputs, an array or a tuple of arrays.

        Parameters
        ----------
        x : ndarray
            Frames ``(n, ...)`` in the model's shape, for each input: integers, or floats, which are quantised.
        integers : bool
            Whether outputs are the integers of the hardware, and not the dequantised floats.

        Returns
        -------
        ndarray, or tuple of ndarray
            Frames ``(n, ...)`` in the model's shape, for each output.

        Raises
        ------
        DriverError
            If the arrays do not fit, which is checked before the first run, if there is no program, if the engine
            reports an error, or if a frame takes longer than the timeout. The engine is then stopped, and also if the
            run is interrupted.
        """
        outputs, frames = [], self._check_frames(x)
        with self._stop_on_failure():
            for _ in self._start_batches(frames, outputs):
                end = time.monotonic() + self._timeout * self._batch
                while not self._is_done():
                    if time.monotonic() > end:
                        self._give_up()
        return self._result(outputs, integers)

    async def run_async(self, *x, integers=False):
        """Compute frames on the engine like `run`, but wait for the interrupt at the end of each run.

        Raises
        ------
        DriverError
            If the driver has no interrupt object, and in the cases of `run`.
        """
        if self._interrupt is None:
            raise DriverError(
                "no interrupt was given to wait for: Engine(.., interrupt=overlay.engine_axi_0.interrupt)"
            )
        outputs, frames = [], self._check_frames(x)
        with self._stop_on_failure():
            for _ in self._start_batches(frames, outputs):
                end = time.monotonic() + self._timeout * self._batch
                while not self._is_done():
                    try:
                        await asyncio.wait_for(self._interrupt.wait(), max(0, end - time.monotonic()))
                    except asyncio.TimeoutError:  # noqa: UP041 (not the same in Python 3.10)
                        self._give_up()
        return self._result(outputs, integers)

    @contextmanager
    def _stop_on_failure(self):
        """Stop the engine if the body of the ``with`` statement fails or is interrupted.

        Otherwise the engine would continue to write into memory.
        """
        try:
            yield
        except BaseException:
            self.stop()
            raise

    def stop(self):
        """Stop the engine as soon as memory has answered all outstanding transactions."""
        self.write("CONTROL", self._bits("CONTROL.STOP"))
        end = time.monotonic() + self._timeout
        while self.read("STATUS") & self._bits("STATUS.BUSY"):
            if time.monotonic() > end:
                raise DriverError(f"the engine can't be stopped, as memory does not answer: {self._state()}")

    def counters(self):
        """Return a dictionary of counts (frames, cycles, traffic) since the last reset, by register name."""
        counted = ("FRAMES", "FAILURES", "FRAME_CYCLES", "READ", "WRITTEN", "STALLED")
        return {**{name: self.read(name) for name in self._offsets if name.endswith(counted)}, "CYCLES": self._cycles()}

    def _check_frames(self, x):
        """Return the user's frames as a list of arrays, one per input; refuse frames unfit for the loaded program."""
        if not self._memories:
            raise DriverError("there is no program: load() one that hwgen build or hwgen compile wrote")
        return _check_frames(x, self._inputs)

    def _start_batches(self, frames, outputs):
        """Start a run of the engine per batch of frames; yield each time the caller must await a run's end.

        With two memories the frames of the next run are written, and the maps of the last run are read, during a run.
        The output maps of each frame are appended to ``outputs``.
        """
        self.stop()  # another program can have left a run
        begins = range(0, len(frames[0]), self._batch)
        batches = [[values[first : first + self._batch] for values in frames] for first in begins]
        memories = self._memories_for(len(batches))
        self._write_maps(memories[0], self._pack_frames(batches[0]))
        for index, batch in enumerate(batches):
            memory, other = (memories[run % len(memories)] for run in (index, index + 1))
            self.write("PROGRAM_BASE", memory.physical_address)
            self.write("INTERRUPT_STATUS", 0xFFFFFFFF)
            self.write("CONTROL", self._bits("CONTROL.START"))
            if index and other is not memory:
                outputs += self._read_maps(other, len(batches[index - 1][0]))
            packed = self._pack_frames(batches[index + 1]) if index + 1 < len(batches) else None
            if packed and other is not memory:
                self._write_maps(other, packed)
            yield
            self._raise_error(index * self._batch, len(batch[0]))
            if other is memory:
                outputs += self._read_maps(memory, len(batch[0]))
                if packed:
                    self._write_maps(memory, packed)
        if len(memories) > 1:
            outputs += self._read_maps(memory, len(batch[0]))

    def _raise_error(self, first, count):
        """Raise DriverError if an error ended the engine's run of ``count`` frames, whose first has index ``first``."""
        if code := self.read("ERROR"):
            errors = self._fields.fields("engine").fields("errors")
            about = errors.text(str(code)) if errors.has(str(code)) else "unknown"
            which = f"frame {first} was" if count == 1 else f"frames {first} to {first + count - 1} were"
            raise DriverError(f"{which} ended by error {code}: {about}")

    def _pack_frames(self, frames):
        """Return a list by input of lists by frame: byte arrays in the order that the engine reads."""
        return [
            [end.stream.pack(frame_map) for frame_map in end.to_maps(values)]
            for end, values in zip(self._inputs, frames, strict=True)
        ]

    def _write_maps(self, memory, packed):
        """Write the packed frames of each input into the memory buffer of a program."""
        for end, maps in zip(self._inputs, packed, strict=True):
            region, slices = end.stream.places(len(maps))
            region_memory = memory[region]
            for frame_bytes, frame in zip(slices, maps, strict=True):
                region_memory[frame_bytes] = frame
            _synchronise(region_memory, "flush")

    def _read_maps(self, memory, count):
        """Return a list of a tuple per frame of a run: the array read from memory for each output of the network."""
        return list(zip(*(self._unpack_frames(end, memory, count) for end in self._outputs), strict=True))

    def _unpack_frames(self, end, memory, count):
        """Return the list of the ``count`` frames that a run of the engine wrote into memory for one output."""
        region, slices = end.stream.places(count)
        region_memory = memory[region]
        _synchronise(region_memory, "invalidate")
        maps = [end.stream.unpack(np.asarray(region_memory[frame_bytes])) for frame_bytes in slices]
        return [end.from_maps(frame_map[None])[0] for frame_map in maps]

    def _is_done(self):
        return self.read("STATUS") & self._bits("STATUS.DONE")

    def _give_up(self):
        raise DriverError(f"a frame took more than {self._timeout:g} s: {self._state()}")

    def _state(self):
        names = {"STATUS": self.read("STATUS"), "ERROR": self.read("ERROR"), **self.counters()}
        return ", ".join(f"{name} {value}" for name, value in names.items())

    def _result(self, outputs, integers):
        """Return the model's outputs, an array or a tuple of arrays, from all frames' maps; integers on request."""
        arrays = [np.stack(maps) for maps in zip(*outputs, strict=True)]
        if not integers:
            arrays = [end.to_floats(values) for end, values in zip(self._outputs, arrays, strict=True)]
        return arrays[0] if len(arrays) == 1 else tuple(arrays)


class _Unfold:
    """Memory layout of an input stored unfolded (im2col): pixels of a window are channels of one pixel.

    Parameters
    ----------
    told : _Fields
        Entry ``unfold`` of an input of a program.
    """

    def __init__(self, told):
        self._height, self._width = (told.integer(name, 1, _MAX_SIDE) for name in ("height", "width"))
        axes = (("rows", "row_step", "top"), ("columns", "column_step", "left"))
        self._rows, self._columns = (
            tuple(told.integer(name, least, _MAX_SIDE) for name, least in zip(names, (1, 1, 0), strict=True))
            for names in axes
        )
        self._outside = (told.integer("outside", 0, 255) ^ 128) - 128

    def shape(self, channels):
        """Return channels, height and width of the unfolded map in memory, for an input with ``channels`` channels."""
        return self._rows[0] * self._columns[0] * channels, self._height, self._width

    def apply(self, frame, offset):
        """Unfold a feature map ``(C, H, W)`` into the map that memory stores, and return it.

        Padding becomes the stored padding value plus ``offset``.
        """
        row, row_inside = self._windows(self._rows, self._height, frame.shape[1])
        column, column_inside = self._windows(self._columns, self._width, frame.shape[2])
        values = frame[:, row[:, :, None, None], column]
        outside = frame.dtype.type(self._outside + offset)
        values = np.where(row_inside[:, :, None, None] & column_inside, values, outside)
        return values.transpose(4, 2, 0, 1, 3).reshape(-1, self._height, self._width)

    @staticmethod
    def _windows(taps, count, size):
        """Return two arrays ``(count, taps)``: windows' rows or columns, clipped to the map, and if they lie in it."""
        count_of_taps, step, before = taps
        windows = np.arange(count)[:, None] * step + np.arange(count_of_taps) - before
        return np.clip(windows, 0, size - 1), (windows >= 0) & (windows < size)


class Region:
    """Place of a feature map in an engine program's memory: byte address, size and layout.

    The map has blocks of 8 channels, each row by row, with signed values. A row has a row for each byte of the values,
    the highest byte first. An input can be unfolded: channels of a pixel in memory are then rows and columns of the
    map.

    Parameters
    ----------
    told : dict
        Entry of ``inputs`` or ``outputs`` of a program.
    """

    def __init__(self, told):
        told = _fields(told, "a map")
        described = told.fields("map")
        value_type = described.fields("type")
        self.name, self.address = told.text("name"), told.integer("address", 0, 1 << 32)
        if self.address % _LANES:
            told.refuse("address", f"a multiple of {_LANES}")
        self.shape = tuple(described.integer(size, 1) for size in ("channels", "height", "width"))
        self.scale = described.scale("scale")
        self.zero_point = described.integer("zero_point", -_MAX_VALUE, _MAX_VALUE)
        is_signed = value_type.flag("signed")
        bits = value_type.integer("bits", 1, 32)
        count = -(-bits // 8)
        self.dtype = np.dtype(f"{'int' if is_signed else 'uint'}{8 * (4 if count > 2 else count)}")
        span = 1 << bits
        self.range = (-span >> 1, (span >> 1) - 1) if is_signed else (0, span - 1)
        self._offset = 0 if is_signed else 128
        self._half = 1 << 8 * count - 1 if is_signed else 0
        # Lowest bit of each byte of a value, and the byte's bit that is inverted in memory, the highest byte first.
        self._bytes = [(8 * (count - 1 - row), 0x80 * (row > 0 or not is_signed)) for row in range(count)]
        self._unfold = _Unfold(told.fields("unfold")) if told.has("unfold") else None
        channels, height, width = self._unfold.shape(self.shape[0]) if self._unfold else self.shape
        self._words = (-(-channels // _LANES), height, count, width, _LANES)
        self.size = math.prod(self._words)
        self._frame_bytes = told.integer("frame_bytes", self.size, 1 << 32, default=self.size)
        if self._frame_bytes % _LANES:
            told.refuse("frame_bytes", f"a multiple of {_LANES}")

    def end(self, frames):
        """Return the byte address after the last of ``frames`` frames of the map, relative to the program's base."""
        return self.address + (frames - 1) * self._frame_bytes + self.size

    def places(self, frames):
        """Return a pair: the slice of memory (bytes) with ``frames`` frames, and a list of each frame's slice in it."""
        begins = range(0, frames * self._frame_bytes, self._frame_bytes)
        return slice(self.address, self.end(frames)), [slice(begin, begin + self.size) for begin in begins]

    def pack(self, frame):
        """Return the bytes of a feature map ``(C, H, W)`` in the order that the engine reads from memory.

        Lanes past the last channel are 0.
        """
        blocks, height, count, width, lanes = self._words
        if self._unfold:
            frame = self._unfold.apply(frame, self._offset)
        padded = np.zeros((blocks * lanes, height, count, width), np.uint8)
        for row, (shift, inverted) in enumerate(self._bytes):
            padded[: len(frame), :, row] = (frame.astype(np.int64) >> shift ^ inverted) & 0xFF
        return padded.reshape(blocks, lanes, height, count, width).transpose(0, 2, 3, 4, 1).ravel()

    def unpack(self, values):
        """Return the feature map ``(C, H, W)`` from bytes in the order that the engine writes into memory."""
        _, height, count, width, _ = self._words
        words = values.view(np.uint8).reshape(self._words).transpose(0, 4, 1, 2, 3)
        stored = words.reshape(-1, height, count, width)[: self.shape[0]]
        whole = np.zeros((self.shape[0], height, width), np.int64)
        for row, (shift, inverted) in enumerate(self._bytes):
            whole |= (stored[:, :, row].astype(np.int64) ^ inverted) << shift
        return ((whole ^ self._half) - self._half).astype(self.dtype)


def _regions(told, side, frames, size):
    """Return a list of the memory `Region` of each of a program's inputs, or outputs; refuse one outside its memory.

    Parameters
    ----------
    told : _Fields
        Description of the program.
    side : str
        Entry of the description, ``inputs`` or ``outputs``.
    frames : int
        Number of frames of a run.
    size : int
        Number of bytes of the program's memory.
    """
    regions, is_earlier = [], side == "inputs" and told.has("input")
    for fields in [told.fields("input")] if is_earlier else told.objects(side):
        regions.append(Region(fields))
        if regions[-1].end(frames) > size:
            fields.refuse("address", f"such that {frames:,} frames end within the program's {size:,} bytes")
    if not regions:
        told.refuse(side, "a list of one object or more")
    return regions


def _read_program(path, engine):
    """Read and check an engine program file; return a reader of its JSON object, and its memory image as bytes.

    Refuse a program that is damaged or for another engine.

    Parameters
    ----------
    path : Path
        File of the program.
    engine : _Fields
        Object ``engine`` of ``registers.json``.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DriverError(f"program {path} can't be read: {error.strerror}; make it with hwgen compile") from None
    if len(data) < _HEADER.size or not data.startswith(b"hwgenPRG"):
        raise DriverError(f"{path} is not a program of hwgen")
    _, version, checksum, made_for, told_size, image_size = _HEADER.unpack_from(data)
    if version not in PROGRAM_VERSIONS:
        known = ", ".join(map(str, PROGRAM_VERSIONS))
        raise DriverError(f"{path} has version {version} of the format, this driver reads {known}")
    size = _HEADER.size + told_size + image_size
    if len(data) != size:
        raise DriverError(f"{path} must have {size:,} bytes, not {len(data):,}; copy or compile it again")
    if zlib.crc32(data[_UNCHECKED:]) != checksum:
        raise DriverError(f"{path} has been changed or damaged, its checksum differs; copy or compile it again")
    digest = engine.digest("digest")
    if made_for != digest.encode():
        made_for = made_for.decode("ascii", "backslashreplace")
        raise DriverError(f"{path} is for engine {made_for}, this one is {digest}; compile it for this one")
    told = _Fields(_parsed(data[_HEADER.size : _HEADER.size + told_size], path), str(path))
    image, job_bytes = data[_HEADER.size + told_size :], engine.integer("job_bytes", _JOB_SEAL + 1)
    accesses = [_Access(fields, 8 * job_bytes) for fields in engine.objects("accesses")]
    memory_bytes, is_last = told.integer("size", len(image), 1 << 32), False
    end_bit = engine.integer("end_bit", 0, 8 * job_bytes - 1)
    for index in range(len(told.integers("owners"))):
        job = image[index * job_bytes :][:job_bytes]
        wanted = (zlib.crc32(job[:-_JOB_SEAL]) ^ index) << 32 | int(digest[:8], 16)
        if len(job) < job_bytes or int.from_bytes(job[-_JOB_SEAL:], "little") != wanted:
            raise DriverError(f"{path}: job {index} is damaged or of another engine; compile it again")
        fields = int.from_bytes(job, "little")
        if not all(access.lies_in(fields, len(image), memory_bytes) for access in accesses):
            raise DriverError(f"{path}: job {index} accesses memory outside of the program; compile it again")
        is_last = bool(fields >> end_bit & 1)
    if not is_last:  # otherwise the engine would continue with unchecked jobs
        told.refuse("owners", "a list of all jobs, up to the last one of the program")
    return told, image


class _Access:
    """Memory access of an engine's job: which job fields hold its address, words, rows and blocks.

    Parameters
    ----------
    described : _Fields
        Entry of ``accesses`` in ``registers.json``, with the offset and width of each field in a job, in bits.
    job_bits : int
        Size of a job, in bits.
    """

    def __init__(self, described, job_bits):
        self._word_bytes, self._writes = described.integer("word_bytes", 1), described.flag("writes")
        self._fields = {
            name: tuple(described.integers(name, 2, 0, job_bits))
            for name in (
                *("address", "words", "rows", "row_stride", "blocks", "block_stride"),
                *("repeats", "teams", "team_stride", "top", "advance", "height", "kept"),
            )
            if described.has(name)
        }

    def lies_in(self, job, image_bytes, memory_bytes):
        """Return whether a job's access stays in the program's memory, and past its image if it writes.

        The engine counts rows down to 1, so a row count of 0 means one row more than the field's largest value.

        Parameters
        ----------
        job : int
            Bits of the job.
        image_bytes, memory_bytes : int
            Size of the program's image, and of its memory, in bytes.
        """
        blocks, rows, words = (self._value(job, name) for name in ("blocks", "rows", "words"))
        if blocks == 0 or words == 0 or ("kept" in self._fields and self._value(job, "kept")):
            return True  # nothing is accessed, or the engine's map memory
        if rows == 0:
            rows = 1 << self._fields["rows"][1]
        strides = (blocks - 1) * self._value(job, "block_stride")
        row_bytes = words * (self._value(job, "repeats") or 1) * self._word_bytes
        lowest, row_stride = image_bytes if self._writes else 0, self._value(job, "row_stride")
        for team in range(self._value(job, "teams") or 1):
            first, end = self._rows_in_map(job, team, rows)
            begin = self._value(job, "address") + team * self._value(job, "team_stride") + first * row_stride
            begin %= 1 << 32
            bytes_moved = strides + (end - first - 1) * row_stride + row_bytes
            if first < end and not lowest <= begin <= begin + bytes_moved <= memory_bytes:
                return False
        return True

    def _rows_in_map(self, job, team, rows):
        """Return (first, end): an access's rows that lie in the map, counted from its first row; ``end`` excluded."""
        height = self._value(job, "height") if "height" in self._fields else 0
        if not height:
            return 0, rows
        top = (self._value(job, "top") + (1 << 15)) % (1 << 16) - (1 << 15)  # signed, of 16 bits
        top += team * self._value(job, "advance")
        return max(-top, 0), min(height - top, rows)

    def _value(self, job, name):
        """Return the value of a job's bit field, an integer; 1 for a quantity without a field."""
        if name not in self._fields:
            return 1
        offset, width = self._fields[name]
        return job >> offset & (1 << width) - 1


def _synchronise(buffer, method):
    """Call the operation ``flush`` or ``invalidate`` of a memory buffer, if the buffer has this method."""
    try:
        getattr(buffer, method, lambda: None)()
    except (OSError, RuntimeError) as error:
        raise DriverError(f"memory can't be reached: {error}") from error


def connect(folder=None, *, through=None, **options):
    """Return a driver connected to a design's engine on this board, as hwgen's Vivado project builds it.

    With PYNQ the bitstream ``NAME.bit`` of the folder is loaded. Without PYNQ the design must have been loaded with a
    device tree overlay: its registers are UIO devices, and u-dma-buf has the memory (``NAME_linux.py``). On a PCI
    Express card the design must have been loaded, and the kernel module ``xdma`` has its devices (``NAME_xdma.py``).

    Parameters
    ----------
    folder : path, optional
        Folder of the design. The default is the folder of this file.
    through : str, optional
        Access to the hardware: ``pynq``, ``linux`` or ``xdma``. By default ``xdma`` if the folder is for it, otherwise
        ``pynq`` if it is installed. A message of the logger ``hwgen`` says which.
    **options
        Further parameters of `Engine`, such as ``timeout``.

    Returns
    -------
    Engine
        Driver, whose attribute ``through`` is the access.

    Raises
    ------
    DriverError
        If the hardware is missing, or is not the design of the folder.
    """

    def engine(registers, _dmas, **rest):
        return Engine(registers, **rest)

    return _connect(engine, folder, through, options)
