"""Matching boxes and suppressing overlapping ones: sequential decisions, made in NumPy."""

from __future__ import annotations

from typing import Any

from gemel.errors import ShapeError
from gemel.ir.declare import op
from gemel.ir.keywords import number
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.ops.boxes import (
    VARIANCES,
    box_decode,
    centred,
    check_format,
    intersection_over_union,
    numbers,
    sides,
)
from gemel.ops.elementwise import limit, maximum, where
from gemel.ops.layouts import array_of
from gemel.ops.selection import take_along_axis
from gemel.ops.shape import broadcast_to, concatenate, expand_dims, operand, reshape, stack
from gemel.spec import Spec, same_shape, whole


def _overlaps(a: Any, b: Any) -> Any:
    """The overlap (intersection over union) of each pair of two lists of boxes, by NumPy."""
    first, second = sides(a[:, None], "corner"), sides(b[None], "corner")
    return intersection_over_union(first, second, numpy())


def _kept(boxes: Any, kinds: Any, overlap: float) -> Any:
    """Which boxes, sorted by score, remain: no better kept box of their kind overlaps too much."""
    np = numpy()
    over = _overlaps(boxes, boxes) > overlap
    if kinds is not None:
        over &= kinds[:, None] == kinds[None]
    kept = np.ones(len(boxes), bool)
    for place in range(len(boxes)):
        if kept[place]:
            kept[place + 1 :] &= ~over[place, place + 1 :]
    return kept


@op(outputs=2)
def greedy_pairs(scores: Any, *, ascending: bool, threshold: float, topk: int) -> Any:
    """Rows and columns of each matrix paired, the best pair first: the partner of each, or -1."""
    np = numpy()
    rows, columns = (np.full((*scores.shape[:-2], n), -1.0) for n in scores.shape[-2:])
    for batch in np.ndindex(*scores.shape[:-2]):
        table = scores[batch].astype("float64")
        order = np.argsort(table if ascending else -table, axis=None, kind="stable")
        count = 0
        for row, column in zip(*np.unravel_index(order, table.shape), strict=True):
            value = table[row, column]
            if (value > threshold if ascending else value < threshold) or count == topk:
                break
            if rows[batch][row] < 0 and columns[batch][column] < 0:
                rows[batch][row], columns[batch][column] = column, row
                count += 1
    return rows.astype(scores.dtype), columns.astype(scores.dtype)


@greedy_pairs.spec
def _(scores: Spec, *, ascending: bool, threshold: float, topk: int) -> tuple[Spec, Spec]:
    if scores.ndim < 2:
        raise ShapeError(f"bipartite_matching: {scores} must be matrices")
    lead, (rows, columns) = scores.shape[:-2], scores.shape[-2:]
    return Spec((*lead, rows), scores.dtype), Spec((*lead, columns), scores.dtype)


@greedy_pairs.gradient
def _(g: Any, y: Any, scores: Any, **_: Any) -> Any:
    return (None,)


@function(public="npx")
def bipartite_matching(
    data: Any, threshold: float, is_ascend: bool = False, topk: int = -1
) -> Array | tuple[Any, ...]:
    """Rows and columns of matrices (..., N, M) in pairs, each in one at most: the pair with the
    highest score first (the lowest with `is_ascend`), then the next that is free.

    The results are the column of each row and the row of each column, -1 for none. Scores beyond
    the threshold make no pair; `topk` limits their number.

    >>> npx.bipartite_matching(np.array([[0.5, 0.6], [0.1, 0.2], [0.3, 0.4]]), threshold=1e-12)
    """
    found = greedy_pairs(
        operand(data),
        ascending=bool(is_ascend),
        threshold=number("bipartite_matching", "threshold", threshold),
        topk=whole("bipartite_matching", "topk", topk),
    )
    return found[0], found[1]


