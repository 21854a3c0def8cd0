"""The sections of a simulation: whether it equals the golden model, and how many frames it has right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hwgen.errors import InputError

__all__ = ["Difference", "accuracy", "accuracy_line", "check_labels", "difference", "predicted_classes"]

Difference = dict[str, Any]

#: Classes that a table of confusions shows at most; and pairs that are named where there are more.
MOST_CLASSES, MOST_PAIRS = 40, 30

#: Rows and columns of a picture at most: of a larger map those around the difference.
MOST_SIDE = 192


def difference(text: str, row: int, column: int, seen: np.ndarray, wanted: np.ndarray) -> Difference:
    """The first value that differs, and its channel's map as the hardware has it and as it should be.

    Parameters
    ----------
    text : str
        Where it is, and what.
    row, column : int
        Of the value.
    seen, wanted : ndarray
        ``(H, W)`` of the hardware and of the golden model.
    """
    rows, columns = (
        slice(begin := max(0, min(place - MOST_SIDE // 2, size - MOST_SIDE)), begin + MOST_SIDE)
        for place, size in zip((row, column), wanted.shape, strict=True)
    )
    return {
        "text": text,
        "row": row,
        "column": column,
        "begin": [rows.start, columns.start],
        "seen": seen[rows, columns].tolist(),
        "wanted": wanted[rows, columns].tolist(),
        "differ": int(np.count_nonzero(seen != wanted)),
    }


def check_labels(labels: np.ndarray, frames: int, outputs: int) -> None:
    """Refuse what is no label for each frame of a model with so many outputs.

    Raises
    ------
    InputError
    """
    if outputs != 1:
        raise InputError(f"labels go with a model of one output, not of {outputs}")
    if labels.shape != (frames,) or labels.dtype.kind not in "iu":
        raise InputError(f"labels must be {frames:,} integers, one a frame, not {labels.dtype} of shape {labels.shape}")


def predicted_classes(outputs: np.ndarray | Mapping[str, np.ndarray], labels: np.ndarray) -> np.ndarray:
    """The class of each frame: of its output values the greatest one's number.

    Raises
    ------
    InputError
        If there are several outputs, or the labels are no class for each frame.
    """
    several = not isinstance(outputs, np.ndarray)
    check_labels(labels, len(next(iter(outputs.values()))) if several else len(outputs), len(outputs) if several else 1)
    assert isinstance(outputs, np.ndarray)
    frames, classes = len(outputs), outputs[0].size
    if labels.min() < 0 or labels.max() >= classes:
        raise InputError(f"labels must be 0 to {classes - 1}, not {labels.min()} to {labels.max()}")
    return outputs.reshape(frames, -1).argmax(axis=1)


def accuracy(outputs: np.ndarray, expected: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """How many frames have their label's class, by the hardware and by the golden model; and which are taken for which.

    Raises
    ------
    InputError
        As `predicted_classes`.
    """
    found, golden = (predicted_classes(values, labels) for values in (outputs, expected))
    classes = outputs[0].size
    counts = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(counts, (labels, found), 1)
    wrong = counts - np.diag(np.diag(counts))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_PAIRS]
    pairs = [(int(label), int(taken)) for label, taken in zip(*np.unravel_index(order, wrong.shape), strict=True)]
    return {
        "frames": len(labels),
        "right": int((found == labels).sum()),
        "golden": int((golden == labels).sum()),
        "confusion": counts.tolist() if classes <= MOST_CLASSES else None,
        "pairs": [(label, taken, int(wrong[label, taken])) for label, taken in pairs if wrong[label, taken]],
    }


def accuracy_line(found: Mapping[str, Any]) -> str:
    """The same in a line."""
    share = f"{found['right']:,} of {found['frames']:,} frames ({found['right'] / found['frames']:.2%})"
    return f"{share} have their label's class; by the golden model {found['golden']:,}"
