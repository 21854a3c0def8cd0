"""Drives an accelerator, or an engine, on a board from Python: NumPy arrays in, NumPy arrays out.

hwgen writes this file into the folder of a design, beside ``registers.json`` and ``plan.json``, which tell it all that
it must know; of an engine, the program does. It needs Python 3.10 and NumPy, and no hwgen; on a PYNQ board::

    from pynq import Overlay, allocate
    from NAME_driver import Accelerator

    overlay = Overlay("design.bit")
    accelerator = Accelerator(overlay.NAME_axi_0, overlay.axi_dma_0, allocate=allocate)
    outputs = accelerator.run(frames)

    from engine_driver import Engine

    overlay = Overlay("engine.bit")
    engine = Engine(overlay.engine_axi_0, allocate=allocate)
    engine.load("NAME.program")
    outputs = engine.run(frames)
"""

from __future__ import annotations

import asyncio
import json
import math
import struct
import time
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

#: Software for other lists of registers than this one does not fit.
VERSION_MAJOR = 1
#: Programs of other formats are not read; those of the second one compute several frames in a run.
PROGRAM_VERSIONS = (2, 3)

#: Of a program: letters, version, checksum of all behind it, digest of the engine, bytes of the two parts that follow.
_HEADER = struct.Struct("<8sII16sQQ")
_UNCHECKED = 16
#: Programs begin on a multiple of this.
_PAGE = 4096
#: Bytes at the end of a job that say whether it is whole.
_JOB_SEAL = 8
#: Bytes of a word of a program's maps: 8 channels of a pixel.
_LANES = 8
#: Largest number of values in a frame, channels, rows or columns of a map, and frames in a run of the engine.
_MOST = 1 << 28
#: Largest magnitude of a value, and of a zero point.
_MOST_VALUE = 1 << 31
#: Smallest and largest scale: those of float32.
_SCALES = (1.5e-45, 3.4e38)

#: Registers of an AXI DMA in simple mode, and bits of them (Xilinx PG021). The channel out of the accelerator has the
#: same ones behind `_DMA_RECEIVE`.
_DMA_CONTROL, _DMA_STATUS, _DMA_RECEIVE = 0x00, 0x04, 0x30
_DMA_RESET = 1 << 2
_DMA_ERRORS = {
    1 << 4: "a frame longer than its buffer came, or the DMA failed inside",
    1 << 5: "memory answered with an error",
    1 << 6: "there is no memory at the buffer's address",
}


class DriverError(Exception):
    """The hardware is another than expected, frames don't fit, or something went wrong on the way."""


class _Fields:
    """The fields of a JSON object, each read with its type and its range.

    Parameters
    ----------
    values : object
        What JSON holds.
    where : str
        The file, and the object in it: the beginning of each error.

    Raises
    ------
    DriverError
        If the values are no object, or a field is missing, of another type or out of range.
    """

    def __init__(self, values, where):
        self.where = where
        if not isinstance(values, dict):
            raise DriverError(f"{where} must be a JSON object, not {_shortened(values)}: copy or make the file again")
        self.values = values

    def refuse(self, name, wanted):
        """Raise the error of a field."""
        if name not in self.values:
            raise DriverError(f"{self.where}: there is no {name}, which must be {wanted}: copy or make the file again")
        value = _shortened(self.values[name])
        raise DriverError(f"{self.where}: {name} must be {wanted}, not {value}: copy or make the file again")

    def has(self, name):
        """Whether a field is there, and not null."""
        return self.values.get(name) is not None

    def integer(self, name, low=0, high=_MOST, default=None):
        """Return an integer from ``low`` to ``high``; ``default`` where the field is missing or null."""
        if default is not None and not self.has(name):
            return default
        if not _is_integer(self.values.get(name), low, high):
            self.refuse(name, f"an integer from {low:,} to {high:,}")
        return self.values[name]

    def integers(self, name, count=None, low=0, high=_MOST):
        """Return a list of integers, of ``count`` if that is given."""
        found: Any = self.values.get(name)
        right = isinstance(found, list) and all(_is_integer(value, low, high) for value in found)
        if not right or len(found) != (len(found) if count is None else count):
            amount = "" if count is None else f"{count} "
            self.refuse(name, f"a list of {amount}integers from {low:,} to {high:,}")
        return found

    def spans(self, name, size, count=2):
        """Return a list of lists that begin with the first of some places below ``size``, and their end."""
        found = self.values.get(name)
        if not isinstance(found, list) or not found or not all(_is_span(each, size, count) for each in found):
            self.refuse(name, f"a list of spans, {count} integers each, within 0 to {size:,}")
        return found

    def scale(self, name):
        """Return a positive number, or ``None`` for null."""
        value = self.values.get(name)
        if value is None and name in self.values:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not _SCALES[0] < value < _SCALES[1]:
            self.refuse(name, "a positive number of float32, or null")
        return float(value)

    def text(self, name):
        """Return a string."""
        if not isinstance(self.values.get(name), str):
            self.refuse(name, "a string")
        return self.values[name]

    def digest(self, name):
        """Return a string of 16 digits in hexadecimal."""
        text = self.text(name)
        if len(text) != 16 or not set(text) <= set("0123456789abcdef"):
            self.refuse(name, "16 hexadecimal digits")
        return text

    def flag(self, name):
        """Return a boolean."""
        if not isinstance(self.values.get(name), bool):
            self.refuse(name, "true or false")
        return self.values[name]

    def fields(self, name):
        """Return the fields of an object in this one."""
        if not isinstance(self.values.get(name), dict):
            self.refuse(name, "an object")
        return _Fields(self.values[name], f"{self.where}: {name}")

    def objects(self, name):
        """Return the fields of each object in a list."""
        if not isinstance(self.values.get(name), list):
            self.refuse(name, "a list of objects")
        return [_Fields(each, f"{self.where}: {name}[{index}]") for index, each in enumerate(self.values[name])]


