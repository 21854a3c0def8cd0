"""What is asked of the planner, checked once, wherever it was asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from hwgen import options
from hwgen.boards import Board
from hwgen.errors import InputError, PlanError
from hwgen.options import BUS_BITS, CONSTANT, ENGINE, PYRAMID, STREAM, Options, Steering, requested_template
from hwgen.templates import TEMPLATES
from hwgen.templates.engine import check_batch
from hwgen.templates.task import Goal

#: Cycles beyond which a bound is none.
MOST_CYCLES = 1 << 62


@options.documented
@dataclass(frozen=True, kw_only=True)
class Request(Options):
    """What is asked of a plan; the command line and Python make one each.

    Raises
    ------
    InputError
        If ``dsp``, ``lut`` or ``bram`` is no positive integer, or ``fps``, ``clock`` or ``bandwidth`` no positive
        number.
    PlanError
        If another option makes no sense, or contradicts one.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective is None:
            object.__setattr__(self, "objective", "interval" if self.fps is None else "dsp")
        if self.interval is not None and self.objective != "dsp":
            raise PlanError(f"interval, a bound in cycles, goes with the objective dsp only, not with {self.objective}")
        if self.fps is not None and (self.objective != "dsp" or self.interval is not None):
            other = "an interval" if self.objective == "dsp" else f"the objective {self.objective}"
            raise PlanError(f"fps, a bound of frames a second, goes with the objective dsp alone, not with {other}")
        self._check_template()
        self._check_weights()

    def _check_weights(self) -> None:
        if self.weights == CONSTANT:
            return
        asked = requested_template(vars(self))
        if asked not in (None, STREAM):
            raise PlanError(f"weights at run time go with the template {STREAM}, not with {asked}")
        if self.groups is not None or self.in_turn:
            raise PlanError("weights at run time go with one group of all layers, not with groups or in_turn")
        if self.requantise != "dsp":
            raise PlanError(f"weights at run time go with requantise dsp, not {self.requantise}")

    def _check_template(self) -> None:
        of_pyramids = any(getattr(self, name) is not None for name in options.steering(PYRAMID))
        for name in options.steering(ENGINE):
            if getattr(self, name) is not None and (self.template not in (None, ENGINE) or of_pyramids):
                other = self.template or " and ".join(options.steering(PYRAMID))
                raise PlanError(f"{name} goes with the template {ENGINE}, not with {other}")
        if self.batch is not None:
            check_batch(self.batch)
        asked = TEMPLATES.get(requested_template(vars(self)) or "")
        if asked is not None and not asked.holds_weights and (self.in_turn or self.groups is not None):
            raise PlanError(
                f"groups and in_turn don't go with the template {asked.name}, which computes whole networks"
            )
        if of_pyramids and self.template not in (None, PYRAMID):
            names = " and ".join(options.steering(PYRAMID))
            raise PlanError(f"{names} go with pyramids, not with the template {self.template}")

    @classmethod
    def of(cls, asked: Mapping[str, Any]) -> Request:
        """The request of some options.

        Raises
        ------
        InputError
            If one is unknown.
        PlanError
            If one makes no sense.
        """
        cls.check_names(asked)
        return cls(**asked)

    @classmethod
    def names(cls) -> list[str]:
        """All options."""
        return [*options.table()]

    @classmethod
    def check_names(cls, asked: Iterable[str]) -> None:
        """Raise InputError if an option is unknown."""
        known = cls.names()
        if unknown := [name for name in asked if name not in known]:
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
        steering = {each.name: getattr(self, each.name) for each in fields(Steering)}
        return Goal(
            objective=self.objective,
            dsp=budget,
            interval=self.most_cycles(board),
            template=requested_template(vars(self)) if self.weights == CONSTANT else STREAM,
            **{**steering, "bus_bits": self._bus_bits(board)},
        )

    def _bus_bits(self, board: Board) -> int:
        """That are asked for, or what the bandwidth that is asked for needs: 64 at least."""
        if self.bus_bits is not None:
            return self.bus_bits
        default = BUS_BITS[1]
        wanted = 0 if self.bandwidth is None else 8 * 1000 * self.bandwidth / board.clock_mhz
        return default if wanted <= default else BUS_BITS[-1]
