"""Drives an accelerator on a board from Python: NumPy arrays in, NumPy arrays out.

hwgen writes this file into the folder of a design, beside ``registers.json`` and ``plan.json``, which tell it all that
it must know. It needs Python 3.10 and NumPy, and no hwgen; on a PYNQ board::

    from pynq import Overlay, allocate
    from NAME_driver import Accelerator

    overlay = Overlay("design.bit")
    accelerator = Accelerator(overlay.NAME_axi_0, overlay.axi_dma_0, allocate=allocate)
    outputs = accelerator.run(frames)
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

#: Software for other lists of registers than this one does not fit.
VERSION_MAJOR = 1


class DriverError(Exception):
    """The hardware is another than expected, frames don't fit, or something went wrong on the way."""


class Stream:
    """How a feature map ``(C, H, W)`` lies in the memory from which, or into which, it is moved.

    Parameters
    ----------
    described : dict
        One of ``inputs`` or ``outputs`` in ``registers.json``.
    """

    def __init__(self, described):
        layout = described["layout"]
        self.name = described["name"]
        self.shape = (layout["channels"], layout["height"], layout["width"])
        kind = "i" if described["signed"] else "u"
        self.dtype = np.dtype(f"<{kind}{described['value_bytes']}")
        span = 1 << described["value_bits"]
        self.range = (-span >> 1, (span >> 1) - 1) if described["signed"] else (0, span - 1)
        self.places = _places(layout)
        self.frame_bytes = described["frame_bytes"]
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


def _places(layout):
    """For each value in memory its place in a map ``(C, H, W)``, or -1 if it belongs to no pixel."""
    height, width, pixels = layout["height"], layout["width"], layout["pixels"]
    # The channels of each beat of a pixel, one after the other, each with all pixels of the beat.
    channels = np.arange(layout["channels"])[:, None]
    folds = [channels[first:end] for first, end in layout["folds"]]
    found = []
    for top, bottom in layout["rows"]:
        for left, right, first in layout["columns"]:
            rows = np.arange(top, bottom)[:, None, None, None]
            begins = np.arange(first, right, pixels)[:, None, None]
            columns = begins + np.arange(pixels)
            inside = (columns >= left) & (columns < right)
            parts = [np.where(inside, (fold * height + rows) * width + columns, -1) for fold in folds]
            found.append(np.concatenate([part.reshape(*part.shape[:2], -1) for part in parts], axis=2).reshape(-1))
    return np.concatenate(found)


class Tensor:
    """One of the model's tensors at an end of the hardware: its shape, and what its integers stand for.

    Parameters
    ----------
    described : dict
        ``input`` or ``output`` in ``plan.json``, or one of ``inputs`` or ``outputs``.
    stream : Stream
    """

    def __init__(self, described, stream):
        self.name, self.shape = described["name"], tuple(described["shape"])
        self.scale, self.zero_point = described["scale"], described["zero_point"]
        self.limits = described.get("limits", stream.range)
        self.stream = stream
        self._parts, self._order = described.get("parts"), described.get("order")

    def to_map(self, frame):
        """A frame in the model's shape, floats or integers, as the map ``(C, H, W)`` that the hardware takes."""
        low, high = self.stream.range
        if frame.dtype.kind == "f":
            if self.scale is None:
                raise DriverError(f"{self.name} must be integers: the model gives no scale for floats")
            if not np.isfinite(frame).all():
                raise DriverError(f"{self.name} must be finite numbers")
            steps = np.rint(frame.astype(np.float32) / np.float32(self.scale)).astype(np.float64) + self.zero_point
            frame = np.clip(steps, low, high)
        elif frame.size and not low <= int(frame.min()) <= int(frame.max()) <= high:
            raise DriverError(f"{self.name} must lie in {low} .. {high}")
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


