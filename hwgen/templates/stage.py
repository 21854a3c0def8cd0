"""Base classes of stages, the planner's models of layers, which configure a layer's hardware and price it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from amaranth import Shape

from hwgen.devices import Device, Memories
from hwgen.errors import PlanError
from hwgen.gateware.channels import ChannelsConfig
from hwgen.gateware.layer import LayerCompute, LayerConfig, LayerFinish
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.load.loaded_requantise import MAX_SHIFT
from hwgen.gateware.multipliers import MULTIPLIERS, PLAIN, LutMultiplier, Multiplier
from hwgen.gateware.requantise import RequantiseConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.unload import UnloadConfig
from hwgen.network.maps import FeatureMap, Requantisation
from hwgen.network.ops import Op
from hwgen.templates.layers import LayerPlan
from hwgen.templates.work import LayerWork, Unroll


def weight_block_rams(memories: Memories, products: Any, lane_bits: Any, chain: Any, depth: Any) -> Any:
    """Return the number of 36-kbit block RAMs of a convolution's weight memories, one memory per position in a chain.

    Parameters
    ----------
    memories : Memories
        Memories of the device family.
    products : int or array
        Number of products of one output channel per step, ``Tk * Tn``.
    lane_bits : int or array
        Stored bits of the weights of all output channels for one product.
    chain : int or array
        Maximum number of DSP slices in a chain.
    depth : int or array
        Words of each memory: the steps of one window.
    """
    chains = -(-products // chain)
    positions = -(-products // chains)
    first = products - (positions - 1) * chains
    others = (positions - 1) * block_rams(memories, lane_bits * chains, depth)
    return block_rams(memories, lane_bits * first, depth) + others


def block_rams(memories: Memories, width: Any, depth: Any) -> Any:
    """Return a memory's number of 36-kbit block RAMs, in steps of 0.5; 0 if LUTs store it. Arguments can be arrays.

    Arrays are possible.

    Parameters
    ----------
    memories : Memories
        Memories of the device family.
    width : int or array
        Bits of a word.
    depth : int or array
        Number of words.
    """
    counts = [
        share * -(-width // block_width) * -(-depth // block_depth)
        for share, block_width, block_depth in memories.shapes
    ]
    return np.where(depth <= memories.lut_depth, 0.0, np.minimum.reduce(counts))


Kind = TypeVar("Kind", bound=Op)
Beats = tuple[tuple[int, ...], ...]
"""Type of a tuple, by beat of one output pixel of a layer, of tuples of the channel indices in the beat."""


def beat_format(feature_map: FeatureMap, lanes: int, pixels: int = 1, groups: int = 1) -> BeatFormat:
    """Return the `BeatFormat` of a feature map, with ``lanes`` channels of ``pixels`` neighbouring pixels per beat."""
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
    """Base class of stages, the planner's models of layers: a stage configures a layer's hardware and prices it.

    There is one subclass per kind of layer. The base class has the values of a layer without weights.
    """

    op: Kind
    device: Device
    """Device family that the hardware is for."""

    direct_inputs: ClassVar[int] = 0
    """Number of inputs, the first ones, read beat by beat without a line buffer, a beat of each per cycle.

    The layer reads as many of their pixels per cycle as it writes.
    """
    has_line_buffer: ClassVar[bool] = True
    """Whether the layer reads its input through a line buffer."""
    layer_type: ClassVar[type[LayerConfig]] = LayerConfig
    """Subclass of `LayerConfig` for the configuration of the layer's hardware."""

    @property
    def channelwise(self) -> bool:
        """Whether each output channel is computed from a single input channel, in the lane of that channel."""
        return self.op.channelwise

    @property
    def groups(self) -> int:
        """Number of channel groups that no beat mixes; 1 if the layer is channelwise."""
        return 1 if self.channelwise else self.op.groups

    def multiplier(self, wanted: Multiplier) -> Multiplier:
        """Return the layer's kind of `Multiplier`: ``wanted``, or its fallback if that can't compute the layer."""
        return PLAIN

    def longest_chain(self, multiplier: Multiplier, chain: int) -> int:
        """Return the maximum number of multipliers in one of the layer's multiply-add chains, at most ``chain``."""
        return chain

    @property
    def port_bits(self) -> int:
        """Number of bits that a DSP slice's wider operand needs for the layer's circuits; 0 if any width will do."""
        return 0

    @property
    def wide_circuit(self) -> str:
        """Noun phrase, for messages, that names the circuit whose DSP slices need operands of `port_bits` bits."""
        return "a layer with weights that are loaded at run time"

    def window_luts(self, tn: int, tk: int) -> int:
        """Return the LUTs of the layer's line buffer for ``Tn`` channels of ``Tk`` taps of one pixel per cycle."""
        return 0

    @property
    def lut_multipliers(self) -> frozenset[LutMultiplier]:
        """Set of each `LutMultiplier` that suits the layer, for any number of words of its weight memories."""
        return frozenset()

    def lut_product(self, words: int | None, is_padded: bool = False) -> tuple[float, bool]:
        """Return a pair: the LUTs per product with its share of adders, and whether a memory stores the weight.

        A layer without weights has no products.

        Parameters
        ----------
        words : int or None
            Number of words of the memories of the weights; ``None`` if they have many.
        is_padded : bool
            Whether memories store a weight of 0 wherever a step has fewer products than multipliers.
        """
        return 0.0, False

    @property
    def stored_weight_bits(self) -> int:
        """Number of bits stored per weight, without the bits that are equal in all of the layer's weights."""
        return 0

    def is_padded(self, unroll: Unroll) -> Any:
        """Return whether multipliers idle in some cycles, as ``Tk`` or ``Tn`` does not divide taps or channels.

        Unroll factors can be arrays.
        """
        channels = 0 if self.channelwise else self.op.channels // self.groups % unroll.tn
        return (self.op.taps % unroll.tk > 0) | (channels > 0)

    @property
    def whole_windows(self) -> bool:
        """Whether the layer must read all taps of a window in one cycle."""
        return False

    @property
    def work_fields(self) -> dict[str, Any]:
        """Dictionary of keyword arguments for the layer's `LayerWork` that depend on its kind, not on its sizes."""
        return {name: getattr(self, name) for name in ("whole_windows", "direct_inputs", "channelwise")}

    def finish_slices(self, multiplier: Multiplier = PLAIN) -> int:
        """Return the DSP slices per requantiser lane (one channel per cycle) if the requantiser multiplies in slices.

        Width and offset of the sums depend on ``multiplier``, which computes them.
        """
        return self.min_finish_slices

    @property
    def min_finish_slices(self) -> int:
        """Number of DSP slices per requantiser lane (one channel per cycle) if the requantiser multiplies in LUTs."""
        return 0

    @property
    def requantiser_input_bits(self) -> int:
        """Number of bits of a convolution's sums, which its requantiser multiplies; 0 for other layers."""
        return 0

    @property
    def min_luts(self) -> int:
        """Minimum number of LUTs of the layer's arithmetic if that may exceed a board's LUTs; 0 if it can't."""
        return 0

    @property
    def min_rows(self) -> int:
        """Number of image rows in the layer's smallest line buffer: rows of a window, or of the map if it has fewer."""
        return min(self.op.window.extent[0], self.op.input.height) if self.has_line_buffer else 0

    @property
    def max_lanes(self) -> tuple[int, int]:
        """Maximum ``Tn`` and maximum ``Tm`` (input and output channels per cycle), a pair."""
        return self.op.channels // self.groups, self.op.outputs // self.groups

    def weight_bram36(self, work: LayerWork, unroll: Unroll) -> Any:
        """Return the number of 36-kbit block RAMs that store the layer's weights; factors can be arrays."""
        return 0

    def check(self, plan: LayerPlan) -> None:
        """Raise `PlanError` if the plan of the layer has a choice that can't be built for this kind of layer.

        Raises
        ------
        PlanError
            If a choice can't be built. The message has the choice and its permitted values.
        """
        what = (
            "a layer without a window"
            if self.direct_inputs
            else "a depthwise convolution"
            if self.op.weight_count
            else "a pool"
        )
        if self.channelwise and plan.tm != plan.tn:
            raise PlanError(f"{self.op.name}: unroll out of {what} must be its unroll in, {plan.tn}, not {plan.tm!r}")
        named = MULTIPLIERS.get(plan.macs_per_dsp, PLAIN)
        possible = " or ".join(str(kind.name) for kind in MULTIPLIERS.values() if self.multiplier(kind) is kind)
        if named.port_bits > (wide_bits := self.device.multiplier_slice.wide_bits):
            raise PlanError(
                f"{self.op.name}: macs_per_dsp must be {possible} on {self.device.title} devices, not "
                f"{plan.macs_per_dsp!r}: the wide operand of their slices has {wide_bits} bits, not {named.port_bits}"
            )
        multiplier = self.multiplier(named)
        if self.channelwise and plan.macs_per_dsp != multiplier.name:
            raise PlanError(f"{self.op.name}: macs_per_dsp of {what} must be {possible}, not {plan.macs_per_dsp!r}")
        if plan.lut_lanes and not self.op.weight_count:
            raise PlanError(f"{self.op.name}: lut_lanes must be 0 without weights, not {plan.lut_lanes!r}")
        if plan.weights_joined and not self.op.weight_count:
            raise PlanError(f"{self.op.name}: weights_joined must be false for a layer without weights, not true")
        if not self.has_line_buffer and plan.line_in is not None:
            raise PlanError(f"{self.op.name}: line_memory must be null without a line buffer, not {plan.line_in!r}")
        if not self.has_line_buffer and plan.tk != 1:
            raise PlanError(f"{self.op.name}: unroll taps must be 1 without a line buffer, not {plan.tk!r}")
        if self.whole_windows and plan.tk != self.op.taps:
            raise PlanError(
                f"{self.op.name}: unroll taps must be {self.op.taps}, all taps of the kernel, not {plan.tk!r}"
            )

    @abstractmethod
    def layer(self, plan: LayerPlan, sources: Sequence[BeatFormat], sinks: Sequence[BeatFormat | None]) -> LayerConfig:
        """Return the `LayerConfig` of the layer's hardware, between its input streams and its readers' streams.

        Parameters
        ----------
        plan : LayerPlan
        sources : sequence of BeatFormat
            Beats of each input.
        sinks : sequence of BeatFormat or None
            Beats that each reader takes; ``None`` for an output of the group, which has the beats of the FIFO.

        Raises
        ------
        ConfigError
            If the choices contradict each other.
        """

    def layer_config(
        self,
        compute: LayerCompute,
        finish: LayerFinish | None,
        lanes: int,
        plan: LayerPlan,
        sinks: Sequence[BeatFormat | None],
    ) -> LayerConfig:
        """Return the `LayerConfig` of a layer of this arithmetic and finish, with memories and FIFOs as planned.

        FIFO beats have ``lanes`` channels.
        """
        if isinstance(finish, ChannelsConfig):
            finish = replace(finish, tables_in=plan.tables_in)
        if isinstance(finish, RequantiseConfig):
            finish = replace(finish, products_in=plan.requantise_in)
        return self.layer_type(
            name=self.op.name,
            compute=compute,
            finish=finish,
            fifo_lanes=lanes,
            fifo_depths=plan.fifo_depths,
            fifos_in=plan.fifos_in,
            converts_first=plan.converts_first,
            outputs=tuple(sink or beat_format(self.op.output, lanes, plan.tp) for sink in sinks),
        )


