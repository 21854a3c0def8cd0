"""Writer and reader of ``plan.json``, the JSON form of a plan, which users can edit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hwgen.boards import Board
from hwgen.errors import BoardError, ConfigError, PlanError
from hwgen.fields import Entries, Rule, any_of, entry, shown, written
from hwgen.gateware.multipliers import MULTIPLIERS, PLAIN
from hwgen.network import host
from hwgen.network.graph import Network
from hwgen.network.loaded import is_loaded, loaded
from hwgen.network.ops import Op
from hwgen.options import AUTO, CONSTANT, FORMER_TEMPLATES, RUNTIME
from hwgen.plan.plan import Plan
from hwgen.schedule.buffers import ample_rows
from hwgen.schedule.solve import check_stall
from hwgen.templates import TEMPLATES
from hwgen.templates.base import Group
from hwgen.templates.compose import input_formats
from hwgen.templates.layers import OF_FIFOS, LayerPlan, check_output, layer_entries
from hwgen.templates.stage import Stage
from hwgen.templates.work import LayerWork, Unroll, lanes_out

#: Name in ``plan.json`` of the sink of an output's FIFO. If a group has several outputs, the output's name follows.
OUTPUT = "output"

#: Maximum number of beats that a FIFO may hold beyond two frames: more than any pipeline has in flight.
MAX_IN_FLIGHT = 4_096


@dataclass(frozen=True, kw_only=True)
class _Fifo:
    """Entry of ``plan.json`` for the FIFO from one layer to one of its readers."""

    source: str = entry(key="from")
    sink: str | None = entry(None, key="to")
    depth: int
    lanes: int = entry(0, minimum=1)
    width: int = 0
    converts_first: bool = entry(False, is_brief=True)
    memory: str | None = entry(None, is_brief=True)


def write(plan: Plan) -> str:
    """Return a plan as JSON text, the content of a ``plan.json``."""
    document = {
        "model": plan.network.name,
        "board": plan.board.name,
        "clock_mhz": plan.board.clock_mhz,
        **host.describe(plan.network),
        "dsp": plan.dsp,
        **_weights(plan.network),
        "groups": [_group(group, plan.placement.loads_weights) for group in plan.groups],
        "cycles": {"latency": plan.latency, "interval": plan.interval},
        "resources": plan.resources.as_dict(),
        "traffic_bytes": plan.traffic_bytes,
    }
    return json.dumps(document, indent=2) + "\n"


def _weights(network: Network) -> dict[str, Any]:
    """Return a dict of the plan's fields that say which layers load their weights; empty if all are constant."""
    loading = [layer.name for layer in network.layers if layer.loaded]
    if not loading:
        return {}
    is_whole = len(loading) == sum(layer.loadable for layer in network.layers)
    return {"weights": RUNTIME} if is_whole else {"weights": AUTO, "loaded": loading}


def until(text: str) -> list[str] | None:
    """Return a list of names of the tensors that end a ``plan.json``'s part of the model; ``None`` for a whole model.

    Return ``None`` if the plan builds the whole model, or the text is not a plan.
    """
    tensors = _value_of_key(text, "until")
    named = isinstance(tensors, list) and tensors and all(isinstance(tensor, str) for tensor in tensors)
    return tensors if named else None


def board_name(text: str) -> str | None:
    """Return the name of the board in a ``plan.json``'s text; ``None`` if it names no board or is not a plan."""
    name = _value_of_key(text, "board")
    return name if isinstance(name, str) else None


