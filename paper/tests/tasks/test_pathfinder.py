"""Pathfinder: the pictures we draw, and LRA's."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from ssmprune.errors import InputError
from ssmprune.tasks import get
from ssmprune_paper.tasks.contours import draw, paint
from ssmprune_paper.tasks.lra_pictures import read_pictures
from tiny_data import write_lra_pathfinder

LOOKS = {name: get(name).look for name in ("pathfinder", "pathx")}
LOOKS["easy"] = get("pathfinder").replace(dashes=6, distractors=1).look


@pytest.fixture(scope="module", params=LOOKS)
def drawn(request):
    look = LOOKS[request.param]
    return look, draw(look, 400 if look.size == 32 else 100, np.random.default_rng(3))


def widened(picture, radius):
    """All pixels within `radius` of a painted one."""
    reach = int(radius)
    around = np.pad(picture, reach)
    result = np.zeros_like(picture)
    for dy in range(-reach, reach + 1):
        for dx in range(-reach, reach + 1):
            if dy * dy + dx * dx <= radius * radius:
                result |= around[reach + dy :, reach + dx :][: len(picture), : len(picture)]
    return result


def flooded(picture, start):
    """The pixels that can be reached from `start` over painted ones, corners included."""
    reached = np.zeros_like(picture)
    todo = [tuple(start)]
    while todo:
        y, x = todo.pop()
        if 0 <= y < len(picture) and 0 <= x < len(picture) and picture[y, x] and not reached[y, x]:
            reached[y, x] = True
            todo += [(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
    return reached


def test_widening_by_the_margin_joins_the_discs_exactly_when_the_label_is_one(drawn):
    _, pictures = drawn
    joined = []
    for canvas, discs, margin in zip(
        pictures.canvas, np.rint(pictures.discs).astype(int), pictures.margin, strict=True
    ):
        one, other = discs
        joined.append(flooded(widened(canvas > 127, margin), one)[tuple(other)])
    assert joined == pictures.labels.astype(bool).tolist()
    assert 0.3 < np.mean(joined) < 0.7


def test_without_widening_nothing_is_joined(drawn):
    _, pictures = drawn
    for canvas, discs in zip(pictures.canvas[:10], np.rint(pictures.discs).astype(int), strict=False):
        assert not flooded(canvas > 127, discs[0])[tuple(discs[1])]


def test_pictures_hold_what_the_look_says(drawn):
    look, pictures = drawn
    assert pictures.images.shape[1:] == (look.size, look.size)
    dashes = 2 * look.dashes + look.distractors * look.few
    ink = look.dash * look.thickness - (1 - np.pi / 4) * look.thickness**2  # of a dash with round ends
    expected = dashes * ink + 2 * np.pi * look.radius**2
    assert (pictures.images / 255).sum((1, 2)).mean() == pytest.approx(expected, rel=0.1)
    centres = np.rint((pictures.discs - 0.5) / 2).astype(int)
    for image, (one, other) in zip(pictures.images, centres, strict=True):
        assert image[tuple(one)] == image[tuple(other)] == 255
    distance = np.sqrt(((pictures.discs[:, 0] - pictures.discs[:, 1]) ** 2).sum(1)) / 2
    assert distance.min() > 2 * look.radius + min(look.margins), "two discs never melt into one"


@pytest.mark.slow
def test_the_distance_of_the_discs_does_not_tell_the_label():
    pictures = draw(LOOKS["pathfinder"], 1500, np.random.default_rng(4))
    distance = np.sqrt(((pictures.discs[:, 0] - pictures.discs[:, 1]) ** 2).sum(1))
    correct = (distance > np.median(distance)) == pictures.labels
    assert 0.4 < correct.mean() < 0.6


def test_paint_is_the_distance_to_the_line():
    rng = np.random.default_rng(0)
    start, end = rng.uniform(15, 25, (2, 5, 2))
    radius = rng.uniform(0.5, 4, 5)
    canvas = np.zeros((5, 40, 40), np.uint8)
    paint(canvas, start, end, radius)
    for picture, a, b, r in zip(canvas, start, end, radius, strict=True):
        for pixel in np.ndindex(40, 40):
            t = min(1, max(0, (pixel - a) @ (b - a) / ((b - a) @ (b - a))))
            ink = min(1, max(0, r + 0.5 - np.linalg.norm(pixel - a - t * (b - a))))
            assert picture[pixel] == pytest.approx(255 * ink, abs=1.01)


@pytest.mark.parametrize(("name", "pin"), [("pathfinder", "3977bcc82ee81767"), ("pathx", "e8aa5cbc488afc44")])
def test_pinned_pictures(name, pin, tmp_path):
    get(name).replace(examples=10).load("train", tmp_path)
    [file] = (tmp_path / "cache" / name).iterdir()
    assert hashlib.sha256(file.read_bytes()).hexdigest()[:16] == pin


def test_splits_and_values(tmp_path):
    task = get("pathfinder").replace(examples=20)
    splits = [task.load(part, tmp_path) for part in ("train", "val", "test")]
    assert [len(split) for split in splits] == [16, 2, 2]
    everything = np.concatenate([split.batch(range(len(split))).x for split in splits])
    assert len(np.unique(everything.reshape(20, -1), axis=0)) == 20
    assert (everything.min(), everything.max()) == (-1, 1)
    other = task.replace(seed=1).load("test", tmp_path)
    assert not np.array_equal(other.batch([0]).x, splits[2].batch([0]).x)


def test_lra_s_folder_is_read(tmp_path):
    folder = tmp_path / "pathfinder32" / "curv_contour_length_14"
    images = write_lra_pathfinder(folder)
    splits = [get("pathfinder").load(part, tmp_path) for part in ("train", "val", "test")]
    assert [len(split) for split in splits] == [16, 2, 2]
    assert splits[0].labels.tolist() == [0, 1] * 8
    x = splits[0].batch([9]).x  # the second picture of the second list
    assert x[0, :, 0] == pytest.approx((images[11].ravel() / 255 - 0.5) / 0.5, abs=1e-6)
    assert np.array_equal(
        splits[2].batch([1]).x[0, :, 0], get("pathfinder").load("test", tmp_path).batch([1]).x[0, :, 0]
    )


def test_lra_s_easier_pictures_have_folders_of_their_own(tmp_path):
    write_lra_pathfinder(tmp_path / "pathfinder32" / "curv_baseline")
    task = get("pathfinder").replace(examples=10, dashes=6)
    assert len(task.load("train", tmp_path)) == 8
    assert {file.name for file in (tmp_path / "cache" / "pathfinder").iterdir()} == {"lra-6-0.records"}
    task.replace(distractors=4).load("train", tmp_path)
    assert "drawn1-6-4-0-0-10.records" in {file.name for file in (tmp_path / "cache" / "pathfinder").iterdir()}


@pytest.mark.parametrize(("name", "change"), [("pathfinder", {"dashes": 15}), ("pathx", {"distractors": 9})])
def test_harder_pictures_are_refused(name, change):
    with pytest.raises(InputError, match=rf"of {name} have room for \d+ {next(iter(change))}; got"):
        get(name).replace(**change)


def test_an_empty_picture_is_left_out(tmp_path):
    write_lra_pathfinder(tmp_path, listings=1)
    (tmp_path / "imgs" / "0" / "sample_3.png").write_bytes(b"")
    assert read_pictures(tmp_path / "metadata" / "0.npy", 32)[:, 0].tolist() == [0, 1, 0, 0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("imgs/0 sample_0.png 0", "expected folder, file"),
        ("imgs/0 sample_0.png 0 7", "label 0 or 1"),
        ("imgs/0 sample_77.png 0 1", "Cannot read"),
        ("../../../etc passwd 0 1", "outside"),
        ("/etc passwd 0 1", "outside"),
        ("metadata 0.npy 0 1", "not a PNG"),
        ("", "expected folder"),
    ],
)
def test_bad_metadata_is_refused(tmp_path, line, message):
    write_lra_pathfinder(tmp_path, listings=1, count=2)
    (tmp_path / "metadata" / "0.npy").write_text(line + "\n")
    with pytest.raises(InputError, match=message):
        read_pictures(tmp_path / "metadata" / "0.npy", 32)


def test_bad_pictures_and_pickles_are_refused(tmp_path):
    write_lra_pathfinder(tmp_path, listings=1, count=2)
    listing = tmp_path / "metadata" / "0.npy"
    with pytest.raises(InputError, match="64 x 64"):
        read_pictures(listing, 64)
    path = tmp_path / "imgs" / "0" / "sample_0.png"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="cannot be decoded"):
        read_pictures(listing, 32)
    np.save(listing, np.array([["imgs/0", 1]], object), allow_pickle=True)
    with pytest.raises(InputError, match="line 1"):
        read_pictures(listing, 32)


def test_a_folder_without_lists(tmp_path):
    (tmp_path / "pathfinder32" / "curv_contour_length_14" / "metadata").mkdir(parents=True)
    with pytest.raises(InputError, match=r"0.npy, 1.npy"):
        get("pathfinder").load("train", tmp_path)
