"""``plan.json``: a plan as text that can be edited and read back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hwgen.boards import Board
from hwgen.errors import BoardError, ConfigError, PlanError
from hwgen.fields import parse
from hwgen.gateware.multipliers import MULTIPLIERS, PLAIN
from hwgen.network import host
from hwgen.network.graph import Network
from hwgen.network.loaded import is_loaded, loaded
from hwgen.network.ops import Op
from hwgen.options import CONSTANT, FORMER_TEMPLATES, RUNTIME
from hwgen.plan.plan import Plan
from hwgen.schedule.buffers import ample_rows
from hwgen.schedule.stall import check_stall
from hwgen.templates import TEMPLATES
from hwgen.templates.base import Group
from hwgen.templates.compose import input_formats
from hwgen.templates.fields import bounded, field, shown
from hwgen.templates.layers import LayerPlan
from hwgen.templates.stage import Stage
from hwgen.templates.task import lanes_out
from hwgen.templates.work import LayerWork, Unroll

#: Where the FIFO of a group's output leads to; behind it stands the output's name where there are several.
OUTPUT = "output"

#: Beats beyond two frames' that a FIFO may hold: more than any pipeline has in flight.
MOST_IN_FLIGHT = 4_096


def write(plan: Plan) -> str:
    """The text of a ``plan.json``."""
    document = {
        "model": plan.network.name,
        "board": plan.board.name,
        "clock_mhz": plan.board.clock_mhz,
        **host.describe(plan.network),
        "dsp": plan.dsp,
        **_given("weights", "runtime" if is_loaded(plan.network) else None),
        "groups": [_group(group, plan.placement.loads_weights) for group in plan.groups],
        "cycles": {"latency": plan.latency, "interval": plan.interval},
        "resources": plan.resources.as_dict(),
        "traffic_bytes": plan.traffic_bytes,
    }
    return json.dumps(document, indent=2) + "\n"


def until(text: str) -> list[str] | None:
    """The tensors up to which a ``plan.json`` builds its model; ``None``: all of it, or the text is no such plan."""
    tensors = _stated(text, "until")
    named = isinstance(tensors, list) and tensors and all(isinstance(tensor, str) for tensor in tensors)
    return tensors if named else None


def board_name(text: str) -> str | None:
    """The board that a ``plan.json`` is for; ``None``: it names none, or the text is no such plan."""
    name = _stated(text, "board")
    return name if isinstance(name, str) else None


def _stated(text: str, key: str) -> Any:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document.get(key) if isinstance(document, dict) else None


def _group(group: Group, loads: bool) -> dict[str, Any]:
    if (own := group.template.document(group)) is not None:
        return {"template": group.template.name, **own}
    layers = []
    for plan, layer, node in zip(group.layers, group.config.layers, group.network.layers, strict=True):
        layers.append(
            {
                "name": plan.name,
                "kind": plan.kind,
                "output": list(node.output.shape),
                "unroll": {"in": plan.tn, "out": plan.tm, "taps": plan.tk, "pixels": plan.tp},
                "macs_per_dsp": plan.macs_per_dsp,
                "chain": plan.chain,
                "weights": "stream" if loads and layer.compute.weight_memory else layer.compute.weight_memory,
                "tables": plan.tables_in,
                "requantise": plan.requantise_in,
                "line_rows": plan.line_rows,
                **_given("weights_joined", plan.weights_joined or None),
                **_given("line_memory", plan.line_in),
                "cycles": layer.cycles,
                "multipliers": layer.multipliers,
            }
        )
    names = [plan.name for plan in group.layers]
    outputs = [_output(group.network, place) for place in range(len(group.config.outputs))]
    fifos = [
        {
            "from": names[link.source],
            "to": names[link.sink] if link.sink < len(names) else outputs[link.port],
            "depth": depth,
            "lanes": layer.fifo_lanes,
            "width": layer.fifos[link.output].width,
            **_given("memory", layer.fifos[link.output].memory_in),
        }
        for link, depth in zip(group.config.links, group.config.fifo_depths, strict=True)
        for layer in [group.config.layers[link.source]]
    ]
    return {
        "template": group.template.name,
        "layers": layers,
        **group.template.write(group.config),
        "fifos": fifos,
    }


def _output(network: Network, place: int) -> str:
    """Where the FIFO of an output leads to."""
    return OUTPUT if len(network.output_layers) == 1 else f"{OUTPUT} {network.output_names[place]}"


def _given(key: str, value: str | bool | None) -> dict[str, str | bool]:
    """What is said only where it isn't as it would be anyhow."""
    return {} if value is None else {key: value}


