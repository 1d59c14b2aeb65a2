"""What `import mxnet` finds where this folder is on the path: gemel, under that name."""

from gemel import as_mxnet  # noqa: F401 -- puts gemel into this module's place
