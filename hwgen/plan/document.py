"""``plan.json``: a plan as text that can be edited and read back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hwgen.boards import Board
from hwgen.errors import ConfigError, PlanError
from hwgen.network import host
from hwgen.network.graph import Layer, Network
from hwgen.plan.choice import lanes_out, work_of
from hwgen.plan.plan import PYRAMID, TEMPLATES, Group, LayerPlan, Plan, Tiling, part
from hwgen.plan.unroll import Unroll

#: No number of a plan is larger: far beyond every board, and small enough to reckon with.
MOST = 1_000_000_000

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
                "weights": "stream" if loads and layer.weights is not None else layer.weights,
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
            groups.append(_read_group(entry, part(network, begin, end)))
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


def _read_group(group: dict[str, Any], network: Network) -> Group:
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
        _read_layer(entry, layer, found) for entry, layer in zip(group["layers"], network.layers, strict=True)
    )
    tiling = _read_tiling(group, network.input.width) if template == PYRAMID else None
    read = Group(network=network, layers=layers, tiling=tiling)
    return _with_weights(read, [entry.get("weights") for entry in group["layers"]])


def _read_tiling(group: dict[str, Any], width: int) -> Tiling:
    tile = _field(group, "tile", list, "plan group")
    if len(tile) != 2 or not all(type(size) is int and 1 <= size <= MOST for size in tile):
        raise PlanError(
            f"plan group: tile must be two positive integers, rows and columns, not {json.dumps(tile)[:40]}"
        )
    pixels = _field(group, "input_pixels", int, "plan group") if "input_pixels" in group else 1
    if not 1 <= pixels <= width:
        raise PlanError(f"plan group: input_pixels must be 1 to {width}, the width of its input, not {pixels!r}")
    return Tiling(tile=(tile[0], tile[1]), overlap=_field(group, "overlap", str, "plan group"), pixels=pixels)


def _with_weights(group: Group, places: list[Any]) -> Group:
    """The same, with weights where they are said to lie, if that is not where they would lie anyhow."""
    layers = list(group.layers)
    for number, (layer, place) in enumerate(zip(group.config.layers, places, strict=True)):
        if place not in (None, "lut", "block", "stream"):
            raise PlanError(f"plan layer {layer.name}: weights must be 'lut', 'block' or 'stream', not {place!r}")
        if place in ("lut", "block") and layer.weights is not None:
            layers[number] = replace(layers[number], weights_in=None if place == layer.weights else place)
    return group if layers == list(group.layers) else replace(group, layers=tuple(layers))


def _read_layer(entry: dict[str, Any], layer: Layer, fifos: dict[str, dict[str, Any]]) -> LayerPlan:
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
    if lanes is not None and lanes < 1:
        raise PlanError(f"{place}: lanes must be a positive integer, not {lanes!r}")
    if min(tn, tk) > 0 and lanes == lanes_out(work_of(layer), Unroll(tn, tm, tk)):
        lanes = None  # as many as anyhow
    return LayerPlan(
        name=layer.name,
        kind=layer.kind,
        tn=tn,
        tm=tm,
        tk=tk,
        tp=_field(unroll, "pixels", int, where) if "pixels" in unroll else 1,
        chain=_field(entry, "chain", int, where),
        line_rows=_field(entry, "line_rows", int, where),
        fifo_depth=_field(fifo, "depth", int, place),
        fifo_lanes=lanes,
        macs_per_dsp=_field(entry, "macs_per_dsp", int, where) if "macs_per_dsp" in entry else 1,
    )


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
