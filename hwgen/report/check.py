"""Report of ``hwgen check``: a verdict on each of a model's operators, and the memory that its weights need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hwgen.boards import Board
from hwgen.errors import ModelError
from hwgen.network import floats
from hwgen.network.fates import VERDICTS, Operator, Survey
from hwgen.printable import percent
from hwgen.program.passes import passes
from hwgen.report.table import columns
from hwgen.templates.base import layer_weight_bits, memory_bits, sure_shortage
from hwgen.templates.stages import IN_TILES, stage_of

_WORDS = {"built": "built", "folded": "folded", "host": "on the host", "unsupported": "not supported"}
_SINGLE = 30
"""Maximum number of a model's operators that are listed one per line; in longer tables they are grouped."""
_NAMED = 4
"""Maximum number of operators that the table's line for a group of operators names."""


@dataclass(frozen=True, repr=False)
class Check:
    """Result of a check: a verdict on each operator of a model, and whether a board's memory can hold the weights.

    Parameters
    ----------
    survey : Survey
        Operators of the model with their verdicts.
    board : Board, optional
        Board whose memory must hold the weights.
    """

    survey: Survey
    board: Board | None = None

    def __repr__(self) -> str:
        return f"<Check {self.survey.name}: {self.counts()}>"

    @property
    def operators(self) -> tuple[Operator, ...]:
        """Tuple of each `Operator` of the model with its verdict, in the model's order."""
        return self.survey.operators

    @property
    def obstacles(self) -> tuple[str, ...]:
        """Tuple of reasons why operators or tensors can't be built, a line each; empty if all can be built."""
        return self.survey.obstacles

    @property
    def supported(self) -> bool:
        """Whether every operator and tensor of the model can be built."""
        return not self.survey.obstacles

    @property
    def macs_covered(self) -> float:
        """Share (0 to 1) of the model's known MACs in operators that can be built, whatever is around them."""
        return self.survey.macs_covered

    @property
    def macs_built(self) -> float:
        """Share (0 to 1) of the model's known MACs that is built with the same options; 0 if the model is refused."""
        return self.survey.macs_built

    @cached_property
    def weight_bits(self) -> int:
        """Number of bits of all the model's weights, also in operators that can't be built (8 bits per float)."""
        built = sum(bits for _, bits in layer_weight_bits(self.survey.layers))
        return built + sum(bits for _, bits in self.survey.other_weights)

    @cached_property
    def row_bits(self) -> int:
        """Number of bits of the layers' line buffers (recent input rows), built row by row with the fewest rows."""
        stages = [stage_of(layer) for layer in self.survey.layers]
        return sum(
            stage.min_rows * stage.op.width * stage.op.channels * stage.op.input.type.bits
            for stage in stages
            if stage.has_line_buffer
        )

    @cached_property
    def engine_refusals(self) -> tuple[str, ...]:
        """Tuple of reasons why an engine can't compute layers of the model, one text for each such layer."""
        refusals = []
        for layer in self.survey.layers:
            inputs = [""] * len(layer.inputs)
            try:
                passes([layer], [inputs], [False for _ in inputs])
            except ModelError as error:
                refusals.append(str(error))
        return tuple(refusals)

    @property
    def template(self) -> str | None:
        """Template that can hold the network on chip: ``stream`` (row by row) or ``pyramid`` (by tiles); else ``None``.

        ``stream`` if both fit in the board's memory. ``pyramid`` if the weights fit and the layers are a chain of
        convolutions and pools that can work in tiles. ``None`` if neither fits, or without a board. An
        ``engine`` stores its weights in off-chip memory. Only planning shows whether a plan fits.
        """
        if self.board is None or self.weight_bits > memory_bits(self.board):
            return None
        if sure_shortage(self.survey.layers, self.board) is not None:
            return None
        if self.weight_bits + self.row_bits <= memory_bits(self.board):
            return "stream"
        tiled = self.survey.chain and all(type(layer) in IN_TILES for layer in self.survey.layers)
        return "pyramid" if tiled else None

    def to_json(self) -> dict[str, Any]:
        """Return, as a dictionary, the check as JSON-like values, the contents of ``hwgen check --json``."""
        part, board, in_floats = self.survey.part, self.board, self.survey.in_floats
        return {
            "model": self.survey.name,
            "supported": self.supported,
            "operators": [_entry(operator) for operator in self.operators],
            "counts": self._verdicts(),
            "obstacles": list(self.obstacles),
            "macs": sum(operator.macs or 0 for operator in self.operators),
            "macs_covered": self.macs_covered,
            "macs_built": self.macs_built,
            "macs_unknown": [operator.node for operator in self.operators if operator.macs is None],
            "weight_bits": self.weight_bits,
            **({"in_floats": list(map(_float_layer, in_floats))} if in_floats else {}),
            **({} if board is None else {"board": board.name, "memory_bits": memory_bits(board)}),
            **({} if board is None else {"template": self.template, "engine_refusals": list(self.engine_refusals)}),
            **({"until_refused": self.survey.rest_refused} if self.survey.rest_refused else {}),
            "until": None if part is None else {"tensors": list(part.tensors), "macs_covered": part.macs_covered},
        }

    def table(self) -> str:
        """Return the check as text: a table of operators and verdicts, then obstacles, MACs and weights."""
        lines = [f"{self.survey.name}: {self.counts()}", "", *self._table_lines()]
        if self.obstacles:
            lines += ["", "can't be built:", *(f"  {line}" for line in self.obstacles)]
        return "\n".join([*lines, "", *self._summary()])

    def _verdicts(self) -> dict[str, int]:
        verdicts = Counter(operator.verdict for operator in self.operators)
        return {verdict: verdicts[verdict] for verdict in VERDICTS}

    def counts(self) -> str:
        """Return a phrase with the number of operators, in all and by verdict: ``9 operators: 7 built, 2 folded``."""
        counts = ", ".join(f"{count:,} {_WORDS[verdict]}" for verdict, count in self._verdicts().items() if count)
        count_all = len(self.operators)
        return f"{count_all:,} operator{'' if count_all == 1 else 's'}{': ' if counts else ''}{counts}"

    def _table_lines(self) -> list[str]:
        rows = [("verdict", "operator", "why", "node")]
        for group in _groups(self.operators):
            first = group[0]
            names = ", ".join(_flat(operator.node) for operator in group[:_NAMED])
            more = f" and {len(group) - _NAMED:,} more" if len(group) > _NAMED else ""
            op = first.op if len(group) == 1 else f"{len(group):,} {first.op}"
            why = _kind(first) if len(group) > 1 else first.reason
            rows.append((_WORDS[first.verdict], op, _flat(why), names + more))
        return columns(rows, left=range(4), rules=[1])

    def _summary(self) -> list[str]:
        lines = [self._macs()]
        lines.append(f"weights: {self.weight_bits:,} bits")
        if self.board is not None:
            lines[-1] += f"; {self.board.name} ({self.board.device}) has {memory_bits(self.board):,}: {self._advice()}"
        lines += filter(None, [floats.summary_line(self.survey.in_floats, self.survey.layers)])
        if self.supported:
            lines.append("every operator can be built")
        elif self.survey.rest_refused:
            lines.append(f"--until auto builds nothing: {_flat(self.survey.rest_refused)}")
        elif self.survey.part is None:
            lines.append("--until auto builds nothing: no layer precedes the operators that can't be built")
        else:
            tensors = " and ".join(repr(_flat(name)) for name in self.survey.part.tensors)
            share = f"{percent(self.survey.part.macs_covered)} of the MACs"
            how = "--until auto builds"
            if self.survey.part.is_default:
                how = "hwgen builds (--until end insists on the whole model)"
            lines.append(f"{how} the part until {tensors}, {share}; ONNX Runtime runs the rest")
        return lines

    def _macs(self) -> str:
        """Return a line with the model's MACs per frame, and the shares that can be built and that are built."""
        total = sum(operator.macs or 0 for operator in self.operators)
        refused = "none are built, as the model is refused"
        built = f"{percent(self.macs_built)} are built" if self.supported or self.macs_built else refused
        covered = f"{percent(self.macs_covered)} can be built on their own"
        unknown = ", ".join(_flat(operator.node) for operator in self.operators if operator.macs is None)
        without = f"; not counting {unknown}, whose number is unknown" if unknown else ""
        return f"MACs: {total:,} per frame; {covered}, {built}{without}"

    def _advice(self) -> str:
        """Return a clause: which template can hold the network on chip, and whether an engine could compute it."""
        what = "the network" if self.supported else "all of the network"
        first, *others = self.engine_refusals or ("",)
        more = f" (and {len(others):,} other layers)" if others else ""
        engine = f"the engine can't compute {what}: {first}{more}" if first else f"an engine could compute {what}"
        if self.template is None:
            return f"no template could hold {what} on chip; {engine}"
        held = "row by row" if self.template == "stream" else "tile by tile"
        return f"template {self.template} ({held}) could hold {what}; {engine}"


