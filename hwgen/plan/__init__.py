"""HOW to compute a network on a device: which templates, groups and unroll factors, and the plan that holds them."""

from hwgen.plan.document import read, write
from hwgen.plan.plan import Plan
from hwgen.plan.planner import make
from hwgen.plan.request import Request

__all__ = ["Plan", "Request", "make", "read", "write"]
