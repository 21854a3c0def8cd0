"""Parallel tasks in processes or threads of this machine, or on a Dask cluster.

All independent tasks of hwgen run in one kind of executor, a `TaskPool`. It is a ``concurrent.futures.Executor``, and
`run` submits tasks to it and gathers their results::

    with work.pool(cluster) as pool:
        plans = work.run(pool, planned, points, shared=(network,))

A task is a module's function with its arguments. It depends on nothing else and has no side effects, so that it can run
again. If a worker is lost, its tasks run again on another worker.
"""

from hwgen.work.base import TaskPool
from hwgen.work.pool import SHARES, check_count, cores, pool, run
from hwgen.work.steps import beside, spread

__all__ = ["SHARES", "TaskPool", "beside", "check_count", "cores", "pool", "run", "spread"]
