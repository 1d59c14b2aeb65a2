"""`npx.image` and resizing, against loops in NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy
import pytest
from slow import check, drawn

import gemel
from gemel import autograd, nd, np, npx
from gemel.errors import ArgumentError, ShapeError, UnknownNameError

Array = numpy.ndarray[Any, Any]
PHOTO = numpy.random.default_rng(1).integers(0, 256, (5, 7, 3)).astype("uint8")


def mixed(x: Array, size: int, axis: int, corners: bool = False) -> Array:
    """The image resized along an axis by linear interpolation."""
    old = x.shape[axis]
    x = numpy.moveaxis(x, axis, 0)
    rows = []
    for n in range(size):
        if corners:
            at = n * (old - 1) / (size - 1) if size > 1 else 0.0
        else:
            at = min(max((n + 0.5) * old / size - 0.5, 0), old - 1)
        low = min(int(at), old - 1)
        high = min(low + 1, old - 1)
        rows.append(x[low] * (1 - (at - low)) + x[high] * (at - low))
    return numpy.moveaxis(numpy.stack(rows), 0, axis)


def both(call: Any, *inputs: Array) -> list[Array]:
    arrays = [np.array(x, dtype=x.dtype.name) for x in inputs]
    return [call(*arrays).asnumpy(), gemel.compile(call)(*arrays).asnumpy()]


def test_tensors() -> None:
    for found in both(npx.image.to_tensor, PHOTO):
        assert found.dtype == "float32"
        numpy.testing.assert_allclose(found, PHOTO.transpose(2, 0, 1) / 255, rtol=1e-6)
    batch = npx.image.to_tensor(np.array(PHOTO[None].repeat(2, 0), dtype="uint8"))
    assert batch.shape == (2, 3, 5, 7)
    x = drawn(2, 3, 4, 5)
    mean, std = (0.1, 0.2, 0.3), (0.5, 1.0, 2.0)
    less, by = numpy.reshape(mean, (3, 1, 1)), numpy.reshape(std, (3, 1, 1))
    check(lambda v: npx.image.normalize(v, mean, std), lambda v: (v - less) / by, [x])
    with pytest.raises(ShapeError, match="to_tensor first"):
        npx.image.normalize(np.array(PHOTO, dtype="uint8"))


@pytest.mark.parametrize("size", [(7, 5), (3, 2), (14, 11), (1, 1), (8, 3)])
def test_resize(size: tuple[int, int]) -> None:
    expected = mixed(mixed(PHOTO.astype("float64"), size[1], 0), size[0], 1)
    for found in both(lambda x: npx.image.resize(x, size), PHOTO):
        assert found.dtype == "uint8" and found.shape == (size[1], size[0], 3)
        assert abs(found.astype("float64") - expected).max() <= 0.51
    x = drawn(2, 4, 5, 1)
    check(lambda v: npx.image.resize(v, size),
          lambda v: mixed(mixed(v, size[1], 1), size[0], 2), [x])  # fmt: skip
    rows = [int(i * 5 / size[1]) for i in range(size[1])]
    columns = [int(i * 7 / size[0]) for i in range(size[0])]
    for found in both(lambda x: npx.image.resize(x, size, interp=0), PHOTO):
        numpy.testing.assert_array_equal(found, PHOTO[rows][:, columns])


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "uint32", "int64"])
@pytest.mark.parametrize("interp", [1, 2, 3])
def test_resized_integers_keep_their_range(dtype: str, interp: int) -> None:
    least, most = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    x = numpy.array([least, most]).astype(dtype).reshape(1, 2, 1).repeat(4, 0).repeat(2, 1)
    wide = npx.image.resize(np.array(x, dtype=dtype), (8, 8), interp=interp)
    ends = wide.asnumpy()[:, [0, -1], 0].astype("float64")
    assert wide.dtype == dtype
    numpy.testing.assert_allclose(ends, [[least, most]] * 8, rtol=1e-6)


@pytest.mark.parametrize("interp", range(5))
@pytest.mark.parametrize("shape", [(0, 3, 1), (3, 0, 1)])
def test_there_are_no_pixels_to_resize(shape: tuple[int, ...], interp: int) -> None:
    with pytest.raises(ShapeError, match=r"resize: .* has no pixels"):
        npx.image.resize(np.zeros(shape), (2, 2), interp=interp)


def test_resize_by_one_number() -> None:
    x = np.array(PHOTO, dtype="uint8")
    assert npx.image.resize(x, 10).shape == (10, 10, 3)
    assert npx.image.resize(x, 10, keep_ratio=True).shape == (10, 14, 3)
    with pytest.raises(UnknownNameError, match="interp"):
        npx.image.resize(x, 10, interp=5)
    with pytest.raises(ShapeError, match="positive"):
        npx.image.resize(x, (0, 3))


@pytest.mark.parametrize("corners", [True, False])
def test_resizing_of_layers(corners: bool) -> None:
    x = drawn(2, 2, 3, 4)
    check(lambda v: npx.bilinear_resize_2d(v, 5, 7, align_corners=corners),
          lambda v: mixed(mixed(v, 5, 2, corners), 7, 3, corners), [x])  # fmt: skip
    check(lambda v: npx.bilinear_resize_2d(v, scale_height=2, scale_width=0.5),
          lambda v: mixed(mixed(v, 6, 2, True), 2, 3, True), [x])  # fmt: skip


def test_upsampling() -> None:
    x = drawn(2, 2, 3, 4)
    check(lambda v: npx.upsampling(v, 3), lambda v: v.repeat(3, 2).repeat(3, 3), [x])
    check(lambda v: npx.upsampling(v, 2, "bilinear"),
          lambda v: mixed(mixed(v, 6, 2), 8, 3), [x])  # fmt: skip
    with pytest.raises(UnknownNameError, match="sample_type"):
        npx.upsampling(np.array(x), 2, "cubic")
    for scale in (0, -1, 1.5, "a"):
        with pytest.raises(ArgumentError, match="upsampling: scale must be a whole number"):
            npx.upsampling(np.array(x), scale)


def test_parts_and_flips() -> None:
    x = np.array(PHOTO, dtype="uint8")
    assert npx.image.crop(x, 2, 1, 4, 3).tolist() == PHOTO[1:4, 2:6].tolist()
    assert npx.image.flip_left_right(x).tolist() == PHOTO[:, ::-1].tolist()
    assert npx.image.flip_top_bottom(np.expand_dims(x, 0))[0].tolist() == PHOTO[::-1].tolist()
    with pytest.raises(ShapeError, match="not inside the image of 7 x 5"):
        npx.image.crop(x, 2, 3, 4, 3)
    with pytest.raises(ShapeError, match="must be"):
        npx.image.flip_left_right(np.ones((2, 2)))


def test_random_flips() -> None:
    x = np.array(PHOTO, dtype="uint8")
    np.random.seed(2)
    for flip, turned in (("left_right", PHOTO[:, ::-1]), ("top_bottom", PHOTO[::-1])):
        call = getattr(npx.image, f"random_flip_{flip}")
        found = [call(x, p=0.3).tolist() for _ in range(200)]
        share = sum(each == turned.tolist() for each in found)
        assert share + sum(each == PHOTO.tolist() for each in found) == 200
        assert 35 < share < 85
        assert call(x, p=1.0).tolist() == turned.tolist()


def test_random_crops() -> None:
    x = np.array(PHOTO, dtype="uint8")
    np.random.seed(2)
    places = set()
    windows = {
        PHOTO[i : i + 3, j : j + 4].tobytes(): (i, j)
        for i, j in itertools.product(range(3), range(4))
    }
    for _ in range(150):
        found = npx.image.random_crop(x, (0, 1), (0, 1), 4, 3)
        places.add(windows[found.asnumpy().tobytes()])
    assert len(places) == 12
    assert npx.image.random_crop(x, (0, 0), (0, 0), 4, 3).tolist() == PHOTO[:3, :4].tolist()
    assert npx.image.random_crop(x, (0, 1), (0, 1), 9, 9).shape == (9, 9, 3)
    whole = npx.image.random_resized_crop(x, 7, 5, area=(1.0, 1.0), ratio=(1.4, 1.4))
    assert abs(whole.asnumpy().astype(int) - PHOTO).max() <= 1
    for _ in range(5):
        part = npx.image.random_resized_crop(x, 4, 6).asnumpy()
        assert part.shape == (6, 4, 3) and part.dtype == "uint8"
        assert part.min() >= PHOTO.min() and part.max() <= PHOTO.max()
    program = gemel.compile(lambda v: npx.image.random_resized_crop(v, 4, 6))
    np.random.seed(3)
    expected = npx.image.random_resized_crop(x, 4, 6).asnumpy()
    np.random.seed(3)
    assert abs(program(x).asnumpy().astype(int) - expected).max() <= 1
    with pytest.raises(ValueError, match="fractions"):
        npx.image.random_crop(x, (0, 2), (0, 1), 4, 3)


GREY = numpy.array([0.299, 0.587, 0.114])


def test_colours() -> None:
    x = PHOTO.astype("float32")
    image, factor = np.array(x), 1.3
    same = (factor, factor)
    level = (x @ GREY).mean()
    grey = (x @ GREY)[..., None]
    for name, expected in (
        ("brightness", x * factor),
        ("contrast", level * (1 - factor) + x * factor),
        ("saturation", grey * (1 - factor) + x * factor),
        ("hue", None),
    ):
        call = getattr(npx.image, f"random_{name}")
        found = call(image, *same).asnumpy()
        if expected is not None:
            numpy.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-2)
            whole = call(np.array(PHOTO, dtype="uint8"), *same)
            assert whole.dtype == "uint8"
            numpy.testing.assert_allclose(
                whole.asnumpy(), numpy.clip(numpy.rint(expected), 0, 255), atol=1
            )
        else:
            numpy.testing.assert_allclose(found @ GREY, x @ GREY, rtol=2e-2, atol=1)  # lightness
            assert abs(found - x).max() > 20
        still = call(image, 1.0, 1.0).asnumpy()
        numpy.testing.assert_allclose(still, x, rtol=1e-2, atol=0.7)
    with pytest.raises(ValueError, match="invalid"):
        npx.image.random_brightness(image, 2.0, 1.0)
    with pytest.raises(ShapeError, match="channels"):
        npx.image.random_contrast(np.ones((2, 2, 4)), 1.0, 1.0)


def test_jitter_and_lighting() -> None:
    x = np.array(PHOTO.astype("float32"))
    assert npx.image.random_color_jitter(x).tolist() == x.tolist()
    np.random.seed(2)
    changed = npx.image.random_color_jitter(x, 0.4, 0.4, 0.4, 0.1)
    assert changed.shape == x.shape and abs(changed - x).max().item() > 1
    assert npx.image.adjust_lighting(x, (0, 0, 0)).tolist() == x.tolist()
    lit = (npx.image.adjust_lighting(x, (1, 0, 0)) - x).asnumpy()
    numpy.testing.assert_allclose(
        lit[0, 0], 55.46 * numpy.array([-0.5675, -0.5808, -0.5836]), rtol=1e-3
    )
    assert npx.image.random_lighting(x, 0.0).tolist() == x.tolist()
    with pytest.raises(ShapeError, match="3 channels"):
        npx.image.adjust_lighting(np.ones((2, 2, 1)), (0, 0, 0))


# --- sampling between pixels ------------------------------------------------------------------

#: An image with more pixels than float16 counts, and more lines than bfloat16 does.
LARGE = numpy.random.default_rng(4).normal(size=(2, 1, 260, 270))
#: Places in it from -1 to 1, and shifts of a kernel, which all dtypes hold.
GRID = numpy.random.default_rng(5).integers(-128, 128, (2, 2, 7, 5)) / 128
SHIFTS = numpy.random.default_rng(6).integers(-8, 8, (2, 2, 260, 270)) / 4

SAMPLED: dict[str, Any] = {
    "BilinearSampler": lambda x, dtype: nd.BilinearSampler(
        x.as_nd_ndarray(), nd.array(GRID, dtype=dtype)
    ),
    "SpatialTransformer": lambda x, dtype: nd.SpatialTransformer(
        x.as_nd_ndarray(), nd.array([[0.5, 0.25, 0, -0.25, 0.5, 0.125]] * 2, dtype=dtype),
        target_shape=(50, 60), transform_type="affine", sampler_type="bilinear",
    ),
    "roi_align": lambda x, dtype: npx.roi_align(
        x, np.array([[0.0, 3, 4, 250, 257], [1, 101, 129, 259, 261]]), (3, 3), 1.0, 2
    ),
    "rotate": lambda x, dtype: npx.image.rotate(x, 30),
    "deformable_convolution": lambda x, dtype: npx.deformable_convolution(
        x, np.array(SHIFTS, dtype=dtype), np.ones((1, 1, 1, 1), dtype=dtype), no_bias=True,
        kernel=(1, 1), num_filter=1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", SAMPLED)
def test_places_in_large_images_are_not_rounded_to_two_bytes(name: str, dtype: str) -> None:
    x = np.array(LARGE, dtype=dtype)
    found = SAMPLED[name](x, dtype)
    wanted = SAMPLED[name](x.astype("float32"), "float32").asnumpy()
    assert found.dtype == np.dtype(dtype)
    error = abs(found.astype("float32").asnumpy() - wanted)
    assert error.max() <= 4 * {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]


def test_places_that_are_no_numbers() -> None:
    x, grid = nd.array(LARGE[:, :, :3, :3]), GRID.copy()
    grid[0, 1, 2, 3] = numpy.nan
    found = nd.BilinearSampler(x, nd.array(grid)).asnumpy()
    assert numpy.argwhere(numpy.isnan(found)).tolist() == [[0, 0, 2, 3]]
    shifts = numpy.zeros((2, 2, 3, 3))
    shifts[1, 0, 1, 2] = numpy.nan
    one = np.ones((1, 1, 1, 1))
    found = npx.deformable_convolution(
        np.array(LARGE[:, :, :3, :3]), np.array(shifts), one, no_bias=True, num_filter=1,
        kernel=(1, 1),
    ).asnumpy()  # fmt: skip
    assert numpy.argwhere(found == 0).tolist() == [[1, 0, 1, 2]]


@pytest.mark.parametrize("interp", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_lines_of_two_bytes_are_added_in_float32(dtype: str, interp: int) -> None:
    """The error is one rounding along each axis, however many lines are weighted, also that of the
    gradient."""
    x = np.array(numpy.random.default_rng(1).uniform(1, 2, (200, 3, 1)).astype("float32"))
    found = []
    for own in (x.astype(dtype), x.astype(dtype).astype("float64")):
        own.attach_grad()
        with autograd.record():
            y = npx.image.resize(own, (3, 2 if interp == 3 else 900), interp=interp)
        y.backward()
        found.append([each.astype("float64").asnumpy() for each in (y, own.grad)])
    unit = 2.0 ** {"float16": -11, "bfloat16": -8}[dtype]
    for own, wanted in zip(*found, strict=True):
        assert (abs(own - wanted) <= 2.1 * unit * abs(wanted) + 1e-5).all()
