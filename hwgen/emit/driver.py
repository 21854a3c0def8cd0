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
import struct
import time
import zlib
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


class DriverError(Exception):
    """The hardware is another than expected, frames don't fit, or something went wrong on the way."""


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
        ``input`` or ``output`` in ``plan.json``, or in a program, or one of ``inputs`` or ``outputs``.
    stream : Stream or Region
        Its map.
    """

    def __init__(self, described, stream):
        self.name, self.shape = described["name"], tuple(described["shape"])
        self.scale, self.zero_point = described["scale"], described["zero_point"]
        self.limits = described.get("limits", stream.range)
        self.stream = stream
        self._parts, self._order = described.get("parts"), described.get("order")

    def check(self, frames):
        """Refuse what is no array of frames in the model's shape."""
        if frames.shape[1:] != self.shape or not len(frames) or frames.dtype.kind not in "iuf":
            wanted = ", ".join(map(str, ("n", *self.shape)))
            raise DriverError(f"{self.name} must be numbers of shape ({wanted}), not {frames.dtype} of {frames.shape}")

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
        self.described, self._registers = _read(folder / "registers.json"), registers
        described = self.described["registers"]
        self._offsets = {register["name"]: register["offset"] for register in described}
        self._bits = {
            f"{register['name']}.{each['name']}": 1 << each["low"]
            for register in described
            for each in register["fields"]
        }
        if self._IDENTITY not in (register["reset"] for register in described if register["name"] == "IDENTITY"):
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

    _KIND, _IDENTITY = "accelerator", 0x4857474E

    def __init__(self, registers, dma, *, allocate=None, folder=None, timeout=10.0):
        folder = Path(folder) if folder else Path(__file__).parent
        super().__init__(registers, folder)
        # The folder of a group of layers has no plan of its own, and its ends are maps of integers.
        plan = _read(folder / "plan.json") if (folder / "plan.json").exists() else {}
        # So has one whose weights are constants nothing that says which it takes.
        self._loadable = _read(folder / "weights.json") if (folder / "weights.json").exists() else None
        self._timeout = timeout
        self._errors = next(each for each in self.described["registers"] if each["name"] == "ERRORS")["fields"]
        dmas = list(dma) if isinstance(dma, (list, tuple)) else [dma]
        self.inputs = _tensors(plan, "input", [Stream(each) for each in self.described["inputs"]])
        self.outputs = _tensors(plan, "output", [Stream(each) for each in self.described["outputs"]])
        if len(dmas) < max(len(self.inputs), len(self.outputs)):
            raise DriverError(f"dma must be {max(len(self.inputs), len(self.outputs))} of them, not {len(dmas)}")
        self._check()
        allocate = allocate or (lambda shape, dtype: np.zeros(shape, dtype))
        self._sends = [_Channel(end.stream, dmas[n].sendchannel, allocate) for n, end in enumerate(self.inputs)]
        self._receives = [_Channel(end.stream, dmas[n].recvchannel, allocate) for n, end in enumerate(self.outputs)]

    def reset(self):
        """Drop all frames on their way. DMAs in the middle of a transfer must be reset as well."""
        self.write("RESET", 1)

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
        if document["design"] != self._loadable["digest"]:
            raise DriverError(
                f"{path} is for a design with the digest {document['design']}, not for this one with "
                f"{self._loadable['digest']}: make it with 'hwgen weights' for this folder"
            )
        self.write("ERRORS", 0xFFFFFFFF)  # what a run before has left would end the load in its middle
        self.write("WEIGHTS", words[0])
        try:
            self._await("WEIGHTS_WAIT", 0, "frames on their way did not leave")
        except DriverError as error:
            self.reset()  # or the word that waits would hold all frames back, and spoil the next load
            raise DriverError(f"{error}; they were dropped by a reset, and the weights are those before") from None
        for word in words[1:-1]:
            self.write("WEIGHTS", word)
        self.write("WEIGHTS_LAST", words[-1])
        self._await("WEIGHTS_GOOD", 1, "the hardware did not take the weights")
        self._raise_errors()
        # Scales and zero points at the ends are those of the model that was loaded.
        self.inputs = _tensors(document, "input", [Stream(each) for each in self.described["inputs"]])
        self.outputs = _tensors(document, "output", [Stream(each) for each in self.described["outputs"]])

    def _mask(self, register, name):
        """Bits of a register's field."""
        described = next(each for each in self.described["registers"] if each["name"] == register)
        found = next(each for each in described["fields"] if each["name"] == name)
        return ((1 << found["bits"]) - 1) << found["low"]

    def _await(self, name, value, failure):
        """Wait until a bit of STATUS has a value."""
        mask, begun = self._mask("STATUS", name), time.monotonic()
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
            If arrays don't fit, nothing moves for too long, or the hardware says that a frame was short or long.
        """
        frames = self._checked(x)
        if self._loadable is not None and not self.read("STATUS") & self._mask("STATUS", "WEIGHTS_GOOD"):
            raise DriverError("the hardware holds a part of some weights: load_weights must load them again")
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
        about = [each["about"] for each in self._errors if raised >> each["low"] & 1]
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
        self.write("INTERRUPT_ENABLE", 0 if interrupt is None else self._bits["INTERRUPT_STATUS.DONE"])

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
        told, image = _program(path if path.exists() else self._folder / path, self.described["engine"])
        self.stop()
        memory = self._allocate(shape=(told["size"],), dtype=np.uint8)
        address = memory.physical_address
        if address % _PAGE or address + told["size"] > 1 << 32:
            raise DriverError(
                f"the buffer of the program must lie on a multiple of {_PAGE} below 4 GiB, not at {address:#x}; "
                "allocate it with pynq.allocate"
            )
        memory[: len(image)] = np.frombuffer(image, np.uint8)
        _synchronise(memory, "flush")
        regions = [Region(each) for each in (told["input"], *told["outputs"])]
        ends = told.get("ends", {})
        (self._input,) = _tensors(ends, "input", regions[:1])
        self._memory, self._outputs = memory, _tensors(ends, "output", regions[1:])
        self._batch = told.get("batch", 1)
        self.write("PROGRAM_BASE", address)

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
            If the array doesn't fit, there is no program, the engine says that something is wrong, or a frame takes too
            long. Then the engine has been stopped, and the next run begins anew.
        """
        made = []
        for _ in self._runs(self._checked(x), made):
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
        made = []
        for _ in self._runs(self._checked(x), made):
            end = time.monotonic() + self._timeout * self._batch
            while not self._done():
                try:
                    await asyncio.wait_for(self._interrupt.wait(), max(0, end - time.monotonic()))
                except asyncio.TimeoutError:  # noqa: UP041 (not the same in Python 3.10)
                    self._give_up()
        return self._result(made, integers)

    def stop(self):
        """End a run, as soon as memory has answered what the engine asked for."""
        self.write("CONTROL", self._bits["CONTROL.STOP"])
        end = time.monotonic() + self._timeout
        while self.read("STATUS") & self._bits["STATUS.BUSY"]:
            if time.monotonic() > end:
                raise DriverError(f"the engine can't be stopped, as memory does not answer: {self._state()}")

    def counters(self):
        """Frames, cycles and traffic since the last reset, by the registers' names."""
        counted = ("FRAMES", "FAILURES", "FRAME_CYCLES", "READ", "WRITTEN", "STALLED")
        return {**{name: self.read(name) for name in self._offsets if name.endswith(counted)}, "CYCLES": self._cycles()}

    def _checked(self, x):
        if self._memory is None:
            raise DriverError("there is no program: load() one that hwgen build or hwgen compile wrote")
        frames = np.asarray(x)
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
            self.write("CONTROL", self._bits["CONTROL.START"])
            if number + 1 < len(parts):
                packed = self._packed(parts[number + 1])
            yield
            if code := self.read("ERROR"):
                about = self.described["engine"]["errors"].get(str(code), "unknown")
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
        return self.read("STATUS") & self._bits["STATUS.DONE"]

    def _give_up(self):
        state = self._state()
        self.stop()
        raise DriverError(f"a frame took more than {self._timeout:g} s: {state}")

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
        kind = told["map"]["type"]
        self.name, self.address = told["name"], told["address"]
        self.shape = tuple(told["map"][size] for size in ("channels", "height", "width"))
        self.scale, self.zero_point = told["map"]["scale"], told["map"]["zero_point"]
        self.dtype = np.dtype(np.int8 if kind["signed"] else np.uint8)
        span = 1 << kind["bits"]
        self.range = (-span >> 1, (span >> 1) - 1) if kind["signed"] else (0, span - 1)
        self._offset = 0 if kind["signed"] else 128
        channels, height, width = self.shape
        self._words = (-(-channels // 8), height, width, 8)
        self.size = int(np.prod(self._words))
        self._frame_bytes = told.get("frame_bytes", self.size)

    def places(self, frames):
        """The bytes of so many frames, and each frame's among them."""
        begins = [number * self._frame_bytes for number in range(frames)]
        whole = slice(self.address, self.address + begins[-1] + self.size)
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
    if made_for.decode() != engine["digest"]:
        raise DriverError(
            f"{path} is for engine {made_for.decode()}, this one is {engine['digest']}; compile it for this one"
        )
    told, image = json.loads(data[_HEADER.size : _HEADER.size + told_size]), data[_HEADER.size + told_size :]
    for number in range(len(told["owners"])):
        job = image[number * engine["job_bytes"] :][: engine["job_bytes"]]
        wanted = (zlib.crc32(job[:-8]) ^ number) << 32 | int(engine["digest"][:8], 16)
        if int.from_bytes(job[-8:], "little") != wanted:
            raise DriverError(f"{path}: job {number} is damaged or of another engine; compile it again")
    return told, image


def _synchronise(part, how):
    """Flush or invalidate the caches of a buffer, if it has any."""
    getattr(part, how, lambda: None)()


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
    document = json.loads(text)
    if len(load) != 4 * document["words"] or zlib.crc32(load[:-4]) != int.from_bytes(load[-4:], "little"):
        raise DriverError(f"{path} is cut off or was changed: make it again")
    return document, np.frombuffer(load, "<u4").tolist()


def _tensors(described, kind, places):
    """The model's tensors at one end of the hardware, in the order of its maps; these themselves if none are told."""
    found = described.get(f"{kind}s") or ([described[kind]] if kind in described else [])
    if not found:
        plain = ("name", "shape", "scale", "zero_point")
        found = [{name: getattr(place, name) for name in plain} for place in places]
    return [Tensor(each, place) for each, place in zip(found, places, strict=True)]