def _is_integer(value, low, high):
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _is_span(value, size, count):
    """Whether a value is a list of a first place, an end behind it, and perhaps more, none beyond ``size``."""
    whole = isinstance(value, list) and len(value) == count and all(_is_integer(each, 0, size) for each in value)
    return whole and value[0] < value[1]


def _mask(field):
    """Return the bits of a register's field, by its description."""
    low, bits = field.integer("low", 0, 31), field.integer("bits", 1, 32)
    return ((1 << bits) - 1) << low


def _shortened(value):
    """A value as JSON, in few characters of ASCII."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _fields(described, where):
    """Return the fields of a plain dictionary; those of a file know better where they are from."""
    return described if isinstance(described, _Fields) else _Fields(described, where)


class Stream:
    """How a feature map ``(C, H, W)`` lies in the memory from which, or into which, it is moved.

    Parameters
    ----------
    described : dict
        One of ``inputs`` or ``outputs`` in ``registers.json``.
    """

    #: What its integers stand for is not told here.
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
        channels, height, width = self.shape
        pixels, folds = layout.integer("pixels", 1), layout.spans("folds", channels)
        rows, columns = layout.spans("rows", height), layout.spans("columns", width, 3)
        beats = sum(max(0, -(-(right - first) // pixels)) for _, right, first in columns)
        values = sum(end - first for first, end in folds) * sum(end - first for first, end in rows) * beats * pixels
        if values * value_bytes != self.frame_bytes or math.prod(self.shape) > _MOST:
            described.refuse("frame_bytes", "the bytes of the frame that layout describes")
        self.places = _places(self.shape, pixels, folds, rows, columns)
        self._inside = np.flatnonzero(self.places >= 0)

    def pack(self, frame):
        """The values of a map in the order of memory; those of no pixel are 0."""
        values = np.zeros(len(self.places), self.dtype)
        values[self._inside] = frame.reshape(-1)[self.places[self._inside]]
        return values

    def unpack(self, values):
        """The inverse: a map ``(C, H, W)``."""
        frame = np.zeros(self.shape, self.dtype)
        frame.reshape(-1)[self.places[self._inside]] = values[self._inside]
        return frame


def _places(shape, pixels, folds, rows, columns):
    """For each value in memory its place in a map ``(C, H, W)``, or -1 if it belongs to no pixel."""
    channel_count, height, width = shape
    # The channels of each beat of a pixel, one after the other, each with all pixels of the beat.
    channels = np.arange(channel_count)[:, None]
    beats = [channels[first:end] for first, end in folds]
    found = []
    for top, bottom in rows:
        for left, right, first in columns:
            row = np.arange(top, bottom)[:, None, None, None]
            begins = np.arange(first, right, pixels)[:, None, None]
            column = begins + np.arange(pixels)
            inside = (column >= left) & (column < right)
            parts = [np.where(inside, (beat * height + row) * width + column, -1) for beat in beats]
            found.append(np.concatenate([part.reshape(*part.shape[:2], -1) for part in parts], axis=2).reshape(-1))
    return np.concatenate(found)


class Tensor:
    """One of the model's tensors at an end of the hardware: its shape, and what its integers stand for.

    Parameters
    ----------
    described : dict
        ``input`` or ``output`` in ``plan.json``, or in a program, or one of ``inputs`` or ``outputs``.
    stream : Stream or Region
        Its map.
    """

    def __init__(self, described, stream):
        described = _fields(described, "a tensor")
        self.name, self.shape = described.text("name"), tuple(described.integers("shape"))
        self.scale, self.zero_point = (
            described.scale("scale"),
            described.integer("zero_point", -_MOST_VALUE, _MOST_VALUE),
        )
        self.limits = (
            described.integers("limits", 2, -_MOST_VALUE, _MOST_VALUE) if described.has("limits") else stream.range
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
        """Refuse what the hardware can't take: another shape, no numbers, floats that are not finite or have no scale,
        integers out of range."""
        if frames.shape[1:] != self.shape or not len(frames) or frames.dtype.kind not in "iuf":
            wanted = ", ".join(map(str, ("n", *self.shape)))
            raise DriverError(f"{self.name} must be numbers of shape ({wanted}), not {frames.dtype} of {frames.shape}")
        low, high = self.stream.range
        if frames.dtype.kind == "f" and self.scale is None:
            raise DriverError(f"{self.name} must be integers: the model gives no scale for floats")
        for number, frame in enumerate(frames):  # one by one: all together would take as much memory again
            if frame.dtype.kind == "f" and not np.isfinite(frame).all():
                raise DriverError(f"{self.name} must be finite numbers: frame {number} has others")
            if frame.dtype.kind != "f" and frame.size and not low <= int(frame.min()) <= int(frame.max()) <= high:
                raise DriverError(f"{self.name} must lie in {low} .. {high}: frame {number} does not")

    def to_map(self, frame):
        """A frame that was checked, floats or integers, as the map ``(C, H, W)`` that the hardware takes."""
        if frame.dtype.kind == "f":
            with np.errstate(over="ignore"):  # what is beyond float32 is limited as all that is too large
                steps = np.rint(frame.astype(np.float32) / np.float32(self.scale)).astype(np.float64)
            frame = np.clip(steps + self.zero_point, *self.stream.range)
        frame = np.clip(frame, *self.limits).astype(self.stream.dtype)
        if self._parts is not None:
            parted = frame.reshape([self._parts[place] for place in self._order])
            frame = parted.transpose([self._order.index(place) for place in range(len(self._order))])
        return frame.reshape(self.stream.shape)

    def from_map(self, frame):
        """The inverse for integers: a frame in the model's shape."""
        if self._parts is not None:
            frame = frame.reshape(self._parts).transpose(self._order)
        return frame.reshape(self.shape)

    def to_floats(self, frames):
        """What integers stand for, as DequantizeLinear has it; the integers themselves if the model gives no scale."""
        if self.scale is None:
            return frames
        return (frames.astype(np.int32) - np.int32(self.zero_point)).astype(np.float32) * np.float32(self.scale)


