"""Products and sums of small convolutions, for each multiplier, and the obligation that states them."""

from dataclasses import replace

import numpy as np
from proofs import MODULE

from hwgen.devices.ultrascale_plus import ULTRASCALE_PLUS
from hwgen.devices.xilinx7 import XILINX7
from hwgen.gateware import multiply_proof
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.weights import Weights
from hwgen.obligations.modules import modules_of
from hwgen.obligations.obligation import Site


def convolution(
    macs_per_dsp,
    bits=8,
    *,
    channels=8,
    lanes=4,
    least=None,
    signed=False,
    pixels=1,
    weight_seed=None,
    device=XILINX7,
    **options,
):
    """Return a convolution of 1 x 1 taps with five output channels, three of them at once, in two steps by default.

    ``least`` is the smallest weight, by default the negative of the largest one. Weights are these two in turn, or
    random ones with a ``weight_seed``.
    """
    most = (1 << bits - 1) - 1
    window = LineBufferConfig(
        device=device,
        input=BeatFormat(channels=channels, height=2, width=4, lanes=lanes, bits=bits, signed=signed, pixels=pixels),
        kernel=(1, 1),
        stride=(1, 1),
        padding=(0, 0, 0, 0),
        pad_value=0,
        taps=1,
        output_folds=2,
        channelwise=False,
        rows=1,
        pixels=pixels,
    )
    weights = np.resize([most, -most if least is None else least], 5 * channels)
    if weight_seed is not None:
        weights = np.random.default_rng(weight_seed).integers(-most, most + 1, 5 * channels)
    return MultiplyConfig(
        window=window,
        outputs=5,
        lanes=3,
        weights=Weights(weights.tolist()),
        weight_bits=bits,
        macs_per_dsp=macs_per_dsp,
        **{"sum_bits": 2 * bits + 5, "chain": 2, **options},
    )


def of_windows(lanes, **options):
    """Return a convolution of 1 x 1 taps that computes three output channels of ``lanes`` inputs in one step."""
    config = convolution(2, channels=lanes, lanes=lanes)
    weights = np.arange(3 * lanes) * 37 % 255 - 127
    made = replace(config, window=replace(config.window, output_folds=1), outputs=3, weights=Weights(weights.tolist()))
    made = replace(made, **options)
    assert made.kinds.whole
    return made


def depthwise(macs_per_dsp):
    """Return a depthwise convolution of 2 x 1 taps, four channels in two folds, two taps at once."""
    window = LineBufferConfig(
        input=BeatFormat(channels=4, height=3, width=3, lanes=2, bits=8, signed=True),
        kernel=(2, 2),
        stride=(1, 1),
        padding=(0, 0, 0, 0),
        pad_value=0,
        taps=2,
        output_folds=2,
        channelwise=True,
        rows=3,
    )
    weights = Weights([3, -5, 127, -127] * 4)
    return MultiplyConfig(
        window=window, outputs=4, lanes=2, weights=weights, weight_bits=8, sum_bits=18, macs_per_dsp=macs_per_dsp
    )


CONFIGS = {
    "plain": convolution(1),
    "plain, one step": convolution(1, channels=4),
    "plain, one chain": convolution(1, chain=4),
    "two": convolution(2),
    "two, signed": convolution(2, signed=True),
    "two, one step": convolution(2, channels=4),
    "two, weights in block RAM": convolution(2, weights_in="block", weights_joined=True),
    "two, loaded": convolution(2, loaded=True),
    "two, a channel in LUTs": convolution(2, weights_in="block", lut_lanes=1),
    "all in LUTs": convolution(1, 4, weights_in="block", lut_lanes=3),
    "binary weights": convolution(1, 2, weights_in="block", lut_lanes=3),
    "two-wide": convolution("2-wide"),
    "two-full": convolution("2-full", least=-128),
    "pixels": convolution("2-pixels", pixels=2),
    "pixels, full": convolution("2-pixels-full", pixels=2, least=-128),
    "pixels, wide": convolution("2-pixels-wide", pixels=2, signed=True),
    "four": convolution(4, 4, pixels=2),
    "four, signed": convolution(4, 4, pixels=2, signed=True),
    "four-wide": convolution("4-wide", 4, pixels=2),
    "slices": convolution(1, device=ULTRASCALE_PLUS),
    "slices, two": convolution("2-wide", device=ULTRASCALE_PLUS),
    "slices, four": convolution(4, 4, pixels=2, device=ULTRASCALE_PLUS),
    "depthwise": depthwise(1),
    "windows": of_windows(4),
    "windows, in LUTs": of_windows(5, lut_lanes=3),
    "windows, a channel in LUTs": of_windows(5, lut_lanes=1),
    "windows, five addends and a bias": of_windows(4, chain=1, bias=(5, -7, 100)),
    "windows, two levels": of_windows(10, bias=(5, -7, 100)),
}


def obligation_of(config, verilog):
    modules = modules_of(verilog)
    site = Site("", modules[MODULE], modules)
    (obligation,) = multiply_proof.of_convolution(config, site)
    assert len(obligation.asserts) == config.lanes * config.window.pixels + 1  # and the width
    return obligation
