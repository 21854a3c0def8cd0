"""``plan.json``: a plan as text that can be edited and read back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hwgen.boards import Board
from hwgen.errors import ConfigError, PlanError
from hwgen.network import host
from hwgen.network.graph import Network
from hwgen.network.maps import MOST_SIDE
from hwgen.network.ops import Op
from hwgen.plan.choice import lanes_out, work_of
from hwgen.plan.compose import input_format
from hwgen.plan.plan import PYRAMID, TEMPLATES, Group, LayerPlan, Plan, Tiling
from hwgen.plan.unroll import Unroll
from hwgen.schedule.buffers import ample_rows

#: No number of a plan is larger: far beyond every board, and small enough to reckon with.
MOST = 1_000_000_000

#: Beats beyond two frames' that a FIFO may hold: more than any pipeline has in flight.
MOST_IN_FLIGHT = 4_096

#: JSON's names of Python's types.
_KINDS = {dict: "an object", list: "an array", str: "a string", int: "an integer"}


def write(plan: Plan) -> str:
    """The text of a ``plan.json``."""
    document = {
        "model": plan.network.name,
        "board": plan.board.name,
        **host.describe(plan.network),
        "dsp": plan.dsp,
        "groups": [_group(group, plan.loads_weights) for group in plan.groups],
        "cycles": {"latency": plan.latency, "interval": plan.interval},
        "resources": plan.resources.as_dict(),
        "traffic_bytes": plan.traffic_bytes,
    }
    return json.dumps(document, indent=2) + "\n"


def _group(group: Group, loads: bool) -> dict[str, Any]:
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
                "line_rows": plan.line_rows,
                "cycles": layer.cycles,
                "multipliers": layer.multipliers,
            }
        )
    names = [plan.name for plan in group.layers]
    fifos = [
        {
            "from": source,
            "to": sink,
            "depth": plan.fifo_depth,
            "lanes": layer.fifo_lanes,
            "width": layer.fifo.width,
        }
        for source, sink, plan, layer in zip(
            names, [*names[1:], "output"], group.layers, group.config.layers, strict=True
        )
    ]
    tiling = group.tiling
    return {
        "template": group.template,
        "layers": layers,
        "tile": None if tiling is None else list(tiling.tile),
        "overlap": None if tiling is None else tiling.overlap,
        "input_pixels": group.config.input.pixels,
        "fifos": fifos,
    }


def read(text: str, network: Network, board: Board) -> Plan:
    """A plan from the text of a ``plan.json``; keys it doesn't know are ignored.

    Raises
    ------
    PlanError
        If it is not a plan, not of this network, or can't work on this board.
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise PlanError(f"plan is not JSON: {error.msg} in line {error.lineno}") from None
    except (ValueError, RecursionError):
        raise PlanError("plan is not one of hwgen: its numbers are too long, or it is nested too deep") from None
    entries = _field(document, "groups", list, "plan")
    names = [
        _field(layer, "name", str, "plan layer")
        for group in entries
        for layer in _field(group, "layers", list, "plan group")
    ]
    _check_names(names, network)
    groups, begin = [], 0
    try:
        for entry in entries:
            end = begin + len(entry["layers"])
            if begin == end:
                raise PlanError("plan group must have at least one layer, not 0")
            groups.append(_read_group(entry, network.part(begin, end), board))
            begin = end
        return Plan(network=network, board=board, groups=tuple(groups), dsp=_budget(document, board))
    except ConfigError as error:
        raise PlanError(f"plan can't work: {error}") from None


def _budget(document: Any, board: Board) -> int:
    """DSP slices that may be used: groups that share them, because they are few, must not come apart."""
    if "dsp" not in document:
        return board.dsp
    dsp = _field(document, "dsp", int, "plan")
    if dsp < 1:
        raise PlanError(f"plan: dsp must be at least 1, not {dsp}")
    return min(dsp, board.dsp)


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
    template = _field(group, "template", str, "plan group")
    if template not in TEMPLATES:
        raise PlanError(f"plan group's template must be {' or '.join(map(repr, TEMPLATES))}, not {_shown(template)}")
    fifos = _field(group, "fifos", list, "plan group")
    found: dict[str, dict[str, Any]] = {}
    for fifo in fifos:
        source = _field(fifo, "from", str, "plan FIFO")
        if source in found:
            raise PlanError(f"plan has two FIFOs from {source}")
        found[source] = fifo
    layers = tuple(
        _read_layer(entry, layer, found, board) for entry, layer in zip(group["layers"], network.layers, strict=True)
    )
    pixels = _field(group, "input_pixels", int, "plan group") if "input_pixels" in group else 1
    most = max(network.input.width, layers[0].tp)  # padding may make rows of the output longer
    if not 1 <= pixels <= most:
        raise PlanError(f"plan group: input_pixels must be 1 to {most}, the width of its input, not {pixels!r}")
    if template == PYRAMID:
        tiling = _read_tiling(group, network, pixels)
        if several := next((layer for layer in layers if layer.tp != 1), None):
            raise PlanError(f"plan layer {several.name}: unroll pixels must be 1 in a pyramid, not {several.tp}")
    else:
        tiling = None
        for key in ("tile", "overlap"):
            if group.get(key) is not None:
                raise PlanError(
                    f"plan group: {key} must be null unless its template is 'pyramid', not {_shown(group[key])}"
                )
    read = Group(network=network, layers=layers, tiling=tiling)
    return _with_weights(read, [entry.get("weights") for entry in group["layers"]])