def read(text: str, network: Network, board: Board) -> Plan:
    """A plan from the text of a ``plan.json``; keys it doesn't know are ignored.

    Raises
    ------
    PlanError
        If it is not a plan, not of this network, or can't work on this board.
    """
    document = parse(text, "plan", PlanError)
    entries = field(document, "groups", list, "plan")
    network = _loaded(document, network)
    _check_part(until(text), network)
    parts = _parts(entries, network)
    groups = []
    board = _clocked(document, board)
    try:
        for entry, part in zip(entries, parts, strict=True):
            groups.append(_read_group(entry, part, board))
        return Plan(network=network, board=board, groups=tuple(groups), dsp=_budget(document, board))
    except ConfigError as error:
        raise PlanError(f"plan can't work: {error}") from None


def _loaded(document: Any, network: Network) -> Network:
    """The network as the plan has it: with weights that are constants, or that are loaded at run time."""
    weights = document.get("weights", "constant")
    if weights not in (CONSTANT, RUNTIME):
        raise PlanError(f"plan: weights must be {CONSTANT!r} or {RUNTIME!r}, not {shown(weights)}")
    return network if weights == "constant" else loaded(network)


def _check_part(tensors: list[str] | None, network: Network) -> None:
    """A plan of a part of a model is of no use to the whole, nor the other way round."""
    remainder = host.part_of(network)
    here = None if remainder is None else list(remainder.tensors)
    if tensors != here:
        plan, model = (
            "the whole model" if names is None else f"its part until {', '.join(map(repr, names))}"
            for names in (tensors, here)
        )
        raise PlanError(f"plan does not fit network {network.name}: it is of {plan}, not of {model} (until)")


def _clocked(document: Any, board: Board) -> Board:
    """The board at the clock that was planned with."""
    if "clock_mhz" not in document:
        return board
    try:
        return replace(board, clock_mhz=document["clock_mhz"])
    except BoardError as error:
        raise PlanError(f"plan: {str(error).removeprefix(f'board {board.name}: ')}") from None


def _budget(document: Any, board: Board) -> int:
    """DSP slices that may be used: groups that share them, because they are few, must not come apart."""
    if "dsp" not in document:
        return board.dsp
    dsp = field(document, "dsp", int, "plan")
    if dsp < 1:
        raise PlanError(f"plan: dsp must be at least 1, not {dsp}")
    return min(dsp, board.dsp)


def _parts(entries: list[dict[str, Any]], network: Network) -> list[Network]:
    """The layers of each group, with the copy that some have in front of them.

    Raises
    ------
    PlanError
        If they are not the network's layers in order, or it can't be cut there.
    """
    spans: list[tuple[int, int]] = []
    given: list[list[str]] = []
    for entry in entries:
        names = [field(layer, "name", str, "plan layer") for layer in field(entry, "layers", list, "plan group")]
        begin = spans[-1][1] if spans else 0
        copy = network.copy_at(begin) if begin in network.cuts else None
        copied = copy is not None and names[:1] == [copy.name]
        spans.append((begin, begin + len(names) - copied))
        given.append(names[copied:])
    _check_names([name for names in given for name in names], network)
    if not all(given):
        raise PlanError("plan group must have at least one layer, not 0")
    for _, end in spans:
        if end not in network.boundaries:
            raise PlanError(f"plan can't work: {network.uncut_text(end)}")
    parts = [network.part(*span) for span in spans]
    for entry, part in zip(entries, parts, strict=True):
        if len(entry["layers"]) < len(part.layers):
            raise PlanError(f"plan group of {entry['layers'][0]['name']} lacks {part.layers[0].name}, its first layer")
    return parts