def _value_of_key(text: str, key: str) -> Any:
    """Return the value of ``key`` in a JSON object; ``None`` if the text is not a JSON object or lacks the key."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document.get(key) if isinstance(document, dict) else None


def _group(group: Group, loads: bool) -> dict[str, Any]:
    """Return a group's entry of ``plan.json`` as a dict; ``loads`` says whether each frame loads the weights again."""
    if (own := group.template.document(group)) is not None:
        return {"template": group.template.name, **own}
    layers = []
    for plan, layer, node in zip(group.layers, group.config.layers, group.network.layers, strict=True):
        memory = layer.compute.weight_memory
        layers.append(
            {
                "name": plan.name,
                "kind": plan.kind,
                "output": list(node.output.shape),
                **written(plan, leave_out=OF_FIFOS),
                "weights": "stream" if loads and memory else memory,
                "cycles": layer.cycles,
                "multipliers": layer.multipliers,
                "lut": layer.resources.lut,
            }
        )
    names = [plan.name for plan in group.layers]
    outputs = [_output(group.network, output_index) for output_index in range(len(group.config.outputs))]
    fifos = [
        _Fifo(
            source=names[link.source],
            sink=names[link.sink] if link.sink < len(names) else outputs[link.port],
            depth=depth,
            lanes=layer.fifo_lanes,
            width=layer.fifos[link.output].width,
            converts_first=layer.regroups[link.output].always_ready,
            memory=layer.fifos[link.output].memory_in,
        )
        for link, depth in zip(group.config.links, group.config.fifo_depths, strict=True)
        for layer in [group.config.layers[link.source]]
    ]
    return {
        "template": group.template.name,
        "layers": layers,
        **group.template.write(group.config),
        "fifos": [written(fifo) for fifo in fifos],
    }


def _output(network: Network, output_index: int) -> str:
    """Return the name that a fusion group's output has in ``plan.json`` as the reader of a FIFO."""
    return OUTPUT if len(network.output_layers) == 1 else f"{OUTPUT} {network.output_names[output_index]}"


def read(text: str, network: Network, board: Board, notes: tuple[str, ...] = ()) -> Plan:
    """Return the `Plan` in the text of a ``plan.json``, checked against a given network and board.

    Unknown keys are ignored. ``notes`` are the notes of the returned plan.

    Raises
    ------
    PlanError
        If the text is not a plan, is of another network, or can't work on this board.
    """
    document = Entries.parsed(text, "plan", PlanError)
    entries = document.objects("groups", where="plan group")
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


def _loaded(document: Entries, network: Network) -> Network:
    """Return the `Network` with its weights constant, or loaded at run time if the plan's ``weights`` says so."""
    weights = document.text("weights", CONSTANT, of=(CONSTANT, RUNTIME, AUTO))
    if weights == CONSTANT:
        return network
    if weights == RUNTIME:
        return loaded(network)
    names = document.value("loaded", tuple[str, ...])
    for name in {*names} - {layer.name for layer in network.layers if layer.loadable}:
        document.refuse(f"must name layers whose weights can be loaded, not {shown(name)}", "loaded")
    return loaded(network, names)


def _check_part(tensors: list[str] | None, network: Network) -> None:
    """Raise `PlanError` unless a plan ends at the same tensors of the model as the network does.

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
        raise PlanError(
            f"plan does not fit network {network.name}: it is for {plan}, not for {model}: give the same --until"
        )


def _clocked(document: Entries, board: Board) -> Board:
    """Return the `Board` at the clock that a ``plan.json`` states; unchanged if the plan states none.

    Raises
    ------
    PlanError
        If the clock is out of range.
    """
    if "clock_mhz" not in document:
        return board
    try:
        return replace(board, clock_mhz=document.values["clock_mhz"])
    except BoardError as error:
        raise PlanError(f"plan: {str(error).removeprefix(f'board {board.name}: ')}") from None


def _budget(document: Entries, board: Board) -> int:
    """Return the number of DSP slices in a plan's key ``dsp``, at most the board's, which is also the default.

    Without this budget, groups that shared too few slices would get hardware of their own when the plan is read.
    """
    return min(document.integer("dsp", 1, default=board.dsp), board.dsp)


def _group_networks(entries: list[Entries], network: Network) -> list[Network]:
    """Return a list of a `Network` per group: the group's layers, after the `Copy` of its input if it has one.

    Raises
    ------
    PlanError
        If the groups are not the network's layers in order, or the network can't be cut between them.
    """
    spans: list[tuple[int, int]] = []
    group_layers = [[layer.text("name") for layer in layer_entries(entry)] for entry in entries]
    own_layers: list[str] = []
    for names in group_layers:
        begin = len(own_layers)
        copy = network.copy_at(begin) if begin in network.cuts else None
        own_layers += names[copy is not None and names[:1] == [copy.name] :]
        spans.append((begin, len(own_layers)))
    _check_names(own_layers, network)
    for begin, end in spans:
        if begin == end:
            raise PlanError("plan group must have at least one layer, not 0")
        if end not in network.boundaries:
            raise PlanError(f"plan can't work: {network.uncut_text(end)}")
    parts = [network.part(*span) for span in spans]
    for names, part in zip(group_layers, parts, strict=True):
        if len(names) < len(part.layers):
            raise PlanError(f"plan group of {names[0]} lacks {part.layers[0].name}, its first layer")
    return parts


def _check_names(names: list[str], network: Network) -> None:
    """Raise `PlanError` unless the names of a plan's layers are the network's, in order.

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


