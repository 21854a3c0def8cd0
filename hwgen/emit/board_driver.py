"""Common part of the Python board drivers of accelerators and engines: design files, tensors and registers.

The driver in a design's folder is one file that begins with this part (`hwgen.emit.drivers`).
"""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

#: Major version of the register map that this driver is written for.
VERSION_MAJOR = 1
#: Largest number of values in a frame, of channels, rows or columns of a map, and of frames in a run of the engine.
_MAX_COUNT = 1 << 28
#: Largest magnitude of a tensor value, and of a zero point.
_MAX_VALUE = 1 << 31
#: Number of frames that are checked at a time.
_CHECKED = 1024
#: Smallest and largest scale of a tensor, the range of float32.
_SCALES = (1.5e-45, 3.4e38)


_log = logging.getLogger("hwgen")


class DriverError(Exception):
    """Error of a board driver: unexpected hardware, unsuitable frames or files, or a failed run."""


class _Fields:
    """Reader of the fields of a parsed JSON object, which checks each field's type and range.

    Parameters
    ----------
    values : object
        Parsed JSON.
    where : str
        Name of the file, and of the object in the file. Each error message begins with it.

    Raises
    ------
    DriverError
        If the JSON is not an object. Methods raise it if a field is missing, has another type or is out of range.
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

    def _field_if(self, name, is_right, wanted) -> Any:
        """Return a JSON field's value (None if missing) if ``is_right`` accepts it, or raise DriverError."""
        if not is_right(self.values.get(name)):
            self.refuse(name, wanted)
        return self.values.get(name)

    def _field_of_type(self, name, expected, wanted) -> Any:
        """Return the value of a JSON field that must have the Python type ``expected``."""
        return self._field_if(name, lambda value: isinstance(value, expected), wanted)

    def integer(self, name, low=0, high=_MAX_COUNT, default=None):
        """Return the integer, from ``low`` to ``high``, in the JSON field ``name``, or raise DriverError.

        A field that is missing or null gives ``default``.
        """
        if default is not None and not self.has(name):
            return default
        return self._field_if(name, lambda value: _is_integer(value, low, high), f"an integer from {low:,} to {high:,}")

    def integers(self, name, count=None, low=0, high=_MAX_COUNT):
        """Return the list of integers, from ``low`` to ``high``, in the JSON field ``name``, or raise DriverError.

        It must have ``count`` entries unless ``count`` is None.
        """
        amount = "" if count is None else f"{count} "
        wanted = f"a list of {amount}integers from {low:,} to {high:,}"
        return self._field_if(name, lambda values: _are_integers(values, count, low, high), wanted)

    def spans(self, name, size, count=2):
        """Return the list of ``[first, end, ..]`` integer lists in a JSON field, 0 to ``size``, or raise DriverError.

        Each span has ``count`` integers.
        """

        def are_spans(spans):
            return isinstance(spans, list) and spans and all(_is_span(span, size, count) for span in spans)

        return self._field_if(name, are_spans, f"a list of spans, {count} integers each, within 0 to {size:,}")

    def scale(self, name):
        """Return a JSON field that must be a positive number in float32's range, as a float; None for null."""
        if name in self.values and not self.has(name):
            return None
        return float(self._field_if(name, _is_scale, "a positive number of float32, or null"))

    def text(self, name):
        """Return the string in the JSON field ``name``, or raise DriverError."""
        return self._field_of_type(name, str, "a string")

    def digest(self, name):
        """Return the string with 16 hexadecimal digits in the JSON field ``name``, or raise DriverError."""
        self.text(name)
        return self._field_if(name, lambda text: re.fullmatch("[0-9a-f]{16}", text), "16 hexadecimal digits")

    def flag(self, name):
        """Return the boolean in the JSON field ``name``, or raise DriverError."""
        return self._field_of_type(name, bool, "true or false")

    def fields(self, name):
        """Return a `_Fields` reader of the object in the JSON field ``name``."""
        return _Fields(self._field_of_type(name, dict, "an object"), f"{self.where}: {name}")

    def objects(self, name):
        """Return a list of `_Fields` readers, one for each object in a JSON field that must be a list of objects."""
        entries = self._field_of_type(name, list, "a list of objects")
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
    """Return the bit mask (integer) of a field in its 32-bit hardware register, from its JSON description."""
    low, bits = field.integer("low", 0, 31), field.integer("bits", 1, 32)
    return ((1 << bits) - 1) << low


