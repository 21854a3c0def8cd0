"""HOW to compute it on a device: unrolling, buffers, the exact schedule, and the plan that holds them."""

from hwgen.plan.plan import LayerPlan, Plan, read
from hwgen.plan.planner import make

__all__ = ["LayerPlan", "Plan", "make", "read"]
