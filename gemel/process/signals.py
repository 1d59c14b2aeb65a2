"""Signals that end a job from outside."""

from __future__ import annotations

import signal


def ending_signals() -> list[signal.Signals]:
    """SIGTERM and SIGHUP; those that are ignored, as SIGHUP under nohup, stay so."""
    both = signal.SIGTERM, signal.SIGHUP
    return [one for one in both if signal.getsignal(one) != signal.SIG_IGN]


__all__ = ["ending_signals"]
