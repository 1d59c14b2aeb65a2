"""The C++ core: arrays, operations, plans, the engine. Knows no operation by name."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from typing_extensions import Buffer, Self

#: (name of the exception class, message).
FailureText: TypeAlias = tuple[str, str]

class History:
    """Where the contents that some arrays share come from; attributes may be None."""

    source: Any
    variable: Any
    views: Any
    @property
    def is_saved(self) -> bool:
        """Whether somebody has kept the contents."""
    def take_saved(self) -> list[Saved]:
        """Who has kept the contents; the history no longer knows them."""
    @property
    def base(self) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Shape, strides and offset of the array it was made for."""

class Saved:
    """An array that will be read again, without history, and the version it had."""

    array: Any
    version: int

class Call:
    """A recorded call."""

    kind: Any
    sources: tuple[Any, ...]
    reads: tuple[Any, ...]
    values: tuple[Any, ...]
    variables: Any
    freed: bool
    def __init__(self, kind: Any, sources: tuple[Any, ...]) -> None: ...

def calls_before(heads: list[Any]) -> list[Any]:
    """The calls that sources depend on, each after those before it; equal for equal steps."""

def leading(
    calls: list[Any], sources: list[tuple[Any, ...]], ends: list[Any], /
) -> list[tuple[bool, ...]]:
    """For each call and each of its sources, whether a gradient there leads to one of the ends."""

def step_words(
    calls: list[Any],
    sources: list[tuple[Any, ...]],
    masks: list[tuple[bool, ...]],
    ends: list[Any],
    heads: list[Any],
    /,
) -> bytes:
    """What steps with the same gradient graph share: kinds, connections and layouts."""

def saved_arrays(calls: list[Any], wanted: list[tuple[int, tuple[Any, ...]]], /) -> list[Array]:
    """What calls have saved for these (position, ports), transposed to the order in memory.

    Raises `GradientError` if it was overwritten.
    """

def saved_of(call: Call, ports: tuple[Any, ...], /) -> list[Array] | None:
    """What a call has saved for some ports; None if that is missing or was overwritten."""

def run_operations(operations: tuple[Any, ...], values: list[Any], /) -> None:
    """Run operations one after another; their results are added to the list of values.

    Each is (function, names of parameters, their values, positions of its inputs in the list,
    positions of values that nobody reads after it, which become None).
    """

def turned(array: Array, /) -> tuple[int, ...] | None:
    """The order of axes that makes a transposed array dense; None if it is dense or has none."""

def set_call_class(type: Any) -> Any:
    """The class of calls the core puts on the tape; the previous one."""

def set_source_of(function: Callable[[Any], Any]) -> None:
    """What tells where the contents of a view come from, or of a variable that was written to."""

