"""Data sets, samplers and the data loader."""

from __future__ import annotations

import copy
import pickle
from math import inf

import numpy
import pytest

import gemel
from gemel import np
from gemel.errors import (
    ArgumentError,
    GemelError,
    OperandError,
    ShapeError,
    UnknownNameError,
)
from gemel.gluon import data as gdata


def test_array_dataset_gives_tuples():
    dataset = gdata.ArrayDataset(np.arange(6).reshape(3, 2), np.array([1.0, 2.0, 3.0]))
    x, y = dataset[1]
    assert len(dataset) == 3
    assert x.tolist() == [2, 3]
    assert y.item() == 2


def test_array_dataset_rejects_other_lengths():
    with pytest.raises(GemelError, match="source 1 has 4 examples and source 0 has 3"):
        gdata.ArrayDataset(np.zeros((3, 2)), np.zeros(4))


def test_numpy_arrays_keep_their_dtype():
    numpy = pytest.importorskip("numpy")
    dataset = gdata.ArrayDataset(numpy.ones((4, 2), "float32"), numpy.arange(4, dtype="int32"))
    x, y = next(iter(gdata.DataLoader(dataset, 2)))
    assert str(x.dtype) == "float32"
    assert str(y.dtype) == "int32"


def test_batches_in_order_and_the_last_one():
    dataset = gdata.ArrayDataset(np.arange(7))
    batches = [b.tolist() for b in gdata.DataLoader(dataset, 3)]
    assert batches == [[0, 1, 2], [3, 4, 5], [6]]
    discard = gdata.DataLoader(dataset, 3, last_batch="discard")
    assert [b.tolist() for b in discard] == [[0, 1, 2], [3, 4, 5]]
    assert len(discard) == 2
    rollover = gdata.DataLoader(dataset, 3, last_batch="rollover")
    assert [b.tolist() for b in rollover] == [[0, 1, 2], [3, 4, 5]]
    assert [b.tolist() for b in rollover] == [[6, 0, 1], [2, 3, 4]]


def test_shuffle_is_a_permutation_and_follows_the_seed():
    features = np.arange(40).reshape(20, 2)
    dataset = gdata.ArrayDataset(features, np.arange(20))
    loader = gdata.DataLoader(dataset, 6, shuffle=True)

    def epoch():
        rows, labels = [], []
        for x, y in loader:
            rows += x.tolist()
            labels += y.tolist()
        return rows, labels

    np.random.seed(3)
    rows, labels = epoch()
    second = epoch()
    np.random.seed(3)
    assert epoch() == (rows, labels)
    assert labels != second[1]
    assert sorted(labels) == list(range(20))
    assert all(row == [2 * n, 2 * n + 1] for row, n in zip(rows, labels, strict=True))


def test_batches_do_not_alias_the_data():
    features = np.zeros((4, 2))
    for batch in gdata.DataLoader(gdata.ArrayDataset(features), 2):
        batch += 1
    assert features.sum().item() == 0


def test_batchify_and_plain_lists():
    dataset = gdata.SimpleDataset([(1.0, 2), (3.0, 4), (5.0, 6)])
    x, y = next(iter(gdata.DataLoader(dataset, 2)))
    assert x.tolist() == [1, 3]
    assert str(y.dtype) == "int64"
    loader = gdata.DataLoader(dataset, 2, batchify_fn=len)
    assert list(loader) == [2, 1]


def test_transforms_are_functions():
    for change in (gdata.ArrayDataset([1]).transform, gdata.ArrayDataset([1]).filter):
        with pytest.raises(OperandError, match="5 is not a function"):
            change(5)


def test_transform_take_filter_shard():
    dataset = gdata.ArrayDataset(np.arange(10), np.arange(10))
    doubled = dataset.transform_first(lambda x: x * 2)
    assert [int(v) for v in doubled[3]] == [6, 3]
    assert len(dataset.take(4)) == 4
    assert len(dataset.shard(3, 0)) + len(dataset.shard(3, 1)) + len(dataset.shard(3, 2)) == 10
    even = dataset.filter(lambda pair: int(pair[0]) % 2 == 0)
    assert [int(even[i][0]) for i in range(len(even))] == [0, 2, 4, 6, 8]


