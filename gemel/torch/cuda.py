"""Devices with links: gemel's GPUs."""

from gemel import device, npx

device_count, synchronize = device.num_gpus, npx.synchronize


def is_available() -> bool:
    """Whether there is a GPU; simulated ones count."""
    return device_count() > 0
