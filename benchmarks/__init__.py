"""gemel beside its peers: `python -m benchmarks mlp|issue|train|cold|compile`, see README.md."""
