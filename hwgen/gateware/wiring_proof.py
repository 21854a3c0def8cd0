"""Proof obligations ``wires``: streams connect components unchanged, so that proofs of components compose."""

from __future__ import annotations

from typing import Any

from amaranth.lib import wiring

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.interpolate import FloatWeightedSum, WeightedSum
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.load.distribute import DistributeConfig
from hwgen.gateware.load.loaded_memory import PART_BITS, LoadedMemory
from hwgen.gateware.reorder import Reorder, ReorderLayerConfig
from hwgen.gateware.resample import ResampleLayerConfig, ResampleUnit
from hwgen.gateware.running_scale import RunningScale, RunningScaleLayerConfig
from hwgen.gateware.select import CollectLayerConfig, SelectUnit
from hwgen.obligations.composition import composition, domain_wires, has_port, wired
from hwgen.obligations.modules import VerilogModule
from hwgen.obligations.obligation import Obligation, Proofs, Site

#: Names of the fields of a port that writes a memory at run time.
_FIELDS = ("enable", "address", "data")


def layer_names(config: AcceleratorConfig) -> list[str]:
    """Return a list of instance names in an accelerator: its layers in order, then its input guards."""
    return config.instances[: len(config.layers) + len(config.input_ports)]


def accelerator_parts(config: AcceleratorConfig) -> dict[str, Any]:
    """Return a dict from instance name to configuration: an accelerator's layers, input guards and weight loader."""
    loader = {} if config.loader is None else {"load": config.loader}
    return dict(zip(layer_names(config), (*config.layers, *config.guards), strict=True)) | loader


