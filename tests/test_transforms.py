"""Transforms and functions of pictures agree with MXNet 1.9.1, on pictures and on batches."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy
import pytest

import gemel
from gemel import gluon, image, nd, np, npx
from gemel.errors import DataFileError, GemelError, MissingFileError, ShapeError
from gemel.gluon import data as gdata
from gemel.gluon.data.vision import transforms

#: Written by mxnet_data/make.py.
RESULTS: dict[str, Any] = dict(numpy.load(Path(__file__).parent / "mxnet_data" / "results.npz"))
PHOTO = np.array(RESULTS["photo"], dtype="uint8")
FLOATS, BATCH = np.array(RESULTS["floats"]), np.array(RESULTS["batch"])
SCOPE = {name: getattr(image, name) for name in image.__all__ if name[0].islower()}
SCOPE |= {name: getattr(transforms, name) for name in transforms.__all__}
SCOPE |= {"photo": PHOTO, "wide": PHOTO.astype("float32")}
SCOPE |= {"MEAN": (1.0, 2.0, 3.0), "STD": (2.0, 3.0, 4.0)}


def found(name: str) -> Any:
    """gemel's result for the case of this name."""
    function, *numbers = name.split(" ")
    if function == "imresize":
        wide, high, interp = map(int, numbers)
        return image.imresize(PHOTO, wide, high, interp)
    if name == "imrotate batch":
        return image.imrotate(BATCH, np.array([10.0, 77.0]), True, False)
    if function == "imrotate":
        angle, zoom_in, zoom_out = map(int, numbers)
        return image.imrotate(FLOATS, angle, bool(zoom_in), bool(zoom_out))
    value = eval(name, SCOPE)
    return value(FLOATS if "Normalize" in name else PHOTO) if callable(value) else value


@pytest.mark.parametrize("name", sorted(set(RESULTS) - {"photo", "floats", "batch"}))
def test_what_mxnet_gives(name: str) -> None:
    value, expected = found(name), RESULTS[name]
    assert value.shape == expected.shape and str(value.dtype) == expected.dtype
    if expected.dtype == "uint8":
        # OpenCV interpolates with a precision of 11 bits.
        apart = abs(value.asnumpy().astype(int) - expected)
        assert apart.max() <= 1 and (apart > 0).mean() < 0.15
    else:
        numpy.testing.assert_allclose(value.asnumpy(), expected, atol=2e-6, rtol=1e-6)


PICTURES = np.array(numpy.random.RandomState(3).randint(0, 256, (6, 12, 10, 3)), dtype="uint8")
TENSORS = npx.image.to_tensor(PICTURES)

FIXED = {
    "Cast": (lambda: transforms.Cast("float16"), PICTURES),
    "ToTensor": (lambda: transforms.ToTensor(), PICTURES),
    "Normalize": (lambda: transforms.Normalize((0.1, 0.2, 0.3), 0.5), TENSORS),
    "Resize": (lambda: transforms.Resize(7), PICTURES),
    "Resize nearest": (lambda: transforms.Resize((5, 20), interpolation=0), PICTURES),
    "Resize cubic": (lambda: transforms.Resize((5, 20), interpolation=2), PICTURES),
    "Resize short": (lambda: transforms.Resize(6, keep_ratio=True), PICTURES),
    "CenterCrop": (lambda: transforms.CenterCrop(8), PICTURES),
    "CenterCrop larger": (lambda: transforms.CenterCrop((20, 4)), PICTURES),
    "CropResize": (lambda: transforms.CropResize(1, 2, 6, 5, (4, 4)), PICTURES),
    "Rotate": (lambda: transforms.Rotate(33, zoom_out=True), TENSORS),
}
CHANCE = {
    "RandomCrop": lambda: transforms.RandomCrop(7),
    "RandomCrop padded": lambda: transforms.RandomCrop((10, 12), pad=2, pad_value=9),
    "RandomResizedCrop": lambda: transforms.RandomResizedCrop((6, 5)),
    "RandomFlipLeftRight": lambda: transforms.RandomFlipLeftRight(),
    "RandomFlipTopBottom": lambda: transforms.RandomFlipTopBottom(),
    "RandomBrightness": lambda: transforms.RandomBrightness(0.5),
    "RandomContrast": lambda: transforms.RandomContrast(0.5),
    "RandomSaturation": lambda: transforms.RandomSaturation(0.5),
    "RandomHue": lambda: transforms.RandomHue(0.5),
    "RandomColorJitter": lambda: transforms.RandomColorJitter(0.5, 0.5, 0.5, 0.5),
    "RandomLighting": lambda: transforms.RandomLighting(0.5),
    "RandomGray": lambda: transforms.RandomGray(0.5),
    "RandomRotation": lambda: transforms.RandomRotation((-40, 40), rotate_with_proba=0.7),
    "HybridRandomApply": lambda: transforms.HybridRandomApply(
        transforms.RandomBrightness(0.9), 0.6
    ),
}