def test_samplers():
    assert list(gdata.SequentialSampler(3, start=2)) == [2, 3, 4]
    assert sorted(gdata.RandomSampler(5)) == [0, 1, 2, 3, 4]
    batches = gdata.BatchSampler(gdata.SequentialSampler(5), 2, "discard")
    assert list(batches) == [[0, 1], [2, 3]]
    dataset = gdata.ArrayDataset(np.arange(5))
    loaded = gdata.DataLoader(dataset, batch_sampler=batches)
    assert [b.tolist() for b in loaded] == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "batch_size is None; give 1 or more, or a batch_sampler"),
        ({"batch_size": 2.5}, "batch_size is 2.5"),  # not a possible length of a batch
        ({"batch_size": 2, "last_batch": "discrad"}, "did you mean 'discard'"),
        ({"batch_size": 2, "shuffle": True, "sampler": [1]}, "leave out shuffle"),
        ({"batch_size": 2, "batch_sampler": [[1]]}, "batch_sampler decides"),
        ({"batch_size": "2"}, "batch_size is '2'"),
        ({"batch_size": 2, "num_workers": 2.5}, "num_workers is 2.5; it must be a whole number"),
        ({"batch_size": 2, "prefetch": "4"}, "prefetch is '4'"),
        ({"batch_size": 2, "timeout": -1}, "timeout is -1"),
    ],
)
def test_settings_of_loaders_are_checked(settings, message):
    with pytest.raises((ArgumentError, UnknownNameError), match=message):
        gdata.DataLoader(gdata.ArrayDataset(np.arange(4)), **settings)


def test_interval_and_filter_samplers():
    assert list(gdata.IntervalSampler(7, 3)) == [0, 3, 6, 1, 4, 2, 5]
    once = gdata.IntervalSampler(7, 3, rollover=False)
    assert list(once) == [0, 3, 6] and len(once) == 3
    with pytest.raises(ValueError, match="between 1 and the length, 7"):
        gdata.IntervalSampler(7, 8)
    dataset = gdata.SimpleDataset([5, 2, 8, 1])
    large = gdata.FilterSampler(lambda x: x > 1, dataset)
    assert list(large) == [0, 1, 2] and len(large) == 3
    assert [b.tolist() for b in gdata.DataLoader(dataset, 2, sampler=large)] == [[5, 2], [8]]


def test_parts_of_data_sets():
    dataset = gdata.SimpleDataset(list(range(10)))

    def all_of(part):
        return [part[n] for n in range(len(part))]

    # The first shards have one example more, as in MXNet.
    assert [all_of(dataset.shard(4, n)) for n in range(4)] == [
        [0, 1, 2], [3, 4, 5], [6, 7], [8, 9],
    ]  # fmt: skip
    assert all_of(dataset.sample(gdata.IntervalSampler(10, 4)))[:3] == [0, 4, 8]
    assert len(dataset.take(None)) == len(dataset.take(99)) == 10 and len(dataset.take(0)) == 0
    assert all_of(dataset.transform(lambda x: -x, lazy=False).take(3)) == [0, -1, -2]
    for bad in (lambda: dataset.shard(4, 4), lambda: dataset.take(-1)):
        with pytest.raises(ValueError, match=r"shards|at least 0"):
            bad()
    assert list(gdata.DataLoader(dataset.take(0), 4)) == []
    assert list(gdata.DataLoader(gdata.ArrayDataset(np.ones((5, 2))).take(0), 4)) == []


@pytest.mark.parametrize(
    ("examples", "dtype"),
    [
        ([numpy.int64(1), numpy.float64(2.5)], "float64"),
        ([numpy.uint8(255), numpy.int32(300)], "int32"),
        ([numpy.float16(1), numpy.float32(70000)], "float32"),
        ([1, numpy.int32(2**24 + 1)], "int64"),
        ([numpy.float32(0.5), 1, 2.5], "float32"),
        ([numpy.float32(0.5), numpy.float32(1)], "float32"),
    ],
)
def test_a_batch_holds_numbers_of_several_dtypes(examples, dtype):
    batch = gdata.batchify.Stack()(examples)
    assert batch.tolist() == [float(x) for x in examples] and str(batch.dtype) == dtype