class Hardware:
    """Registers by their names, and what hardware they must be of.

    Parameters
    ----------
    registers : object
        Has ``read(offset)`` and ``write(offset, value)``: PYNQ's ``DefaultIP`` or ``MMIO``.
    folder : path
        Of the design.
    """

    _KIND, _IDENTITY = "", 0

    def __init__(self, registers, folder):
        path = folder / "registers.json"
        self.described, self._registers = _read(path), registers
        self._fields = _Fields(self.described, str(path))
        described = self._fields.objects("registers")
        self._offsets = {each.text("name"): each.integer("offset", 0, 0xFFFF) for each in described}
        #: For each field of a register its bits.
        self._masks = {
            f"{register.text('name')}.{each.text('name')}": _mask(each)
            for register in described
            for each in register.objects("fields")
        }
        identities = [each.integer("reset", 0, 0xFFFF_FFFF) for each in described if each.text("name") == "IDENTITY"]
        if self._IDENTITY not in identities:
            raise DriverError(f"{folder} is not the folder of an {self._KIND}")

    def _check(self):
        """Refuse other hardware."""
        identity, version = self.read("IDENTITY"), self.read("VERSION") >> 16
        if identity != self._IDENTITY:
            wanted = f"{self._KIND} of hwgen: IDENTITY is {identity:#010x}, not {self._IDENTITY:#010x}"
            raise DriverError(f"there is no {wanted}")
        if version != VERSION_MAJOR:
            raise DriverError(f"the hardware's registers are of version {version}, this driver is for {VERSION_MAJOR}")
        found = self.read("BUILD_HASH_HIGH") << 32 | self.read("BUILD_HASH_LOW")
        expected, module = self._fields.text("build_hash"), self._fields.text("module")
        if f"{found:#018x}" != expected:
            raise DriverError(
                f"the hardware is another design than {module} of this folder: its build hash is "
                f"{found:#018x}, not {expected}; load the bitstream that was made of this folder"
            )

    def read(self, name):
        """A register by its name."""
        return int(self._registers.read(self._offset(name)))

    def write(self, name, value):
        """The same, written."""
        self._registers.write(self._offset(name), value)

    def _offset(self, name):
        if name not in self._offsets:
            raise DriverError(f"there is no register {name}: registers.json has {', '.join(self._offsets)}")
        return self._offsets[name]

    def _bits(self, name):
        """Return the mask of ``REGISTER.FIELD``."""
        if name not in self._masks:
            raise DriverError(f"{self._fields.where}: there is no field {name}: copy or make the file again")
        return self._masks[name]

    def _cycles(self):
        low = self.read("CYCLES_LOW")
        return self.read("CYCLES_HIGH") << 32 | low


