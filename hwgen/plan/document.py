"""Writer and reader of ``plan.json``, the text of a plan, which users can edit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hwgen.boards import Board
from hwgen.errors import BoardError, ConfigError, PlanError
from hwgen.fields import parse
from hwgen.gateware.lookup import RAMS
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
from hwgen.templates.work import LayerWork, Unroll, lanes_out

#: Name in ``plan.json`` of the sink of an output's FIFO. If a group has several outputs, the output's name follows.
OUTPUT = "output"

#: Number of beats, beyond those of two frames, that a FIFO can hold at most: more than any pipeline has in flight.
MAX_IN_FLIGHT = 4_096


def write(plan: Plan) -> str:
    """Return the text of the ``plan.json`` of a plan."""
    document = {
        "model": plan.network.name,
        "board": plan.board.name,
        "clock_mhz": plan.board.clock_mhz,
        **host.describe(plan.network),
        "dsp": plan.dsp,
        **_optional("weights", "runtime" if is_loaded(plan.network) else None),
        "groups": [_group(group, plan.placement.loads_weights) for group in plan.groups],
        "cycles": {"latency": plan.latency, "interval": plan.interval},
        "resources": plan.resources.as_dict(),
        "traffic_bytes": plan.traffic_bytes,
    }
    return json.dumps(document, indent=2) + "\n"


def until(text: str) -> list[str] | None:
    """Read from a ``plan.json`` the names of the tensors up to which the plan builds its model.

    ``None`` if it builds the whole model, or the text is no plan.
    """
    tensors = _stated(text, "until")
    named = isinstance(tensors, list) and tensors and all(isinstance(tensor, str) for tensor in tensors)
    return tensors if named else None


def board_name(text: str) -> str | None:
    """Read from a ``plan.json`` the name of the plan's board; ``None`` if the text names no board, or is no plan."""
    name = _stated(text, "board")
    return name if isinstance(name, str) else None


