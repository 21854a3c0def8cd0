"""Loader of run-time weights: checks a load, and holds frames back until the memories have valid contents.

A load is a packet of 32-bit words: the digest of the design in two words, the lower word first; the words of all
memories, in the order of the chain; and the CRC-32 of all words before (of Ethernet and zlib, over little-endian
bytes). ``last`` marks the CRC.
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
from hwgen.gateware.component import ConfiguredComponent, OnDevice
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.load.loaded_memory import CHAIN, PART_BITS
from hwgen.gateware.lookup import named

#: Size of the hardware digest in a load of run-time weights: in 32-bit words, and in bits.
DIGEST_WORDS, DIGEST_BITS = 2, 64
#: Width in bits of the loader's counters of frames: those begun at each input, and those finished at each output.
_FRAME_BITS = 16

#: Stream signature of the loader's input: ``data``, a 32-bit word of a load of weights; ``last`` marks the CRC.
WORD = stream.Signature(data.StructLayout({"data": PART_BITS, "last": 1}))
#: Signature of the weight loader's state: ``good`` (the memories' contents are valid), ``error``, and its ``clear``.
STATE = wiring.Signature({"good": Out(1), "error": Out(1), "clear": In(1)})


def packet(digest: int, words: Iterable[int]) -> bytes:
    """Return the bytes of a load of run-time weights: the design's digest, the words of all memories, and a CRC-32.

    All are little endian.
    """
    words = list(words)
    body = pack("<Q", digest) + pack(f"<{len(words)}I", *words)
    return body + pack("<I", zlib.crc32(body))


@dataclass(frozen=True, kw_only=True)
class LoaderConfig(OnDevice):
    """Configuration of the loader of run-time weights, which checks each load, and holds frames back meanwhile.

    Parameters
    ----------
    digest : int
        Digest of the design, 64 bits. Loads with another digest are refused.
    words : int
        Number of 32-bit words that fill all memories.
    inputs, outputs : int
        Numbers of input and output streams.
    initialised : bool
        Whether all memories begin with valid contents. Otherwise no frame begins before the first load.

    Raises
    ------
    ConfigError
        If a parameter is out of range.
    """

    digest: int
    words: int
    inputs: int = 1
    outputs: int = 1
    initialised: bool = True

    def __post_init__(self) -> None:
        for name in ("words", "inputs", "outputs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be a positive integer, not {getattr(self, name)!r}")
        if not 0 <= self.digest < 1 << DIGEST_BITS:
            raise ConfigError(f"digest must fit {DIGEST_BITS} bits, not be {self.digest!r}")

    @property
    def packet_words(self) -> int:
        """Number of 32-bit words in a load of weights, digest and CRC included."""
        return DIGEST_WORDS + self.words + 1

    @cached_property
    def resources(self) -> Resources:
        cost, streams = Cost(self.device), self.inputs + self.outputs
        # Counters of frames. For each input, whether it is within a frame, and whether a frame can begin.
        cost.ff += _FRAME_BITS * streams + 2 * self.inputs
        cost.lut += 16 * (streams - 2) + 15 * (self.inputs - 1)
        # The CRC, a beat of the chain, the word index, and states.
        cost.counter(self.packet_words)
        cost.ff += PART_BITS + PART_BITS + 3 + 6
        cost.lut += 358
        return cost.resources

    def component(self) -> Loader:
        return Loader(self)


class Loader(ConfiguredComponent[LoaderConfig]):
    """Loader of run-time weights: checks a load, sends its words to the memories, and holds frames back meanwhile.

    Parameters
    ----------
    config : LoaderConfig

    Members
    -------
    i : In(stream)
        Words of loads. A load is accepted when no frame is in flight. New frames wait as soon as its first word is
        valid.
    o : Out(stream, always ready)
        Start of the chain: ``begin``, words, ``end``. A load with another digest sends nothing.
    back : In(stream, always ready)
        End of the chain.
    state : Out
        ``good``: all memories have the contents of the last load, or their initial contents. It is low from the first
        word of a load until all words have arrived and the CRC is right, also across a reset, and before the first load
        if ``config.initialised`` is false. ``error``: a load failed; high until ``clear``, which does not hide an error
        in the same cycle.
    offered_N, last_N, taken_N : In(1)
        State of input ``N``: whether a beat is valid after the gate of ``open_N``, its ``last``, and whether it is
        accepted.
    open_N : Out(1)
        Whether input ``N`` lets beats through.
    left_N : In(1)
        Pulse: a frame has left on output ``N``.

    Latency and throughput
        One word per cycle. Frames that do not wait for a load take no additional cycle.
    Reset
        A load in progress is dropped. ``good`` stays low if memories were being written.
    """

    def __init__(self, config: LoaderConfig):
        members: dict[str, wiring.Member] = {"i": In(WORD), "o": Out(CHAIN), "back": In(CHAIN), "state": Out(STATE)}
        for stream_index in range(config.inputs):
            members |= {f"{name}_{stream_index}": In(1) for name in ("offered", "last", "taken")}
            members[f"open_{stream_index}"] = Out(1)
        members |= {f"left_{stream_index}": In(1) for stream_index in range(config.outputs)}
        super().__init__(config, members)

    def elaborate(self, platform):
        m = Module()
        # A reset does not change the contents of memories.
        good = Signal(name="is_good", init=int(self.config.initialised), reset_less=True)
        closing = Signal(name="is_closing")
        idle = self._elaborate_frames(m, closing, good)
        m.d.comb += self.state.good.eq(good)
        wrong = self._elaborate_load(m, closing, good, idle)
        m.d.sync += self.state.error.eq(wrong | self.state.error & ~self.state.clear)
        return m

    def _elaborate_load(self, m: Module, closing: Signal, good: Signal, idle: Value) -> Signal:
        """Check a load's digest and CRC, and send its words down the memories' chain; return a failure pulse."""
        config, word = self.config, self.i.payload
        final = config.packet_words - 1
        word_index, fits, surplus = (
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
        expected = Mux(word_index[0], Const(config.digest >> PART_BITS), Const(config.digest % (1 << PART_BITS)))
        same = named(fits & (word.data == expected), "is_same_digest")
        with m.FSM():
            with m.State("WAIT"):
                m.d.comb += [closing.eq(self.i.valid | ~good), crc.start.eq(1)]
                m.d.sync += [word_index.eq(0), fits.eq(1), surplus.eq(0)]
                with m.If(self.i.valid & idle):
                    m.next = "TAKE"
            with m.State("TAKE"):
                m.d.comb += [self.i.ready.eq(1), crc.valid.eq(self.i.valid)]
                with m.If(self.i.valid):
                    m.d.sync += [
                        word_index.eq(Mux(word_index == final, final, word_index + 1)),
                        surplus.eq(word_index == final),
                    ]
                    with m.If(word_index < DIGEST_WORDS):
                        m.d.sync += fits.eq(same)
                        with m.If(same & (word_index == DIGEST_WORDS - 1)):
                            m.d.sync += [self.o.valid.eq(1), self.o.payload.begin.eq(1), good.eq(0)]
                    with m.Elif(word_index != final):
                        m.d.sync += self.o.valid.eq(fits)
                    with m.If(word.last):
                        m.d.sync += fits.eq(fits & (word_index == final) & ~surplus)
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
        """Let inputs begin frames only while no weights are loaded; return a bit: no frame is in flight.

        The result is low if a frame can still begin. With several inputs, an input that lags continues until all inputs
        have begun as many frames.
        """
        config = self.config
        within = [Signal(name=f"in_frame_{index}") for index in range(config.inputs)]
        may = [Signal(name=f"may_begin_{index}", init=1) for index in range(config.inputs)]
        begun = [Signal(_FRAME_BITS, name=f"begun_frames_{index}") for index in range(config.inputs)]
        left = [Signal(_FRAME_BITS, name=f"finished_frames_{index}") for index in range(config.outputs)]
        for index in range(config.inputs):
            offered, taken, last = (getattr(self, f"{name}_{index}") for name in ("offered", "taken", "last"))
            begins = taken & ~within[index]
            m.d.comb += getattr(self, f"open_{index}").eq(within[index] | may[index] & good)
            m.d.sync += begun[index].eq(begun[index] + begins)
            with m.If(taken):
                m.d.sync += within[index].eq(~last)
            # Number of frames that this input lags each other input.
            others = (other for other in begun if other is not begun[index])
            lags = [(other - begun[index]).as_unsigned()[:_FRAME_BITS] for other in others]
            behind = Cat(lag.any() & ~lag[-1] for lag in lags).any()
            # By the stream rules, an offered beat is not withdrawn.
            m.d.sync += may[index].eq(~closing | behind & ~begins | offered & ~taken)
        for index, count in enumerate(left):
            m.d.sync += count.eq(count + getattr(self, f"left_{index}"))
        equal = Cat(other == begun[0] for other in (*begun[1:], *left)).all()
        return equal & ~Cat(*within, *may).any()
