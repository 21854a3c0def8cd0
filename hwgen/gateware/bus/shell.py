"""Bus shell of a streaming accelerator: AXI4-Streams for frames, registers on AXI4-Lite, and an interrupt.

AXI4-Stream is specified by Arm's IHI 0051 (issue B). A word contains whole values, each in its own bytes. The values of
the accelerator's beats follow each other without the lanes past the last channel. Every frame begins with a new word,
and its last word has ``tlast``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from amaranth import Cat, ClockDomain, Const, Module, Mux, ResetInserter, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hwgen.errors import ConfigError
from hwgen.gateware.bus.base import CONTROL, BusShell, BusShellConfig
from hwgen.gateware.bus.lite import BITS, LITE, Bank
from hwgen.gateware.bus.registers import WEIGHTS_ERROR_BIT, Register, registers_of
from hwgen.gateware.bus.repack import Pieces, Repack, RepackConfig
from hwgen.gateware.bus.wrapper import Wrapper
from hwgen.gateware.component import OnDevice
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.guard import PACKET, PACKET_BITS, PACKET_COUNTER_LUTS, Guard, GuardConfig, add_frame_counter
from hwgen.gateware.load.loaded_memory import PART_BITS
from hwgen.gateware.load.loader import STATE, WORD
from hwgen.gateware.lookup import named
from hwgen.gateware.stream import BeatFormat, Port, numbered

#: Number of low bits compared between each output's count of frames and the count of frames done by all outputs.
_AHEAD_BITS = 16
#: Possible word sizes of an AXI4-Stream in bytes, in ascending order.
WIDTHS = (4, 8, 16)


def axis(width: int) -> wiring.Signature:
    """Return the Amaranth signature of an AXI4-Stream with ``width`` bytes per word, as its source sees it.

    Signals have the names of the specification, in lower case.
    """
    return wiring.Signature(
        {
            "tdata": Out(8 * width),
            "tkeep": Out(width),
            "tlast": Out(1),
            "tvalid": Out(1),
            "tready": In(1),
        }
    )


@dataclass(frozen=True, kw_only=True)
class BusStreamConfig(OnDevice):
    """Configuration of the AXI4-Stream that carries the frames of one input or output stream of an accelerator.

    Parameters
    ----------
    name : str
        Name of the bus stream: ``s_axis`` or ``m_axis``, followed by an index if there are several.
    port : Port
        Stream port of the accelerator.
    width : int, optional
        Bytes per word: 4, 8 or 16. The default is the smallest size that gives a frame at most as many words as beats,
        or 16.

    Raises
    ------
    ConfigError
        If the width is not one of these, or a value has more bytes.
    """

    name: str
    port: Port
    width: int = 0

    def __post_init__(self) -> None:
        enough = [width for width in WIDTHS if width >= self.value_bytes]
        if not self.width:
            free = [width for width in enough if self.words_of(width).count <= self.port.beats]
            object.__setattr__(self, "width", free[0] if free else WIDTHS[-1])
        if self.width not in enough:
            raise ConfigError(f"{self.name}: width must be one of {enough} bytes, not {self.width!r}")

    @property
    def value_bytes(self) -> int:
        """Number of bytes per feature map value on the AXI4-Stream: its bits rounded up to 1, 2, 4 or 8 bytes."""
        return self.port.beat.value_bytes

    def words_of(self, width: int) -> Pieces:
        """Return a frame's values as AXI4-Stream words of ``width`` bytes (`Pieces`): the number of values in each."""
        return Pieces.of_words(width // self.value_bytes, self.beats.values)

    @cached_property
    def beats(self) -> Pieces:
        """`Pieces`: division of a frame's values into beats of the accelerator's stream, number of values in each."""
        return Pieces.of_beats(self.port.beat, self.port.beats)

    @cached_property
    def words(self) -> Pieces:
        """`Pieces`: division of a frame's values into words of the AXI4-Stream, number of values in each."""
        return self.words_of(self.width)

    @property
    def frame_bytes(self) -> int:
        """Number of bytes per frame on the AXI4-Stream, without the padding of the last word."""
        return self.beats.values * self.value_bytes

    @property
    def stride_bytes(self) -> int:
        """Number of bytes from the start of one frame in a packet to the next: whole words, padding included."""
        return self.words.count * self.width

    @property
    def is_free(self) -> bool:
        """Whether the AXI4-Stream never slows the accelerator, as a frame has no more words than beats."""
        return self.words.count <= self.beats.count

    @property
    def final_keep(self) -> int:
        """Integer value of the AXI4-Stream signal ``tkeep`` in a frame's last word: a mask of its valid bytes."""
        return (1 << self.words.final * self.value_bytes) - 1

    def repack(self, takes: Pieces, gives: Pieces) -> RepackConfig:
        """Return the `RepackConfig` of a width converter from pieces ``takes`` to pieces ``gives``: beats and words."""
        return RepackConfig(device=self.device, shape=unsigned(self.port.beat.bits), takes=takes, gives=gives)

    @property
    def guard(self) -> GuardConfig:
        """`GuardConfig` of the guard that pads short frames and drops surplus words of the AXI4-Stream."""
        size, count = self.width // self.value_bytes, self.words.count
        word = BeatFormat(
            channels=size, height=1, width=count, lanes=size, bits=8 * self.value_bytes, signed=self.port.beat.signed
        )
        return GuardConfig(device=self.device, beat=word, beats=count, packets=True)


def ends_of(ports: Sequence[Port], name: str, widths: Sequence[int] = ()) -> tuple[BusStreamConfig, ...]:
    """Return a tuple of `BusStreamConfig` objects, one for each of an accelerator's input or output ports.

    ``widths`` has the bytes per word of each; 0 or none selects the default.
    """
    return tuple(
        BusStreamConfig(name=numbered(name, index, len(ports)), port=port, width=width)
        for index, (port, width) in enumerate(zip(ports, widths or [0] * len(ports), strict=True))
    )


@dataclass(frozen=True, kw_only=True)
class ShellConfig(OnDevice, BusShellConfig):
    """Configuration of the bus shell that connects an accelerator to AXI4-Streams, registers and an interrupt.

    Parameters
    ----------
    inputs, outputs : tuple of BusStreamConfig
        Streams of the accelerator on the bus.
    build_hash : int
        Identity of the design, 64 bits.
    weights : bool
        Whether weights are loaded at run time.
    error_ports : tuple of str
        Names of the accelerator's ports that report frame errors. The shell ties them off, because it has its own
        guards.

    Raises
    ------
    ConfigError
        If there are more streams than registers for them.
    """

    inputs: tuple[BusStreamConfig, ...]
    outputs: tuple[BusStreamConfig, ...]
    build_hash: int = 0
    weights: bool = False
    error_ports: tuple[str, ...] = field(default=(), repr=False)

    circuit = "accelerator"

    def __post_init__(self) -> None:
        self.registers  # noqa: B018 (refuses too many streams)

    def title(self, top: str) -> str:
        return f"accelerator {top}"

    @cached_property
    def registers(self) -> tuple[Register, ...]:
        inputs, outputs = ([end.name for end in ends] for ends in (self.inputs, self.outputs))
        return registers_of(inputs, outputs, self.build_hash, weights=self.weights)

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.device)
        streams = len(self.inputs) + len(self.outputs)
        # Counters of 32 bits, and one of 64 bits for cycles. Plain counters take no LUTs.
        cost.ff += 32 * (3 + 4 * len(self.inputs) + 3 * len(self.outputs) + (len(self.outputs) > 1)) + 64
        cost.ff += (PACKET_BITS + 1) * (1 + len(self.outputs)) + 2 * len(self.inputs)
        cost.lut += 45 * streams + PACKET_COUNTER_LUTS * len(self.outputs)
        if self.weights:
            cost.ff += PART_BITS + 2
            cost.lut += PART_BITS + 10
        parts = [
            *(part for end in self.inputs for part in (end.guard, end.repack(end.words, end.beats))),
            *(end.repack(end.beats, end.words) for end in self.outputs),
            self.bank,
        ]
        return sum((part.resources for part in parts), cost.resources)

    @property
    def signature(self) -> wiring.Signature:
        members: dict[str, wiring.Member] = {"control": In(LITE), "interrupt": Out(1), "reset": Out(1)}
        for end in self.inputs:
            members |= {end.name: In(axis(end.width)), end.port.name: Out(end.port.beat.signature)}
        for end in self.outputs:
            members |= {end.name: Out(axis(end.width)), end.port.name: In(end.port.beat.signature)}
        if self.weights:
            members |= {"weights": Out(WORD), "weights_state": In(STATE)}
        return wiring.Signature(members)

    @property
    def prefixes(self) -> dict[str, str]:
        return {"control": CONTROL} | {end.name: end.name for end in (*self.inputs, *self.outputs)}

    @property
    def parameters(self) -> dict[str, dict[str, str]]:
        buses = ":".join([*(end.name for end in (*self.inputs, *self.outputs)), CONTROL])
        return {
            "aclk": {"ASSOCIATED_BUSIF": buses, "ASSOCIATED_RESET": "aresetn"},
            "aresetn": {"POLARITY": "ACTIVE_LOW"},
            "interrupt": {"SENSITIVITY": "LEVEL_HIGH"},
        }

    def component(self) -> Shell:
        return Shell(self)

    def wrapper(self, top: str) -> AcceleratorWrapper:
        return AcceleratorWrapper(self, top)


