"""`npx.image`: images as arrays, (H, W, C) or (N, H, W, C).

Written by `make stubs`: change what is declared instead.
"""

__all__ = []
