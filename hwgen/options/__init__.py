"""Options of a plan or a model, one entry per option with its kind of values, help text and default.

An entry is a field of `PlanOptions`. The command line, sweeps, the checks of Python's arguments and the documentation
are made from these entries. The options of a model are entries likewise (`hwgen.network.options.ModelOptions`). The
module imports nothing slow, so that ``--help`` is quick.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from numbers import Number
from typing import Any

from hwgen.errors import HwgenError, InputError, PlanError
from hwgen.options.kinds import Choice, Count, CountOr, Flag, Pair, PairOr, Rate, Text, ValueKind

RESOURCES, SUPPLY, ARITHMETIC, OBJECTIVE, GROUPS, TEMPLATE, WEIGHTS, MODEL = range(8)
"""Numbers of the help's sections, in order: seven for the options of a plan, and one for the options of a model."""

OBJECTIVES = ("interval", "latency", "traffic", "dsp")
STREAM, PYRAMID, ENGINE = TEMPLATES = ("stream", "pyramid", "engine")
"""Names of the templates, in order of preference."""
FORMER_TEMPLATES: dict[str, str] = {"tile": ENGINE}
"""Mapping from former names of templates, which users can still give, to current names."""
REUSE, RELOAD, RECOMPUTE = OVERLAPS = ("reuse", "reload", "recompute")
"""Ways to treat the overlap of neighbouring pyramids (tiles): keep it on chip, fetch inputs again, or recompute it.

With ``RELOAD``, only the overlap of the group's input is fetched from off-chip memory again.
"""
CONSTANT, RUNTIME = "constant", "runtime"
DSP, LUT, AUTO = "dsp", "lut", "auto"
"""Values of options for the resource that multiplies: DSP slices, LUTs, or whichever serves the objective best."""
OFF = "off"
"""Value of an option that leaves something out."""
DEFAULT_MULTIPLIERS = AUTO
"""Resource that computes the products of convolutions unless the user names one."""
LUT_SHARE = 0.8
"""Share of a device's LUTs that a plan with products in LUTs may use by default, to keep the design routable."""
BUS_BITS = (32, 64, 128, 256, 512)
"""Tuple of permitted widths of an engine's memory port in bits; the default is the board's."""
REQUANTISERS = (8, 16, 32)
"""Tuple of permitted numbers of requantiser lanes (sums per cycle) in an engine's core."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """Description of one option of a plan or a model: kind of values, default, help texts, template it belongs to.

    Parameters
    ----------
    kind : ValueKind
        Kind of the option's values, with their parser and their check.
    section : int
        Number of the section of the help that lists the option.
    help : str
        Text of the option in the help of a command.
    default
        Value of the option if none is given; ``None`` for no value.
    swept : str, optional
        Text of the option in the help of ``hwgen sweep``. An option without it takes one value there, too.
    details : str
        Sentences that only the documentation of Python adds to ``help``.
    must_be : str, optional
        Noun phrase for a right value in error messages, if the kind's does not serve.
    error : type of HwgenError
        Class of the errors that refuse a value.
    template : str, optional
        Name of the template that the option steers; an option of all templates if not given.
    neutral : tuple
        Values that every plan meets, such as one frame per run. They choose no template.
    is_bounded : bool
        Whether ``kind`` knows all that a value must be. If not, the template checks the value.
    """

    kind: ValueKind
    section: int
    help: str
    default: Any = None
    swept: str | None = None
    details: str = ""
    must_be: str | None = None
    error: type[HwgenError] = PlanError
    template: str | None = None
    neutral: tuple[Any, ...] = ()
    is_bounded: bool = True

    def check(self, name: str, value: Any) -> None:
        """Raise ``error`` if the option ``name`` does not accept ``value``; an unbounded option accepts every value."""
        if self.is_bounded and not self.kind.accepts(value):
            raise self.error(f"{called(name)} must be {self.must_be or self.kind.must_be}, not {value!r}")

    @property
    def about(self) -> str:
        """Text on the option for Python's documentation: the help, with options' names as in Python, and details."""
        about = re.sub(r"--([a-z-]+)", lambda name: f"``{name[1].replace('-', '_')}``", self.help)
        return f"{about[0].upper()}{about[1:]}.{' ' * bool(self.details)}{self.details}"

    def described(self, name: str) -> str:
        """Return the option's text for the parameter section of a NumPy-style docstring, under a given name."""
        default = ", optional" if self.default is None else f", default {self.default!r}"
        return f"{name} : {self.kind.type_name}{default}\n{textwrap.indent(textwrap.fill(self.about, 112), '    ')}"


