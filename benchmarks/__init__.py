"""gemel beside its peers: `python -m benchmarks mlp|issue|train|cold|compile` (README.md says more)."""
