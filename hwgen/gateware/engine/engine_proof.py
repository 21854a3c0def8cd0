"""Proof obligations of the connections in the engine's top module, memory side and core (``wires``, ``logic``).

With one core, each port of each part is stated. With several cores, or with a map memory, only streams and clocks are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hwgen.gateware.engine.axi import Burst
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.core import CoreConfig
from hwgen.gateware.engine.engine import STUCK_CYCLES, Engine, EngineDesign
from hwgen.gateware.engine.job import COUNT_BITS, Compute
from hwgen.gateware.engine.load import PlacementUnit
from hwgen.gateware.engine.memory_side import MemorySideConfig
from hwgen.gateware.engine.port import Error, answer_layout, written_layout
from hwgen.gateware.engine.steps import step_layout
from hwgen.gateware.engine.units_proof import ADDRESSES, engine_parts, memory_side_parts
from hwgen.obligations.composition import composition, domain_wires, has_port, wired
from hwgen.obligations.obligation import Obligation, Proofs, Site, field_bits, name_of_slice
from hwgen.obligations.observers import register

_PARTS = ("valid", "ready", "payload")
_EDGE = "always @(posedge clk)"
#: Dictionary from AXI signal, without its channel, to a constant value (IHI 0022, A3 and A4): incrementing burst,
#: normal memory, unprivileged secure data.
_AXI_FIXED = {"burst": Burst.INCREMENTING.value, "cache": 3, "prot": 0}
#: Name of the memory side's port with the write strobe of half a word, on a bus of 4 bytes.
_ENABLE = name_of_slice("m_axi__wstrb", 0, 1)
_COUNTS = ("memory_side.loaded", "core.computed", "core.drained", "memory_side.stored")


def _emitted_wires(site: Site, wires: Mapping[str, str]) -> dict[str, str]:
    """Return the dict of expected wires (port to port), in the Verilog's instance names, whose two ports exist."""
    named = {_port_of_instance(site, one): _port_of_instance(site, other) for one, other in wires.items()}
    return {one: other for one, other in named.items() if has_port(site, one) and has_port(site, other)}


def _port_of_instance(site: Site, port: str) -> str:
    """Return the name ``INSTANCE.PORT`` of a port with the instance's emitted Verilog name."""
    instance, _, name = port.rpartition(".")
    return f"{site.instance(instance)}.{name}" if instance else name