def _entry(operator: Operator) -> dict[str, Any]:
    return {
        "node": operator.node,
        "op": operator.op,
        "verdict": operator.verdict,
        "reason": operator.reason,
        **({"help": operator.help} if operator.help else {}),
        **({"layers": list(operator.layers)} if operator.layers else {}),
        **({"macs": operator.macs} if operator.macs != 0 else {}),
        **({"obstacle": operator.obstacle} if operator.verdict == "unsupported" else {}),
    }


def _float_layer(layer: floats.FloatLayer) -> dict[str, Any]:
    entry = {"layer": layer.name, "error": layer.error, "largest_difference": layer.largest_difference}
    return entry | ({"ties": layer.ties} if layer.ties else {})


def _groups(operators: Sequence[Operator]) -> Iterator[list[Operator]]:
    """Yield the operators that share a table line: one, or in long tables all with equal type, verdict and reason.

    In long tables unsupported operators are last, each on its own line.
    """
    if len(operators) <= _SINGLE:
        yield from ([operator] for operator in operators)
        return
    groups: dict[tuple[str, str, str], list[Operator]] = {}
    for operator in operators:
        if operator.verdict != "unsupported":
            groups.setdefault((operator.verdict, operator.op, _kind(operator)), []).append(operator)
    yield from sorted(groups.values(), key=lambda group: VERDICTS.index(group[0].verdict))
    yield from ([operator] for operator in operators if operator.verdict == "unsupported")


def _kind(operator: Operator) -> str:
    """Return the reason for an operator's verdict without layer names, so that similar operators can share a line."""
    if operator.verdict == "built":
        return "layers"
    return "into layers" if operator.reason.startswith("into layer ") else operator.reason


def _flat(text: str) -> str:
    """Return ``text`` on one line, with single spaces between words."""
    return " ".join(text.split())