class AcceleratorWrapper(Wrapper):
    """Bus wrapper of an accelerator: the bus shell and the accelerator in one module, clocked by ``aclk``.

    Members, in addition to every wrapper's
    -------
    s_axis_tdata ... : In, Out
        Streams of the shell. The port name is the stream name followed by the signal name.
    """


class Shell(BusShell[ShellConfig]):
    """Bus shell of a streaming accelerator: registers, checks of input frame lengths, and width converters.

    Parameters
    ----------
    config : ShellConfig

    Members
    -------
    s_axis, m_axis : In(axis), Out(axis)
        Frames to and from the accelerator. With several streams, an index follows the name.
    control : In(LITE)
        Register bus.
    interrupt : Out(1)
        Interrupt, level-sensitive, active high.
    reset : Out(1)
        Reset of the accelerator.
    i, o : Out(stream), In(stream)
        Streams of the accelerator, by their names there.
    weights, weights_state : Out(stream), In
        Weight words that software writes into registers, and the state of the loader. Only with loaded weights.

    Latency and throughput
        The accelerator can accept the values of a word in the next cycle. If `BusStreamConfig.is_free`, the shell does
        not lengthen the accelerator's interval.
    """

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = bank = Bank(self.config.bank)
        connect(m, outside=flipped(self.control), bank=bank.bus)
        # A word that came in the cycle after a reset, also one by software, would be accepted before the guards know
        # how many frames a packet has.
        running = Signal(name="is_out_of_reset")
        m.d.sync += running.eq(~self.reset)
        m.d.sync += self.reset.eq(bank.reset)
        m.d.comb += bank.clear.eq(self.reset)

        wrong: list[Value] = []
        packet = Signal(PACKET, init={"single": 1, "next_single": 1}, name="packet")
        ends: dict[str, Value] = {}
        packets: list[Value] = []
        for end in self.config.inputs:
            wrong += self._connect_input(m, end, running & bank.control[0] & ~self.reset, packet, ends, packets)
        for end in self.config.outputs:
            self._connect_output(m, end, packet, ends)
        done, busy = self._add_counters(m, bank, packet, ends, packets)

        lost, state = self._add_weight_buffer(m, bank) if self.config.weights else (Const(0), Const(0, 0))
        errors = Cat(Cat(wrong, Const(0, BITS))[:WEIGHTS_ERROR_BIT], lost) if self.config.weights else Cat(wrong)
        m.d.comb += [
            bank.errors_raise.eq(errors),
            bank.interrupt_status_raise.eq(Cat(done, errors.any())),
            bank.status.eq(Cat(busy, bank.errors.any(), self.interrupt, state)),
        ]
        m.d.sync += self.interrupt.eq((bank.interrupt_status & bank.interrupt_enable).any() & ~self.reset)
        for register in self.config.registers:
            if register.reset and register.access == "r":
                m.d.comb += getattr(bank, register.name.lower()).eq(register.reset)
        return m

    def connections(self, domain: ClockDomain) -> dict[str, Any]:
        ports = {"i_clk": domain.clk, "i_rst": domain.rst | self.reset}
        for ends, forth, back in ((self.config.inputs, "i", "o"), (self.config.outputs, "o", "i")):
            for name in (end.port.name for end in ends):
                stream = getattr(self, name)
                ports |= {
                    f"{forth}_{name}__payload": stream.payload.as_value(),
                    f"{forth}_{name}__valid": stream.valid,
                    f"{back}_{name}__ready": stream.ready,
                }
        ports |= {f"i_{name}__clear": Const(0, 1) for name in self.config.error_ports}
        if self.config.weights:
            ports |= {
                "i_weights__payload": self.weights.payload.as_value(),
                "i_weights__valid": self.weights.valid,
                "o_weights__ready": self.weights.ready,
                "o_weights_state__good": self.weights_state.good,
                "o_weights_state__error": self.weights_state.error,
                "i_weights_state__clear": self.weights_state.clear,
            }
        return ports

    def _add_weight_buffer(self, m: Module, bank: Bank) -> tuple[Value, Value]:
        """Add the one-word buffer from software's weight registers; return a pair: failure pulse and state bits.

        Return a pulse when a load fails, and the state bits of the register ``STATUS``.
        """
        stream, state = self.weights, self.weights_state
        written, full = bank.weights_written | bank.weights_last_written, Signal(name="weights_wait")
        lost = Signal(name="weights_lost")
        with m.If(written):
            m.d.sync += [
                stream.payload.data.eq(Mux(bank.weights_last_written, bank.weights_last, bank.weights)),
                stream.payload.last.eq(bank.weights_last_written),
            ]
        m.d.sync += [
            full.eq((written | full & ~stream.ready) & ~self.reset),
            lost.eq(written & full & ~stream.ready),
        ]
        m.d.comb += [stream.valid.eq(full), state.clear.eq(1)]
        return state.error | lost, Cat(state.good, full)

    def _connect_input(
        self, m: Module, end: BusStreamConfig, open_: Value, packet: Any, ends: dict[str, Value], packets: list[Value]
    ) -> list[Value]:
        """Connect an input AXI4-Stream by length check and width converter; return two error pulses: short, long.

        Return pulses for a short and for a long frame. ``packet`` is the size of packets. Add a pulse for the last word
        of each frame to ``ends``, by the name of the bus, and to ``packets`` whether a packet has begun.
        """
        bus, core = getattr(self, end.name), getattr(self, end.port.name)
        guard = ResetInserter(self.reset)(Guard(end.guard))
        m.submodules[f"{end.name}_guard"] = guard
        repack = Repack(end.repack(end.words, end.beats))
        m.submodules[f"{end.name}_repack"] = ResetInserter(self.reset)(repack)
        into, out, bits = guard.i, guard.o, end.port.beat.bits
        m.d.comb += [
            into.valid.eq(bus.tvalid & open_),
            into.payload.last.eq(bus.tlast),
            # Bytes without ``tkeep`` are undefined.
            into.payload.data.as_value().eq(bus.tdata & Cat(keep.replicate(8) for keep in bus.tkeep)),
            bus.tready.eq(into.ready & open_),
            guard.packet.eq(packet),
            guard.error.clear.eq(1),
            repack.i.valid.eq(out.valid),
            out.ready.eq(repack.i.ready),
            *(repack.i.payload[lane].eq(out.payload.data[lane][0][:bits]) for lane in range(end.words.max_values)),
        ]
        values = Cat(repack.o.payload.data[lane] for lane in range(end.beats.max_values))
        m.d.comb += [
            core.valid.eq(repack.o.valid),
            core.payload.data.as_value().eq(values),
            core.payload.last.eq(repack.o.payload.last),
            repack.o.ready.eq(core.ready),
        ]
        # A word must have all its bytes, and the last word of a frame exactly the remaining bytes.
        passes = named(into.valid & into.ready & out.valid & out.ready, "word_passes")
        ends[end.name] = named(out.valid & out.ready & out.payload.last, "frame_enters")
        packets.append(guard.in_packet)
        wanted = named(Mux(out.payload.last, end.final_keep, (1 << end.width) - 1), "wanted_bytes")
        lacks, exceeds = Signal(name=f"{end.name}_too_few_bytes"), Signal(name=f"{end.name}_too_many_bytes")
        m.d.sync += [
            lacks.eq(passes & (wanted & ~bus.tkeep).any()),
            exceeds.eq(passes & bus.tlast & (bus.tkeep & ~wanted).any()),
        ]
        return [guard.error.short | lacks, guard.error.long | exceeds]

    def _connect_output(self, m: Module, end: BusStreamConfig, packet: Any, ends: dict[str, Value]) -> None:
        """Connect an output stream of the accelerator to its AXI4-Stream through a width converter.

        ``packet`` is the size of packets. Add a pulse for the last word of each frame to ``ends``, by the name of the
        bus.
        """
        bus, core = getattr(self, end.name), getattr(self, end.port.name)
        repack = Repack(end.repack(end.beats, end.words))
        m.submodules[f"{end.name}_repack"] = ResetInserter(self.reset)(repack)
        beat, piece = end.port.beat, core.payload.data.as_value()
        m.d.comb += [
            repack.i.valid.eq(core.valid),
            core.ready.eq(repack.i.ready),
            *(
                repack.i.payload[lane].eq(piece[lane * beat.bits : (lane + 1) * beat.bits])
                for lane in range(end.beats.max_values)
            ),
            bus.tvalid.eq(repack.o.valid),
            repack.o.ready.eq(bus.tready),
            bus.tkeep.eq(Mux(bus.tlast, end.final_keep, (1 << end.width) - 1)),
        ]
        ends[end.name] = named(bus.tvalid & bus.tready & repack.o.payload.last, "frame_leaves")
        index, last = add_frame_counter(m, f"{end.name}_frame_index", packet, ends[end.name])
        with m.If(self.reset):
            m.d.sync += [index.eq(0), last.eq(packet.single)]
        m.d.comb += bus.tlast.eq(repack.o.payload.last & last)
        for lane in range(end.words.max_values):
            value = repack.o.payload.data[lane]
            word = bus.tdata.word_select(lane, 8 * end.value_bytes)
            m.d.comb += word.eq(value.as_signed() if beat.signed else value)

    def _add_counters(
        self, m: Module, bank: Bank, packet: Any, ends: dict[str, Value], packets: Sequence[Value]
    ) -> tuple[Value, Value]:
        """Add counters of frames, packets and stalls that software reads; return a pair of bits: busy, frame end.

        Set ``packet``, the size of packets, while no frame is on its way. ``ends`` are the pulses of frames' last
        words, by bus, and ``packets`` whether a packet has begun on each input. Return a pulse when a frame has left on
        all outputs, and whether any frame is in flight. Both are one cycle late.
        """
        busy, done, frames = Signal(name="busy"), Signal(name="frame_done"), bank.frames
        begun: list[Value] = []
        ended: list[Value] = []
        moving: list[Value] = []
        for end in self.config.inputs:
            bus, within = getattr(self, end.name), Signal(name=f"{end.name}_in_frame")
            moves = named(bus.tvalid & bus.tready, "word_transfer")
            # A single frame has come when it has come whole, even if it is longer or shorter than it should be. A frame
            # of a packet has come a cycle after its last word.
            entered = Signal(name=f"{end.name}_frame_entered")
            m.d.sync += entered.eq(ends[end.name] & ~packet.single & ~self.reset)
            alone = named(bus.tlast & packet.single, "single_frame_ends")
            with m.If(moves | entered):
                m.d.sync += within.eq(moves & ~alone)
            with m.If(self.reset):
                m.d.sync += within.eq(0)
            come = self._add_counter(m, bank, f"{end.name}_frames", moves & alone | entered)
            whole = Signal(name=f"{end.name}_packet_ended")
            m.d.sync += whole.eq(moves & bus.tlast & ~self.reset)
            self._add_counter(m, bank, f"{end.name}_packets", whole)
            self._add_counter(m, bank, f"{end.name}_stalled", bus.tvalid & ~bus.tready)
            self._add_counter(m, bank, f"{end.name}_starved", busy & ~bus.tvalid)
            begun.append(within | entered | (come != frames))
            moving.append(moves)
        for end in self.config.outputs:
            bus = getattr(self, end.name)
            leaves = ends[end.name]
            left = self._add_counter(m, bank, f"{end.name}_frames", leaves)
            self._add_counter(m, bank, f"{end.name}_packets", bus.tvalid & bus.tready & bus.tlast)
            self._add_counter(m, bank, f"{end.name}_stalled", bus.tvalid & ~bus.tready)
            # No output is ever 2**16 frames ahead of another one, so that a difference of 0 means equal counts.
            ended.append(leaves if len(self.config.outputs) == 1 else left[:_AHEAD_BITS] != frames[:_AHEAD_BITS])
        if len(self.config.outputs) == 1:
            m.d.comb += frames.eq(left)
            m.d.sync += done.eq(ended[0] & ~self.reset)
        else:
            # A frame is counted one cycle late, so at most every other cycle; the count catches up between frames.
            m.d.sync += done.eq(Cat(ended).all() & ~done & ~self.reset)
            self._add_counter(m, bank, "frames", done)
        m.d.sync += busy.eq(Cat(begun).any() & ~self.reset)
        frames_of_packet = bank.packet_frames[:PACKET_BITS]
        m.d.comb += [
            packet.load.eq(~Cat(begun, moving, packets).any()),
            packet.next_single.eq(frames_of_packet[1:] == 0),
        ]
        with m.If(packet.load):
            m.d.sync += [packet.single.eq(packet.next_single), packet.before_last.eq(frames_of_packet - 2)]
        self._add_cycle_counters(m, bank, done, busy)
        return done, busy

    def _add_cycle_counters(self, m: Module, bank: Bank, done: Value, busy: Value) -> None:
        """Add the counters of cycles between frame ends and of busy cycles, which software reads as registers."""
        since, interval, follows = (
            Signal(32, name="cycles_since_frame"),
            Signal(32, name="interval_held"),
            Signal(name="has_frame_before"),
        )
        cycles, high = Signal(64, name="busy_cycles"), Signal(32, name="cycles_high_held")
        m.d.sync += [since.eq(since + 1), cycles.eq(cycles + busy)]
        with m.If(done):
            m.d.sync += [since.eq(1), follows.eq(1)]
            with m.If(follows):
                m.d.sync += interval.eq(since)
        with m.If(bank.cycles_low_read):
            m.d.sync += high.eq(cycles[32:])
        with m.If(self.reset):
            m.d.sync += [follows.eq(0), interval.eq(0), cycles.eq(0), high.eq(0)]
        m.d.comb += [bank.interval.eq(interval), bank.cycles_low.eq(cycles[:32]), bank.cycles_high.eq(high)]

    def _add_counter(self, m: Module, bank: Bank, name: str, counts: Value) -> Signal:
        """Add a 32-bit counter of cycles with ``counts`` high, readable as register ``name``; return the count."""
        count = Signal(32, name=f"{name}_count")
        m.d.sync += count.eq(count + counts)
        with m.If(self.reset):
            m.d.sync += count.eq(0)
        m.d.comb += getattr(bank, name).eq(count)
        return count
