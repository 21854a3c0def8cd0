"""Sweep that plans networks with many option values, and marks the Pareto-optimal plans in one table."""

from __future__ import annotations

import csv
import importlib.util
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from hwgen import installing, work
from hwgen.boards import Board
from hwgen.errors import BoardError, InputError, PlanError, ToolError
from hwgen.network.graph import Network
from hwgen.options import check_names
from hwgen.plan import Plan, Request, kept

MAX_PLANS = 100_000
"""Maximum number of plans that one sweep computes."""

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
"""Names of a sweep table's columns with figures of a plan: cycles, milliseconds, frames per second, resources, bytes.

Milliseconds are at the plan's clock, and bytes are moved off chip.
"""

GOALS = ("interval_ms", "latency_ms", "dsp", "bram36", "lut", "ff", "map_bytes")
"""Tuple of names of the sweep table's columns that can be objectives, which its Pareto front minimises."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Request to plan several networks for several boards with every combination of some options' values.

    Parameters
    ----------
    networks : sequence of Network
        Networks to plan.
    boards : sequence of Board
        Boards to plan for.
    options : mapping of str to sequence
        Values of some parameters of a `hwgen.plan.Request`.
    front : tuple of str
        Objectives of the front, from `GOALS`.

    Raises
    ------
    InputError
        If there is nothing to plan, or too much; if an option or a goal is unknown; if two networks have one name.
    PlanError
        If no combination of the options is valid.
    """

    networks: Sequence[Network]
    boards: Sequence[Board]
    options: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    front: tuple[str, ...] = ("interval_ms", "dsp")

    def __post_init__(self) -> None:
        check_names(self.options)
        if unknown := [name for name in self.front if name not in GOALS]:
            raise InputError(f"front must list some of {', '.join(GOALS)}, not {' and '.join(unknown)}")
        if not self.front or len(set(self.front)) < len(self.front):
            raise InputError(f"front must name one or more figures, each once, not {', '.join(self.front) or 'none'}")
        for name_of_values, values in {"networks": self.networks, "boards": self.boards, **self.options}.items():
            if not values:
                raise InputError(f"{name_of_values} of a sweep must be one or more, not none")
        for name_of_values, names in (
            ("networks", [entry.name for entry in self.networks]),
            ("boards", [entry.name for entry in self.boards]),
        ):
            if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
                raise InputError(f"{name_of_values} of a sweep must have different names, not {twice[0]} twice")
        if self.count > MAX_PLANS:
            raise InputError(f"a sweep has at most {MAX_PLANS:,} plans, not {self.count:,}: take wider steps")
        self._check_requests()

    def _check_requests(self) -> None:
        refusal = None
        for combination in self.combinations:
            try:
                Request.of(combination)
                return
            except PlanError as error:
                refusal = refusal or error
        assert refusal is not None
        raise refusal

    @property
    def count(self) -> int:
        """Number of plans that the sweep computes: networks times boards times option values."""
        total = len(self.networks) * len(self.boards)
        for values in self.options.values():
            total *= len(values)
        return total

    @property
    def combinations(self) -> list[dict[str, Any]]:
        """List of all combinations of the swept options' values, dicts by option; the last one changes fastest."""
        return [dict(zip(self.options, values, strict=True)) for values in product(*self.options.values())]

    def run(self, pool: work.TaskPool) -> SweepTable:
        """Return a `SweepTable` with all plans of the sweep, computed in a pool of processes."""
        pairs = [(network, board) for network in range(len(self.networks)) for board in range(len(self.boards))]
        points = [(*pair, combination) for pair in pairs for combination in self.combinations]
        rows = work.run(pool, row, points, shared=(tuple(self.networks), tuple(self.boards)), what="sweep", unit="plan")
        return SweepTable(tuple(self.options), tuple(mark_front(rows, self.front)), self.front)


def row(networks: Sequence[Network], boards: Sequence[Board], point: tuple[int, int, dict[str, Any]]) -> dict[str, Any]:
    """Make the plan for one point of a sweep; return its table row (dict by column), or the reason for having none."""
    network, board, options = networks[point[0]], boards[point[1]], point[2]
    cells: dict[str, Any] = {"model": network.name, "board": board.name}
    cells |= {f"asked_{name}": value for name, value in options.items()}
    try:
        plan = kept.make(network, board, **options)
    except (PlanError, BoardError) as error:
        return {
            **cells,
            **dict.fromkeys(FIGURES),
            "clock_mhz": None,
            "obstacle": None,
            "refusal": " ".join(error.lines),
        }
    return {**cells, **figures(plan), "clock_mhz": plan.board.clock_mhz, "obstacle": plan.obstacle, "refusal": None}


def figures(plan: Plan) -> dict[str, Any]:
    """Return, as a dict, a plan's figures by column of the sweep table: cycles, milliseconds, resources, bytes."""
    interval = plan.latency if plan.interval is None else plan.interval
    traffic, kilohertz = plan.traffic_bytes, plan.board.clock_mhz * 1000
    return {
        "latency": plan.latency,
        "interval": interval,
        "latency_ms": plan.latency / kilohertz,
        "interval_ms": interval / kilohertz,
        "fps": 1000 * kilohertz / max(plan.bounds.values(), default=interval),
        **plan.resources.as_dict(),
        "groups": len(plan.groups),
        "templates": "+".join(dict.fromkeys(group.template.name for group in plan.groups)),
        "map_bytes": traffic.get("feature_maps", 0),
        "weight_bytes": traffic.get("weights", 0),
    }


