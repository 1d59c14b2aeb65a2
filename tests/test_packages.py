"""Other packages accept gemel's arrays: scikit-learn, SciPy, pandas and matplotlib, unchanged."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from typing import Any

import numpy
import pytest

from gemel import autograd, np

VALUES = numpy.array([[1.5, 2.0, 3.0], [4.0, 5.0, 6.5]], "float32")
ROW = numpy.array([0.1, 0.5, 0.9, 2.0, 4.0], "float32")


def close(ours: Any, theirs: Any) -> None:
    """Check that numbers, arrays or tuples of them have the same values."""
    if isinstance(theirs, tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            close(one, other)
        return
    numpy.testing.assert_allclose(numpy.asarray(ours), theirs, rtol=2e-5, atol=1e-6)


# --- scikit-learn ---------------------------------------------------------------------------

#: Runs in its own process, because SciPy reads the switch when it is imported.
SKLEARN = """
import numpy
from gemel import np
from sklearn import config_context, metrics
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.metrics import pairwise
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import *

DATA, CLASSES = make_classification(120, n_features=6, random_state=0)
NUMBERS = DATA @ numpy.arange(1.0, 7.0) + 0.5

def compare(ours, theirs, kind=np.ndarray):
    assert isinstance(ours, kind), type(ours)
    numpy.testing.assert_allclose(abs(numpy.asarray(ours)), abs(theirs), rtol=1e-4, atol=1e-5)

def fitted(make, dtype, target):
    data, target = DATA.astype(dtype), target.astype(dtype if target is NUMBERS else "int64")
    ours = np.array(data, dtype=dtype), np.array(target, dtype=target.dtype.name)
    theirs = make().fit(data, target)
    with config_context(array_api_dispatch=True):
        model = make().fit(*ours)
        for name in ("transform", "predict", "predict_proba"):
            if hasattr(theirs, name):
                compare(getattr(model, name)(ours[0]), getattr(theirs, name)(data))
        if hasattr(theirs, "inverse_transform"):
            compare(model.inverse_transform(model.transform(ours[0])),
                    theirs.inverse_transform(theirs.transform(data)))
        if hasattr(theirs, "score"):
            compare(model.score(*ours), theirs.score(data, target), float)

for dtype in ("float32", "float64"):
    for make in (
        lambda: PCA(3), lambda: PCA(2, svd_solver="full", whiten=True), StandardScaler,
        lambda: PCA(3, svd_solver="randomized", power_iteration_normalizer="QR", random_state=0),
        MinMaxScaler, MaxAbsScaler, Normalizer, Binarizer, PolynomialFeatures,
        LinearDiscriminantAnalysis, lambda: RidgeClassifier(solver="svd"), GaussianNB,
    ):
        fitted(make, dtype, CLASSES)
    fitted(lambda: Ridge(solver="svd"), dtype, NUMBERS)
fitted(lambda: GaussianMixture(2, random_state=0, init_params="random"), "float64", CLASSES)

with config_context(array_api_dispatch=True):
    true, found = numpy.array([0, 1, 1, 0, 1]), numpy.array([0, 1, 0, 0, 1])
    for name in ("accuracy_score", "zero_one_loss", "f1_score", "precision_score", "recall_score",
                 "jaccard_score", "hamming_loss", "cohen_kappa_score", "matthews_corrcoef",
                 "balanced_accuracy_score"):
        metric = getattr(metrics, name)
        compare(metric(np.array(true), np.array(found)), metric(true, found), float)
    compare(metrics.confusion_matrix(np.array(true), np.array(found)),
            metrics.confusion_matrix(true, found))
    true, found = numpy.array([0.1, 0.5, 0.3, 0.9]), numpy.array([0.2, 0.4, 0.3, 0.8])
    for name in ("r2_score", "mean_squared_error", "mean_absolute_error", "max_error",
                 "explained_variance_score", "median_absolute_error", "d2_tweedie_score",
                 "mean_absolute_percentage_error", "mean_pinball_loss"):
        metric = getattr(metrics, name)
        compare(metric(np.array(true), np.array(found)), metric(true, found), float)
    data = abs(DATA[:7])
    for name in ("cosine_similarity", "euclidean_distances", "linear_kernel", "rbf_kernel",
                 "polynomial_kernel", "sigmoid_kernel", "chi2_kernel", "paired_cosine_distances"):
        metric = getattr(pairwise, name)
        compare(metric(np.array(data), np.array(data)), metric(data, data))
    parts = train_test_split(np.array(data), np.arange(7), random_state=0)
    for part, other in zip(parts, train_test_split(data, numpy.arange(7), random_state=0)):
        compare(part, other)
    ours, theirs = np.array(DATA), np.array(NUMBERS)
    compare(cross_val_predict(Ridge(solver="svd"), ours, theirs),
            cross_val_predict(Ridge(solver="svd"), DATA, NUMBERS))
    steps = make_pipeline(StandardScaler(), PCA(2))
    compare(steps.fit_transform(ours), make_pipeline(StandardScaler(), PCA(2)).fit_transform(DATA))