def _read_group(group: Entries, network: Network, board: Board) -> Group:
    """Return a fusion `Group` read from its ``plan.json`` entry, given the network of its layers.

    Raises
    ------
    PlanError
        If a field is missing or out of range, or the group deadlocks.
    ConfigError
        If the choices contradict each other.
    """
    name = group.text("template")
    template = TEMPLATES.get(FORMER_TEMPLATES.get(name) or name)
    if template is None:
        group.refuse(f"must be {any_of(TEMPLATES)}, not {shown(name)}", "template")
    if (own := template.group(group, network, board)) is not None:
        return own
    fifos_by_source: dict[str, list[Entries]] = {}
    for fifo in group.objects("fifos", where="plan FIFO"):
        source = fifo.text("from")
        fifos_by_source.setdefault(source, []).append(replace(fifo, where=f"plan FIFO from {source}"))
    entries = layer_entries(group)
    layers = tuple(
        _read_layer(entry, template.stage(layer, board.family), _fifos_of(layer.name, network, fifos_by_source), board)
        for entry, layer in zip(entries, network.layers, strict=True)
    )
    read = Group(network=network, layers=layers, template=template.read(group, network, layers), device=board.family)
    check_stall(read.config)
    return _with_weights(read, entries, board)


def _fifos_of(name: str, network: Network, fifos_by_source: dict[str, list[Entries]]) -> list[Entries]:
    """Return, as a list, the ``plan.json`` entries of a layer's output FIFOs, in the order of the layer's readers.

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
        fifo = next((fifo for fifo in left if fifo.text("to") == reader), None)
        if fifo is None:
            raise PlanError(f"plan lacks the FIFO from {name} to {reader}")
        ordered.append(fifo)
        left.remove(fifo)
    return ordered


def _count(count: int) -> str:
    """Return a count as text for messages: 2 and 3 as words, other numbers in digits."""
    return {2: "two", 3: "three"}.get(count, str(count))


def _with_weights(group: Group, entries: Sequence[Entries], board: Board) -> Group:
    """Return a `Group`: a copy with each layer's weights in the memory that its ``plan.json`` entry names.

    The memory is ``lut``, ``block``, ``stream`` or null; also ``ultra`` for weights that are loaded at run time, on a
    board with UltraRAM. A layer whose weights are in the named memory by default is left unchanged.

    Raises
    ------
    PlanError
        If an entry names anything else.
    """
    has_ultra = board.ultra_ram is not None and is_loaded(group.network)
    rams = _rams(board, has_ultra)
    layers = []
    for plan, layer, described in zip(group.layers, group.config.layers, entries, strict=True):
        why = _no_ultra_ram(board) if described.values.get("weights") == "ultra" else ""
        memory = described.value("weights", str, Rule(of=(*rams, "stream"), reason=why), default=None)
        default = layer.compute.weight_memory
        is_chosen = memory in rams and default not in (None, memory)
        layers.append(replace(plan, weights_in=memory) if is_chosen else plan)
    return group if layers == list(group.layers) else replace(group, layers=tuple(layers))


def _rams(board: Board, has_ultra: bool) -> tuple[str, ...]:
    """Return a tuple of a board's kinds of RAM, such as ``lut`` and ``block``; ``ultra`` only if ``has_ultra``."""
    return tuple(ram for ram in board.family.memories.ram_attributes if has_ultra or ram != "ultra")


def _no_ultra_ram(board: Board) -> str:
    """Return the reason, as text, why weights can't be in the UltraRAM of a board."""
    if not board.ultra_ram:
        return f"{board.name} has no UltraRAM"
    return "UltraRAM begins with zeros, so that its weights must be loaded at run time (--weights runtime)"


