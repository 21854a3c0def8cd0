"""Waves: frames and layers that are recorded, and what they say of beats, against the golden model."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from needs import needs_compiler
from vcd.reader import TokenKind, tokenize

import hwgen
from hwgen.errors import InputError
from hwgen.network import golden
from hwgen.simulate import Options, waves


@pytest.fixture(scope="module")
def design():
    """Two convolutions and a pool; the first two give beats of several channels."""
    return hwgen.load("decoilfnet-example").plan(board="zedboard", dsp=20, multipliers="dsp")


@pytest.fixture(scope="module")
def frames(design):
    return design.model.random_frames(3)


def cycles(path: Path) -> Iterator[dict[str, int]]:
    """All signals by name before each rising edge of the clock; unknown ones are not there."""
    names, scope, now, later = {}, [], {}, {}
    with path.open("rb") as file:
        for token in tokenize(file):
            if token.kind is TokenKind.SCOPE:
                scope.append(token.scope.ident)
            elif token.kind is TokenKind.UPSCOPE:
                scope.pop()
            elif token.kind is TokenKind.VAR:
                names.setdefault(token.var.id_code, []).append(".".join([*scope, token.var.reference]))
            elif token.kind is TokenKind.CHANGE_TIME:
                if later.get("TOP.clk") and not now.get("TOP.clk", 1):
                    yield now
                now = now | later
                later = {}
            elif token.kind in (TokenKind.CHANGE_SCALAR, TokenKind.CHANGE_VECTOR):
                change = token.scalar_change if token.kind is TokenKind.CHANGE_SCALAR else token.vector_change
                for name in names[change.id_code]:
                    later[name] = int(str(change.value), 2) if isinstance(change.value, str) else change.value


def maps(seen: Sequence[dict[str, int]], watched: waves.Watched, count: int) -> np.ndarray:
    """What a layer's stream says that it carried, put together by its own frames, rows, columns and channels."""
    beat = watched.beat
    made = np.full((count, beat.channels, beat.height, beat.width), -(1 << 31))
    scope = f"TOP.decoilfnet_example.{watched.scope}"
    for now in seen:
        if not now.get(f"{scope}.valid"):
            continue
        frame, row, column, channel = (now[f"{scope}.{name}"] for name in ("frame", "row", "column", "channel"))
        for lane in range(min(beat.lanes, beat.channels - channel)):
            value = now[f"{scope}.lane_{lane}"]
            value -= (value >> (beat.bits - 1) << beat.bits) * beat.signed
            made[frame, channel + lane, row, column] = value
    return made


@pytest.mark.long
@needs_compiler
def test_streams_say_what_they_carry(design, frames, tmp_path):
    path = tmp_path / "all.vcd"
    result = design.simulate(frames, waves=path)
    assert result.ok
    watched = waves.streams(design.config)
    assert max(each.beat.folds for each in watched) > 1
    seen = [*cycles(path)]
    layers = golden.trace(design.network, design.model.prepare(frames))
    for (_, expected), each in zip(layers, watched, strict=True):
        np.testing.assert_array_equal(maps(seen, each, 3), expected, each.layer)
    text = path.with_suffix(".gtkw").read_text()
    groups = [line[1:] for line in text.splitlines() if line.startswith("-")]
    assert groups == [name for layer in design.network.layers for name in (layer.name, layer.name)]
    recorded = set().union(*(now.keys() for now in seen))
    traced = [line.rpartition(" ")[2].partition("[")[0] for line in text.splitlines() if "TOP" in line]
    assert set(traced) - {"TOP.decoilfnet_example."} <= recorded | {"[treeopen]"}

    # Frame 1 of the pool alone.
    part = tmp_path / "part.vcd"
    assert design.simulate(frames, waves=part, wave_frames=(1, 2), wave_layers=["pool1"]).ok
    scope = "TOP.decoilfnet_example."
    seen = [*cycles(part)]
    names = {name.removeprefix(scope).partition(".")[0] for name in seen[-1] if name.startswith(scope)}
    assert names == {"pool1", "stream_pool1"}
    assert {now[f"{scope}stream_pool1.frame"] for now in seen if now[f"{scope}stream_pool1.valid"]} <= {0, 1}
    assert result.latency <= len(seen) < result.cycles
    assert part.with_suffix(".gtkw").read_text().count("\n-pool1\n") == 2


