"""Python driver of an accelerator or an engine on a board, with NumPy arrays as inputs and outputs.

hwgen writes this file into the folder of a design. The driver reads ``registers.json`` and ``plan.json`` beside it, or
the program of an engine. It needs Python 3.10 and NumPy, but not hwgen. On a board::

    from NAME_driver import connect

    accelerator = connect()
    outputs = accelerator.run(frames)

    from engine_driver import connect

    engine = connect()
    engine.load("NAME.program")
    outputs = engine.run(frames)

`connect` uses PYNQ if it is installed, and otherwise drivers of the Linux kernel. `Accelerator` and `Engine` take
objects of another overlay as well.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import math
import re
import struct
import time
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

#: Major version of the register map that this driver is written for.
VERSION_MAJOR = 1
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
#: Largest number of values in a frame, of channels, rows or columns of a map, and of frames in a run of the engine.
_MAX_COUNT = 1 << 28
#: Largest number of rows or columns of an unfolded input map.
_MAX_SIDE = (1 << 16) - 1
#: Largest magnitude of a tensor value, and of a zero point.
_MAX_VALUE = 1 << 31
#: Number of frames that are checked at a time.
_CHECKED = 1024
#: Largest number of frames of a packet, and size in bytes that a buffer should not exceed. A large batch then has
#: several packets, so that software and hardware work at the same time, and a packet stays in a processor's cache.
_MAX_PACKET, _BUFFER_BYTES = (1 << 16) - 1, 1 << 16
#: Number of packets of a small batch, smallest size of such a packet, and smallest size of frames that are divided so,
#: both in bytes. The hardware waits for the first packet, and the program for the last one, so that small packets help.
#: But a packet costs some calls, during which the hardware computes many small frames.
_NUM_PACKETS, _MIN_PACKET_BYTES, _MIN_DIVIDED_FRAME_BYTES = 8, 1 << 14, 1 << 10
#: Bytes that a transfer of a DMA must stay below, if the DMA does not tell: its counter has at least 14 bits.
_LEAST_LIMIT = 1 << 14
#: Smallest and largest scale of a tensor, the range of float32.
_SCALES = (1.5e-45, 3.4e38)

#: Offsets of the control and status registers of an AXI DMA in simple mode (Xilinx PG021), and of the receiving
#: channel's registers.
_DMA_CONTROL, _DMA_STATUS, _DMA_RECEIVE = 0x00, 0x04, 0x30
_DMA_RESET, _DMA_IDLE = 1 << 2, 1 << 1
_DMA_ERRORS = {
    1 << 4: "a frame longer than its buffer came, or the DMA failed inside",
    1 << 5: "memory answered with an error",
    1 << 6: "there is no memory at the buffer's address",
}


_log = logging.getLogger("hwgen")


class DriverError(Exception):
    """Error of the board driver: unexpected hardware, frames or files that do not fit, or a failed run."""


class _Fields:
    """Reader of the fields of a JSON object, whose methods check the type and range of a field.

    Parameters
    ----------
    values : object
        Parsed JSON.
    where : str
        Name of the file, and of the object in the file. Each error message begins with it.

    Raises
    ------
    DriverError
        If the JSON is no object. Methods raise it if a field is missing, has another type or is out of range.
    """

    def __init__(self, values, where):
        self.where = where
        if not isinstance(values, dict):
            raise DriverError(f"{where} must be a JSON object, not {_shortened(values)}: copy or make the file again")
        self.values = values

    def refuse(self, name, wanted):
        """Raise DriverError for the JSON field ``name``, with a message that states the ``wanted`` values."""
        if name not in self.values:
            raise DriverError(f"{self.where}: there is no {name}, which must be {wanted}: copy or make the file again")
        value = _shortened(self.values[name])
        raise DriverError(f"{self.where}: {name} must be {wanted}, not {value}: copy or make the file again")

    def has(self, name):
        """Return whether a JSON field exists, and is not null."""
        return self.values.get(name) is not None

    def _checked(self, name, is_right, wanted) -> Any:
        """Return the JSON field ``name`` if ``is_right`` is true of its value, or refuse it; None if it is missing."""
        if not is_right(self.values.get(name)):
            self.refuse(name, wanted)
        return self.values.get(name)

    def _typed(self, name, expected, wanted) -> Any:
        """Return a JSON field that must have the type ``expected``."""
        return self._checked(name, lambda value: isinstance(value, expected), wanted)

    def integer(self, name, low=0, high=_MAX_COUNT, default=None):
        """Return a JSON field that must be an integer from ``low`` to ``high``.

        A field that is missing or null gives ``default``.
        """
        if default is not None and not self.has(name):
            return default
        return self._checked(name, lambda value: _is_integer(value, low, high), f"an integer from {low:,} to {high:,}")

    def integers(self, name, count=None, low=0, high=_MAX_COUNT):
        """Return a JSON field that must be a list of integers from ``low`` to ``high``.

        It must have ``count`` entries unless ``count`` is None.
        """
        amount = "" if count is None else f"{count} "
        wanted = f"a list of {amount}integers from {low:,} to {high:,}"
        return self._checked(name, lambda values: _are_integers(values, count, low, high), wanted)

    def spans(self, name, size, count=2):
        """Return a JSON field that must be a list of spans: lists of first, end (and more) within 0 to ``size``.

        Each is a list of ``count`` integers.
        """

        def are_spans(spans):
            return isinstance(spans, list) and spans and all(_is_span(span, size, count) for span in spans)

        return self._checked(name, are_spans, f"a list of spans, {count} integers each, within 0 to {size:,}")

    def scale(self, name):
        """Return a JSON field that must be a positive number of float32, or None for null."""
        if name in self.values and not self.has(name):
            return None
        return float(self._checked(name, _is_scale, "a positive number of float32, or null"))

    def text(self, name):
        """Return a JSON field that must be a string."""
        return self._typed(name, str, "a string")

    def digest(self, name):
        """Return a JSON field that must be a string of 16 hexadecimal digits."""
        self.text(name)
        return self._checked(name, lambda text: re.fullmatch("[0-9a-f]{16}", text), "16 hexadecimal digits")

    def flag(self, name):
        """Return a JSON field that must be a boolean."""
        return self._typed(name, bool, "true or false")

    def fields(self, name):
        """Return the object in the JSON field ``name`` as checked fields."""
        return _Fields(self._typed(name, dict, "an object"), f"{self.where}: {name}")

    def objects(self, name):
        """Return, as checked fields, each object in a JSON field that must be a list of objects."""
        entries = self._typed(name, list, "a list of objects")
        return [_Fields(entry, f"{self.where}: {name}[{index}]") for index, entry in enumerate(entries)]


def _is_integer(value, low, high):
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _are_integers(values, count, low, high):
    is_list = isinstance(values, list) and len(values) == (len(values) if count is None else count)
    return is_list and all(_is_integer(value, low, high) for value in values)


def _is_span(value, size, count):
    """Return whether a JSON value is a list of ``count`` integers from 0 to ``size``, the first below the second."""
    return _are_integers(value, count, 0, size) and value[0] < value[1]


def _is_scale(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and _SCALES[0] < value < _SCALES[1]


def _mask(field):
    """Return the bit mask of a field of a hardware register, from the field's JSON description."""
    low, bits = field.integer("low", 0, 31), field.integer("bits", 1, 32)
    return ((1 << bits) - 1) << low