def test_a_list_is_a_row():
    data = [(np.zeros(2), [np.float32("1")]), (np.ones(2), [np.float32("0")])]
    x, y = next(iter(gdata.DataLoader(data, 2)))
    assert x.shape == (2, 2) and y.shape == (2, 1) and y.dtype == "float32"
    stacked = gdata.batchify.Stack()
    assert stacked([[1, 2], [3, 4], [5, 6]]).tolist() == [[1, 2], [3, 4], [5, 6]]
    assert stacked([[[1], [2]]]).shape == (1, 2, 1) and stacked([[np.ones(3)] * 2]).shape == (
        1,
        2,
        3,
    )
    assert [x.tolist() for x in stacked([(1, [2, 3]), (4, [5, 6])])] == [[1, 4], [[2, 3], [5, 6]]]


PADDED = {
    "a fraction that comes later": ({}, [[1, 2], [0.5]], [[1, 2], [0.5, 0]], "float32"),
    "arrays": ({}, [np.array([1, 2]), np.array([0.5])], [[1, 2], [0.5, 0]], "float32"),
    "wider numbers": (
        {}, [numpy.array([1, 2], "int8"), numpy.array([300])], [[1, 2], [300, 0]], "int64",
    ),
    "a value that is a fraction": ({"val": -1.5}, [[1, 2], [3]], [[1, 2], [3, -1.5]], "float32"),
    "an infinite value": ({"val": -inf}, [[1, 2], [3]], [[1, 2], [3, -inf]], "float32"),
    "a value that is too large": (
        {"val": -1}, [numpy.array([1, 2], "uint8"), numpy.array([3], "uint8")],
        [[1, 2], [3, -1]], "int64",
    ),
    "a value for truths": ({"val": 1}, [[True, False], [False]], [[1, 0], [0, 1]], "bool"),
    "a whole value": ({"val": 9.0}, [[1, 2], [3]], [[1, 2], [3, 9]], "int64"),
    "nothing": ({}, [[], [1, 2]], [[0, 0], [1, 2]], "int64"),
    "only nothing": ({}, [[], []], [[], []], "float32"),
    "a dtype that is given": ({"dtype": "int32"}, [[1, 2], [0.5]], [[1, 2], [0, 0]], "int32"),
}  # fmt: skip


@pytest.mark.parametrize("name", PADDED)
def test_padded_batches_hold_every_example_and_the_value(name):
    settings, examples, expected, dtype = PADDED[name]
    found = gdata.batchify.Pad(**settings)(examples)
    assert found.tolist() == expected and found.dtype == dtype


@pytest.mark.parametrize("kind", [list, gdata.ArrayDataset])
@pytest.mark.parametrize("workers", [0, 1])
def test_batch_samplers_give_lists(kind, workers):
    data = kind(numpy.arange(2))
    loader = gdata.DataLoader(data, batch_sampler=[1, 0], num_workers=workers, thread_pool=True)
    with pytest.raises(ArgumentError, match="the batch_sampler gave 1; it must give lists"):
        list(loader)


def test_examples_of_arrays_have_whole_numbers():
    data = gdata.ArrayDataset(np.arange(3))
    for numbers in ([1.7], [[0, 1], [1, 2]], ["a"]):
        with pytest.raises(ArgumentError, match=r"is no index of an example"):
            list(gdata.DataLoader(data, batch_sampler=[numbers]))
        with pytest.raises(ArgumentError, match=r"is no index of an example"):
            gdata.DataLoader(data.sample(numbers), 1)


def test_arrays_that_only_numpy_has_stay_numpys():
    names = numpy.array(["a", "b", "c"])
    data = gdata.ArrayDataset(np.arange(3), names)
    assert data[1][1] == "b"
    batchify = gdata.batchify.Group(gdata.batchify.Stack(), gdata.batchify.AsList())
    found = [(x.tolist(), y) for x, y in gdata.DataLoader(data, 2, batchify_fn=batchify)]
    assert found == [([0, 1], ["a", "b"]), ([2], ["c"])]


