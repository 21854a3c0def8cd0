"""Base classes of stages: a stage builds the hardware of one layer, in templates with hardware for every layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

from hwgen.errors import PlanError
from hwgen.gateware.channels import ChannelsConfig
from hwgen.gateware.layer import Compute, Finish, LayerConfig
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.multipliers import MULTIPLIERS, PLAIN, Multiplier
from hwgen.gateware.requantise import RequantiseConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.unload import UnloadConfig
from hwgen.network.maps import FeatureMap
from hwgen.network.ops import Op
from hwgen.templates.layers import LayerPlan
from hwgen.templates.work import LayerWork, Unroll

Kind = TypeVar("Kind", bound=Op)
Beats = tuple[tuple[int, ...], ...]
"""Channels of each beat of one output pixel of a layer."""


def beat_format(feature_map: FeatureMap, lanes: int, pixels: int = 1, groups: int = 1) -> BeatFormat:
    """Return the beat format of a feature map, with ``lanes`` channels of ``pixels`` neighbouring pixels per beat."""
    return BeatFormat(
        channels=feature_map.channels,
        height=feature_map.height,
        width=feature_map.width,
        lanes=lanes,
        bits=feature_map.type.bits,
        signed=feature_map.type.signed,
        pixels=pixels,
        groups=groups,
    )


@dataclass(frozen=True)
class Stage(ABC, Generic[Kind]):
    """A layer's place in a pipeline. What the base says holds for a layer without weights."""

    op: Kind

    in_step: ClassVar[int] = 0
    """Inputs, the first ones, of which as many pixels come in a cycle as leave: all steps take a beat of theirs."""
    has_rows: ClassVar[bool] = True
    """Whether it stands behind a line buffer."""

    @property
    def channelwise(self) -> bool:
        """Whether lanes keep their channels: each output channel comes out of the input lane of the same number."""
        return self.op.channelwise

    @property
    def groups(self) -> int:
        """Groups of channels that beats keep apart; lanes that keep their channels need none."""
        return 1 if self.channelwise else self.op.groups

    def multiplier(self, wanted: Multiplier) -> Multiplier:
        """Return the layer's multiplier: ``wanted``, or its fallback where that can't compute the layer."""
        return PLAIN

    @property
    def whole_windows(self) -> bool:
        """Whether all taps of a window must be taken in one cycle."""
        return False

    @property
    def work(self) -> dict[str, Any]:
        """Fields of `LayerWork` for this kind of layer, in addition to the layer's sizes."""
        return {"whole_windows": self.whole_windows, "in_step": self.in_step, "channelwise": self.channelwise}

    def finish_slices(self, multiplier: Multiplier = PLAIN) -> int:
        """Return the DSP slices for each channel that the layer finishes in a cycle, if its requantiser takes slices.

        Width and offset of the sums depend on the multiplier in front of the requantiser.
        """
        return self.least_finish_slices

    @property
    def least_finish_slices(self) -> int:
        """The same where a requantiser is built of LUTs."""
        return 0

    @property
    def product_bits(self) -> int:
        """Width of what a requantiser multiplies, before any clamp."""
        return 0

    @property
    def least_luts(self) -> int:
        """LUTs that the arithmetic takes at least, where that may be more than a board has."""
        return 0

    @property
    def least_rows(self) -> int:
        """Rows of a line buffer that holds one window; a map may have fewer than it covers."""
        return min(self.op.window.extent[0], self.op.input.height) if self.has_rows else 0

    @property
    def most_lanes(self) -> tuple[int, int]:
        """The greatest ``Tn`` and ``Tm``."""
        return self.op.channels // self.groups, self.op.outputs // self.groups

    def weight_bram36(self, work: LayerWork, unroll: Unroll) -> Any:
        """Block RAM of the weights; factors may be arrays."""
        return 0

    def check(self, plan: LayerPlan) -> None:
        """Refuse choices that this kind can't have.

        Raises
        ------
        PlanError
        """
        what = (
            "a layer without a window"
            if self.in_step
            else "a depthwise convolution"
            if self.op.weight_count
            else "a pool"
        )
        if self.channelwise and plan.tm != plan.tn:
            raise PlanError(f"{self.op.name}: unroll out of {what} must be its unroll in, {plan.tn}, not {plan.tm!r}")
        multiplier = self.multiplier(MULTIPLIERS.get(plan.macs_per_dsp, PLAIN))
        if self.channelwise and plan.macs_per_dsp != multiplier.name:
            raise PlanError(
                f"{self.op.name}: macs_per_dsp of {what} must be {multiplier.name}, not {plan.macs_per_dsp!r}"
            )
        if plan.weights_joined and not self.op.weight_count:
            raise PlanError(f"{self.op.name}: weights_joined must be false without weights, not true")
        if not self.has_rows and plan.line_in is not None:
            raise PlanError(f"{self.op.name}: line_memory must be null without a line buffer, not {plan.line_in!r}")
        if not self.has_rows and plan.tk != 1:
            raise PlanError(f"{self.op.name}: unroll taps must be 1 without a line buffer, not {plan.tk!r}")
        if self.whole_windows and plan.tk != self.op.taps:
            raise PlanError(f"{self.op.name}: unroll taps must be all {self.op.taps} of the kernel, not {plan.tk!r}")

    @abstractmethod
    def layer(self, plan: LayerPlan, sources: Sequence[BeatFormat], sinks: Sequence[BeatFormat | None]) -> LayerConfig:
        """The hardware between the streams that come in and those that leave to each reader.

        Parameters
        ----------
        sinks : sequence of BeatFormat or None
            ``None`` at an output of the group: it has the beats of the FIFO.

        Raises
        ------
        ConfigError
            If the choices contradict each other.
        """


