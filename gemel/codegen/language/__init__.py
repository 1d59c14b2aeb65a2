"""What a kernel computes: programs, and how operations are recorded as such."""