def _shortened(value):
    """Return a JSON value as text of at most 40 ASCII characters, for an error message."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _fields(described, where):
    """Convert a dictionary to checked JSON fields, and leave fields that were read from a file unchanged."""
    return described if isinstance(described, _Fields) else _Fields(described, where)


class Stream:
    """Memory layout of a feature map ``(C, H, W)`` that a DMA transfers to or from an accelerator.

    Parameters
    ----------
    described : dict
        Entry of ``inputs`` or ``outputs`` in ``registers.json``.
    """

    #: Default scale and zero point, for a stream whose JSON description does not state them.
    scale, zero_point = None, 0

    def __init__(self, described):
        described = _fields(described, "a stream")
        layout = described.fields("layout")
        self.name = described.text("name")
        self.shape = tuple(layout.integer(size, 1) for size in ("channels", "height", "width"))
        is_signed, value_bytes = described.flag("signed"), described.integer("value_bytes", 1, 8)
        if value_bytes not in (1, 2, 4, 8):
            described.refuse("value_bytes", "1, 2, 4 or 8")
        self.dtype = np.dtype(f"<{'i' if is_signed else 'u'}{value_bytes}")
        span = 1 << described.integer("value_bits", 1, 8 * value_bytes)
        self.range = (-span >> 1, (span >> 1) - 1) if is_signed else (0, span - 1)
        self.frame_bytes = described.integer("frame_bytes", 1)
        # Every frame begins with a new word of the bus.
        word_bytes = described.integer("bytes", value_bytes, 16)
        self.memory_bytes = -(-self.frame_bytes // word_bytes) * word_bytes
        channels, height, width = self.shape
        pixels, folds = layout.integer("pixels", 1), layout.spans("folds", channels)
        rows, columns = layout.spans("rows", height), layout.spans("columns", width, 3)
        beats = sum(max(0, -(-(right - first) // pixels)) for _, right, first in columns)
        values = sum(end - first for first, end in folds) * sum(end - first for first, end in rows) * beats * pixels
        if values * value_bytes != self.frame_bytes or math.prod(self.shape) > _MAX_COUNT:
            described.refuse("frame_bytes", "the bytes of the frame that layout describes")
        self.places = _places(self.shape, pixels, folds, rows, columns)
        self._inside = np.flatnonzero(self.places >= 0)
        # Place in memory of each value of the map; the last place is that of a value that is not moved.
        self._is_raster = np.array_equal(self.places, np.arange(math.prod(self.shape)))
        padding = slice(len(self.places), None)
        self._outside = [*([np.flatnonzero(self.places < 0)] if len(self._inside) < len(self.places) else []), padding]
        self._sources = np.full(math.prod(self.shape), self._values, np.intp)
        self._sources[self.places[self._inside]] = self._inside

    @property
    def _values(self):
        """Number of values, padding included, that a frame takes in memory."""
        return self.memory_bytes // self.dtype.itemsize

    def bytes_of(self, frames):
        """Return the number of bytes that a packet of ``frames`` frames takes in memory, without padding at its end."""
        return (frames - 1) * self.memory_bytes + self.frame_bytes

    def memory(self, allocate, frames):
        """Allocate a buffer for ``frames`` frames with the function ``allocate``."""
        return allocate(shape=(frames, self._values), dtype=self.dtype)

    def pack(self, frames, memory):
        """Write feature maps ``(n, C, H, W)`` into ``memory``, in the order in which the DMA reads them.

        Values that belong to no pixel, and padding, are 0.
        """
        flat, count = frames.reshape(len(frames), -1), len(self.places)
        if self._is_raster:
            memory[:, :count] = flat
        else:
            memory[:, :count] = flat.take(self.places, axis=1)
        for outside in self._outside:
            memory[:, outside] = 0

    def unpack(self, memory):
        """Return the feature maps ``(n, C, H, W)`` that the DMA wrote into memory; they may be a view of it."""
        if self._is_raster:
            return memory[:, : len(self.places)].reshape(len(memory), *self.shape)
        if self._sources.max() == self._values:  # some values of the map are not moved
            memory = np.concatenate([memory, np.zeros((len(memory), 1), self.dtype)], axis=1)
        return memory.take(self._sources, axis=1).reshape(len(memory), *self.shape)


def _places(shape, pixels, folds, rows, columns):
    """Return the index in a map ``(C, H, W)`` of each value that a DMA transfers, in the order of memory.

    It is -1 for a value that belongs to no pixel.
    """
    channel_count, height, width = shape
    # A beat has its channels one after the other, each with all pixels of the beat.
    channels = np.arange(channel_count)[:, None]
    beats = [channels[first:end] for first, end in folds]
    rectangles = []
    for top, bottom in rows:
        for left, right, first in columns:
            row = np.arange(top, bottom)[:, None, None, None]
            begins = np.arange(first, right, pixels)[:, None, None]
            column = begins + np.arange(pixels)
            inside = (column >= left) & (column < right)
            indices = [np.where(inside, (beat * height + row) * width + column, -1) for beat in beats]
            rectangle = np.concatenate([values.reshape(*values.shape[:2], -1) for values in indices], axis=2)
            rectangles.append(rectangle.reshape(-1))
    return np.concatenate(rectangles)


class Tensor:
    """Tensor of the ONNX model at an input or output of the hardware, with its shape, scale and zero point.

    Parameters
    ----------
    described : dict
        Entry ``input`` or ``output`` of ``plan.json`` or of a program, or an entry of ``inputs`` or ``outputs``.
    stream : Stream or Region
        Memory layout of the tensor's map.
    """

    def __init__(self, described, stream):
        described = _fields(described, "a tensor")
        self.name, self.shape = described.text("name"), tuple(described.integers("shape"))
        self.scale, self.zero_point = (
            described.scale("scale"),
            described.integer("zero_point", -_MAX_VALUE, _MAX_VALUE),
        )
        self.limits = (
            described.integers("limits", 2, -_MAX_VALUE, _MAX_VALUE) if described.has("limits") else stream.range
        )
        self.stream = stream
        if math.prod(self.shape) != math.prod(stream.shape):
            described.refuse("shape", f"that of {math.prod(stream.shape):,} values")
        self._parts: Any = None
        self._order: Any = None
        if described.has("parts"):
            self._parts, self._order = described.integers("parts"), described.integers("order")
            if math.prod(self._parts) != math.prod(self.shape):
                described.refuse("parts", f"sizes of {math.prod(self.shape):,} values")
            if sorted(self._order) != list(range(len(self._parts))):
                described.refuse("order", f"an order of {len(self._parts)} dimensions")

    def check(self, frames):
        """Refuse input frames of this tensor that the hardware can't compute.

        Raises
        ------
        DriverError
            If frames have another shape, are no numbers, are integers out of range, are floats that are not finite, or
            are floats although the model gives no scale.
        """
        if frames.shape[1:] != self.shape or not len(frames) or frames.dtype.kind not in "iuf":
            wanted = ", ".join(map(str, ("n", *self.shape)))
            raise DriverError(f"{self.name} must be numbers of shape ({wanted}), not {frames.dtype} of {frames.shape}")
        if frames.dtype.kind == "f" and self.scale is None:
            raise DriverError(f"{self.name} must be integers: the model gives no scale for floats")
        low, high = self.stream.range
        if frames.dtype.kind != "f" and low <= np.iinfo(frames.dtype).min and np.iinfo(frames.dtype).max <= high:
            return  # no integer of this type is out of range
        for begin in range(0, len(frames), _CHECKED):  # all together would double the memory
            part = frames[begin : begin + _CHECKED]
            if part.dtype.kind == "f":
                self._refuse(np.isfinite(part), begin, "be finite numbers")
            elif part.size and not low <= int(part.min()) <= int(part.max()) <= high:
                self._refuse((part >= low) & (part <= high), begin, f"lie in {low} .. {high}")

    def _refuse(self, right, begin, wanted):
        """Raise DriverError if one of the flags ``right`` of frames is false; ``begin``: index of the first frame."""
        if not right.all():
            index = begin + int(np.argmin(right.reshape(len(right), -1).all(axis=1)))
            verb = "has others" if wanted.startswith("be") else "does not"
            raise DriverError(f"{self.name} must {wanted}: frame {index} {verb}")

    def to_maps(self, frames):
        """Convert checked frames of floats or integers to integer maps ``(n, C, H, W)`` that the hardware reads."""
        low = max(self.stream.range[0], self.limits[0])
        high = min(self.stream.range[1], self.limits[1])
        if frames.dtype.kind == "f":
            # In float32 a sum with a zero point of 16 bits is exact, or so large that it is clipped.
            exact = np.float32 if self.stream.dtype.itemsize <= 2 else np.float64
            with np.errstate(over="ignore"):  # values beyond float32 are clipped like all large values
                steps = (frames.astype(np.float32, copy=False) / np.float32(self.scale)).astype(exact, copy=False)
            np.rint(steps, out=steps)
            steps += exact(self.zero_point)
            frames = np.clip(steps, low, high, out=steps)
        elif (low, high) != self.stream.range:
            frames = np.clip(frames, low, high)
        frames = frames.astype(self.stream.dtype, copy=False)
        if self._parts is not None:
            divided = frames.reshape(len(frames), *(self._parts[axis] for axis in self._order))
            frames = divided.transpose(0, *(1 + self._order.index(axis) for axis in range(len(self._order))))
        return frames.reshape(len(frames), *self.stream.shape)

    def from_maps(self, maps):
        """Convert integer maps ``(n, C, H, W)`` from the hardware to integer frames in the tensor's shape."""
        if self._parts is not None:
            split = maps.reshape(len(maps), *self._parts)
            maps = split.transpose(0, *(1 + axis for axis in self._order))
        return maps.reshape(len(maps), *self.shape)

    def to_floats(self, frames):
        """Dequantise integer frames of the tensor like ONNX's DequantizeLinear.

        They are unchanged if the model gives no scale.
        """
        if self.scale is None:
            return frames
        if frames.dtype.itemsize > 2:
            return (frames.astype(np.int32) - np.int32(self.zero_point)).astype(np.float32) * np.float32(self.scale)
        floats = frames.astype(np.float32)  # of at most 16 bits, so that the difference is exact
        floats -= np.float32(self.zero_point)
        floats *= np.float32(self.scale)
        return floats