def _check_names(names: list[str], network: Network) -> None:
    expected = [layer.name for layer in network.layers]
    if names == expected:
        return
    different = next(
        (
            f"{has!r} where the network has {wants!r}"
            for has, wants in zip(names, expected, strict=False)
            if has != wants
        ),
        f"{len(names)} layers where the network has {len(expected)}",
    )
    raise PlanError(f"plan does not fit network {network.name}: it has {different}")


def _read_group(group: dict[str, Any], network: Network, board: Board) -> Group:
    name = field(group, "template", str, "plan group")
    template = TEMPLATES.get(FORMER_TEMPLATES.get(name) or name)
    if template is None:
        raise PlanError(f"plan group's template must be {' or '.join(map(repr, TEMPLATES))}, not {shown(name)}")
    if (own := template.group(group, network, board)) is not None:
        return own
    fifos = field(group, "fifos", list, "plan group")
    found: dict[str, list[dict[str, Any]]] = {}
    for fifo in fifos:
        found.setdefault(field(fifo, "from", str, "plan FIFO"), []).append(fifo)
    stage = template.stage
    layers = tuple(
        _read_layer(entry, stage(layer), _fifos_of(layer.name, network, found), board)
        for entry, layer in zip(group["layers"], network.layers, strict=True)
    )
    read = Group(network=network, layers=layers, template=template.read(group, network, layers))
    check_stall(read.config)
    return _with_weights(read, [entry.get("weights") for entry in group["layers"]])


