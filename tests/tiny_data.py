"""Small data sets in the publishers' true formats, written into one data folder."""

from __future__ import annotations

import gzip
import struct
import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

WORDS = ("bed", "cat", "yes")
REVIEWS = {"neg": "What a waste, really: {}. So slow & dull!", "pos": "I loved it. {} times I laughed — go."}


def write_all(root: Path) -> Path:
    for write in (write_mnist, write_cifar, write_imdb, write_speech, write_pairs):
        write(root)
    return root


def idx(array: NDArray[np.uint8]) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_mnist(root: Path, count: int = 40, tests: int | None = None) -> None:
    rng = np.random.default_rng(1)
    (root / "mnist").mkdir(parents=True)
    for part, examples in (("train", count), ("t10k", count if tests is None else tests)):
        images = rng.integers(0, 256, (examples, 28, 28), np.uint8)
        (root / "mnist" / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        labels = (np.arange(examples) % 10).astype(np.uint8)
        (root / "mnist" / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))


def write_cifar(root: Path, count: int = 20) -> None:
    rng = np.random.default_rng(2)
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name in ("data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"):
        records = rng.integers(0, 256, (count, 3073), np.uint8)
        records[:, 0] = np.arange(count) % 10
        (folder / name).write_bytes(records.tobytes())


def write_imdb(root: Path, count: int = 12) -> None:
    for part in ("train", "test"):
        for mood, text in REVIEWS.items():
            folder = root / "aclImdb" / part / mood
            folder.mkdir(parents=True)
            for i in range(count):
                (folder / f"{i}_{i % 10}.txt").write_text(text.format(i), encoding="utf-8")


def write_wav(path: Path, samples: NDArray[np.int16], rate: int = 8000, channels: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())


def write_speech(root: Path, clips: int = 6) -> None:
    rng = np.random.default_rng(3)
    folder = root / "speech_commands"
    for word in WORDS:
        for i in range(clips):
            write_wav(folder / word / f"{i}.wav", rng.integers(-32768, 32768, 8000, np.int16))
    write_wav(folder / "_background_noise_" / "hum.wav", np.zeros(20000, np.int16))
    (folder / "validation_list.txt").write_text("".join(f"{word}/0.wav\n" for word in WORDS))
    (folder / "testing_list.txt").write_text("".join(f"{word}/1.wav\nnot_here/1.wav\n" for word in WORDS))


def write_pairs(root: Path, count: int = 8) -> None:
    (root / "aan").mkdir(parents=True)
    for part in ("train", "eval", "test"):
        rows = (f"{k % 2}.0\tA{k}\tB{k}\tfirst {part} {k}\tsecond é {k}\n" for k in range(count))
        (root / "aan" / f"new_aan_pairs.{part}.tsv").write_text("".join(rows), encoding="utf-8")


def write_lra_pathfinder(folder: Path, size: int = 32, listings: int = 2, count: int = 10) -> NDArray[np.uint8]:
    """Pictures as LRA ships them; returns what was written (listings * count, size, size)."""
    rng = np.random.default_rng(4)
    images = rng.integers(0, 256, (listings, count, size, size), np.uint8)
    (folder / "metadata").mkdir(parents=True)
    for number, batch in enumerate(images):
        (folder / "imgs" / str(number)).mkdir(parents=True)
        for i, image in enumerate(batch):
            Image.fromarray(image).save(folder / "imgs" / str(number) / f"sample_{i}.png")
        lines = (f"imgs/{number} sample_{i}.png {i} {i % 2} 1.0 14 4 2 0.5 1 1\n" for i in range(count))
        (folder / "metadata" / f"{number}.npy").write_text("".join(lines))
    return images.reshape(-1, size, size)


KNOWN = {
    "[MED 0 [MIN [MED [MED 8 9 ] 8 ] 6 ] [MIN 1 8 6 4 5 4 3 ] 4 2 8 4 6 3 3 ]": 3,
    "[MAX 4 [MIN 4 4 6 9 0 0 ] 5 [MED 4 3 [MAX 7 7 3 6 ] ] 2 1 0 7 2 2 ]": 7,
    "[SM 7 9 [MAX 1 6 ] 4 1 5 8 [MED 7 6 [MAX 3 1 4 5 8 6 ] 7 2 ] 4 6 ]": 7,
}


def write_tsv(folder, lines):
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "val", "test"):
        (folder / f"basic_{part}.tsv").write_text("\n".join(["Source\tTarget", *lines]) + "\n")
