"""Python driver of an accelerator on a board, with NumPy arrays as inputs and outputs.

hwgen writes this file into the folder of a design. The driver reads ``registers.json`` and ``plan.json`` in the same
folder. It needs Python 3.10 and NumPy, but not hwgen. On a board::

    from NAME_driver import connect

    accelerator = connect()
    outputs = accelerator.run(frames)

`connect` uses PYNQ if it is installed, and otherwise drivers of the Linux kernel; on a PCI Express card, XDMA's.
`Accelerator` takes objects of another overlay as well.
"""

from __future__ import annotations

import math
import time
import zlib
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from hwgen.emit.board_driver import (
    _MAX_COUNT,
    DriverError,
    Hardware,
    _check_frames,
    _connect,
    _Fields,
    _fields,
    _mask,
    _parsed,
    _read_json,
    _tensors,
)

#: Largest number of frames of a packet, and size in bytes that a buffer should not exceed. A large batch then has
#: several packets, so that software and hardware work at the same time, and a packet stays in a processor's cache.
_MAX_PACKET, _BUFFER_BYTES = (1 << 16) - 1, 1 << 16
#: Number of packets of a small batch, smallest size of such a packet, and smallest size of frames that are divided so,
#: both in bytes. The hardware waits for the first packet, and the program for the last one, so that small packets help.
#: But a packet costs some calls, during which the hardware computes many small frames.
_NUM_PACKETS, _MIN_PACKET_BYTES, _MIN_DIVIDED_FRAME_BYTES = 8, 1 << 14, 1 << 10
#: Bytes that a transfer of a DMA must stay below, if the DMA does not tell: its counter has at least 14 bits.
_MIN_LIMIT = 1 << 14

#: Offsets of the control and status registers of an AXI DMA in simple mode (Xilinx PG021), and of the receiving
#: channel's registers.
_DMA_CONTROL, _DMA_STATUS, _DMA_RECEIVE = 0x00, 0x04, 0x30
_DMA_RESET, _DMA_IDLE = 1 << 2, 1 << 1
_DMA_ERRORS = {
    1 << 4: "a frame longer than its buffer came, or the DMA failed inside",
    1 << 5: "memory answered with an error",
    1 << 6: "there is no memory at the buffer's address",
}


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
        # Place in memory of each value of the map; the last place is for values that are not moved.
        self._is_raster = np.array_equal(self.places, np.arange(math.prod(self.shape)))
        padding = slice(len(self.places), None)
        self._outside = [*([np.flatnonzero(self.places < 0)] if len(self._inside) < len(self.places) else []), padding]
        self._sources = np.full(math.prod(self.shape), self._num_values, np.intp)
        self._sources[self.places[self._inside]] = self._inside

    @property
    def _num_values(self):
        """Number of values per frame in memory, including the padding to whole words of the bus."""
        return self.memory_bytes // self.dtype.itemsize

    def bytes_of(self, frames):
        """Return the size in bytes of a packet of ``frames`` frames, without padding after the last frame."""
        return (frames - 1) * self.memory_bytes + self.frame_bytes

    def memory(self, allocate, frames):
        """Return a buffer ``(frames, values per frame)`` for a DMA, made by the function ``allocate``."""
        return allocate(shape=(frames, self._num_values), dtype=self.dtype)

    def pack(self, frames, memory):
        """Write feature maps ``(n, C, H, W)`` into the array ``memory``, in the order that a DMA reads.

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
        """Return feature maps ``(n, C, H, W)`` that a DMA wrote into the array ``memory``; maybe a view of it."""
        if self._is_raster:
            return memory[:, : len(self.places)].reshape(len(memory), *self.shape)
        if self._sources.max() == self._num_values:  # some values of the map are not moved
            memory = np.concatenate([memory, np.zeros((len(memory), 1), self.dtype)], axis=1)
        return memory.take(self._sources, axis=1).reshape(len(memory), *self.shape)


def _places(shape, pixels, folds, rows, columns):
    """Return an array: per value that a DMA transfers, in memory order, its index in the flat map ``(C, H, W)``.

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