def _fifos_of(name: str, network: Network, found: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """A layer's FIFOs in the order of its readers. One that has a single reader need not say which."""
    readers = (*network.readers[name], *(_output(network, place) for place in network.output_indices(name)))
    left = list(found.get(name, []))
    if len(left) > len(readers):
        raise PlanError(f"plan has {_count(len(left))} FIFOs from {name}")
    if len(readers) == 1:
        if not left:
            raise PlanError(f"plan lacks the FIFO from {name}")
        return left
    ordered = []
    for reader in readers:
        place = next((fifo for fifo in left if field(fifo, "to", str, f"plan FIFO from {name}") == reader), None)
        if place is None:
            raise PlanError(f"plan lacks the FIFO from {name} to {reader}")
        ordered.append(place)
        left.remove(place)
    return ordered


def _count(number: int) -> str:
    return {2: "two", 3: "three"}.get(number, str(number))


def _with_weights(group: Group, places: list[Any]) -> Group:
    """The same, with weights where they are said to lie, if that is not where they would lie anyhow."""
    layers = list(group.layers)
    for number, (layer, place) in enumerate(zip(group.config.layers, places, strict=True)):
        if place not in (None, "lut", "block", "stream"):
            raise PlanError(f"plan layer {layer.name}: weights must be 'lut', 'block' or 'stream', not {shown(place)}")
        if place in ("lut", "block") and layer.compute.weight_memory is not None:
            layers[number] = replace(layers[number], weights_in=None if place == layer.compute.weight_memory else place)
    return group if layers == list(group.layers) else replace(group, layers=tuple(layers))


def _read_layer(entry: dict[str, Any], stage: Stage[Any], fifos: list[dict[str, Any]], board: Board) -> LayerPlan:
    layer = stage.op
    where = f"plan layer {layer.name}"
    shape = list(layer.output.shape)
    if entry.get("output", shape) != shape:
        raise PlanError(
            f"{where} is of another network: its output is {str(entry['output'])[:60]} in the plan, "
            f"but {shape} in the model"
        )
    unroll = field(entry, "unroll", dict, where)
    place = f"plan FIFO from {layer.name}"
    tn, tm, tk = (field(unroll, name, int, where) for name in ("in", "out", "taps"))
    lanes = field(fifos[0], "lanes", int, place) if "lanes" in fifos[0] else None
    if any(fifo.get("lanes", lanes) != lanes for fifo in fifos):
        raise PlanError(f"{place}: lanes must be the same to all readers")
    most, places = _most_beats(layer), tuple(_memory(fifo, "memory", place) for fifo in fifos)
    read = LayerPlan(
        name=layer.name,
        kind=layer.kind,
        tn=tn,
        tm=tm,
        tk=tk,
        tp=field(unroll, "pixels", int, where) if "pixels" in unroll else 1,
        chain=bounded(entry, "chain", where, 1, board.dsp, "the board's DSP slices"),
        line_rows=bounded(entry, "line_rows", where, stage.least_rows, _most_rows(stage), "more never help"),
        fifo_depths=tuple(
            bounded(fifo, "depth", place, 1, most, "more than two frames and what is in flight") for fifo in fifos
        ),
        macs_per_dsp=_multiplier(entry, where),
        tables_in=_memory(entry, "tables", where),
        requantise_in=_requantise(entry, where),
        weights_joined=_joined(entry, where),
        line_in=_memory(entry, "line_memory", where),
        fifos_in=places if any(places) else (),
    )
    input_formats(stage, read, [read.tp] * len(layer.inputs))  # refuses unroll factors out of range
    multiplier = MULTIPLIERS.get(read.macs_per_dsp, PLAIN)
    if tm < multiplier.lanes:
        raise PlanError(f"{where}: {multiplier.too_few(tm)}")
    least = lanes_out(LayerWork.of(layer, **stage.work), Unroll(tn, tm, tk))
    if lanes is not None and not least <= lanes <= tm:
        raise PlanError(
            f"{place}: lanes must be {least} (the channels that the layer finishes in a cycle) to {tm} (its unroll "
            f"out), not {lanes}"
        )
    beats = -(-tm // (lanes or least))
    if (depth := min(read.fifo_depths)) < beats:
        raise PlanError(f"{place}: depth must be at least {beats}, the beats of one output fold, not {depth}")
    return read if lanes in (None, least) else replace(read, fifo_lanes=lanes)


def _memory(entry: dict[str, Any], key: str, where: str) -> str | None:
    """Where a memory lies; ``None``: by its depth."""
    place = entry.get(key)
    if place not in (None, "lut", "block"):
        raise PlanError(f"{where}: {key} must be 'lut', 'block' or null, not {shown(place)}")
    return place


def _joined(entry: dict[str, Any], where: str) -> bool:
    """Whether the weights of all positions lie in one memory."""
    joined = entry.get("weights_joined", False)
    if not isinstance(joined, bool):
        raise PlanError(f"{where}: weights_joined must be true or false, not {shown(joined)}")
    return joined


def _multiplier(entry: dict[str, Any], where: str) -> int | str:
    """Return the name of a layer's multiplier."""
    name = entry.get("macs_per_dsp", PLAIN.name)
    if isinstance(name, str) and name in MULTIPLIERS:
        return name
    return field({"macs_per_dsp": name}, "macs_per_dsp", int, where)


def _requantise(entry: dict[str, Any], where: str) -> str:
    """What multiplies in the requantiser: slices, as before this could be chosen, or LUTs."""
    place = entry.get("requantise", "dsp")
    if place not in ("dsp", "lut"):
        raise PlanError(f"{where}: requantise must be 'dsp' or 'lut', not {shown(place)}")
    return place


def _most_rows(stage: Stage[Any]) -> int:
    """More rows are of no use to a line buffer, whether row by row or in tiles."""
    if not stage.has_rows:
        return 0
    layer = stage.op
    top, _, bottom, _ = layer.window.padding
    return max(ample_rows(layer.window, 1, 1), layer.input.height + top + bottom)


def _most_beats(layer: Op) -> int:
    """More credits are of no use to a FIFO, however few channels a beat has."""
    return 2 * layer.output.values + MOST_IN_FLIGHT
