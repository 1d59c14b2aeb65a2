"""Matrix products that are computed in tiles."""
