"""Many plans of one or several networks, as one table, with those that nothing beats marked."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from hwgen import work
from hwgen.boards import Board
from hwgen.errors import BoardError, InputError, PlanError
from hwgen.network.graph import Network
from hwgen.plan import Plan, Request, kept

MOST_PLANS = 100_000

FIGURES = (
    "latency",
    "interval",
    "latency_ms",
    "interval_ms",
    "fps",
    "dsp",
    "bram36",
    "lut",
    "ff",
    "groups",
    "templates",
)
FIGURES += ("map_bytes", "weight_bytes")
"""Columns of a plan: cycles, milliseconds at its clock, frames a second, resources, off-chip bytes of a frame."""

GOALS = ("interval_ms", "latency_ms", "dsp", "bram36", "lut", "ff", "map_bytes")
"""Figures of which less is better."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Plans of some networks on some boards.

    Parameters
    ----------
    networks : sequence of Network
    boards : sequence of Board
    options : mapping of str to sequence
        Values that each of some parameters of a `hwgen.plan.Request` takes in turn.
    front : tuple of str
        Which of `GOALS` are weighed against each other.

    Raises
    ------
    InputError
        If there is nothing to plan, or too much; if an option or a goal is unknown; if two networks have one name.
    PlanError
        If no combination of the options makes sense.
    """

    networks: Sequence[Network]
    boards: Sequence[Board]
    options: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    front: tuple[str, ...] = ("interval_ms", "dsp")

    def __post_init__(self) -> None:
        Request.check_names(self.options)
        if unknown := [name for name in self.front if name not in GOALS]:
            raise InputError(f"front must be of some of {', '.join(GOALS)}, not of {' and '.join(unknown)}")
        if not self.front or len(set(self.front)) < len(self.front):
            raise InputError("front must name one figure or more, each once")
        for what, values in {"networks": self.networks, "boards": self.boards, **self.options}.items():
            if not values:
                raise InputError(f"{what} of a sweep must be one or more, not none")
        for what, names in (
            ("networks", [each.name for each in self.networks]),
            ("boards", [each.name for each in self.boards]),
        ):
            if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
                raise InputError(f"{what} of a sweep must have different names, not {twice[0]} twice")
        if self.count > MOST_PLANS:
            raise InputError(f"a sweep has at most {MOST_PLANS:,} plans, not {self.count:,}: take wider steps")
        self._check_requests()

    def _check_requests(self) -> None:
        refusal = None
        for asked in self.asked:
            try:
                Request.of(asked)
                return
            except PlanError as error:
                refusal = refusal or error
        assert refusal is not None
        raise refusal

    @property
    def count(self) -> int:
        """How many plans there are."""
        found = len(self.networks) * len(self.boards)
        for values in self.options.values():
            found *= len(values)
        return found

    @property
    def asked(self) -> list[dict[str, Any]]:
        """Every combination of the options, the last one changing fastest."""
        return [dict(zip(self.options, values, strict=True)) for values in product(*self.options.values())]

    def run(self, pool: work.Pool) -> Table:
        """Make all plans."""
        places = [(network, board) for network in range(len(self.networks)) for board in range(len(self.boards))]
        points = [(*place, asked) for place in places for asked in self.asked]
        rows = work.run(pool, row, points, shared=(tuple(self.networks), tuple(self.boards)), what="sweep", unit="plan")
        return Table(tuple(self.options), tuple(mark(rows, self.front)), self.front)


def row(networks: Sequence[Network], boards: Sequence[Board], point: tuple[int, int, dict[str, Any]]) -> dict[str, Any]:
    """One plan, or why there is none."""
    network, board, asked = networks[point[0]], boards[point[1]], point[2]
    found: dict[str, Any] = {"model": network.name, "board": board.name}
    found |= {f"asked_{name}": value for name, value in asked.items()}
    try:
        plan = kept.make(network, board, **asked)
    except (PlanError, BoardError) as error:
        return {
            **found,
            **dict.fromkeys(FIGURES),
            "clock_mhz": None,
            "obstacle": None,
            "refusal": " ".join(error.lines),
        }
    return {**found, **figures(plan), "clock_mhz": plan.board.clock_mhz, "obstacle": plan.obstacle, "refusal": None}


def figures(plan: Plan) -> dict[str, Any]:
    """What `FIGURES` are of a plan."""
    interval = plan.latency if plan.interval is None else plan.interval
    traffic, kilohertz = plan.traffic_bytes, plan.board.clock_mhz * 1000
    return {
        "latency": plan.latency,
        "interval": interval,
        "latency_ms": plan.latency / kilohertz,
        "interval_ms": interval / kilohertz,
        "fps": 1000 * kilohertz / interval,
        **plan.resources.as_dict(),
        "groups": len(plan.groups),
        "templates": "+".join(dict.fromkeys(group.template.name for group in plan.groups)),
        "map_bytes": traffic.get("feature_maps", 0),
        "weight_bytes": traffic.get("weights", 0),
    }


def mark(rows: Sequence[Mapping[str, Any]], goals: Sequence[str]) -> list[dict[str, Any]]:
    """The rows, with ``front`` true in those that no other of the same model beats.

    One row beats another if it is no worse in any of the goals and better in one; of rows that are equal in all goals
    the first one stands for all. What can't be built is not in the front.
    """
    ways: dict[str, dict[tuple[float, ...], int]] = {}
    for number, each in enumerate(rows):
        if each["refusal"] is None and each["obstacle"] is None:
            ways.setdefault(each["model"], {}).setdefault(tuple(each[goal] for goal in goals), number)
    best = {number for found in ways.values() for number in _unbeaten(found)}
    return [{**each, "front": number in best} for number, each in enumerate(rows)]


def _unbeaten(ways: Mapping[tuple[float, ...], int]) -> list[int]:
    """Numbers of the costs that none of the others, all different, is no worse than in every respect."""
    kept: list[tuple[float, ...]] = []
    for costs in sorted(ways):  # what comes later never beats what came before
        if not any(all(a <= b for a, b in zip(other, costs, strict=True)) for other in kept):
            kept.append(costs)
    return [ways[costs] for costs in kept]


@dataclass(frozen=True)
class Table:
    """The rows of a sweep.

    Attributes
    ----------
    asked : tuple of str
        The options that were swept.
    rows : tuple of dict
        One a plan, all with the same keys: ``model``, ``board``, ``asked_OPTION`` for each option, `FIGURES` (``None``
        where there is no plan), ``clock_mhz``, ``obstacle`` (why a plan can't be built), ``refusal`` (why there is
        none), and ``front``.
    front : tuple of str
        The goals of the front.
    html : callable, optional
        What makes a page's part of it, for notebooks (`hwgen.report.notebook`).
    """

    asked: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    front: tuple[str, ...]
    html: Callable[[Table], str] | None = field(default=None, compare=False, repr=False)

    def _repr_html_(self) -> str | None:
        """The plans in a notebook, with those of the front marked."""
        return None if self.html is None else self.html(self)

    @property
    def columns(self) -> list[str]:
        """The keys of each row, in order."""
        return list(self.rows[0])

    @property
    def models(self) -> list[str]:
        """The models' names, in the order in which they were asked for."""
        return list(dict.fromkeys(row["model"] for row in self.rows))

    @property
    def planned(self) -> list[dict[str, Any]]:
        """The rows that are plans."""
        return [row for row in self.rows if row["refusal"] is None]

    def best(self, model: str) -> list[dict[str, Any]]:
        """The rows of a model's front, sorted by the goals."""
        found = [row for row in self.rows if row["front"] and row["model"] == model]
        return sorted(found, key=lambda row: tuple(row[goal] for goal in self.front))

    def csv(self) -> bytes:
        """The table as CSV, with a line of names; what is not there is empty."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in self.rows)
        return text.getvalue().encode()

    def parquet(self) -> bytes:
        """The table as Parquet.

        Raises
        ------
        ToolError
            If pyarrow is missing.
        """
        from hwgen.explore import parquet

        return parquet.written(self.columns, self.rows)


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "x".join(map(str, value)) if isinstance(value, tuple) else value