class Array:
    """An n-dimensional array over a storage of the engine; made by `empty` and `from_buffer`."""

    _history: History | None
    _grad: Any
    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each dimension."""
    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one position to the next, by dimension."""
    @property
    def _element_strides(self) -> tuple[int, ...]:
        """Elements from one position to the next, by dimension."""
    @property
    def offset(self) -> int:
        """Elements from the storage's start."""
    @property
    def ndim(self) -> int:
        """Number of dimensions."""
    @property
    def size(self) -> int:
        """Number of elements."""
    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
    @property
    def dtype(self) -> Any:
        """Type of the elements: the object registered by `set_dtypes`."""
    @property
    def device(self) -> Any:
        """Where the contents live: the object registered by `set_devices`."""
    @property
    def base(self) -> Self | None:
        """None of an array that is all of its memory; of another one that memory, in one row."""
    @property
    def version(self) -> int:
        """How many in-place writes have been issued to the storage."""
    @property
    def _code(self) -> int:
        """Number of the dtype."""
    @property
    def _is_contiguous(self) -> bool:
        """Whether the elements lie in C order."""
    @property
    def _loans(self) -> int:
        """How often others could write its memory, which is over; -1 while somebody can."""
    @property
    def _storage(self) -> int:
        """Identity of the storage; equal for views of it."""
    @property
    def _is_base(self) -> bool:
        """Whether its history was made for an array like it."""
    @property
    def _is_tracked(self) -> bool:
        """Whether a recorded computation made its contents."""
    def _detached(self) -> Self:
        """Another array over the same elements, without history."""
    def _save(self) -> Saved:
        """Keep the contents, to be read again."""
    def _shared_history(self) -> History:
        """The history, begun now if there was none."""
    def _track(self, source: Any, /) -> None:
        """The contents come from there, for all arrays that see them."""
    def wait_to_read(self) -> None:
        """Wait until the contents are there; raises what made them fail."""
    def _wait(self) -> None:
        """The same as `wait_to_read`."""
    def item(self) -> bool | int | float:
        """The only element, as a Python scalar. Raises ValueError when there are more."""
    def tolist(self) -> Any:
        """The contents as nested lists; of a 0-d array its element."""
    def _as_strided(
        self, shape: Sequence[int], strides: Sequence[int], offset: int, dtype: int = ...
    ) -> Self:
        """A view of the same storage, unchecked; `offset` counts from the storage's start."""
    def _place(self, chosen: Array, values: Array, /) -> bool:
        """x[mask or positions] = values, if both are small, and nobody uses any; else False."""
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __bool__(self) -> bool: ...
    def __int__(self) -> int: ...
    def __float__(self) -> float: ...
    def __index__(self) -> int: ...
    def __hash__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __getitem__(self, key: Any) -> Self: ...
    def __setitem__(self, key: Any, value: Any) -> None: ...
    def __add__(self, other: Any) -> Self: ...
    def __radd__(self, other: Any) -> Self: ...
    def __iadd__(self, other: Any) -> Self: ...
    def __sub__(self, other: Any) -> Self: ...
    def __rsub__(self, other: Any) -> Self: ...
    def __isub__(self, other: Any) -> Self: ...
    def __mul__(self, other: Any) -> Self: ...
    def __rmul__(self, other: Any) -> Self: ...
    def __imul__(self, other: Any) -> Self: ...
    def __truediv__(self, other: Any) -> Self: ...
    def __rtruediv__(self, other: Any) -> Self: ...
    def __itruediv__(self, other: Any) -> Self: ...
    def __floordiv__(self, other: Any) -> Self: ...
    def __rfloordiv__(self, other: Any) -> Self: ...
    def __ifloordiv__(self, other: Any) -> Self: ...
    def __mod__(self, other: Any) -> Self: ...
    def __rmod__(self, other: Any) -> Self: ...
    def __imod__(self, other: Any) -> Self: ...
    def __pow__(self, other: Any) -> Self: ...
    def __rpow__(self, other: Any) -> Self: ...
    def __ipow__(self, other: Any) -> Self: ...
    def __matmul__(self, other: Any) -> Self: ...
    def __rmatmul__(self, other: Any) -> Self: ...
    def __imatmul__(self, other: Any) -> Self: ...
    def __and__(self, other: Any) -> Self: ...
    def __rand__(self, other: Any) -> Self: ...
    def __iand__(self, other: Any) -> Self: ...
    def __or__(self, other: Any) -> Self: ...
    def __ror__(self, other: Any) -> Self: ...
    def __ior__(self, other: Any) -> Self: ...
    def __xor__(self, other: Any) -> Self: ...
    def __rxor__(self, other: Any) -> Self: ...
    def __ixor__(self, other: Any) -> Self: ...
    def __lshift__(self, other: Any) -> Self: ...
    def __rlshift__(self, other: Any) -> Self: ...
    def __ilshift__(self, other: Any) -> Self: ...
    def __rshift__(self, other: Any) -> Self: ...
    def __rrshift__(self, other: Any) -> Self: ...
    def __irshift__(self, other: Any) -> Self: ...
    def __neg__(self) -> Self: ...
    def __pos__(self) -> Self: ...
    def __abs__(self) -> Self: ...
    def __invert__(self) -> Self: ...
    def __lt__(self, other: Any) -> Self: ...
    def __le__(self, other: Any) -> Self: ...
    def __eq__(self, other: Any) -> Self: ...  # type: ignore[override]
    def __ne__(self, other: Any) -> Self: ...  # type: ignore[override]
    def __gt__(self, other: Any) -> Self: ...
    def __ge__(self, other: Any) -> Self: ...

class OpBase:
    """The callable behind every operation; subclasses give the methods the core calls on a miss."""

    name: str
    elementwise: bool
    parameters: Any
    @property
    def _id(self) -> int:
        """The number standing for it in keys."""
    def __init__(self, name: str, elementwise: bool, parameters: Sequence[str] = ()) -> None: ...
    def __call__(self, *inputs: Any, **parameters: Any) -> Any: ...
    def into(self, target: Array, *inputs: Any, **parameters: Any) -> Any:
        """Write the result into `target`, cast and broadcast; returns it. Elementwise only."""

class Meeting:
    """Where operations of several devices meet: see src/program/meeting.h."""

    def __init__(self, parties: int, name: str) -> None: ...
    @property
    def open(self) -> bool:
        """Whether somebody may still come."""
    def join(self, rank: int, parties: int, array: Array) -> Any:
        """What all parties bring, in the order of their ranks; nothing waits."""

