"""Results of the planner's searches: what fits the board, or a `Refusal` with the reason why nothing does.

The caller at the user's request turns a refusal into an exception.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from hwgen.errors import PlanError

Fit = TypeVar("Fit")
"""Type variable of a search's result if something fits the board: an `Unrolling`, a `Group` or a `Plan`."""

Parameters = ParamSpec("Parameters")


class OverBudgetError(PlanError):
    """Error: a plan needs more of a board's ``resource`` than there is; ``needed`` is the amount."""

    def __init__(self, message: str, resource: str, needed: float):
        super().__init__(message)
        self.resource, self.needed = resource, needed


@dataclass(frozen=True)
class Refusal:
    """Result of a planner's search that finds nothing that fits: the reason, and the board's resource that runs out.

    Parameters
    ----------
    reason : str
        One sentence for people. It names what would fit where that is known.
    resource : str
        Resource of the board that runs out: ``DSP slices``, ``BRAM36``, ``LUTs`` or ``flip-flops``. Empty if the layers
        can't be built with more of any resource either.
    needed : float
        Amount of the resource that would suffice for the attempted plan.
    """

    reason: str
    resource: str = ""
    needed: float = 0

    def __str__(self) -> str:
        return str(self.error)  # the error removes control characters that names can contain

    @property
    def over_budget(self) -> bool:
        """Whether a resource of the board runs out, so that a plan would fit a board with more of it."""
        return bool(self.resource)

    @property
    def error(self) -> PlanError:
        """Exception to raise for this refusal: an `OverBudgetError` if a resource runs out, else a `PlanError`."""
        if self.over_budget:
            return OverBudgetError(self.reason, self.resource, self.needed)
        return PlanError(self.reason)


def fitting(outcome: Fit | Refusal) -> Fit:
    """Return a search's outcome, or raise its refusal's exception.

    Raises
    ------
    PlanError
        If the outcome is a refusal; an `OverBudgetError` names the resource that runs out.
    """
    if isinstance(outcome, Refusal):
        raise outcome.error
    return outcome


def attempt(
    search: Callable[Parameters, Fit | Refusal], *args: Parameters.args, **options: Parameters.kwargs
) -> Fit | Refusal:
    """Return a search's outcome; a `PlanError` that it raises becomes a `Refusal`."""
    try:
        return search(*args, **options)
    except PlanError as error:
        return Refusal(error.args[0])