def _read_layer(described: Entries, stage: Stage[Any], fifo_entries: Sequence[Entries], board: Board) -> LayerPlan:
    """Return the checked plan (`LayerPlan`) of one layer, read from its ``plan.json`` entry and its FIFOs' entries.

    Parameters
    ----------
    described : Entries
        Entry of the layer.
    stage : Stage
        Planner's model of the layer.
    fifo_entries : sequence of Entries
        Entries of the layer's output FIFOs, in the order of the layer's readers.
    board : Board
        Board that bounds the cascades.

    Raises
    ------
    PlanError
        If a field is missing or out of range, or the entry is of another layer.
    """
    layer = stage.op
    check_output(described, layer)
    memories = (*_rams(board, board.ultra_ram is not None), None)
    rules = {
        "depth": Rule(minimum=1, maximum=_max_beats(layer), reason="more than two frames and what is in flight"),
        "memory": Rule(of=memories),
    }
    fifos = [fifo.record(_Fifo, rules) for fifo in fifo_entries]
    lanes = fifos[0].lanes
    if any(fifo.lanes != lanes for fifo in fifos):
        fifo_entries[0].refuse("must be the same to all readers", "lanes")
    tm = described.entries("unroll", where=described.where).integer("out")
    rules = {
        "chain": Rule(minimum=1, maximum=board.dsp, reason="the board's DSP slices"),
        "line_rows": Rule(minimum=stage.min_rows, maximum=_max_rows(stage), reason="more never help"),
        "line_in": Rule(key="line_memory", of=memories),
        "lut_lanes": Rule(minimum=0, maximum=tm, reason="unroll out"),
    }
    fifos_in, converts_first = (tuple(getattr(fifo, name) for fifo in fifos) for name in ("memory", "converts_first"))
    read = described.record(
        LayerPlan,
        rules,
        name=layer.name,
        kind=layer.kind,
        weights_in=None,
        fifo_depths=tuple(fifo.depth for fifo in fifos),
        fifos_in=fifos_in if any(fifos_in) else (),
        fifo_lanes=None,
        converts_first=converts_first if any(converts_first) else (),
    )
    input_formats(stage, read, [read.tp] * len(layer.inputs))  # refuses unroll factors out of range
    multiplier = MULTIPLIERS.get(read.macs_per_dsp, PLAIN)
    lanes_in_slices = tm - read.lut_lanes
    if lanes_in_slices and multiplier.for_size(lanes_in_slices, read.tp) is not multiplier:
        described.refuse(multiplier.too_few(lanes_in_slices, read.tp, read.lut_lanes), "")
    if not lanes_in_slices and read.macs_per_dsp != PLAIN.name:
        wanted = f"must be {PLAIN.name} where all products are in LUTs (lut_lanes {tm})"
        described.refuse(f"{wanted}, not {shown(read.macs_per_dsp)}", "macs_per_dsp")
    min_lanes = lanes_out(LayerWork.of(layer, **stage.work_fields), Unroll(read.tn, tm, read.tk))
    if lanes and not min_lanes <= lanes <= tm:
        finished = "the channels that the layer finishes in a cycle"
        fifo_entries[0].refuse(f"must be {min_lanes} ({finished}) to {tm} (its unroll out), not {lanes}", "lanes")
    beats = -(-tm // (lanes or min_lanes))
    depths = [fifo.depth for fifo in fifos if not fifo.converts_first]
    if (depth := min(depths, default=beats)) < beats:
        fifo_entries[0].refuse(f"must be at least {beats}, the beats of one output fold, not {depth}", "depth")
    return read if lanes in (0, min_lanes) else replace(read, fifo_lanes=lanes)


def _max_rows(stage: Stage[Any]) -> int:
    """Return the maximum useful number of rows in a layer's line buffer, row by row or in tiles."""
    if not stage.has_line_buffer:
        return 0
    layer = stage.op
    top, _, bottom, _ = layer.window.padding
    return max(ample_rows(layer.window, 1, 1), layer.input.height + top + bottom)


def _max_beats(layer: Op) -> int:
    """Return the maximum useful depth in beats of a layer's output FIFO, however few channels a beat has."""
    return 2 * layer.output.values + MAX_IN_FLIGHT
