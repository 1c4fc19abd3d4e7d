"""Speech Commands: which word is it? One second of sound, sample by sample."""

from __future__ import annotations

import io
import wave
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ssmprune.errors import InputError
from ssmprune.files import read_whole
from ssmprune.tasks import Source, Split, Task, features

from .files import provide_folder, track

SOURCE = Source(
    "https://storage.googleapis.com/download.tensorflow.org/data/speech_commands_v0.02.tar.gz",
    "2.4 GB",
    "sha256:af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
)
FOLDERS = ("speech_commands", "speech_commands_v0.02", "SpeechCommands/speech_commands_v0.02")
LARGEST_LIST = LARGEST_WAV = 16 * 2**20
LISTS = {"val": "validation_list.txt", "test": "testing_list.txt"}


def read_wav(path: Path) -> tuple[NDArray[np.int16], int]:
    """Return samples and rate of a mono file of 16-bit integers."""
    content = read_whole(path, LARGEST_WAV)
    try:
        with wave.open(io.BytesIO(content)) as clip:
            channels, size, rate, count = clip.getparams()[:4]
            samples = clip.readframes(count)
    except (wave.Error, EOFError, RuntimeError) as error:  # the last one from seeking past the end
        raise InputError(f"{path} is not a wav file, or is cut short ({error or 'its end is missing'}).") from error
    if (channels, size) != (1, 2):
        raise InputError(f"{path} has {channels} channels of {8 * size} bits; expected 1 of 16.")
    if len(samples) < 2 * count:
        raise InputError(f"{path} is cut short: {2 * count} bytes of samples announced, {len(samples)} there.")
    return np.frombuffer(samples, "<i2").astype(np.int16, copy=False), rate


def read_clips(files: list[Path]) -> NDArray[np.int16]:
    """Return one-second clips (files, rate): shorter ones end in silence, longer ones are cut."""
    rate = read_wav(files[0])[1]
    if not 1000 <= rate <= 48000:
        raise InputError(f"{files[0]} has a rate of {rate} Hz; expected 1,000 to 48,000.")
    clips = np.zeros((len(files), rate), np.int16)
    for clip, file in zip(clips, track(files, len(files), "reading clips"), strict=True):
        samples, own_rate = read_wav(file)
        if own_rate != rate:
            raise InputError(f"{file} has a rate of {own_rate} Hz, the others have {rate}; resample it.")
        clip[: len(samples)] = samples[:rate]
    return clips


@dataclass(frozen=True)
class SpeechCommands(Task):
    """16,000 samples in [-1, 1]; the classes are the words found, sorted.

    The test at another rate: `TASK.replace(every=2)` keeps every second sample. A model trained on all of them
    is to double its step.
    """

    name = "speech"
    inputs = 1
    outputs = 35
    length = 16000
    every: int = 1

    def read(self, split: str, root: Path) -> Split:
        """Read WORD/*.wav; two published lists say what validates and what tests."""
        folder = provide_folder(SOURCE, root, FOLDERS, LISTS["val"])
        words = sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name[0] not in "_.")
        listed = {part: _lines(folder / name) for part, name in LISTS.items()}
        elsewhere = listed["val"] | listed["test"]
        chosen = [
            (path, label)
            for label, word in enumerate(words)
            for path in sorted((folder / word).glob("*.wav"))
            if (name := f"{word}/{path.name}") in listed.get(split, ()) or (split == "train" and name not in elsewhere)
        ]
        if not chosen:
            raise InputError(f"{folder} has no WORD/*.wav for this split.")
        clips = read_clips([path for path, _ in chosen])[:, :: self.every, None]
        return features(clips, np.array([label for _, label in chosen]), len(words), scale=1 / 32768)


def _lines(path: Path) -> set[str]:
    try:
        return set(read_whole(path, LARGEST_LIST).decode("utf-8").split())
    except UnicodeDecodeError as error:
        raise InputError(f"Cannot read the list {path} ({error}).") from error


TASK = SpeechCommands()
