"""Unknown bits in Icarus: what lies past a row's end may be unknown, what carries a value must not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from accelerators import a_requantisation, frames_for, ragged
from needs import needs_icarus

from hwgen import simulate
from hwgen.boards import load as load_board
from hwgen.errors import CheckError
from hwgen.gateware.stream import BeatFormat
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.network.maps import INT32, UINT8, FeatureMap, Window
from hwgen.network.ops import Conv, MaxPool
from hwgen.plan import make
from hwgen.simulate import icarus, runner, stimuli

pytestmark = needs_icarus


def network() -> Network:
    """2 x 9 x 11; convolutions 4 k3 p1, 6 k3 p1, 5 k1, with a pool behind the first."""
    rng = np.random.default_rng(0)
    layers: list = []
    before = FeatureMap(channels=2, height=9, width=11, type=UINT8)
    for name, outputs, kernel, padding in (
        ("conv1", 4, 3, 1),
        ("pool", 0, 2, 0),
        ("conv2", 6, 3, 1),
        ("conv3", 5, 1, 0),
    ):
        stride = (1, 1) if outputs else (2, 2)
        window = Window(kernel=(kernel,) * 2, stride=stride, padding=(padding,) * 4)
        height, width = window.output_size(before.height, before.width)
        after = replace(before, channels=outputs or before.channels, height=height, width=width)
        common = {"name": name, "input": before, "output": after, "window": window}
        if outputs:
            weights = rng.integers(-128, 128, (outputs, before.channels, kernel, kernel))
            bias = rng.integers(-1000, 1000, outputs)
            raw = Conv(
                **{**common, "output": replace(after, type=INT32)}, weights=weights, bias=bias, requantisation=None
            )
            layers.append(replace(raw, output=after, requantisation=a_requantisation(rng, replace(raw, output=after))))
        else:
            layers.append(MaxPool(**common))
        before = after
    return Network(name="rows", layers=tuple(layers))


@pytest.mark.long
def test_lanes_past_the_ends_of_rows():
    """Rows of five pixels in beats of more than one: the last beat of a row has lanes that nothing ever wrote."""
    this = network()
    plan = make(this, load_board("vc709"), dsp=400)
    frames = frames_for(this, 2, 0)
    result = simulate.run(plan.configure(), frames, simulate.Options(simulator="icarus", taps=True))
    assert plan.configure().output.pixels > 1
    np.testing.assert_array_equal(result.outputs, golden.run(this, frames))
    for number, (_, values) in enumerate(golden.trace(this, frames)):
        np.testing.assert_array_equal(result.taps[number].reshape(values.shape), values)


def spoiled(text: str, top: str, width: int, payload: int, when: str, bit: int) -> str:
    """A module around the one emitted: a bit of the output is unknown in some beats, by their ``number``."""
    wrapper = f"""
module {top}(input clk, input rst, input [{width - 1}:0] i__payload, input i__valid, output i__ready,
             output [{payload - 1}:0] o__payload, output o__valid, input o__ready,
             output frame_error__short, output frame_error__long, input frame_error__clear);
    wire [{payload - 1}:0] o;
    integer number = 0;
    always @(posedge clk) if (rst) number <= 0; else if (o__valid && o__ready) number <= number + 1;
    assign o__payload = {when} ? o ^ ({payload}'b0 | 1'bx << {bit}) : o;
    inner inner(.clk(clk), .rst(rst), .i__payload(i__payload), .i__valid(i__valid), .i__ready(i__ready),
                .o__payload(o), .o__valid(o__valid), .o__ready(o__ready),
                .frame_error__short(frame_error__short), .frame_error__long(frame_error__long),
                .frame_error__clear(frame_error__clear));
endmodule
"""
    assert text.count(f"module {top} (") == 1
    return text.replace(f"module {top} (", "module inner (") + wrapper


@pytest.mark.parametrize(
    ("step", "bit", "counts"), [(1, 32, False), (1, 63, False), (1, 0, True), (0, 32, True), (1, "last", True)]
)
def test_unknown_bits_put_in(monkeypatch, step, bit, counts):
    """Rows of three pixels in beats of two: the second pixel of a row's second beat is none."""
    config, frames, expected = ragged()
    beat = config.output
    assert (beat.pixels, beat.width, beat.bits) == (2, 3, 32)
    bit = beat.data_bits if bit == "last" else bit
    emitted, name = runner.files, f"{config.name}.v"

    def files(*arguments, **options):
        when = f"number / {beat.folds} % 2 == {step}"
        content = emitted(*arguments, **options)
        text = spoiled(content[name].decode(), config.name, config.input.data_bits + 1, beat.data_bits + 1, when, bit)
        return {**content, name: text.encode()}

    monkeypatch.setattr(runner, "files", files)
    if counts:
        with pytest.raises(CheckError, match="unknown"):
            simulate.run(config, frames, simulate.Options(simulator="icarus"))
    else:
        np.testing.assert_array_equal(
            simulate.run(config, frames, simulate.Options(simulator="icarus")).outputs, expected
        )


def test_unknown_bits_of_watched_streams():
    """Three channels in two folds of two, three pixels in beats of two: what each beat of a frame carries."""
    beat = BeatFormat(channels=3, height=1, width=3, lanes=2, bits=4, signed=False, pixels=2)
    assert stimuli.value_bits(beat) == [0x1FFFF, 0x100FF, 0x10F0F, 0x1000F]
    free = ["0abcd", "=0zzzzxxxx00010010", "=0xxxx0001zzzz0010", "=1xxxxxxxxxxxx1001"]
    assert icarus._payloads_to_integers(free * 2, beat, beat.raster, "here") == [0xABCD, 0x12, 0x102, 0x10009] * 2
    for position, line in ((0, "=00000zxxx00010010"), (1, "=000000000000x0010"), (3, "=x0000000000000000")):
        with pytest.raises(CheckError, match=rf"^here, beat {position} of frame 1 \(icarus\)$"):
            icarus._payloads_to_integers([*free, *free[:position], line], beat, beat.raster, "here")
