"""The commands of `python -m gemel`: running scripts written for MXNet, and starting workers."""
