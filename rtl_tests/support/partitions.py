"""External traffic of a convolution that several cores divide (Yang, section 3.3).

Yang unrolls an outer loop of a blocking over the cores. What all cores need is read once and broadcast:

========== ============================ ============================ ==========
divided    input                        weights                      output
========== ============================ ============================ ==========
K          broadcast                    each core its kernels        each once
X or Y     each core its rows and halos broadcast                    each once
frames     each core its frame          broadcast                    each once
========== ============================ ============================ ==========

So no division changes the traffic of weights or outputs, and only halos change that of inputs. Dividing the input
channels would add traffic of partial sums, and is not considered, as in the paper. A division also changes the blocking
of each core: how often inputs and weights are loaded again is the number of folds, or of boxes, of one core.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwgen.blocking.problem import Problem
from hwgen.errors import PlanError


@dataclass(frozen=True, kw_only=True)
class Partition:
    """Division of a convolution among cores, by output channels, by rows of output pixels and by frames.

    Parameters
    ----------
    kernels : int
        Number of shares of the output channels.
    rows : int
        Number of equal shares of the output rows.
    frames : int
        Number of frames that are computed at the same time.

    Raises
    ------
    PlanError
        If a number is not positive.
    """

    kernels: int = 1
    rows: int = 1
    frames: int = 1

    def __post_init__(self) -> None:
        if min(self.kernels, self.rows, self.frames) < 1:
            raise PlanError(f"a partition must have a share of each loop at least, not {self}")

    @property
    def cores(self) -> int:
        """Number of cores of the partition."""
        return self.kernels * self.rows * self.frames


def external_words(
    problem: Problem,
    partition: Partition,
    *,
    box: tuple[int, int] | None = None,
    input_loads: int = 1,
    weight_loads: int = 1,
) -> dict[str, int]:
    """Return the words of input, weights and output that cross the border of the chip, by operand.

    Parameters
    ----------
    problem : Problem
        Convolution of one frame.
    partition : Partition
    box : tuple of int, optional
        Rows and columns of output pixels for which one core loads input at a time; by default its whole share.
    input_loads, weight_loads : int
        Number of times that a core loads its share of the input, and of the weights.
    """
    share = -(-problem.Y // partition.rows)
    box_rows, box_columns = box or (share, problem.X)
    rows = sum(
        _needed(problem, 0, team * share + begin, team * share + min(begin + box_rows, share))
        for team in range(partition.rows)
        for begin in range(0, share, box_rows)
    )
    columns = sum(
        _needed(problem, 1, begin, min(begin + box_columns, problem.X)) for begin in range(0, problem.X, box_columns)
    )
    return {
        "input": partition.frames * rows * columns * problem.C * input_loads,
        "weights": problem.K * problem.C * problem.Fh * problem.Fw * weight_loads,
        "output": partition.frames * problem.Y * problem.X * problem.K,
    }


def _needed(problem: Problem, axis: int, begin: int, end: int) -> int:
    """Return the number of input rows (axis 0) or columns (axis 1) that outputs ``begin`` to ``end - 1`` read."""
    stride, pad = problem.stride[axis], problem.pad[axis]
    limit, taps = ((problem.height, problem.Fh), (problem.width, problem.Fw))[axis]
    first, last = begin * stride - pad, (end - 1) * stride - pad + taps
    return max(min(last, limit) - max(first, 0), 0)