def option(kind: ValueKind, section: int, help: str, default: Any = None, **entries: Any) -> Any:
    """Return a dataclass field for an option of a plan: with its default, and with its `Option` as metadata."""
    entry = Option(kind=kind, section=section, help=help, default=default, **entries)
    return field(default=default, metadata={"option": entry})


def model_option(kind: ValueKind, help: str, details: str = "") -> Any:
    """Return a dataclass field for an option of a model: with the default ``None``, and its `Option` as metadata."""
    return option(kind, MODEL, help, details=details)


@dataclass(frozen=True, kw_only=True)
class Aim:
    """Options of a plan that apply to every template: budgets, objective, supply, groups and arithmetic."""

    dsp: int | None = option(
        Count(),
        RESOURCES,
        "use at most N DSP slices",
        swept="largest number of DSP slices, as in 50:220:10 or 50,100",
        error=InputError,
        details="All of the board's if not given.",
    )
    objective: str | None = option(
        Choice(*OBJECTIVES),
        OBJECTIVE,
        "minimise the cycles between frames (interval, the default), the cycles of one frame (latency), the off-chip "
        "bytes (traffic) or the DSP slices (dsp)",
        swept=f"figure to minimise: {', '.join(OBJECTIVES)}",
        must_be=f"one of {', '.join(OBJECTIVES)}",
        details="Ties go to DSP slices (interval), to the interval (traffic) or to LUTs (dsp; of groups in turn to the "
        "interval). The default is ``dsp`` where ``fps`` is given.",
    )
    interval: int | None = option(
        Count(),
        OBJECTIVE,
        "with --objective dsp: allow at most N cycles between frames",
        swept="with --objective dsp: largest number of cycles between frames",
        must_be="a positive number of cycles",
    )
    fps: float | None = option(
        Rate(),
        OBJECTIVE,
        "reach N frames per second with as few DSP slices as possible",
        swept="smallest number of frames per second",
        error=InputError,
    )
    clock: float | None = option(
        Rate("MHz"), SUPPLY, "clock frequency (default: the board's)", swept="clock frequencies", error=InputError
    )
    lut: int | None = option(
        Count(),
        RESOURCES,
        "use at most N LUTs (default: four fifths of the board's if LUTs multiply, to keep it routable; else all)",
        swept="largest number of LUTs",
        error=InputError,
    )
    bram: int | None = option(
        Count(),
        RESOURCES,
        "use at most N block RAMs of 36 kbit",
        swept="largest number of block RAMs",
        error=InputError,
    )
    bandwidth: float | None = option(
        Rate("GB/S", " of GB/s", 1e6),
        SUPPLY,
        "off-chip memory bandwidth, reads plus writes (default: the board's; simulated streams have no limit)",
        swept="bandwidths of the off-chip memory",
        error=InputError,
    )
    groups: str | None = option(
        Text("A-B,C-D", "conv1-pool1,conv2"),
        GROUPS,
        "fusion groups, each given by its first and last layer: conv1_1-pool1,conv2_1-pool2",
    )
    in_turn: bool = option(
        Flag(),
        GROUPS,
        "run the groups one after the other, each using the whole board (plan only; cannot be built yet)",
        default=False,
        details="This holds whether or not one group, or all groups together, would fit.",
    )
    multipliers: str = option(
        Choice(DSP, LUT, AUTO),
        ARITHMETIC,
        "multiply in DSP slices (dsp), in LUTs (lut), or in the mix that is best for the objective (auto, the default)",
        default=DEFAULT_MULTIPLIERS,
        swept="resource of the products of convolutions",
        details="Groups in turn, pyramids, designs with weights at run time and the engine multiply in DSP slices, "
        "except for an engine's ``lut_pixels``.",
    )
    macs_per_dsp: int | str | None = option(
        Choice(1, 2, 4, "auto"),
        ARITHMETIC,
        "MACs per DSP slice and cycle: 1, 2 (8 bits), 4 (4 bits), or auto, the best of them (default: auto, "
        "and 1 if only DSP slices multiply)",
        swept="MACs per DSP slice and cycle",
    )
    requantise: str = option(
        Choice("dsp", "lut", "auto"),
        ARITHMETIC,
        "build the requantisers' multipliers from DSP slices (dsp, the default), from LUTs (lut, about 1,000 each), or "
        "from whichever is better for the objective (auto)",
        default="dsp",
        swept="resource of the requantisers' multipliers",
    )
    template: str | None = option(
        Choice(*TEMPLATES, former=FORMER_TEMPLATES),
        TEMPLATE,
        "architecture: stream (a pipeline of layers, row by row), pyramid (a pipeline, tile by tile) or engine (one "
        "array for all layers, maps in off-chip memory); default: the first that fits",
        swept="architectures",
        must_be=" or ".join(TEMPLATES),
    )


