"""Proof obligation ``credits``: credits, beats in flight and stored beats of a layer's FIFO add up to its depth.

Therefore no FIFO overflows, whatever the reader does, and no credit is lost or given twice. The line buffer, the
arithmetic and the requantiser are replaced by their models (`hwgen.gateware.control_proof`); the FIFO and the
serialiser are as emitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from hwgen.gateware.control_proof import ControlModel, arithmetic_model, claims_vary, finish_model, window_model
from hwgen.gateware.fifo_proof import counter_facts, counters
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.unload_proof import beats_left
from hwgen.obligations.obligation import Obligation, Site, bits_for
from hwgen.obligations.observers import since

MAX_CYCLES = 60
"""Maximum number of cycles that a proof's example run (cover) waits until a FIFO is full; else it shows one write."""


def obligations(layer: LayerConfig, site: Site) -> list[Obligation]:
    """Return, as a list, an obligation for each output FIFO of a layer: it never overflows, and no credit is lost."""
    return [_of_reader(layer, site, reader) for reader in range(len(layer.outputs))]


def _models(layer: LayerConfig, site: Site) -> dict[str, ControlModel]:
    """Return a dict from Verilog instance to the `ControlModel` that replaces a layer's component in the proof."""
    window = site.part("window")
    models = {"window": window_model(layer, window), "compute": arithmetic_model(layer, window)}
    if layer.finish is not None:
        models["finish"] = finish_model(layer)
    return {name: model for name, model in models.items() if site.inner(name) is not None}


@dataclass
class _Pipeline:
    """Pipeline in a proof: Verilog bits, one per stage, that are high while the stage is occupied, and its input bit.

    The observer counts, in a register for each stage, the occupied stages up to this one. The proof therefore compares
    neighbours, and no solver has to see that a sum of many bits is the same after all of them have moved.
    """

    name: str
    enters: str
    stages: list[str]

    @property
    def count(self) -> str:
        """Verilog name of the register that counts the occupied stages; ``0`` for a pipeline without stages."""
        return f"{self.name}_{len(self.stages)}" if self.stages else "0"

    @property
    def observer(self) -> list[str]:
        """List of Verilog lines of registers that count, for each stage, the occupied stages up to this one."""
        lines = []
        for index, stage in enumerate(self.stages, 1):
            register = f"{self.name}_{index}"
            lines += [
                f"reg {bits_for(index)} {register} = 0;",
                f"always @(posedge clk) {register} <= rst ? 0 : {register} + {self.enters} - {self.leaves(stage)};",
            ]
        return lines

    def leaves(self, stage: str) -> str:
        """Return the Verilog expression that is 1 when an entry leaves ``stage``; here, after one cycle."""
        return stage

    @property
    def invariants(self) -> dict[str, str]:
        """Dict from text to Verilog invariant: a stage's count is the previous one's, plus 1 for an occupied stage."""
        before = [f"32'd0 + {self.name}_{index}" for index in range(1, len(self.stages))]
        return {
            f"{self.name}_{index} counts up to its stage": f"{self.name}_{index} == {least} + {stage}"
            for index, (least, stage) in enumerate(zip(["32'd0", *before], self.stages, strict=False), 1)
        }


class _FoldPipeline(_Pipeline):
    """Pipeline of output folds (passes over ``Tm`` channels), whose first stage is busy for all steps of a fold."""

    def leaves(self, stage: str) -> str:
        return "window.model_end" if stage == "window.model_busy" else stage


def _register_bits(register: str, latency: int) -> list[str]:
    """Return a list of Verilog expressions of the bits of a shift register of ``latency`` cycles, one per cycle."""
    return [f"{register}[{bit}]" if latency > 1 else register for bit in range(latency)]


