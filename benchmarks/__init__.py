"""gemel beside its peers: `python -m benchmarks mlp|issue|train|cold` (README.md says more)."""