class Accelerator(Hardware):
    """The hardware, with several frames on their way at once.

    Parameters
    ----------
    registers : object
        Has ``read(offset)`` and ``write(offset, value)``: PYNQ's ``DefaultIP`` or ``MMIO``.
    dma : object
        PYNQ's ``DMA``: has ``sendchannel`` and ``recvchannel``, each with ``transfer(buffer)``, ``wait()``, ``idle``,
        ``transferred`` and ``start()``, and ``read(offset)`` and ``write(offset, value)`` for its registers. With
        several inputs or outputs a list: the first ones for the inputs in order, and the outputs.
    allocate : callable, optional
        Makes a buffer that the DMA can reach, ``allocate(shape=.., dtype=..)``: ``pynq.allocate``.
    folder : path, optional
        Of the design; where this file is if not given.
    timeout : float
        Seconds without progress after which a run is given up.

    Raises
    ------
    DriverError
        If the hardware is another than that of the folder, or a DMA does not answer.
    """

    _KIND, _IDENTITY = "accelerator", 0x4857474E

    def __init__(self, registers, dma, *, allocate=None, folder=None, timeout=10.0):
        folder = Path(folder) if folder else Path(__file__).parent
        super().__init__(registers, folder)
        # The folder of a group of layers has no plan of its own, and its ends are maps of integers.
        plan = _optional(folder / "plan.json")
        # So has one whose weights are constants nothing that says which it takes.
        self._loadable = _optional(folder / "weights.json")
        self._timeout = timeout
        # Whether nothing is on its way, and whether scales are those of the weights that the hardware holds.
        self._is_clean, self._knows_weights = False, True
        #: Frames since the last reset.
        self._frame_count = 0
        (errors,) = (each for each in self._fields.objects("registers") if each.text("name") == "ERRORS")
        self._errors = [(_mask(each), each.text("about")) for each in errors.objects("fields")]
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
        """The model's tensors at both ends, as a file describes them."""
        streams = [[Stream(each) for each in self._fields.objects(name)] for name in ("inputs", "outputs")]
        return _tensors(described, "input", streams[0]), _tensors(described, "output", streams[1])

    def reset(self):
        """Drop all frames on their way, in the accelerator and in the DMAs. The next run begins anew.

        Raises
        ------
        DriverError
            If a DMA does not end its reset.
        """
        self._is_clean = False
        # Before the accelerator: no DMA goes on with the rest of a frame behind its reset. After it, too: a DMA takes a
        # few words from the accelerator before anybody asks for them.
        self._reset_dmas()
        self.write("RESET", self._bits("RESET.RESET"))
        self.read("STATUS")  # answered when the reset was written
        self._reset_dmas()
        for channel in (*self._sends, *self._receives):
            channel.restart()
        self._is_clean, self._frame_count = True, 0

    def _clear(self):
        """Reset all if an interrupted reset, or another program, has left something on its way."""
        is_busy = not self._is_clean or self.read("STATUS") & self._bits("STATUS.BUSY")
        # A DMA may hold a frame of another program that has left the accelerator.
        if is_busy or self.read("FRAMES") != self._frame_count % (1 << 32):
            self.reset()

    def _reset_dmas(self):
        for channel in (*self._sends, *self._receives):
            channel.reset(self._timeout)

    @contextmanager
    def _resetting(self):
        """Reset all if what is done here fails, or is interrupted; if that is interrupted as well, before the next
        run."""
        self._is_clean = False
        try:
            yield
        except BaseException:
            self.reset()
            raise
        self._is_clean = True

    def load_weights(self, path):
        """Load the weights of a retrained model; frames behind it are computed with them.

        The hardware keeps them until it is configured again, but an `Accelerator` that is made later takes the scales
        of the model that was built, unless it loads them again.

        Parameters
        ----------
        path : path
            The file that ``hwgen weights`` made for this design.

        Raises
        ------
        DriverError
            If the design's weights are constants, the file is damaged or for another design, the hardware says that
            what it got was wrong, or frames on their way don't leave. Then these are dropped, as by `reset`.
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
        with self._resetting():  # which also closes a load that is broken off
            self.write("ERRORS", 0xFFFFFFFF)  # what a run before has left would end the load in its middle
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
        # Scales and zero points at the ends are those of the model that was loaded.
        self.inputs, self.outputs = ends
        self._knows_weights = True

    def _await(self, name, value, failure):
        """Wait until a bit of STATUS has a value."""
        mask, begun = self._bits(name), time.monotonic()
        while bool(self.read("STATUS") & mask) != bool(value):
            self._raise_errors()
            if time.monotonic() > begun + self._timeout:
                raise DriverError(f"{failure} within {self._timeout:g} s: {self._state()}")

    def counters(self):
        """Frames, cycles and stalls since the last reset, by the registers' names."""
        counted = ("FRAMES", "STALLED", "STARVED", "INTERVAL")
        found = {name: self.read(name) for name in self._offsets if name.endswith(counted)}
        return {**found, "CYCLES": self._cycles()}

    def run(self, *x, integers=False):
        """Compute frames.

        Parameters
        ----------
        *x : ndarray
            For each input frames ``(n, ...)`` in the model's shape: floats, which are quantised, or integers.
        integers : bool
            Give the last integer tensors as they are, and not what they stand for.

        Returns
        -------
        ndarray, or tuple of ndarray
            For each output ``(n, ...)`` in the model's shape.

        Raises
        ------
        DriverError
            If arrays don't fit, which is found before the first frame moves. If nothing moves for too long, a DMA
            fails, or the hardware says that a frame was short or long: then all frames are dropped, as by `reset`, as
            they are when the run is interrupted. The next run begins anew.
        """
        frames = self._checked(x)
        self._clear()
        self._check_weights()
        with self._resetting():
            self.write("ERRORS", 0xFFFFFFFF)
            made = self._move(frames)
            self._raise_errors()
            self._frame_count += len(frames[0])
        whole = [np.stack(each) for each in made]
        if not integers:
            whole = [end.to_floats(values) for end, values in zip(self.outputs, whole, strict=True)]
        return whole[0] if len(whole) == 1 else tuple(whole)

    def _check_weights(self):
        """Refuse to compute with weights that are not whole, or whose scales are not known."""
        if self._loadable is None:
            return
        if not self.read("STATUS") & self._bits("STATUS.WEIGHTS_GOOD"):
            raise DriverError("the hardware holds a part of some weights: load_weights must load them again")
        if not self._knows_weights:
            raise DriverError("a load of weights was broken off: load_weights must load them again")

    def _checked(self, x):
        """Arrays of as many frames, each of its input's shape and range."""
        frames = [_array(each) for each in x]
        if len(frames) != len(self.inputs):
            raise DriverError(f"{len(self.inputs)} arrays are needed, one an input, not {len(frames)}")
        for end, each in zip(self.inputs, frames, strict=True):
            end.check(each)
        if len({len(each) for each in frames}) > 1:
            raise DriverError(f"inputs must have as many frames each, not {[len(each) for each in frames]}")
        return frames

    def _move(self, frames):
        """Send and receive by turns, as the DMAs have done; for each output the integers of all frames."""
        count, sent, moved = len(frames[0]), 0, time.monotonic()
        made = [[] for _ in self.outputs]
        for channel in self._receives:
            channel.start()
        while any(len(each) < count for each in made):
            before = sent, sum(map(len, made))
            if sent < count and all(channel.done() for channel in self._sends):
                for channel, end, each in zip(self._sends, self.inputs, frames, strict=True):
                    channel.start(end.to_map(each[sent]))
                sent += 1
            for channel, end, each in zip(self._receives, self.outputs, made, strict=True):
                if len(each) < count and channel.done():
                    values = channel.take(again=len(each) + 1 < count)
                    each.append(end.from_map(values))
            if (sent, sum(map(len, made))) != before:
                moved = time.monotonic()
            elif time.monotonic() > moved + self._timeout:
                raise DriverError(f"nothing moved for {self._timeout:g} s: {self._state()}")
        return made

    def _state(self):
        return ", ".join(
            f"{name} {value}" for name, value in [("STATUS", self.read("STATUS")), *self.counters().items()]
        )

    def _raise_errors(self):
        raised = self.read("ERRORS")
        about = [about for mask, about in self._errors if raised & mask]
        if about:
            raise DriverError("; ".join(about))


