"""Readable waveforms: choice of layers, decoders of the layers' streams, and save files for GTKWave.

Next to each layer, a decoder module counts the beats that the layer sends. For each transfer it shows the frame, the
row and column of the first pixel, the first channel, and the value of each lane. Decoders are added only to Verilog
that is simulated for waves. The hardware does not read their signals.
"""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcd.gtkw import GTKWSave

from hwgen.errors import InputError
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.stream import BeatFormat, Order
from hwgen.simulate.loading import LoadingConfig

MARK = "written by hwgen simulate"
"""Text in the first line of hwgen's save files. A save file that a user saves in GTKWave has another first line."""
LANES = 64
"""Maximum number of values per beat (lanes times pixels) that a waveform decoder shows as one signal each."""


@dataclass(frozen=True)
class Watched:
    """Output stream of a layer that waveforms show decoded: layer, instance, beat format and order.

    Parameters
    ----------
    layer : str
        Name of the layer in the plan.
    instance : str
        Name of the layer's instance in the Verilog.
    beat : BeatFormat
        Format of the stream's beats.
    order : Order
        Order of the stream's pixels.
    path : str
        Path of instances from the top module to the layer, with a dot after each; empty for a layer of the top.
    """

    layer: str
    instance: str
    beat: BeatFormat
    order: Order
    path: str = ""

    @property
    def scope(self) -> str:
        """Name of the Verilog instance that decodes the stream for waveforms, such as ``stream_conv1``."""
        return f"stream_{self.instance}"

    @property
    def signals(self) -> dict[str, tuple[int, bool]]:
        """Dict of signals of the stream's waveform decoder: name, mapped to width in bits and whether it is signed.

        Row, column and channel exist only for a stream in row-major order.
        """
        signals = {"valid": (1, False), "last": (1, False), "frame": (32, False), "beat": (32, False)}
        if self.order == self.beat.raster:
            signals |= {"row": (16, False), "column": (16, False), "channel": (16, False)}
        return signals | dict.fromkeys(self.values, (self.beat.bits, self.beat.signed))

    @property
    def values(self) -> dict[str, int]:
        """Dictionary by signal name in the decoder: lowest payload bit of each value of a beat.

        Empty for a beat with more than `LANES` values.
        """
        count, pixels = self.beat.lanes, self.beat.pixels
        if count * pixels > LANES:
            return {}
        values = [(lane, pixel) for lane in range(count) for pixel in range(pixels)]
        return {
            f"lane_{lane}" + (f"_pixel_{pixel}" if pixels > 1 else ""): (lane * pixels + pixel) * self.beat.bits
            for lane, pixel in values
        }


def streams(config: Any) -> tuple[Watched, ...]:
    """Return a tuple of the output streams of an accelerator's layers, as `Watched`; empty for other configurations."""
    path = ""
    if isinstance(config, LoadingConfig):
        config, path = config.inner, config.path
    if not isinstance(config, AcceleratorConfig):
        return ()
    layers = [layer.name for layer in config.layers]
    paths = [path] * len(layers)
    return tuple(map(Watched, layers, config.instances, config.taps, config.tap_orders, paths))


def chosen(watched: Sequence[Watched], layers: Sequence[str] | None) -> list[Watched]:
    """Return a list of each `Watched` stream of the layers named in ``layers``, or all streams for ``None``.

    Raises
    ------
    InputError
        If there is no layer of one of the names.
    """
    if layers is None:
        return [*watched]
    names = [stream.layer for stream in watched]
    if unknown := [name for name in layers if name not in names]:
        raise InputError(f"waves can't record layer {unknown[0]!r}: the layers are {', '.join(names) or 'none'}")
    return [stream for stream in watched if stream.layer in layers]


def scopes(top: str, watched: Sequence[Watched], layers: Sequence[str] | None) -> list[str]:
    """Return a list of Verilator scope names to record: clock, reset, instance and decoder of each chosen layer.

    Everything inside a scope is recorded. The list is empty if the whole design is recorded.
    """
    if layers is None:
        return []
    return ["TOP.clk", "TOP.rst"] + [
        f"TOP.{top}.{name}"
        for stream in chosen(watched, layers)
        for name in (stream.path + stream.instance, stream.scope)
    ]


# Verilog


def with_decoders(files: Mapping[str, bytes], top: str, watched: Sequence[Watched]) -> dict[str, bytes]:
    """Return a dict of an accelerator's files (bytes by name), with waveform decoders added to the Verilog."""
    text = files[f"{top}.v"].decode(errors="surrogateescape")
    end = text.index("endmodule", text.index(f"module {top} ("))
    lines = [
        f"    {top}_{stream.scope} {stream.scope} (.clk(clk), .rst(rst), .valid(tap_{index}__valid), "
        f".payload(tap_{index}__payload));\n"
        for index, stream in enumerate(watched)
    ]
    modules = [_module(f"{top}_{stream.scope}", stream) for stream in watched]
    whole = "\n".join([text[:end] + "".join(lines) + text[end:], *modules])
    return {**files, f"{top}.v": whole.encode(errors="surrogateescape")}