class Accelerator:
    """The hardware, with several frames on their way at once.

    Parameters
    ----------
    registers : object
        Has ``read(offset)`` and ``write(offset, value)``: PYNQ's ``DefaultIP`` or ``MMIO``.
    dma : object
        Has ``sendchannel`` and ``recvchannel``, each with ``transfer(buffer)``, ``idle`` and ``wait()``: PYNQ's
        ``DMA``. With several inputs or outputs a list: the first ones for the inputs in order, and the outputs.
    allocate : callable, optional
        Makes a buffer that the DMA can reach, ``allocate(shape=.., dtype=..)``: ``pynq.allocate``.
    folder : path, optional
        Of the design; where this file is if not given.
    timeout : float
        Seconds without progress after which a run is given up.

    Raises
    ------
    DriverError
        If the hardware is another than that of the folder.
    """

    def __init__(self, registers, dma, *, allocate=None, folder=None, timeout=10.0):
        folder = Path(folder) if folder else Path(__file__).parent
        self.described = _read(folder / "registers.json")
        # The folder of a group of layers has no plan of its own, and its ends are maps of integers.
        plan = _read(folder / "plan.json") if (folder / "plan.json").exists() else None
        self._registers, self._timeout = registers, timeout
        self._offsets = {register["name"]: register["offset"] for register in self.described["registers"]}
        self._errors = next(each for each in self.described["registers"] if each["name"] == "ERRORS")["fields"]
        dmas = list(dma) if isinstance(dma, (list, tuple)) else [dma]
        self.inputs = _tensors(plan, "input", self.described["inputs"])
        self.outputs = _tensors(plan, "output", self.described["outputs"])
        if len(dmas) < max(len(self.inputs), len(self.outputs)):
            raise DriverError(f"dma must be {max(len(self.inputs), len(self.outputs))} of them, not {len(dmas)}")
        self._check()
        allocate = allocate or (lambda shape, dtype: np.zeros(shape, dtype))
        self._sends = [_Channel(end.stream, dmas[n].sendchannel, allocate) for n, end in enumerate(self.inputs)]
        self._receives = [_Channel(end.stream, dmas[n].recvchannel, allocate) for n, end in enumerate(self.outputs)]

    def _check(self):
        """Refuse other hardware."""
        identity, version = self.read("IDENTITY"), self.read("VERSION") >> 16
        if identity != 0x4857474E:
            raise DriverError(f"there is no accelerator of hwgen: IDENTITY is {identity:#010x}, not 0x4857474e")
        if version != VERSION_MAJOR:
            raise DriverError(f"the hardware's registers are of version {version}, this driver is for {VERSION_MAJOR}")
        found = self.read("BUILD_HASH_HIGH") << 32 | self.read("BUILD_HASH_LOW")
        expected = int(self.described["build_hash"], 16)
        if found != expected:
            raise DriverError(
                f"the hardware is another design than {self.described['module']} of this folder: its build hash is "
                f"{found:#018x}, not {expected:#018x}; load the bitstream that was made of this folder"
            )

    def read(self, name):
        """A register by its name."""
        return int(self._registers.read(self._offsets[name]))

    def write(self, name, value):
        """The same, written."""
        self._registers.write(self._offsets[name], value)

    def reset(self):
        """Drop all frames on their way. DMAs in the middle of a transfer must be reset as well."""
        self.write("RESET", 1)

    def counters(self):
        """Frames, cycles and stalls since the last reset, by the registers' names."""
        counted = ("FRAMES", "STALLED", "STARVED", "INTERVAL")
        found = {name: self.read(name) for name in self._offsets if name.endswith(counted)}
        low = self.read("CYCLES_LOW")
        return {**found, "CYCLES": self.read("CYCLES_HIGH") << 32 | low}

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
            If arrays don't fit, nothing moves for too long, or the hardware says that a frame was short or long.
        """
        frames = self._checked(x)
        self.write("ERRORS", 0xFFFFFFFF)
        made = self._move(frames)
        self._raise_errors()
        whole = [np.stack(each) for each in made]
        if not integers:
            whole = [end.to_floats(values) for end, values in zip(self.outputs, whole, strict=True)]
        return whole[0] if len(whole) == 1 else tuple(whole)

    def _checked(self, x):
        """Arrays of as many frames, each of its input's shape."""
        frames = [np.asarray(each) for each in x]
        if len(frames) != len(self.inputs):
            raise DriverError(f"{len(self.inputs)} arrays are needed, one an input, not {len(frames)}")
        for end, each in zip(self.inputs, frames, strict=True):
            if each.shape[1:] != end.shape or not len(each) or each.dtype.kind not in "iuf":
                wanted = ", ".join(map(str, ("n", *end.shape)))
                raise DriverError(f"{end.name} must be numbers of shape ({wanted}), not {each.dtype} of {each.shape}")
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
        about = [each["about"] for each in self._errors if raised >> each["low"] & 1]
        if about:
            raise DriverError("; ".join(about))


class _Channel:
    """One direction of a DMA, and two buffers that take turns."""

    def __init__(self, stream, channel, allocate):
        self._stream, self._channel = stream, channel
        self._buffers = [allocate(shape=(len(stream.places),), dtype=stream.dtype) for _ in range(2)]
        self._turn, self._busy = 0, False

    def start(self, frame=None):
        """Move the other buffer, with what is to be sent."""
        self._turn ^= 1
        if frame is not None:
            self._buffers[self._turn][:] = self._stream.pack(frame)
        self._channel.transfer(self._buffers[self._turn])
        self._busy = True

    def done(self):
        """Whether the channel has nothing to move."""
        if self._busy and self._channel.idle:
            self._channel.wait()
            self._busy = False
        return not self._busy

    def take(self, again):
        """What has come; the next one is received meanwhile."""
        buffer = self._buffers[self._turn]
        if again:
            self.start()
        return self._stream.unpack(np.asarray(buffer))


def _read(path):
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise DriverError(f"{path} can't be read: {error.strerror}") from None
    except ValueError:
        raise DriverError(f"{path} is not the JSON that hwgen wrote") from None


def _tensors(plan, kind, streams):
    """The model's tensors at one end of the hardware, in the order of its streams; its maps if there is no plan."""
    known = [Stream(stream) for stream in streams]
    if plan is None:
        plain = [{"name": each.name, "shape": each.shape, "scale": None, "zero_point": 0} for each in known]
        return [Tensor(each, stream) for each, stream in zip(plain, known, strict=True)]
    described = plan.get(f"{kind}s") or [plan[kind]]
    return [Tensor(each, stream) for each, stream in zip(described, known, strict=True)]