@dataclass(frozen=True)
class WindowStage(Stage[Kind]):
    """Stage of a layer behind a line buffer."""

    def output_folds(self, source: BeatFormat, plan: LayerPlan) -> int:
        """Return the number of output folds per pixel: how often the layer reads each window."""
        if self.channelwise:
            return source.folds
        return source.groups * -(-self.op.outputs // source.groups // plan.tm)

    @abstractmethod
    def compute_and_finish(
        self, plan: LayerPlan, window: LineBufferConfig, lanes: int, beats: Beats
    ) -> tuple[Compute, Finish | None]:
        """The arithmetic, and what makes outputs of its sums.

        Parameters
        ----------
        lanes : int
            Channels that are finished in a cycle.
        beats : tuple of tuple of int
            Channels in each beat of a pixel that leaves.
        """

    def layer(self, plan: LayerPlan, sources: Sequence[BeatFormat], sinks: Sequence[BeatFormat | None]) -> LayerConfig:
        op, (source,) = self.op, sources
        window = LineBufferConfig(
            input=source,
            kernel=op.window.kernel,
            stride=op.window.stride,
            padding=op.window.padding,
            pad_value=op.pad_value,
            taps=plan.tk,
            output_folds=self.output_folds(source, plan),
            channelwise=self.channelwise,
            rows=plan.line_rows,
            pixels=plan.tp,
            dilation=op.window.dilation,
            memory_in=plan.line_in,
        )
        fifo_lanes = plan.fifo_lanes or -(-plan.tm // window.steps)
        beats = UnloadConfig(
            channels=op.output.channels,
            lanes_in=plan.tm,
            lanes_out=fifo_lanes,
            shape=source.shape,
            groups=source.groups,
        ).beats
        compute, finish = self.compute_and_finish(plan, window, fifo_lanes, beats)
        if isinstance(finish, ChannelsConfig):
            finish = replace(finish, tables_in=plan.tables_in)
        if isinstance(finish, RequantiseConfig):
            finish = replace(finish, products_in=plan.requantise_in)
        return LayerConfig(
            name=op.name,
            compute=compute,
            finish=finish,
            fifo_lanes=fifo_lanes,
            fifo_depths=plan.fifo_depths,
            fifos_in=plan.fifos_in,
            outputs=tuple(sink or beat_format(op.output, fifo_lanes, plan.tp) for sink in sinks),
        )