@dataclass(frozen=True, kw_only=True)
class Steering:
    """Options of a plan that apply to one template only: pyramids (tiles of fused layers) or the engine."""

    tile: tuple[int, int] | None = option(
        Pair("HxW", "rows and columns"),
        TEMPLATE,
        "pyramid: rows and columns of a group's output tile",
        swept="pyramid: rows and columns of a group's output tile",
        template=PYRAMID,
    )
    overlap: str | None = option(
        Choice(*OVERLAPS),
        TEMPLATE,
        "pyramid: treatment of values that neighbouring tiles share: keep them in buffers (reuse), fetch the input "
        "pixels again (reload), or compute all layers again (recompute)",
        swept="pyramid: treatment of values that neighbouring tiles share",
        must_be=f"one of {', '.join(OVERLAPS)}",
        template=PYRAMID,
        neutral=(REUSE,),
        details=f"The default is ``{REUSE}``, and ``{RECOMPUTE}`` where that does not fit.",
    )
    array: tuple[int, int] | str | None = option(
        PairOr("MxP", "maps and pixels", AUTO),
        TEMPLATE,
        "engine: output channels x pixels that the array computes in parallel, such as 8x13; auto (the default): the "
        "array that needs the fewest cycles on the board, with what else of the engine is not given",
        swept="engine: output channels x pixels that the array computes in parallel",
        template=ENGINE,
        neutral=(AUTO,),
    )
    lut_pixels: int | str | None = option(
        CountOr(AUTO, OFF),
        TEMPLATE,
        "engine: pixels of the array that are multiplied in LUTs, in addition to those in DSP slices; auto (the "
        "default): as many as DSP slices are lacking for; off: none",
        swept="engine: pixels of the array that are multiplied in LUTs",
        template=ENGINE,
        neutral=(OFF,),
        details="With auto, the engine uses at most 85 % of the board's LUTs. With ``multipliers`` dsp, the default is "
        "off.",
    )
    cores: int | str | None = option(
        CountOr(AUTO),
        TEMPLATE,
        "engine: number of cores, which share one program and split each layer by output channels, rows or frames; "
        "auto (the default): the number that is best for the objective",
        swept="engine: number of cores",
        template=ENGINE,
        neutral=(1, AUTO),
        details="With auto, the engine uses at most 85 % of the board's LUTs.",
    )
    requantisers: int | None = option(
        Choice(*REQUANTISERS),
        TEMPLATE,
        "engine: number of requantiser lanes, each with its own multiplier; each handles one sum per cycle (default: "
        "searched, but 8 if --cores, --array and --bus-bits are all given)",
        swept="engine: number of requantiser lanes",
        template=ENGINE,
        neutral=(REQUANTISERS[0],),
        details="Lanes beyond the first 8 handle neighbouring pixels. They are idle if outputs are pooled, looked up "
        "or combined with another map.",
    )
    map_memory: int | str | None = option(
        CountOr(AUTO, OFF),
        TEMPLATE,
        "engine: size in KiB of an on-chip memory for feature maps, in whole block RAMs or UltraRAMs; auto: those "
        "that the board has left; off: none (default: as auto if that is faster)",
        swept="engine: size in KiB of an on-chip memory for feature maps",
        template=ENGINE,
        neutral=(OFF,),
        details="If ``cores``, ``array`` and ``bus_bits`` are all given, the default is off. With auto, the engine "
        "uses at most 140 block RAMs, or 85 % of the board's if these are more. Engines of several cores have no such "
        "memory.",
    )
    fuse: str | None = option(
        Choice(AUTO, OFF),
        TEMPLATE,
        "engine: keep feature maps in the on-chip map memory (auto, the default), or keep none, for comparison (off)",
        swept="engine: whether feature maps are kept in the on-chip map memory",
        template=ENGINE,
        neutral=(AUTO, OFF),
        details="Without a map memory, it has no effect.",
    )
    bus_bits: int | str | None = option(
        Choice(*BUS_BITS, AUTO),
        TEMPLATE,
        "engine: width of the bus to memory in bits; twice or four times the width of the board's port takes as many "
        "ports; auto (the default): one port or all useful ones, whichever is faster; with --bandwidth the smallest "
        "width from 64 that reaches it",
        swept="engine: widths of the bus to memory in bits",
        template=ENGINE,
        neutral=(AUTO,),
    )
    batch: int | None = option(
        Count(),
        TEMPLATE,
        "engine: frames per run of the program; dense layers at the end fetch their weights once per run (default: 1)",
        swept="engine: frames per run of the program",
        template=ENGINE,
        neutral=(1,),
        is_bounded=False,
    )


