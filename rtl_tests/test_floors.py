"""Who imports whom: no circles, and every floor stands on those below it (docs/architecture.md)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

#: Each part of the package, and the parts that it may import besides itself. A line names only parts of lines above it.
FLOORS = {
    "installing": "",
    "printable": "",
    "errors": "printable",
    "fields": "errors",
    "progress": "printable",
    "processes": "errors",
    "work": "errors installing progress processes",
    "digest": "",
    "cache": "errors processes",
    "boards": "errors",
    "arguments": "errors boards",
    "network": "errors progress processes",
    "gateware": "errors",
    "blocking": "errors boards network gateware",
    "schedule": "errors progress network gateware",
    "program": "errors fields work network gateware blocking schedule",
    "templates": "errors fields boards network gateware schedule program",
    "plan": "errors fields digest cache progress boards network gateware blocking schedule templates",
    "explore": "errors installing progress work boards network gateware plan templates",
    "report": "errors fields installing printable boards network gateware blocking schedule program templates plan explore",
    "emit": "errors fields installing printable progress processes work digest cache boards gateware schedule program "
    "report",
