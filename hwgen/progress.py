"""Telling how far work has come, on stderr: at once on a terminal, now and then in a file or a pipe."""

from __future__ import annotations

import sys
import time

__all__ = ["PAUSE", "Lines", "on_terminal"]

PAUSE = 10.0
"""Seconds between lines, and before the first, where stderr is no terminal."""


def on_terminal() -> bool:
    """Whether somebody watches stderr."""
    return sys.stderr is not None and sys.stderr.isatty()


class Lines:
    """Lines about one piece of work; where stderr is no terminal at most one every ``PAUSE`` seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def say(self, text: str) -> None:
        now = time.monotonic()
        if on_terminal() or (sys.stderr is not None and now - self._last >= PAUSE):
            self._last = now
            print(text, file=sys.stderr, flush=True)