class Hardware:
    """Base class of the board drivers: registers accessed by name, and a check of the hardware's identity.

    Parameters
    ----------
    registers : object
        Object with ``read(offset)`` and ``write(offset, value)``: PYNQ's ``DefaultIP`` or ``MMIO``.
    folder : path
        Folder of the design.
    """

    _KIND, _IDENTITY = "", 0
    #: Access to the hardware, ``pynq`` or ``linux``, if `connect` opened it.
    through = ""

    def __init__(self, registers, folder):
        path = folder / "registers.json"
        self.described, self._registers = _read(path), registers
        self._fields = _Fields(self.described, str(path))
        described = self._fields.objects("registers")
        self._offsets = {register.text("name"): register.integer("offset", 0, 0xFFFF) for register in described}
        #: Bit mask of each register field, by ``REGISTER.FIELD``.
        self._masks = {
            f"{register.text('name')}.{field.text('name')}": _mask(field)
            for register in described
            for field in register.objects("fields")
        }
        identities = [
            register.integer("reset", 0, 0xFFFF_FFFF) for register in described if register.text("name") == "IDENTITY"
        ]
        if self._IDENTITY not in identities:
            raise DriverError(f"{folder} is not the folder of an {self._KIND}")

    def _check(self):
        """Refuse hardware that is not the design of the driver's folder."""
        identity, version = self.read("IDENTITY"), self.read("VERSION") >> 16
        if identity != self._IDENTITY:
            wanted = f"{self._KIND} of hwgen: IDENTITY is {identity:#010x}, not {self._IDENTITY:#010x}"
            raise DriverError(f"there is no {wanted}")
        if version != VERSION_MAJOR:
            raise DriverError(f"the hardware's registers are of version {version}, this driver is for {VERSION_MAJOR}")
        build_hash = self.read("BUILD_HASH_HIGH") << 32 | self.read("BUILD_HASH_LOW")
        expected, module = self._fields.text("build_hash"), self._fields.text("module")
        if f"{build_hash:#018x}" != expected:
            raise DriverError(
                f"the hardware is another design than {module} of this folder: its build hash is "
                f"{build_hash:#018x}, not {expected}; load the bitstream that was made of this folder"
            )

    def read(self, name):
        """Read the hardware register ``name``, and return its value."""
        return int(self._registers.read(self._offset(name)))

    def write(self, name, value):
        """Write a value into the hardware register ``name``."""
        self._registers.write(self._offset(name), value)

    def _offset(self, name):
        if name not in self._offsets:
            raise DriverError(f"there is no register {name}: registers.json has {', '.join(self._offsets)}")
        return self._offsets[name]

    def _bits(self, name):
        """Return the bit mask of the register field ``REGISTER.FIELD``."""
        if name not in self._masks:
            raise DriverError(f"{self._fields.where}: there is no field {name}: copy or make the file again")
        return self._masks[name]

    def _cycles(self):
        low = self.read("CYCLES_LOW")
        return self.read("CYCLES_HIGH") << 32 | low