@op()
def surviving(
    x: Any,
    *,
    overlap: float,
    valid: float,
    topk: int,
    coord: int,
    score: int,
    kind: int,
    background: int,
    force: bool,
    given: str,
) -> Any:
    """The positions of the rows that non-maximum suppression keeps, the best first, then -1."""
    np = numpy()
    found = np.full(x.shape[:-1], -1, "int64")
    for batch in np.ndindex(*x.shape[:-2]):
        rows = x[batch].astype("float64")
        allowed = rows[:, score] > valid
        if kind >= 0 and background >= 0:
            allowed &= rows[:, kind] != background
        order = np.argsort(-rows[:, score], kind="stable")
        order = order[allowed[order]]
        order = order[:topk] if topk > 0 else order
        boxes = rows[order, coord : coord + 4]
        boxes = np.stack(sides(boxes, given), -1) if len(order) else boxes
        kept = order[_kept(boxes, None if force or kind < 0 else rows[order, kind], overlap)]
        found[batch][: len(kept)] = kept
    return found


@surviving.spec
def _(x: Spec, *, coord: int, score: int, kind: int, **_: Any) -> Spec:
    if (
        coord < 0
        or score < 0
        or x.ndim < 2
        or not x.shape[-1] >= max(coord + 4, score + 1, kind + 1)
    ):
        raise ShapeError(
            f"box_nms: {x} must be (..., boxes, numbers), with 4 numbers from position {coord}, "
            f"and the positions {score} and {kind}"
        )
    return Spec(x.shape[:-1], "int64")


@function(public="npx")
def box_nms(
    data: Any,
    overlap_thresh: float = 0.5,
    valid_thresh: float = 0.0,
    topk: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = -1,
    background_id: int = -1,
    force_suppress: bool = False,
    in_format: str = "corner",
    out_format: str = "corner",
) -> Array:
    """Non-maximum suppression: of boxes (..., N, numbers) that overlap more than `overlap_thresh`,
    the one with the best score is left.

    Boxes with a score of `valid_thresh` or less, or of the kind `background_id`, are dropped first,
    and of the others all but the `topk` best. Only boxes of one kind (`id_index`) suppress one
    another, unless `force_suppress`. Those that are left come first, best first, the rest of the
    rows is -1. Gradients go to the boxes that are left.

    >>> npx.box_nms(np.array([[0.0, 0.9, 0.0, 0.0, 1.0, 1.0], [0.0, 0.8, 0.0, 0.0, 1.0, 0.9]]))
    """
    check_format("box_nms", in_format, out_format)
    data = operand(data)
    places = surviving(
        data,
        overlap=number("box_nms", "overlap_thresh", overlap_thresh),
        valid=number("box_nms", "valid_thresh", valid_thresh),
        topk=whole("box_nms", "topk", topk),
        coord=coord_start,
        score=score_index,
        kind=id_index,
        background=background_id,
        force=bool(force_suppress),
        given=in_format,
    )
    left = expand_dims(places >= 0, -1)
    rows = broadcast_to(expand_dims(maximum(places, 0), -1), shape=data.shape)
    if in_format != out_format:
        shown = (centred if out_format == "center" else sides)(
            data[..., coord_start : coord_start + 4], in_format
        )
        before, after = data[..., :coord_start], data[..., coord_start + 4 :]
        data = concatenate(before, stack(list(shown), axis=-1), after, axis=len(data.shape) - 1)
    return where(left, take_along_axis(data, rows, axis=len(data.shape) - 2), -1.0)


@op(outputs=3)
def anchor_targets(
    anchor: Any,
    label: Any,
    scores: Any,
    *,
    overlap: float,
    ignored: float,
    ratio: float,
    mining: float,
    least: int,
    variances: Any,
) -> Any:
    """SSD's training targets: offsets, a mask of those that count, and classes."""
    np = numpy()
    anchors = anchor.reshape(-1, 4).astype("float64")
    count = len(anchors)
    offsets, mask = np.zeros((len(label), count, 4)), np.zeros((len(label), count, 4))
    classes = np.full((len(label), count), float(ignored))
    for n, rows in enumerate(label.astype("float64")):
        ends = np.flatnonzero(rows[:, 0] == -1)
        rows = rows[: ends[0]] if len(ends) else rows
        if not len(rows):
            continue
        over = _overlaps(anchors, rows[:, 1:5])
        matched = _matched(over, overlap)
        taken = matched >= 0
        classes[n, taken] = rows[matched[taken], 0] + 1
        boxes = rows[matched[taken], 1:5]
        offsets[n, taken] = _numpy_offsets(anchors[taken], boxes, variances)
        mask[n, taken] = 1
        others = ~taken
        if ratio > 0:
            others &= over.max(1) < mining
            wanted = max(int(taken.sum() * ratio), least)
            others = _hardest(scores[n].astype("float64"), others, min(wanted, count - taken.sum()))
        classes[n, others] = 0
    shape = (len(label), count * 4)
    found = (offsets.reshape(shape), mask.reshape(shape), classes)
    return tuple(each.astype(anchor.dtype) for each in found)


