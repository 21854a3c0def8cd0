"""Planner's model of layers of fixed-point operations: a pipelined data path per lane, and a requantiser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from hwgen.gateware import fixed_point as circuit
from hwgen.gateware.fixed_point import FixedPointConfig
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.layer import LayerCompute
from hwgen.gateware.requantise import RequantiseConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.network.ops import FixedPoint
from hwgen.network.ops import fixed_point as steps
from hwgen.templates.joins import RequantisedStage
from hwgen.templates.stage import beat_format

CIRCUITS: dict[type[steps.Operation], Callable[[Any], circuit.OperationCircuit]] = {
    steps.Table: lambda step: circuit.TableCircuit(
        operands=step.operands, low=step.low, tables=tuple(map(tuple, step.table.tolist()))
    ),
    steps.Shift: lambda step: circuit.ShiftCircuit(operands=step.operands, shift=step.shift),
    steps.Factor: lambda step: circuit.MultiplyCircuit(
        operands=step.operands, shift=step.shift, factor=tuple(step.factor.tolist())
    ),
    steps.Offset: lambda step: circuit.AddCircuit(operands=step.operands, offset=tuple(step.offset.tolist())),
    steps.Plus: lambda step: circuit.AddCircuit(operands=step.operands, sign=step.sign),
    steps.Times: lambda step: circuit.MultiplyCircuit(operands=step.operands, shift=step.shift),
    steps.Extremum: lambda step: circuit.ExtremumCircuit(operands=step.operands, greatest=step.greatest),
    steps.Limits: lambda step: circuit.LimitsCircuit(operands=step.operands, low=step.low, high=step.high),
    steps.Curve: lambda step: circuit.CurveCircuit(
        operands=step.operands,
        low=step.low,
        segment_bits=step.segment_bits,
        guard=step.guard,
        coefficients=tuple(map(tuple, step.coefficients.tolist())),
    ),
}
"""Dictionary of functions that make the configuration of an operation's circuit, by class of fixed-point operation."""


class FixedPointStage(RequantisedStage[FixedPoint]):
    """Planner's model of a layer of fixed-point operations: their data path and, if there is one, a requantiser."""

    @property
    def direct_inputs(self) -> int:  # type: ignore[override]
        return len(self.op.inputs) - self.op.spread

    @cached_property
    def _lane(self) -> FixedPointConfig:
        """Configuration (`FixedPointConfig`) of the data path with one lane, which computes one channel per cycle."""
        return self.compute([beat_format(source, 1) for source in self.op.inputs])

    @property
    def min_finish_slices(self) -> int:
        """Number of DSP slices per lane of the fixed-point operations, without the slices of the requantiser."""
        return self._lane.lane_slices

    def compute(self, sources: Sequence[BeatFormat]) -> FixedPointConfig:
        return FixedPointConfig(
            window=JoinConfig(device=self.device, inputs=tuple(sources), spread=bool(self.op.spread)),
            steps=tuple(CIRCUITS[type(step)](step) for step in self.op.steps),
            bits=self.op.output.type.bits if self.op.requantisation is None else 0,
        )

    def finish(self, compute: LayerCompute, lanes: int) -> RequantiseConfig | None:
        rule = self.op.requantisation
        return None if rule is None else self.requantiser(rule, compute, lanes)