class Errand:
    """An operation whose work is to be done now, by who took it: see src/program/desk.h."""

    @property
    def number(self) -> int:
        """As `Desk.issue` was told."""
    @property
    def inputs(self) -> tuple[memoryview, ...]:
        """The bytes of what it reads; valid until its end."""
    @property
    def outputs(self) -> tuple[memoryview, ...]:
        """The bytes of what it fills; valid until its end."""
    @property
    def failure(self) -> str | None:
        """Why it cannot be done: what it reads has failed. Then it has ended."""
    def end(self, failure: FailureText | None = None) -> None:
        """It is done, or has failed. One that is dropped before has failed, too."""

class Desk:
    """Where operations whose work is done outside of the engine wait until somebody takes them."""

    def issue(
        self,
        number: int,
        name: str,
        inputs: Iterable[Array],
        results: Sequence[tuple[int, Sequence[int]]],
        device: int = 0,
    ) -> tuple[Any, ...]:
        """New arrays, which an errand over the inputs fills; all are on CPU devices."""
    def take(self, seconds: float) -> Errand | None:
        """The next whose turn has come; None when there is none by then, or it is closed."""
    def close(self, type: str, message: str) -> None:
        """What waits here and what comes from now on fails with this."""

class Courier:
    """Sums over the arrays of several processes: see src/program/courier.h."""

    def __init__(self, rank: int, sockets: Sequence[int], /) -> None:
        """Takes over the descriptor of a connected socket for each rank, -1 for its own."""
    def number(self, tag: int, name: str, item: int, priority: int, /) -> int:
        """The next turn of a tag, over floats of `item` bytes: what the desk is to be told.

        The errand's results, like its arrays, are then the sums over all ranks.
        """
    @property
    def desk(self) -> Desk:
        """Where the sums are issued."""
    @property
    def state(self) -> tuple[str, int, float, str, list[int], int, float, float]:
        """Its problem, and seven more: see `gemel.kvstore.courier.State`."""
    def close(self, type: str, message: str, /) -> None:
        """What is open and what comes from now on fails with this."""

class SortedRows:
    """How an operation sorts: dense arrays of before x length x after elements along the second.

    `first`: of positions only so many of each row; -1: all.
    """

    def __init__(
        self,
        before: int,
        length: int,
        after: int,
        descending: bool = False,
        positions: bool = False,
        first: int = -1,
    ) -> None: ...

class Kernel:
    """Machine code mapped into memory; lives as long as anything that may call it."""

    @property
    def address(self) -> int:
        """Where the function `kernel` lies."""

class Keeper:
    """Where the plans of one graph keep values of their parameters between calls."""

    def __init__(self) -> None: ...

class Plan:
    """A compiled graph for many sizes, read from its image (docs/internals/plan-image.md).

    `kernels` and `captured` arrays are those the image says lie beside it, in order; plans of one
    graph share a `keeper`. ValueError for an image that is damaged.
    """

    def __init__(
        self,
        image: bytes,
        kernels: Sequence[Kernel] = (),
        captured: Sequence[Array] = (),
        keeper: Keeper | None = None,
    ) -> None: ...
    @property
    def name(self) -> str:
        """What the plan computes."""
    def __call__(self, *inputs_then_scalars: Any, device: int = ...) -> tuple[Any, ...]:
        """Issue the plan; `device` matters only without inputs. TypeError for other specs."""
    def bound(self, *inputs: Array) -> tuple[float, int]:
        """For arrays like these: estimated microseconds on one core, and bytes of workspace."""
    def fits(self, *inputs: Array) -> bool:
        """Whether it computes with arrays like these."""

class Elementwise:
    """What `_kernel` returns: a loop kernel, the dtype codes of its results, its cost.

    `limits` has for each operand the code of the integer dtype a whole number there must fit, or
    255; none where any number does.
    """

    def __init__(
        self,
        kernel: Kernel,
        out_codes: Sequence[int],
        nanoseconds_per_element: float = 1.0,
        failure: FailureText | None = None,
        name: str = "elementwise",
        limits: Sequence[int] = (),
    ) -> None: ...

def load_gpu_kernel(code: bytes) -> Kernel:
    """A kernel for GPUs, from `print_cuda.form` and machine code. Raises ValueError for others."""

class Llvm:
    """LLVM's code generator: a library with the functions of llvmlite's, opened when it is first
    used."""

    def __init__(self, path: str) -> None: ...
    def open_soon(self) -> None:
        """Open it on another thread."""

    def settle(self) -> None:
        """Wait until that thread has ended."""

    def object_of(self, assembly: str, target: tuple[str, str, str, str, int]) -> bytes:
        """The object for LLVM assembly; the target is its triple, CPU, features, relocation and
        level of optimization. Raises RuntimeError with LLVM's message."""

