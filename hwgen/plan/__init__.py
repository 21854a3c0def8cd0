"""HOW to compute it on a device: unrolling, buffers, the exact schedule, and the plan that holds them."""

from hwgen.plan.document import read, write
from hwgen.plan.plan import Group, LayerPlan, Plan
from hwgen.plan.planner import make

__all__ = ["Group", "LayerPlan", "Plan", "make", "read", "write"]
