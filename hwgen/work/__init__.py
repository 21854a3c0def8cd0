"""Work that runs side by side: on this machine, or on a Dask cluster.

Everything that hwgen does in many independent parts goes through one kind of executor, a `Pool`: it is a
``concurrent.futures.Executor``, and `run` gives it tasks and gathers what they return::

    with work.pool(cluster) as pool:
        plans = work.run(pool, planned, points, shared=(network,))

A task is a function of a module and what it takes; it depends on nothing else and leaves nothing behind, so that it may
be run again. A worker that is lost costs the time of its tasks: they are run once more, elsewhere.
"""

from hwgen.work.base import Pool
from hwgen.work.pool import SHARES, check_count, cores, pool, run
from hwgen.work.steps import beside, spread

__all__ = ["SHARES", "Pool", "beside", "check_count", "cores", "pool", "run", "spread"]