def _stream_wires(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return a dict of expected wires, port to port, of some pairs of connected streams: valid, ready and payload.

    `_emitted_wires` leaves out ports that a stream does not have.
    """
    return {f"{one}__{part}": f"{other}__{part}" for one, other in pairs for part in _PARTS}


def _bus_wires(site: Site, instance: str) -> dict[str, str]:
    """Return a dict by ``m_axi__`` port of the module: the instance's port that it must be connected to."""
    return {name: f"{instance}.{name}" for name in site.module.ports if name.startswith("m_axi__")}


def _word_ports(engine: EngineConfig, signal: str) -> list[str]:
    """Return a list of the names of the ports that carry the 8-byte words of a bus beat, the lowest word first."""
    bits = 8 * LANES
    return [name_of_slice(signal, bits * word, bits) for word in range(engine.bus_words)]


def _domain_wires(site: Site) -> dict[str, str]:
    """Return a dict of expected wires, port to port: the instances' clocks and resets from module ports."""
    return {port: net for port, net in domain_wires(site).items() if has_port(site, net)}


def _connected(
    site: Site, statement: str, wires: Mapping[str, str], rules: Mapping[str, str], *, is_whole: bool, **fields: Any
) -> list[Obligation]:
    """Return a list of obligations of a module's connections: all ports (``is_whole``) or the given ``wires``."""
    wires = _emitted_wires(site, wires) | _domain_wires(site)
    if is_whole:
        return composition(site, statement, wires, rules, **fields)
    return [wired(site, statement, wires)]


def of_engine(design: EngineDesign, site: Site) -> list[Obligation]:
    """Return a list of obligations of the engine's top module: connections of its components, and control of runs."""
    engine = design.engine
    wires = _stream_wires(
        [
            *((f"memory_side.{name}", f"core.{name}") for name in ("compute", "drain", "map_write", "weight_write")),
            ("core.beats", "finish.beats"),
            ("memory_side.parameter_write", "finish.parameters"),
            ("memory_side.addend_write", "finish.addends"),
        ]
    )
    wires |= {f"memory_side.{name}": f"core.{name}" for name in ("loaded", "stored", "computed", "drained")}
    wires |= {
        "finish.address": "memory_side.address",
        "memory_side.word": "finish.data",
        "core.finished": "finish.finished",
    }
    words = zip(_word_ports(engine, "word"), _word_ports(engine, "data"), strict=True)
    wires |= {f"memory_side.{word}": f"finish.{data}" for word, data in words}
    wires |= {"error": "memory_side.error", "memory_side.pace": "pace", **_bus_wires(site, "memory_side")}
    resets = [f"{name}.run_reset" for name in site.module.instances if has_port(site, f"{name}.run_reset")]
    rules = dict.fromkeys(resets, "clears") | {
        "memory_side.begin_": "begins",
        "memory_side.program_base": "base",
        "memory_side.stop": "stop & (phase == 2)",
        "memory_side.stuck": f"quiet == {STUCK_CYCLES - 1}",
        "done": "is_done",
    }
    return _connected(
        site,
        "Streams, counts and the bus are wires between memory side, core and finish, and so are clock and reset.",
        wires,
        rules | _bus_rules(engine, site),
        is_whole=not engine.has_cores,
        observer=_run_lines(),
        cover="memory_side.begin_ & memory_side.stop",
    )


def _run_lines() -> tuple[str, ...]:
    """Return a tuple of observer lines (Verilog) that track a program's run by ``phase``: 0 no run, 1 reset, 2 run."""
    done = " & ".join(f"({count} == memory_side.jobs)" for count in _COUNTS)
    return (
        "reg [1:0] phase = 0; reg clears = 0; reg begins = 0; reg is_done = 0; reg moves = 0;",
        f"reg [31:0] base = 0; reg [{(STUCK_CYCLES - 1).bit_length() - 1}:0] quiet = 0;",
        "wire starts = start & (phase == 0);",
        f"wire ends = (phase == 2) & memory_side.idle & ((error != {Error.NONE.value}) | memory_side.ended & {done});",
        f"{_EDGE} begin",
        "    phase <= rst | ends ? 0 : starts ? 1 : phase == 1 ? 2 : phase;",
        "    clears <= !rst & starts; begins <= !rst & clears; base <= rst ? 0 : starts ? program_base : base;",
        "    is_done <= !rst & !starts & (ends | is_done);",
        "    moves <= !rst & ((phase != 2) | !memory_side.idle | !memory_side.free | core.active);",
        "    quiet <= rst | moves ? 0 : quiet + 1;",
        "end",
    )


def _bus_rules(engine: EngineConfig, site: Site) -> dict[str, str]:
    """Return a dict of Verilog expressions by AXI signal that the top makes constant or composes of parts."""
    size = {"size": (engine.bus_bytes - 1).bit_length()}
    rules = {
        f"m_axi__{channel}{name}": str(value) for channel in ("aw", "ar") for name, value in (size | _AXI_FIXED).items()
    }
    written, layout = "memory_side.written__payload", written_layout(engine)
    enables = [f"{written}[{layout['present'].offset + lane}]" for lane in range(engine.bus_words)]
    if engine.word_beats > 1:  # the port drives the other signals
        enables = [f"memory_side.{_ENABLE}"]
    lanes = [f"{{{engine.bus_bytes // engine.bus_words}{{{enable}}}}}" for enable in enables]
    rules |= {
        "m_axi__wdata": field_bits(written, layout, "data"),
        "m_axi__wlast": field_bits(written, layout, "last"),
        "m_axi__wstrb": f"{{{', '.join(reversed(lanes))}}}",
    }
    return {port: value for port, value in rules.items() if not has_port(site, f"memory_side.{port}")}


def of_memory_side(config: MemorySideConfig, site: Site) -> list[Obligation]:
    """Return a list of proof obligations of the connections in the engine's memory side: units, AXI bus, other ports.

    With a map memory, stores pass a choice of memories.
    """
    engine = config.engine
    pairs = [("port.fetch", "fetch.request"), ("port.load", "load.request")]
    wires = _stream_wires(pairs) | _bus_wires(site, "port")
    statement = "Requests of the units, their answers, jobs and the bus are wires, and so are clock and reset."
    if engine.has_map_memory or engine.has_cores:
        stores = [] if engine.has_map_memory else [("port.store", "store.request")]
        return _connected(site, statement, wires | _stream_wires(stores), {}, is_whole=False)
    writes = ("map_write", "weight_write", "parameter_write", "addend_write")
    wires |= _stream_wires(
        [
            ("port.store", "store.request"),
            ("port.written", "store.written"),
            ("placement.answers", "port.answers"),
            ("fetch.word", "placement.job"),
            ("check.word", "placement.job"),
            ("load.part", "fetch.load"),
            ("store.part", "fetch.store"),
            ("compute", "fetch.compute"),
            ("drain", "fetch.drain"),
            ("written", "store.written"),
            *((name, f"placement.{name}") for name in writes),
        ]
    )
    wires |= {"m_axi__wvalid": "store.written__valid", "store.written__ready": "m_axi__wready"}
    wires |= {f"fetch.{name}": name for name in ("begin_", "program_base", "jobs", "ended")}
    wires |= {f"port.{name}": name for name in ("pace", "error", "idle", "free")}
    wires |= {
        "load.computed": "computed",
        "load.stored": "stored",
        "store.drained": "drained",
        "loaded": "placement.loaded",
    }
    wires |= {f"store.{name}": name for name in ("address", "word", *_word_ports(engine, "word"))}
    port = site.instance("port")
    word = field_bits(f"{port}.answers__payload", answer_layout(engine), "word")
    rules = {"fetch.word__payload": word, "check.word__payload": word}
    if engine.word_beats > 1:
        rules[_ENABLE] = field_bits("store.written__payload", written_layout(engine), "present")
        wires["store.written__ready"] = "port.written__ready"
    faults = f"stuck ? {Error.STUCK.value} : stop ? {Error.STOPPED.value} : check.fault"
    return _connected(
        site,
        statement,
        wires,
        rules | {f"{port}.fault": faults, "stored": "num_stored"},
        is_whole=True,
        observer=(*register("num_stored", f"num_stored + {port}.stored", COUNT_BITS),),
        cover="(stored != 0) & (check.fault != 0)",
    )


def of_core_wires(config: CoreConfig, site: Site) -> list[Obligation]:
    """Return a list of each `Obligation` of the connections in the compute core: sequencers, buffers and array.

    The core's obligations ``contract`` state the values that arrive some cycles later.
    """
    engine = config.engine
    wires = _stream_wires(
        [
            ("compute", "steps.jobs"),
            ("drain", "drains.jobs"),
            ("map_write", "maps.write"),
            ("weight_write", "weights.write"),
        ]
    )
    wires |= {"drains.release_": "steps.release_", "drained": "drains.drained", "steps.loaded": "loaded"}
    wires |= {f"drains.{name}": name for name in ("stored", "finished")}
    steps, layout = site.part("steps"), step_layout(engine)
    ports = [each.name for each in steps.carriers("step", layout)]
    wires |= {f"lanes.{name}": f"steps.{name}" for name in ("walk", "walked", "next_job", "job", *ports)}
    wires |= {
        "maps.rest": "lanes.rest",
        "maps.words": "lanes.words",
        "array.words": "maps.o",
        "array.weights": "weights.o",
    }
    wires |= {"drains.yields": "array.yields", "array.select": "drains.select"}
    step = {name: f"steps.{bits}" for name, bits in steps.fields("step", layout).items()}
    rules = {
        "drains.opens": f"steps.valid & {step['zero']}",
        "drains.slot": step["slot"],
        "drains.stride": field_bits("steps.job", Compute.layout(engine.variant), "stride"),
        "active": "steps.valid | drains.valid",
    }
    return _connected(
        site,
        "Jobs, steps, addresses, words, counts and released slots are wires, and so are clock and reset.",
        wires,
        rules,
        is_whole=not engine.has_cores,
        others=(
            "array.valid",
            "array.control",
            "array.inside_",
            "weights.step",
            "drains.complete",
            "computed",
            "beats__valid",
            "beats__payload",
        ),
        cover="drains.opens & drains.valid",
    )


def _reasons(config: MemorySideConfig, _site: Site) -> Mapping[str, str]:
    """Return a dict from instance name to text: why units of the memory side have no functional property."""
    kept = "connections of a memory for maps are proved in part: 'hwgen simulate' checks the rest"
    return {"": kept if config.engine.has_map_memory else "", "placement*": ADDRESSES}


PROOFS = {
    EngineDesign: Proofs((of_engine,), engine_parts, others=(Engine,)),
    MemorySideConfig: Proofs((of_memory_side,), memory_side_parts, _reasons, (PlacementUnit,)),
}
