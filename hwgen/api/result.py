"""Results of simulations: outputs, mismatches with the golden model, and measured and predicted cycles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hwgen.api.arrays import Values, listed
from hwgen.printable import counted

if TYPE_CHECKING:
    from hwgen.simulate.check import Mismatch


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """Result of a simulation: outputs of the hardware and of the golden model, and measured and predicted cycles.

    Parameters
    ----------
    outputs, expected : ndarray, or dict of str to ndarray
        Outputs ``(n, ...)`` of the hardware and of the golden model, in the model's own type and shape. ONNX Runtime
        computes the operators after the last integer tensor. If there are several outputs, a dict by name.
    integers : ndarray, or dict of str to ndarray
        Last integer tensor of the hardware, ``(n, ...)``, in the type and shape that it has in the model. If there are
        several outputs, a dict of their last integer tensors by the outputs' names.
    mismatches : int
        Number of values of the last integer tensors that differ.
    first_mismatch : str or None
        Location of the first mismatch: layer (or output, if there are several), frame, channel, row and column.
    latency, interval : int or None
        Measured cycles: latency of the first frame, and interval between the last two of at least three frames. A frame
        ends with its last output transfer, over all outputs.
    predicted_latency, predicted_interval : int or None
        Cycles that the plan predicts for equally many frames back to back.
    stalled : bool
        Whether source or sink were made to stall, or the memory had limits. The cycles can't be compared with the
        prediction then.
    read_bytes, written_bytes : int
        Bytes that all frames move from and to off-chip memory.
    wall_s, cycles_per_s : float
        Duration of the simulation in seconds, and its speed in simulated cycles per second.
    cycles : int
        Number of simulated cycles.
    simulator : str
        Name of the simulator.
    predicted_bytes : tuple of int or None
        Bytes read and written by the schedule of an engine; ``None`` for an accelerator.
    batch, padding : int
        Number of frames that one run of an engine computes, and number of empty frames that fill up the last run.
        ``latency`` is the whole run's, and ``interval`` is one frame's share of a run, rounded up.
    difference : dict or None
        First mismatch as ``report.html`` draws it: the map of its channel, of the hardware and as expected.
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
        """Return the simulation's result as HTML, for a notebook.

        Returns
        -------
        str
            HTML table.
        """
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
        """Number of simulated frames, an integer."""
        return len(listed(self.integers)[0])

    @property
    def values(self) -> int:
        """Number of values compared with the golden model: the last integer tensors' values, over all frames."""
        return sum(array.size for array in listed(self.integers))

    @property
    def as_predicted(self) -> bool:
        """Whether the measured latency and interval, and an engine's bytes, equal the prediction.

        Cycles count as predicted if the simulation was stalled, and an interval if it was not measured.
        """
        if self.predicted_bytes not in (None, (self.read_bytes, self.written_bytes)):
            return False
        if self.stalled:
            return True
        return self.latency == self.predicted_latency and self.interval in (None, self.predicted_interval)

    @property
    def ok(self) -> bool:
        """Whether all values equal the golden model's, and cycles and bytes are as predicted."""
        return self.mismatches == 0 and self.as_predicted

    def to_json(self) -> dict[str, Any]:
        """Return, as a dictionary, the result as JSON-like values, the contents of ``hwgen simulate --json``.

        Returns
        -------
        dict
            Frames, mismatches, cycles, bytes moved, duration and simulator.
        """
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
        """Return a dict of the sections of ``report.html`` about design and simulation, as JSON-like values by name.

        Parameters
        ----------
        labels : ndarray, optional
            ``(n,)`` integers: the class of each frame. The report then has a section about accuracy.

        Returns
        -------
        dict
            ``verification``, and with labels ``accuracy``.

        Raises
        ------
        InputError
            If the labels are not one class per frame, or the model has several outputs.
        """
        verdict, _, cycles = self.summary().partition("; ")
        cycles_text = cycles[0].upper() + cycles[1:]
        if not self.as_predicted:
            cycles_text += ": not as predicted"
        sections: dict[str, Any] = {
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
            sections["accuracy"] = self.accuracy(labels)
        return sections

    def accuracy(self, labels: np.ndarray) -> dict[str, Any]:
        """Return a dictionary: frames that hardware and golden model classify correctly, and a confusion matrix.

        Parameters
        ----------
        labels : ndarray
            ``(n,)`` integers: the class of each frame.

        Returns
        -------
        dict
            ``frames``, the number of all frames. ``right`` and ``golden``, the numbers of frames that the hardware and
            the golden model classify right. ``confusion``, the hardware's confusion matrix (rows are labels) or
            ``None`` for more than 40 classes. ``pairs``, the most frequent confusions as (label, class, frames).

        Raises
        ------
        InputError
            If the labels are not one class per frame, or the model has several outputs.
        """
        from hwgen.report.page import checks

        checks.predicted_classes(self.outputs, labels)
        assert isinstance(self.outputs, np.ndarray)
        assert isinstance(self.expected, np.ndarray)
        return checks.accuracy(self.outputs, self.expected, labels)

    def summary(self) -> str:
        """Return one line with the number of mismatches, and with measured and predicted cycles.

        Returns
        -------
        str
            Parts that are separated by semicolons.
        """
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
    """Return a dictionary to draw a wrong value's channel map, simulated and expected; ``None`` if unknown.

    Returns
    -------
    dict or None
        ``None`` if there is no mismatch, or its maps are unknown.
    """
    from hwgen.report.page import checks

    if first is None or first.seen is None or first.wanted is None:
        return None
    return checks.difference(str(first), first.row, first.column, first.seen, first.wanted)


def cycles_entry(
    latency: int, interval: int | None, predicted_latency: int, predicted_interval: int | None
) -> dict[str, int | None]:
    """Return measured and predicted latency and interval, in cycles, as a dict with the keys of ``simulate --json``.

    Returns
    -------
    dict of str to (int or None)
        ``latency``, ``interval``, ``predicted_latency`` and ``predicted_interval``.
    """
    return {
        "latency": latency,
        "interval": interval,
        "predicted_latency": predicted_latency,
        "predicted_interval": predicted_interval,
    }
