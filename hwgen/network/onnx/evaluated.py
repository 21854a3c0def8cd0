"""Tensors of an ONNX graph whose values depend on nothing but the number of frames of a batch.

Exporters compute shapes and indices from the number of frames. A model can also use this number as a value, which makes
the result of one frame depend on how many others there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from hwgen.network.onnx.file import takes
from hwgen.network.onnx.sizes import BATCH

_COUNTS = (1, 2, 3, 7, 65)
"""Numbers of frames for which tensors are evaluated, if the batch has any number: small ones, and one beyond limits
such as ``min(frames, 8)``."""
_MOST_VALUES = 1 << 23
"""Largest number of values of a tensor that is evaluated."""
_SMALL = 64
"""Largest number of values of a node's operands with which it is evaluated, even if all of them are constants."""


class BatchValues:
    """Values of tensors for several numbers of frames.

    Parameters
    ----------
    constants : mapping
        Values of constants, by name. The integer `BATCH` stands for the number of frames.
    batch : int or None
        Fixed number of frames of a batch; ``None`` if the model takes any number.
    """

    def __init__(self, constants: Mapping[str, np.ndarray], batch: int | None) -> None:
        self.counts = _COUNTS if batch is None else (batch,)
        """Numbers of frames for which tensors are evaluated."""
        self._constants = constants
        self._values: dict[str, Sequence[np.ndarray]] = {}

    def note(self, name: str, values: Sequence[np.ndarray]) -> None:
        """Store the values of the tensor ``name``, one array for each of `counts`."""
        if max(array.size for array in values) <= _MOST_VALUES:
            self._values[name] = values

    def of(self, name: str) -> Sequence[np.ndarray] | None:
        """Return the values of a tensor, one array for each of `counts`; ``None`` if they are not known."""
        if name in self._values or name not in self._constants:
            return self._values.get(name)
        array = self._constants[name]
        if array.dtype != np.int64 or not (array == BATCH).any():
            return [array] * len(self.counts)
        return [np.where(array == BATCH, np.int64(count), array) for count in self.counts]

    def evaluate(self, node: onnx.NodeProto) -> None:
        """Store the outputs of a node that reads known tensors, if they are small or depend on the number of frames."""
        names = takes(node)
        operands = {name: values for name in names if (values := self.of(name)) is not None}
        if not names or len(operands) < len(set(names)):
            return
        if sum(values[0].size for values in operands.values()) > _SMALL and not any(map(self.varies, names)):
            return
        try:
            results = [
                ReferenceEvaluator(node).run(None, {name: values[index] for name, values in operands.items()})
                for index in range(len(self.counts))
            ]
        except Exception:  # operators raise many types of errors; the tensor is then unknown
            return
        for name, values in zip(node.output, zip(*results, strict=True), strict=False):
            if name:
                self.note(name, [np.asarray(value) for value in values])

    def varies(self, name: str) -> bool:
        """Return whether a tensor is known, and not one constant for all numbers of frames."""
        values = self.of(name)
        return values is not None and any(not np.array_equal(values[0], array) for array in values)