def _of_reader(layer: LayerConfig, site: Site, reader: int) -> Obligation:
    models = _models(layer, site)
    fifo_name = layer.of_reader("fifo", reader)
    depth, claims, converter = layer.fifo_depths[reader], layer.claims[reader], layer.regroups[reader]
    credits, push = layer.of_reader("credits", reader), f"{fifo_name}.i__valid"
    stored = counters(layer.fifos[reader], f"{fifo_name}.")
    folds = _fold_pipeline(layer, models)
    is_serial, left = bool(layer.unload.latency), f"unload.{beats_left(layer.unload)}"
    asserts = {
        "a beat is written only if the FIFO has room": f"!{push} | (32'd0 + {' + '.join(stored)} < {depth})",
        "a fold has room exactly if each FIFO has credits for its beats": _start_fact(layer),
    }
    spacing = max(layer.fold_beats)
    since_lines: list[str] = []
    if is_serial:
        since_lines = since("unload.i__valid", spacing)
        asserts[f"results are at least {spacing} cycles apart"] = f"!unload.i__valid | (since == {spacing})"
        asserts["results come when at most the last beat of the earlier ones is left"] = (
            f"!unload.i__valid | ({left} <= 1)"
        )
    beats = _Pipeline("beats", f"({left} != 0)" if is_serial else folds.stages[-1], [])
    if layer.finish is not None and layer.finish.latency and "finish" in models:
        beats.stages.extend(_register_bits("finish.model_valid_past", layer.finish.latency))
    lines, invariants, owed = _claimed_credits(layer, folds)
    in_flight = [owed, *([left] if is_serial else []), beats.count]
    if converter.always_ready:
        most = (len(folds.stages) + 1) * spacing + len(beats.stages)
        added, facts, in_flight = _converted(layer, reader, site, " + ".join(in_flight), most)
        lines, invariants = [*lines, *added], invariants | facts
    total = ["32'd0", credits, *in_flight, *stored]
    fills = layer.pipeline_latency + -(-depth * len(claims) // sum(claims)) * layer.window.steps < MAX_CYCLES
    return site.obligation(
        "credits",
        f"FIFO {fifo_name} never overflows, and no credit is lost or given twice.",
        observer=(*folds.observer, *beats.observer, *lines, *since_lines),
        invariants=folds.invariants
        | beats.invariants
        | invariants
        | counter_facts(layer.fifos[reader], f"{fifo_name}.")
        | _spacing_facts(layer, folds, is_serial=is_serial),
        asserts={
            f"credits, beats in flight and stored beats are {depth}": f"{' + '.join(total)} == {depth}",
            **asserts,
        },
        cover=f"{credits} < {max(claims)}" if fills else f"{push} & !rst",
        run=_filling_inputs(layer, site, reader),
        keeps=tuple(name for name in _emitted_instances(layer, reader) if site.inner(name) is not None),
        models={name: model.body for name, model in models.items()},
        free_memories=True,
    )


def _emitted_instances(layer: LayerConfig, reader: int) -> Sequence[str]:
    """Return a sequence of instance names that the proof keeps: serialiser, converter, and ``reader``'s FIFO."""
    first = [layer.of_reader("regroup", reader)] if layer.regroups[reader].always_ready else []
    return ["unload", *first, layer.of_reader("fifo", reader)]


def _converted(
    layer: LayerConfig, reader: int, site: Site, narrow: str, max_narrow: int
) -> tuple[list[str], dict[str, str], list[str]]:
    """Return a triple: Verilog lines, invariants, and terms of the beats in flight to a FIFO after a width converter.

    The beats that are in flight to the converter complete some of the FIFO's beats. These follow from the index of the
    converter's next input beat and from the number of beats in flight. The observer therefore has a table: how many
    beats of the FIFO are complete after a number of the converter's input beats, counted from the begin of a pixel.

    Parameters
    ----------
    narrow : str
        Expression of the number of beats in flight to the converter.
    max_narrow : int
        Maximum of this number.
    """
    converter, name = layer.regroups[reader], layer.of_reader("regroup", reader)
    num_beats, lanes = len(converter.counts), converter.output.lanes
    next_beat, lanes_held = f"{name}.input_beat_index", f"{name}.lanes_held"
    largest = num_beats - 1 + max_narrow
    complete = [
        pixel * len(converter.sizes) + sum(after < beats for after in converter.completing_beats)
        for pixel, beats in (divmod(index, num_beats) for index in range(largest + 1))
    ]
    lines = [
        f"wire {bits_for(largest)} last_beat = {next_beat} + {narrow};",
        _table("complete_before", next_beat, complete[:num_beats]),
        _table("complete_after", "last_beat", complete),
        f"wire {bits_for(max(converter.pending) + 1)} converted = {lanes_held} / {lanes};",
    ]
    held = []
    for beat, (output_lanes, pending) in enumerate(zip(converter.output_lanes, converter.pending, strict=True)):
        counts = (output_lanes[0] % lanes + lanes * waits for waits in range(pending + 1))
        held.append(f"({next_beat} != {beat}) | {' | '.join(f'({lanes_held} == {count})' for count in counts)}")
    facts = {
        "the converter holds the channels of its beats": " & ".join(f"({fact})" for fact in held),
        f"a pixel has {num_beats} beats": f"{next_beat} < {num_beats}",
        "the beats in flight end with a fold": _whole_folds_fact(layer),
    }
    return lines, facts, ["complete_after", "converted", "-complete_before"]


def _table(name: str, index: str, entries: Sequence[int]) -> str:
    """Return a Verilog line that makes the wire ``name`` ``entries[index]``, or the last entry if out of range."""
    *first, last = entries
    chosen = "".join(f"{index} == {position} ? {entry} : " for position, entry in enumerate(first))
    return f"wire {bits_for(max(entries))} {name} = {chosen}{last};"


def _whole_folds_fact(layer: LayerConfig) -> str:
    """Return the Verilog fact that the last beat in flight to a FIFO ends a pass over ``Tm`` channels (output fold)."""
    count = sum(layer.fold_beats)
    if not claims_vary(layer):
        return f"(last_beat % {layer.fold_beats[0]}) == 0"
    ends = list(accumulate(layer.fold_beats))
    following = _next_fold(layer)
    cases = " & ".join(
        f"(({following} != {fold}) | (last_beat % {count} == {end - beats}))"
        for fold, (end, beats) in enumerate(zip(ends, layer.fold_beats, strict=True))
    )
    return f"(window.model_fold < {len(ends)}) & {cases}"


def _next_fold(layer: LayerConfig) -> str:
    """Return the Verilog expression of the index of the output fold (pass over ``Tm`` channels) that starts next.

    The register ``model_fold`` still holds the current fold's index until the fold ends.
    """
    num_folds = len(layer.fold_beats)
    following = f"(window.model_fold == {num_folds - 1} ? 0 : window.model_fold + 1)"
    return f"(window.model_busy ? {following} : window.model_fold)" if layer.window.steps > 1 else "window.model_fold"


def _filling_inputs(layer: LayerConfig, site: Site, reader: int) -> dict[str, str]:
    """Return a dict from input port to the value that fills one FIFO: its ``reader`` waits, all others accept beats.

    A random search would not fill it, because the other FIFOs fill as well. A reader that a width converter feeds has
    no input of its own here.
    """
    if len(layer.outputs) == 1:
        return {}
    return {
        f"{port}__ready": f"1'b{int(other != reader)}"
        for other, port in enumerate(layer.output_ports)
        if not layer.regroups[other].needed and site.has(f"{port}__ready")
    }


def _start_fact(layer: LayerConfig) -> str:
    """Return the Verilog fact that a pass over ``Tm`` channels starts only if all output FIFOs have credits for it."""
    has_room = []
    for reader, claims in enumerate(layer.claims):
        claim = f"{claims[-1]}"
        if len(set(claims)) > 1:
            for fold in reversed(range(len(claims) - 1)):
                claim = f"(window.model_fold == {fold} ? {claims[fold]} : {claim})"
        has_room.append(f"({layer.of_reader('credits', reader)} >= {claim})")
    return f"window.room == ({' & '.join(has_room)})"


def _fold_pipeline(layer: LayerConfig, models: dict[str, ControlModel]) -> _FoldPipeline:
    """Return the `_FoldPipeline` of output folds (``Tm`` channels) from their start to the arithmetic's output."""
    folds = _FoldPipeline("folds", "window.model_start", [])
    if layer.window.steps > 1:
        folds.stages.append("window.model_busy")
    for name, register, latency in (
        ("window", "model_last_past", layer.walk_latency),
        ("compute", "model_valid_past", layer.compute.latency),
    ):
        if latency and name in models:
            folds.stages.extend(_register_bits(f"{name}.{register}", latency))
    return folds


def _spacing_facts(layer: LayerConfig, folds: _FoldPipeline, *, is_serial: bool) -> dict[str, str]:
    """Return a dict from text to Verilog fact: passes over ``Tm`` channels start at least a pass's cycles apart."""
    steps, claim = layer.window.steps, max(layer.fold_beats)
    bits = [stage for stage in folds.stages if stage != "window.model_busy"]
    if steps == 1 or not bits:
        return {}
    stages = f"{{{', '.join(reversed(bits))}}}"
    facts = [f"!({stages} & ({stages} >> {distance}))" for distance in range(1, min(steps, len(bits)))]
    facts += [
        f"!({stage} & window.model_busy) | (32'd0 + window.model_left + {index} > {steps})"
        for index, stage in enumerate(bits, 1)
        if index <= steps
    ]
    if is_serial:
        left = f"unload.{beats_left(layer.unload)}"
        last = f"({left} == 0) | (32'd0 + {left} + {steps}"
        facts += [f"!{stage} | {last} + {index} <= {len(bits) + 1 + claim})" for index, stage in enumerate(bits, 1)]
        facts.append(f"!window.model_busy | {last} <= 32'd0 + {len(bits) + claim} + window.model_left)")
        # The same for the cycles since the last result, which also count if the result had fewer beats.
        old = f"(since == {claim}) | (32'd0 + since + {len(bits)}"
        facts += [f"!{stage} | {old} >= {steps + index})" for index, stage in enumerate(bits, 1)]
        facts.append(f"!window.model_busy | {old} + window.model_left >= {steps + 1})")
        facts.append(f"since <= {claim}")
    return {f"folds in flight are {steps} cycles apart": " & ".join(f"({fact})" for fact in facts)}


def _claimed_credits(layer: LayerConfig, folds: _FoldPipeline) -> tuple[list[str], dict[str, str], str]:
    """Return a triple: Verilog lines, invariants, and an expression of the FIFO entries that folds in flight hold."""
    claims = layer.fold_beats
    if len(set(claims)) == 1:
        return [], {}, f"{claims[0]} * {folds.count}"
    num_folds, max_folds = len(claims), min(len(folds.stages), 1 + -(-len(folds.stages) // layer.window.steps))
    lines = [
        f"reg {bits_for(max_folds * max(claims))} owed;",
        f"reg {bits_for(num_folds)} next_fold;",
        "always @* begin",
    ]
    lines += ["    owed = 0;", "    next_fold = unload.fold_index;"]
    for fold in range(num_folds):
        for starts in range(max_folds + 1):
            taken = sum(claims[(fold + index) % num_folds] for index in range(starts))
            lines.append(
                f"    if (unload.fold_index == {fold} & {folds.count} == {starts}) begin owed = {taken}; "
                f"next_fold = {(fold + starts) % num_folds}; end"
            )
    lines.append("end")
    invariants = {
        "folds reach the serialiser in the order of their starts": f"next_fold == {_next_fold(layer)}",
        f"folds have {num_folds} indices": f"(unload.fold_index < {num_folds}) & (window.model_fold < {num_folds})",
        f"at most {max_folds} folds are in flight": f"{folds.count} <= {max_folds}",
    }
    return lines, invariants, "owed"
