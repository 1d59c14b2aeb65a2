"""Measures one library on one data set of `data`; prints one line of JSON.

`python -m benchmarks.data_worker LIBRARY PICTURES BATCH WORKERS EPOCHS`
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = str(Path(__file__).resolve().parent.parent)
# Prefer an installed gemel to the source tree, whose core may not be compiled.
sys.path[:] = [entry for entry in sys.path if entry not in ("", ROOT)] + [ROOT]

import numpy  # noqa: E402

FOLDER = Path(ROOT) / "build" / "benchmarks" / "data"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def arrays(name: str) -> tuple[Any, Any]:
    """The pictures and labels of a data set in memory."""
    return numpy.load(FOLDER / f"{name}.npy"), numpy.load(FOLDER / f"{name}_labels.npy")


def gemel_loader(name: str, batch: int, workers: int) -> Any:
    """gemel's loader, as users write it."""
    from gemel.gluon import data
    from gemel.gluon.data.vision import ImageFolderDataset, transforms

    mean, std = (0.5, 0.5) if name == "digits" else (MEAN, STD)
    last = [transforms.ToTensor(), transforms.Normalize(mean, std)]
    if name == "files":
        first = [transforms.Resize(256, keep_ratio=True), transforms.CenterCrop(224)]
        dataset: Any = ImageFolderDataset(FOLDER / "files")
    else:
        first = [transforms.RandomCrop(32, pad=4), transforms.RandomFlipLeftRight()]
        first = [] if name == "digits" else first
        dataset = data.ArrayDataset(*arrays(name))
    dataset = dataset.transform_first(transforms.Compose([*first, *last]))
    return data.DataLoader(dataset, batch, num_workers=workers)


def torch_loader(name: str, batch: int, workers: int) -> Any:
    """torch's loader, with the transforms as torchvision implements them."""
    import torch

    torch.set_num_threads(1 if workers else 2)
    mean, std = (torch.tensor(each).reshape(3, 1, 1) for each in (MEAN, STD))
    if name == "digits":
        mean = std = torch.tensor(0.5)

    def tensor(picture: Any) -> Any:
        return (picture.permute(2, 0, 1).to(torch.float32).div(255)).sub_(mean).div_(std)

    class Arrays(torch.utils.data.Dataset):
        def __init__(self) -> None:
            self.pictures, self.labels = map(torch.from_numpy, arrays(name))

        def __len__(self) -> int:
            return len(self.pictures)

        def __getitem__(self, number: int) -> Any:
            picture = self.pictures[number]
            if name == "colours":
                picture = torch.nn.functional.pad(picture, (0, 0, 4, 4, 4, 4))
                row, column = torch.randint(0, 9, (2,)).tolist()
                picture = picture[row : row + 32, column : column + 32]
                picture = picture.flip(1) if torch.rand(()) < 0.5 else picture
            return tensor(picture), self.labels[number]

    class Files(torch.utils.data.Dataset):
        def __init__(self) -> None:
            paths = sorted((FOLDER / "files").glob("*/*.jpg"))
            self.items = [(path, int(path.parent.name[-1])) for path in paths]

        def __len__(self) -> int:
            return len(self.items)

        def __getitem__(self, number: int) -> Any:
            from PIL import Image

            path, label = self.items[number]
            with open(path, "rb") as file:
                picture = Image.open(file).convert("RGB")
            short = min(picture.size)
            picture = picture.resize(
                tuple(256 * n // short for n in picture.size), Image.Resampling.BILINEAR
            )
            left, top = ((n - 224) // 2 for n in picture.size)
            picture = picture.crop((left, top, left + 224, top + 224))
            return tensor(torch.from_numpy(numpy.array(picture))), label

    return torch.utils.data.DataLoader(
        Files() if name == "files" else Arrays(),
        batch,
        num_workers=workers,
        persistent_workers=workers > 0,
    )


class Decoding:
    """Decodes the files and nothing else: the least that a loader must do."""

    def __iter__(self) -> Any:
        from PIL import Image

        for path in sorted((FOLDER / "files").glob("*/*.jpg")):
            pixels = numpy.asarray(Image.open(path).convert("RGB"))
            yield pixels[:1, :1].astype("float32"), numpy.zeros(1, "int32")


def epoch(loader: Any) -> tuple[float, list[float]]:
    """The seconds of an epoch, and means over its pictures and labels to compare libraries by."""
    begin = time.perf_counter()
    total, squares, labels, count = 0.0, 0.0, 0.0, 0
    for x, y in loader:
        total, squares = total + x.mean() * len(y), squares + (x * x).mean() * len(y)
        labels, count = labels + y.sum(), count + len(y)
    sums = [float(total) / count, float(squares) / count, float(labels) / count]
    return time.perf_counter() - begin, sums


def main() -> None:
    """Run epochs, the first of which does not count, and print their median time."""
    library, name = sys.argv[1:3]
    batch, workers, epochs = map(int, sys.argv[3:6])
    makers = {"gemel": gemel_loader, "torch": torch_loader}
    loader = makers[library](name, batch, workers) if library in makers else Decoding()
    epoch(loader)
    found = [epoch(loader) for _ in range(epochs)]
    seconds = median(each[0] for each in found)
    print(json.dumps({"seconds": seconds, "sums": found[-1][1]}))


if __name__ == "__main__":
    main()
