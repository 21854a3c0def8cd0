"""A memory behind the engine's AXI port, for Amaranth's simulator; it refuses what AXI forbids."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from testbench import ALWAYS, Pattern

from hwgen.gateware.engine.axi import BORDER_BYTES, Burst, Response

#: Number of bytes of a word. A write has all bytes of a word or none.
WORD = 8
#: Byte on the data lines while no data is valid.
NOISE = 0xA5
#: Names of the signals that the master drives.
OUTPUTS = (
    *(channel + name for channel in ("ar", "aw") for name in ("addr", "len", "size", "burst", "valid")),
    *("wdata", "wstrb", "wlast", "wvalid", "rready", "bready"),
)


@dataclass
class Memory:
    """Memory that answers in order: reads ``latency`` cycles after the request, writes as late after their last beat.

    A beat takes ``pace`` cycles in each direction; of a fraction nothing is lost while beats follow each other. The
    patterns say when a channel may move besides. ``errors`` has
    responses by address: a beat or a write that touches the address gets the response. ``asked`` lists the cycle, the
    channel (``ar`` or ``aw``), the address and the beats of each burst, ``moved`` the cycle and the channel (``r``,
    ``w``, ``b``) of each other transfer. ``written`` counts bytes. The bus has ``data_bytes``.
    """

    image: bytearray
    data_bytes: int = 8
    latency: int = 10
    write_latency: int = 5
    pace: Fraction | int = 1
    addresses: Pattern = ALWAYS
    reads: Pattern = ALWAYS
    writes: Pattern = ALWAYS
    errors: dict[int, Response] = field(default_factory=dict)
    cycle: int = 0
    written: int = 0
    asked: list[tuple[int, str, int, int]] = field(default_factory=list)
    moved: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reads: deque[tuple[int, int, int, bool]] = deque()  # from when on, address, bytes, last of its burst
        self._bursts: deque[range] = deque()  # addresses of what is to be written
        self._words: deque[tuple[int, int, int, bool]] = deque()  # when, data, strobe, last of its burst
        self._responses: deque[tuple[int, Response]] = deque()  # from when on
        self._may_ask, self._may_read = iter(self.addresses), iter(self.reads)
        self._may_write, self._may_answer = iter(self.writes), iter(self.writes)  # one might always skip the other
        self._next_read = self._next_write = Fraction(0)  # when the next beat may move
        self._held: dict[str, int] = {}
        self._asking = self._taking = self._reading = self._answering = False

    def inputs(self) -> dict[str, int]:
        """Return the signals that the memory drives in this cycle, by name."""
        now = self.cycle
        self._asking = next(self._may_ask)
        self._taking = next(self._may_write) and now >= self._next_write
        may_read = next(self._may_read) and now >= self._next_read
        self._reading |= self._due(self._reads) and may_read
        self._answering |= self._due(self._responses) and next(self._may_answer)
        _, address, size, last = self._reads[0] if self._reading else (0, 0, 0, False)
        response = self._response(address, size) if self._reading else Response.DECODE_ERROR
        return {
            "arready": self._asking,
            "awready": self._asking,
            "wready": self._taking,
            "rvalid": self._reading,
            "rdata": self._lanes(address, size),
            "rlast": last,
            "rresp": response.value,
            "bvalid": self._answering,
            "bresp": (self._responses[0][1] if self._answering else Response.SLAVE_ERROR).value,
        }

    def step(self, seen: dict[str, int]) -> None:
        """End a cycle with the signals that the master drove in it, by the names in `OUTPUTS`."""
        now = self.cycle
        if self._reading and seen["rready"]:
            self._reads.popleft()
            self.moved.append((now, "r"))
            self._reading, self._next_read = False, self._behind(self._next_read)
        if self._answering and seen["bready"]:
            self._responses.popleft()
            self.moved.append((now, "b"))
            self._answering = False
        for channel in ("ar", "aw"):
            if self._asking and seen[f"{channel}valid"]:
                self._ask(channel, seen)
        if self._taking and seen["wvalid"]:
            self._words.append((now, seen["wdata"], seen["wstrb"], bool(seen["wlast"])))
            self.moved.append((now, "w"))
            self._next_write = self._behind(self._next_write)
        self._write()
        self._check_held(seen)
        self.cycle += 1

    def _behind(self, due: Fraction) -> Fraction:
        """Return when the beat may move behind one that moves in this cycle, and might have moved at ``due``."""
        return (due if self.cycle - due < 1 else self.cycle) + Fraction(self.pace)

    def _lanes(self, address: int, size: int) -> int:
        """Return the data lines with ``size`` bytes of the memory, and noise in all other lanes."""
        lanes, first = bytearray([NOISE] * self.data_bytes), address % self.data_bytes
        lanes[first : first + size] = self.image[address : address + size]
        return int.from_bytes(lanes, "little")

    def _response(self, address: int, size: int) -> Response:
        """Return the worst response among the bytes of a beat."""
        found = (self.errors.get(each, Response.OKAY) for each in range(address, address + size))
        return max(found, key=lambda response: response.value)

    def _due(self, waiting: deque[Any]) -> bool:
        return bool(waiting) and waiting[0][0] <= self.cycle

    def _check_held(self, seen: dict[str, int]) -> None:
        """Check that a transfer that was offered and not accepted is offered again, unchanged."""
        for name, value in self._held.items():
            assert seen[name] == value, f"cycle {self.cycle}: {name} changed while it waited"
        self._held = {}
        for channel, ready in (("ar", self._asking), ("aw", self._asking), ("w", self._taking)):
            if seen[f"{channel}valid"] and not ready:
                names = [name for name in OUTPUTS if name.startswith(channel) and not name.endswith("ready")]
                self._held |= {name: seen[name] for name in names}

    def _ask(self, channel: str, seen: dict[str, int]) -> None:
        address, beats, size = seen[f"{channel}addr"], seen[f"{channel}len"] + 1, 1 << seen[f"{channel}size"]
        assert size in ({self.data_bytes} if channel == "aw" else {self.data_bytes, min(self.data_bytes, WORD)})
        assert Burst(seen[f"{channel}burst"]) == Burst.INCREMENTING
        assert address % size == 0
        end = address + beats * size
        assert address // BORDER_BYTES == (end - 1) // BORDER_BYTES, f"{beats} beats at {address:#x} cross a border"
        assert end <= len(self.image)
        self.asked.append((self.cycle, channel, address, beats))
        places = range(address, end, size)
        if channel == "ar":
            self._reads += [(self.cycle + self.latency, place, size, place == places[-1]) for place in places]
        else:
            self._bursts.append(places)

    def _write(self) -> None:
        """Words that have come, each to its address once this is known; they may come before it."""
        while self._bursts and len(self._words) >= len(self._bursts[0]):
            places = self._bursts.popleft()
            responses = [self._response(place, self.data_bytes) for place in places]
            for place in places:
                when, data, strobe, last = self._words.popleft()
                assert last == (place == places[-1])
                self._put(place, data.to_bytes(self.data_bytes, "little"), strobe)
            worst = max(responses, key=lambda response: response.value)
            self._responses.append((max(self.cycle, when) + self.write_latency, worst))

    def _put(self, place: int, lanes: bytes, strobe: int) -> None:
        """Write a beat into memory. The strobe must select whole words, at least one."""
        kept = [bool(strobe >> lane & 1) for lane in range(self.data_bytes)]
        for first in range(0, self.data_bytes, WORD):
            assert len(set(kept[first : first + WORD])) == 1
        assert any(kept)
        self.written += sum(kept)
        for lane, keep in enumerate(kept):
            if keep:
                self.image[place + lane] = lanes[lane]