@pytest.mark.parametrize(
    "make",
    [
        lambda data: data.take(2.5),
        lambda data: data.take(-1),
        lambda data: data.shard(0, 0),
        lambda data: data.shard(2, -1),
        lambda data: data.shard(2, 2),
        lambda data: data.shard("2", 1),
        lambda data: gdata.BatchSampler(range(3), "2"),
        lambda data: gdata.batchify.Pad(round_to=-4),
        lambda data: gdata.batchify.Pad(round_to=2.5),
    ],
)
def test_numbers_that_cannot_be_are_refused(make):
    with pytest.raises(ArgumentError):
        make(gdata.SimpleDataset([1, 2]))


def test_batches_without_examples_are_refused():
    for make in (
        lambda: gdata.batchify.Stack()([]),
        lambda: gdata.batchify.Pad()([]),
        lambda: list(gdata.DataLoader(gdata.SimpleDataset([1, 2]), batch_sampler=[[0], []])),
        lambda: list(gdata.DataLoader(gdata.ArrayDataset(np.arange(2)), batch_sampler=[[]])),
    ):
        with pytest.raises(ShapeError, match="at least one example"):
            make()


def test_batchify():
    batchify = gdata.batchify
    assert batchify.Stack()([np.ones(2), np.zeros(2)]).tolist() == [[1, 1], [0, 0]]
    assert str(batchify.Stack()([1, 2]).dtype) == "int64"
    with pytest.raises(TypeError, match="a tuple and int cannot form a batch"):
        batchify.Stack()([(1, 2), 3])
    with pytest.raises(ShapeError, match=r"examples of \[1, 2\] parts cannot form a batch"):
        batchify.Stack()([[1, 2], [3]])
    for source in (np, numpy):
        with pytest.raises(ShapeError, match=r"shapes \(1,\), \(2,\) cannot form a batch.*Pad"):
            batchify.Stack()([source.ones(2), source.ones(1), source.ones(2)])
    rows = [[1, 2, 3], np.array([4.0]), [5, 6]]
    assert batchify.Pad(val=-1)(rows[1:]).tolist() == [[4, -1], [5, 6]]
    padded = batchify.Pad(dtype="float16", round_to=4)(rows)
    assert padded.tolist() == [[1, 2, 3, 0], [4, 0, 0, 0], [5, 6, 0, 0]]
    assert str(padded.dtype) == "float16"
    both = batchify.Pad()([np.ones((1, 3), "int8"), np.ones((2, 1), "int8")])
    assert both.shape == (2, 2, 3) and str(both.dtype) == "int8" and both.sum().item() == 5
    assert [x.shape for x in batchify.Append()([[1, 2], [3]])] == [(1, 2), (1, 1)]
    assert [x.shape for x in batchify.Append(expand=False)([np.ones(2)])] == [(2,)]
    group = batchify.Group(batchify.Stack(), batchify.Pad(val=9), batchify.AsList())
    x, y, text = group([(1, [1], "a"), (2, [1, 2], "b")])
    assert (x.tolist(), y.tolist(), text) == ([1, 2], [[1, 9], [1, 2]], ["a", "b"])
    assert batchify.Tuple([batchify.Stack()])([(1,), (2,)])[0].tolist() == [1, 2]
    with pytest.raises(GemelError, match="3 functions, but examples of"):
        group([(1, 2)])
    with pytest.raises(GemelError, match="they must all have the same number"):
        batchify.Pad()([np.ones(2), np.ones((2, 2))])
    with pytest.raises(TypeError, match=r"cannot make an array of str.*AsList"):
        next(iter(gdata.DataLoader(gdata.SimpleDataset(["a"]), 1)))
    loader = gdata.DataLoader(
        gdata.SimpleDataset([(n, [n] * n) for n in range(1, 6)]), 2, num_workers=2,
        batchify_fn=batchify.Group(batchify.Stack(), batchify.Pad()),
    )  # fmt: skip
    assert [y.shape for _, y in loader] == [(2, 2), (2, 4), (1, 5)]


