"""What every test has in common."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from programs import SANITIZER


@pytest.fixture(scope="session", autouse=True)
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run outside the source tree: processes that tests start find the installed package.

    In the tree itself `import gemel` would find the sources, which lack the compiled core.
    """
    before = os.getcwd()
    path = os.environ.get("PYTHONPATH")
    if path:
        os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, path.split(os.pathsep)))
    os.chdir(tmp_path_factory.mktemp("elsewhere"))
    yield
    os.chdir(before)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `unsanitized(reason)` on a core built with sanitizers."""
    for item in items:
        mark = item.get_closest_marker("unsanitized")
        if SANITIZER and mark is not None:
            item.add_marker(pytest.mark.skip(reason=f"{SANITIZER} sanitizer: {mark.args[0]}"))