class Accelerator(Hardware):
    """Driver of an accelerator on a board: sends input frames by DMA, and receives the model's outputs.

    Parameters
    ----------
    registers : object
        Object with ``read(offset)`` and ``write(offset, value)``: PYNQ's ``DefaultIP`` or ``MMIO``.
    dma : object, or list of object
        PYNQ's ``DMA``, with ``sendchannel`` and ``recvchannel``, each with ``transfer(buffer, start, nbytes)``,
        ``wait()``, ``transferred`` and ``start()``, and ``read(offset)`` and ``write(offset, value)`` for the DMA's
        registers. ``buffer_max_size``, if there, limits the bytes of a transfer. With several inputs or outputs, a
        list: DMA ``n`` serves input ``n`` and output ``n``.
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
        plan = _read_optional(folder / "plan.json")
        # The folder of a design with constant weights has no weights.json.
        self._loadable = _read_optional(folder / "weights.json")
        self._timeout = timeout
        # Whether no frame is in the hardware, and whether the scales belong to the weights in the hardware.
        self._is_clean, self._knows_weights = False, True
        #: Number of frames that the accelerator has computed since the last reset.
        self._frame_count = 0
        (errors,) = (register for register in self._fields.objects("registers") if register.text("name") == "ERRORS")
        self._errors = [(_mask(field), field.text("about")) for field in errors.objects("fields")]
        dmas = list(dma) if isinstance(dma, (list, tuple)) else [dma]
        self.inputs, self.outputs = self._tensors_of(plan)
        if len(dmas) < max(len(self.inputs), len(self.outputs)):
            raise DriverError(f"dma must be {max(len(self.inputs), len(self.outputs))} of them, not {len(dmas)}")
        self._check()
        allocate = allocate or (lambda shape, dtype: np.zeros(shape, dtype))
        self._sends = [_Channel(end.stream, dmas[n], 0, allocate) for n, end in enumerate(self.inputs)]
        self._receives = [_Channel(end.stream, dmas[n], _DMA_RECEIVE, allocate) for n, end in enumerate(self.outputs)]
        self.write("CONTROL", self._bits("CONTROL.ENABLE"))
        self.reset()

    def _tensors_of(self, described):
        """Return the model's input tensors and its output tensors, as two lists, from a JSON description."""
        streams = [[Stream(fields) for fields in self._fields.objects(name)] for name in ("inputs", "outputs")]
        return _tensors(described, "input", streams[0]), _tensors(described, "output", streams[1])

    def reset(self):
        """Reset the accelerator and its DMAs, dropping all frames in them.

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
        """Load a retrained model's weights from a file into the accelerator, for all later frames.

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
        document, words = _read_weights(Path(path))
        ours = self._loadable.text("digest")
        if document.text("design") != ours:
            raise DriverError(
                f"{path} is for a design with the digest {document.text('design')}, not for this one with "
                f"{ours}: make it with 'hwgen weights' for this folder"
            )
        ends = self._tensors_of(document)
        self._clear()
        with self._resetting():  # a reset also ends an incomplete load
            self.write("ERRORS", 0xFFFFFFFF)  # errors of an earlier run would end the load
            self.write("WEIGHTS", words[0])
            try:
                self._await_status("STATUS.WEIGHTS_WAIT", 0, "frames on their way did not leave")
            except DriverError as error:
                raise DriverError(f"{error}; they were dropped by a reset, and the weights are those before") from None
            self._knows_weights = False
            for word in words[1:-1]:
                self.write("WEIGHTS", word)
            self.write("WEIGHTS_LAST", words[-1])
            self._await_status("STATUS.WEIGHTS_GOOD", 1, "the hardware did not take the weights")
            self._raise_errors()
        # The scales and zero points of inputs and outputs belong to the loaded model.
        self.inputs, self.outputs = ends
        self._knows_weights = True

    def _await_status(self, name, value, failure):
        """Wait until the bit ``name`` of the hardware's STATUS register equals ``value``.

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
        """Return a dictionary of counts (frames, cycles, stalls) since the last reset, by register name."""
        counted = ("FRAMES", "PACKETS", "STALLED", "STARVED", "INTERVAL")
        names = [name for name in self._offsets if name.endswith(counted) and name != "PACKET_FRAMES"]
        counters = {name: self.read(name) for name in names}
        return {**counters, "CYCLES": self._cycles()}

    def run(self, *x, integers=False):
        """Compute frames on the accelerator, and return the model's outputs, an array or a tuple of arrays.

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
            `reset`, and also if the run is interrupted.
        """
        frames = _check_frames(x, self.inputs)
        self._clear()
        self._check_weights()
        with self._resetting():
            self.write("ERRORS", 0xFFFFFFFF)
            outputs = self._transfer_frames(frames)
            self._raise_errors()
            self._frame_count += len(frames[0])
        if not integers:
            outputs = [end.to_floats(values) for end, values in zip(self.outputs, outputs, strict=True)]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _check_weights(self):
        """Raise DriverError if the hardware's weights are incompletely loaded, or if their scales are unknown."""
        if self._loadable is None:
            return
        if not self.read("STATUS") & self._bits("STATUS.WEIGHTS_GOOD"):
            raise DriverError(
                "the hardware has no weights, or incomplete ones: call load_weights with a weights file, "
                "such as NAME.weights in the folder of the design"
            )
        if not self._knows_weights:
            raise DriverError("loading of the weights was interrupted: call load_weights again")

    def _transfer_frames(self, frames):
        """Send all input frames by DMA, in packets, and return a list of each output's received frames."""
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
        """Return how many frames each packet (DMA transfer) of a run of ``count`` frames has at most.

        If possible, all packets are equal.
        """
        if "PACKET_FRAMES" not in self._offsets:
            return 1
        channels = [*self._sends, *self._receives]
        max_frames = min(_MAX_PACKET, *(channel.max_frames() for channel in channels))
        frame_bytes = max(channel.frame_bytes for channel in channels)
        if frame_bytes >= _MIN_DIVIDED_FRAME_BYTES:
            max_frames = min(max_frames, max(-(-count // _NUM_PACKETS), _MIN_PACKET_BYTES // frame_bytes))
        fewest = -(-count // max(1, max_frames))
        # The last packet follows the others without a wait, if it is as large as they are.
        num_packets = next((packets for packets in range(fewest, 2 * fewest) if not count % packets), fewest)
        return -(-count // num_packets)

    def _set_packet(self, frames):
        """Write the number of frames per packet to the register PACKET_FRAMES, if the hardware has it.

        No frame must be in the hardware.
        """
        if "PACKET_FRAMES" in self._offsets:
            self.write("PACKET_FRAMES", frames)

    def _move_packets(self, frames, outputs, begins, size):
        """Send input packets of ``size`` frames that start at the frames ``begins``; store the received ``outputs``."""
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
        """Return a text with STATUS and the counters of the hardware, for an error message."""
        return ", ".join(
            f"{name} {value}" for name, value in [("STATUS", self.read("STATUS")), *self.counters().items()]
        )

    def _raise_errors(self):
        """Raise DriverError if the hardware's ERRORS register reports an error."""
        raised = self.read("ERRORS")
        about = [about for mask, about in self._errors if raised & mask]
        if about:
            raise DriverError("; ".join(about))


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
            does = "receives" if offset else "sends"
            raise DriverError(f"the DMA for {stream.name} has no channel that {does}: enable it in the block design")
        self._allocate, self._buffers, self._capacity, self._frames = allocate, [], 0, 1
        self._turn, self._busy = 0, False

    @property
    def frame_bytes(self):
        """Number of bytes per frame in memory, padded to whole words of the bus."""
        return self._stream.memory_bytes

    def max_frames(self):
        """Return the maximum number of frames per DMA transfer, set by the DMA's byte counter and buffer size."""
        largest = min(getattr(self._dma, "buffer_max_size", _MIN_LIMIT) - 1, _BUFFER_BYTES)
        return largest // self.frame_bytes

    def prepare(self, frames):
        """Allocate two buffers for packets of ``frames`` frames, unless the DMA channel has buffers of that size."""
        if frames > self._capacity:
            self._buffers = []  # before others are allocated
            self._buffers = [self._stream.memory(self._allocate, frames) for _ in range(2)]
            self._capacity = frames
        self._frames = frames

    def reset(self, timeout):
        """Reset the AXI DMA, dropping the frames in both of its channels; fail after ``timeout`` seconds."""
        self._busy = False
        self._dma.write(self._offset + _DMA_CONTROL, _DMA_RESET)
        end = time.monotonic() + timeout
        while self._dma.read(self._offset + _DMA_CONTROL) & _DMA_RESET:
            if time.monotonic() > end:
                raise DriverError(f"the DMA of {self._stream.name} does not end its reset: load the overlay again")

    def restart(self):
        """Start PYNQ's DMA channel again after a reset, so that it accepts transfers."""
        if not hasattr(self._channel, "halted"):  # a channel with scatter-gather starts with each transfer
            self._channel.start()

    def pack(self, maps):
        """Write feature maps into the idle one of the two buffers, for the next transfer of this sending channel."""
        self._stream.pack(maps, np.asarray(self._buffers[self._turn ^ 1])[: self._frames])

    def start(self):
        """Switch to the other of the two buffers, and start its DMA transfer."""
        self._turn ^= 1
        self._call(self._channel.transfer, self._buffers[self._turn], 0, self._stream.bytes_of(self._frames))
        self._busy = True

    def done(self):
        """Return whether the DMA channel has no transfer in progress (any more)."""
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
        """Return the feature maps ``(n, C, H, W)`` of the packet that the DMA received; refuse a wrong size.

        With ``again``, start to receive the next packet into the other buffer.
        """
        buffer, moved, wanted = (
            self._buffers[self._turn],
            self._channel.transferred,
            self._stream.bytes_of(self._frames),
        )
        if moved != wanted:
            what = "a frame" if self._frames == 1 else f"a packet of {self._frames:,} frames"
            raise DriverError(f"{what} on {self._stream.name} must have {wanted:,} bytes, but {moved:,} came")
        if again:
            self.start()
        return self._stream.unpack(np.asarray(buffer)[: self._frames])

    def _call(self, method, *arguments):
        """Call a method of PYNQ's DMA channel, and raise its errors as DriverError."""
        try:
            method(*arguments)
        except (RuntimeError, ValueError) as error:
            raise DriverError(f"the DMA of {self._stream.name} refused: {error}") from error


def _read_optional(path):
    """Return a reader of the fields of a JSON file, or None if the file does not exist."""
    return _Fields(_read_json(path), str(path)) if path.exists() else None


def _read_weights(path):
    """Read and check a weights file; return a reader of its JSON object, and the 32-bit words for the hardware."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DriverError(f"{path} can't be read: {error.strerror}") from None
    if content[:8] != b"hwgenwts" or len(content) < 16:
        raise DriverError(f"{path} is not a weights file: 'hwgen weights' writes one")
    size, check = np.frombuffer(content[8:16], "<u4").tolist()
    text, load = content[16 : 16 + size], content[16 + size :]
    if len(text) < size or zlib.crc32(text) != check:
        raise DriverError(f"{path} is cut off or was changed: make it again")
    document = _Fields(_parsed(text, path), str(path))
    # The words are a digest of two words, the words of the memories, and a CRC-32.
    if len(load) != 4 * document.integer("words", 4) or zlib.crc32(load[:-4]) != int.from_bytes(load[-4:], "little"):
        raise DriverError(f"{path} is cut off or was changed: make it again")
    return document, np.frombuffer(load, "<u4").tolist()


def connect(folder=None, *, through=None, **options):
    """Return a driver connected to a design's accelerator on this board, as hwgen's Vivado project builds it.

    With PYNQ the bitstream ``NAME.bit`` of the folder is loaded. Without PYNQ the design must have been loaded with a
    device tree overlay: its registers and DMAs are UIO devices, and u-dma-buf has the memory (``NAME_linux.py``). On a
    PCI Express card the design must have been loaded; the kernel module ``xdma`` has its devices (``NAME_xdma.py``).

    Parameters
    ----------
    folder : path, optional
        Folder of the design. The default is the folder of this file.
    through : str, optional
        Access to the hardware: ``pynq``, ``linux`` or ``xdma``. By default ``xdma`` if the folder is for it, otherwise
        ``pynq`` if it is installed. A message of the logger ``hwgen`` says which.
    **options
        Further parameters of `Accelerator`, such as ``timeout``.

    Returns
    -------
    Accelerator
        Driver, whose attribute ``through`` is the access.

    Raises
    ------
    DriverError
        If the hardware is missing, or is not the design of the folder.
    """
    return _connect(Accelerator, folder, through, options)
