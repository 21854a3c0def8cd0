"""Thresholds in place of a requantiser if outputs have few bits: an output is the number of thresholds reached."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hwgen.devices import Device
from hwgen.gateware.requantise import RequantiseConfig
from hwgen.gateware.threshold import ThresholdConfig
from hwgen.network.maps import IntegerType, Rule

FEW_THRESHOLDS = 3
"""Maximum number of thresholds per channel that always replace a requantiser (3, for outputs of 2 bits)."""
MAX_THRESHOLDS = 15
"""Maximum number of thresholds per channel that replace a requantiser if they take fewer LUTs (15, for 4 bits)."""


def threshold_config(
    rule: Rule,
    integer_type: IntegerType,
    accumulator_bits: int,
    bias: Sequence[int],
    fraction: int,
    *,
    lanes: int,
    beats: tuple[tuple[int, ...], ...],
    pixels: int,
    device: Device,
) -> ThresholdConfig:
    """Return the `ThresholdConfig` of a circuit that maps accumulators to ``rule``'s outputs by channel.

    Parameters
    ----------
    rule : Requantisation or Thresholds
        Rule that turns accumulators, with bias, into outputs.
    integer_type : IntegerType
        Type of the outputs.
    accumulator_bits : int
        Width of an accumulator, signed.
    bias : sequence of int
        Bias of each channel, with ``fraction`` fractional bits.
    lanes, beats, pixels
        Number of channels per beat, channels of each beat of a pixel, and number of pixels per beat.
    device : Device
        Device family of the hardware.
    """
    first = first_accumulators(rule, accumulator_bits, bias, fraction)
    return ThresholdConfig(
        device=device,
        lanes=lanes,
        accumulator_bits=accumulator_bits,
        thresholds=tuple(map(tuple, first.tolist())),
        low=rule.low,
        bits=integer_type.bits,
        signed=integer_type.signed,
        beats=beats,
        pixels=pixels,
        by_channel=True,
    )


def should_replace(config: ThresholdConfig, requantiser: RequantiseConfig) -> bool:
    """Return whether thresholds should replace a requantiser with the same outputs, because they take less hardware.

    Up to `FEW_THRESHOLDS` always do, as the requantiser would need a DSP slice or a product in LUTs. More thresholds do
    if the requantiser multiplies in LUTs and takes more LUTs. Thresholds whose tables are deeper than a ROM in LUTs
    never do.
    """
    count = len(config.thresholds[0])
    if len(config.beats) << max(config.levels - 1, 0) > config.memories.deepest_lut_rom:
        return False
    in_luts = requantiser.products_in == "lut"
    return count <= FEW_THRESHOLDS or (in_luts and config.resources.lut < requantiser.resources.lut)


def first_accumulators(rule: Rule, accumulator_bits: int, bias: Sequence[int], fraction: int) -> np.ndarray:
    """Return the smallest accumulator that gives at least each output, by channel and output, as an array.

    The result is int64 ``(channels, high - low)``. An entry is one more than the largest accumulator if no accumulator
    gives the output.
    """
    largest = (1 << (accumulator_bits - 1)) - 1
    biases = np.array(bias, np.int64)[:, None]
    bound = int(np.abs(biases).max()) + ((largest + 1) << fraction)
    levels = np.arange(rule.low + 1, rule.high + 1)[None, :]
    before = np.full((len(biases), levels.size), -largest - 2)
    first = np.full((len(biases), levels.size), largest + 1)
    while (searching := first - before > 1).any():
        middle = (before + first) // 2
        reached = rule.outputs((middle << fraction) + biases, bound) >= levels
        first = np.where(searching & reached, middle, first)
        before = np.where(searching & ~reached, middle, before)
    return first
