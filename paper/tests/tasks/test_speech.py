"""Speech Commands: wav files, lists, rates."""

from __future__ import annotations

import numpy as np
import pytest

from ssmprune.errors import InputError
from ssmprune.tasks import get
from ssmprune_paper.tasks.speech import read_wav
from tiny_data import WORDS, write_speech, write_wav


@pytest.fixture
def root(tmp_path):
    write_speech(tmp_path)
    return tmp_path


def test_words_found_are_the_classes_and_lists_the_splits(root):
    splits = {part: get("speech").load(part, root) for part in ("train", "val", "test")}
    assert {part: len(split) for part, split in splits.items()} == {"train": 12, "val": 3, "test": 3}
    for split in splits.values():
        assert (split.inputs, split.outputs, split.length) == (1, len(WORDS), 8000)
    assert splits["test"].labels.tolist() == [0, 1, 2]


def test_samples_become_floats_between_minus_one_and_one(root):
    samples, rate = read_wav(root / "speech_commands" / "cat" / "1.wav")
    assert rate == 8000
    assert samples.dtype == np.int16
    x = get("speech").load("test", root).batch([1]).x[0, :, 0]
    assert np.array_equal(x, samples.astype(np.float32) / 32768)


def test_half_rate_keeps_every_second_sample(root):
    full, half = (get("speech").replace(every=every).load("test", root) for every in (1, 2))
    assert half.length == 4000
    assert np.array_equal(half.batch([2]).x, full.batch([2]).x[:, ::2])


def test_short_clips_end_in_silence_and_long_ones_are_cut(root):
    write_wav(root / "speech_commands" / "bed" / "1.wav", np.full(100, 5, np.int16))
    write_wav(root / "speech_commands" / "cat" / "1.wav", np.full(9000, 7, np.int16))
    x = np.rint(get("speech").load("test", root).batch([0, 1]).x[:, :, 0] * 32768)
    assert x[0].tolist() == [5] * 100 + [0] * 7900
    assert x[1].tolist() == [7] * 8000


def test_bad_wavs_are_refused(root):
    path = root / "speech_commands" / "cat" / "3.wav"
    whole = path.read_bytes()
    riff = bytearray(whole)
    riff[40:44] = (2**31 - 1).to_bytes(4, "little")  # the data chunk claims two gigabytes
    cases = {
        "cut data": whole[:-101],
        "cut header": whole[:30],
        "empty": b"",
        "text": b"this is no sound at all" * 10,
        "huge": bytes(riff),
        "no data": whole[:36],
        "floats": whole[:20] + b"\x03\0" + whole[22:],
    }
    for content in cases.values():
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"3\.wav"):
            get("speech").load("train", root)


def test_other_rates_and_stereo_are_refused(root):
    path = root / "speech_commands" / "cat" / "3.wav"
    write_wav(path, np.zeros(16000, np.int16), rate=16000)
    with pytest.raises(InputError, match="16000 Hz, the others have 8000"):
        get("speech").load("train", root)
    write_wav(path, np.zeros(16000, np.int16), channels=2)
    with pytest.raises(InputError, match="2 channels"):
        get("speech").load("train", root)


def test_missing_lists_and_clips(root):
    for word in WORDS:
        (root / "speech_commands" / word / "1.wav").unlink()
    with pytest.raises(InputError, match=r"no WORD/\*.wav"):
        get("speech").load("test", root)
    (root / "speech_commands" / "testing_list.txt").unlink()
    with pytest.raises(InputError, match="testing_list"):
        get("speech").load("test", root)
