"""A model of an accelerator in its wrapper, of its DMAs and of the memory that these reach, in plain Python.

It is for tests of drivers: thousands of frames in seconds, and faults at any access. Time passes with accesses: some
steps each, and in a step each stream moves at most one word. Several frames are on their way at once. A DMA takes words
from the accelerator before software has asked for any (as its buffers do), and brings what is left of an aborted run
into the next one, unless it is reset at the right time.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

#: Addresses on the processor's bus.
REGISTERS, DMA, MEMORY = 0x43C0_0000, 0x4040_0000, 0x1000_0000
#: Words that a DMA takes before it is told to.
_AHEAD = 4
#: Frames on their way in the accelerator, and steps that one takes.
_DEPTH, _LATENCY = 4, 60

#: Bytes, and whether they end a packet.
Word = tuple[bytes, bool]
#: Digest of weights that can be loaded, if the wrapper has registers for weights.
DIGEST = 0x0123_4567_89AB_CDEF


def compute(sizes: Sequence[int], frames: Sequence[Sequence[int]], weights: Sequence[int]) -> list[bytes]:
    """Return frames of the outputs, ``sizes`` bytes each. Every byte depends on every input, and on the weights."""
    whole = np.concatenate([np.frombuffer(bytes(frame), np.uint8) for frame in frames]).astype(np.int64)
    made = []
    for number, size in enumerate(sizes):
        index = np.arange(size)
        values = 3 * whole[index % len(whole)] + 5 * whole[(7 * index + number) % len(whole)] + whole.sum()
        made.append((values + index + weights[0] + 2 * weights[1]).astype(np.uint8).tobytes())
    return made


def weights_file(weights: Sequence[int], text: bytes) -> bytes:
    """Return the bytes of a file of weights, in the format of docs/reference/weights.md."""
    load = np.array([DIGEST & 0xFFFF_FFFF, DIGEST >> 32, *weights], "<u4").tobytes()
    load += zlib.crc32(load).to_bytes(4, "little")
    head = len(text).to_bytes(4, "little") + zlib.crc32(text).to_bytes(4, "little")
    return b"hwgenwts" + head + text + load


class Buffer(np.ndarray):
    """An array that the DMAs reach, as `pynq.allocate` makes it: its memory is not cached."""

    physical_address = 0

    def flush(self) -> None: ...

    def invalidate(self) -> None: ...


class Memory:
    """Buffers by their addresses; those of a program that has ended can't be used any more.

    Parameters
    ----------
    page : int
        Bytes that buffers are multiples of.
    """

    def __init__(self, page: int = 64):
        self._page, self._next = page, MEMORY
        self._buffers: dict[int, np.ndarray] = {}
        #: Accesses beyond any buffer that a program holds.
        self.stray = 0

    def allocate(self, shape: Any, dtype: Any) -> Any:
        """Return a buffer."""
        buffer = np.zeros(shape, dtype).view(Buffer)
        buffer.physical_address = self._next
        self.add(self._next, buffer.view(np.ndarray).reshape(-1).view(np.uint8))
        self._next += -(-buffer.nbytes // self._page) * self._page + self._page
        return buffer

    def add(self, address: int, content: np.ndarray) -> None:
        self._buffers[address] = content

    def free_all(self) -> None:
        self._buffers.clear()

    def find(self, address: int, size: int) -> np.ndarray | None:
        """Return bytes, or ``None`` if they are in no buffer."""
        for begin, content in self._buffers.items():
            if begin <= address and address + size <= begin + len(content):
                return content[address - begin :][:size]
        self.stray += 1
        return None


class _Channel:
    """One direction of a DMA: registers of PG021's direct register mode."""

    CONTROL, STATUS, ADDRESS, LENGTH = 0x00, 0x04, 0x18, 0x28

    def __init__(self, memory: Memory, width: int):
        self._memory, self._width = memory, width
        self.reset()

    def reset(self) -> None:
        self.running = self.busy = self.was_used = self.complete = False
        self.address = self.length = self.errors = self.done = 0
        self.words: deque[Word] = deque()

    def read(self, offset: int) -> int:
        if offset == self.STATUS:
            is_idle = self.running and self.was_used and not self.busy
            return (not self.running) | is_idle << 1 | self.errors << 4 | self.complete << 12
        if offset == self.LENGTH:
            return self.length if self.busy else self.done
        return {self.CONTROL: int(self.running), self.ADDRESS: self.address}[offset]

    def write(self, offset: int, value: int) -> None:
        if offset == self.CONTROL:
            self.running = bool(value & 1)
        elif offset == self.STATUS:
            self.complete &= not value >> 12 & 1
        elif offset == self.ADDRESS:
            self.address = value
        elif offset == self.LENGTH and self.running and value:
            assert not self.busy, "a length is written while the channel moves a frame"
            self.length, self.busy, self.was_used, self.done = value, True, True, 0

    def fail(self, errors: int) -> None:
        """Halt with an error."""
        self.errors, self.running, self.busy = errors, False, False


