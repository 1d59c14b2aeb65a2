"""The graph: nodes, entries, operations, and what can be said of them without running them."""