def _matched(over: Any, threshold: float) -> Any:
    """The box of each anchor, or -1. First each box gets its best anchor; then each anchor left
    takes its best box, if their overlap exceeds the threshold."""
    np = numpy()
    matched = np.full(len(over), -1)
    left = over.copy()
    for _ in range(over.shape[1]):
        anchor, box = np.unravel_index(np.argmax(left), left.shape)
        if left[anchor, box] <= 1e-6:
            break
        matched[anchor] = box
        left[anchor], left[:, box] = -1, -1
    best = over.argmax(1)
    near = (matched < 0) & (over.max(1) > threshold)
    matched[near] = best[near]
    return matched


def _numpy_offsets(anchors: Any, boxes: Any, variances: Any) -> Any:
    np = numpy()
    size, wide = anchors[:, 2:] - anchors[:, :2], boxes[:, 2:] - boxes[:, :2]
    moved = (boxes[:, 2:] + boxes[:, :2] - anchors[:, 2:] - anchors[:, :2]) / 2 / size
    with np.errstate(all="ignore"):
        return np.concatenate([moved, np.log(wide / size)], axis=1) / np.asarray(variances)


def _hardest(scores: Any, allowed: Any, count: int) -> Any:
    """The `count` allowed anchors for which the background (class 0) is least likely."""
    np = numpy()
    raised = np.exp(scores - scores.max(0))
    background = raised[0] / raised.sum(0)
    order = np.argsort(np.where(allowed, background, np.inf), kind="stable")[:count]
    found = np.zeros(len(allowed), bool)
    found[order] = True
    return found & allowed


@anchor_targets.spec
def _(anchor: Spec, label: Spec, scores: Spec, **_: Any) -> tuple[Spec, ...]:
    if anchor.ndim != 3 or not anchor.shape[0] == 1 or not anchor.shape[2] == 4:
        raise ShapeError(f"multibox_target: anchor {anchor} must be (1, N, 4)")
    count = anchor.shape[1]
    if label.ndim != 3 or not label.shape[2] >= 5:
        raise ShapeError(f"multibox_target: label {label} must be (batch, objects, 5)")
    if scores.ndim != 3 or not (scores.shape[0] == label.shape[0] and scores.shape[2] == count):
        raise ShapeError(f"multibox_target: cls_pred {scores} must be (batch, classes, {count})")
    batch, dtype = label.shape[0], anchor.dtype.floating
    wide = Spec((batch, count * 4), dtype)
    return wide, wide, Spec((batch, count), dtype)


@anchor_targets.gradient
def _(g: Any, y: Any, anchor: Any, label: Any, scores: Any, **_: Any) -> Any:
    return None, None, None


@function(public="npx")
def multibox_target(
    anchor: Any,
    label: Any,
    cls_pred: Any,
    overlap_threshold: float = 0.5,
    ignore_label: float = -1.0,
    negative_mining_ratio: float = -1.0,
    negative_mining_thresh: float = 0.5,
    minimum_negative_samples: int = 0,
    variances: Any = VARIANCES,
) -> Array | tuple[Any, ...]:
    """What a detector of one shot is trained towards: offsets (B, N * 4), a mask of the same shape
    of those that count, and classes (B, N), 0 for background.

    anchor is (1, N, 4), label (B, M, 5) with rows class, left, top, right, bottom up to the first
    -1, cls_pred (B, classes, N). Each object gets the anchor it overlaps most; other anchors the
    object they overlap most, if by more than `overlap_threshold`. All others are background; with
    a `negative_mining_ratio` only so many for each matched one, those least taken for background
    that overlap no object by `negative_mining_thresh`; the rest, and all anchors of an image
    without objects, are `ignore_label`. No gradient flows back. Liu et al., SSD, ECCV 2016.

    >>> anchor, label = np.array([[[0.0, 0.0, 0.5, 0.5]]]), np.array([[[1.0, 0.0, 0.0, 0.5, 0.6]]])
    >>> npx.multibox_target(anchor, label, np.zeros((1, 3, 1)))
    """
    name = "multibox_target"
    found = anchor_targets(
        operand(anchor),
        operand(label),
        operand(cls_pred),
        overlap=number(name, "overlap_threshold", overlap_threshold),
        ignored=number(name, "ignore_label", ignore_label),
        ratio=number(name, "negative_mining_ratio", negative_mining_ratio),
        mining=number(name, "negative_mining_thresh", negative_mining_thresh),
        least=whole(name, "minimum_negative_samples", minimum_negative_samples),
        variances=numbers(name, "variances", variances, 4),
    )
    return list(found)


