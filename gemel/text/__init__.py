"""MXNet 1's `contrib.text`: vocabularies, and vectors of words from files."""

from gemel.text import embedding, utils, vocab

__all__ = ["embedding", "utils", "vocab"]
