"""Boxes, operations on them, and regions of images, against loops in NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import ceil, exp, floor, log, sqrt
from typing import Any

import numpy
import pytest
from slow import check, drawn

import gemel
from gemel import autograd, np, npx
from gemel.errors import ShapeError, UnknownNameError

Array = numpy.ndarray[Any, Any]


def iou(a: Any, b: Any) -> float:
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    total = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
    return width * height / total if total > 0 else 0.0


def corners(box: Any) -> list[float]:
    x, y, w, h = box
    return [x - w / 2, y - h / 2, x + w / 2, y + h / 2]


def boxes(count: int, seed: int = 0) -> Array:
    """Boxes in the unit square."""
    generator = numpy.random.default_rng(seed)
    low = generator.uniform(0, 0.7, (count, 2))
    return numpy.concatenate([low, low + generator.uniform(0.1, 0.4, (count, 2))], axis=1)


def both(call: Callable[..., Any], *arrays: Array) -> list[list[Array]]:
    """The results of a call, imperative and compiled."""
    found = []
    for function in (call, gemel.compile(call)):
        got = function(*(np.array(x, dtype=x.dtype.name) for x in arrays))
        found.append([x.asnumpy() for x in (got if isinstance(got, (list, tuple)) else [got])])
    return found


def agree(call: Callable[..., Any], expected: list[Array], *arrays: Array) -> None:
    for found in both(call, *arrays):
        assert len(found) == len(expected)
        for value, wanted in zip(found, expected, strict=True):
            numpy.testing.assert_allclose(value, wanted, rtol=1e-6, atol=1e-6)


# --- overlaps, offsets, anchors ---------------------------------------------------------------


def test_box_iou() -> None:
    a, b = boxes(4), boxes(6, 1).reshape(2, 3, 4)
    expected = numpy.array([[[iou(x, y) for y in row] for row in b] for x in a])
    check(npx.box_iou, lambda a, b: numpy.array([[[iou(x, y) for y in r] for r in b] for x in a]),
          [a, b])  # fmt: skip
    centred = numpy.concatenate([(a[:, :2] + a[:, 2:]) / 2, a[:, 2:] - a[:, :2]], axis=1)
    numpy.testing.assert_allclose(
        npx.box_iou(
            np.array(centred), np.array([[*centred[0]], [*centred[1]]]), format="center"
        ).asnumpy(),
        [[iou(x, y) for y in a[:2]] for x in a],
        rtol=1e-5,
    )
    assert expected.shape == (4, 2, 3)
    assert npx.box_iou(np.array([0.0, 0, 0, 0]), np.array([[0.0, 0, 0, 0]])).tolist() == [0]
    with pytest.raises(UnknownNameError, match="corner"):
        npx.box_iou(np.ones((1, 4)), np.ones((1, 4)), format="corners")
    with pytest.raises(ShapeError, match="end in 4"):
        npx.box_iou(np.ones((1, 5)), np.ones((1, 4)))


def encoded(anchor: Any, box: Any, means: Any, stds: Any) -> list[float]:
    wide, high = anchor[2] - anchor[0], anchor[3] - anchor[1]
    found = [
        ((box[0] + box[2]) - (anchor[0] + anchor[2])) / 2 / wide,
        ((box[1] + box[3]) - (anchor[1] + anchor[3])) / 2 / high,
        log((box[2] - box[0]) / wide),
        log((box[3] - box[1]) / high),
    ]
    return [(v - m) / s for v, m, s in zip(found, means, stds, strict=True)]


def test_encoding_and_decoding() -> None:
    anchors, refs = boxes(6).reshape(2, 3, 4), boxes(8, 1).reshape(2, 4, 4)
    matches, samples = numpy.array([[0, 3, 1], [2, 2, 0]]), numpy.array([[1, -1, 1], [0, 1, 1]])
    means, stds = (0.1, 0.2, 0.0, -0.1), (0.1, 0.2, 0.3, 0.4)
    expected, mask = numpy.zeros((2, 3, 4)), numpy.zeros((2, 3, 4))
    for n, i in itertools.product(range(2), range(3)):
        if samples[n, i] > 0.5:
            expected[n, i] = encoded(anchors[n, i], refs[n, matches[n, i]], means, stds)
            mask[n, i] = 1
    agree(
        lambda *x: npx.box_encode(*x, means, stds),
        [expected, mask],
        samples,
        matches,
        anchors,
        refs,
    )

    def slow(data: Array, anchors: Array) -> Array:
        found = numpy.zeros_like(data)
        for n, i in itertools.product(range(2), range(3)):
            a, (dx, dy, dw, dh) = anchors[0, i], data[n, i] * (0.1, 0.1, 0.2, 0.2)
            x, y, w, h = (a[0] + a[2]) / 2, (a[1] + a[3]) / 2, a[2] - a[0], a[3] - a[1]
            dw, dh = min(dw, 0.3), min(dh, 0.3)
            found[n, i] = corners((dx * w + x, dy * h + y, exp(dw) * w, exp(dh) * h))
        return found

    data = drawn(2, 3, 4)
    check(
        lambda d, a: npx.box_decode(d, a, 0.1, 0.1, 0.2, 0.2, clip=0.3, format="corner"),
        slow,
        [data, anchors[:1]],
    )
    centre = npx.box_decode(np.zeros((1, 1, 4)), np.array([[[1.0, 1.0, 2.0, 4.0]]]))
    assert centre.tolist() == [[[0, -1, 2, 3]]]


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_multibox_prior(clip: bool, dtype: str) -> None:
    height, width = 3, 5
    sizes, ratios, steps, offsets = (0.5, 0.75), (1.0, 2.0, 0.5), (-1.0, 0.25), (0.5, 0.3)
    expected = []
    for y, x in itertools.product(range(height), range(width)):
        middle = (x + offsets[1]) * steps[1], (y + offsets[0]) / height
        for size, ratio in [(0.5, 1.0), (0.75, 1.0), (0.5, 2.0), (0.5, 0.5)]:
            w, h = size * height / width * sqrt(ratio), size / sqrt(ratio)
            expected.append(corners((*middle, w, h)))
    wanted = numpy.array(expected)[None]
    wanted = numpy.clip(wanted, 0, 1) if clip else wanted

    def call(x: Any) -> Any:
        return npx.multibox_prior(x, sizes, ratios, clip, steps, offsets)

    for function in (call, gemel.compile(call)):
        found = function(np.zeros((2, 3, height, width), dtype=dtype))
        assert found.dtype == dtype
        near = 2e-3 if dtype == "float16" else 1e-6
        numpy.testing.assert_allclose(found.asnumpy(), wanted, atol=near)


# --- matching ---------------------------------------------------------------------------------


def paired(table: Array, ascending: bool, threshold: float, topk: int) -> tuple[Array, Array]:
    table = table.copy()
    rows, columns = numpy.full(table.shape[0], -1), numpy.full(table.shape[1], -1)
    worst = numpy.inf if ascending else -numpy.inf
    for count in range(min(table.shape)):
        if count == topk:
            break
        place = table.argmin() if ascending else table.argmax()
        i, j = divmod(int(place), table.shape[1])
        value = table[i, j]
        if (value > threshold) if ascending else (value < threshold):
            break
        rows[i], columns[j] = j, i
        table[i], table[:, j] = worst, worst
    return rows, columns


@pytest.mark.parametrize(
    ("ascending", "threshold", "topk"), [(False, 0.2, -1), (True, 0.7, -1), (False, 0.0, 2)]
)
def test_bipartite_matching(ascending: bool, threshold: float, topk: int) -> None:
    scores = numpy.random.default_rng(2).random((2, 4, 3))
    pairs = [paired(table, ascending, threshold, topk) for table in scores]
    expected = [numpy.stack(each) for each in zip(*pairs, strict=True)]
    agree(lambda x: npx.bipartite_matching(x, threshold, ascending, topk), expected, scores)


def suppressed(
    rows: Array, overlap: float, valid: float, topk: int, kinds: bool, background: float
) -> Array:
    """Rows (kind, score, corners): the kept ones, then rows of -1."""
    left = [r for r in rows if r[1] > valid and not (kinds and r[0] == background >= 0)]
    left = sorted(left, key=lambda r: -r[1])
    left = left[:topk] if topk > 0 else left
    kept: list[Any] = []
    for row in left:
        rivals = [k for k in kept if not kinds or k[0] == row[0]]
        if all(iou(k[2:6], row[2:6]) <= overlap for k in rivals):
            kept.append(row)
    return numpy.array([*kept, *[[-1.0] * rows.shape[1]] * (len(rows) - len(kept))])


def candidates(count: int, seed: int, more: int = 1) -> Array:
    generator = numpy.random.default_rng(seed)
    return numpy.column_stack([
        generator.integers(0, 3, count), generator.permutation(count) / count, boxes(count, seed),
        generator.random((count, more)),
    ])  # fmt: skip


@pytest.mark.parametrize("topk", [-1, 7])
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("background", [-1, 0])
def test_box_nms(topk: int, force: bool, background: int) -> None:
    data = numpy.stack([candidates(20, seed) for seed in range(3)])
    expected = [suppressed(rows, 0.3, 0.2, topk, not force, background) for rows in data]
    if force and background == 0:  # background boxes are dropped before `force` ignores the kinds
        expected = [
            suppressed(numpy.array([r if r[0] else [*r[:1], -1, *r[2:]] for r in rows]), 0.3, 0.2,
                       topk, False, -1) for rows in data
        ]  # fmt: skip
    agree(
        lambda x: npx.box_nms(x, 0.3, 0.2, topk, 2, 1, 0, background, force),
        [numpy.stack(expected)],
        data,
    )


def test_box_nms_formats_and_gradient() -> None:
    data = candidates(8, 5)
    centred = data.copy()
    centred[:, 2:4], centred[:, 4:6] = (
        (data[:, 2:4] + data[:, 4:6]) / 2,
        data[:, 4:6] - data[:, 2:4],
    )
    plain = npx.box_nms(np.array(data), 0.3)
    assert (plain.asnumpy() == -1).any()
    for given, shown, rows in (("center", "corner", centred), ("corner", "center", data)):
        found = npx.box_nms(np.array(rows), 0.3, in_format=given, out_format=shown).asnumpy()
        wanted = plain.asnumpy().copy()
        left = wanted[:, 0] >= 0
        if shown == "center":
            low, high = wanted[:, 2:4].copy(), wanted[:, 4:6].copy()
            wanted[:, 2:4], wanted[:, 4:6] = (low + high) / 2, high - low
        numpy.testing.assert_allclose(found[left], wanted[left], atol=1e-6)
        assert (found[~left] == -1).all()
    x = np.array(data)
    x.attach_grad()
    with autograd.record():
        y = npx.box_nms(x, 0.3)
    head = np.array(drawn(8, 7))
    y.backward(head)
    expected = numpy.zeros((8, 7))
    for row, given in zip(y.asnumpy(), head.asnumpy(), strict=True):
        if row[0] >= 0:
            expected[numpy.flatnonzero(numpy.isclose(data[:, 1], row[1]))[0]] = given
    numpy.testing.assert_allclose(x.grad.asnumpy(), expected, atol=1e-6)
    with pytest.raises(ShapeError, match="box_nms"):
        npx.box_nms(np.ones((3, 5)))


def targets(anchors: Array, rows: Array, scores: Array, ratio: float, least: int) -> Any:
    """The targets of one image, computed step by step."""
    count = len(anchors)
    objects = list(itertools.takewhile(lambda r: r[0] != -1, rows))
    table = numpy.array([[iou(a, o[1:]) for o in objects] for a in anchors])
    matched = [-1] * count
    left = table.copy()
    for _ in objects:
        i, j = divmod(int(left.argmax()), len(objects))
        matched[i] = j
        left[i], left[:, j] = -1, -1
    for i in range(count):
        if matched[i] < 0 and table[i].max() > 0.5:
            matched[i] = int(table[i].argmax())
    offsets, mask = numpy.zeros((count, 4)), numpy.zeros((count, 4))
    classes = numpy.full(count, -1.0)
    for i, j in enumerate(matched):
        if j >= 0:
            offsets[i] = encoded(anchors[i], objects[j][1:], (0,) * 4, (0.1, 0.1, 0.2, 0.2))
            mask[i], classes[i] = 1, objects[j][0] + 1
    free = [i for i in range(count) if matched[i] < 0]
    if ratio > 0:
        chance = numpy.exp(scores[0]) / numpy.exp(scores).sum(0)
        free = sorted((i for i in free if table[i].max() < 0.4), key=lambda i: chance[i])
        free = free[: max(int(ratio * (count - matched.count(-1))), least)]
    classes[free] = 0
    return offsets.ravel(), mask.ravel(), classes


@pytest.mark.parametrize(("ratio", "least"), [(-1.0, 0), (2.0, 0), (0.5, 4)])
def test_multibox_target(ratio: float, least: int) -> None:
    anchors = boxes(12, 3)
    label = numpy.full((3, 4, 5), -1.0)
    for n, count in enumerate((2, 3, 1)):
        label[n, :count] = numpy.column_stack([numpy.arange(count), boxes(count, 10 + n)])
    scores = numpy.random.default_rng(4).standard_normal((3, 4, 12))
    found = [targets(anchors, label[n], scores[n], ratio, least) for n in range(3)]
    expected = [numpy.stack(each) for each in zip(*found, strict=True)]

    def call(*arrays: Any) -> Any:
        return npx.multibox_target(
            *arrays, negative_mining_ratio=ratio, negative_mining_thresh=0.4,
            minimum_negative_samples=least,
        )  # fmt: skip

    agree(call, expected, anchors[None], label, scores)


def test_images_without_objects_are_ignored() -> None:
    label = np.full((1, 2, 5), -1.0)
    offsets, mask, classes = npx.multibox_target(
        np.array(boxes(3)[None]), label, np.zeros((1, 2, 3)), ignore_label=-7
    )
    assert not offsets.any() and not mask.any() and classes.tolist() == [[-7] * 3]
    with pytest.raises(ShapeError, match="cls_pred"):
        npx.multibox_target(np.ones((1, 3, 4)), label, np.zeros((1, 2, 4)))


@pytest.mark.parametrize("topk", [-1, 5])
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("background", [0, 2])
def test_multibox_detection(topk: int, force: bool, background: int) -> None:
    generator = numpy.random.default_rng(6)
    scores = generator.dirichlet(numpy.ones(3), (2, 10)).transpose(0, 2, 1)
    anchors, offsets = boxes(10, 3), generator.standard_normal((2, 10, 4)) / 2
    expected = numpy.full((2, 10, 6), -1.0)
    for n in range(2):
        rows = []
        for i in range(10):
            a, (dx, dy, dw, dh) = anchors[i], offsets[n, i] * (0.1, 0.1, 0.2, 0.2)
            x, y, w, h = (a[0] + a[2]) / 2, (a[1] + a[3]) / 2, a[2] - a[0], a[3] - a[1]
            box = corners((dx * w + x, dy * h + y, exp(dw) * w, exp(dh) * h))
            others = [scores[n, k, i] for k in range(3) if k != background]
            if max(others) >= 0.35:
                kind = int(numpy.argmax(others))
                rows.append([kind, max(others), *numpy.clip(box, 0, 1)])
        rows.sort(key=lambda r: -r[1])
        for place, row in enumerate(rows):
            rivals = [r for r in rows[:place] if r[0] >= 0 and (force or r[0] == row[0])]
            late = topk > 0 and place >= topk
            if late or any(iou(r[2:], row[2:]) > 0.2 for r in rivals):
                row[0] = -1
        expected[n, : len(rows)] = rows

    def call(*arrays: Any) -> Any:
        return npx.multibox_detection(
            *arrays, threshold=0.35, nms_threshold=0.2, force_suppress=force, nms_topk=topk,
            background_id=background,
        )  # fmt: skip

    agree(call, [expected], scores, offsets.reshape(2, 40), anchors[None])


def test_targets_send_no_gradient_back() -> None:
    anchors, scores = np.array(boxes(3)[None]), np.ones((1, 2, 3))
    label = np.array([[[0.0, 0.1, 0.1, 0.5, 0.5]]])
    rois = np.array([[0.0, 0, 0, 1, 1]])
    for x in (anchors, scores, rois):
        x.attach_grad()
    with autograd.record():
        offsets, _, _ = npx.multibox_target(anchors, label, scores * 2)
        rows = npx.multibox_detection(scores, anchors.reshape(1, 12), anchors)
        pooled = npx.roi_align(np.ones((1, 1, 3, 3)), rois * 2, 2, 1.0)
        total = offsets.sum() + rows.sum() + pooled.sum() + scores.sum()
    total.backward()
    assert scores.grad.tolist() == [[[1] * 3] * 2]
    assert not anchors.grad.any() and not rois.grad.any()


# --- regions ----------------------------------------------------------------------------------

ROIS = numpy.array(
    [[0, 1.2, 0.4, 6.6, 5.1], [1, 0, 0, 9, 9], [1, 3, 3, 3, 3], [0, 4, 5, 40, 30], [-1, 0, 0, 3, 3]]
)


def slow_pooling(x: Array, size: tuple[int, int], scale: float) -> Array:
    found = numpy.zeros((len(ROIS), x.shape[1], *size))
    for n, roi in enumerate(ROIS):
        if roi[0] < 0:
            continue
        left, top, right, bottom = (floor(v * scale + 0.5) for v in roi[1:])
        high, wide = max(bottom - top + 1, 1) / size[0], max(right - left + 1, 1) / size[1]
        for i, j in itertools.product(*map(range, size)):
            rows = range(max(floor(i * high) + top, 0), min(ceil((i + 1) * high) + top, x.shape[2]))
            columns = range(
                max(floor(j * wide) + left, 0), min(ceil((j + 1) * wide) + left, x.shape[3])
            )
            for c in range(x.shape[1]):
                values = [x[int(roi[0]), c, a, b] for a in rows for b in columns]
                found[n, c, i, j] = max(values) if values else 0
    return found


@pytest.mark.parametrize(("size", "scale"), [((2, 3), 1.0), ((3, 3), 0.5)])
def test_roi_pooling(size: tuple[int, int], scale: float) -> None:
    check(
        lambda x: npx.roi_pooling(x, np.array(ROIS), size, scale),
        lambda x: slow_pooling(x, size, scale),
        [drawn(2, 2, 8, 7)],
    )


def between(image: Array, y: float, x: float) -> float:
    height, width = image.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    a, b = floor(y), floor(x)
    c, d = min(a + 1, height - 1), min(b + 1, width - 1)
    v, u = y - a, x - b
    top = image[a, b] * (1 - u) + image[a, d] * u
    return float(top * (1 - v) + (image[c, b] * (1 - u) + image[c, d] * u) * v)


def slow_align(
    x: Array, size: tuple[int, int], scale: float, ratio: int, own: bool, aligned: bool
) -> Array:
    channels = x.shape[1] // (size[0] * size[1]) if own else x.shape[1]
    found = numpy.zeros((len(ROIS), channels, *size))
    for n, roi in enumerate(ROIS):
        if roi[0] < 0:
            continue
        left, top, right, bottom = roi[1:] * scale - (0.5 if aligned else 0)
        high, wide = bottom - top, right - left
        if not aligned:
            high, wide = max(high, 1), max(wide, 1)
        high, wide = high / size[0], wide / size[1]
        counts = [ratio if ratio > 0 else max(ceil(v), 1) for v in (high, wide)]
        for c, i, j in itertools.product(range(channels), *map(range, size)):
            source = x[int(roi[0]), (c * size[0] + i) * size[1] + j if own else c]
            total = 0.0
            for a, b in itertools.product(*map(range, counts)):
                y = top + (i + (a + 0.5) / counts[0]) * high
                total += between(source, y, left + (j + (b + 0.5) / counts[1]) * wide)
            found[n, c, i, j] = total / (counts[0] * counts[1])
    return found


@pytest.mark.parametrize(
    ("scale", "ratio", "own", "aligned"),
    [(1.0, 2, False, False), (0.5, -1, False, True), (1.0, -1, True, False)],
)
def test_roi_align(scale: float, ratio: int, own: bool, aligned: bool) -> None:
    size = (2, 3)
    check(
        lambda x: npx.roi_align(
            x, np.array(ROIS, dtype="float64"), size, scale, ratio, own, aligned
        ),
        lambda x: slow_align(x, size, scale, ratio, own, aligned),
        [drawn(2, 6, 8, 7)],
    )


def test_bad_regions() -> None:
    x = np.ones((1, 2, 4, 4))
    with pytest.raises(ShapeError, match="roi_pooling"):
        npx.roi_pooling(x, np.ones((2, 4)), 2, 1.0)
    with pytest.raises(ShapeError, match="roi_align"):
        npx.roi_align(x[0], np.ones((2, 5)), 2, 1.0)
    with pytest.raises(ShapeError, match="do not divide"):
        npx.roi_align(x, np.zeros((2, 5)), 2, 1.0, position_sensitive=True)
    with pytest.raises(IndexError):
        npx.roi_pooling(x, np.array([[3, 0, 0, 1, 1]]), 2, 1.0).asnumpy()
    with pytest.raises(IndexError):
        npx.roi_align(x, np.array([[3.0, 0, 0, 1, 1]]), 2, 1.0).asnumpy()
