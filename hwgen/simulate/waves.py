"""Waves that people can read: which frames and layers are recorded, what beats mean, and how a viewer groups them.

Beside each layer a module counts the beats that leave it and says of each transfer what it carries: the frame, the row
and the column of its first pixel, its first channel, and the value of each lane. It is added to the Verilog that is
simulated for waves; nothing of the hardware reads it.
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
from hwgen.gateware.names import identifiers
from hwgen.gateware.stream import BeatFormat, Order

__all__ = ["MARK", "Watched", "chosen", "decoded", "pack", "save_file", "scopes", "streams", "write_save_file"]

MARK = "written by hwgen simulate"
"""In the first line of a save file: GTKWave writes another when somebody saves theirs."""
LANES = 64
"""Lanes and pixels of a beat whose values have a signal of their own, at most."""


@dataclass(frozen=True)
class Watched:
    """The stream that leaves a layer.

    Parameters
    ----------
    layer : str
        As the plan calls it.
    instance : str
        As the Verilog calls it.
    beat : BeatFormat
    order : Order
    """

    layer: str
    instance: str
    beat: BeatFormat
    order: Order

    @property
    def scope(self) -> str:
        """The module beside the layer."""
        return f"stream_{self.instance}"

    @property
    def signals(self) -> dict[str, tuple[int, bool]]:
        """What the module says: width, and whether it is signed."""
        found = {"valid": (1, False), "last": (1, False), "frame": (32, False), "beat": (32, False)}
        if self.order == self.beat.raster:
            found |= {"row": (16, False), "column": (16, False), "channel": (16, False)}
        return found | dict.fromkeys(self.values, (self.beat.bits, self.beat.signed))

    @property
    def values(self) -> dict[str, int]:
        """The values of a beat by name, with their lowest bits."""
        count, pixels = self.beat.lanes, self.beat.pixels
        if count * pixels > LANES:
            return {}
        places = [(lane, pixel) for lane in range(count) for pixel in range(pixels)]
        return {
            f"lane_{lane}" + (f"_pixel_{pixel}" if pixels > 1 else ""): (lane * pixels + pixel) * self.beat.bits
            for lane, pixel in places
        }


def streams(config: Any) -> tuple[Watched, ...]:
    """The layers' streams of an accelerator; none of anything else."""
    if not isinstance(config, AcceleratorConfig):
        return ()
    layers = [layer.name for layer in config.layers]
    instances = identifiers([*layers, *(f"guard_{port.name}" for port in config.input_ports)])[: len(layers)]
    return tuple(map(Watched, layers, instances, config.taps, config.tap_orders))


def chosen(watched: Sequence[Watched], layers: Sequence[str] | None) -> list[Watched]:
    """Those of some layers, or all.

    Raises
    ------
    InputError
        If there is no such layer.
    """
    if layers is None:
        return [*watched]
    names = [each.layer for each in watched]
    if unknown := [name for name in layers if name not in names]:
        raise InputError(f"waves can't be of layer {unknown[0]!r}: there are {', '.join(names) or 'no layers'}")
    return [each for each in watched if each.layer in layers]


def scopes(top: str, watched: Sequence[Watched], layers: Sequence[str] | None) -> list[str]:
    """What is recorded, with all that is in it; everything where no layers are chosen."""
    if layers is None:
        return []
    return ["TOP.clk", "TOP.rst"] + [
        f"TOP.{top}.{name}" for each in chosen(watched, layers) for name in (each.instance, each.scope)
    ]


# Verilog


def decoded(files: Mapping[str, bytes], top: str, watched: Sequence[Watched]) -> dict[str, bytes]:
    """Files of an accelerator with ``taps``, with a module beside each layer that says what its stream carries."""
    text = files[f"{top}.v"].decode(errors="surrogateescape")
    end = text.index("endmodule", text.index(f"module {top} ("))
    lines = [
        f"    {top}_{each.scope} {each.scope} (.clk(clk), .rst(rst), .valid(tap_{number}__valid), "
        f".payload(tap_{number}__payload));\n"
        for number, each in enumerate(watched)
    ]
    modules = [_module(f"{top}_{each.scope}", each) for each in watched]
    whole = "\n".join([text[:end] + "".join(lines) + text[end:], *modules])
    return {**files, f"{top}.v": whole.encode(errors="surrogateescape")}


def _module(name: str, watched: Watched) -> str:
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
        *(_place(beat) if "row" in watched.signals else ()),
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


def _place(beat: BeatFormat) -> list[str]:
    """Row, column and channel of a beat that comes in row-major order, by counters."""
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
    """A save file of GTKWave: a group for each layer, with what its stream carries."""
    text = io.StringIO()
    save = GTKWSave(text)
    save.comment(MARK)
    save.dumpfile(str(waves))
    save.treeopen(f"TOP.{top}.")
    for name in ("clk", "rst"):
        save.trace(f"TOP.{name}")
    for each in chosen(watched, layers):
        with save.group(each.layer):
            for name, (width, signed) in each.signals.items():
                bits = f"[{width - 1}:0]" if width > 1 else ""
                save.trace(f"TOP.{top}.{each.scope}.{name}{bits}", alias=name, datafmt="signed" if signed else "dec")
    return text.getvalue()


def pack(waves: Path) -> None:
    """Make waves that are whole a third smaller: FST files may be compressed once more, as GTKWave itself does it.

    The block of type 254 (``FST_BL_ZWRAPPER`` in GTKWave's ``fstapi.h``) has its own length without its first byte,
    the file's length, and the file as gzip has it.
    """
    if waves.suffix != ".fst":
        return
    waves = waves.resolve()  # what a symbolic link leads to is replaced, not the link
    content = waves.read_bytes()
    packed = gzip.compress(content, 6, mtime=0)
    part = waves.with_name(f".{waves.name}.part")
    try:
        part.write_bytes(struct.pack(">BQQ", 254, 16 + len(packed), len(content)) + packed)
        part.replace(waves)
    finally:
        part.unlink(missing_ok=True)


def write_save_file(waves: Path, top: str, watched: Sequence[Watched], layers: Sequence[str] | None) -> None:
    """Write it beside the waves, unless somebody has saved their own there."""
    path = waves.with_suffix(".gtkw")
    if not path.exists() or MARK in path.read_text(errors="replace").partition("\n")[0]:
        path.write_text(save_file(waves, top, watched, layers))
