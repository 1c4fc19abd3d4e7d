"""What holds for every task that is found, whatever it is."""

from __future__ import annotations

import dataclasses

import numpy as np
import pooch
import pytest

from ssmprune.errors import InputError
from ssmprune.tasks import Task, found, get
from tiny_data import write_all

PAPER = {"smnist", "psmnist", "scifar", "listops", "text", "retrieval", "image", "pathfinder", "pathx", "speech"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    def offline(self, url, output_file, pooch, check_only=False):
        raise OSError("offline")

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", offline)


def small(name: str) -> Task:
    task = get(name)
    return task.replace(examples=30) if "examples" in task.parameters() else task


def test_the_paper_s_ten_tasks_are_there():
    assert set(found()) >= PAPER


@pytest.mark.parametrize("name", found())
def test_batches_have_the_shapes_the_task_announces(name, root):
    task = small(name)
    for part in ("train", "val", "test"):
        split = task.load(part, root)
        rows = [len(split) - 1, 0]
        batch = split.batch(rows)
        documents = 4 if task.retrieval else 2
        assert batch.y.tolist() == split.labels[rows].tolist()
        if task.tokens:
            assert batch.x.shape == (documents, split.length)
            assert batch.x.dtype == np.int64
            assert 0 <= batch.x.min() <= batch.x.max() < split.inputs
            assert batch.lengths is not None
            assert batch.lengths.shape == (documents,)
            assert ((batch.x != 0).sum(1) == batch.lengths).all(), "padding is token 0, and only padding is"
        else:
            assert batch.x.shape == (documents, split.length, split.inputs)
            assert batch.x.dtype == np.float32
            assert np.isfinite(batch.x).all()
            assert batch.lengths is None


@pytest.mark.parametrize("name", found())
def test_loading_twice_gives_the_same(name, root):
    first, second = (small(name).load("val", root).batch([0, 1]) for _ in range(2))
    assert np.array_equal(first.x, second.x)
    assert np.array_equal(first.y, second.y)


@pytest.mark.parametrize("name", found())
def test_an_example_does_not_depend_on_its_batch(name, root):
    split = small(name).load("train", root)
    rows = np.arange(4)
    together, alone = split.batch(rows), split.batch(rows[2:3])
    each = together.x.reshape(2, 4, *together.x.shape[1:])[:, 2] if get(name).retrieval else together.x[2:3]
    assert np.array_equal(each, alone.x)


@pytest.mark.parametrize("name", found())
def test_a_task_is_frozen(name):
    with pytest.raises(dataclasses.FrozenInstanceError):
        get(name).length = 3


@pytest.mark.parametrize("name", found())
def test_an_empty_folder_gives_a_message_or_generated_data(name, tmp_path):
    if "seed" in get(name).parameters():
        assert len(small(name).load("train", tmp_path))
    else:
        with pytest.raises(InputError, match=r"https://.*(MB|GB)"):
            get(name).load("train", tmp_path)


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(InputError, match="smnist"):
        get("mnist")
    with pytest.raises(InputError, match="train, val, test"):
        get("smnist").load("validation")
    with pytest.raises(InputError, match="its parameters: none"):
        get("smnist").replace(length=100)
    with pytest.raises(InputError, match="its parameters: length"):
        get("text").replace(lenght=100)


@pytest.mark.parametrize("value", [0, -5, 1.5, "12", True, None])
def test_a_parameter_is_a_positive_whole_number(value):
    with pytest.raises(InputError, match=repr(value)):
        get("text").replace(length=value)


def test_subsets_and_shorter_variants(root):
    split = get("text").replace(length=10).load("train", root)
    assert split.length == 10
    assert split.batch([0]).x.shape == (1, 10)
    chosen = split.subset([5, 3])
    assert len(chosen) == 2
    assert np.array_equal(chosen.batch([1, 0]).x, split.batch([3, 5]).x)


def test_held_out_tenth_completes_the_training_set(root):
    task = get("smnist")
    parts = [task.load(part, root) for part in ("train", "val")]
    assert [len(part) for part in parts] == [36, 4]
    seen = np.concatenate([part.batch(range(len(part))).x for part in parts]).reshape(40, -1)
    assert len(np.unique(seen, axis=0)) == 40
