"""Memory ports of a programmable engine: the bursts of its wide AXI4 bus, dealt to several narrower AXI4 ports.

A board's memory controller has several ports (Zynq UltraScale+: four of 128 bits), and none of them moves as many bytes
as memory does. Each port gets every second (or fourth) burst. All ports reach the same memory, and the engine waits for
the response to a write before it reads what was written, so that any port can do any burst.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, fifo
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine import axi
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.fifo import FifoConfig
from hwgen.gateware.lookup import named


@dataclass(frozen=True, kw_only=True)
class MemoryPortsConfig:
    """Configuration of the circuit that deals the bursts of an engine's bus to narrower memory ports.

    Parameters
    ----------
    engine : EngineConfig
        Engine with several ``ports``; its bus is as wide as all ports together.

    Raises
    ------
    ConfigError
        If the engine has a single port.
    """

    engine: EngineConfig

    #: Cycles from a request at the engine's bus to its request at a port; from a port's last part of a word of the bus
    #: to the word that was read; and from a word to write to its first part at the port.
    REQUEST_LATENCY, READ_LATENCY, WRITE_LATENCY = 1, 2, 2

    def __post_init__(self) -> None:
        if self.engine.ports == 1:
            raise ConfigError("ports must be 2 or 4 to divide bursts among memory ports, not 1")

    @property
    def ports(self) -> int:
        """Number of memory ports of the engine, 2 or 4."""
        return self.engine.ports

    @property
    def port_bytes(self) -> int:
        """Data width of each memory port, in bytes."""
        return self.engine.port_bytes

    @property
    def read_cycles(self) -> int:
        """Cycles that the ports add to the time from a read request to its first word."""
        return self.REQUEST_LATENCY + self.ports - 1 + self.READ_LATENCY

    @property
    def write_cycles(self) -> int:
        """Cycles that the ports add to the time from a write's last word to its response, if its port is free."""
        return self.WRITE_LATENCY + self.ports - 1

    @property
    def depth(self) -> int:
        """Depth of each port's read buffer and write buffer in beats of the engine's bus: a burst of maximum size.

        A port moves a burst while the bus moves one burst with each port.
        """
        return self.engine.burst_words // self.engine.bus_words

    def buffer(self, layout: data.StructLayout) -> FifoConfig:
        """Return the `FifoConfig` of a port's buffer of beats with the given layout."""
        return FifoConfig(device=self.engine.device, lanes=1, bits=layout.size, signed=False, beats=1, depth=self.depth)

    @property
    def read_layout(self) -> data.StructLayout:
        """Amaranth layout of a port's buffer entry for reads, a beat of the engine's bus: data, response, last flag."""
        return data.StructLayout({"data": 8 * self.engine.bus_bytes, "resp": axi.Response, "last": 1})

    @property
    def write_layout(self) -> data.StructLayout:
        """Amaranth layout of a port's buffer entry for writes: data and byte enables of a bus beat, and its parts."""
        width, part = self.engine.bus_bytes, counter_bits(self.ports)
        return data.StructLayout({"data": 8 * width, "strb": width, "last": 1, "wide": 1, "part": part})

    @cached_property
    def resources(self) -> Resources:
        cost, bits = Cost(self.engine.device), 8 * self.engine.bus_bytes
        port_bits, part = bits // self.ports, counter_bits(self.ports)
        buffers = [self.buffer(layout).resources for layout in (self.read_layout, self.write_layout)]
        sides = self.ports * len(buffers)
        cost.ff += sides * (counter_bits(self.depth + 1) + part)  # free beats, and the part of a word
        cost.lut += sides * (2 * counter_bits(self.depth + 1) + 2 * part)
        requests = 2 * (32 + 8 + 3 + 1)
        cost.ff += self.ports * (requests + bits - port_bits + 2) + 5 * part
        cost.lut += bits + self.ports * (bits + port_bits // 8 + 24)
        cost.ram(1, self.engine.outstanding, copies=1 + self.ports)
        return sum(self.ports * buffers, cost.resources)

    def component(self) -> MemoryPorts:
        return MemoryPorts(self)


def ports_resources(engine: EngineConfig) -> Resources:
    """Return the `Resources` of the circuit between an engine's bus and its memory ports: none with one port."""
    return MemoryPortsConfig(engine=engine).resources if engine.ports > 1 else Resources()


class MemoryPorts(ConfiguredComponent[MemoryPortsConfig]):
    """Circuit that deals the bursts of an engine's bus to narrower memory ports, in turn, and joins the responses.

    Parameters
    ----------
    config : MemoryPortsConfig

    Members
    -------
    bus : In(axi.Master)
        The engine's bus. A beat has all bytes of the bus, or one word of 8 bytes.
    port_0 ... : Out(axi.Master)
        Ports to memory. A beat of all bytes is several beats of a port.

    Latency and throughput
        A request reaches its port `MemoryPortsConfig.REQUEST_LATENCY` cycle later, and a word of the bus follows the
        port's last part of it by `MemoryPortsConfig.READ_LATENCY` cycles. Together, the ports move a word of the bus
        per cycle in each direction, if the engine's bursts are long or many are outstanding.
    """

    def __init__(self, config: MemoryPortsConfig):
        ports = {f"port_{index}": Out(axi.Master(data_bytes=config.port_bytes)) for index in range(config.ports)}
        super().__init__(config, {"bus": In(axi.Master(data_bytes=config.engine.bus_bytes)), **ports})

    def elaborate(self, platform):
        m = Module()
        self._ports = [getattr(self, f"port_{index}") for index in range(self.config.ports)]
        for port in self._ports:
            axi.drive_constants(m, port)
        self._elaborate_reads(m)
        self._elaborate_writes(m)
        self._elaborate_responses(m)
        return m

    def _add_turn(self, m: Module, name: str, ends: Value) -> Signal:
        """Add and return a `Signal`: index of the port in turn; the next port's turn follows a cycle with ``ends``."""
        turn = Signal(range(self.config.ports), name=f"{name}_turn")
        with m.If(ends):
            m.d.sync += turn.eq(turn + 1)
        return turn

    def _elaborate_requests(self, m: Module, channel: str, room: Value | list[Value]) -> tuple[list[Value], Value]:
        """Add the request registers of channel "ar" or "aw", used in turn; return accept flags by port, and a wide bit.

        ``room`` is whether the queue of request kinds has room: one flag, or one per port. (The kind is whether the
        request's beats have all bytes of the bus.) Return a list with a flag per port, whether it takes a request in
        this cycle, and the kind of that request.
        """
        bus, config = self.bus, self.config
        valid, size, length, address = (getattr(bus, channel + name) for name in ("valid", "size", "len", "addr"))
        ready = getattr(bus, f"{channel}ready")
        wide = named(size == axi.size_of(config.engine.bus_bytes), f"{channel}_is_wide")
        turn = self._add_turn(m, channel, valid & ready)
        takes, free = [], []
        for index, port in enumerate(self._ports):
            own = {name: getattr(port, channel + name) for name in ("valid", "ready", "size", "len", "addr")}
            may = room[index] if isinstance(room, list) else room
            free.append(named((~own["valid"] | own["ready"]) & may, f"{channel}_is_free_{index}"))
            takes.append(named(valid & free[-1] & (turn == index), f"{channel}_takes_{index}"))
            with m.If(takes[-1]):
                lengths = Cat(Cat(1).replicate(counter_bits(config.ports)), length)[:8]
                m.d.sync += [
                    own["valid"].eq(1),
                    own["addr"].eq(address),
                    own["len"].eq(Mux(wide, lengths, length)),
                    own["size"].eq(Mux(wide, axi.size_of(config.port_bytes), size)),
                ]
            with m.Elif(own["ready"]):
                m.d.sync += own["valid"].eq(0)
        m.d.comb += ready.eq(Array(free)[turn])
        return takes, wide

    def _add_room_counter(self, m: Module, name: str, push: Value, pop: Value) -> Value:
        """Add a counter of the free beats of a port's buffer; return a registered bit: the buffer has room."""
        free = Signal(range(self.config.depth + 1), name=f"{name}_free_beats", init=self.config.depth)
        has_room = Signal(name=f"{name}_has_room", init=1)
        with m.If(pop & ~push):
            m.d.sync += [free.eq(free + 1), has_room.eq(1)]
        with m.Elif(push & ~pop):
            m.d.sync += [free.eq(free - 1), has_room.eq(free != 1)]
        return has_room

    def _elaborate_reads(self, m: Module) -> None:
        """Add the read requests, the join of the ports' beats to beats of the bus, and their buffers."""
        config, bus, port_bits = self.config, self.bus, 8 * self.config.port_bytes
        read_kinds = [fifo.SyncFIFO(width=1, depth=config.engine.outstanding) for _ in self._ports]
        takes, wide = self._elaborate_requests(m, "ar", [known.w_rdy for known in read_kinds])
        turn = self._add_turn(m, "r", bus.rvalid & bus.rready & bus.rlast)
        beats = []
        for index, (port, is_wide) in enumerate(zip(self._ports, read_kinds, strict=True)):
            m.submodules[f"read_kinds_{index}"] = is_wide
            m.submodules[f"read_beats_{index}"] = buffer = config.buffer(config.read_layout).component()
            part = Signal(range(config.ports), name=f"read_part_{index}")
            worst = Signal(axi.Response, name=f"read_response_{index}")
            earlier = Signal(port_bits * (config.ports - 1), name=f"earlier_parts_{index}", reset_less=True)
            taken = named(port.rvalid & port.rready, f"read_taken_{index}")
            whole = named(taken & (~is_wide.r_data[0] | (part == config.ports - 1)), f"read_word_{index}")
            pop = named(buffer.o.valid & buffer.o.ready, f"read_pop_{index}")
            response = named(Mux(port.rresp.as_value() > worst.as_value(), port.rresp, worst), f"worst_{index}")
            entry = Signal(config.read_layout, name=f"read_entry_{index}")
            m.d.comb += [
                port.rready.eq(self._add_room_counter(m, f"read_{index}", whole, pop)),
                entry.data.eq(Mux(is_wide.r_data[0], Cat(earlier, port.rdata), port.rdata.replicate(config.ports))),
                entry.resp.eq(response),
                entry.last.eq(port.rlast),
                buffer.i.valid.eq(whole),
                buffer.i.payload.as_value().eq(entry),
                buffer.o.ready.eq(bus.rready & (turn == index)),
                is_wide.w_en.eq(takes[index]),
                is_wide.w_data.eq(wide),
                is_wide.r_en.eq(taken & port.rlast),
            ]
            with m.If(taken):
                m.d.sync += [
                    earlier.eq(Cat(earlier[port_bits:], port.rdata)),
                    part.eq(Mux(whole, 0, part + 1)),
                    worst.eq(Mux(whole, axi.Response.OKAY, response)),
                ]
            beats.append(buffer.o)
        entry = data.View(config.read_layout, Array(beat.payload.data.as_value() for beat in beats)[turn])
        m.d.comb += [
            bus.rvalid.eq(Array(beat.valid for beat in beats)[turn]),
            bus.rdata.eq(entry.data),
            bus.rresp.eq(entry.resp),
            bus.rlast.eq(entry.last),
        ]

    def _elaborate_writes(self, m: Module) -> None:
        """Add the write requests, the ports' buffers of the bus's beats, and their parts, one after the other."""
        config, bus, port_bytes = self.config, self.bus, self.config.port_bytes
        m.submodules.write_kinds = kinds = fifo.SyncFIFO(width=1, depth=config.engine.outstanding)
        _, wide = self._elaborate_requests(m, "aw", kinds.w_rdy)
        taken = named(bus.wvalid & bus.wready, "write_taken")
        turn = self._add_turn(m, "w", taken & bus.wlast)
        m.d.comb += [
            kinds.w_en.eq(bus.awvalid & bus.awready),
            kinds.w_data.eq(wide),
            kinds.r_en.eq(taken & bus.wlast),
        ]
        entry = Signal(config.write_layout, name="write_entry")
        enabled = [bus.wstrb.word_select(index, port_bytes).any() for index in range(config.ports)]
        part = Cat(
            Cat(flag for index, flag in enumerate(enabled) if index >> bit & 1).any()
            for bit in range(counter_bits(config.ports))
        )
        m.d.comb += [
            entry.data.eq(bus.wdata),
            entry.strb.eq(bus.wstrb),
            entry.last.eq(bus.wlast),
            entry.wide.eq(kinds.r_data),
            entry.part.eq(part),
        ]
        rooms = []
        for index, port in enumerate(self._ports):
            m.submodules[f"write_beats_{index}"] = buffer = config.buffer(config.write_layout).component()
            push = named(taken & (turn == index), f"write_push_{index}")
            pop = named(buffer.o.valid & buffer.o.ready, f"write_pop_{index}")
            rooms.append(self._add_room_counter(m, f"write_{index}", push, pop))
            beat = data.View(config.write_layout, buffer.o.payload.data.as_value())
            count = Signal(range(config.ports), name=f"write_part_{index}")
            chosen = named(Mux(beat.wide, count, beat.part), f"chosen_part_{index}")
            ends = named(~beat.wide | (count == config.ports - 1), f"ends_word_{index}")
            m.d.comb += [
                buffer.i.valid.eq(push),
                buffer.i.payload.as_value().eq(entry),
                port.wvalid.eq(buffer.o.valid),
                port.wdata.eq(beat.data.word_select(chosen, 8 * port_bytes)),
                port.wstrb.eq(beat.strb.word_select(chosen, port_bytes)),
                port.wlast.eq(beat.last & ends),
                buffer.o.ready.eq(port.wready & ends),
            ]
            with m.If(port.wvalid & port.wready):
                m.d.sync += count.eq(Mux(ends, 0, count + 1))
        m.d.comb += bus.wready.eq(kinds.r_rdy & Array(rooms)[turn])

    def _elaborate_responses(self, m: Module) -> None:
        """Connect the ports' write responses to the bus in turn, in the order of the requests."""
        bus = self.bus
        turn = self._add_turn(m, "b", bus.bvalid & bus.bready)
        m.d.comb += [
            bus.bvalid.eq(Array(port.bvalid for port in self._ports)[turn]),
            bus.bresp.eq(Array(port.bresp.as_value() for port in self._ports)[turn]),
            *(port.bready.eq(bus.bready & (turn == index)) for index, port in enumerate(self._ports)),
        ]