class Accelerator(Hardware):
    """Driver of an accelerator on a board, which computes several frames at once.

    Parameters
    ----------
    registers : object
        Object with ``read(offset)`` and ``write(offset, value)``: PYNQ's ``DefaultIP`` or ``MMIO``.
    dma : object, or list of object
        PYNQ's ``DMA``, with ``sendchannel`` and ``recvchannel``, each with ``transfer(buffer, start, nbytes)``,
        ``wait()``, ``transferred`` and ``start()``, and ``read(offset)`` and ``write(offset, value)`` for the
        DMA's registers. ``buffer_max_size``, if there, limits the bytes of a transfer. With several inputs or outputs a
        list, in which DMA ``n`` serves input ``n`` and output ``n``.
    allocate : callable, optional
        Function ``allocate(shape=.., dtype=..)`` that returns a buffer for the DMA: ``pynq.allocate``.
    folder : path, optional
        Folder of the design. The default is the folder of this file.
    timeout : float
        Number of seconds without progress after which a run fails.

    Raises
    ------
    DriverError
        If the hardware is not the design of the folder, or a DMA does not answer.
    """

    _KIND, _IDENTITY = "accelerator", 0x4857474E

    def __init__(self, registers, dma, *, allocate=None, folder=None, timeout=10.0):
        folder = Path(folder) if folder else Path(__file__).parent
        super().__init__(registers, folder)
        # The folder of a group of layers has no plan.json. The inputs and outputs are then maps of integers.
        plan = _optional(folder / "plan.json")
        # The folder of a design with constant weights has no weights.json.
        self._loadable = _optional(folder / "weights.json")
        self._timeout = timeout
        # Whether no frame is in the hardware, and whether the scales belong to the weights in the hardware.
        self._is_clean, self._knows_weights = False, True
        #: Number of frames that the accelerator has computed since the last reset.
        self._frame_count = 0
        (errors,) = (register for register in self._fields.objects("registers") if register.text("name") == "ERRORS")
        self._errors = [(_mask(field), field.text("about")) for field in errors.objects("fields")]
        dmas = list(dma) if isinstance(dma, (list, tuple)) else [dma]
        self.inputs, self.outputs = self._ends(plan)
        if len(dmas) < max(len(self.inputs), len(self.outputs)):
            raise DriverError(f"dma must be {max(len(self.inputs), len(self.outputs))} of them, not {len(dmas)}")
        self._check()
        allocate = allocate or (lambda shape, dtype: np.zeros(shape, dtype))
        self._sends = [_Channel(end.stream, dmas[n], 0, allocate) for n, end in enumerate(self.inputs)]
        self._receives = [_Channel(end.stream, dmas[n], _DMA_RECEIVE, allocate) for n, end in enumerate(self.outputs)]
        self.write("CONTROL", self._bits("CONTROL.ENABLE"))
        self.reset()

    def _ends(self, described):
        """Return a list of the model's input tensors, and one of its output tensors, from a JSON description."""
        streams = [[Stream(fields) for fields in self._fields.objects(name)] for name in ("inputs", "outputs")]
        return _tensors(described, "input", streams[0]), _tensors(described, "output", streams[1])

    def reset(self):
        """Reset the accelerator and the DMAs, which drops all frames in them, so that the next run begins anew.

        Raises
        ------
        DriverError
            If a DMA does not end its reset.
        """
        self._is_clean = False
        # The DMAs are reset first, so that no DMA sends the rest of a frame after the accelerator's reset. They are
        # reset again after it, because a DMA reads a few words from the accelerator ahead of a transfer.
        self._reset_dmas()
        self.write("RESET", self._bits("RESET.RESET"))
        self.read("STATUS")  # the answer comes after the reset
        self._set_packet(1)
        self._reset_dmas()
        for channel in (*self._sends, *self._receives):
            channel.restart()
        self._is_clean, self._frame_count = True, 0

    def _clear(self):
        """Reset the accelerator and the DMAs if an interrupted reset, or another program, left a frame in them."""
        is_busy = not self._is_clean or self.read("STATUS") & self._bits("STATUS.BUSY")
        # A DMA can hold a frame that another program computed.
        if is_busy or self.read("FRAMES") != self._frame_count % (1 << 32):
            self.reset()

    def _reset_dmas(self):
        for channel in (*self._sends, *self._receives):
            channel.reset(self._timeout)

    @contextmanager
    def _resetting(self):
        """Reset the hardware if the body of the ``with`` statement fails or is interrupted.

        If the reset is interrupted as well, the next run resets the hardware.
        """
        self._is_clean = False
        try:
            yield
        except BaseException:
            self.reset()
            raise
        self._is_clean = True

    def load_weights(self, path):
        """Load the weights of a retrained model, with which all later frames are computed.

        The hardware keeps the weights until it is configured again. A new `Accelerator` object must load the weights
        again, because it begins with the scales of the model that was built.

        Parameters
        ----------
        path : path
            File that ``hwgen weights`` wrote for this design.

        Raises
        ------
        DriverError
            If the design's weights are constants, if the file is damaged or for another design, if the hardware
            refuses the weights, or if frames stay in the hardware. The frames are then dropped, as by `reset`.
        """
        if self._loadable is None:
            raise DriverError("the weights of this design are constants: it was built without --weights runtime")
        document, words = _weights(Path(path))
        ours = self._loadable.text("digest")
        if document.text("design") != ours:
            raise DriverError(
                f"{path} is for a design with the digest {document.text('design')}, not for this one with "
                f"{ours}: make it with 'hwgen weights' for this folder"
            )
        ends = self._ends(document)
        self._clear()
        with self._resetting():  # a reset also ends an incomplete load
            self.write("ERRORS", 0xFFFFFFFF)  # errors of an earlier run would end the load
            self.write("WEIGHTS", words[0])
            try:
                self._await("STATUS.WEIGHTS_WAIT", 0, "frames on their way did not leave")
            except DriverError as error:
                raise DriverError(f"{error}; they were dropped by a reset, and the weights are those before") from None
            self._knows_weights = False
            for word in words[1:-1]:
                self.write("WEIGHTS", word)
            self.write("WEIGHTS_LAST", words[-1])
            self._await("STATUS.WEIGHTS_GOOD", 1, "the hardware did not take the weights")
            self._raise_errors()
        # The scales and zero points of inputs and outputs belong to the loaded model.
        self.inputs, self.outputs = ends
        self._knows_weights = True

    def _await(self, name, value, failure):
        """Wait until the bit ``name`` of the hardware's STATUS register has a value.

        Raises
        ------
        DriverError
            With the message ``failure`` if this takes longer than the timeout, or if the hardware reports an error.
        """
        mask, begun = self._bits(name), time.monotonic()
        while bool(self.read("STATUS") & mask) != bool(value):
            self._raise_errors()
            if time.monotonic() > begun + self._timeout:
                raise DriverError(f"{failure} within {self._timeout:g} s: {self._state()}")

    def counters(self):
        """Read the hardware's counters of frames, cycles and stalls since the last reset, by the registers' names."""
        counted = ("FRAMES", "PACKETS", "STALLED", "STARVED", "INTERVAL")
        names = [name for name in self._offsets if name.endswith(counted) and name != "PACKET_FRAMES"]
        counters = {name: self.read(name) for name in names}
        return {**counters, "CYCLES": self._cycles()}

    def run(self, *x, integers=False):
        """Compute frames on the accelerator, and return the model's outputs.

        Parameters
        ----------
        *x : ndarray
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
            If arrays do not fit, which is checked before the first frame is sent. Also if there is no progress for the
            timeout, a DMA fails, or the hardware reports a frame of a wrong length. All frames are then dropped, as by
            `reset`, and also if the run is interrupted. The next run begins anew.
        """
        frames = _checked(x, self.inputs)
        self._clear()
        self._check_weights()
        with self._resetting():
            self.write("ERRORS", 0xFFFFFFFF)
            outputs = self._move(frames)
            self._raise_errors()
            self._frame_count += len(frames[0])
        if not integers:
            outputs = [end.to_floats(values) for end, values in zip(self.outputs, outputs, strict=True)]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _check_weights(self):
        """Refuse to compute with incompletely loaded weights, or with weights whose scales are unknown."""
        if self._loadable is None:
            return
        if not self.read("STATUS") & self._bits("STATUS.WEIGHTS_GOOD"):
            raise DriverError(
                "the hardware holds no weights, or a part of some: call load_weights with a file of weights, "
                "such as NAME.weights beside the design"
            )
        if not self._knows_weights:
            raise DriverError("a load of weights was broken off: load_weights must load them again")

    def _move(self, frames):
        """Send all input frames by DMA, in packets, receive all output frames, and return them for each output."""
        count, outputs = (
            len(frames[0]),
            [np.empty((len(frames[0]), *end.shape), end.stream.dtype) for end in self.outputs],
        )
        size = self._packet_frames(count)
        whole = count - count % size
        for begin, end, packet in ((0, whole, size), (whole, count, count - whole)):
            if begin < end:
                self._set_packet(packet)
                self._move_packets(frames, outputs, range(begin, end, packet), packet)
        self._set_packet(1)  # as it is after a reset, for other programs
        return outputs

    def _packet_frames(self, count):
        """Return how many of ``count`` frames a packet has: at most what the DMAs move at once, in equal packets."""
        if "PACKET_FRAMES" not in self._offsets:
            return 1
        channels = [*self._sends, *self._receives]
        max_frames = min(_MAX_PACKET, *(channel.limit() for channel in channels))
        frame_bytes = max(channel.frame_bytes for channel in channels)
        if frame_bytes >= _MIN_DIVIDED_FRAME_BYTES:
            max_frames = min(max_frames, max(-(-count // _NUM_PACKETS), _MIN_PACKET_BYTES // frame_bytes))
        fewest = -(-count // max(1, max_frames))
        # The last packet follows the others without a wait, if it is as large as they are.
        num_packets = next((packets for packets in range(fewest, 2 * fewest) if not count % packets), fewest)
        return -(-count // num_packets)

    def _set_packet(self, frames):
        """Set the number of frames of a packet, while no frame is in the hardware."""
        if "PACKET_FRAMES" in self._offsets:
            self.write("PACKET_FRAMES", frames)

    def _move_packets(self, frames, outputs, begins, size):
        """Send packets of ``size`` frames, which begin at the frames ``begins``, and receive the packets of outputs."""
        packed = sent = 0
        moved = time.monotonic()
        received = [0 for _ in outputs]
        for channel in (*self._sends, *self._receives):
            channel.prepare(size)
        for channel in self._receives:
            channel.start()
        while min(received) < len(begins):
            before = packed, sent, sum(received)
            free = [channel.done() for channel in self._sends]  # of all, so that each error is seen
            if sent < packed and all(free):
                for channel in self._sends:
                    channel.start()
                sent += 1
            if packed == sent and packed < len(begins):  # the next packet, while the hardware takes this one
                packet = slice(begins[packed], begins[packed] + size)
                for channel, end, input_frames in zip(self._sends, self.inputs, frames, strict=True):
                    channel.pack(end.to_maps(input_frames[packet]))
                packed += 1
            for index, (channel, end) in enumerate(zip(self._receives, self.outputs, strict=True)):
                if received[index] < len(begins) and channel.done():
                    maps = channel.take(again=received[index] + 1 < len(begins))
                    begin = begins[received[index]]
                    outputs[index][begin : begin + size] = end.from_maps(maps)
                    received[index] += 1
            if (packed, sent, sum(received)) != before:
                moved = time.monotonic()
            elif time.monotonic() > moved + self._timeout:
                raise DriverError(f"nothing moved for {self._timeout:g} s: {self._state()}")

    def _state(self):
        """Read the STATUS register and the counters, and return them as text for an error message."""
        return ", ".join(
            f"{name} {value}" for name, value in [("STATUS", self.read("STATUS")), *self.counters().items()]
        )

    def _raise_errors(self):
        """Raise DriverError if the hardware's ERRORS register reports an error."""
        raised = self.read("ERRORS")
        about = [about for mask, about in self._errors if raised & mask]
        if about:
            raise DriverError("; ".join(about))


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
        """Load an engine program from a file into memory, and forget the program before.

        Parameters
        ----------
        program : path
            File that ``hwgen build`` or ``hwgen compile`` wrote, relative to the current folder or to the folder of
            the design.

        Raises
        ------
        DriverError
            If the file can't be read, is no program, is damaged, or is a program for another engine.
        """
        path = Path(program)
        told, image = _program(path if path.exists() else self._folder / path, self._fields.fields("engine"))
        size, batch = told.integer("size", len(image), 1 << 32), told.integer("batch", 1, default=1)
        ends = told.fields("ends") if told.has("ends") else None
        inputs, outputs = (
            _tensors(ends, side, _regions(told, f"{side}s", batch, size)) for side in ("input", "output")
        )
        self.stop()
        memory = self._placed(image, size)
        self._memories = []  # so that no program runs if this is interrupted
        self._inputs, self._outputs, self._batch, self._image = inputs, outputs, batch, image
        self._memories = [memory]

    def _placed(self, image, size):
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
        """Return the memories that a number of runs use in turn: two, if there is room for a second."""
        if self._overlap and runs > 1 and len(self._memories) < 2:
            try:
                self._memories.append(self._placed(self._image, len(self._memories[0])))
            except DriverError as error:
                self._overlap = False
                _log.info("frames are not written and read while others are computed: %s", error)
        return self._memories[:runs]

    def run(self, *x, integers=False):
        """Compute frames on the engine, polling its status until each run has ended, and return the model's outputs.

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
            run is interrupted. The next run begins anew.
        """
        outputs, frames = [], self._checked(x)
        with self._stopping():
            for _ in self._runs(frames, outputs):
                end = time.monotonic() + self._timeout * self._batch
                while not self._done():
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
        outputs, frames = [], self._checked(x)
        with self._stopping():
            for _ in self._runs(frames, outputs):
                end = time.monotonic() + self._timeout * self._batch
                while not self._done():
                    try:
                        await asyncio.wait_for(self._interrupt.wait(), max(0, end - time.monotonic()))
                    except asyncio.TimeoutError:  # noqa: UP041 (not the same in Python 3.10)
                        self._give_up()
        return self._result(outputs, integers)

    @contextmanager
    def _stopping(self):
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
        """Read the engine's counters of frames, cycles and traffic since the last reset, by the registers' names."""
        counted = ("FRAMES", "FAILURES", "FRAME_CYCLES", "READ", "WRITTEN", "STALLED")
        return {**{name: self.read(name) for name in self._offsets if name.endswith(counted)}, "CYCLES": self._cycles()}

    def _checked(self, x):
        """Check the user's frames of all inputs, and return them as arrays.

        Refuse frames that the program can't compute, or a missing program.
        """
        if not self._memories:
            raise DriverError("there is no program: load() one that hwgen build or hwgen compile wrote")
        return _checked(x, self._inputs)

    def _runs(self, frames, outputs):
        """Start the engine for each batch of frames, and yield when the caller must wait for the end of the run.

        With two memories the frames of the next run are written, and the maps of the last run are read, during a run.
        The output maps of each frame are appended to ``outputs``.
        """
        self.stop()  # another program can have left a run
        begins = range(0, len(frames[0]), self._batch)
        batches = [[values[first : first + self._batch] for values in frames] for first in begins]
        memories = self._memories_for(len(batches))
        self._write_maps(memories[0], self._packed(batches[0]))
        for index, batch in enumerate(batches):
            memory, other = (memories[run % len(memories)] for run in (index, index + 1))
            self.write("PROGRAM_BASE", memory.physical_address)
            self.write("INTERRUPT_STATUS", 0xFFFFFFFF)
            self.write("CONTROL", self._bits("CONTROL.START"))
            if index and other is not memory:
                outputs += self._read_maps(other, len(batches[index - 1][0]))
            packed = self._packed(batches[index + 1]) if index + 1 < len(batches) else None
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
        """Raise DriverError if the run of ``count`` frames from ``first`` on was ended by an error."""
        if code := self.read("ERROR"):
            errors = self._fields.fields("engine").fields("errors")
            about = errors.text(str(code)) if errors.has(str(code)) else "unknown"
            which = f"frame {first} was" if count == 1 else f"frames {first} to {first + count - 1} were"
            raise DriverError(f"{which} ended by error {code}: {about}")

    def _packed(self, frames):
        """Return the bytes in memory of each frame of each input."""
        return [
            [end.stream.pack(frame_map) for frame_map in end.to_maps(values)]
            for end, values in zip(self._inputs, frames, strict=True)
        ]

    def _write_maps(self, memory, packed):
        """Write the packed frames of each input into a memory of the program."""
        for end, maps in zip(self._inputs, packed, strict=True):
            region, slices = end.stream.places(len(maps))
            region_memory = memory[region]
            for frame_bytes, frame in zip(slices, maps, strict=True):
                region_memory[frame_bytes] = frame
            _synchronise(region_memory, "flush")

    def _read_maps(self, memory, count):
        """Return the maps of all outputs, for each of the ``count`` frames that a run wrote into a memory."""
        return list(zip(*(self._unpacked(end, memory, count) for end in self._outputs), strict=True))

    def _unpacked(self, end, memory, count):
        """Read from a memory the ``count`` output frames that a run of the engine has written for one output."""
        region, slices = end.stream.places(count)
        region_memory = memory[region]
        _synchronise(region_memory, "invalidate")
        maps = [end.stream.unpack(np.asarray(region_memory[frame_bytes])) for frame_bytes in slices]
        return [end.from_maps(frame_map[None])[0] for frame_map in maps]

    def _done(self):
        return self.read("STATUS") & self._bits("STATUS.DONE")

    def _give_up(self):
        raise DriverError(f"a frame took more than {self._timeout:g} s: {self._state()}")

    def _state(self):
        names = {"STATUS": self.read("STATUS"), "ERROR": self.read("ERROR"), **self.counters()}
        return ", ".join(f"{name} {value}" for name, value in names.items())

    def _result(self, outputs, integers):
        """Join the output maps of all frames: one array per model output, dequantised unless ``integers``."""
        arrays = [np.stack(maps) for maps in zip(*outputs, strict=True)]
        if not integers:
            arrays = [end.to_floats(values) for end, values in zip(self._outputs, arrays, strict=True)]
        return arrays[0] if len(arrays) == 1 else tuple(arrays)


class _Unfold:
    """Layout of an input in whose memory rows and columns of the feature map are channels of a pixel.

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
        """Return channels, height and width in memory of a feature map with ``channels`` channels."""
        return self._rows[0] * self._columns[0] * channels, self._height, self._width

    def apply(self, frame, offset):
        """Return the map that memory stores for a feature map ``(C, H, W)``, whose stored values lack ``offset``."""
        row, row_inside = self._windows(self._rows, self._height, frame.shape[1])
        column, column_inside = self._windows(self._columns, self._width, frame.shape[2])
        values = frame[:, row[:, :, None, None], column]
        outside = frame.dtype.type(self._outside + offset)
        values = np.where(row_inside[:, :, None, None] & column_inside, values, outside)
        return values.transpose(4, 2, 0, 1, 3).reshape(-1, self._height, self._width)

    @staticmethod
    def _windows(taps, count, size):
        """Return the rows or columns of the map in each row or column in memory, and whether they are in the map."""
        count_of_taps, step, before = taps
        windows = np.arange(count)[:, None] * step + np.arange(count_of_taps) - before
        return np.clip(windows, 0, size - 1), (windows >= 0) & (windows < size)


class Region:
    """Address and memory layout of a feature map in an engine program's memory.

    The map has blocks of 8 channels, each row by row, with signed values. An input can be unfolded: channels of a pixel
    in memory are then rows and columns of the map.

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
        self.dtype = np.dtype(np.int8 if is_signed else np.uint8)
        span = 1 << value_type.integer("bits", 1, 8)
        self.range = (-span >> 1, (span >> 1) - 1) if is_signed else (0, span - 1)
        self._offset = 0 if is_signed else 128
        self._unfold = _Unfold(told.fields("unfold")) if told.has("unfold") else None
        channels, height, width = self._unfold.shape(self.shape[0]) if self._unfold else self.shape
        self._words = (-(-channels // _LANES), height, width, _LANES)
        self.size = math.prod(self._words)
        self._frame_bytes = told.integer("frame_bytes", self.size, 1 << 32, default=self.size)
        if self._frame_bytes % _LANES:
            told.refuse("frame_bytes", f"a multiple of {_LANES}")

    def end(self, frames):
        """Return the address after the last byte of ``frames`` frames of the map, relative to the program's base."""
        return self.address + (frames - 1) * self._frame_bytes + self.size

    def places(self, frames):
        """Return the slice of program memory that holds ``frames`` frames of the map, and each frame's slice in it."""
        begins = range(0, frames * self._frame_bytes, self._frame_bytes)
        return slice(self.address, self.end(frames)), [slice(begin, begin + self.size) for begin in begins]

    def pack(self, frame):
        """Return the bytes of a feature map ``(C, H, W)`` in the order in which the engine reads them from memory.

        Lanes past the last channel are 0.
        """
        blocks, height, width, lanes = self._words
        if self._unfold:
            frame = self._unfold.apply(frame, self._offset)
        padded = np.zeros((blocks * lanes, height, width), np.int16)
        padded[: len(frame)] = frame.astype(np.int16) - self._offset
        return padded.reshape(blocks, lanes, height, width).transpose(0, 2, 3, 1).astype(np.int8).view(np.uint8).ravel()

    def unpack(self, values):
        """Return the feature map ``(C, H, W)`` of bytes in the order in which the engine writes them into memory."""
        words = values.view(np.int8).reshape(self._words).transpose(0, 3, 1, 2)
        return (words.reshape(-1, *self.shape[1:])[: self.shape[0]].astype(np.int16) + self._offset).astype(self.dtype)


def _regions(told, side, frames, size):
    """Return the memory regions of a program's inputs or outputs, and refuse regions outside the program's memory.

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


def _program(path, engine):
    """Read a program file of the engine, check it, and return its JSON fields and memory image.

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
        raise DriverError(f"{path} has {len(data):,} bytes where {size:,} should be; copy or compile it again")
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
    """Memory access that the engine makes for a job (descriptor), which reads or writes blocks of rows of words.

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
        """Return whether the engine, for a job, accesses only the program's memory, and writes only after its image.

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
            first, end = self._rows(job, team, rows)
            begin = self._value(job, "address") + team * self._value(job, "team_stride") + first * row_stride
            begin %= 1 << 32
            bytes_moved = strides + (end - first - 1) * row_stride + row_bytes
            if first < end and not lowest <= begin <= begin + bytes_moved <= memory_bytes:
                return False
        return True

    def _rows(self, job, team, rows):
        """Return the first row that a team of cores accesses, and the row behind the last: those in the map."""
        height = self._value(job, "height") if "height" in self._fields else 0
        if not height:
            return 0, rows
        top = (self._value(job, "top") + (1 << 15)) % (1 << 16) - (1 << 15)  # signed, of 16 bits
        top += team * self._value(job, "advance")
        return max(-top, 0), min(height - top, rows)

    def _value(self, job, name):
        """Return the value of a field of a job's bits, or 1 for a field that the memory access does not have."""
        if name not in self._fields:
            return 1
        offset, width = self._fields[name]
        return job >> offset & (1 << width) - 1


def _synchronise(buffer, method):
    """Call the cache operation ``flush`` or ``invalidate`` of a memory buffer, if the buffer has this method."""
    getattr(buffer, method, lambda: None)()


class _Channel:
    """Channel of a Xilinx AXI DMA that sends or receives frames, with two buffers for double buffering.

    Parameters
    ----------
    stream : Stream
        Stream that the channel moves.
    dma : object
        PYNQ's ``DMA``.
    offset : int
        Offset of the channel's registers in bytes: 0 for the sending channel, `_DMA_RECEIVE` for the receiving one.
    allocate : callable
        Function that returns a buffer.
    """

    def __init__(self, stream, dma, offset, allocate):
        self._stream, self._dma, self._offset = stream, dma, offset
        self._channel = dma.recvchannel if offset else dma.sendchannel
        if self._channel is None:
            raise DriverError(
                f"the DMA for {stream.name} must {'receive' if offset else 'send'}: it has no such channel"
            )
        self._allocate, self._buffers, self._capacity, self._frames = allocate, [], 0, 1
        self._turn, self._busy = 0, False

    @property
    def frame_bytes(self):
        """Number of bytes of a frame in memory."""
        return self._stream.memory_bytes

    def limit(self):
        """Return how many frames the DMA channel moves at once, by the size of its counter and of buffers."""
        largest = min(getattr(self._dma, "buffer_max_size", _LEAST_LIMIT) - 1, _BUFFER_BYTES)
        return largest // self.frame_bytes

    def prepare(self, frames):
        """Make the DMA channel's buffers large enough for packets of ``frames`` frames."""
        if frames > self._capacity:
            self._buffers = []  # before others are allocated
            self._buffers = [self._stream.memory(self._allocate, frames) for _ in range(2)]
            self._capacity = frames
        self._frames = frames

    def reset(self, timeout):
        """Reset the AXI DMA, which drops the frames of both of its channels."""
        self._busy = False
        self._dma.write(self._offset + _DMA_CONTROL, _DMA_RESET)
        end = time.monotonic() + timeout
        while self._dma.read(self._offset + _DMA_CONTROL) & _DMA_RESET:
            if time.monotonic() > end:
                raise DriverError(f"the DMA of {self._stream.name} does not end its reset: load the overlay again")

    def restart(self):
        """Prepare PYNQ's DMA channel for transfers after a reset."""
        if not hasattr(self._channel, "halted"):  # a channel with scatter-gather starts with each transfer
            self._channel.start()

    def pack(self, maps):
        """Write feature maps into the buffer that the next transfer of this sending channel moves."""
        self._stream.pack(maps, np.asarray(self._buffers[self._turn ^ 1])[: self._frames])

    def start(self):
        """Start the DMA transfer of the other of the two buffers."""
        self._turn ^= 1
        self._call(self._channel.transfer, self._buffers[self._turn], 0, self._stream.bytes_of(self._frames))
        self._busy = True

    def done(self):
        """Return whether the DMA channel has no transfer in progress."""
        if not self._busy:
            return True
        status = self._dma.read(self._offset + _DMA_STATUS)
        for error, about in _DMA_ERRORS.items():
            if status & error:
                raise DriverError(f"the DMA of {self._stream.name} failed: {about}")
        if status & _DMA_IDLE:
            self._call(self._channel.wait)
            self._busy = False
        return not self._busy

    def take(self, again):
        """Check the size of the packet that the DMA channel has received, and return its feature maps.

        With ``again``, start to receive the next packet into the other buffer.
        """
        buffer, moved, wanted = (
            self._buffers[self._turn],
            self._channel.transferred,
            self._stream.bytes_of(self._frames),
        )
        if moved != wanted:
            what = "a frame" if self._frames == 1 else f"a packet of {self._frames:,} frames"
            raise DriverError(f"{what} of {moved:,} bytes came on {self._stream.name}, where one has {wanted:,}")
        if again:
            self.start()
        return self._stream.unpack(np.asarray(buffer)[: self._frames])

    def _call(self, method, *arguments):
        """Call a method of PYNQ's DMA channel, and raise its errors as DriverError."""
        try:
            method(*arguments)
        except (RuntimeError, ValueError) as error:
            raise DriverError(f"the DMA of {self._stream.name} refused: {error}") from error


def _checked(x, inputs):
    """Check the user's frames of all inputs, and return them as arrays.

    Refuse wrong shapes, ranges and unequal numbers of frames.
    """
    frames = [_array(input_frames) for input_frames in x]
    if len(frames) != len(inputs):
        raise DriverError(f"{len(inputs)} arrays are needed, one an input, not {len(frames)}")
    for end, input_frames in zip(inputs, frames, strict=True):
        end.check(input_frames)
    counts = [len(input_frames) for input_frames in frames]
    if len(set(counts)) > 1:
        raise DriverError(f"inputs must have as many frames each, not {counts}")
    return frames


def _array(x):
    """Return the user's frames as a NumPy array.

    Refuse objects that NumPy can't convert, such as lists of different lengths.
    """
    try:
        return np.asarray(x)
    except (ValueError, TypeError):
        raise DriverError("frames must be an array of numbers, or what NumPy makes one of") from None


def _read(path):
    """Read a JSON file of the design's folder, and return its value."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DriverError(f"{path} can't be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise DriverError(f"{path} is not the JSON that hwgen wrote") from None


def _optional(path):
    """Read a JSON file, and return its checked fields, or None if the file does not exist."""
    return _Fields(_read(path), str(path)) if path.exists() else None


def _weights(path):
    """Read a weights file, check it, and return its JSON fields and the words for the hardware."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DriverError(f"{path} can't be read: {error.strerror}") from None
    if content[:8] != b"hwgenwts" or len(content) < 16:
        raise DriverError(f"{path} is no file of weights: 'hwgen weights' makes one")
    size, check = np.frombuffer(content[8:16], "<u4").tolist()
    text, load = content[16 : 16 + size], content[16 + size :]
    if len(text) < size or zlib.crc32(text) != check:
        raise DriverError(f"{path} is cut off or was changed: make it again")
    document = _Fields(_parsed(text, path), str(path))
    # The words are a digest of two words, the words of the memories, and a CRC-32.
    if len(load) != 4 * document.integer("words", 4) or zlib.crc32(load[:-4]) != int.from_bytes(load[-4:], "little"):
        raise DriverError(f"{path} is cut off or was changed: make it again")
    return document, np.frombuffer(load, "<u4").tolist()


def _parsed(text, path):
    """Parse JSON text from a file, and raise DriverError if it is damaged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise DriverError(f"{path} is damaged: what it says of itself is no JSON; make it again") from None


def _tensors(described, side, streams):
    """Return a list of the model's input tensors, or output tensors, in the order of the hardware's streams.

    Without a description the tensors have the names and shapes of the streams.

    Parameters
    ----------
    described : _Fields or None
        Object with the entries ``input`` and ``output``, or ``inputs`` and ``outputs``.
    side : str
        Side of the hardware, ``input`` or ``output``.
    streams : list of Stream or Region
        Memory layouts of the tensors.
    """
    described = described or _Fields({}, "")
    tensors: Any = []
    if described.has(f"{side}s"):
        tensors = described.objects(f"{side}s")
    elif described.has(side):
        tensors = [described.fields(side)]
    if tensors and len(tensors) != len(streams):
        raise DriverError(
            f"{described.where}: {side}s must be {len(streams)}, not {len(tensors)}: copy or make it again"
        )
    if not tensors:
        names = ("name", "scale", "zero_point")
        tensors = [
            {"shape": list(stream.shape)} | {name: getattr(stream, name) for name in names} for stream in streams
        ]
    return [Tensor(tensor, stream) for tensor, stream in zip(tensors, streams, strict=True)]


def connect(folder=None, *, through=None, **options):
    """Connect to the accelerator or the engine whose folder this is, as hwgen's Vivado project builds it.

    With PYNQ the bitstream ``NAME.bit`` of the folder is loaded. Without PYNQ the design must have been loaded with a
    device tree overlay: its registers and DMAs are UIO devices, and u-dma-buf has the memory (``NAME_linux.py``).

    Parameters
    ----------
    folder : path, optional
        Folder of the design. The default is the folder of this file.
    through : str, optional
        Access to the hardware: ``pynq`` or ``linux``. By default ``pynq`` if it is installed. A message of the logger
        ``hwgen`` says which.
    **options
        Further parameters of `Accelerator` or `Engine`, such as ``timeout``.

    Returns
    -------
    Accelerator or Engine
        Driver, whose attribute ``through`` is the access.

    Raises
    ------
    DriverError
        If the hardware is missing, or is not the design of the folder.
    """
    folder = Path(folder) if folder else Path(__file__).parent
    described = _Fields(_read(folder / "registers.json"), str(folder / "registers.json"))
    through = through or ("pynq" if importlib.util.find_spec("pynq") else "linux")
    if through not in _ACCESSES:
        raise DriverError(f"through must be {' or '.join(_ACCESSES)}, not {through!r}")
    module, is_engine = described.text("module"), described.has("engine")
    counts = [0 if is_engine else len(described.objects(side)) for side in ("inputs", "outputs")]
    _log.info("%s is reached through %s", module, through)
    registers, dmas, allocate = _ACCESSES[through](folder, module, *counts)
    if is_engine:
        driver = Engine(registers, allocate=allocate, folder=folder, **options)
    else:
        driver = Accelerator(registers, dmas, allocate=allocate, folder=folder, **options)
    driver.through = through
    return driver


def _open_by_pynq(folder, module, inputs, outputs):
    """Load the bitstream of a folder by PYNQ, and return the design's registers, its DMAs, and ``pynq.allocate``."""
    import pynq  # type: ignore[import-not-found]  # on a board

    overlay = pynq.Overlay(str(folder / f"{module.removesuffix('_axi')}.bit"))
    dmas = [getattr(overlay, f"axi_dma_{index}") for index in range(max(inputs, outputs))]
    return getattr(overlay, f"{module}_0"), dmas, pynq.allocate


def _open_by_linux(_folder, module, inputs, outputs):
    """Open a design's registers, its DMAs and memory by drivers of the Linux kernel."""
    here = Path(__file__)
    path = here.with_name(f"{here.stem.removesuffix('driver')}linux.py")
    spec: Any = importlib.util.spec_from_file_location(path.stem, path)
    linux = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(linux)
    except OSError as error:
        raise DriverError(f"{path} can't be read: {error.strerror}; copy it beside this file") from None
    try:
        return linux.devices(module, inputs, outputs)
    except linux.LinuxError as error:
        raise DriverError(str(error)) from None


#: Functions that open the hardware, by the name of the access.
_ACCESSES = {"pynq": _open_by_pynq, "linux": _open_by_linux}