@pytest.mark.parametrize("name", FIXED)
def test_each_image_of_a_batch_is_transformed_as_if_alone(name: str) -> None:
    make, pictures = FIXED[name]
    transform = make()
    batch = transform(pictures)
    for number in range(len(pictures)):
        alone = transform(pictures[number])
        assert alone.dtype == batch.dtype
        numpy.testing.assert_allclose(batch[number].asnumpy(), alone.asnumpy(), atol=1e-6)
    transform.hybridize()
    for part in (pictures, pictures[:2], pictures[3]):
        expected = make()(part).asnumpy().astype("float64")
        numpy.testing.assert_allclose(
            transform(part).asnumpy().astype("float64"), expected, atol=1.01 if "R" in name else 0
        )


@pytest.mark.parametrize("name", [name for name in (*FIXED, *CHANCE) if name != "Cast"])
def test_pictures_may_be_numpy_s(name: str) -> None:
    make, pictures = FIXED.get(name) or (
        CHANCE[name],
        TENSORS if name == "RandomRotation" else PICTURES,
    )
    found = []
    for given in (pictures, pictures.asnumpy()):
        np.random.seed(5)
        found.append(make()(given))
    assert isinstance(found[1], np.ndarray) and found[1].dtype == found[0].dtype
    assert found[1].tolist() == found[0].tolist()


@pytest.mark.parametrize("name", CHANCE)
def test_chance_is_drawn_for_each_of_a_batch(name: str) -> None:
    transform = CHANCE[name]()
    kind = TENSORS if "Rotation" in name else PICTURES
    same = np.stack([kind[0]] * 8)
    np.random.seed(4)
    batch = transform(same)
    assert batch.shape[0] == 8 and transform(same[0]).shape == batch.shape[1:]
    assert len({batch[n].asnumpy().tobytes() for n in range(8)}) > 1
    np.random.seed(4)
    assert transform(same).tolist() == batch.tolist()
    transform.hybridize()
    np.random.seed(4)
    numpy.testing.assert_allclose(
        transform(same).asnumpy().astype("float64"), batch.asnumpy().astype("float64"), atol=1.01
    )
    assert transform(same[:3]).shape == (3, *batch.shape[1:])


@pytest.mark.parametrize("change", ["Brightness", "Contrast", "Saturation", "Hue"])
def test_colours_are_of_one_or_three_channels(change: str) -> None:
    transform = getattr(transforms, f"Random{change}")(0.5)
    assert transform(PICTURES[0][..., :1]).shape[-1] == 1
    with pytest.raises(ShapeError, match="must have 1 or 3 channels along the last axis"):
        transform(TENSORS[0])


def test_sequences() -> None:
    parts = [transforms.Resize(8), transforms.RandomCrop(6), transforms.ToTensor()]
    composed = transforms.Compose([*parts, gluon.nn.Lambda(lambda x: x * 2), transforms.Cast()])
    assert composed(PICTURES[0]).shape == (3, 6, 6) and len(composed) == 3
    assert not gdata.dataset.takes_batches(composed)  # a lambda may not accept batches
    hybrid = transforms.HybridCompose([transforms.Resize(8), transforms.ToTensor()])
    assert gdata.dataset.takes_batches(hybrid)
    for picture in (PICTURES[0], PICTURES[0][:9, :7], PICTURES[:2, 1:]):
        plain = npx.image.to_tensor(npx.image.resize(picture, 8))
        numpy.testing.assert_allclose(hybrid(picture).asnumpy(), plain.asnumpy(), atol=1 / 254)
    with pytest.raises(GemelError, match="plain Block"):
        transforms.HybridCompose([gluon.nn.Lambda(lambda x: x)])
    named = transforms.Compose([*parts, transforms.Cast()])
    picture, label = named(PICTURES[0], "label")
    assert picture.shape == (3, 6, 6) and label == "label"