class Engine(Hardware):
    """The programmable engine: it computes frames by a program in memory, as many in a run as the program has.

    Parameters
    ----------
    registers : object
        Has ``read(offset)`` and ``write(offset, value)``: PYNQ's ``DefaultIP`` or ``MMIO``.
    allocate : callable
        Makes a buffer that the engine can reach, ``allocate(shape=.., dtype=..)``, with ``physical_address`` and, where
        caches are in the way, ``flush()`` and ``invalidate()``, which its slices have, too: ``pynq.allocate``.
    folder : path, optional
        Of the design; where this file is if not given.
    timeout : float
        Seconds after which a frame is given up; a run of several frames has so many times that.
    interrupt : object, optional
        Has ``wait()``, to be awaited: PYNQ's ``Interrupt``. For `run_async`.

    Raises
    ------
    DriverError
        If the hardware is another than that of the folder.
    """

    _KIND, _IDENTITY = "engine", 0x48574745

    def __init__(self, registers, *, allocate, folder=None, timeout=10.0, interrupt=None):
        self._folder = Path(folder) if folder else Path(__file__).parent
        super().__init__(registers, self._folder)
        self._allocate, self._timeout, self._interrupt = allocate, timeout, interrupt
        # All four of the program that is loaded.
        self._batch = 1
        self._memory: Any = None
        self._input: Any = None
        self._outputs = []
        self._check()
        self.stop()
        self.write("INTERRUPT_ENABLE", 0 if interrupt is None else self._bits("INTERRUPT_STATUS.DONE"))

    def load(self, program):
        """Put a program into memory, in place of the one before.

        Parameters
        ----------
        program : path
            What ``hwgen build`` or ``hwgen compile`` wrote, here or in the folder of the design.

        Raises
        ------
        DriverError
            If it can't be read, is none, damaged, or of another engine.
        """
        path = Path(program)
        told, image = _program(path if path.exists() else self._folder / path, self._fields.fields("engine"))
        size, batch = told.integer("size", len(image), 1 << 32), told.integer("batch", 1, default=1)
        described = [told.fields("input"), *told.objects("outputs")]
        regions = [Region(each) for each in described]
        if len(regions) < 2:
            told.refuse("outputs", "a list of one object or more")
        for region, each in zip(regions, described, strict=True):
            if region.end(batch) > size:
                each.refuse("address", f"such that {batch:,} frames end within the program's {size:,} bytes")
        ends = told.fields("ends") if told.has("ends") else None
        inputs, outputs = _tensors(ends, "input", regions[:1]), _tensors(ends, "output", regions[1:])
        self.stop()
        memory = self._allocated(size)
        address = memory.physical_address
        if address % _PAGE or address + size > 1 << 32:
            raise DriverError(
                f"the buffer of the program must lie on a multiple of {_PAGE} below 4 GiB, not at {address:#x}; "
                "allocate it with pynq.allocate"
            )
        memory[: len(image)] = np.frombuffer(image, np.uint8)
        _synchronise(memory, "flush")
        self._memory = None  # until the engine has the new one: nothing is run of one that was half loaded
        self.write("PROGRAM_BASE", address)
        (self._input,), self._outputs, self._batch, self._memory = inputs, outputs, batch, memory

    def _allocated(self, size):
        """Return a buffer for a program."""
        try:
            return self._allocate(shape=(size,), dtype=np.uint8)
        except (MemoryError, OSError, RuntimeError) as error:
            raise DriverError(f"there are no {size:,} bytes of memory for the program: {error}") from error

    def run(self, x, *, integers=False):
        """Compute frames, and look again and again whether each run has ended.

        Parameters
        ----------
        x : ndarray
            Frames ``(n, ...)`` in the model's shape: floats, which are quantised, or integers.
        integers : bool
            Give the last integer tensors as they are, and not what they stand for.

        Returns
        -------
        ndarray, or tuple of ndarray
            For each output ``(n, ...)`` in the model's shape.

        Raises
        ------
        DriverError
            If the array doesn't fit, which is found before the first run, there is no program, the engine says that
            something is wrong, or a frame takes too long. Then the engine has been stopped, as it is when the run is
            interrupted, and the next run begins anew.
        """
        made, frames = [], self._checked(x)
        with self._stopping():
            for _ in self._runs(frames, made):
                end = time.monotonic() + self._timeout * self._batch
                while not self._done():
                    if time.monotonic() > end:
                        self._give_up()
        return self._result(made, integers)

    async def run_async(self, x, *, integers=False):
        """The same, and wait for the interrupt."""
        if self._interrupt is None:
            raise DriverError(
                "no interrupt was given to wait for: Engine(.., interrupt=overlay.engine_axi_0.interrupt)"
            )
        made, frames = [], self._checked(x)
        with self._stopping():
            for _ in self._runs(frames, made):
                end = time.monotonic() + self._timeout * self._batch
                while not self._done():
                    try:
                        await asyncio.wait_for(self._interrupt.wait(), max(0, end - time.monotonic()))
                    except asyncio.TimeoutError:  # noqa: UP041 (not the same in Python 3.10)
                        self._give_up()
        return self._result(made, integers)

    @contextmanager
    def _stopping(self):
        """Stop the engine if what is done here fails, or is interrupted: it would go on writing into memory."""
        try:
            yield
        except BaseException:
            self.stop()
            raise

    def stop(self):
        """End a run, as soon as memory has answered what the engine asked for."""
        self.write("CONTROL", self._bits("CONTROL.STOP"))
        end = time.monotonic() + self._timeout
        while self.read("STATUS") & self._bits("STATUS.BUSY"):
            if time.monotonic() > end:
                raise DriverError(f"the engine can't be stopped, as memory does not answer: {self._state()}")

    def counters(self):
        """Frames, cycles and traffic since the last reset, by the registers' names."""
        counted = ("FRAMES", "FAILURES", "FRAME_CYCLES", "READ", "WRITTEN", "STALLED")
        return {**{name: self.read(name) for name in self._offsets if name.endswith(counted)}, "CYCLES": self._cycles()}

    def _checked(self, x):
        if self._memory is None:
            raise DriverError("there is no program: load() one that hwgen build or hwgen compile wrote")
        frames = _array(x)
        self._input.check(frames)
        return frames

    def _runs(self, frames, made):
        """Run frames, and yield where the end of a run is to be waited for; the next frames are packed meanwhile."""
        self.stop()  # what somebody left behind
        parts = [frames[first : first + self._batch] for first in range(0, len(frames), self._batch)]
        packed = self._packed(parts[0])
        for number, those in enumerate(parts):
            whole, places = self._input.stream.places(len(those))
            part = self._memory[whole]
            for place, frame in zip(places, packed, strict=True):
                part[place] = frame
            _synchronise(part, "flush")
            self.write("INTERRUPT_STATUS", 0xFFFFFFFF)
            self.write("CONTROL", self._bits("CONTROL.START"))
            if number + 1 < len(parts):
                packed = self._packed(parts[number + 1])
            yield
            if code := self.read("ERROR"):
                errors = self._fields.fields("engine").fields("errors")
                about = errors.text(str(code)) if errors.has(str(code)) else "unknown"
                first = number * self._batch
                which = f"frame {first} was" if len(those) == 1 else f"frames {first} to {first + len(those) - 1} were"
                raise DriverError(f"{which} ended by error {code}: {about}")
            made += zip(*(self._unpacked(end, len(those)) for end in self._outputs), strict=True)

    def _packed(self, frames):
        return [self._input.stream.pack(self._input.to_map(frame)) for frame in frames]

    def _unpacked(self, end, count):
        """The frames of a run, of which the last one may have fewer than others."""
        whole, places = end.stream.places(count)
        part = self._memory[whole]
        _synchronise(part, "invalidate")
        return [end.from_map(end.stream.unpack(np.asarray(part[place]))) for place in places]

    def _done(self):
        return self.read("STATUS") & self._bits("STATUS.DONE")

    def _give_up(self):
        raise DriverError(f"a frame took more than {self._timeout:g} s: {self._state()}")

    def _state(self):
        names = {"STATUS": self.read("STATUS"), "ERROR": self.read("ERROR"), **self.counters()}
        return ", ".join(f"{name} {value}" for name, value in names.items())

    def _result(self, made, integers):
        whole = [np.stack(each) for each in zip(*made, strict=True)]
        if not integers:
            whole = [end.to_floats(values) for end, values in zip(self._outputs, whole, strict=True)]
        return whole[0] if len(whole) == 1 else tuple(whole)