@dataclass(frozen=True, kw_only=True)
class PlanOptions(Steering, Aim):
    """All options of a plan, one field each; every value is checked by itself, without regard to other options.

    Raises
    ------
    InputError
        If ``dsp``, ``lut`` or ``bram`` is not a positive integer, ``fps``, ``clock`` or ``bandwidth`` is not a positive
        number, or a value is neither a number, text nor a pair.
    PlanError
        If another option does not accept its value.
    """

    weights: str = option(
        Choice(CONSTANT, RUNTIME, AUTO),
        WEIGHTS,
        "build the weights into the hardware (constant, the default), load them at run time, also from a retrained "
        "model (runtime), or load only the weights that need UltraRAM (auto)",
        default=CONSTANT,
        details="With ``runtime`` and ``auto`` all layers are one group that is computed row by row.",
    )

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, str | Number | tuple | list | None):
                raise InputError(
                    f"{called(name)} must be a number, text or a pair of numbers, not {type(value).__name__}"
                )
        for name, entry in table().items():
            value = getattr(self, name)
            if value is not None or entry.default is not None:
                value = entry.kind.read(value)
                entry.check(name, value)
                object.__setattr__(self, name, entry.kind.current(value))


def table(options: type = PlanOptions) -> dict[str, Option]:
    """Return a dict from the Python name of each option in ``options``, a plan's or a model's, to its `Option`."""
    return {field.name: field.metadata["option"] for field in fields(options)}


def check_names(names: Iterable[str], options: type = PlanOptions, whose: str = "a plan") -> None:
    """Raise InputError if one of the names is not an option in ``options``; messages call the owner ``whose``."""
    known = table(options)
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"unknown option {' and '.join(unknown)}: {whose} has {', '.join(known)}")


def steering(template: str) -> tuple[str, ...]:
    """Return a tuple of the Python names of the options that apply only to a template, such as `PYRAMID`."""
    return tuple(name for name, entry in table().items() if entry.template == template)


def flag(name: str) -> str:
    """Return an option's name on the command line, such as ``--macs-per-dsp`` for the Python name ``macs_per_dsp``."""
    return f"--{name.replace('_', '-')}"


_TYPED: ContextVar[bool] = ContextVar("typed", default=False)
"""Context variable of a boolean: whether the current call's options were typed on the command line."""


@contextmanager
def called_as_typed() -> Iterator[None]:
    """Context manager that makes `called` return options' names as typed on the command line, such as ``--lut``."""
    token = _TYPED.set(True)
    try:
        yield
    finally:
        _TYPED.reset(token)


def called(name: str) -> str:
    """Return an option's name for messages: ``--lut`` if typed on the command line, ``lut`` if given in Python."""
    return flag(name) if _TYPED.get() else name


def requested_template(options: Mapping[str, Any], bus_bits: int | None = None) -> str | None:
    """Return the template that options ask for, by its name or by an option for that template only; else ``None``.

    Parameters
    ----------
    options : mapping
        Values of options of a plan, by their names in Python.
    bus_bits : int, optional
        Width of an engine's memory port on the board; an option that states it asks for no template.
    """
    names = choosing(options, bus_bits)
    return table()[names[0]].template if names else options.get("template")


def choosing(options: Mapping[str, Any], bus_bits: int | None = None) -> list[str]:
    """Return a list of names of set options that belong to one template only, and so choose it; not neutral values.

    The parameters are as for `requested_template`. `Option.neutral` has the neutral values.
    """
    given = {name: options.get(name) for name, entry in table().items() if entry.template is not None}
    return [
        name
        for name, value in given.items()
        if value is not None
        and value not in table()[name].neutral
        and not (name == "bus_bits" and bus_bits is not None and value == bus_bits)
    ]


def typed(name: str, value: Any) -> str:
    """Return an option and its value as text for the command line, such as ``--tile 4x8``."""
    return f"{flag(name)} {'x'.join(map(str, value)) if isinstance(value, tuple | list) else value}"


def rows(options: type = PlanOptions) -> list[tuple[str, ...]]:
    """Return a list of a Markdown table's rows: each option's Python and command-line name, values, default, text."""
    return [
        (
            f"`{name}`",
            f"`{entry.kind.flag or flag(name)}`",
            entry.kind.type_name.replace("|", "\\|"),
            "" if entry.default is None else f"`{entry.default!r}`",
            entry.about,
        )
        for name, entry in table(options).items()
    ]


def documented(documented: Any, options: type = PlanOptions) -> Any:
    """Return a class or function with a section on all options of a plan or a model in its docstring."""
    entries = [entry.described(name) for name, entry in table(options).items()]
    section = "\n".join(["Other Parameters", "----------------", *entries])
    documented.__doc__ = f"{textwrap.dedent(' ' * 4 + (documented.__doc__ or '')).rstrip()}\n\n{section}\n"
    return documented
