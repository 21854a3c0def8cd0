"""The front of what loads weights: it checks what comes, and lets frames wait until what the memories hold is right.

A load is a packet of words of 32 bits: the design's digest in two words, the lower one first; the words of all memories
in the order of the chain; and the CRC-32 of all words before (that of Ethernet and zlib, over their bytes, lowest
first). ``last`` is on the CRC.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from struct import pack
from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.crc.catalog import CRC32_ETHERNET
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.load.store import CHAIN, PART_BITS

#: Words of a load that are its digest, and bits of that.
DIGEST_WORDS, DIGEST_BITS = 2, 64
#: Bits in which frames are counted that are on their way.
_FRAME_BITS = 16

#: A word of a load.
WORD = stream.Signature(data.StructLayout({"data": PART_BITS, "last": 1}))
#: What is told of loads: ``good`` while the memories hold what they should, and a flag that stays until it is cleared.
STATE = wiring.Signature({"good": Out(1), "error": Out(1), "clear": In(1)})


def packet(digest: int, words: Iterable[int]) -> bytes:
    """A load: the bytes of its words, lowest first."""
    words = list(words)
    body = pack("<Q", digest) + pack(f"<{len(words)}I", *words)
    return body + pack("<I", zlib.crc32(body))


@dataclass(frozen=True, kw_only=True)
class LoaderConfig:
    """What is loaded, and how many streams it goes between.

    Parameters
    ----------
    digest : int
        64 bits that tell this design's loads from others'.
    words : int
        Words of all memories.
    inputs, outputs : int
        Streams of frames.

    Raises
    ------
    ConfigError
        If a number is out of range.
    """

    digest: int
    words: int
    inputs: int = 1
    outputs: int = 1

    def __post_init__(self) -> None:
        for name in ("words", "inputs", "outputs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be a positive integer, not {getattr(self, name)!r}")
        if not 0 <= self.digest < 1 << DIGEST_BITS:
            raise ConfigError(f"digest must be of {DIGEST_BITS} bits, not {self.digest!r}")

    @property
    def packet_words(self) -> int:
        """Words of a load, digest and CRC among them."""
        return DIGEST_WORDS + self.words + 1

    @cached_property
    def resources(self) -> Resources:
        cost, place, streams = Cost(), counter_bits(self.packet_words), self.inputs + self.outputs
        # Counters of frames; of each input whether it is within a frame, and whether one may begin.
        cost.ff += _FRAME_BITS * streams + 2 * self.inputs
        cost.lut += 16 * (streams - 2) + 15 * (self.inputs - 1)
        # The CRC, a beat of the chain, the place, and states.
        cost.ff += PART_BITS + PART_BITS + 3 + place + 6
        cost.lut += 358 + 1.5 * place
        return cost.resources

    def component(self) -> Loader:
        return Loader(self)


class Loader(wiring.Component):
    """Checks a load, sends its words to the memories, and holds frames back where that must be.

    Parameters
    ----------
    config : LoaderConfig

    Members
    -------
    i : In(stream)
        Loads. One is taken when no frame is on its way: new frames wait from when its first word is offered.
    o : Out(stream, always ready)
        The chain: ``begin``, words, ``end``. Of a load whose digest is another there goes nothing.
    back : In(stream, always ready)
        The chain's other end.
    state : Out
        ``good``: all memories hold what was last loaded, or what they held at the beginning. It is low from the first
        word for the memories until all have come and the CRC was right, also after a reset in between. ``error``: a
        load was wrong; high until ``clear``, which does not hide one that shows in the same cycle.
    offered_N, last_N, taken_N : In(1)
        Of input ``N``: a beat is offered behind ``open_N``, its ``last``, and whether it is taken.
    open_N : Out(1)
        Beats may be offered.
    left_N : In(1)
        A frame has left on output ``N``.

    Latency and throughput
        A word a cycle. Frames that don't wait for a load take no cycle more.
    Reset
        A load that was going on is dropped: ``good`` stays low where the memories were being written.
    """

    def __init__(self, config: LoaderConfig):
        self._config = config
        members: dict[str, wiring.Member] = {"i": In(WORD), "o": Out(CHAIN), "back": In(CHAIN), "state": Out(STATE)}
        for number in range(config.inputs):
            members |= {f"{name}_{number}": In(1) for name in ("offered", "last", "taken")}
            members[f"open_{number}"] = Out(1)
        members |= {f"left_{number}": In(1) for number in range(config.outputs)}
        super().__init__(members)

    @property
    def config(self) -> LoaderConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        good = Signal(name="is_good", init=1, reset_less=True)  # what the memories hold outlives a reset
        closing = Signal(name="is_closing")
        idle = self._elaborate_frames(m, closing, good)
        m.d.comb += self.state.good.eq(good)
        wrong = self._elaborate_load(m, closing, good, idle)
        m.d.sync += self.state.error.eq(wrong | self.state.error & ~self.state.clear)
        return m

    def _elaborate_load(self, m: Module, closing: Signal, good: Signal, idle: Value) -> Signal:
        """From words to the chain; when a load was found to be wrong."""
        config, word = self.config, self.i.payload
        final = config.packet_words - 1
        place, fits, surplus = (
            Signal(range(config.packet_words), name="word_index"),
            Signal(name="fits_design"),
            Signal(name="has_surplus"),
        )
        wrong = Signal(name="load_error")
        crc: Any = CRC32_ETHERNET(PART_BITS).create()
        m.submodules.crc = crc
        m.d.comb += [crc.data.eq(word.data), closing.eq(1)]
        m.d.sync += [self.o.valid.eq(0), self.o.payload.begin.eq(0), self.o.payload.end.eq(0)]
        m.d.sync += self.o.payload.data.eq(word.data)
        expected = Mux(place[0], Const(config.digest >> PART_BITS), Const(config.digest % (1 << PART_BITS)))
        same = fits & (word.data == expected)
        with m.FSM():
            with m.State("WAIT"):
                m.d.comb += [closing.eq(self.i.valid | ~good), crc.start.eq(1)]
                m.d.sync += [place.eq(0), fits.eq(1), surplus.eq(0)]
                with m.If(self.i.valid & idle):
                    m.next = "TAKE"
            with m.State("TAKE"):
                m.d.comb += [self.i.ready.eq(1), crc.valid.eq(self.i.valid)]
                with m.If(self.i.valid):
                    m.d.sync += [place.eq(Mux(place == final, final, place + 1)), surplus.eq(place == final)]
                    with m.If(place < DIGEST_WORDS):
                        m.d.sync += fits.eq(same)
                        with m.If(same & (place == DIGEST_WORDS - 1)):
                            m.d.sync += [self.o.valid.eq(1), self.o.payload.begin.eq(1), good.eq(0)]
                    with m.Elif(place != final):
                        m.d.sync += self.o.valid.eq(fits)
                    with m.If(word.last):
                        m.d.sync += fits.eq(fits & (place == final) & ~surplus)
                        m.next = "CHECK"
            with m.State("CHECK"):
                m.d.comb += wrong.eq(~(fits & crc.match_detected))
                m.d.sync += [self.o.valid.eq(~wrong), self.o.payload.end.eq(~wrong)]
                m.next = "WAIT"
                with m.If(~wrong):
                    m.next = "END"
            with m.State("END"), m.If(self.back.valid & self.back.payload.end):
                m.d.sync += good.eq(1)
                m.next = "WAIT"
        return wrong

    def _elaborate_frames(self, m: Module, closing: Value, good: Value) -> Value:
        """Which inputs may begin a frame; whether none is on its way and none may begin.

        Where there are several inputs, those that are behind go on until all have begun as many frames.
        """
        config = self.config
        within = [Signal(name=f"in_frame_{number}") for number in range(config.inputs)]
        may = [Signal(name=f"may_begin_{number}", init=1) for number in range(config.inputs)]
        begun = [Signal(_FRAME_BITS, name=f"begun_frames_{number}") for number in range(config.inputs)]
        left = [Signal(_FRAME_BITS, name=f"finished_frames_{number}") for number in range(config.outputs)]
        for number in range(config.inputs):
            offered, taken, last = (getattr(self, f"{name}_{number}") for name in ("offered", "taken", "last"))
            begins = taken & ~within[number]
            m.d.comb += getattr(self, f"open_{number}").eq(within[number] | may[number] & good)
            m.d.sync += begun[number].eq(begun[number] + begins)
            with m.If(taken):
                m.d.sync += within[number].eq(~last)
            # How many frames it is behind another one, if it is.
            others = (other for other in begun if other is not begun[number])
            lags = [(other - begun[number]).as_unsigned()[:_FRAME_BITS] for other in others]
            behind = Cat(lag.any() & ~lag[-1] for lag in lags).any()
            # What is offered stays so until it is taken.
            m.d.sync += may[number].eq(~closing | behind & ~begins | offered & ~taken)
        for number, count in enumerate(left):
            m.d.sync += count.eq(count + getattr(self, f"left_{number}"))
        equal = Cat(other == begun[0] for other in (*begun[1:], *left)).all()
        return equal & ~Cat(*within, *may).any()