def mark_front(rows: Sequence[Mapping[str, Any]], goals: Sequence[str]) -> list[dict[str, Any]]:
    """Return a list of table rows, copied, with an entry ``front``: whether the plan is Pareto-optimal for its model.

    A row dominates another if it is better in one goal and not worse in the others. If rows are equal in all goals, the
    first stands for all. A plan that can't be built is not in the front.
    """
    rows_by_costs: dict[str, dict[tuple[float, ...], int]] = {}
    for index, row_of_plan in enumerate(rows):
        if row_of_plan["refusal"] is None and row_of_plan["obstacle"] is None:
            rows_by_costs.setdefault(row_of_plan["model"], {}).setdefault(
                tuple(row_of_plan[goal] for goal in goals), index
            )
    best = {index for rows_of_model in rows_by_costs.values() for index in _undominated(rows_of_model)}
    return [{**row_of_plan, "front": index in best} for index, row_of_plan in enumerate(rows)]


def _undominated(rows_by_costs: Mapping[tuple[float, ...], int]) -> list[int]:
    """Return the indices (list) of the table rows whose costs are Pareto-optimal. All costs are different."""
    kept: list[tuple[float, ...]] = []
    for costs in sorted(rows_by_costs):  # later costs never dominate earlier ones
        if not any(all(a <= b for a, b in zip(other, costs, strict=True)) for other in kept):
            kept.append(costs)
    return [rows_by_costs[costs] for costs in kept]


@dataclass(frozen=True)
class SweepTable:
    """Table of all plans of a sweep, one row per combination of network, board and options.

    Attributes
    ----------
    swept : tuple of str
        Options that were swept.
    rows : tuple of dict
        One row per plan, all with the same keys: ``model``, ``board``, ``asked_OPTION`` for each option, `FIGURES`
        (``None`` without a plan), ``clock_mhz``, ``obstacle`` (reason why a plan can't be built), ``refusal`` (reason
        why there is no plan), and ``front``.
    front : tuple of str
        Objectives of the front.
    html : callable, optional
        Function that returns the table as HTML, for notebooks (`hwgen.report.notebook`).
    """

    swept: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    front: tuple[str, ...]
    html: Callable[[SweepTable], str] | None = field(default=None, compare=False, repr=False)

    def _repr_html_(self) -> str | None:
        """Return the table as HTML for a notebook, with the Pareto-optimal plans marked."""
        return None if self.html is None else self.html(self)

    @property
    def columns(self) -> list[str]:
        """List of names of the table's columns, in order."""
        return list(self.rows[0])

    @property
    def models(self) -> list[str]:
        """List of names of the models in the table, in the order of the request."""
        return list(dict.fromkeys(row["model"] for row in self.rows))

    @property
    def planned(self) -> list[dict[str, Any]]:
        """List of table rows that have a plan, because the request was not refused."""
        return [row for row in self.rows if row["refusal"] is None]

    def best(self, model: str) -> list[dict[str, Any]]:
        """Return a list of the table rows of a model's Pareto-optimal plans, sorted by the objectives."""
        rows = [row for row in self.rows if row["front"] and row["model"] == model]
        return sorted(rows, key=lambda row: tuple(row[goal] for goal in self.front))

    def csv(self) -> bytes:
        """Return the table of plans as CSV bytes, with a header line. Missing values are empty."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in self.rows)
        return text.getvalue().encode()

    def parquet(self) -> bytes:
        """Return the table of plans as the bytes of a Parquet file.

        Raises
        ------
        ToolError
            If pyarrow is missing.
        """
        return parquet_table(self.columns, self.rows)


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "x".join(map(str, value)) if isinstance(value, tuple) else value


def require_pyarrow() -> None:
    """Raise `ToolError` if the package pyarrow is not installed.

    Raises
    ------
    ToolError
        If pyarrow is not installed.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise ToolError(f"Parquet needs pyarrow, which is not installed: {installing.command('pyarrow')}")


def parquet_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the bytes of a Parquet file with the given columns of table rows.

    A column of integers has the type int64, a column of floats float64.

    Raises
    ------
    ToolError
        If pyarrow is missing.
    """
    require_pyarrow()
    import pyarrow  # type: ignore[import-not-found]
    import pyarrow.parquet  # type: ignore[import-not-found]

    values = {name: [_table_value(row[name]) for row in rows] for name in columns}
    for name, column in values.items():  # options such as 1, 2 or auto
        if len({type(value) for value in column if value is not None} - {int, float}) and any(
            isinstance(value, int | float) and not isinstance(value, bool) for value in column
        ):
            values[name] = [None if value is None else str(value) for value in column]
    buffer = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(values), buffer)
    return buffer.getvalue().to_pybytes()


def _table_value(value: Any) -> Any:
    """Convert a tuple in a table to text such as ``4x8``, which Parquet can store; return other values unchanged."""
    return "x".join(map(str, value)) if isinstance(value, tuple) else value