# Without the switch the same arrays become NumPy's, and models of NumPy's take them. They stay.
kept = np.array(DATA)
StandardScaler().fit_transform(kept), MinMaxScaler(copy=True).fit_transform(kept)
PCA(2).fit_transform(kept), Ridge().fit(kept, np.array(NUMBERS)), Normalizer().transform(kept)
compare(kept, DATA)
model = LinearDiscriminantAnalysis().fit(np.array(DATA), np.array(CLASSES))
compare(model.predict(np.array(DATA)), model.predict(DATA), numpy.ndarray)
print("all")
"""


def test_sklearn() -> None:
    pytest.importorskip("sklearn")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SKLEARN],
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.stdout == "all\n", done.stderr


# --- SciPy ----------------------------------------------------------------------------------

SCIPY: dict[str, Any] = {
    "special.erf": lambda scipy, x: scipy.special.erf(x),
    "special.gamma": lambda scipy, x: scipy.special.gamma(x),
    "special.jv": lambda scipy, x: scipy.special.jv(1, x),
    "special.logsumexp": lambda scipy, x: scipy.special.logsumexp(x),
    "special.softmax": lambda scipy, x: scipy.special.softmax(x),
    "stats.zscore": lambda scipy, x: scipy.stats.zscore(x),
    "stats.pearsonr": lambda scipy, x: tuple(scipy.stats.pearsonr(x, x * x)),
    "stats.ttest_ind": lambda scipy, x: tuple(scipy.stats.ttest_ind(x, x + 1)),
    "stats.norm": lambda scipy, x: scipy.stats.norm.cdf(x),
    "stats.rankdata": lambda scipy, x: scipy.stats.rankdata(x),
    "stats.iqr": lambda scipy, x: scipy.stats.iqr(x),
    "linalg.svdvals": lambda scipy, x: scipy.linalg.svdvals(x[:4].reshape(2, 2)),
    "linalg.inv": lambda scipy, x: scipy.linalg.inv(x[:4].reshape(2, 2)),
    "linalg.solve": lambda scipy, x: scipy.linalg.solve(x[:4].reshape(2, 2), x[:2]),
    "linalg.expm": lambda scipy, x: scipy.linalg.expm(x[:4].reshape(2, 2)),
    "signal.convolve": lambda scipy, x: scipy.signal.convolve(x, x[:2]),
    "signal.lfilter": lambda scipy, x: scipy.signal.lfilter([1.0], [1.0, 0.5], x),
    "signal.find_peaks": lambda scipy, x: scipy.signal.find_peaks(-abs(x - 1))[0],
    "fft.fft": lambda scipy, x: scipy.fft.fft(x).real,
    "ndimage.gaussian_filter": lambda scipy, x: scipy.ndimage.gaussian_filter(x, 1.0),
    "integrate.trapezoid": lambda scipy, x: scipy.integrate.trapezoid(x),
    "interpolate.interp1d": lambda scipy, x: scipy.interpolate.interp1d(x, x * 2)(x[1:3]),
    "spatial.cdist": lambda scipy, x: scipy.spatial.distance.cdist(x[:, None], x[:, None]),
    "sparse.array": lambda scipy, x: scipy.sparse.csr_array(x[:, None]).toarray(),
    "sparse.product": lambda scipy, x: scipy.sparse.csr_array(numpy.eye(5)) @ x,
    "optimize.minimize": lambda scipy, x: (
        scipy.optimize.minimize(lambda z: float(((z - 1) ** 2).sum()), x.astype("float64")).x
    ),
}


@pytest.mark.parametrize("name", SCIPY)
def test_scipy(name: str) -> None:
    scipy = pytest.importorskip("scipy")
    pytest.importorskip(f"scipy.{name.partition('.')[0]}")
    close(SCIPY[name](scipy, np.array(ROW)), SCIPY[name](scipy, ROW))


# --- pandas ---------------------------------------------------------------------------------


def test_pandas_frames_and_columns() -> None:
    pandas = pytest.importorskip("pandas")
    x, counts = np.array(VALUES), np.array([3, 1, 2])
    frame = pandas.DataFrame(x, columns=["a", "b", "c"])
    assert frame.to_numpy().tolist() == VALUES.tolist()
    assert set(frame.dtypes) == {numpy.dtype("float32")}
    frame["d"] = np.array([7, 8])
    frame["e"] = x[:, 1]
    assert frame["d"].dtype == numpy.int64 and frame["e"].tolist() == [2.0, 5.0]
    both = pandas.DataFrame({"n": counts, "m": counts > 1, "t": ["x", "y", "z"]})
    assert [str(dtype) for dtype in both.dtypes[:2]] == ["int64", "bool"]
    assert both.groupby("m")["n"].sum().tolist() == [1, 5]
    assert both.iloc[np.array([2, 0])]["t"].tolist() == ["z", "x"]
    again = np.array(frame[["a", "b"]])
    assert isinstance(again, np.ndarray) and again.tolist() == VALUES[:, :2].tolist()


def test_pandas_series() -> None:
    pandas = pytest.importorskip("pandas")
    x = np.array([1.0, 2.0, 3.0])
    series = pandas.Series(x, name="s")
    assert series.dtype == numpy.float32 and series.sum() == 6
    for found in (series + x, x + series, series * x[0]):
        assert isinstance(found, pandas.Series)
    assert (series == x).all() and series.isin(x[:2].tolist()).tolist() == [True, True, False]
    assert pandas.Series([9.0, 8.0, 7.0]).where(x > 1, x).tolist() == [1.0, 8.0, 7.0]
    assert pandas.isna(np.array([1.0, float("nan")])).tolist() == [False, True]
    assert pandas.cut(x, 3).codes.tolist() == [0, 1, 2]
    assert pandas.Series(x.astype("bfloat16")).tolist() == [1.0, 2.0, 3.0]


# --- matplotlib -----------------------------------------------------------------------------

#: What is drawn, and the numbers that the picture was made from.
DRAWN: dict[str, Any] = {
    "plot": lambda ax, x: ax.plot(x, x**2)[0].get_ydata(),
    "plot of a table": lambda ax, x: ax.plot(x.reshape(5, 1))[0].get_ydata(),
    "imshow": lambda ax, x: numpy.asarray(ax.imshow(x.reshape(1, 5)).get_array()),
    "hist": lambda ax, x: ax.hist(x, bins=3)[:2],
    "hist with edges": lambda ax, x: ax.hist(x, bins=x[::2])[0],
    "bar": lambda ax, x: numpy.array([bar.get_height() for bar in ax.bar(x, x * 2)]),
    "scatter": lambda ax, x: numpy.asarray(ax.scatter(x, x, c=x, s=x * 9).get_offsets()),
    "errorbar": lambda ax, x: ax.errorbar(x, x, yerr=x / 10)[0].get_ydata().astype("float64"),
    "fill_between": lambda ax, x: ax.fill_between(x, x, x + 1).get_paths()[0].vertices,
    "pcolormesh": lambda ax, x: numpy.asarray(ax.pcolormesh(x.reshape(1, 5)).get_array()),
    "limits": lambda ax, x: numpy.array(ax.set_xlim(x[0], x[-1])),
    "axhline": lambda ax, x: numpy.array(ax.axhline(x.mean()).get_ydata(), "float64"),
    "boxplot": lambda ax, x: ax.boxplot(x)["medians"][0].get_ydata(),
    "quiver": lambda ax, x: ax.quiver(x, x, x, x).get_offsets().data,
}


@pytest.mark.parametrize("name", DRAWN)
def test_matplotlib(name: str) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = []
    for x in (np.array(ROW), ROW):
        figure, axes = pyplot.subplots()
        found.append(DRAWN[name](axes, x))
        figure.savefig(io.BytesIO())
        pyplot.close(figure)
    close(*found)


def test_matplotlib_draws_what_was_recorded() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    x = np.arange(-2.0, 2.0, 0.5)
    x.attach_grad()
    with autograd.record():
        y = x * x
    y.backward()
    figure, axes = pyplot.subplots()
    lines = axes.plot(x, y, x, x.grad)
    close(lines[0].get_ydata(), x.asnumpy() ** 2)
    close(lines[1].get_ydata(), 2 * x.asnumpy())
    pyplot.close(figure)
