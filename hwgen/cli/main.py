"""Command line ``hwgen``: the parser of all commands, and the exit status for errors and signals.

The exit status is 0 if the work is done, 1 if a check failed, 2 for bad input, and 128 + n after signal n (130 if
interrupted). Bad input causes one line on stderr, or a line for each of several causes.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from io import TextIOWrapper

from hwgen import printable, processes, progress
from hwgen.cli import (
    block,
    cache,
    check,
    compare,
    engine,
    explore,
    lists,
    plan,
    prove,
    quantise,
    report,
    route,
    simulate,
    sweep,
    synth,
    weights,
)
from hwgen.cli.options import Parser
from hwgen.errors import CheckError, HwgenError
from hwgen.options import called_as_typed

EXAMPLES = r"""examples, in the folder of the sources:
  hwgen check examples/digits/digits.onnx --board zedboard
  hwgen quantise examples/digits/digits-float.onnx --calibration examples/digits/calibration.npy -o build/q.onnx
  hwgen plan examples/digits/digits.onnx --board zedboard
  hwgen build examples/digits/digits.onnx --board zedboard -o build/digits
  hwgen simulate examples/digits/digits.onnx --board zedboard --input examples/digits/images.npy --output logits.npy
  hwgen compare examples/digits/digits.onnx --board zedboard --input examples/digits/images.npy \
      --labels examples/digits/labels.npy
  hwgen plan vgg16:7@64x64 --board vc709 --dsp 2000 -o plan.json
  hwgen plan vgg16:7@64x64 --board vc709 --objective dsp --interval 1000000
  hwgen plan vgg16:7@64x64 --board vc709 --template pyramid --tile 4x4 --overlap reuse
  hwgen build vgg16:7@64x64 --board vc709 --plan plan.json
  hwgen synth examples/digits/digits.onnx --board zedboard --json synth.json
  hwgen route build/digits-ulx3s --seed 2
  hwgen block '56x56x128->256 k3' --memory 32KB,8MB --json blocking.json
  hwgen explore vgg19 --first 11 --json fronts.json --plot fronts.svg
  hwgen sweep examples/digits/digits.onnx --board zedboard --dsp 50:220:10 --multipliers dsp,auto -o sweep.csv
  hwgen plan vgg16:7@64x64,int16 --board vc709
  hwgen plan mobilenetv1 --board zedboard --template engine --bandwidth 0.8
  hwgen build examples/digits/digits.onnx --board zedboard --template engine -o build/engine
  hwgen compile resnet8 --engine build/engine
  hwgen simulate resnet8 --engine build/engine --random 1
  hwgen golden examples/digits/digits-float.onnx --calibration examples/digits/calibration.npy --bits 16 \
      --input examples/digits/images.npy --output logits.npy
  hwgen report build/digits
  hwgen prove build/digits --json proofs.json
  hwgen cache
  hwgen doctor
"""


def _examples(verb: str) -> list[str]:
    """Return a command's examples for its help text, as a list of one paragraph; empty without examples."""
    commands = re.findall(rf"^  hwgen {verb} (?:.*\\\n)*.*$", EXAMPLES, re.MULTILINE)
    return ["\n".join([EXAMPLES.splitlines()[0], *commands])] if commands else []


