"""MXNet 1's name for `gemel.gluon.metric`."""

from gemel.gluon.metric import *  # noqa: F403 -- the same names
from gemel.gluon.metric import __all__ as __all__
