"""Proof obligations ``contract``: each component of a layer has the same control signals as a small model.

The layer's obligation ``credits`` contains these models instead of the components. The arithmetic, whose Verilog is
long, is therefore read once, and not for each property of the layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.whole_map import WholeMapConfig
from hwgen.obligations.obligation import Obligation, Site, bits_for
from hwgen.obligations.observers import counter, delayed


@dataclass(frozen=True)
class ControlModel:
    """Small Verilog model of a layer component's valid, ready and last signals, its stand-in in the layer's proofs.

    Parameters
    ----------
    lines : tuple of str
        Verilog of the registers and wires, whose names begin with ``model_``.
    outputs : dict of str to str
        Outputs of the component that the model defines: expressions by port, or by bit of a port.
    compared : dict of str to str
        Map from expressions over the model to equal expressions over the component's ports.
    free : dict of str to str
        Values that the model leaves free: map from range and name to the equal expression over the component's ports.
    """

    lines: tuple[str, ...]
    outputs: dict[str, str]
    compared: dict[str, str]
    free: dict[str, str]

    @property
    def body(self) -> list[str]:
        """List of Verilog lines that replace the modelled component in proofs; values left free are ``$anyseq``."""
        return [
            *(f"wire {name} = $anyseq;" for name in self.free),
            *self.lines,
            *(f"assign {port} = {value};" for port, value in self.outputs.items()),
        ]

    def obligation(self, site: Site, statement: str, cover: str, **fields: Any) -> Obligation:
        """Return the proof `Obligation` that the control outputs of the component at ``site`` equal this model's."""
        return site.obligation(
            "contract",
            statement,
            methods=("pdr",),
            observer=(*(f"wire {name} = {value};" for name, value in self.free.items()), *self.lines),
            asserts={f"{port} is {value}": f"({port}) == ({value})" for value, port in self.compared.items()},
            cover=cover,
            free_memories=True,
            **fields,
        )


def claims_vary(layer: LayerConfig) -> bool:
    """Return whether a layer's output folds (passes over ``Tm`` channels) differ in beats or claimed FIFO credits."""
    return any(len(set(beats)) > 1 for beats in (layer.fold_beats, *layer.claims))


def window_model(layer: LayerConfig, site: Site) -> ControlModel:
    """Return the `ControlModel` of a layer's line buffer or join: when output folds (``Tm`` channels) start and end."""
    config = layer.window
    steps, folds, latency = config.steps, config.output_folds, layer.walk_latency
    lines = ["wire model_start = model_go & room & !model_busy;"]
    if steps > 1:
        lines += [
            f"reg {bits_for(steps - 1)} model_left = 0;",
            "wire model_busy = model_left != 0;",
            f"always @(posedge clk) model_left <= rst ? 0 : model_start ? {steps - 1} : model_left - model_busy;",
            "wire model_end = model_left == 1;",
        ]
    else:
        lines += ["wire model_busy = 0;", "wire model_end = model_start;"]
    lines += delayed("model_last", 1, "model_end", latency, resets=True)
    outputs, compared = {"start": "model_start"}, {"model_start": "start"}
    last = _last_bit(layer, site)
    free = {"model_go": "start"}
    if "fold" in site.module.ports:
        if claims_vary(layer):
            lines += counter("model_fold", folds, "model_end")
        else:  # every fold claims as many credits
            width = bits_for(folds - 1)
            lines.append(f"wire {width} model_fold = model_index < {folds} ? model_index : 0;")
            free[f"{width} model_index"] = "fold"
        outputs["fold"], compared["model_fold"] = "model_fold", "fold"
    if last and not _has_one_step(layer):
        lines = ["wire model_other = $anyseq;", *lines]
        outputs |= {last: "model_last_was", "o__valid": "model_last_was | model_other"}
        compared["model_last_was"] = f"o__valid & {last}"
    else:  # each step is the last one of its fold
        outputs |= {"o__valid": "model_last_was", **({last: "model_last_was"} if last else {})}
        compared["model_last_was"] = "o__valid"
        if last:
            compared["model_last_was & 1'b1"] = f"o__valid & {last}"
    return ControlModel(tuple(lines), outputs, compared, free)


def _has_one_step(layer: LayerConfig) -> bool:
    """Return whether each output fold (pass over ``Tm`` channels) takes one step, a cycle that is also its last."""
    return layer.window.steps == 1 and not isinstance(layer.window, WholeMapConfig)


def _last_bit(layer: LayerConfig, site: Site) -> str:
    """Return the payload bit of an output fold's last step (cycle) as a Verilog expression; empty if there is none."""
    fields = dict(layer.window.step_layout)
    if "last" not in fields or "o__payload" not in site.module.ports:
        return ""
    return f"o__payload[{fields['last'].offset}]"


def _pipeline(latency: int, first: str) -> ControlModel:
    lines = delayed("model_valid", 1, first, latency, resets=True)
    return ControlModel(tuple(lines), {"o__valid": "model_valid_was"}, {"model_valid_was": "o__valid"}, {})


def arithmetic_model(layer: LayerConfig, window: Site) -> ControlModel:
    """Return the `ControlModel` of a layer's arithmetic: results come ``latency`` cycles after the last step."""
    last = _last_bit(layer, window).replace("o__", "i__")
    return _pipeline(layer.compute.latency, f"i__valid & {last}" if last else "i__valid")


def finish_model(layer: LayerConfig) -> ControlModel:
    """Return the `ControlModel` of a layer's requantiser or bias adder: outputs ``latency`` cycles after its inputs."""
    assert layer.finish is not None
    return _pipeline(layer.finish.latency, "i__valid")


def contract_obligations(layer: LayerConfig, site: Site) -> list[Obligation]:
    """Return a list of the obligations that each of a layer's components has the control signals of its small model."""
    window = site.part("window")
    model = window_model(layer, window)
    statement = "An output fold starts only if there is room, and its last step comes a fixed number of cycles later."
    keeps = tuple(name for name in layer.walk if window.inner(name) is not None)
    contracts = [model.obligation(window, statement, "model_last_was", keeps=keeps)]
    if layer.compute.latency:
        compute = site.part("compute")
        statement = f"A result comes {layer.compute.latency} cycles after the last step of its fold, and never else."
        keeps = tuple(name for name in compute.module.instances if name == "chains")
        last = _last_bit(layer, window).replace("o__", "i__")
        only = {"each step is the last one of its fold": f"!i__valid | {last}"} if last and _has_one_step(layer) else {}
        model = arithmetic_model(layer, window)
        contracts.append(model.obligation(compute, statement, "o__valid", keeps=keeps, assumes=only))
    if layer.finish is not None:
        statement = f"Outputs come {layer.finish.latency} cycles after their results, and never else."
        contracts.append(finish_model(layer).obligation(site.part("finish"), statement, "o__valid"))
    return contracts
