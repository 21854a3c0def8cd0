"""Planner: chooses how to compute a network on a board (templates, fusion groups, unroll factors), as a plan."""

from hwgen.plan.document import read, write
from hwgen.plan.plan import Plan
from hwgen.plan.planner import make
from hwgen.plan.request import Request

__all__ = ["Plan", "Request", "make", "read", "write"]
