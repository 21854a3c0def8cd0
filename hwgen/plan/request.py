"""What is asked of the planner, checked once, wherever it was asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from numbers import Integral, Number, Real
from typing import Any

from hwgen.boards import Board
from hwgen.errors import InputError, PlanError
from hwgen.gateware.engine.config import BUS_BYTES
from hwgen.templates import TEMPLATES
from hwgen.templates.task import Goal
from hwgen.templates.tile import check_batch
from hwgen.templates.tiles import KINDS

#: Frames a second, or MHz, at most; and cycles, beyond which a bound is none.
MOST_RATE, MOST_CYCLES = 1e12, 1 << 62

#: Widths of an engine's port to memory; the second one unless more is asked for.
BUS_BITS = tuple(8 * each for each in BUS_BYTES)

#: What becomes of weights; and the template whose hardware takes them at run time.
WEIGHTS, LOADED = ("constant", "runtime"), "stream"
OBJECTIVES = ("interval", "latency", "traffic", "dsp")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked of a plan; the command line and Python make one each.

    Parameters
    ----------
    dsp : int, optional
        DSP slices that may be used; all of the board's if not given.
    objective : str
        What to make small: ``interval`` (then DSP slices), ``latency`` of one frame, off-chip ``traffic`` (then
        interval) or ``dsp`` slices (then LUTs; of groups in turn, then interval). By default ``interval``, or ``dsp``
        where frames a second are asked for.
    interval : int, optional
        With the objective ``dsp``: cycles between frames at most.
    fps : float, optional
        The same as frames a second at least, at the clock.
    clock : float, optional
        MHz of the clock; the board's own if not given.
    lut, bram : int, optional
        LUTs, and block RAMs of 36 kbit, that may be used; all of the board's if not given.
    bandwidth : float, optional
        GB/s of the off-chip memory, reads and writes together; the board's own if not given.
    groups : str, optional
        Fusion groups to take, ``conv1_1-pool1,conv2_1-pool2``.
    in_turn : bool
        Groups share the board, and each has all slices while it runs, whether or not one group, or all of those given,
        would fit together.
    macs_per_dsp : int or str
        Multiply-adds of a DSP slice in a cycle: 1, 2 (where weights and activations allow it), or ``auto``: 2 if that
        makes more of the slices.
    requantise : str
        What multiplies in requantisers: ``dsp`` slices, ``lut``, or ``auto``: in all layers, in some
        or in none LUTs, whatever serves the objective best.
    template : str, optional
        For all groups, by its name in `hwgen.templates`. By default a group is computed row by row (``stream``), or
        pyramid by pyramid (``pyramid``) if it does not fit so; a network that fits neither way is computed from
        off-chip memory, by the first template that does that.
    tile : tuple of int, optional
        Rows and columns of the tip of pyramids; chosen by default.
    overlap : str, optional
        What becomes of what neighbouring pyramids share: ``reuse``, ``reload`` or ``recompute``, see
        `hwgen.templates.tiles`. By default ``reuse``, and ``recompute`` if that does not fit.
    array : tuple of int, optional
        Output maps and pixels that an engine computes at once; by default the first of some that fit.
    bus_bits : int, optional
        Width of an engine's port to memory: 32, 64 or 128. By default 64, or 128 if ``bandwidth`` is more than 64 bits
        a cycle.
    batch : int, optional
        Frames that a program of an engine computes, one if not given: dense layers at the end compute all of them at
        once, so that their weights are fetched once.
    weights : str
        ``constant``, or ``runtime``: the hardware takes other weights, biases and scales while it runs. Then all layers
        are one group that is computed row by row.

    Raises
    ------
    InputError
        If ``dsp``, ``lut`` or ``bram`` is no positive integer, or ``fps``, ``clock`` or ``bandwidth`` no positive
        number.
    PlanError
        If another option makes no sense, or contradicts one.
    """

    dsp: int | None = None
    objective: str | None = None
    interval: int | None = None
    fps: float | None = None
    clock: float | None = None
    lut: int | None = None
    bram: int | None = None
    bandwidth: float | None = None
    groups: str | None = None
    in_turn: bool = False
    macs_per_dsp: int | str = 1
    requantise: str = "dsp"
    template: str | None = None
    tile: tuple[int, int] | None = None
    overlap: str | None = None
    array: tuple[int, int] | None = None
    bus_bits: int | None = None
    batch: int | None = None
    weights: str = "constant"

    def __post_init__(self) -> None:
        self._check_types()
        if self.objective is None:
            object.__setattr__(self, "objective", "interval" if self.fps is None else "dsp")
        if self.objective not in OBJECTIVES:
            raise PlanError(f"objective must be one of {', '.join(OBJECTIVES)}, not {self.objective!r}")
        if self.interval is not None and self.objective != "dsp":
            raise PlanError(f"interval, a bound in cycles, goes with the objective dsp only, not with {self.objective}")
        if self.fps is not None and (self.objective != "dsp" or self.interval is not None):
            other = "an interval" if self.objective == "dsp" else f"the objective {self.objective}"
            raise PlanError(f"fps, a bound of frames a second, goes with the objective dsp alone, not with {other}")
        if self.interval is not None and not (_is_integer(self.interval) and self.interval >= 1):
            raise PlanError(f"interval must be a positive number of cycles, not {self.interval!r}")
        if self.macs_per_dsp not in (1, 2, "auto"):
            raise PlanError(f"macs_per_dsp must be 1, 2 or auto, not {self.macs_per_dsp!r}")
        if self.requantise not in ("dsp", "lut", "auto"):
            raise PlanError(f"requantise must be dsp, lut or auto, not {self.requantise!r}")
        self._check_template()
        self._check_weights()

    def _check_weights(self) -> None:
        if self.weights not in WEIGHTS:
            raise PlanError(f"weights must be {' or '.join(WEIGHTS)}, not {self.weights!r}")
        if self.weights == "constant":
            return
        asked = asked_template(vars(self))
        if asked not in (None, LOADED):
            raise PlanError(f"weights at run time go with the template {LOADED}, not with {asked}")
        if self.groups is not None or self.in_turn:
            raise PlanError("weights at run time go with one group of all layers, not with groups or in_turn")
        if self.requantise != "dsp":
            raise PlanError(f"weights at run time go with requantise dsp, not {self.requantise}")

    def _check_types(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, str | Number | tuple | list | None):
                raise InputError(
                    f"{name} must be a number, text or a pair of numbers, not of type {type(value).__name__}"
                )
        for name in ("dsp", "lut", "bram"):
            value = getattr(self, name)
            if value is not None and not (_is_integer(value) and value >= 1):
                raise InputError(f"{name} must be a positive integer, not {value!r}")
        for name in ("fps", "clock", "bandwidth"):
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and 0 < value <= MOST_RATE):
                raise InputError(f"{name} must be a positive number, up to {MOST_RATE:g}, not {value!r}")
        if not isinstance(self.groups, str | None):
            raise PlanError(f"groups must be text such as conv1-pool1,conv2, not {self.groups!r}")
        if not isinstance(self.in_turn, bool):
            raise PlanError(f"in_turn must be True or False, not {self.in_turn!r}")

    def _check_template(self) -> None:
        if self.template not in (None, *TEMPLATES):
            raise PlanError(f"template must be {' or '.join(TEMPLATES)}, not {self.template!r}")
        tile, tiled = self.tile, TEMPLATES["pyramid"]
        for name in ("array", "bus_bits", "batch"):
            engine = asked_template({name: True})
            if getattr(self, name) is None:
                continue
            if self.template not in (None, engine) or not (self.tile is self.overlap is None):
                raise PlanError(
                    f"{name} goes with the template {engine}, not with {self.template or 'tile and overlap'}"
                )
        if self.array is not None and not _is_pair(self.array):
            raise PlanError(f"array must be two positive integers, maps and pixels, not {self.array!r}")
        if self.bus_bits is not None and not (_is_integer(self.bus_bits) and self.bus_bits in BUS_BITS):
            raise PlanError(f"bus_bits must be 32, 64 or 128, not {self.bus_bits!r}")
        if self.batch is not None:
            check_batch(self.batch)
        asked = TEMPLATES.get(asked_template(vars(self)) or "")
        if asked is not None and not asked.holds_weights and (self.in_turn or self.groups is not None):
            raise PlanError(
                f"groups and in_turn don't go with the template {asked.name}, which computes whole networks"
            )
        if self.template not in (None, tiled.name) and not (tile is self.overlap is None):
            raise PlanError(f"tile and overlap go with pyramids, not with the template {self.template}")
        if tile is not None and not _is_pair(tile):
            raise PlanError(f"tile must be two positive integers, rows and columns, not {tile!r}")
        if self.overlap is not None and self.overlap not in KINDS:
            raise PlanError(f"overlap must be one of {', '.join(KINDS)}, not {self.overlap!r}")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Request:
        """The request of some options.

        Raises
        ------
        InputError
            If one is unknown.
        PlanError
            If one makes no sense.
        """
        cls.check_names(options)
        return cls(**options)

    @classmethod
    def names(cls) -> list[str]:
        """All options."""
        return [option.name for option in fields(cls)]

    @classmethod
    def check_names(cls, options: Iterable[str]) -> None:
        """Raise InputError if an option is unknown."""
        known = cls.names()
        if unknown := [name for name in options if name not in known]:
            raise InputError(f"unknown option {' and '.join(unknown)}: a plan has {', '.join(known)}")

    def limited(self, board: Board) -> Board:
        """The board with as much of it as may be used, at the clock and with the memory that are asked for.

        Raises
        ------
        PlanError
            If it hasn't got so much.
        BoardError
            If the clock or the memory is beyond reason.
        """
        asked_rates = (("clock_mhz", self.clock), ("memory_gb_s", self.bandwidth))
        found: dict[str, Any] = {field: float(rate) for field, rate in asked_rates if rate is not None}
        for name, field, what in (("lut", "lut", "LUTs"), ("bram", "bram36", "block RAMs")):
            asked, there = getattr(self, name), getattr(board, field)
            if asked is None:
                continue
            if asked > there:
                raise PlanError(f"{name} must be between 1 and the {there} {what} of {board.name}, not {asked!r}")
            found[field] = int(asked)
        return replace(board, **found)

    def most_cycles(self, board: Board) -> int | None:
        """Cycles between frames at most, on a board with the clock that is asked for; ``None`` if there is no bound.

        Raises
        ------
        PlanError
            If so many frames a second leave no cycle.
        """
        if self.fps is None:
            return self.interval if self.interval is None else min(int(self.interval), MOST_CYCLES)
        cycles = int(min(board.clock_mhz * 1e6 / float(self.fps), MOST_CYCLES))
        if cycles < 1:
            raise PlanError(f"fps must be at most the {board.clock_mhz * 1e6:,.0f} cycles a second, not {self.fps:g}")
        return cycles

    def goal(self, board: Board) -> Goal:
        """What is asked of each group on a board, with one multiply-add a slice and requantisers of slices.

        Raises
        ------
        PlanError
            If the board hasn't got so many slices, or hasn't so many cycles.
        """
        assert self.objective is not None
        budget = board.dsp if self.dsp is None else self.dsp
        if not 1 <= budget <= board.dsp:
            raise PlanError(f"dsp must be between 1 and the {board.dsp} slices of {board.name}, not {budget!r}")
        return Goal(
            objective=self.objective,
            dsp=budget,
            interval=self.most_cycles(board),
            template=asked_template(vars(self)) if self.weights == "constant" else LOADED,
            tile=self.tile,
            overlap=self.overlap,
            array=self.array,
            bus_bits=self._bus_bits(board),
            batch=self.batch or 1,
        )

    def _bus_bits(self, board: Board) -> int:
        """That are asked for, or what the bandwidth that is asked for needs: 64 at least."""
        if self.bus_bits is not None:
            return self.bus_bits
        default = BUS_BITS[1]
        wanted = 0 if self.bandwidth is None else 8 * 1000 * self.bandwidth / board.clock_mhz
        return default if wanted <= default else BUS_BITS[-1]


def asked_template(options: Mapping[str, Any]) -> str | None:
    """The template that a request's options ask for, by its name or by an option that steers it alone."""
    given = {name for name, value in options.items() if value is not None}
    return next((name for name, each in TEMPLATES.items() if given & {*each.options}), options.get("template"))


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_pair(value: Any) -> bool:
    """Two positive integers."""
    return (
        isinstance(value, tuple | list) and len(value) == 2 and all(_is_integer(size) and size >= 1 for size in value)
    )


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