class Region:
    """Where a map of a program lies in memory, and how: blocks of 8 channels, each row by row, all values signed.

    Parameters
    ----------
    told : dict
        ``input``, or one of ``outputs``, in a program.
    """

    def __init__(self, told):
        told = _fields(told, "a map")
        described = told.fields("map")
        kind = described.fields("type")
        self.name, self.address = told.text("name"), told.integer("address", 0, 1 << 32)
        if self.address % _LANES:
            told.refuse("address", f"a multiple of {_LANES}")
        self.shape = tuple(described.integer(size, 1) for size in ("channels", "height", "width"))
        self.scale = described.scale("scale")
        self.zero_point = described.integer("zero_point", -_MOST_VALUE, _MOST_VALUE)
        is_signed = kind.flag("signed")
        self.dtype = np.dtype(np.int8 if is_signed else np.uint8)
        span = 1 << kind.integer("bits", 1, 8)
        self.range = (-span >> 1, (span >> 1) - 1) if is_signed else (0, span - 1)
        self._offset = 0 if is_signed else 128
        channels, height, width = self.shape
        self._words = (-(-channels // _LANES), height, width, _LANES)
        self.size = math.prod(self._words)
        self._frame_bytes = told.integer("frame_bytes", self.size, 1 << 32, default=self.size)
        if self._frame_bytes % _LANES:
            told.refuse("frame_bytes", f"a multiple of {_LANES}")

    def end(self, frames):
        """The byte behind so many frames."""
        return self.address + (frames - 1) * self._frame_bytes + self.size

    def places(self, frames):
        """The bytes of so many frames, and each frame's among them."""
        begins = range(0, frames * self._frame_bytes, self._frame_bytes)
        whole = slice(self.address, self.end(frames))
        return whole, [slice(begin, begin + self.size) for begin in begins]

    def pack(self, frame):
        """A map ``(C, H, W)`` in the order of memory; lanes past its channels are 0."""
        blocks, height, width, lanes = self._words
        whole = np.zeros((blocks * lanes, height, width), np.int16)
        whole[: len(frame)] = frame.astype(np.int16) - self._offset
        return whole.reshape(blocks, lanes, height, width).transpose(0, 2, 3, 1).astype(np.int8).view(np.uint8).ravel()

    def unpack(self, values):
        """The inverse."""
        words = values.view(np.int8).reshape(self._words).transpose(0, 3, 1, 2)
        return (words.reshape(-1, *self.shape[1:])[: self.shape[0]].astype(np.int16) + self._offset).astype(self.dtype)


def _program(path, engine):
    """What a program tells of itself, and what lies in memory before the first frame."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DriverError(f"program {path} can't be read: {error.strerror}; make it with hwgen compile") from None
    if len(data) < _HEADER.size or not data.startswith(b"hwgenPRG"):
        raise DriverError(f"{path} is not a program of hwgen")
    _, version, checksum, made_for, told_size, image_size = _HEADER.unpack_from(data)
    if version not in PROGRAM_VERSIONS:
        known = " and ".join(map(str, PROGRAM_VERSIONS))
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
    if not is_last:  # the engine would go on with jobs that were not checked
        told.refuse("owners", "a list of all jobs, up to the last one of the program")
    return told, image


class _Access:
    """Bytes of memory that a job of an engine reads or writes: blocks of rows of words.

    Parameters
    ----------
    described : _Fields
        One of ``accesses`` in ``registers.json``: for each field its offset and width in a job, in bits.
    job_bits : int
        Size of a job.
    """

    def __init__(self, described, job_bits):
        self._word_bytes, self._writes = described.integer("word_bytes", 1), described.flag("writes")
        self._fields = {
            name: tuple(described.integers(name, 2, 0, job_bits))
            for name in ("address", "words", "rows", "row_stride", "blocks", "block_stride")
            if described.has(name)
        }

    def lies_in(self, job, image_bytes, memory_bytes):
        """Whether a job, as one integer, stays within memory, and writes only behind the image of the program.

        The engine counts rows down to 1, so 0 rows are as many as the field can count, and one more.
        """
        blocks, rows, words = (self._value(job, name) for name in ("blocks", "rows", "words"))
        if blocks == 0 or words == 0:
            return True
        if rows == 0:
            rows = 1 << self._fields["rows"][1]
        begin = self._value(job, "address")
        strides = (blocks - 1) * self._value(job, "block_stride") + (rows - 1) * self._value(job, "row_stride")
        first = image_bytes if self._writes else 0
        return first <= begin and begin + strides + words * self._word_bytes <= memory_bytes

    def _value(self, job, name):
        if name not in self._fields:
            return 1
        offset, width = self._fields[name]
        return job >> offset & (1 << width) - 1


def _synchronise(part, how):
    """Flush or invalidate the caches of a buffer, if it has any."""
    getattr(part, how, lambda: None)()


class _Channel:
    """One direction of a DMA, and two buffers that take turns.

    Parameters
    ----------
    stream : Stream
        What it moves.
    dma : object
        PYNQ's ``DMA``.
    offset : int
        Of the channel's registers: 0 into the accelerator, or `_DMA_RECEIVE`.
    allocate : callable
        Makes buffers.
    """

    def __init__(self, stream, dma, offset, allocate):
        self._stream, self._dma, self._offset = stream, dma, offset
        self._channel = dma.recvchannel if offset else dma.sendchannel
        if self._channel is None:
            raise DriverError(
                f"the DMA for {stream.name} must {'receive' if offset else 'send'}: it has no such channel"
            )
        self._buffers = [allocate(shape=(len(stream.places),), dtype=stream.dtype) for _ in range(2)]
        self._turn, self._busy = 0, False

    def reset(self, timeout):
        """Drop what the DMA moves. It resets both of its channels."""
        self._busy = False
        self._dma.write(self._offset + _DMA_CONTROL, _DMA_RESET)
        end = time.monotonic() + timeout
        while self._dma.read(self._offset + _DMA_CONTROL) & _DMA_RESET:
            if time.monotonic() > end:
                raise DriverError(f"the DMA of {self._stream.name} does not end its reset: load the overlay again")

    def restart(self):
        """Bring PYNQ's object to the state in which it takes transfers after a reset."""
        if not hasattr(self._channel, "halted"):  # one with scatter-gather starts with each transfer
            self._channel.start()

    def start(self, frame=None):
        """Move the other buffer, with what is to be sent."""
        self._turn ^= 1
        if frame is not None:
            self._buffers[self._turn][:] = self._stream.pack(frame)
        self._call(self._channel.transfer, self._buffers[self._turn])
        self._busy = True

    def done(self):
        """Whether the channel has nothing to move."""
        if not self._busy:
            return True
        status = self._dma.read(self._offset + _DMA_STATUS)
        for error, about in _DMA_ERRORS.items():
            if status & error:
                raise DriverError(f"the DMA of {self._stream.name} failed: {about}")
        if self._channel.idle:
            self._call(self._channel.wait)
            self._busy = False
        return not self._busy

    def take(self, again):
        """What has come; the next one is received meanwhile."""
        buffer, moved = self._buffers[self._turn], self._channel.transferred
        if moved != self._stream.frame_bytes:
            raise DriverError(
                f"a frame of {moved:,} bytes came on {self._stream.name}, where one has {self._stream.frame_bytes:,}"
            )
        if again:
            self.start()
        return self._stream.unpack(np.asarray(buffer))

    def _call(self, method, *arguments):
        """Call PYNQ's object, whose errors are of many classes."""
        try:
            method(*arguments)
        except (RuntimeError, ValueError) as error:
            raise DriverError(f"the DMA of {self._stream.name} refused: {error}") from error


def _array(x):
    """Return frames as an array, which lists of different lengths are not."""
    try:
        return np.asarray(x)
    except (ValueError, TypeError):
        raise DriverError("frames must be an array of numbers, or what NumPy makes one of") from None


def _read(path):
    """Return what a file of JSON holds."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DriverError(f"{path} can't be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise DriverError(f"{path} is not the JSON that hwgen wrote") from None


def _optional(path):
    """Return the fields of a file that not all designs have, or ``None``."""
    return _Fields(_read(path), str(path)) if path.exists() else None


def _weights(path):
    """What a file of weights says of itself, and the words for the hardware."""
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
    # A load has a digest of two words, words of memories, and a checksum.
    if len(load) != 4 * document.integer("words", 4) or zlib.crc32(load[:-4]) != int.from_bytes(load[-4:], "little"):
        raise DriverError(f"{path} is cut off or was changed: make it again")
    return document, np.frombuffer(load, "<u4").tolist()


def _parsed(text, path):
    """Return the JSON in a part of a file."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise DriverError(f"{path} is damaged: what it says of itself is no JSON; make it again") from None


def _tensors(described, kind, streams):
    """The model's tensors at one end of the hardware, in the order of its maps; these themselves if none are told."""
    described = described or _Fields({}, "")
    tensors: Any = []
    if described.has(f"{kind}s"):
        tensors = described.objects(f"{kind}s")
    elif described.has(kind):
        tensors = [described.fields(kind)]
    if tensors and len(tensors) != len(streams):
        raise DriverError(
            f"{described.where}: {kind}s must be {len(streams)}, not {len(tensors)}: copy or make it again"
        )
    if not tensors:
        plain = ("name", "scale", "zero_point")
        tensors = [{"shape": list(each.shape)} | {name: getattr(each, name) for name in plain} for each in streams]
    return [Tensor(each, stream) for each, stream in zip(tensors, streams, strict=True)]
