"""The process: one interpreter, one copy of the core, and a system that refuses threads."""

from __future__ import annotations

import pytest
from programs import end


def test_a_second_import_is_refused_or_works() -> None:
    ended = end(
        """
        import os, sys
        import gemel
        for name in [name for name in sys.modules if name.split(".")[0] == "gemel"]:
            del sys.modules[name]
        try:
            import gemel
            from gemel import np
        except ImportError as error:
            tell(refused="gemel" in str(error))
            os._exit(0)
        tell(sum=(np.ones((3,)) + 1).tolist())
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        tell(child=os.waitpid(pid, 0)[1])
        os._exit(0)
        """,
    )
    assert ended.told in ({"refused": True}, {"sum": [2, 2, 2], "child": 0}), ended


def test_an_import_in_a_subinterpreter_is_refused_or_works() -> None:
    """Afterwards the first interpreter still works."""
    ended = end(
        """
        import gc, os
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        from gemel import np
        x = np.ones((3,)) + 1
        other = interpreters.create()
        try:
            failed = interpreters.run_string(other, "from gemel import np; np.ones((3,)) + 1")
        except Exception as error:
            failed = error
        tell(answer=failed is None or "ImportError" in str(failed))
        y = np.ones((3,)) + 1
        tell(same_class=type(y) is type(x) and y.dtype == x.dtype)
        interpreters.destroy(other)
        gc.collect()
        z = np.ones((3,)) * 2
        for _ in range(1000):
            z = z * 1.0 + np.zeros((3,))
        tell(sum=(z + y).tolist())
        """,
    )
    assert ended.told == {"answer": True, "same_class": True, "sum": [4, 4, 4]}, ended
    assert ended.code == 0, ended


@pytest.mark.unsanitized("a limit on the address space leaves no room for shadow memory")
@pytest.mark.parametrize(
    "work",
    [
        "np.ones((1000, 1000), device=gpu(0)).asnumpy()",
        "_core.set_workers(4); np.dot(x, x).asnumpy()",
        "npx.callback(lambda v: v + 1, np.dot(x, x), outputs=((1000, 1000), 'float32')).asnumpy()",
    ],
    ids=["a simulated GPU's", "a worker", "the Python lane's"],
)
def test_no_room_for_a_thread_is_a_python_error(work: str) -> None:
    """Or the work goes on with fewer threads; the process never ends."""
    ended = end(
        f"""
        import resource
        import gemel, numpy
        from gemel import _core, gpu, np, npx
        gemel.device.simulate(1)
        x = np.ones((1000, 1000))
        (x + 1).asnumpy(), np.dot(x, x).asnumpy()  # nothing is left to compile
        room = int(open("/proc/self/statm").read().split()[0]) * 4096 + (4 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        try:
            {work}
            tell(worked=True)
        except Exception as error:
            tell(raised=type(error).__name__)
        """,
        GEMEL_UNSEEN_ERRORS="warn",
        GEMEL_WORKERS="0" if "workers" in work else None,
    )
    assert ended.code == 0, ended
    assert ended.told in ({"worked": True}, {"raised": "MemoryError"}, {"raised": "RuntimeError"})