@dataclass(frozen=True)
class WindowStage(Stage[Kind]):
    """Base class of the planner's models of layers with a line buffer, such as convolutions and pools."""

    def output_folds(self, source: BeatFormat, plan: LayerPlan) -> int:
        """Return the number of output folds (passes over ``Tm`` channels) per pixel; each reads the window."""
        if self.channelwise:
            return source.folds
        return source.groups * -(-self.op.outputs // source.groups // plan.tm)

    @abstractmethod
    def compute_and_finish(
        self, plan: LayerPlan, window: LineBufferConfig, lanes: int, beats: Beats
    ) -> tuple[LayerCompute, LayerFinish | None]:
        """Return a pair: `LayerCompute` (a layer's arithmetic), and `LayerFinish` (its requantiser) or ``None``.

        The finish is ``None`` if the results of the arithmetic are the outputs.

        Parameters
        ----------
        plan : LayerPlan
        window : LineBufferConfig
            Line buffer that delivers the windows.
        lanes : int
            Number of channels that are finished per cycle.
        beats : tuple of tuple of int
            Channels in each beat of an output pixel.
        """

    def window(self, plan: LayerPlan, source: BeatFormat) -> LineBufferConfig:
        """Return the `LineBufferConfig` of the line buffer that sends windows to the layer's arithmetic."""
        op = self.op
        return LineBufferConfig(
            device=self.device,
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

    def window_luts(self, tn: int, tk: int) -> int:
        source = beat_format(self.op.input, tn, 1, self.groups)
        outputs = tn if self.channelwise else 1
        plan = LayerPlan(
            name=self.op.name,
            kind=self.op.kind,
            tn=tn,
            tm=outputs,
            tk=tk,
            chain=1,
            line_rows=self.min_rows,
            fifo_depths=(),
        )
        return self.window(plan, source).resources.lut

    def layer(self, plan: LayerPlan, sources: Sequence[BeatFormat], sinks: Sequence[BeatFormat | None]) -> LayerConfig:
        (source,) = sources
        window = self.window(plan, source)
        lanes = plan.fifo_lanes or -(-plan.tm // window.steps)
        beats = output_beats(self.op, plan.tm, lanes, source.groups)
        return self.layer_config(*self.compute_and_finish(plan, window, lanes, beats), lanes, plan, sinks)


def output_beats(op: Op, lanes_in: int, lanes_out: int, groups: int) -> Beats:
    """Return `Beats`, an output pixel's channels by beat: ``lanes_in`` are computed at once, ``lanes_out`` sent."""
    shape = Shape(op.output.type.bits)
    return UnloadConfig(channels=op.outputs, lanes_in=lanes_in, lanes_out=lanes_out, shape=shape, groups=groups).beats


def channel_fields(
    stage: Stage[Any], accumulator_bits: int, bias: Sequence[int], lanes: int, beats: Beats, pixels: int
) -> dict[str, Any]:
    """Return, as a dictionary, keyword arguments of a circuit with per-channel parameters, such as a requantiser."""
    return {
        "device": stage.device,
        "lanes": lanes,
        "accumulator_bits": accumulator_bits,
        "bias": tuple(bias),
        "beats": beats,
        "pixels": pixels,
    }


def rule_fields(op: Op, rule: Requantisation) -> dict[str, Any]:
    """Return a dict of arguments of a requantiser's configuration that state ``rule``: factors, shifts, range, type."""
    return {
        "significand": tuple(rule.significand.tolist()),
        "shift": tuple(np.minimum(rule.shift, MAX_SHIFT).tolist() if op.loaded else rule.shift.tolist()),
        **{name: getattr(rule, name) for name in ("zero_point", "low", "high")},
        "bits": op.output.type.bits,
        "signed": op.output.type.signed,
    }


def requantiser(op: Op, rule: Requantisation, channels: dict[str, Any], fraction: int = 0) -> RequantiseConfig:
    """Return the `RequantiseConfig` for ``rule``; ``channels`` has lanes, beats, bias and other fields."""
    return RequantiseConfig(**channels, **rule_fields(op, rule), float32=rule.float32, fraction=fraction)
