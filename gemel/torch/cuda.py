"""Devices with links: gemel's GPUs."""

from gemel.device import num_gpus as device_count
from gemel.npx import synchronize


def is_available() -> bool:
    """Whether there is a GPU; simulated ones count."""
    return device_count() > 0


__all__ = ["device_count", "is_available", "synchronize"]
