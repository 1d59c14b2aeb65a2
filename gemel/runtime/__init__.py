"""Plans: compiled graphs, the kernels they use, and the face of the engine."""