class _Send(_Channel):
    """Memory to accelerator; a frame's last word is marked."""

    #: Bytes that are left out of each frame: what a wrong length would do.
    cut = 0

    def offered(self) -> Word | None:
        if not self.busy:
            return None
        end = self.length - self.cut
        size = min(self._width, end - self.done)
        found = self._memory.find(self.address + self.done, size)
        return (bytes(size) if found is None else found.tobytes(), self.done + size == end)

    def take(self) -> None:
        self.done += self._width
        if self.done >= self.length - self.cut:
            self.busy, self.complete, self.done = False, True, self.length


class _Receive(_Channel):
    """Accelerator to memory, with words that were taken ahead."""

    def is_ready(self) -> bool:
        return len(self.words) < _AHEAD

    def put(self, word: Word) -> None:
        self.words.append(word)

    def step(self) -> None:
        if not self.busy or not self.words:
            return
        content, is_last = self.words.popleft()
        if self.done + len(content) > self.length:
            self.fail(1)  # PG021: an internal error
            return
        found = self._memory.find(self.address + self.done, len(content))
        if found is not None:
            found[:] = np.frombuffer(content, np.uint8)
        self.done += len(content)
        if is_last:
            self.busy, self.complete = False, True


class Dma:
    """Both channels and their common reset, which takes some reads."""

    def __init__(self, send: _Send | None, receive: _Receive | None):
        self.send, self.receive = send, receive
        self._resetting = 0
        #: The reset never ends.
        self.is_stuck = False

    def settle(self) -> None:
        """Let a reset end, as it does while no program runs."""
        self._resetting = 0

    def _channel(self, offset: int) -> tuple[_Channel, int]:
        channel, offset = (self.receive, offset - 0x30) if offset >= 0x30 else (self.send, offset)
        assert channel is not None, "there is no such channel"
        return channel, offset

    def read(self, offset: int) -> int:
        channel, offset = self._channel(offset)
        if offset == _Channel.CONTROL and (self._resetting or self.is_stuck):
            self._resetting -= bool(self._resetting)
            return 4
        return channel.read(offset)

    def write(self, offset: int, value: int) -> None:
        channel, offset = self._channel(offset)
        if offset == 0x1C:
            assert not value, "memory is below 4 GiB"
        elif offset == _Channel.CONTROL and value & 4:
            self._resetting = 2
            for each in (self.send, self.receive):
                if each is not None:
                    each.reset()
        else:
            assert not self._resetting, "a register is written in a reset"
            channel.write(offset, value)