def test_arrays_on_several_devices():
    with gemel.cpu(0):
        x, y = np.arange(12).reshape(6, 2), np.arange(6)
    devices = [gemel.gpu(0), gemel.cpu(0)] if gemel.num_gpus() else [gemel.cpu(0)] * 2
    x = x.to_device(devices[0])
    found = list(gdata.DataLoader(gdata.ArrayDataset(x, y), 4, shuffle=True))
    assert [(str(a.device), str(b.device)) for a, b in found] == [tuple(map(str, devices))] * 2
    assert all((a[:, 0].to_device(gemel.cpu(0)) == 2 * b).all() for a, b in found)


@pytest.mark.parametrize("way", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize("workers", [0, 1])
def test_loaders_are_copied(way, workers):
    for given in (np.arange(5.0), list(range(5))):
        loader = gdata.DataLoader(given, 2, num_workers=workers)
        for made in (loader, way(loader)):
            assert [batch.tolist() for batch in made] == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("timeout", [None, 1e300, float("inf")])
@pytest.mark.parametrize("thread_pool", [False, True])
def test_times_without_a_limit(thread_pool, timeout):
    examples = gdata.SimpleDataset(list(range(6)))
    loader = gdata.DataLoader(examples, 2, num_workers=1, thread_pool=thread_pool, timeout=timeout)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]


batchify = gdata.batchify
ARRAYS = gdata.ArrayDataset(np.arange(6), np.arange(6))
REFUSED = {
    "sampler": (lambda: gdata.DataLoader(ARRAYS, 2, sampler=5), "DataLoader: the sampler is 5"),
    "a class": (lambda: gdata.DataLoader(ARRAYS, 2, sampler=gdata.RandomSampler), "the sampler is"),
    "batches": (lambda: gdata.DataLoader(ARRAYS, batch_sampler=5), "the batch_sampler is 5"),
    "data": (lambda: gdata.DataLoader(5, 2), "DataLoader: the data set is 5"),
    "batchify": (
        lambda: gdata.DataLoader(ARRAYS, 2, batchify_fn=5),
        "batchify_fn: 5 is not",
    ),
    "source": (lambda: gdata.ArrayDataset(5), "ArrayDataset: source 0 is 5"),
    "no axes": (lambda: gdata.ArrayDataset(np.array(5)), r"ArrayDataset: source 0 is array\(5\)"),
    "none": (lambda: gdata.ArrayDataset(), "ArrayDataset: give at least one"),
    "simple": (lambda: gdata.SimpleDataset(5), "SimpleDataset: the data is 5"),
    "sample": (lambda: ARRAYS.sample(5), "sample: the sampler is 5"),
    "of 5": (lambda: gdata.BatchSampler(5, 2), "BatchSampler: the sampler is 5"),
    "function": (lambda: gdata.FilterSampler(5, ARRAYS), "FilterSampler: 5 is not a function"),
    "rank": (lambda: gdata.WorkerBatchSampler(7, 4, 2, "a"), "WorkerBatchSampler: worker a of 2"),
    "state": (
        lambda: gdata.DataLoader(ARRAYS, 2).load_state_dict({"x": 1}),
        "is not the state of a BatchSampler",
    ),
    "dict": (lambda: batchify.default_batchify_fn([{}]), "cannot make an array of dict"),
    "one of None": (
        lambda: batchify.default_batchify_fn([1, None]),
        "cannot make an array of NoneType",
    ),
    "mixed": (lambda: batchify.default_batchify_fn([3, np.ones(2)]), r"shapes \(\), \(2,\) cannot"),
    "val": (lambda: batchify.Pad(val="a"), "Pad: val is 'a'"),
    "group of 5": (lambda: batchify.Group(5), "Group: 5 is not a function"),
    "no tuples": (lambda: batchify.Group(batchify.Stack())([1, 2]), "the examples are no tuples"),
    "no examples": (lambda: batchify.Group(batchify.Stack())([]), "at least one example"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_loaded_is_refused_at_once(name):
    make, match = REFUSED[name]
    with pytest.raises(GemelError, match=match):
        make()


def test_a_data_set_without_a_length_has_a_sampler():
    class Squares:
        def __getitem__(self, index):
            return index * index

    assert [x.tolist() for x in gdata.DataLoader(Squares(), 2, sampler=[3, 5])] == [[9, 25]]