def test_random_apply() -> None:
    apply = transforms.RandomApply([transforms.RandomBrightness(0.9), transforms.Cast()], 0.3)
    np.random.seed(2)
    kinds = [str(apply(PICTURES[0]).dtype) for _ in range(300)]
    assert 60 < kinds.count("float32") < 120
    assert apply(PICTURES[0], "label")[1] == "label"
    with pytest.raises(ShapeError, match="must have the same shape and dtype"):
        transforms.HybridRandomApply(transforms.ToTensor())(PICTURES[0])


def test_a_loader_transforms_whole_batches() -> None:
    calls = []

    class Counted(transforms.ToTensor):
        def forward(self, x: Any) -> Any:
            calls.append(len(x.shape))
            return super().forward(x)

    labels = np.arange(6)
    dataset = gdata.ArrayDataset(PICTURES, labels)
    for settings in ({}, {"num_workers": 2}):
        calls.clear()
        loader = gdata.DataLoader(dataset.transform_first(Counted()), 4, **settings)
        batches = list(loader)
        assert calls == [4], "traced once"
        for x, y in batches:
            assert x.tolist() == npx.image.to_tensor(PICTURES[y]).tolist()
    # Combined with a filter, in the order of a sampler.
    chosen = dataset.filter(lambda pair: int(pair[1]) % 2).sample([2, 0, 1])
    loader = gdata.DataLoader(chosen.transform_first(transforms.Resize(5)), 2)
    assert [y.tolist() for _, y in loader] == [[5, 1], [3]]
    expected = npx.image.resize(PICTURES[np.array([5, 1])], 5)
    assert next(iter(loader))[0].tolist() == expected.tolist()
    alone = gdata.ArrayDataset(PICTURES).transform(transforms.ToTensor())
    assert next(iter(gdata.DataLoader(alone, 3))).shape == (3, 3, 12, 10)
    # Rows are not pictures: what is an error for a single one is an error for batches, too.
    rows = gdata.ArrayDataset(np.zeros((5, 6, 3))).transform(transforms.ToTensor())
    for settings in ({}, {"num_workers": 1}):
        with pytest.raises(ShapeError, match="to_tensor"):
            next(iter(gdata.DataLoader(rows, 2, **settings)))
    cast = gdata.ArrayDataset(np.zeros((5, 6)), labels[:5]).transform_first(transforms.Cast("int8"))
    x, y = next(iter(gdata.DataLoader(cast, 2)))
    assert (x.shape, str(x.dtype), y.tolist()) == ((2, 6), "int8", [0, 1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: transforms.RandomRotation((3, 1)), "must be increasing"),
        (lambda: transforms.RandomGray()(np.zeros((3, 3, 1))), "3 channels"),
        (lambda: transforms.CenterCrop(5)(PICTURES[0, ..., 0]), r"crop: \[12, 10\] must be \(heig"),
        (lambda: image.random_size_crop(PICTURES[0, 0, 0], (5, 5), 0.1, (1, 2)), r"crop: \[3\] mu"),
        (lambda: image.CreateAugmenter((10, 10)), r"data_shape=\(10, 10\) must be \(C, H, W\)"),
        (lambda: image.CreateAugmenter(5), r"CreateAugmenter: data_shape=5 must be \(C, H, W\)"),
        (
            lambda: image.copyMakeBorder(PICTURES[0], 1, 1, 1, 1, values=(1, 2)),
            "copyMakeBorder: 2 values for 3 channels",
        ),
        (lambda: transforms.Rotate(3)(PICTURES[0]), "must be floating"),
        (lambda: transforms.Rotate(3, True, True)(TENSORS[0]), "either zoom_in"),
        (
            lambda: transforms.CropResize(5, 5, 20, 2)(PICTURES[0]),
            "not inside the image of 10 x 12",
        ),
        (lambda: transforms.Resize(5, interpolation=7)(PICTURES[0]), "interp"),
        (lambda: transforms.Normalize()(PICTURES[0]), "to_tensor first"),
    ],
)
def test_what_transforms_refuse(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# --- image ----------------------------------------------------------------------------------


def test_files(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    pixels = RESULTS["photo"]
    path = tmp_path / "a.png"
    path.write_bytes(image.encoded(pixels, 9, ".png"))
    assert image.imread(str(path)).tolist() == pixels.tolist()
    turned = image.imread(path, to_rgb=0)
    assert turned.tolist() == pixels[..., ::-1].tolist()
    grey = image.imread(path, flag=0)
    assert grey.shape == (13, 17, 1)
    assert abs(grey.asnumpy()[..., 0] - pixels @ (0.299, 0.587, 0.114)).max() <= 1
    smooth = numpy.stack([numpy.add.outer(numpy.arange(32), numpy.arange(24))] * 3, -1) * 4
    jpeg = image.encoded(smooth.astype("uint8"), 95)
    for data in (jpeg, bytearray(jpeg), numpy.frombuffer(jpeg, "uint8")):
        assert abs(image.imdecode(data).asnumpy().astype(int) - smooth).max() < 12
    out = np.zeros((13, 17, 3), dtype="uint8")
    assert image.imread(path, out=out) is out and out.tolist() == pixels.tolist()
    with pytest.raises(MissingFileError, match=r"none\.jpg does not exist"):
        image.imread(tmp_path / "none.jpg")
    with pytest.raises(DataFileError, match="imdecode: damaged or truncated at byte 300"):
        image.imdecode(jpeg[:300])
    with pytest.raises(ShapeError, match="must be uint8"):
        image.encoded(smooth)
    with pytest.raises(ValueError, match=r"known: \.jpg, \.png"):
        image.encoded(pixels, 1, ".gif")


def test_exif_orientation(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    path = tmp_path / "a.png"
    exif = pillow.Exif()
    exif[0x0112] = 6  # to be rotated to the right
    pillow.fromarray(RESULTS["photo"]).save(path, exif=exif)
    assert image.imread(path).tolist() == numpy.rot90(RESULTS["photo"], -1).tolist()


@pytest.mark.parametrize("form", ["PNG", "TIFF", "PPM"])
def test_pictures_of_16_bits_lose_their_lower_bits(form: str) -> None:
    pillow = pytest.importorskip("PIL.Image")
    pixels = numpy.arange(0, 60000, 5000).reshape(3, 4).astype("uint16")
    file = io.BytesIO()
    pillow.fromarray(pixels).save(file, form)
    data = file.getvalue()
    assert image.imdecode(data, flag=0)[..., 0].tolist() == (pixels >> 8).tolist()
    assert image.imdecode(data)[..., 2].tolist() == (pixels >> 8).tolist()
    assert image.decoded(data, -1).shape == (3, 4)


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_pictures_of_32_bits_have_no_white(dtype: str) -> None:
    pillow = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    pillow.fromarray(numpy.ones((2, 3), dtype)).save(file, "TIFF")
    with pytest.raises(DataFileError, match="imdecode: TIFF with pixels of 32 bits"):
        image.imdecode(file.getvalue())


AUGMENTERS = {
    "brightness": image.BrightnessJitterAug(0.4),
    "contrast": image.ContrastJitterAug(0.4),
    "saturation": image.SaturationJitterAug(0.4),
    "hue": image.HueJitterAug(0.3),
    "all": image.ColorJitterAug(0.3, 0.3, 0.3),
    "lighting": image.LightingAug(0.2, (55.46, 4.794, 1.148), numpy.eye(3)),
    "grey": image.RandomGrayAug(1.0),
}


@pytest.mark.parametrize("name", AUGMENTERS)
def test_augmenters_mix_colours_of_integers_like_floating_ones(name: str) -> None:
    found = []
    for dtype in ("uint8", "float32"):
        np.random.seed(3)
        found.append(AUGMENTERS[name](PHOTO.astype(dtype)))
    assert found[0].dtype == "float32"
    numpy.testing.assert_array_equal(*(each.asnumpy() for each in found))


def test_parts_at_random() -> None:
    np.random.seed(3)
    boxes = set()
    for _ in range(50):
        part, (x, y, w, h) = image.random_crop(PHOTO, (5, 4))
        assert part.tolist() == PHOTO[y : y + h, x : x + w].tolist() and (w, h) == (5, 4)
        boxes.add((x, y))
    assert len(boxes) > 30 and max(x for x, _ in boxes) == 12
    for _ in range(20):
        part, (x, y, w, h) = image.random_size_crop(PHOTO, (5, 4), (0.2, 0.5), (0.5, 2.0))
        assert part.shape == (4, 5, 3) and 0.15 < w * h / (13 * 17) < 0.6 and 0.4 < w / h < 2.5
    assert image.random_crop(PHOTO, (40, 5))[0].shape == (5, 40, 3)
    np.random.seed(3)
    assert image.random_crop(PHOTO, (5, 4))[1][:2] in boxes
    assert image.scale_down((640, 480), (720, 120)) == (640, 106)
    assert image.random_rotate(BATCH, (-9, 9)).shape == BATCH.shape


def test_augmenters() -> None:
    np.random.seed(1)
    everything = image.CreateAugmenter(
        (3, 8, 9), 11, True, True, True, True, True, 0.1, 0.1, 0.1, 0.1, 0.1, 0.5, 10
    )
    for _ in range(5):
        x = PHOTO
        for augmenter in everything:
            x = augmenter(x)
        assert x.shape == (8, 9, 3) and str(x.dtype) == "float32" and abs(x).max().item() < 9
    names = [type(each).__name__.removesuffix("Aug") for each in everything]
    assert names[:4] == ["Resize", "RandomSizedCrop", "HorizontalFlip", "Cast"]
    assert names[4:] == ["ColorJitter", "HueJitter", "Lighting", "RandomGray", "ColorNormalize"]
    assert json.loads(everything[0].dumps()) == ["resizeaug", {"size": 11, "interp": 10}]
    plain = image.CreateAugmenter((3, 8, 9), mean=numpy.array([1.0, 2, 3]))
    x = PHOTO
    for augmenter in plain:
        x = augmenter(x)
    expected = image.center_crop(PHOTO, (9, 8))[0].asnumpy() - [1.0, 2, 3]
    numpy.testing.assert_allclose(x.asnumpy(), expected, atol=1e-5)
    wide = PHOTO.astype("float32")
    for kind, same in ((image.HueJitterAug, 0.8), (image.ColorJitterAug, None)):
        still = kind(0.0) if same else kind(0, 0, 0)
        assert abs(still(wide) - wide).max().item() <= (same or 0)
    with pytest.raises(ValueError, match="rand_crop"):
        image.CreateAugmenter((3, 8, 9), rand_resize=True)


def test_programs_of_transforms_draw_the_same_in_threads() -> None:
    """A lambda is applied to one picture at a time, in worker processes or in threads."""
    flips = transforms.Compose([transforms.RandomFlipLeftRight(), transforms.RandomBrightness(0.5)])
    dataset = gdata.ArrayDataset(PICTURES).transform(lambda x: flips(x).astype("float32"))
    found = []
    for settings in ({}, {"thread_pool": True}, {"thread_pool": True}, {}):
        np.random.seed(8)
        loader = gdata.DataLoader(dataset, 2, num_workers=2, **settings)
        found.append([batch.asnumpy() for batch in loader])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            numpy.testing.assert_allclose(a, b, atol=1.01)  # rounded once instead of twice
    np.random.seed(8)
    once = flips(PICTURES[0]).tolist()
    np.random.seed(8)
    assert flips(PICTURES[0]).tolist() == once


def test_a_program_of_transforms_does_for_all_sizes() -> None:
    composed = transforms.HybridCompose(
        [transforms.RandomResizedCrop(8), transforms.RandomFlipLeftRight(), transforms.ToTensor()]
    )
    composed(PHOTO)
    program = composed._own.compiled
    traces = sum(map(len, program._programs.values()))
    for high, wide in ((20, 30), (31, 14), (9, 9)):
        assert composed(np.zeros((high, wide, 3), dtype="uint8")).shape == (3, 8, 8)
    assert composed._own.compiled is program
    assert sum(map(len, program._programs.values())) == traces == 1
    assert gemel.compile(composed)(PHOTO).shape == (3, 8, 8)


@pytest.mark.parametrize(
    "change",
    [
        image.HueJitterAug(0.3),
        image.ContrastJitterAug(0.3),
        image.RandomGrayAug(1.0),
        image.RandomGrayAug(0.0),
        image.ResizeAug(4),
        image.RandomCropAug((3, 3)),
        image.CenterCropAug((9, 9)),
        lambda x: image.imresize(x, 3, 4),
        lambda x: image.fixed_crop(x, 0, 0, 2, 2, (3, 3)),
        lambda x: image.center_crop(x, (9, 9))[0],
    ],
)
def test_changed_pictures_are_ndarrays_if_they_were(change: Any) -> None:
    pixels = numpy.random.default_rng(0).integers(0, 256, (6, 7, 3)).astype("uint8")
    for make, kind in (nd.array, nd.NDArray), (np.array, np.ndarray):
        assert type(change(make(pixels, dtype="uint8"))) is kind
    assert type(change(pixels)) is np.ndarray