def _module(name: str, watched: Watched) -> str:
    """Return a Verilog module that decodes a stream's beats into frame, position and values, for waves."""
    beat = watched.beat
    lines = [
        f"module {name} (input wire clk, input wire rst, input wire valid, input wire [{beat.data_bits}:0] payload);",
        f"    wire last = payload[{beat.data_bits}];",
        "    reg [31:0] frame = 32'd0;",
        "    reg [31:0] beat = 32'd0;",
        *(
            f"    wire {'signed ' * beat.signed}[{beat.bits - 1}:0] {value} = payload[{low} +: {beat.bits}];"
            for value, low in watched.values.items()
        ),
        *(_position(beat) if "row" in watched.signals else ()),
        "    always @(posedge clk)",
        "        if (rst) begin",
        "            frame <= 32'd0;",
        "            beat <= 32'd0;",
        "        end else if (valid) begin",
        "            beat <= last ? 32'd0 : beat + 32'd1;",
        "            if (last) frame <= frame + 32'd1;",
        "        end",
        "endmodule",
    ]
    return "\n".join(lines) + "\n"


def _position(beat: BeatFormat) -> list[str]:
    """Return a list of the lines of Verilog that count the row, column and channel of a beat in row-major order."""
    steps = -(-beat.width // beat.pixels)
    firsts = [channels[0] for channels in beat.fold_channels]
    choices = "".join(f"fold == 16'd{fold} ? 16'd{channel} : " for fold, channel in enumerate(firsts[:-1]))
    return [
        "    reg [15:0] row = 16'd0;",
        "    reg [15:0] column = 16'd0;",
        "    reg [15:0] fold = 16'd0;",
        f"    wire [15:0] channel = {choices}16'd{firsts[-1]};",
        f"    wire fold_ends = fold == 16'd{beat.folds - 1};",
        f"    wire row_ends = fold_ends & column == 16'd{(steps - 1) * beat.pixels};",
        "    always @(posedge clk)",
        "        if (rst | (valid & last)) begin",
        "            row <= 16'd0;",
        "            column <= 16'd0;",
        "            fold <= 16'd0;",
        "        end else if (valid) begin",
        "            fold <= fold_ends ? 16'd0 : fold + 16'd1;",
        f"            if (fold_ends) column <= row_ends ? 16'd0 : column + 16'd{beat.pixels};",
        "            if (row_ends) row <= row + 16'd1;",
        "        end",
    ]


# GTKWave


def save_file(waves: Path, top: str, watched: Sequence[Watched], layers: Sequence[str] | None) -> str:
    """Return the text of a save file for GTKWave, which has a group with the decoder's signals for each layer."""
    text = io.StringIO()
    save = GTKWSave(text)
    save.comment(MARK)
    save.dumpfile(str(waves))
    save.treeopen(f"TOP.{top}.")
    for name in ("clk", "rst"):
        save.trace(f"TOP.{name}")
    for stream in chosen(watched, layers):
        with save.group(stream.layer):
            for name, (width, signed) in stream.signals.items():
                bits = f"[{width - 1}:0]" if width > 1 else ""
                save.trace(f"TOP.{top}.{stream.scope}.{name}{bits}", alias=name, datafmt="signed" if signed else "dec")
    return text.getvalue()


def pack(waves: Path) -> None:
    """Compress a complete FST waveform file once more, as GTKWave does, which makes it about a third smaller.

    The result is a block of type 254 (``FST_BL_ZWRAPPER`` in GTKWave's ``fstapi.h``): the length of the block without
    its first byte, the length of the original file, and the original file compressed by gzip. Files of other formats
    stay as they are.
    """
    if waves.suffix != ".fst":
        return
    waves = waves.resolve()  # replace the target of a symbolic link, not the link
    content = waves.read_bytes()
    packed = gzip.compress(content, 6, mtime=0)
    part = waves.with_name(f".{waves.name}.part")
    try:
        part.write_bytes(struct.pack(">BQQ", 254, 16 + len(packed), len(content)) + packed)
        part.replace(waves)
    finally:
        part.unlink(missing_ok=True)


def write_save_file(waves: Path, top: str, watched: Sequence[Watched], layers: Sequence[str] | None) -> None:
    """Write a save file for GTKWave next to the waves, unless a user has saved another one there."""
    path = waves.with_suffix(".gtkw")
    if not path.exists() or MARK in path.read_text(errors="replace").partition("\n")[0]:
        path.write_text(save_file(waves, top, watched, layers))
