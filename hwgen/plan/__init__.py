"""HOW to compute it on a device: which templates, groups and unroll factors, and the plan that holds them."""

from hwgen.plan.document import read, write
from hwgen.plan.plan import Plan
from hwgen.plan.planner import make
from hwgen.plan.request import Request, asked_template

__all__ = ["Plan", "Request", "asked_template", "make", "read", "write"]