def parser() -> Parser:
    """Return the `Parser` of the command line, with all commands and their options."""
    from hwgen import __version__
    from hwgen.report import legend

    top = Parser(
        prog="hwgen",
        description="From a trained, quantised CNN (ONNX) to a verified FPGA accelerator.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"hwgen {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="COMMAND", required=True)

    def verb(
        name: str,
        run: Callable[[argparse.Namespace], int],
        add_options: Callable[[argparse.ArgumentParser], None],
        text: str,
        *notes: str,
    ) -> None:
        sub = verbs.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog="\n\n".join([*notes, *_examples(name)]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(run=run)
        add_options(sub)

    summary = "list a model's operators: built, folded into another operator, run on the host, or not supported"
    verb("check", check.run, check.add_options, summary)
    summary = "quantise a float model with calibration data, and write the quantised model"
    verb("quantise", quantise.run, quantise.add_options, summary)
    summary = "plan an accelerator, and print the plan as a table"
    verb("plan", plan.plan, plan.add_plan_options, summary, legend.text())
    summary = "write Verilog, a test bench and a report"
    verb("build", plan.build, plan.add_build_options, summary, legend.text())
    summary = "compile a model into a program for an engine that 'hwgen build' wrote"
    verb("compile", engine.compile_program, engine.add_compile_options, summary, legend.text())
    summary = "write a retrained model's weights to a file that a design loads at run time"
    verb("weights", weights.run, weights.add_options, summary)
    summary = "simulate the generated hardware on real data, and compare it with the golden model"
    verb("simulate", simulate.simulate, simulate.add_simulate_options, summary, legend.text())
    summary = "compare ONNX Runtime, the golden model and the hardware on real data, layer by layer"
    verb("compare", compare.run, compare.add_options, summary)
    summary = "synthesise each component with Yosys, and compare with the plan's estimates (needs the extra 'synth')"
    verb("synth", synth.run, synth.add_options, summary, legend.text())
    summary = (
        "prove the properties of every module in a folder that 'hwgen build' wrote (needs the extra 'prove' and ABC)"
    )
    verb("prove", prove.run, prove.add_options, summary)
    summary = "place and route a design for an ECP5, and make its bitstream (needs the extra 'ecp5')"
    verb("route", route.run, route.add_options, summary)
    summary = "explore every grouping and unrolling of a network, and print the Pareto fronts"
    verb("explore", explore.run, explore.add_options, summary)
    summary = "plan every combination of option values, and write one table"
    verb("sweep", sweep.run, sweep.add_options, summary)
    summary = "find the best loop blocking and tiling of a layer for a memory hierarchy"
    verb("block", block.run, block.add_options, summary)
    summary = "rewrite report.html in a folder that 'hwgen build' wrote"
    verb("report", report.run, report.add_options, summary)
    verb("golden", simulate.golden, simulate.add_golden_options, "run the golden model in NumPy, without hardware")
    verb("models", lists.models, lambda sub: None, "list the built-in networks")
    verb("boards", lists.boards, lambda sub: None, "list the boards")
    summary = "show the folder and size of the cache (compiled simulators, Verilog, plans), or clear it"
    verb("cache", cache.run, cache.add_options, summary)
    verb(
        "doctor",
        lists.doctor,
        lambda sub: None,
        "list the tools that hwgen uses, found or missing, and how to install the missing ones",
    )
    return top


_BEYOND = {
    MemoryError: "not enough memory",
    OverflowError: "a number is too large",
    RecursionError: "the input is nested too deeply",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv``, by default the program's own, and return the exit status."""
    _open_closed_streams()
    try:
        with _escaped():
            return _run_command(argv)
    finally:
        _drop_unwritable()


def _open_closed_streams() -> None:
    """Open the null device in place of each standard stream that the caller closed, as in ``hwgen boards >&-``.

    Otherwise the first file that is opened would get the stream's descriptor, and programs that hwgen runs would write
    into this file.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is not None:
            continue
        null = os.open(os.devnull, os.O_RDWR)
        with suppress(OSError):  # the descriptor is in use where a module has opened a file meanwhile
            if null > descriptor and not _is_open(descriptor):
                null = os.dup2(null, descriptor)
        os.set_inheritable(null, True)
        setattr(sys, name, os.fdopen(null, mode))


def _is_open(descriptor: int) -> bool:
    """Return whether a file descriptor of this process is in use."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _drop_unwritable() -> None:
    """Replace stdout or stderr by the null device if its buffered text can't be written.

    Otherwise the interpreter, which writes it when it ends, would print a traceback and set the exit status to 120.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # its reader went away, or its disk is full
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def _escaped() -> Iterator[None]:
    """Context manager that escapes control characters in all output of its block, as a model's names may have them."""
    with ExitStack() as stack:
        streams = ((sys.stdout, redirect_stdout, "standard output"), (sys.stderr, redirect_stderr, ""))
        for stream, redirect, name in streams:
            if isinstance(stream, TextIOWrapper):  # file names can contain characters that the terminal lacks
                stream.reconfigure(errors="backslashreplace")
            if stream is not None:
                stack.enter_context(redirect(printable.Escaped(stream, name)))
        yield


def _run_command(argv: Sequence[str] | None) -> int:
    try:
        with processes.watch(), progress.shown(), called_as_typed():
            try:
                arguments = parser().parse_args(argv)
                status = arguments.run(arguments)
            finally:  # also after --help, which ends the program
                sys.stdout.flush()
            return status
    except CheckError as error:
        _complain(*error.lines)
        return 1
    except HwgenError as error:
        return _complain(*error.lines)
    except BrokenPipeError:
        return 141  # the reader of our output went away, as in `hwgen plan ... | head`
    except OSError as error:
        file_name = f"{error.filename}: " if error.filename is not None else ""
        return _complain(f"{file_name}{error.strerror or error}")
    except (MemoryError, OverflowError, RecursionError) as error:
        reason = next(text for error_type, text in _BEYOND.items() if isinstance(error, error_type))
        return _complain(f"{reason}; use a smaller model, feature map or input")
    except (KeyboardInterrupt, processes.Stopped) as stop:
        warnings.simplefilter("ignore")  # Amaranth warns of hardware that is dropped unused
        stop = stop if isinstance(stop, processes.Stopped) else processes.Stopped(signal.SIGINT)
        with suppress(OSError):  # the terminal can be gone
            print(f"hwgen: {stop}", file=sys.stderr)
        return stop.status


def _complain(*lines: str) -> int:
    first, *others = (" ".join(line.split()) for line in lines)
    print("\n  ".join([f"hwgen: {first}", *others]), file=sys.stderr)
    return 2
