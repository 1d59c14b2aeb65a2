"""Tracing: Python functions as programs, bound to the sizes of their arguments and run as plans."""