def _shortened(value):
    """Return a JSON value as text of at most 40 ASCII characters, for an error message."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _fields(described, where):
    """Return a `_Fields` reader of a dictionary; return an existing reader unchanged."""
    return described if isinstance(described, _Fields) else _Fields(described, where)


class Tensor:
    """Tensor of the ONNX model at an input or output of the hardware: its shape, scale, zero point and layout.

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
            described.refuse("shape", f"a shape with {math.prod(stream.shape):,} values")
        self._parts: Any = None
        self._order: Any = None
        if described.has("parts"):
            self._parts, self._order = described.integers("parts"), described.integers("order")
            if math.prod(self._parts) != math.prod(self.shape):
                described.refuse("parts", f"sizes of {math.prod(self.shape):,} values")
            if sorted(self._order) != list(range(len(self._parts))):
                described.refuse("order", f"an order of {len(self._parts)} dimensions")

    def check(self, frames):
        """Raise DriverError if input frames of this tensor have a wrong shape or type, or values out of range.

        Raises
        ------
        DriverError
            If frames have another shape, are not numbers, are integers out of range, are floats that are not finite, or
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
        """Raise DriverError, with the first wrong frame's index, unless all flags ``right`` (one per value) are true.

        ``begin`` is the index of the first frame in ``right``.
        """
        if not right.all():
            index = begin + int(np.argmin(right.reshape(len(right), -1).all(axis=1)))
            verb = "has others" if wanted.startswith("be") else "does not"
            raise DriverError(f"{self.name} must {wanted}: frame {index} {verb}")

    def to_maps(self, frames):
        """Return checked frames as the hardware's feature maps ``(n, C, H, W)``: floats quantised, integers clipped."""
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
        """Return feature maps ``(n, C, H, W)`` from the hardware as integer frames ``(n, ..)`` of the tensor."""
        if self._parts is not None:
            split = maps.reshape(len(maps), *self._parts)
            maps = split.transpose(0, *(1 + axis for axis in self._order))
        return maps.reshape(len(maps), *self.shape)

    def to_floats(self, frames):
        """Return integer frames of the tensor as float32, as ONNX's DequantizeLinear computes them.

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
    #: Access to the hardware, ``pynq``, ``linux`` or ``xdma``, if `connect` opened it.
    through = ""

    def __init__(self, registers, folder):
        path = folder / "registers.json"
        self.described, self._registers = _read_json(path), registers
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
        """Raise DriverError unless the registers have the identity, version and build hash of the folder's design."""
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
                f"{build_hash:#018x}, not {expected}; load the bitstream that was built from this folder"
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


def _check_frames(x, inputs):
    """Return the user's frames as a list of arrays, one per input; refuse wrong shapes, ranges or unequal counts."""
    frames = [_frames_as_array(input_frames) for input_frames in x]
    if len(frames) != len(inputs):
        raise DriverError(f"frames must be one array per input of the design ({len(inputs)}), not {len(frames)}")
    for end, input_frames in zip(inputs, frames, strict=True):
        end.check(input_frames)
    counts = [len(input_frames) for input_frames in frames]
    if len(set(counts)) > 1:
        raise DriverError(f"inputs must have as many frames each, not {counts}")
    return frames


def _frames_as_array(x):
    """Return the user's frames as a NumPy array.

    Refuse objects that NumPy can't convert, such as lists of different lengths.
    """
    try:
        return np.asarray(x)
    except (ValueError, TypeError):
        raise DriverError("frames must be an array of numbers, or what NumPy makes one of") from None


def _read_json(path):
    """Read a JSON file of the design's folder, and return its value."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DriverError(f"{path} can't be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise DriverError(f"{path} is not the JSON that hwgen wrote") from None


def _parsed(text, path):
    """Return the value of a JSON text from a file, or raise DriverError if the text is damaged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise DriverError(f"{path} is damaged: its description is not valid JSON; regenerate the file") from None


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


def _connect(make, folder, through, options):
    """Return the driver that ``make`` builds on a design's registers and DMAs, opened by PYNQ, Linux or XDMA."""
    folder = Path(folder) if folder else Path(__file__).parent
    described = _Fields(_read_json(folder / "registers.json"), str(folder / "registers.json"))
    through = through or _default_access()
    if through not in _ACCESSES:
        raise DriverError(f"through must be {' or '.join(_ACCESSES)}, not {through!r}")
    module = described.text("module")
    counts = [len(described.objects(side)) if described.has(side) else 0 for side in ("inputs", "outputs")]
    _log.info("%s is reached through %s", module, through)
    registers, dmas, allocate = _ACCESSES[through](folder, module, *counts)
    driver = make(registers, dmas, allocate=allocate, folder=folder, **options)
    driver.through = through
    return driver


def _default_access():
    """Return the access of a design's board: XDMA if its file is next to this driver, else PYNQ if it is installed."""
    if _access_file("xdma").exists():
        return "xdma"
    return "pynq" if importlib.util.find_spec("pynq") else "linux"


def _open_by_pynq(folder, module, inputs, outputs):
    """Load a design's bitstream with PYNQ; return its registers, DMAs, and the function ``pynq.allocate``."""
    import pynq  # type: ignore[import-not-found]  # on a board

    overlay = pynq.Overlay(str(folder / f"{module.removesuffix('_axi')}.bit"))
    dmas = [getattr(overlay, f"axi_dma_{index}") for index in range(max(inputs, outputs))]
    return getattr(overlay, f"{module}_0"), dmas, pynq.allocate


def _access_file(access):
    """Return the path of the file ``NAME_ACCESS.py`` next to this driver, which opens a design by that access."""
    here = Path(__file__)
    return here.with_name(f"{here.stem.removesuffix('driver')}{access}.py")


def _open_by_file(access, _folder, module, inputs, outputs):
    """Open a design by its folder's file for an access; return registers, DMAs, and a buffer allocation function."""
    path = _access_file(access)
    spec: Any = importlib.util.spec_from_file_location(path.stem, path)
    opened = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(opened)
    except OSError as error:
        raise DriverError(f"{path} can't be read: {error.strerror}; copy it into this file's folder") from None
    try:
        return opened.devices(module, inputs, outputs)
    except opened.AccessError as error:
        raise DriverError(str(error)) from None


#: Functions that open the hardware, by the name of the access.
_ACCESSES: dict[str, Any] = {
    "pynq": _open_by_pynq,
    "linux": partial(_open_by_file, "linux"),
    "xdma": partial(_open_by_file, "xdma"),
}