class Assembler:
    """Threads that make objects of assembly. None outlives it."""

    def __init__(self, library: Llvm, threads: int) -> None: ...
    def give(self, assembly: str, target: tuple[str, str, str, str, int], length: int) -> None:
        """Give a task; its length only orders it among others."""

    def finish(self) -> list[tuple[bytes, str]]:
        """Objects, or LLVM's messages, in the order in which the tasks were given."""

def load_object(code: Buffer) -> Kernel:
    """Map an ELF object. Raises ValueError for a malformed one or an unknown symbol, naming it."""

def empty(shape: Sequence[int], code: int, device: int = 0) -> Any:
    """An array whose contents are undefined."""

def from_buffer(object: Buffer, code: int, shape: Sequence[int], device: int = 0) -> Any:
    """An array holding a copy of a C-contiguous buffer. Raises ValueError for another size."""

def to_bytes(array: Array) -> bytes:
    """The contents in C order; waits."""

def read_into(array: Array, buffer: Buffer) -> None:
    """Copy the contents in C order into a writable buffer of the same size; waits."""

def to_dlpack(array: Array, versioned: bool, copied: bool = False) -> Any:
    """A DLPack capsule over the array's memory, for a consumer who is told whether it is a copy.

    Raises BufferError for an array on a GPU, and for what was computed while recording.
    """

def from_dlpack(capsule: Any, device: int = 0, copy: bool | None = None) -> Any:
    """An array over what a DLPack capsule holds; over a copy where asked for or, unless that is
    ruled out, needed. Raises BufferError.
    """

def exports() -> int:
    """How many storages are shared with the outside at this moment."""

def copy_to_device(array: Array, device: int) -> Any:
    """Issue a copy to a device, by the lane of the link to it; a new array."""

def copy_across(source: Array, target: Array) -> None:
    """Issue a copy into a contiguous array of the same size and dtype, on any device."""

def count_gpus() -> int:
    """How many GPUs CUDA's driver finds; 0 without a driver. The first call starts the driver."""

def describe_gpu(gpu: int) -> tuple[str, int, int]:
    """Name, compute capability (90 for 9.0) and multiprocessors of a GPU. Raises DeviceError."""

def gpu_memory(gpu: int) -> tuple[int, int]:
    """Free and total bytes of a GPU's memory. Raises DeviceError."""

def open_gpu(gpu: int, device: int, name: str) -> None:
    """Make a GPU of the driver's the device with that number. Raises DeviceError."""

def simulate_gpu(
    device: int, name: str, bytes_per_second: float, latency_seconds: float, /
) -> None:
    """Make a simulated GPU with that number, or only give its link another speed."""

def drain_for_fork() -> None:
    """Wait until nothing is pending, and let nothing new in until `reopen`."""

def reopen() -> None:
    """The fork is over, in the parent or in the child."""

def lane_link(lane: int, /) -> int:
    """The device at the end of the link of a lane; -1: copies between CPUs, -2: no copies."""

def call_python(
    function: Callable[[tuple[memoryview, ...], tuple[memoryview, ...]], Any],
    name: str,
    inputs: Iterable[Array],
    results: Sequence[tuple[int, Sequence[int]]],
    targets: Iterable[Array] = (),
    device: int = 0,
) -> tuple[Any, ...]:
    """Issue function(memory of inputs, memory of targets and results), whole storages as bytes.

    It runs now when everything is there, else in the Python lane. `results` are (dtype code,
    shape) of new arrays, which are returned; what it raises becomes the failure of what it writes.
    """

def set_array_class(type: type[Array], /) -> type[Array]:
    """Make new arrays of this class, which has empty __slots__; returns the previous one."""

def set_dtypes(objects: Sequence[Any], /) -> None:
    """What `Array.dtype` returns, by code."""

def set_devices(objects: Sequence[Any], /) -> None:
    """What `Array.device` returns, by number."""

def set_file_namer(function: Callable[[str], str], /) -> None:
    """What files are called where failures say where they come from."""

def program_line() -> str:
    """Where the innermost frame outside this package is: "file:line", or an empty text."""

def set_exception_types(types: dict[str, type[BaseException]], /) -> None:
    """Classes that failures raise, by name; builtins need no entry."""

def set_operator(name: str, operation: OpBase | None) -> OpBase | None:
    """Put an operation behind one of Python's operators; returns the previous one."""

