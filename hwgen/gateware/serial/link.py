"""Link between a serial line and an accelerator: packets with sequence numbers and checksums.

A packet lies between two bytes ``END``. ``ESCAPE`` precedes the codes of the bytes ``END`` and ``ESCAPE`` in a packet,
as in RFC 1055 (SLIP). A packet has a type, a sequence number, the frame's values, one byte each in the order of the
accelerator's stream, and the CRC-32 of all of these (ISO-HDLC, lowest byte first). A signed value of fewer bits is
sign-extended to its byte.

The host begins with a packet ``HELLO`` without values, which resets the accelerator. The reply is a ``HELLO`` with the
same number and the build hash. Then the host sends ``FRAME`` packets with the sequence numbers 0, 1, .., 255, 0. The
link replies to each with a ``FRAME`` packet of outputs and the same number. The last value of a frame enters the
accelerator only when the checksum is right, so that no output of a wrong frame is complete. After any error the link
resets the accelerator, breaks its packet off, sends an ``ERROR`` packet, and ignores frames until the next ``HELLO``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth import Array, Cat, ClockSignal, Const, Instance, Module, Mux, ResetInserter, ResetSignal, Signal, unsigned
from amaranth.lib import crc
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.bus.repack import Pieces, Repack, RepackConfig
from hwgen.gateware.component import ConfiguredComponent, OnDevice
from hwgen.gateware.serial.uart import UartReceiver, UartTransmitter
from hwgen.gateware.stream import Port

END, ESCAPE, END_CODE, ESCAPE_CODE = 0xC0, 0xDB, 0xDC, 0xDD
HELLO, FRAME, ERROR = 0, 1, 2
#: Number of bytes of a serial packet before its values (type, sequence number), and number of bytes of its CRC-32.
HEAD, CHECK = 2, 4
#: Number of bytes of the build hash in the reply to a HELLO packet.
HASH = 8


@dataclass(frozen=True, kw_only=True)
class SerialLinkConfig(OnDevice):
    """Configuration of a serial link (UART), which carries an accelerator's input and output streams in packets.

    Parameters
    ----------
    top : str
        Name of the accelerator's Verilog module.
    source, sink : Port
        Input and output stream of the accelerator, of at most 8 bits per value.
    divisor : int
        Number of clock cycles per bit of the serial line.
    build_hash : int
        Build hash of the design, 64 bits.
    ties : tuple of str
        Names of the accelerator's ports that clear its frame errors.

    Raises
    ------
    ConfigError
        If a value has more than 8 bits, or the divisor is below 4.
    """

    top: str
    source: Port
    sink: Port
    divisor: int
    build_hash: int = 0
    ties: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for port in (self.source, self.sink):
            if port.beat.bits > 8:
                raise ConfigError(f"{port.name}: values must have at most 8 bits, not {port.beat.bits}")
        if self.divisor < 4:
            raise ConfigError(f"divisor must be at least 4, not {self.divisor!r}")

    def repack(self, port: Port, *, forth: bool) -> RepackConfig:
        """Return the `RepackConfig` of a converter from values to beats of ``port`` (``forth``), or the reverse."""
        beats = Pieces.of_beats(port.beat, port.beats)
        values = Pieces.of_words(1, beats.values)
        takes, gives = (values, beats) if forth else (beats, values)
        return RepackConfig(device=self.device, shape=unsigned(port.beat.bits), takes=takes, gives=gives)

    def component(self) -> SerialLink:
        return SerialLink(self)


class SerialLink(ConfiguredComponent[SerialLinkConfig]):
    """Component that contains an accelerator and its serial link: frames arrive and leave in packets on a UART line.

    Parameters
    ----------
    config : SerialLinkConfig

    Members
    -------
    rx : In(1)
        Serial line from the host.
    tx : Out(1)
        Serial line to the host.
    """

    rx: Any
    tx: Any

    def __init__(self, config: SerialLinkConfig):
        super().__init__(config, {"rx": In(1), "tx": Out(1)})

    def elaborate(self, platform):
        m = Module()
        self._reset = Signal(name="accelerator_reset", init=1)
        self._error, self._hello = Signal(name="error"), Signal(name="hello")
        self._hello_number = Signal(8, name="hello_number")
        self._source, self._sink = (
            port.beat.signature.create(path=(name,))
            for name, port in (("source", self.config.source), ("sink", self.config.sink))
        )
        self._add_accelerator(m)
        self._add_receiver(m)
        self._add_transmitter(m)
        return m

    def _add_accelerator(self, m: Module) -> None:
        """Add the instance of the accelerator to the serial link's module, with a reset that the link drives."""
        config = self.config
        ports: dict[str, Any] = {"i_clk": ClockSignal(), "i_rst": ResetSignal() | self._reset}
        for stream, port, (forth, back) in (
            (self._source, config.source, "io"),
            (self._sink, config.sink, "oi"),
        ):
            ports |= {
                f"{forth}_{port.name}__payload": stream.payload.as_value(),
                f"{forth}_{port.name}__valid": stream.valid,
                f"{back}_{port.name}__ready": stream.ready,
            }
        ports |= {f"i_{name}__clear": Const(0, 1) for name in config.ties}
        m.submodules.accelerator = Instance(config.top, **ports)

    def _add_receiver(self, m: Module) -> None:
        """Add the serial receiver, which decodes and checks packets, and sends frames' values to the accelerator."""
        config = self.config
        m.submodules.receiver = receiver = UartReceiver(config.divisor)
        m.submodules.check = check = crc.catalog.CRC32_ISO_HDLC(data_width=8).create()
        repack = Repack(config.repack(config.source, forth=True))
        m.submodules.input_repack = ResetInserter(self._reset)(repack)
        into, core = repack.i, self._source
        num_values = config.repack(config.source, forth=True).takes.values
        beat_values = config.repack(config.source, forth=True).gives.max_values
        m.d.comb += [
            receiver.rx.eq(self.rx),
            core.valid.eq(repack.o.valid),
            core.payload.data.as_value().eq(Cat(repack.o.payload.data[lane] for lane in range(beat_values))),
            core.payload.last.eq(repack.o.payload.last),
            repack.o.ready.eq(core.ready),
        ]
        escaped, is_end = Signal(name="is_escaped"), Signal(name="is_end")
        byte, has_byte = Signal(8, name="packet_byte"), Signal(name="has_packet_byte")
        m.d.sync += [is_end.eq(0), has_byte.eq(0)]
        with m.If(receiver.valid):
            m.d.sync += [escaped.eq(0), byte.eq(receiver.data)]
            with m.If(receiver.data == END):
                m.d.sync += is_end.eq(1)
            with m.Elif(escaped):
                m.d.sync += [has_byte.eq(1), byte.eq(Mux(receiver.data == END_CODE, END, ESCAPE))]
            with m.Elif(receiver.data == ESCAPE):
                m.d.sync += escaped.eq(1)
            with m.Else():
                m.d.sync += has_byte.eq(1)

        # Index of the packet's next byte. It stays at one more than a frame's packet has.
        max_index = HEAD + num_values + CHECK
        index = Signal(range(max_index + 2), name="byte_index")
        packet_type, packet_number = Signal(8, name="packet_type"), Signal(8, name="packet_number")
        expected, open_ = Signal(8, name="expected_number"), Signal(name="is_open")
        held, overrun = Signal(config.source.beat.bits, name="held_value"), Signal(name="has_overrun")
        is_value = Signal(name="is_value")
        right, is_hello_size, is_frame_size = (Signal(name=f"is_{what}") for what in ("right", "hello", "frame"))
        m.d.comb += [
            check.start.eq(is_end),
            check.data.eq(byte),
            check.valid.eq(has_byte),
            is_value.eq(has_byte & (index >= HEAD) & (index < HEAD + num_values)),
            into.payload[0].eq(held),
            right.eq(check.match_detected),
            is_hello_size.eq((index == HEAD + CHECK) & (packet_type == HELLO)),
            is_frame_size.eq((index == max_index) & (packet_type == FRAME) & (packet_number == expected)),
        ]
        m.d.sync += [self._reset.eq(self._error | self._hello), self._error.eq(0), self._hello.eq(0)]
        forwarded = Signal(name="is_forwarded")
        m.d.comb += [
            into.valid.eq(forwarded & open_ & ~self._reset),
            forwarded.eq(
                (is_value & (index > HEAD) & (packet_type == FRAME)) | (is_end & is_frame_size & right & ~overrun)
            ),
        ]
        with m.If(into.valid & ~into.ready):
            m.d.sync += overrun.eq(1)
        with m.If(has_byte):
            m.d.sync += index.eq(Mux(index == max_index + 1, index, index + 1))
            with m.If(index == 0):
                m.d.sync += packet_type.eq(byte)
            with m.If(index == 1):
                m.d.sync += packet_number.eq(byte)
            with m.If(is_value):
                m.d.sync += held.eq(byte)
        with m.If(is_end):
            m.d.sync += [index.eq(0), overrun.eq(0)]
            with m.If(is_hello_size & right):
                m.d.sync += [self._hello.eq(1), self._hello_number.eq(packet_number), open_.eq(1), expected.eq(0)]
            with m.Elif((index != 0) & open_):
                with m.If(is_frame_size & right & ~overrun & into.ready):
                    m.d.sync += expected.eq(expected + 1)
                with m.Else():
                    m.d.sync += [self._error.eq(1), open_.eq(0)]

    def _add_transmitter(self, m: Module) -> None:
        """Add the serial transmitter, which sends the accelerator's outputs, replies to HELLO and errors as packets."""
        config = self.config
        m.submodules.transmitter = transmitter = UartTransmitter(config.divisor)
        m.submodules.checksum = check = crc.catalog.CRC32_ISO_HDLC(data_width=8).create()
        repack = Repack(config.repack(config.sink, forth=False))
        m.submodules.output_repack = ResetInserter(self._reset)(repack)
        core, beat = self._sink, config.sink.beat
        piece, values = core.payload.data.as_value(), config.repack(config.sink, forth=False).takes.max_values
        num_values = config.repack(config.sink, forth=False).gives.values
        m.d.comb += [
            repack.i.valid.eq(core.valid),
            core.ready.eq(repack.i.ready),
            *(repack.i.payload[lane].eq(piece[lane * beat.bits : (lane + 1) * beat.bits]) for lane in range(values)),
            self.tx.eq(transmitter.tx),
        ]
        hash_bytes = Array(Const(config.build_hash >> 8 * index & 0xFF, 8) for index in range(HASH))
        packet_number, packet_type = Signal(8, name="output_number"), Signal(2, name="output_type")
        frame_number, value = Signal(8, name="frame_number"), repack.o.payload.data[0]
        value = value.as_signed() if beat.signed else value
        index = Signal(range(max(num_values, HASH) + 1), name="output_index")
        pending_hello, pending_error = Signal(name="hello_waits"), Signal(name="error_waits")
        byte, is_byte, escape = Signal(8, name="output_byte"), Signal(name="has_output_byte"), Signal(name="is_code")
        taken, sum_bytes = Signal(name="is_byte_sent"), Signal(8 * CHECK, name="sum_bytes")
        special = (byte == END) | (byte == ESCAPE)
        out = transmitter.i
        m.d.comb += [
            check.data.eq(byte),
            check.valid.eq(taken),
            taken.eq(is_byte & out.ready & (~special | escape)),
        ]
        with m.If(self._hello):
            m.d.sync += pending_hello.eq(1)
        with m.If(self._error):
            m.d.sync += pending_error.eq(1)
        with m.If(is_byte):
            m.d.comb += [
                out.valid.eq(1),
                out.payload.eq(Mux(escape, Mux(byte == END, END_CODE, ESCAPE_CODE), Mux(special, ESCAPE, byte))),
            ]
            with m.If(out.ready):
                m.d.sync += escape.eq(special & ~escape)
        with m.FSM(name="packet"):
            with m.State("idle"):
                m.d.sync += index.eq(0)
                with m.If(pending_error | pending_hello | repack.o.valid):
                    m.next = "begin"
            with m.State("begin"):
                # An error or HELLO of the previous cycle waits by now, and goes before the frame.
                m.d.comb += [check.start.eq(1), out.valid.eq(1), out.payload.eq(END)]
                with m.If(out.ready):
                    m.d.sync += packet_type.eq(Mux(pending_error, ERROR, Mux(pending_hello, HELLO, FRAME)))
                    m.d.sync += packet_number.eq(frame_number)
                    with m.If(pending_error):
                        m.d.sync += pending_error.eq(0)
                    with m.Elif(pending_hello):
                        m.d.sync += [pending_hello.eq(0), packet_number.eq(self._hello_number), frame_number.eq(0)]
                    m.next = "type"
            with m.State("type"):
                m.d.comb += [is_byte.eq(1), byte.eq(packet_type)]
                with m.If(taken):
                    m.next = "number"
            with m.State("number"):
                m.d.comb += [is_byte.eq(1), byte.eq(packet_number)]
                with m.If(taken):
                    m.next = "values"
                    with m.If(packet_type == ERROR):
                        m.next = "sum"
            with m.State("values"):
                last = Mux(packet_type == HELLO, index == HASH - 1, index == num_values - 1)
                m.d.comb += [
                    is_byte.eq((packet_type == HELLO) | repack.o.valid),
                    byte.eq(Mux(packet_type == HELLO, hash_bytes[index[:3]], value)),
                    repack.o.ready.eq(taken & (packet_type == FRAME)),
                ]
                with m.If(taken):
                    m.d.sync += index.eq(index + 1)
                    with m.If(last):
                        m.next = "sum"
                with m.If((packet_type == FRAME) & (pending_error | pending_hello)):
                    m.d.sync += escape.eq(0)
                    m.next = "idle"
            with m.State("sum"):
                m.d.sync += [sum_bytes.eq(check.crc), index.eq(0)]
                m.next = "check"
            with m.State("check"):
                m.d.comb += [is_byte.eq(1), byte.eq(sum_bytes[:8])]
                with m.If(taken):
                    m.d.sync += [sum_bytes.eq(sum_bytes >> 8), index.eq(index + 1)]
                    with m.If(index == CHECK - 1):
                        m.next = "end"
            with m.State("end"):
                m.d.comb += [out.valid.eq(1), out.payload.eq(END)]
                with m.If(out.ready):
                    with m.If(packet_type == FRAME):
                        m.d.sync += frame_number.eq(frame_number + 1)
                    m.next = "idle"
