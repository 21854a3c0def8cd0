"""Sessions of ONNX Runtime, the referee of many tests, that do not saturate on x86 processors without VNNI."""

from __future__ import annotations

from typing import Any

import onnxruntime
from referees import saturates

PRECISE = "session.x64quantprecision"
_Session = onnxruntime.InferenceSession


class PreciseSession(_Session):
    """A session in ONNX Runtime's precise mode; in its usual mode if it can't load the model in the other one."""

    def __init__(self, model: Any, sess_options: Any = None, *args: Any, **kwargs: Any) -> None:
        options = onnxruntime.SessionOptions() if sess_options is None else sess_options
        if not _has_mode(options):
            options.add_session_config_entry(PRECISE, "1")
        try:
            super().__init__(model, options, *args, **kwargs)
        except Exception:  # ONNX Runtime raises many types of errors
            options.add_session_config_entry(PRECISE, "0")
            super().__init__(model, options, *args, **kwargs)


def _has_mode(options: onnxruntime.SessionOptions) -> bool:
    """Return whether options state the mode; ONNX Runtime prints a warning if it is stated again."""
    try:
        return bool(options.get_session_config_entry(PRECISE))
    except RuntimeError:
        return False


def install() -> None:
    """Let all sessions that tests of this process make be precise, if the processor's sums saturate otherwise."""
    if saturates():  # asked first, so that it keeps the processor's answer
        onnxruntime.InferenceSession = PreciseSession
