"""Array programs for `programs`: one text each, for NumPy and for `gemel.np`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Program = Callable[[Any, dict[str, Any]], Any]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    """Add a program under its name."""
    PROGRAMS[function.__name__] = function
    return function


def arrays() -> dict[str, Any]:
    """The inputs of all programs."""
    import numpy

    draw = numpy.random.default_rng(0)
    links = abs(draw.standard_normal((500, 500)))
    return {
        "points": draw.standard_normal((2000, 16)).astype("float32"),
        "picture": draw.standard_normal((256, 256)).astype("float32"),
        "cells": (draw.random((256, 256)) < 0.3).astype("int32"),
        "places": draw.standard_normal((200, 3)).astype("float32"),
        "masses": abs(draw.standard_normal(200)).astype("float32"),
        "links": (links / links.sum(axis=0)).astype("float32"),
        "labels": (draw.standard_normal(2000) > 0).astype("float32"),
        "seen": draw.standard_normal((100, 2)).astype("float32"),
        "series": draw.standard_normal(100_000).astype("float32"),
        "word": draw.integers(0, 4, 200).astype("int32"),
        "other": draw.integers(0, 4, 200).astype("int32"),
    }


@program
def clusters(np: Any, given: dict[str, Any]) -> Any:
    """k-means, with means of selected rows."""
    points = given["points"]
    centers = points[:10]
    for _ in range(5):
        nearest = ((points[:, None] - centers[None]) ** 2).sum(axis=2).argmin(axis=1)
        centers = np.stack([points[nearest == k].mean(axis=0) for k in range(10)])
    return centers


@program
def life(np: Any, given: dict[str, Any]) -> Any:
    """Game of life, by rolled arrays."""
    cells = given["cells"]
    for _ in range(10):
        rows = np.roll(cells, 1, 0) + cells + np.roll(cells, -1, 0)
        around = np.roll(rows, 1, 1) + rows + np.roll(rows, -1, 1) - cells
        cells = ((around == 3) | ((cells == 1) & (around == 2))).astype(np.int32)
    return cells


@program
def heat(np: Any, given: dict[str, Any]) -> Any:
    """Heat equation, written into slices."""
    u = given["picture"].copy()
    for _ in range(20):
        inside = u[1:-1, 1:-1]
        u[1:-1, 1:-1] = inside + 0.1 * (
            u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * inside
        )
    return u


@program
def bodies(np: Any, given: dict[str, Any]) -> Any:
    """Gravity between 200 bodies."""
    places, speeds = given["places"], np.zeros((200, 3), dtype=np.float32)
    for _ in range(5):
        apart = places[None] - places[:, None]
        squared = (apart**2).sum(axis=-1) + 0.01
        pull = (apart * (given["masses"] / squared**1.5)[:, :, None]).sum(axis=1)
        speeds = speeds + 0.01 * pull
        places = places + 0.01 * speeds
    return places


@program
def fractal(np: Any, given: dict[str, Any]) -> Any:
    """Mandelbrot set, by masks."""
    side = np.arange(200, dtype=np.float32) / 100
    re = np.zeros((200, 200), dtype=np.float32) + side - 1.5
    im = np.zeros((200, 200), dtype=np.float32) + side[:, None] - 1
    x, y, count = np.zeros_like(re), np.zeros_like(re), np.zeros_like(re)
    inside = x == 0
    for _ in range(10):
        a, b = x[inside], y[inside]
        x[inside] = a * a - b * b + re[inside]
        y[inside] = 2 * a * b + im[inside]
        inside = inside & (x * x + y * y < 4)
        count[inside] += 1
    return count


@program
def ranks(np: Any, given: dict[str, Any]) -> Any:
    """PageRank of 500 pages."""
    rank = np.full((500,), 1 / 500, dtype=np.float32)
    for _ in range(30):
        rank = 0.85 * (given["links"] @ rank) + 0.15 / 500
    return rank


@program
def newton(np: Any, given: dict[str, Any]) -> Any:
    """Logistic regression by Newton's method."""
    x, y, weight = given["points"], given["labels"], np.zeros(16, dtype=np.float32)
    for _ in range(5):
        p = 1 / (1 + np.exp(-(x @ weight)))
        curvature = (x.T * (p * (1 - p))) @ x + np.eye(16, dtype=np.float32)
        weight = weight - np.linalg.solve(curvature, x.T @ (p - y))
    return weight


@program
def kalman(np: Any, given: dict[str, Any]) -> Any:
    """Kalman filter of 100 observations."""
    one, seen = np.eye(4, dtype=np.float32), given["seen"]
    moves, shown = one + 0.1 * np.eye(4, k=2, dtype=np.float32), np.eye(2, 4, dtype=np.float32)
    state, spread = np.zeros(4, dtype=np.float32), one
    for t in range(100):
        state, spread = moves @ state, moves @ spread @ moves.T + 0.01 * one
        noise = shown @ spread @ shown.T + np.eye(2, dtype=np.float32)
        gain = spread @ shown.T @ np.linalg.inv(noise)
        state = state + gain @ (seen[t] - shown @ state)
        spread = (one - gain @ shown) @ spread
    return state


@program
def distance(np: Any, given: dict[str, Any]) -> Any:
    """Edit distance of two words of 200 letters."""
    count = np.arange(201, dtype=np.int32)
    before = count
    for i in range(200):
        changed = before[:-1] + (given["other"] != given["word"][i])
        first = np.array([i + 1], dtype=np.int32)
        row = np.concatenate([first, np.minimum(before[1:] + 1, changed)])
        before = (np.minimum.accumulate(row - count) + count).astype(np.int32)
    return before


@program
def primes(np: Any, given: dict[str, Any]) -> Any:
    """Sieve of Eratosthenes below 20,000."""
    prime = np.ones(20_000, dtype=bool)
    prime[:2] = False
    for i in range(2, 142):
        if prime[i]:
            prime[i * i :: i] = False
    return prime


@program
def neighbours(np: Any, given: dict[str, Any]) -> Any:
    """Mean of the five nearest of 2,000 points."""
    points = given["points"]
    apart = ((points[:300, None] - points[None]) ** 2).sum(axis=-1)
    return points[np.argsort(apart, axis=1)[:, :5]].mean(axis=1)


@program
def summary(np: Any, given: dict[str, Any]) -> Any:
    """Percentiles, histogram and moments of 100,000 numbers."""
    series = given["series"]
    quartiles = np.percentile(series, np.array([25, 50, 75]))
    counts = np.histogram(series, 20)[0]
    return quartiles.sum() + counts.max() + series.std() + np.median(series)


__all__ = ["PROGRAMS", "arrays"]