class Wrapper:
    """Registers, streams and frames on their way.

    Parameters
    ----------
    document : dict
        What ``registers.json`` holds.
    compute : callable
        Gives the bytes of each output's frame for their sizes, the bytes of each input's, and the weights.
    rng : Generator
        For how many steps an access takes.
    memory : Memory
    """

    def __init__(
        self,
        document: dict[str, Any],
        compute: Callable[[Sequence[int], Sequence[bytes], Sequence[int]], Sequence[bytes]],
        rng: np.random.Generator,
        memory: Memory,
    ):
        self._document, self._compute, self._rng, self.memory = document, compute, rng, memory
        self._names = {each["offset"]: each["name"] for each in document["registers"]}
        self._values = {each["name"]: each["reset"] for each in document["registers"]}
        self._inputs, self._outputs = document["inputs"], document["outputs"]
        sends = [_Send(memory, each["bytes"]) for each in self._inputs]
        receives = [_Receive(memory, each["bytes"]) for each in self._outputs]
        count = max(len(sends), len(receives))
        pairs = zip(*(each + [None] * (count - len(each)) for each in (sends, receives)), strict=True)
        self.dmas = [Dma(send, receive) for send, receive in pairs]
        self.sends, self.receives = sends, receives
        #: Accesses so far, and those (counted so) that a KeyboardInterrupt ends: before they act, or behind it.
        self.accesses = 0
        self.interrupts: dict[int, str] = {}
        #: Nothing moves.
        self.is_stuck = False
        #: Bytes that are missing at the end of each frame that comes out.
        self.missing = 0
        self.weights = [0, 0]
        #: Value of STATUS.WEIGHTS_GOOD.
        self.has_whole_weights = True
        self._reset()

    def _reset(self) -> None:
        self._frames: list[list[bytes]] = [[] for _ in self._inputs]
        self._partial = [b"" for _ in self._inputs]
        self._within = [False for _ in self._inputs]
        self._computed: deque[tuple[int, Sequence[bytes]]] = deque()
        #: Words on their way out: each with whether it ends a packet, and whether it ends a frame.
        self._leaving: list[deque[tuple[Word, bool]]] = [deque() for _ in self._outputs]
        self._in_packet = 0
        self._left, self._errors = [0 for _ in self._outputs], 0
        self._load: list[int] = []
        self._waiting: tuple[int, bool] | None = None

    @property
    def _is_busy(self) -> bool:
        return bool(any(self._frames) or any(self._within) or self._computed or any(self._leaving))

    # Accesses

    def _interrupted(self, when: str) -> None:
        if self.interrupts.get(self.accesses) == when:
            raise KeyboardInterrupt

    def read(self, address: int) -> int:
        """Read a register of the wrapper or of a DMA by its address."""
        self.accesses += 1
        self._interrupted("before")
        self._pass()
        if address >= REGISTERS:
            value = self._read(self._names[address - REGISTERS])
        else:
            value = self.dmas[(address - DMA) >> 16].read(address & 0xFFFF)
        self._interrupted("behind")
        return value

    def write(self, address: int, value: int) -> None:
        """Write one."""
        self.accesses += 1
        self._interrupted("before")
        self._pass()
        if address >= REGISTERS:
            self._write(self._names[address - REGISTERS], value)
        else:
            self.dmas[(address - DMA) >> 16].write(address & 0xFFFF, value)
        self._interrupted("behind")

    def _read(self, name: str) -> int:
        if name == "STATUS":
            is_waiting = self._waiting is not None
            return self._is_busy | bool(self._errors) << 1 | self.has_whole_weights << 3 | is_waiting << 4
        values = {"ERRORS": self._errors, "FRAMES": min(self._left), "RESET": 0}
        return values[name] if name in values else self._values[name]

    def _write(self, name: str, value: int) -> None:
        if name == "RESET" and value & 1:
            self._reset()
        elif name == "ERRORS":
            self._errors &= ~value
        elif name in ("WEIGHTS", "WEIGHTS_LAST"):
            if self._waiting is not None:
                self._errors |= 1 << 31
            self._waiting = value, name == "WEIGHTS_LAST"
        elif name in ("CONTROL", "INTERRUPT_ENABLE"):
            self._values[name] = value
        elif name == "PACKET_FRAMES":
            assert not self._is_busy, "the size of packets is written while a frame is on its way"
            self._values[name] = value & 0xFFFF

    # Time

    def _pass(self) -> None:
        if not self.is_stuck:
            for _ in range(int(self._rng.integers(1, 8))):
                self._step()

    def _step(self) -> None:
        self._take_weights()
        for index, send in enumerate(self.sends):
            word = send.offered()
            # A load holds back new frames.
            may_begin = self._within[index] or (self.has_whole_weights and self._waiting is None and not self._load)
            if word is not None and self._values["CONTROL"] & 1 and may_begin and len(self._frames[index]) < 2:
                send.take()
                self._put(index, *word)
        if all(self._frames) and len(self._computed) < _DEPTH:
            sizes = [each["frame_bytes"] for each in self._outputs]
            outputs = self._compute(sizes, [frames.pop(0) for frames in self._frames], self.weights)
            self._computed.append((_LATENCY, outputs))
        self._computed = deque((max(0, left - 1), outputs) for left, outputs in self._computed)
        if self._computed and self._computed[0][0] == 0 and not any(self._leaving):
            self._in_packet = (self._in_packet + 1) % self._packet
            for index, content in enumerate(self._computed.popleft()[1]):
                self._leaving[index].extend(self._words(content[: len(content) - self.missing], index))
        for index, receive in enumerate(self.receives):
            if self._leaving[index] and receive.is_ready():
                word, ends_frame = self._leaving[index].popleft()
                receive.put(word)
                self._left[index] += ends_frame
            receive.step()

    @property
    def _packet(self) -> int:
        """Number of frames of a packet."""
        return max(1, self._values.get("PACKET_FRAMES", 1))

    def _words(self, content: bytes, index: int) -> list[tuple[Word, bool]]:
        width, ends_packet = self._outputs[index]["bytes"], self._in_packet == 0
        if not ends_packet:
            content = content.ljust(-(-len(content) // width) * width, b"\0")
        begins = range(0, len(content), width)
        ends = [begin + width >= len(content) for begin in begins]
        return [
            ((content[begin : begin + width], last and ends_packet), last)
            for begin, last in zip(begins, ends, strict=True)
        ]

    def _put(self, index: int, content: bytes, is_last: bool) -> None:
        """Take a word into the accelerator; the guard completes short packets, and cuts long ones."""
        self._partial[index] += content
        self._within[index] = not is_last
        if not is_last:
            return
        end = self._inputs[index]
        size, width = end["frame_bytes"], end["bytes"]
        stride = -(-size // width) * width
        whole, packet = (self._packet - 1) * stride + size, self._partial[index]
        self._errors |= (len(packet) < whole) << 2 * index | (len(packet) > whole) << 2 * index + 1
        packet = packet[:whole].ljust(whole, b"\0")
        self._frames[index] += [packet[begin : begin + size] for begin in range(0, whole, stride)]
        self._partial[index] = b""

    def _take_weights(self) -> None:
        """Take a word of a load when no frame is on its way: a digest, words, a CRC-32 (docs/reference/weights.md)."""
        if self._waiting is None or (not self._load and self._is_busy):
            return
        (value, is_last), self._waiting = self._waiting, None
        self._load.append(value)
        fits = self._load[:2] == [DIGEST & 0xFFFF_FFFF, DIGEST >> 32]
        if fits and len(self._load) > 2:
            self.has_whole_weights = False
            self.weights[min(len(self._load) - 3, len(self.weights) - 1)] = value
        if is_last:
            load, self._load = np.array(self._load, "<u4"), []
            right = fits and len(load) == len(self.weights) + 3 and zlib.crc32(load[:-1].tobytes()) == int(load[-1])
            if right:
                self.weights, self.has_whole_weights = load[2:-1].tolist(), True
            else:
                self._errors |= 1 << 31