def _stated(text: str, key: str) -> Any:
    """Return the value of ``key`` in a JSON object; ``None`` if the text is no such object or lacks the key."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document.get(key) if isinstance(document, dict) else None


def _group(group: Group, loads: bool) -> dict[str, Any]:
    """Return a group's entry of ``plan.json``; with ``loads``, every frame loads the weights."""
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
                **_optional("lut_lanes", plan.lut_lanes or None),
                "chain": plan.chain,
                "weights": "stream" if loads and layer.compute.weight_memory else layer.compute.weight_memory,
                "tables": plan.tables_in,
                "requantise": plan.requantise_in,
                "line_rows": plan.line_rows,
                **_optional("weights_joined", plan.weights_joined or None),
                **_optional("line_memory", plan.line_in),
                "cycles": layer.cycles,
                "multipliers": layer.multipliers,
                "lut": layer.resources.on(group.device).lut,
            }
        )
    names = [plan.name for plan in group.layers]
    outputs = [_output(group.network, output_index) for output_index in range(len(group.config.outputs))]
    fifos = [
        {
            "from": names[link.source],
            "to": names[link.sink] if link.sink < len(names) else outputs[link.port],
            "depth": depth,
            "lanes": layer.fifo_lanes,
            "width": layer.fifos[link.output].width,
            **_optional("converts_first", layer.regroups[link.output].always_ready or None),
            **_optional("memory", layer.fifos[link.output].memory_in),
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


def _output(network: Network, output_index: int) -> str:
    """Return the name of a group's output as the sink of a FIFO in ``plan.json``."""
    return OUTPUT if len(network.output_layers) == 1 else f"{OUTPUT} {network.output_names[output_index]}"


def _optional(key: str, value: str | int | None) -> dict[str, str | int]:
    """Return ``{key: value}`` for ``plan.json``; empty if the value is ``None``, which stands for the default."""
    return {} if value is None else {key: value}


def read(text: str, network: Network, board: Board, notes: tuple[str, ...] = ()) -> Plan:
    """Read a plan from the text of a ``plan.json``, for a given network and board, and refuse a plan that can't work.

    Unknown keys are ignored. ``notes`` are the notes of the returned plan.

    Raises
    ------
    PlanError
        If the text is not a plan, is of another network, or can't work on this board.
    """
    document = parse(text, "plan", PlanError)
    entries = field(document, "groups", list, "plan")
    network = _loaded(document, network)
    _check_part(until(text), network)
    group_networks = _group_networks(entries, network)
    groups = []
    board = _clocked(document, board)
    try:
        for entry, group_network in zip(entries, group_networks, strict=True):
            groups.append(_read_group(entry, group_network, board))
        return Plan(network=network, board=board, groups=tuple(groups), dsp=_budget(document, board), notes=notes)
    except ConfigError as error:
        raise PlanError(f"plan can't work: {error}") from None


def _loaded(document: Any, network: Network) -> Network:
    """Return the network with weights as the plan's key ``weights`` says: constants, or loaded at run time.

    Raises
    ------
    PlanError
        If the key has another value.
    """
    weights = document.get("weights", "constant")
    if weights not in (CONSTANT, RUNTIME):
        raise PlanError(f"plan: weights must be {CONSTANT!r} or {RUNTIME!r}, not {shown(weights)}")
    return network if weights == "constant" else loaded(network)


def _check_part(tensors: list[str] | None, network: Network) -> None:
    """Refuse a plan for another part of the model than the network is, or for the whole model.

    Raises
    ------
    PlanError
        If the part of the model ends at other tensors.
    """
    remainder = host.part_of(network)
    here = None if remainder is None else list(remainder.tensors)
    if tensors != here:
        plan, model = (
            "the whole model" if names is None else f"its part until {', '.join(map(repr, names))}"
            for names in (tensors, here)
        )
        raise PlanError(f"plan does not fit network {network.name}: it is of {plan}, not of {model} (until)")


def _clocked(document: Any, board: Board) -> Board:
    """Return the board with the clock that a ``plan.json`` states; unchanged if the plan states none.

    Raises
    ------
    PlanError
        If the clock is out of range.
    """
    if "clock_mhz" not in document:
        return board
    try:
        return replace(board, clock_mhz=document["clock_mhz"])
    except BoardError as error:
        raise PlanError(f"plan: {str(error).removeprefix(f'board {board.name}: ')}") from None


def _budget(document: Any, board: Board) -> int:
    """Read the number of DSP slices that a plan may use from its key ``dsp``; at most, and by default, the board's.

    Without this budget, groups that shared too few slices would get hardware of their own when the plan is read.

    Raises
    ------
    PlanError
        If the key is not a positive integer.
    """
    if "dsp" not in document:
        return board.dsp
    dsp = field(document, "dsp", int, "plan")
    if dsp < 1:
        raise PlanError(f"plan: dsp must be at least 1, not {dsp}")
    return min(dsp, board.dsp)


def _group_networks(entries: list[dict[str, Any]], network: Network) -> list[Network]:
    """Return each group's layers as a network of its own, with the `Copy` in front that some groups have.

    Raises
    ------
    PlanError
        If the groups are not the network's layers in order, or the network can't be cut between them.
    """
    spans: list[tuple[int, int]] = []
    group_layers: list[list[str]] = []
    for entry in entries:
        names = [field(layer, "name", str, "plan layer") for layer in field(entry, "layers", list, "plan group")]
        begin = spans[-1][1] if spans else 0
        copy = network.copy_at(begin) if begin in network.cuts else None
        copied = copy is not None and names[:1] == [copy.name]
        spans.append((begin, begin + len(names) - copied))
        group_layers.append(names[copied:])
    _check_names([name for names in group_layers for name in names], network)
    if not all(group_layers):
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
    """Refuse layers of a plan that are not the network's layers in order.

    Raises
    ------
    PlanError
        If a name or the number of layers differs.
    """
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
    """Read a group from its entry in ``plan.json``, for the network of the group's layers.

    Raises
    ------
    PlanError
        If a field is missing or out of range, or the group deadlocks.
    ConfigError
        If the choices contradict each other.
    """
    name = field(group, "template", str, "plan group")
    template = TEMPLATES.get(FORMER_TEMPLATES.get(name) or name)
    if template is None:
        raise PlanError(f"plan group's template must be {' or '.join(map(repr, TEMPLATES))}, not {shown(name)}")
    if (own := template.group(group, network, board)) is not None:
        return own
    fifos = field(group, "fifos", list, "plan group")
    fifos_by_source: dict[str, list[dict[str, Any]]] = {}
    for fifo in fifos:
        fifos_by_source.setdefault(field(fifo, "from", str, "plan FIFO"), []).append(fifo)
    layers = tuple(
        _read_layer(entry, template.stage(layer, board.family), _fifos_of(layer.name, network, fifos_by_source), board)
        for entry, layer in zip(group["layers"], network.layers, strict=True)
    )
    read = Group(network=network, layers=layers, template=template.read(group, network, layers), device=board.family)
    check_stall(read.config)
    return _with_weights(read, [entry.get("weights") for entry in group["layers"]], board)


def _fifos_of(name: str, network: Network, fifos_by_source: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the entries of the FIFOs behind a layer, in the order of the layer's readers.

    The FIFO of a layer with a single reader need not name the reader (``to``).

    Raises
    ------
    PlanError
        If a reader has no FIFO, or there are more FIFOs than readers.
    """
    readers = (*network.readers[name], *(_output(network, index) for index in network.output_indices(name)))
    left = list(fifos_by_source.get(name, []))
    if len(left) > len(readers):
        raise PlanError(f"plan has {_count(len(left))} FIFOs from {name}")
    if len(readers) == 1:
        if not left:
            raise PlanError(f"plan lacks the FIFO from {name}")
        return left
    ordered = []
    for reader in readers:
        fifo = next((fifo for fifo in left if field(fifo, "to", str, f"plan FIFO from {name}") == reader), None)
        if fifo is None:
            raise PlanError(f"plan lacks the FIFO from {name} to {reader}")
        ordered.append(fifo)
        left.remove(fifo)
    return ordered


def _count(count: int) -> str:
    """Return a count as text for messages: 2 and 3 as words, other numbers in digits."""
    return {2: "two", 3: "three"}.get(count, str(count))


def _with_weights(group: Group, memories: list[Any], board: Board) -> Group:
    """Return a group with each layer's weights in the memory that ``plan.json`` names.

    A layer whose weights are in the named memory by default is left unchanged.

    Parameters
    ----------
    memories : list
        Value of the key ``weights`` for each layer: ``lut``, ``block``, ``stream`` or ``None``; also ``ultra`` for
        weights that are loaded at run time, on a board with UltraRAM.
    board : Board
        Board of the plan.

    Raises
    ------
    PlanError
        If a value is anything else.
    """
    layers, rams = list(group.layers), _weight_rams(group, board)
    for index, (layer, memory) in enumerate(zip(group.config.layers, memories, strict=True)):
        if memory not in (None, *rams, "stream"):
            *names, last = (repr(ram) for ram in (*rams, "stream"))
            listed = f"{', '.join(names)} or {last}"
            why = f": {_no_ultra_ram(group, board)}" if memory == "ultra" else ""
            raise PlanError(f"plan layer {layer.name}: weights must be {listed}, not {shown(memory)}{why}")
        if memory in rams and layer.compute.weight_memory is not None:
            layers[index] = replace(layers[index], weights_in=None if memory == layer.compute.weight_memory else memory)
    return group if layers == list(group.layers) else replace(group, layers=tuple(layers))


def _weight_rams(group: Group, board: Board) -> tuple[str, ...]:
    """Return the kinds of RAM that can store a group's weights. UltraRAM can if weights are loaded at run time."""
    return RAMS if board.ultra_ram and is_loaded(group.network) else tuple(ram for ram in RAMS if ram != "ultra")


def _no_ultra_ram(group: Group, board: Board) -> str:
    """Return the reason why a group's weights can't be in UltraRAM."""
    if not board.ultra_ram:
        return f"{board.name} has no UltraRAM"
    return "UltraRAM begins with zeros, so that its weights must be loaded at run time (--weights runtime)"


def _read_layer(entry: dict[str, Any], stage: Stage[Any], fifos: list[dict[str, Any]], board: Board) -> LayerPlan:
    """Read the choices for one layer from the layer's entry in ``plan.json``, and check them.

    Parameters
    ----------
    entry : dict
        Entry of the layer.
    stage : Stage
        Stage that builds the layer.
    fifos : list of dict
        Entries of the FIFOs behind the layer, in the order of the layer's readers.
    board : Board
        Board that bounds the cascades.

    Raises
    ------
    PlanError
        If a field is missing or out of range, or the entry is of another layer.
    """
    layer = stage.op
    where = f"plan layer {layer.name}"
    shape = list(layer.output.shape)
    if entry.get("output", shape) != shape:
        raise PlanError(
            f"{where} is of another network: its output is {str(entry['output'])[:60]} in the plan, "
            f"but {shape} in the model"
        )
    unroll = field(entry, "unroll", dict, where)
    fifo_where = f"plan FIFO from {layer.name}"
    tn, tm, tk = (field(unroll, name, int, where) for name in ("in", "out", "taps"))
    lanes = field(fifos[0], "lanes", int, fifo_where) if "lanes" in fifos[0] else None
    if any(fifo.get("lanes", lanes) != lanes for fifo in fifos):
        raise PlanError(f"{fifo_where}: lanes must be the same to all readers")
    max_depth, rams = _max_beats(layer), tuple(ram for ram in RAMS if ram != "ultra" or board.ultra_ram)
    fifo_memories = tuple(_memory(fifo, "memory", fifo_where, rams) for fifo in fifos)
    converts_first = tuple(_flag(fifo, "converts_first", fifo_where) for fifo in fifos)
    read = LayerPlan(
        name=layer.name,
        kind=layer.kind,
        tn=tn,
        tm=tm,
        tk=tk,
        tp=field(unroll, "pixels", int, where) if "pixels" in unroll else 1,
        chain=bounded(entry, "chain", where, 1, board.dsp, "the board's DSP slices"),
        line_rows=bounded(entry, "line_rows", where, stage.least_rows, _max_rows(stage), "more never help"),
        fifo_depths=tuple(
            bounded(fifo, "depth", fifo_where, 1, max_depth, "more than two frames and what is in flight")
            for fifo in fifos
        ),
        macs_per_dsp=_multiplier(entry, where),
        lut_lanes=bounded(entry, "lut_lanes", where, 0, tm, "unroll out") if "lut_lanes" in entry else 0,
        tables_in=_memory(entry, "tables", where, ("lut", "block")),
        requantise_in=_requantise(entry, where),
        weights_joined=_flag(entry, "weights_joined", where),
        line_in=_memory(entry, "line_memory", where, rams),
        fifos_in=fifo_memories if any(fifo_memories) else (),
        converts_first=converts_first if any(converts_first) else (),
    )
    input_formats(stage, read, [read.tp] * len(layer.inputs))  # refuses unroll factors out of range
    multiplier = MULTIPLIERS.get(read.macs_per_dsp, PLAIN)
    lanes_in_slices = tm - read.lut_lanes
    if lanes_in_slices and multiplier.for_size(lanes_in_slices, read.tp) is not multiplier:
        raise PlanError(f"{where}: {multiplier.too_few(lanes_in_slices, read.tp, read.lut_lanes)}")
    if not lanes_in_slices and read.macs_per_dsp != PLAIN.name:
        raise PlanError(
            f"{where}: macs_per_dsp must be {PLAIN.name} where all products are in LUTs (lut_lanes {tm}), not "
            f"{shown(read.macs_per_dsp)}"
        )
    min_lanes = lanes_out(LayerWork.of(layer, **stage.work), Unroll(tn, tm, tk))
    if lanes is not None and not min_lanes <= lanes <= tm:
        raise PlanError(
            f"{fifo_where}: lanes must be {min_lanes} (the channels that the layer finishes in a cycle) to {tm} (its "
            f"unroll out), not {lanes}"
        )
    beats = -(-tm // (lanes or min_lanes))
    depths = [depth for depth, is_first in zip(read.fifo_depths, converts_first, strict=True) if not is_first]
    if (depth := min(depths, default=beats)) < beats:
        raise PlanError(f"{fifo_where}: depth must be at least {beats}, the beats of one output fold, not {depth}")
    return read if lanes in (None, min_lanes) else replace(read, fifo_lanes=lanes)


def _memory(entry: dict[str, Any], key: str, where: str, rams: Sequence[str]) -> str | None:
    """Read the RAM of a memory, ``lut``, ``block`` or ``ultra``, from an entry; ``None`` if the depth decides.

    Raises
    ------
    PlanError
        If the value is anything else.
    """
    memory = entry.get(key)
    if memory not in (None, *rams):
        names = ", ".join(map(repr, rams))
        raise PlanError(f"{where}: {key} must be {names} or null, not {shown(memory)}")
    return memory


def _flag(entry: dict[str, Any], key: str, where: str) -> bool:
    """Read a choice that is true, or false if it is missing, from an entry; PlanError if it is not a boolean."""
    flag = entry.get(key, False)
    if not isinstance(flag, bool):
        raise PlanError(f"{where}: {key} must be true or false, not {shown(flag)}")
    return flag


def _multiplier(entry: dict[str, Any], where: str) -> int | str:
    """Read the name of a layer's multiplier (a key of `MULTIPLIERS`, or another integer); PlanError if neither."""
    name = entry.get("macs_per_dsp", PLAIN.name)
    if isinstance(name, str):
        if name not in MULTIPLIERS:
            raise PlanError(
                f"{where}: macs_per_dsp must be one of {', '.join(map(shown, MULTIPLIERS))}, not {shown(name)}"
            )
        return name
    return field({"macs_per_dsp": name}, "macs_per_dsp", int, where)


def _requantise(entry: dict[str, Any], where: str) -> str:
    """Read where a layer's requantiser multiplies: in ``dsp`` slices (also if the entry lacks the key), or ``lut``.

    Raises
    ------
    PlanError
        If the value is anything else.
    """
    multipliers = entry.get("requantise", "dsp")
    if multipliers not in ("dsp", "lut"):
        raise PlanError(f"{where}: requantise must be 'dsp' or 'lut', not {shown(multipliers)}")
    return multipliers


def _max_rows(stage: Stage[Any]) -> int:
    """Return the largest number of rows that is of use to a layer's line buffer, row by row or in tiles."""
    if not stage.has_rows:
        return 0
    layer = stage.op
    top, _, bottom, _ = layer.window.padding
    return max(ample_rows(layer.window, 1, 1), layer.input.height + top + bottom)


def _max_beats(layer: Op) -> int:
    """Return the largest depth that is of use to the FIFO behind a layer, however few channels a beat has."""
    return 2 * layer.output.values + MAX_IN_FLIGHT
