"""Programs that are computed in loops."""
