"""Results of simulations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hwgen.api.arrays import Values, listed
from hwgen.printable import counted

if TYPE_CHECKING:
    from hwgen.simulate.check import Mismatch

__all__ = ["Result", "cycles_entry", "difference"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """What a simulation gave, beside what was expected.

    Parameters
    ----------
    outputs, expected : ndarray, or dict of str to ndarray
        ``(n, ...)`` of the hardware and of the golden model, as the model itself gives its output: with what stands
        behind the last integer tensor done by ONNX Runtime. Of a model with several outputs each of them, by name.
    integers : ndarray, or dict of str to ndarray
        ``(n, ...)``, the last integer tensor of the hardware, in the type and shape that it has in the model; of
        several outputs that of each, by the output's name.
    mismatches : int
        Values of the last integer tensors that differ.
    first_mismatch : str or None
        Layer (or of several outputs the output), frame, channel, row and column of the first one.
    latency, interval : int or None
        Measured, in cycles (design terms: of the first frame; between the last two of at least three frames). A frame
        ends with its last output transfer, over all outputs.
    predicted_latency, predicted_interval : int or None
        What the plan says of so many frames back to back.
    stalled : bool
        Whether source or sink were made to stall, or the memory had limits: cycles then mean nothing against the
        prediction.
    read_bytes, written_bytes : int
        Moved from and to off-chip memory, for all frames.
    wall_s, cycles_per_s : float
        Time the simulation took, and its speed.
    cycles : int
        Cycles simulated.
    simulator : str
        Which simulator ran.
    predicted_bytes : tuple of int or None
        Of an engine: what the schedule says is read and written.
    batch, padding : int
        Of an engine: frames that a run computes, of which the latency is the run's and the interval a frame's share,
        rounded up; and how many frames the last run lacked.
    difference : dict or None
        The first mismatch as ``report.html`` draws it: its channel's map, of the hardware and as expected.
    """

    outputs: Values
    expected: Values
    integers: Values
    mismatches: int
    first_mismatch: str | None
    latency: int
    interval: int | None
    predicted_latency: int
    predicted_interval: int | None
    stalled: bool
    read_bytes: int
    written_bytes: int
    wall_s: float
    cycles: int
    cycles_per_s: float
    simulator: str
    predicted_bytes: tuple[int, int] | None = None
    batch: int = 1
    padding: int = 0
    difference: dict[str, Any] | None = None

    def _repr_html_(self) -> str:
        """The result in a notebook."""
        from hwgen.report import notebook

        head = ("", "measured", "without stalls" if self.stalled else "predicted")
        rows = [("latency", self.latency, self.predicted_latency), ("interval", self.interval, self.predicted_interval)]
        body = [(name, *("" if value is None else f"{value:,}" for value in values)) for name, *values in rows]
        said = [self.summary().partition(";")[0], *([self.first_mismatch] if self.first_mismatch else [])]
        said.append(f"{self.frames:,} frames, {self.cycles:,} cycles in {self.wall_s:.1f} s ({self.simulator})")
        return notebook.lines(said) + notebook.table(head, body)

    def __repr__(self) -> str:
        return f"<Result of {self.simulator}, {counted(self.frames, 'frame')}: {self.summary()}>"

    @property
    def frames(self) -> int:
        return len(listed(self.integers)[0])

    @property
    def values(self) -> int:
        """Values that were compared: of the last integer tensors."""
        return sum(array.size for array in listed(self.integers))

    @property
    def as_predicted(self) -> bool:
        """Whether latency and interval, as far as measured, equal the prediction (true under stalls), and bytes."""
        if self.predicted_bytes not in (None, (self.read_bytes, self.written_bytes)):
            return False
        if self.stalled:
            return True
        return self.latency == self.predicted_latency and self.interval in (None, self.predicted_interval)

    @property
    def ok(self) -> bool:
        """No mismatch, and cycles as predicted."""
        return self.mismatches == 0 and self.as_predicted

    def to_json(self) -> dict[str, Any]:
        """The contents of ``hwgen simulate --json``."""
        return {
            "frames": self.frames,
            "mismatches": self.mismatches,
            "cycles": cycles_entry(self.latency, self.interval, self.predicted_latency, self.predicted_interval),
            "memory": {"read_bytes": self.read_bytes, "written_bytes": self.written_bytes},
            "wall_s": round(self.wall_s, 3),
            "cycles_per_s": round(self.cycles_per_s),
            "simulator": self.simulator,
            **({"batch": self.batch, "padding": self.padding} if self.batch > 1 else {}),
        }

    def document(self, labels: np.ndarray | None = None) -> dict[str, Any]:
        """The sections of the simulation in ``report.html``, as plain values; beside those of ``Design.document``.

        Parameters
        ----------
        labels : ndarray, optional
            ``(n,)`` integers: the class of each frame. Then there is a section about accuracy.

        Raises
        ------
        InputError
            If they are no class for each frame, or the model has several outputs.
        """
        verdict, _, cycles = self.summary().partition("; ")
        cycles_text = cycles[0].upper() + cycles[1:]
        if not self.as_predicted:
            cycles_text += ": not as predicted"
        found: dict[str, Any] = {
            "verification": {
                "ok": self.ok,
                "verdict": verdict[0].upper() + verdict[1:],
                "cycles_text": cycles_text,
                "frames": self.frames,
                "compared": self.values,
                "mismatches": self.mismatches,
                **{name: getattr(self, name) for name in ("latency", "interval", "stalled", "cycles", "simulator")},
                **{name: getattr(self, name) for name in ("predicted_latency", "predicted_interval")},
                "read_bytes": self.read_bytes,
                "written_bytes": self.written_bytes,
                "predicted_bytes": self.predicted_bytes,
                "difference": self.difference,
            }
        }
        if labels is not None:
            found["accuracy"] = self.accuracy(labels)
        return found

    def accuracy(self, labels: np.ndarray) -> dict[str, Any]:
        """How many ``frames`` are ``right`` by the hardware, by the ``golden`` model, and the ``confusion`` matrix.

        Parameters
        ----------
        labels : ndarray
            ``(n,)`` integers: the class of each frame.

        Raises
        ------
        InputError
            If they are no class for each frame, or the model has several outputs.
        """
        from hwgen.report.page import checks

        checks.predicted_classes(self.outputs, labels)
        assert isinstance(self.outputs, np.ndarray)
        assert isinstance(self.expected, np.ndarray)
        return checks.accuracy(self.outputs, self.expected, labels)

    def summary(self) -> str:
        """One line: what was compared, and the cycles against the prediction."""
        word = "without stalls" if self.stalled else "predicted"
        cycles = f"latency {self.latency:,} cycles; {word} {self.predicted_latency:,}"
        if self.interval is not None:
            cycles += f"; interval {self.interval:,}; {word} {self.predicted_interval:,}"
        if self.batch > 1:
            cycles += f"; {counted((self.frames + self.padding) // self.batch, 'run')} of {self.batch} frames"
        if self.padding:
            cycles += f", the last one filled up with {counted(self.padding, 'empty frame')}"
        if self.mismatches:
            return f"{self.mismatches:,} of {self.values:,} output values differ from the golden model; {cycles}"
        return f"every one of {self.values:,} output values equals the golden model; {cycles}"


def difference(first: Mismatch | None) -> dict[str, Any] | None:
    """The first mismatch as a page draws it."""
    from hwgen.report.page import checks

    if first is None or first.seen is None or first.wanted is None:
        return None
    return checks.difference(str(first), first.row, first.column, first.seen, first.wanted)


def cycles_entry(
    latency: int, interval: int | None, predicted_latency: int, predicted_interval: int | None
) -> dict[str, int | None]:
    """Return measured and predicted cycles under the keys of ``hwgen simulate --json``."""
    return {
        "latency": latency,
        "interval": interval,
        "predicted_latency": predicted_latency,
        "predicted_interval": predicted_interval,
    }