@op()
def detections(
    scores: Any,
    boxes: Any,
    *,
    threshold: float,
    background: int,
    overlap: float,
    force: bool,
    topk: int,
) -> Any:
    """(class, score, box) of each anchor, the best first; class -1 if it was suppressed."""
    np = numpy()
    batch, _, count = scores.shape
    found = np.full((batch, count, 6), -1.0)
    for n in range(batch):
        each = np.delete(scores[n].astype("float64"), background, axis=0)
        kinds, best = each.argmax(0), each.max(0)
        order = np.argsort(-best, kind="stable")
        order = order[best[order] >= threshold]
        rows = np.column_stack([kinds[order], best[order], boxes[n, order].astype("float64")])
        many = len(order) if topk <= 0 else min(topk, len(order))
        kept = _kept(rows[:many, 2:], None if force else rows[:many, 0], overlap)
        rows[:many, 0] = np.where(kept, rows[:many, 0], -1)
        rows[many:, 0] = -1
        found[n, : len(rows)] = rows
    return found.astype(scores.dtype)


@detections.spec
def _(scores: Spec, boxes: Spec, *, background: int, **_: Any) -> Spec:
    if scores.ndim != 3 or not scores.shape[1] > max(background, 1):
        raise ShapeError(f"multibox_detection: cls_prob {scores} must be (batch, classes, N)")
    if not same_shape(boxes.shape, (scores.shape[0], scores.shape[2], 4)):
        raise ShapeError(f"multibox_detection: boxes {boxes} do not fit cls_prob {scores}")
    return Spec((scores.shape[0], scores.shape[2], 6), scores.dtype.floating)


@detections.gradient
def _(g: Any, y: Any, scores: Any, boxes: Any, **_: Any) -> Any:
    return None, None


@function(public="npx")
def multibox_detection(
    cls_prob: Any,
    loc_pred: Any,
    anchor: Any,
    clip: bool = True,
    threshold: float = 0.01,
    background_id: int = 0,
    nms_threshold: float = 0.5,
    force_suppress: bool = False,
    variances: Any = VARIANCES,
    nms_topk: int = -1,
) -> Array:
    """What a detector of one shot has found: rows class, score, left, top, right, bottom, the best
    first, (B, N, 6).

    cls_prob is (B, classes, N), loc_pred (B, N * 4), anchor (1, N, 4). Classes do not count the
    background. The class is -1 where the score is below `threshold`, where a better box of the
    class (any with `force_suppress`) overlaps by more than `nms_threshold`, and behind the
    `nms_topk` best. With `clip` boxes end at the image's border. No gradient
    flows back.

    >>> anchor = np.array([[[0.0, 0.0, 0.5, 0.5]]])
    >>> npx.multibox_detection(np.array([[[0.2], [0.8]]]), np.zeros((1, 4)), anchor)
    """
    name = "multibox_detection"
    cls_prob = array_of(name, "cls_prob", cls_prob, "B, classes, N")
    anchor = array_of(name, "anchor", anchor, "1, N, 4")
    offsets = array_of(name, "loc_pred", loc_pred, "B, N * 4")
    offsets = reshape(offsets, shape=(offsets.shape[0], anchor.shape[1], 4))
    first, second, third, last = numbers(name, "variances", variances, 4)
    boxes = box_decode(offsets, anchor, first, second, third, last, format="corner")
    return detections(
        cls_prob,
        limit(boxes, 0.0, 1.0) if clip else boxes,
        threshold=number(name, "threshold", threshold),
        background=whole(name, "background_id", background_id),
        overlap=number(name, "nms_threshold", nms_threshold),
        force=bool(force_suppress),
        topk=whole(name, "nms_topk", nms_topk),
    )