def of_accelerator(config: AcceleratorConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations that an accelerator's ports, layers, guards and weight loader are wired correctly.

    Wires are the streams from guard to layer, from layer to layer, and to outputs; clock, reset, and flags of wrong
    frames; and the ring of run-time weights. If weights are loaded, logic lets no frame begin during a load.
    """
    names = layer_names(config)
    layers, guards = names[: len(config.layers)], names[len(config.layers) :]
    sources = [(f"{guard}.o", link) for guard, link in zip(guards, config.input_links, strict=True)]
    sources += [
        (f"{layers[link.source]}.{config.layers[link.source].output_ports[link.output]}", link) for link in config.links
    ]
    pairs, merged = [], {}
    for source, link in sources:
        if link.sink == len(layers):
            pairs.append((source, config.output_ports[link.port].name))
            continue
        layer, name = config.layers[link.sink], layers[link.sink]
        pairs.append((source, f"{name}.{layer.input_ports[link.port]}"))
        if _takes_all(layer) and not _has_port(site, f"{name}.{layer.input_ports[link.port]}__ready"):
            merged[f"{source}__ready"] = _merged_ready(layer, name, site)
    wires = stream_wires(site, pairs) | merged | domain_wires(site)
    rules: dict[str, str] = {}
    for port, error, guard in zip(config.input_ports, config.error_ports, guards, strict=True):
        wires |= {f"{error}__{flag}": f"{guard}.error__{flag}" for flag in ("short", "long", "clear")}
        wires[f"{guard}.i__payload"] = f"{port.name}__payload"
        if config.loader is None:
            wires |= {f"{port.name}__{part}": f"{guard}.i__{part}" for part in ("valid", "ready")}
    if config.loader is not None:
        wires |= _weights_wires(config, layers, site)
        rules = _frame_gate_rules(config, guards)
    wires = {one: other for one, other in wires.items() if not _is_absent(site, one, other, rules)}
    return composition(site, "Streams, clock, reset, flags and weights are wires between components.", wires, rules)


def _is_absent(site: Site, one: str, other: str, rules: dict[str, str]) -> bool:
    """Return whether an error flag's source is missing in the Verilog, as it is never high; then require 0."""
    if not one.startswith("frame_error") or has_port(site, other):
        return False
    if has_port(site, one) and not one.endswith("__clear"):
        rules[one] = "1'b0"
    return True


def _weights_wires(config: AcceleratorConfig, layers: list[str], site: Site) -> dict[str, str]:
    """Return a dict, port to port, for the ring that carries run-time weights: from loader to layers and back."""
    load = config.instances[-1]
    links = [name for name, layer in zip(layers, config.layers, strict=True) if layer.stores]
    ends = [f"{load}.o", *(end for name in links for end in (f"{name}.load_i", f"{name}.load_o")), f"{load}.back"]
    pairs = [*zip(ends[::2], ends[1::2], strict=True), ("weights", f"{load}.i")]
    wires = {f"{one}__{part}": f"{other}__{part}" for one, other in pairs for part in ("valid", "ready", "payload")}
    wires = {one: other for one, other in wires.items() if not one.endswith("__ready") or has_port(site, one)}
    return wires | {f"weights_state__{part}": f"{load}.state__{part}" for part in ("good", "error", "clear")}


def _frame_gate_rules(config: AcceleratorConfig, guards: list[str]) -> dict[str, str]:
    """Return a dict from port to its Verilog expression: gates that stop frames during a load, and ends of frames."""
    load, rules = config.instances[-1], {}
    for index, (port, guard) in enumerate(zip(config.input_ports, guards, strict=True)):
        name, is_open, offered = port.name, f"{load}.open_{index}", f"{guard}.i__valid"
        rules |= {
            offered: f"{name}__valid & {is_open}",
            f"{name}__ready": f"{guard}.i__ready & {is_open}",
            f"{load}.offered_{index}": offered,
            f"{load}.last_{index}": f"{name}__payload[{port.beat.data_bits}]",
            f"{load}.taken_{index}": f"{offered} & {guard}.i__ready",
        }
    for index, port in enumerate(config.output_ports):
        name = port.name
        rules[f"{load}.left_{index}"] = f"{name}__valid & {name}__ready & {name}__payload[{port.beat.data_bits}]"
    return rules


def _takes_all(layer: LayerConfig) -> bool:
    """Return whether a layer accepts a beat of each of its inputs in the same cycle."""
    return isinstance(layer.window, JoinConfig) and not (layer.window.in_turn or layer.window.spread)


def _merged_ready(layer: LayerConfig, name: str, site: Site) -> str:
    """Return the single ``ready`` port emitted for all inputs of a layer, because they share the signal.

    If no ``ready`` was emitted, the first one is returned. The proof is then undecided.
    """
    ports = [f"{name}.{port}__ready" for port in layer.input_ports]
    return next((port for port in ports if _has_port(site, port)), ports[0])


def of_layer(layer: LayerConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations that every port of a layer and its components is wired to its right source.

    A layer passes its results unchanged from part to part. All its FIFOs receive the same results: a fork loses no beat
    for one of its readers. Words of run-time weights lead from their link to the memories of each part. The obligation
    ``credits`` states when the window has room.
    """
    wires = _layer_wires(layer, site)
    return composition(
        site,
        "Streams and words between the parts of a layer are wires, and no port is left out.",
        wires,
        {},
        others=("window.room",),
    )


def of_layer_streams(layer: LayerConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations that a layer's streams are wires, for layers without proved credit counters."""
    return [wired(site, "Streams between the parts of a layer are wires.", _layer_wires(layer, site))]


def _layer_wires(layer: LayerConfig, site: Site) -> dict[str, str]:
    """Return a dict of a layer's wires, port to port: streams, clocks, resets, results between parts, weights."""
    pairs = [(port, f"window.{port}") for port in layer.input_ports]
    for reader, port in enumerate(layer.output_ports):
        fifo, regroup = (layer.of_reader(name, reader) for name in ("fifo", "regroup"))
        if layer.regroups[reader].always_ready:
            pairs += [(f"{regroup}.o", f"{fifo}.i"), (f"{fifo}.o", port)]
        elif layer.regroups[reader].needed:
            pairs += [(f"{fifo}.o", f"{regroup}.i"), (f"{regroup}.o", port)]
        else:
            pairs.append((f"{fifo}.o", port))
    if layer.stores:
        pairs += [("load_i", "load.i"), ("load.o", "load_o")]
    return stream_wires(site, pairs) | _inner_wires(layer, site) | _write_wires(layer, site) | domain_wires(site)


def _inner_wires(layer: LayerConfig, site: Site) -> dict[str, str]:
    """Return a dict of wires, port to port, between a layer's components, and of a join's input ``ready``.

    The wires lead to each FIFO, or to a width converter before it.
    """
    ends = [
        layer.of_reader("regroup" if regroup.always_ready else "fifo", reader)
        for reader, regroup in enumerate(layer.regroups)
    ]
    wires = {}
    for part in ("valid", "payload"):
        source = ""
        for name in ("window", "compute", "unload", "finish", *ends):
            if source and (name in ends or _has_port(site, f"{name}.i__{part}")):
                wires[f"{name}.i__{part}"] = source
            if name not in ends and _has_port(site, f"{name}.o__{part}"):
                source = f"{name}.o__{part}"
    for port in layer.input_ports:
        if isinstance(layer.window, JoinConfig) and _has_port(site, f"{port}__ready"):
            inner = f"window.{port}__ready"
            wires[f"{port}__ready"] = inner if _has_port(site, inner) else "window.start"
    return wires


def _write_wires(layer: LayerConfig, site: Site) -> dict[str, str]:
    """Return a dict of wires for run-time weights: memories' write ports as keys, the chain link's ports as values.

    All memories have the same word and address, which the link has as one port each, for the widest memory.

    Raises
    ------
    LookupError
        If nothing reads the words of a memory.
    """
    link, config = site.inner("load"), layer.distributor
    wires = {}
    if link is None or config is None:
        return wires
    parts = {name: site.part(name).module.ports for name in layer.loaded_parts}
    for store in config.stores:
        ports = [(name, field) for name in parts for field in _FIELDS if _write_port(store, field) in parts[name]]
        if not ports:
            raise LookupError(f"no part of module {site.module.name} has a port {_write_port(store, 'enable')}")
        for name, field in ports:
            port, (source, low) = _write_port(store, field), _write_source(store, field, link.module, config)
            width = parts[name][port].width
            bits = "" if link.module.ports[source].width == width else f"[{low + width - 1}:{low}]"
            wires[f"{name}.{port}"] = f"load.{source}{bits}"
    return wires


def _write_port(store: LoadedMemory, field: str) -> str:
    """Return the Verilog name of a field (enable, address or data) of a loaded memory's write port."""
    return f"writes__{store.name}__{field}"


def _write_source(store: LoadedMemory, field: str, link: VerilogModule, config: DistributeConfig) -> tuple[str, int]:
    """Return, as a pair, a chain link's port that drives a field of a memory's write port, and its lowest bit's index.

    Words of all memories are in one register, which narrower ones read starting at their first part.
    """
    if field == "enable" or _write_port(store, field) in link.ports:
        return _write_port(store, field), 0
    first = {each: PART_BITS * (config.max_parts - each.word_parts) if field == "data" else 0 for each in config.stores}
    other = next((each for each in first if _write_port(each, field) in link.ports), None)
    return ("loaded_word", first[store]) if other is None else (_write_port(other, field), first[store] - first[other])


def of_domain(_config: Any, site: Site) -> list[Obligation]:
    """Return a list: the `Obligation` that a component's instances have the component's clock and reset."""
    statement = "Clock and reset of each instance are the component's."
    wires = domain_wires(site)
    return [wired(site, statement, wires)] if wires else []


def stream_wires(site: Site, pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Return a dict of wires, port to port, that connect pairs of streams: ``valid``, ``ready`` and ``payload``.

    Both sides must have ``valid`` and ``payload``: if a port is missing, the proof is undecided. Only ``ready`` can be
    missing, as at an input of a join.
    """
    return {
        _port(site, f"{one}__{part}"): _port(site, f"{other}__{part}")
        for one, other in pairs
        for part in ("valid", "ready", "payload")
        if part != "ready" or (_has_port(site, f"{one}__{part}") and _has_port(site, f"{other}__{part}"))
    }


def _port(site: Site, port: str) -> str:
    """Return the emitted Verilog name of a stream's port; for a layer's input, the port that its window reads.

    The name differs from the component's if the layer has another port with the same inner name.
    """
    instance, _, name = port.rpartition(".")
    layer = site.inner(instance) if instance else site
    read = layer.module.connections.get("window", {}).get(name) if layer is not None and name.startswith("i") else None
    if layer is None or read not in layer.module.ports:
        return port
    return f"{instance}.{read}" if instance else str(read)


def _has_port(site: Site, port: str) -> bool:
    instance, _, name = port.rpartition(".")
    if not instance:
        return name in site.module.ports
    inner = site.inner(instance)
    return inner is not None and name in inner.module.ports


def _of_streams(reason: str, *components: type[wiring.Component]) -> Proofs:
    """Return the `Proofs` of layers that are proved to be wired correctly, and whose ``components`` are not proved."""
    return Proofs((of_layer_streams,), lambda layer: layer.components, {"": reason}, components, resets=False)


PROOFS = {
    AcceleratorConfig: Proofs((of_accelerator,), accelerator_parts),
    CollectLayerConfig: _of_streams("its copies of channels are simulated", SelectUnit),
    ReorderLayerConfig: _of_streams("its order of pixels is simulated", Reorder),
    ResampleLayerConfig: _of_streams("its pixels and sums are simulated", ResampleUnit, WeightedSum, FloatWeightedSum),
    RunningScaleLayerConfig: _of_streams("its scale, a running sum, is simulated", RunningScale),
}
