"""Planner: chooses templates, fusion groups (layers run overlapped on chip) and unroll factors for a network."""

from hwgen.plan.document import read, write
from hwgen.plan.plan import Plan
from hwgen.plan.planner import make
from hwgen.plan.request import Request

__all__ = ["Plan", "Request", "make", "read", "write"]
