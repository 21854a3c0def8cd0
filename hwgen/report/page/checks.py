"""Sections of the report page about a simulation: first difference from the golden model, and accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hwgen.errors import InputError

Difference = dict[str, Any]

#: Maximum number of classes for a confusion matrix, and of confused pairs of classes in a list.
MAX_CLASSES, MAX_PAIRS = 40, 30

#: Maximum rows and columns of a pictured map; a larger map is cropped around the difference.
MAX_SIDE = 192


def difference(text: str, row: int, column: int, seen: np.ndarray, wanted: np.ndarray) -> Difference:
    """Return a dict of JSON-like values on a wrong value: place, and its channel's map as simulated and as expected.

    Parameters
    ----------
    text : str
        Location of the value, and both values.
    row, column : int
        Location of the value in the map.
    seen, wanted : ndarray
        ``(H, W)`` maps of the hardware and of the golden model.
    """
    rows, columns = (
        slice(begin := max(0, min(center - MAX_SIDE // 2, size - MAX_SIDE)), begin + MAX_SIDE)
        for center, size in zip((row, column), wanted.shape, strict=True)
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


def check_labels(labels: np.ndarray, frames: int, outputs: int, *, ragged: bool = False) -> None:
    """Raise InputError unless labels are one class per frame, and the model has one output with a row per frame.

    Raises
    ------
    InputError
        If the labels don't fit.
    """
    if outputs != 1:
        raise InputError(f"labels need a model with one output, not {outputs}: leave them out")
    if ragged:
        raise InputError("labels need a model with one row of scores per frame, not a detector's boxes: leave them out")
    if labels.shape != (frames,) or labels.dtype.kind not in "iu":
        raise InputError(
            f"labels must be {frames:,} integers, one per frame, not {labels.dtype} of shape {labels.shape}"
        )


def predicted_classes(outputs: np.ndarray | Mapping[str, np.ndarray], labels: np.ndarray) -> np.ndarray:
    """Return an array of one class index per frame: the index of the largest output value, labels checked before.

    Raises
    ------
    InputError
        If there are several outputs, or the labels are not one class per frame.
    """
    if isinstance(outputs, np.ndarray):
        check_labels(labels, len(outputs), 1, ragged=outputs.dtype == object)
    else:
        check_labels(labels, len(next(iter(outputs.values()))), len(outputs))
    assert isinstance(outputs, np.ndarray)
    frames, classes = len(outputs), outputs[0].size
    if labels.min() < 0 or labels.max() >= classes:
        raise InputError(f"labels must be 0 to {classes - 1}, not {labels.min()} to {labels.max()}")
    return outputs.reshape(frames, -1).argmax(axis=1)


def accuracy(outputs: np.ndarray, expected: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Return a dictionary: frames that hardware and golden model classify correctly, and a confusion matrix."""
    classified, golden = (predicted_classes(values, labels) for values in (outputs, expected))
    classes = outputs[0].size
    counts = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(counts, (labels, classified), 1)
    wrong = counts - np.diag(np.diag(counts))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MAX_PAIRS]
    pairs = [
        (int(label), int(predicted)) for label, predicted in zip(*np.unravel_index(order, wrong.shape), strict=True)
    ]
    return {
        "frames": len(labels),
        "right": int((classified == labels).sum()),
        "golden": int((golden == labels).sum()),
        "confusion": counts.tolist() if classes <= MAX_CLASSES else None,
        "pairs": [
            (label, predicted, int(wrong[label, predicted])) for label, predicted in pairs if wrong[label, predicted]
        ],
    }


def accuracy_line(results: Mapping[str, Any]) -> str:
    """Return a line with the numbers of frames that the hardware and the golden model classify correctly."""
    share = f"{results['right']:,} of {results['frames']:,} frames ({results['right'] / results['frames']:.2%})"
    return f"{share} have their label's class; by the golden model {results['golden']:,}"
