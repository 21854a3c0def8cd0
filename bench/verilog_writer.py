"""hwgen's Verilog writer beside Amaranth's own back end: seconds, lines, characters.

Usage: python bench/verilog_writer.py [--board B] [--dsp N] [MODEL ..]     (default: examples/digits, zedboard)

Each writer makes the Verilog of one accelerator from its component, in a process of its own and without hwgen's cache;
the seconds are those of the processor, children included. All begin with the elaboration and Amaranth's RTLIL, the row
``rtlil``. The row ``amaranth`` is ``amaranth.back.verilog.convert`` as it stands, by the Yosys that Amaranth's extra
``builtin-yosys`` installs. In the row ``apart`` it leaves out the comments with source lines, and has hwgen's own small
modules in place of large memories, so that the contents of these are in none of the two texts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from amaranth.back import rtlil
from amaranth.back import verilog as amaranth_verilog

import hwgen
from hwgen.devices import DEFAULT
from hwgen.gateware.accelerator import Accelerator
from hwgen.verilog import convert
from hwgen.verilog.writer import WriterPlatform

DIGITS = Path(__file__).parent.parent / "examples" / "digits" / "digits.onnx"
WRITERS = ("rtlil", "hwgen", "amaranth", "apart")


class LargeMemories:
    """Platform that puts hwgen's small modules in place of large memories, and elaborates all else."""

    def __init__(self, component: Accelerator) -> None:
        self.get_memory = WriterPlatform("top", component, DEFAULT).get_memory


def write(writer: str, component: Accelerator) -> str:
    """Return the text that one writer makes of an accelerator."""
    if writer == "hwgen":
        return convert(component, "top")["top.v"].decode()
    if writer == "amaranth":
        return str(amaranth_verilog.convert(component, "top"))
    platform = LargeMemories(component)
    if writer == "rtlil":
        return str(rtlil.convert(component, "top", platform))
    return str(amaranth_verilog.convert(component, "top", platform, emit_src=False))


def measure(writer: str, model: str, board: str, dsp: int | None) -> dict[str, Any]:
    """Return the seconds, lines and characters of one writer's text of a model's accelerator."""
    design = hwgen.load(model).plan(board, dsp=dsp, multipliers="dsp")
    component = Accelerator(design.plan.configs()[0])
    begin = sum(os.times()[:4])
    text = write(writer, component)
    return {"seconds": sum(os.times()[:4]) - begin, "lines": text.count("\n"), "characters": len(text)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="*", default=[str(DIGITS)])
    parser.add_argument("--board", default="zedboard")
    parser.add_argument("--dsp", type=int)
    parser.add_argument("--writer", choices=WRITERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.writer:
        print(json.dumps(measure(arguments.writer, arguments.model[0], arguments.board, arguments.dsp)))
        return
    options = ["--board", arguments.board, *([] if arguments.dsp is None else ["--dsp", str(arguments.dsp)])]
    print(f"{'model':12} {'writer':9} {'seconds':>8} {'lines':>8} {'characters':>11}")
    for model in arguments.model:
        name = Path(model).stem
        for writer in WRITERS:
            with tempfile.TemporaryDirectory() as cache:
                run = subprocess.run(
                    [sys.executable, __file__, model, "--writer", writer, *options],
                    env=os.environ | {"HWGEN_CACHE": cache},
                    stdout=subprocess.PIPE,
                    check=True,
                )
            row = json.loads(run.stdout)
            print(f"{name:12} {writer:9} {row['seconds']:8.1f} {row['lines']:8,} {row['characters']:11,}", flush=True)


if __name__ == "__main__":
    main()
