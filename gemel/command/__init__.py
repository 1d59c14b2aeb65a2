"""What `python -m gemel` does: scripts written for MXNet, and the workers of a job."""