def _read_tiling(group: dict[str, Any], network: Network, pixels: int) -> Tiling:
    tile = _field(group, "tile", list, "plan group")
    if len(tile) != 2 or not all(type(size) is int and 1 <= size <= MOST_SIDE for size in tile):
        raise PlanError(
            f"plan group: tile must be two integers from 1 to {MOST_SIDE:,}, rows and columns, "
            f"not {json.dumps(tile)[:40]}"
        )
    return Tiling(tile=(tile[0], tile[1]), overlap=_field(group, "overlap", str, "plan group"), pixels=pixels)


def _with_weights(group: Group, places: list[Any]) -> Group:
    """The same, with weights where they are said to lie, if that is not where they would lie anyhow."""
    layers = list(group.layers)
    for number, (layer, place) in enumerate(zip(group.config.layers, places, strict=True)):
        if place not in (None, "lut", "block", "stream"):
            raise PlanError(f"plan layer {layer.name}: weights must be 'lut', 'block' or 'stream', not {place!r}")
        if place in ("lut", "block") and layer.compute.weight_memory is not None:
            layers[number] = replace(layers[number], weights_in=None if place == layer.compute.weight_memory else place)
    return group if layers == list(group.layers) else replace(group, layers=tuple(layers))


def _read_layer(entry: dict[str, Any], layer: Op, fifos: dict[str, dict[str, Any]], board: Board) -> LayerPlan:
    where = f"plan layer {layer.name}"
    shape = list(layer.output.shape)
    if entry.get("output", shape) != shape:
        raise PlanError(
            f"{where} is of another network: its output is {entry['output']} in the plan, but {shape} in the model"
        )
    unroll = _field(entry, "unroll", dict, where)
    if layer.name not in fifos:
        raise PlanError(f"plan lacks the FIFO from {layer.name}")
    fifo, place = fifos[layer.name], f"plan FIFO from {layer.name}"
    tn, tm, tk = (_field(unroll, name, int, where) for name in ("in", "out", "taps"))
    lanes = _field(fifo, "lanes", int, place) if "lanes" in fifo else None
    read = LayerPlan(
        name=layer.name,
        kind=layer.kind,
        tn=tn,
        tm=tm,
        tk=tk,
        tp=_field(unroll, "pixels", int, where) if "pixels" in unroll else 1,
        chain=_bounded(entry, "chain", where, 1, board.dsp, "the board's DSP slices"),
        line_rows=_bounded(entry, "line_rows", where, _least_rows(layer), _most_rows(layer), "more never help"),
        fifo_depth=_bounded(fifo, "depth", place, 1, _most_beats(layer), "more than two frames and what is in flight"),
        macs_per_dsp=_field(entry, "macs_per_dsp", int, where) if "macs_per_dsp" in entry else 1,
    )
    input_format(layer, read, 1)  # refuses unroll factors out of range
    if read.macs_per_dsp == 2 and tm == 1:
        raise PlanError(f"{where}: macs_per_dsp must be 1 with unroll out 1, not 2: two output channels share a slice")
    least = lanes_out(work_of(layer), Unroll(tn, tm, tk))
    if lanes is not None and not least <= lanes <= tm:
        raise PlanError(
            f"{place}: lanes must be {least} (the channels that the layer finishes in a cycle) to {tm} (its unroll "
            f"out), not {lanes}"
        )
    beats = -(-tm // (lanes or least))
    if read.fifo_depth < beats:
        raise PlanError(f"{place}: depth must be at least {beats}, the beats of one output fold, not {read.fifo_depth}")
    return read if lanes in (None, least) else replace(read, fifo_lanes=lanes)


def _least_rows(layer: Op) -> int:
    """Rows that hold one window; a map may have fewer than its kernel."""
    return min(layer.window.kernel[0], layer.input.height)


def _most_rows(layer: Op) -> int:
    """More rows are of no use to a line buffer, whether row by row or in tiles."""
    top, _, bottom, _ = layer.window.padding
    return max(ample_rows(layer.window, 1, 1), layer.input.height + top + bottom)


def _most_beats(layer: Op) -> int:
    """More credits are of no use to a FIFO, however few channels a beat has."""
    return 2 * layer.output.values + MOST_IN_FLIGHT


def _bounded(document: Any, key: str, where: str, least: int, most: int, why: str) -> int:
    value = _field(document, key, int, where)
    if not least <= value <= most:
        raise PlanError(f"{where}: {key} must be {least:,} to {most:,} ({why}), not {value:,}")
    return value


def _field(document: Any, key: str, kind: type, where: str) -> Any:
    if not isinstance(document, dict):
        raise PlanError(f"{where} must be an object, not {_shown(document)}")
    if key not in document:
        raise PlanError(f"{where} lacks {key!r}")
    value = document[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise PlanError(f"{where}: {key} must be {_KINDS[kind]}, not {_shown(value)}")
    if kind is int and abs(value) > MOST:
        raise PlanError(f"{where}: {key} must be at most {MOST:,}, not {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    """A JSON value for a message, not at any length."""
    if isinstance(value, dict | list):
        return _KINDS[type(value)]
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