def test_a_save_file_of_somebody_else_stays(design, tmp_path):
    path, watched = tmp_path / "x.fst", waves.streams(design.config)
    waves.write_save_file(path, "top", watched, None)
    first = path.with_suffix(".gtkw").read_text()
    assert f'[dumpfile] "{path}"' in first
    waves.write_save_file(path, "top", watched, ["pool1"])
    assert path.with_suffix(".gtkw").read_text() != first
    path.with_suffix(".gtkw").write_text("[*] GTKWave Analyzer v3.3.118 (w)1999-2023 BSI\n")
    waves.write_save_file(path, "top", watched, None)
    assert path.with_suffix(".gtkw").read_text().count("\n") == 1


def test_packed_waves(tmp_path):
    """As fstapi.h of GTKWave 3.3.118 has it: a type of a byte, lengths in 64 bits, big end first, and gzip."""
    path = tmp_path / "x.fst"
    content = bytes(range(256)) * 20
    path.write_bytes(content)
    waves.pack(path)
    packed = path.read_bytes()
    kind, length, whole = struct.unpack(">BQQ", packed[:17])
    assert (kind, length, whole) == (254, len(packed) - 1, len(content))
    assert gzip.decompress(packed[17:]) == content
    assert list(tmp_path.iterdir()) == [path]
    other = tmp_path / "x.vcd"
    other.write_bytes(content)
    waves.pack(other)
    assert other.read_bytes() == content


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"wave_frames": (0, 1)}, "a choice of frames or layers needs waves of verilator: give waves"),
        (
            {"wave_layers": ("a",), "waves": "x.vcd", "simulator": "icarus"},
            "a choice of frames or layers needs waves of",
        ),
        ({"wave_frames": (2, 2), "waves": "x.vcd"}, "frames of waves must be FIRST:END with 0 <= FIRST < END, not 2:2"),
        ({"wave_frames": (-1, 2), "waves": "x.vcd"}, "frames of waves must be FIRST:END .* not -1:2"),
    ],
)
def test_choices_that_can_not_be(options, words):
    with pytest.raises(InputError, match=words):
        Options(**options)


def test_names_without_an_ending():
    assert Options(waves="x").wave_file == Path("x.fst").absolute()
    assert Options(waves="x", simulator="amaranth").wave_file == Path("x.vcd").absolute()


def test_what_is_not_there_is_refused(design, frames, tmp_path):
    with pytest.raises(InputError, match="waves can't record layer 'conv9': the layers are conv1, conv2, pool1"):
        design.simulate(frames, waves=tmp_path / "x.vcd", wave_layers=["conv9"])
    with pytest.raises(InputError, match="waves can't begin at frame 3: frames are 0 to 2"):
        design.simulate(frames, waves=tmp_path / "x.vcd", wave_frames=(3, 4))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--wave-frames", "0:1"], "--wave-frames selects what --waves records: give --waves as well"),
        (["--wave-frames", "1", "--waves", "x"], "frames must be A:B, such as 0:8, not '1'"),
        (["--wave-frames", "2:1", "--waves", "x"], "frames must be A:B, such as 0:8, not '2:1'"),
        (["--wave-layers", "a", "--waves", "x", "--simulator", "icarus"], "--wave-layers needs --simulator verilator"),
        (["--wave-layers", "a", "--waves", "x", "--engine", "y"], "one frame and the whole engine"),
        (["--wave-layers", "a", "--waves", "x"], "waves can't record layer 'a'"),
    ],
)
def test_command_line_refuses(options, words, capsys):
    from hwgen.cli.main import main

    board = [] if "--engine" in options else ["--board", "zedboard", "--dsp", "20"]
    try:
        status = main(["simulate", "decoilfnet-example", *board, "--random", "1", *options])
    except SystemExit as stop:
        status = stop.code
    assert status == 2
    assert words in capsys.readouterr().err