def set_symbol_types(types: tuple[type, ...], /) -> None:
    """Classes of operands that arrays' operators send to the operation's `_call`."""

def recording() -> bool:
    """Whether this thread records."""

def set_recording(value: bool, /) -> bool:
    """Start or stop recording in this thread; returns what it was."""

def training() -> bool:
    """Whether this thread trains."""

def set_training(value: bool, /) -> bool:
    """Set whether this thread trains; returns what it was."""

def set_device(code: int, /) -> None:
    """The device on which this thread makes new arrays."""

def set_mixing(value: int, /) -> int:
    """Choose this thread's mixed precision by number, -1 the default; returns what it was."""

def set_default_mixing(value: int, /) -> None:
    """Choose the mixed precision of all threads that have not chosen one; 0 is none."""

def set_tracing(depth: int, captures: bool) -> None:
    """Say how many traces are in progress on this thread, and whether the innermost captures."""

def capturing() -> bool:
    """Whether what this thread does to arrays is part of a trace."""

def forget_call_sites() -> None:
    """Make every call site ask its fallback again."""

def random_seed(seed: int, /) -> None:
    """Set the seed; call numbers start again at 0."""

def set_random_state(seed: int, number: int) -> None:
    """Go on in another stream, from the call with that number."""

def random_reserve(count: int, /) -> tuple[int, int]:
    """Take `count` random call numbers: the seed and the first of them."""

def random_state() -> tuple[int, int]:
    """The seed and the next random call number."""

def configure(
    *,
    workers: int | None = None,
    serial: bool | None = None,
    queue_operations: int | None = None,
    queue_bytes: int | None = None,
    ahead_bytes: int | None = None,
) -> None:
    """Set up the engine after finishing what is pending; None leaves a setting as it was."""

def set_workers(workers: int, /) -> None:
    """Change the number of worker threads; negative for cores - 1."""

def workers() -> int:
    """The number of worker threads."""

def wait_all() -> None:
    """Wait for everything; raises the first failure nobody has seen."""

def wait_device(device: int) -> None:
    """Wait for everything issued to a device; failures stay where they are."""

def unseen_failures() -> list[str]:
    """What has failed and nobody has seen, as text; seen from now on. Does not wait."""

def set_priority(priority: int, /) -> int:
    """Of what this thread issues from now on, higher first; returns what it was."""

def set_share(device: int, threads: int, /) -> None:
    """How many threads may work for a CPU device at a time; 0: all."""

def trace_start(capacity: int = 1_000_000) -> None:
    """Record operations, what they depend on, waits, queue depth and memory."""

def trace_stop() -> None:
    """Record no longer; what was recorded stays until it is taken."""

def trace_settle() -> None:
    """Wait for what was issued before; neither raises its failures nor records the wait."""

def tracing() -> bool:
    """Whether operations are recorded."""

def trace_take() -> dict[str, Any]:
    """Everything recorded since the last take; see `gemel.profiler.records` for its form."""

def trace_thread() -> int:
    """The number that stands for this thread in what is recorded."""

def counters() -> dict[str, int]:
    """Operations, inline, queued, pending, tiles, allocations, bytes in use, table hits ..."""

def clear_tables() -> None:
    """Forget all prepared calls."""

def reset_peak() -> None:
    """Count the peak of the memory held from here on."""

def trim_memory() -> None:
    """Give cached memory back to the system."""

def cores() -> int:
    """How many cores this process may use, by its affinity and its control group's quota."""

def tiles_allowed() -> bool:
    """Asks the system to let this process use the tile registers of AMX; whether it does."""

class CallSite:
    """Calls the plan known for its arguments, or else the fallback."""

    def __init__(self, fallback: Callable[..., Any]) -> None: ...
    @property
    def generation(self) -> int:
        """Another one whenever what is known may no longer hold."""
    def __call__(self, *arguments: Any) -> Any: ...
    def add(
        self,
        generation: int,
        training: bool,
        apart: bool,
        arguments: tuple[Array, ...],
        numbers: int,
        plan: Plan,
        parameters: tuple[Array, ...],
        form: Callable[[tuple[Array, ...]], Any] | None,
        /,
    ) -> None:
        """Run the plan for arrays like these with so many floats after them, and the parameters.

        That is for a first array of the same class, and for the mixed precision this thread has
        now. `apart`: only for arguments that share no memory, with each other or the parameters,
        and were not computed while recording.
        The result is its only array where `form` is None, or else form(its arrays).
        Nothing is added when the generation is over: the parameters may have been replaced.
        """
    def clear(self) -> None:
        """Forget every plan."""
