"""Request for a plan: the planner's options from the command line or Python, checked together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from hwgen import options
from hwgen.boards import Board
from hwgen.errors import PlanError
from hwgen.options import (
    AUTO,
    BUS_BITS,
    CONSTANT,
    DSP,
    ENGINE,
    LUT,
    LUT_SHARE,
    OFF,
    PYRAMID,
    RUNTIME,
    STREAM,
    PlanOptions,
    Steering,
    called,
    requested_template,
)
from hwgen.templates import TEMPLATES
from hwgen.templates.base import Goal
from hwgen.templates.engine import check_batch

#: Maximum bound of an interval, in cycles. It replaces larger bounds; no plan reaches it.
MAX_CYCLES = 1 << 62


def lut_refusal(possible: str, other: str) -> str:
    """Return the error message if products must be in LUTs, but the requested hardware needs DSP slices for them.

    Parameters
    ----------
    possible : str
        Noun phrase for the hardware that can compute products in LUTs.
    other : str
        Requested hardware, with a verb: ``pyramid, which multiplies``.
    """
    return (
        f"{called('multipliers')} {LUT} works only with {possible}, not with {other} in DSP slices: use "
        f"{called('multipliers')} {DSP} or {AUTO}"
    )


@options.documented
@dataclass(frozen=True, kw_only=True)
class Request(PlanOptions):
    """Request for a plan: the options that the command line or a Python function receives for the planner.

    Raises
    ------
    InputError
        If ``dsp``, ``lut`` or ``bram`` is not a positive integer, or ``fps``, ``clock`` or ``bandwidth`` is not a
        positive number.
    PlanError
        If another option makes no sense, or options contradict each other.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective is None:
            object.__setattr__(self, "objective", "interval" if self.fps is None else "dsp")
        if self.interval is not None and self.objective != "dsp":
            raise PlanError(f"{called('interval')} (cycles) needs {called('objective')} dsp, not {self.objective}")
        if self.fps is not None and (self.objective != "dsp" or self.interval is not None):
            other = called("interval") if self.objective == "dsp" else self.objective
            raise PlanError(
                f"{called('fps')} (frames per second) needs {called('objective')} dsp and no other goal, not {other}"
            )
        self._check_template()
        self._check_weights()
        self._check_multipliers()

    def _check_weights(self) -> None:
        """Raise PlanError if weights are to be loaded at run time, but another option rules that out."""
        if self.weights == CONSTANT:
            return
        template_name = requested_template(vars(self))
        if template_name not in (None, STREAM):
            raise PlanError(
                f"{called('weights')} {RUNTIME} works only with the template {STREAM}, not with {template_name}: leave "
                "one of them out"
            )
        if self.groups is not None or self.in_turn:
            others = f"{called('groups')} or {called('in_turn')}"
            raise PlanError(
                f"{called('weights')} {RUNTIME} works only with one group of all layers: leave {others} out"
            )
        if self.requantise != DSP:
            raise PlanError(
                f"{called('weights')} {RUNTIME} works only with {called('requantise')} {DSP}, not {self.requantise}"
            )

    def _check_multipliers(self) -> None:
        """Raise PlanError if all products must be in LUTs, but another option asks for hardware that can't do that."""
        if self.multipliers != LUT:
            return
        template = TEMPLATES.get(requested_template(vars(self)) or "")
        if template is not None and not template.multiplies_in_luts:
            raise PlanError(lut_refusal(f"the template {STREAM}", f"{template.name}, which multiplies"))
        if self.in_turn:
            raise PlanError(lut_refusal("one group of all layers", f"{called('in_turn')}, whose groups multiply"))

    def _check_template(self) -> None:
        """Raise PlanError if options of one template contradict the requested template or each other."""
        of_pyramids = any(getattr(self, name) is not None for name in options.steering(PYRAMID))
        for name in options.steering(ENGINE):
            if getattr(self, name) is not None and (self.template not in (None, ENGINE) or of_pyramids):
                other = self.template or " and ".join(map(called, options.steering(PYRAMID)))
                raise PlanError(
                    f"{called(name)} works only with the template {ENGINE}, not with {other}: leave one of them out"
                )
        if self.batch is not None:
            check_batch(self.batch)
        template = TEMPLATES.get(requested_template(vars(self)) or "")
        if template is not None and not template.holds_weights and (self.in_turn or self.groups is not None):
            raise PlanError(
                f"{called('groups')} and {called('in_turn')} don't work with the template {template.name}, which "
                "computes whole networks: leave them out"
            )
        if of_pyramids and self.template not in (None, PYRAMID):
            names = " and ".join(map(called, options.steering(PYRAMID)))
            raise PlanError(
                f"{names} work only with pyramids, not with the template {self.template}: leave one of them out"
            )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Request:
        """Return a `Request` made from a dict of options by name; unknown options raise `InputError`.

        Raises
        ------
        InputError
            If an option is unknown.
        PlanError
            If an option makes no sense, or options contradict each other.
        """
        options.check_names(values)
        return cls(**values)

    def limited(self, board: Board) -> Board:
        """Return a copy of a `Board` with the request's clock, bandwidth, and allowed LUTs and block RAMs.

        Raises
        ------
        PlanError
            If the board has fewer LUTs or block RAMs than the request allows.
        BoardError
            If the clock or the bandwidth is out of range.
        """
        rates = (("clock_mhz", self.clock), ("memory_gb_s", self.bandwidth))
        changes: dict[str, Any] = {field: float(rate) for field, rate in rates if rate is not None}
        limits = {}
        for name, field, what in (("lut", "lut", "LUTs"), ("bram", "bram36", "block RAMs")):
            limit, available = getattr(self, name), getattr(board, field)
            if limit is None:
                continue
            if limit > available:
                raise PlanError(
                    f"{called(name)} must be between 1 and the {available} {what} of {board.name}, not {limit!r}"
                )
            if limit < available:
                limits[field] = options.flag(name), int(limit)
        board = replace(board, **changes)
        return board.limited(**limits) if limits else board

    def max_cycles(self, board: Board) -> int | None:
        """Return the longest interval between frames that the request allows, in cycles; ``None`` without a limit.

        Return ``None`` if the request bounds neither ``interval`` nor ``fps``.

        Raises
        ------
        PlanError
            If ``fps`` is more than one frame per cycle.
        """
        if self.fps is None:
            return self.interval if self.interval is None else min(int(self.interval), MAX_CYCLES)
        cycles = int(min(board.clock_mhz * 1e6 / float(self.fps), MAX_CYCLES))
        if cycles < 1:
            raise PlanError(
                f"{called('fps')} must be at most the {board.clock_mhz * 1e6:,.0f} cycles per second, not {self.fps:g}"
            )
        return cycles

    def goal(self, board: Board) -> Goal:
        """Return the planner's `Goal` on a board, with one multiply-add per DSP slice and rescaling of sums in slices.

        The planner then sets the multipliers (``macs_per_dsp``, ``requantise``) that the request names.

        Raises
        ------
        PlanError
            If the board has fewer DSP slices, or fewer cycles per second, than the request asks for.
        """
        assert self.objective is not None
        budget = board.dsp if self.dsp is None else self.dsp
        if not 1 <= budget <= board.dsp:
            raise PlanError(
                f"{called('dsp')} must be between 1 and the {board.dsp} slices of {board.name}, not {budget!r}"
            )
        steering = {option.name: getattr(self, option.name) for option in fields(Steering)}
        if self.multipliers == DSP and self.lut_pixels is None:
            steering["lut_pixels"] = OFF
        bus_bits = self.max_bus_bits(board)
        return Goal(
            objective=self.objective,
            dsp=budget,
            interval=self.max_cycles(board),
            template=requested_template(vars(self), bus_bits) if self.weights == CONSTANT else STREAM,
            multipliers=DSP if self.weights == RUNTIME and self.multipliers == AUTO else self.multipliers,
            lut=int(LUT_SHARE * board.lut) if self.lut is None else int(self.lut),
            max_bus_bits=bus_bits,
            **steering,
        )

    def max_bus_bits(self, board: Board) -> int:
        """Return the most bits that an engine's memory port may have unless the user gives its width.

        It is the board's. With a requested bandwidth, it is 64, or the next width that moves the bandwidth at the
        board's clock, or else the widest.
        """
        if self.bandwidth is None:
            return board.bus_bits
        wanted = 8 * 1000 * self.bandwidth / board.clock_mhz
        return next((bits for bits in BUS_BITS[1:] if bits >= wanted), BUS_BITS[-1])
