"""Bad command lines: exit code 2, a message that names what is wrong, no traceback, nothing written."""

from __future__ import annotations

import builtins
import json
import os
import pickle
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes

import ssmprune as sp
from ssmprune.cli import run as run_line
from ssmprune.cli.verbs import VERBS
from ssmprune.files import load_tensors, save_tensors
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.planning.make import make_plan
from tiny_data import write_all, write_wav

S5 = {"family": "s5", "inputs": 3, "outputs": 2, "width": 6, "states": (8, 8)}
ANSWERS = "conj_sym=true clip_eigs=false discretization=zoh activation=gelu pooling=mean"
TREE = Path(__file__).parents[1] / "golden" / "s5_flax_checkpoint.msgpack"

CORPUS = Path(__file__).parents[1] / "corpus"

# What is typed, and what the message must name.
LINES = [
    # Words that are none of ours
    ("prun model.safetensors", "prun"),
    ("--quiet list", "--quiet"),
    ("list models", "models"),
    ("list --recipe", "--recipe"),
    ("prune", "CHECKPOINT"),
    ("prune model.safetensors --out out", "--ratio"),
    ("prune model.safetensors --ratio 0.5", "--out"),
    ("prune model.safetensors --ratio 0.5 --out", "--out"),
    ("prune model.safetensors extra --ratio 0.5 --out out", "extra"),
    ("prune model.safetensors --ratio 0.5 --ratio 0.6 --out out", "--ratio"),
    ("prune model.safetensors --ratio 0.5 --no-certify --out out", "--no-certify"),
    ("prune model.safetensors --ratio 0.5 --recover 5 --out out", "'5'"),
    ("prune model.safetensors --from-plan plan.safetensors --ratio 0.5 --out out", "--ratio"),
    ("prune model.safetensors --from-plan plan.safetensors --cap 0.5 --calibrate inputs.npy --out out", "--cap"),
    ("prune model.safetensors --from-plan plan.safetensors --plan again.safetensors", "--plan"),
    ("prune model.safetensors --from-plan plan.safetensors", "--out"),
    # Numbers
    ("prune model.safetensors --ratio abc --out out", "abc"),
    ("prune model.safetensors --ratio=half --out out", "half"),
    ("prune model.safetensors -r50% --out out", "50%"),
    ("prune model.safetensors --ratio 1.5 --out out", "1.5"),
    ("prune model.safetensors --ratio -0.1 --out out", "-0.1"),
    ("prune model.safetensors --ratio nan --out out", "nan"),
    ("prune model.safetensors --ratio inf --plan out", "inf"),
    ("prune model.safetensors --ratio 0.5 --cap 2 --plan out", "2"),
    ("prune model.safetensors --ratio 0.5 --cap much --plan out", "much"),
    ("prune model.safetensors --ratio 0.5 --width half --plan out", "expected a share from 0 to 1"),
    ("deploy model.safetensors --ratio 0.5 --width none --out out", "got 'none'"),
    ("prune model.safetensors --ratio 0.5 --round-to 0 --plan out", "0"),
    ("prune model.safetensors --ratio 0.5 --round-to 1.5 --plan out", "1.5"),
    ("train smnist --out run --data data --seed x", "'x'"),
    ("prune model.safetensors --ratio 0.5 --calibrate inputs.npy --sequences 0 --out out", '"0"'),
    ("train smnist --out run --data data --seed -3", "-3"),
    ("train smnist --out run --data data --seed 18446744073709551616", "18446744073709551616"),
    ("evaluate model.safetensors --task smnist --every 0", '"0"'),
    ("sweep model.safetensors --task smnist --out out --examples 0", '"0"'),
    ("sweep model.safetensors --task smnist --out out --ratios 0.1:2:0.5", "1.1"),
    ("sweep model.safetensors --task smnist --out out --ratios some", "some"),
    ("sweep model.safetensors --task smnist --out out --seeds 0,one", "one"),
    # Names
    ("sweep model.safetensors --task smnist --out out --methods last,best --data data", "best"),
    ("sweep model.safetensors --task smnist --out out --workers 0 --data data", "--workers"),
    ("sweep model.safetensors --task chess --out out", "chess"),
    ("prune model.safetensors --ratio 0.5 --method best --out out", "best"),
    ("prune model.safetensors --ratio 0.5 --method surgeonn --out out", "Did you mean surgeon?"),
    ("prune model.safetensors --ratio 0.5 --calibrate smnst --out out", "Did you mean smnist?"),
    ("prune model.safetensors --ratio 0.5 --exclude layers.9 --out out", "layers.9"),
    ("prune model.safetensors --ratio 0.5 --floor roof --plan out", "roof"),
    ("train chess --out run", "chess"),
    ("train smnist --out run --model lstm", "lstm"),
    ("train smnist --out run --recipe quick", "quick"),
    ("train smnist --out run --recipe tune --data data", "--from"),
    ("evaluate model.safetensors --task chess", "chess"),
    ("evaluate model.safetensors --task smnist --split final --data data", "final"),
    ("sweep model.safetensors --task smnist --out out --engine ray --data data", "ray"),
    ("evaluate model.safetensors --task smnist --engine gpu --data data", "gpu"),
    ("sweep model.safetensors --task smnist --out out --engine gpu --data data", "gpu"),
    ("demo --out picture.png --engine auto", "--engine"),
    ("export model.safetensors --out out.tflite", "out.tflite"),
    ("export model.safetensors --out out", ".onnx"),
    ("export model.safetensors --mode batch --out out.onnx", "batch"),
    ("verify", "FILE"),
    ("verify absent.c", "absent.c"),
    ("verify text.txt", "text.txt does not say which model it is"),
    ("recover model.safetensors model.safetensors --calibrate nothing --out out", "nothing"),
    ("recover model.safetensors model.safetensors --out out", "--calibrate"),
    ("recover plan.safetensors model.safetensors --calibrate inputs.npy --out out", "plan.safetensors is a plan"),
    ("prune model.safetensors --ratio 0.5 --recover --out out", "--calibrate"),
    ("prune model.safetensors --ratio 0.5 --calibrate inputs.npy --recover --minutes -1 --out out", "-1"),
    ("prune model.safetensors --ratio 0.5 --calibrate nothing.npy --recover --minutes -1e-2 --out out", "got -0.01"),
    ("prune model.safetensors --ratio 0.5 --calibrate nothing.npy --recover --minutes inf --out out", "got inf"),
    ("recover model.safetensors model.safetensors --calibrate inputs.npy --minutes 0 --out out", "got 0"),
    ("quantize model.safetensors --bits 3 --out out", "got 3"),
    ("quantize model.safetensors --calibrate nothing --out out", "nothing"),
    ("quantize plan.safetensors --out out", "plan.safetensors is a plan"),
    ("deploy model.safetensors --out out", "--ratio"),
    ("deploy model.safetensors --ratio 0.5", "--out"),
    ("deploy model.safetensors --ratio 2 --out out", "2"),
    ("deploy model.safetensors --ratio 0.5 --bits 5 --out out", "got 5"),
    ("deploy model.safetensors --ratio 0.5 --bits many --out out", "many"),
    ("deploy model.safetensors --ratio 0.5 --calibrate nothing --out out", "nothing"),
    ("deploy model.safetensors --max-loss 1 --out out", "--validate"),
    ("deploy model.safetensors --ratio 0.5 --validate smnist --data data --out out", "3 inputs, the task 1"),
    ("deploy model.safetensors --ratio 0.5 --data absent --out out", "absent"),
    ("deploy model.safetensors --ratio 0.5 --out data", "data is not empty"),
    ("deploy model.safetensors --ratio 0.5 --out text.txt", "text.txt"),
    ("deploy model.safetensors --ratio 0.5 --out text.txt/below", "text.txt"),
    ("deploy absent.safetensors --ratio 0.5 --out out", "absent.safetensors"),
    ("deploy carded.safetensors --ratio 0.5 --out out", "carded.card.json"),
    ("deploy unstable.safetensors --ratio 0.5 --out out", "pole"),
    ("import tree.msgpack --family keras --out out", "keras"),
    ("import tree.msgpack --family flax_s5 --out out", "NAME=VALUE"),
    ("import tree.msgpack --family flax_s5 --out out prenorm", "prenorm"),
    ("import tree.msgpack --family flax_s5 --out out colour=red", "colour"),
    (f"import tree.msgpack --family flax_s5 --out out {ANSWERS} prenorm=maybe", "maybe"),
    (f"import tree.msgpack --family flax_s5 --out out {ANSWERS} discretization=euler prenorm=true", "euler"),
    ("demo --out picture.bmpx", ".bmpx"),
    # Files that are not there, are folders, or are something else
    ("inspect absent.safetensors", "absent.safetensors"),
    ("inspect folder", "folder"),
    ("inspect empty.safetensors", "empty.safetensors"),
    ("inspect text.txt", "text.txt"),
    ("inspect plan.safetensors", "plan.safetensors is a plan"),
    ("inspect foreign.safetensors", "foreign.safetensors"),
    ("prune model.safetensors --ratio 0.5 --out folder", "folder"),
    ("prune model.safetensors --ratio 0.5 --out text.txt/below", "text.txt/below"),
    ("prune model.safetensors --ratio 0.5 --plan /dev/null", "/dev/null"),
    ("prune model.safetensors --from-plan model.safetensors --out out", "model.safetensors"),
    ("prune model.safetensors --from-plan absent.plan --out out", "absent.plan"),
    ("prune model.safetensors --from-plan folder --out out", "folder"),
    ("prune model.safetensors --from-plan text.txt --out out", "text.txt"),
    ("export folder --out out.onnx", "folder"),
    ("import absent.msgpack --family flax_s5 --out out", "absent.msgpack"),
    ("import folder --family flax_s5 --out out", "folder"),
    ("train smnist --out run --from absent.safetensors --data data", "absent.safetensors"),
    ("train smnist --out text.txt --data data", "text.txt"),
    ("train smnist --out run --data absent", "absent"),
    ("evaluate . --task smnist --data data", "folder"),
    ("evaluate model.safetensors --task smnist --data text.txt", "text.txt"),
    ("prune model.safetensors --ratio 0.5 --calibrate nothing --out out", "nothing"),
    ("sweep absent.safetensors --task smnist --out out --data data", "absent.safetensors"),
    ("sweep model.safetensors --out out --data data", "model"),
    ("sweep model.safetensors --task smnist --out text.txt --data data", "text.txt"),
    ("report absent", "absent"),
    ("report folder --out out.png", "folder"),
    ("report results --out out.tiffany", ".tiffany"),
    ("report text.txt", "text.txt"),
    ("demo --out text.txt/demo.png", "text.txt"),
    # Damaged files
    ("report torn --out table.md", "sweep.json"),
    ("report damaged", "cells.jsonl"),
    ("inspect cut.safetensors", "cut.safetensors"),
    ("inspect flipped.safetensors", "flipped.safetensors"),
    ("inspect nan.safetensors", "layers.1.ssm.C"),
    ("inspect infinite.safetensors", "decoder.bias"),
    ("inspect half.safetensors", "float16"),
    ("inspect mixed.safetensors", "layers.0.ssm.B"),
    ("inspect huge.safetensors", "huge.safetensors"),
    ("inspect option.safetensors", "euler"),
    ("inspect unsorted.safetensors", "layers.0.ssm.channel"),
    ("inspect outside.safetensors", "layers.0.ssm.channel"),
    ("prune model.safetensors --from-plan cutplan.safetensors --out out", "cutplan.safetensors"),
    ("prune model.safetensors --from-plan flippedplan.safetensors --out out", "flippedplan.safetensors"),
    ("import cut.msgpack --family flax_s5 --out out", "cut.msgpack"),
    ("import code.pt --family s5_pytorch --out out", "code.pt"),
    ("import bomb.pt --family s5_pytorch --out out", "bomb.pt"),
    ("evaluate carded.safetensors --task smnist --data data", "carded.card.json"),
    ("sweep listed.safetensors --out out --data data", "listed.card.json"),
    ("prune model.safetensors --ratio 0.5 --calibrate code.npy --out out", "code.npy"),
    ("prune model.safetensors --ratio 0.5 --calibrate text.txt --out out", "text.txt is not a .npy file"),
    ("prune model.safetensors --ratio 0.5 --calibrate text.txt --out out", "numpy.save('inputs.npy', x)"),
    ("prune model.safetensors --ratio 0.5 --calibrate huge.npy --out out", "huge.npy"),
    ("prune model.safetensors --ratio 0.5 --calibrate nothing.npy --out out", "nothing.npy"),
    ("prune model.safetensors --ratio 0.5 --calibrate words.npy --out out", "words.npy"),
    ("prune model.safetensors --ratio 0.5 --calibrate nan.npy --out out", "nan.npy"),
    # Files that do not belong together
    ("prune other.safetensors --from-plan plan.safetensors --out out", "layers.0.ssm"),
    ("prune deeper.safetensors --from-plan plan.safetensors --out out", "layers.2.ssm"),
    ("prune small.safetensors --from-plan plan.safetensors --out out", "layers.0.ssm"),
    ("prune model.safetensors --ratio 0.5 --calibrate wide.npy --out out", "(2, 9, 4)"),
    ("evaluate model.safetensors --task smnist --data data", "3 inputs, the task 1"),
    ("sweep model.safetensors --task smnist --out out --data data", "3 inputs, the task 1"),
    ("prune unstable.safetensors --ratio 0.5 --out out", "layers.0.ssm': States 0, 1, 2, 3, 4, 5, 6, 7 have a pole"),
    ("prune unstable.safetensors --ratio 0.5 --out out --unstable drop", "drop"),
    ("inspect unstable.safetensors", "unit circle"),
    # Data
    ("evaluate model.safetensors --task text --data emptied", "neg"),
    ("evaluate model.safetensors --task image --data emptied", "test_batch.bin"),
    ("evaluate model.safetensors --task retrieval --data emptied", "new_aan_pairs.test.tsv"),
    ("evaluate model.safetensors --task listops --data emptied", "basic_test.tsv"),
    ("evaluate model.safetensors --task speech --data emptied", "500"),
]


def changed(source: Path, target: Path, tensors=None, config=None) -> None:
    """Write a checkpoint again with other tensors or another config, as a hostile or careless author would."""
    stored, about = load_tensors(source)
    about["config"] = json.dumps(json.loads(about["config"]) | (config or {}))
    save_tensors(target, stored | {name: tensor.numpy() for name, tensor in (tensors or {}).items()}, about)


def flip(source: Path, target: Path) -> None:
    """Change one bit near the end, where the numbers are."""
    content = bytearray(source.read_bytes())
    content[-9] ^= 1
    target.write_bytes(content)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("lines")
    torch.manual_seed(0)
    for name, options in {
        "model": {},
        "other": {},
        "deeper": {"states": (8, 8, 8)},
        "small": {"states": (4, 8)},
        "free": {"pole_form": "free"},
        "s4d": {"family": "s4d", "states": (12, 12)},
    }.items():
        sp.save(Classifier(Config(**S5 | options)), place / f"{name}.safetensors")
    model, s4d = place / "model.safetensors", place / "s4d.safetensors"
    weights, owners = from_bytes(model.read_bytes()), from_bytes(s4d.read_bytes())["layers.0.ssm.channel"]
    plan = place / "plan.safetensors"
    make_plan(sp.read(sp.load(model)), 0.5).save(plan)

    for name, tensor, value in (("nan", "layers.1.ssm.C", torch.nan), ("infinite", "decoder.bias", torch.inf)):
        broken = weights[tensor].clone()
        broken.view(-1)[1] = value
        changed(model, place / f"{name}.safetensors", {tensor: broken})
    changed(model, place / "half.safetensors", {"decoder.weight": weights["decoder.weight"].half()})
    changed(model, place / "mixed.safetensors", {"layers.0.ssm.B": weights["layers.0.ssm.B"].double()})
    changed(model, place / "huge.safetensors", config={"width": 10**9})
    changed(model, place / "option.safetensors", config={"discretization": "euler"})
    changed(s4d, place / "unsorted.safetensors", {"layers.0.ssm.channel": owners.flip(0)})
    changed(s4d, place / "outside.safetensors", {"layers.0.ssm.channel": owners + 1})
    free = place / "free.safetensors"
    changed(free, place / "unstable.safetensors", {"layers.0.ssm.pole_re": torch.full((8,), 0.5)})
    for source, name in ((model, ""), (plan, "plan")):
        flip(source, place / f"flipped{name}.safetensors")
        (place / f"cut{name}.safetensors").write_bytes(source.read_bytes()[:-100])
    (place / "foreign.safetensors").write_bytes(to_bytes({"weight": torch.ones(2)}))
    (place / "carded.safetensors").write_bytes(model.read_bytes())
    (place / "carded.card.json").write_text("{")
    (place / "listed.safetensors").write_bytes(model.read_bytes())
    (place / "listed.card.json").write_text('{"task": "smnist", "task_parameters": [1]}')

    (place / "tree.msgpack").write_bytes(TREE.read_bytes())
    (place / "cut.msgpack").write_bytes(TREE.read_bytes()[:5000])
    (place / "code.pt").write_bytes(pickle.dumps(print))
    torch.save({"code": builtins.print}, place / "bomb.pt")
    np.save(place / "code.npy", np.array([print]), allow_pickle=True)
    np.save(place / "inputs.npy", np.zeros((2, 9, 3)))
    np.save(place / "wide.npy", np.zeros((2, 9, 4)))
    np.save(place / "nothing.npy", np.zeros((0, 9, 3)))
    np.save(place / "words.npy", np.array([["a"]]))
    np.save(place / "nan.npy", np.full((2, 9, 3), np.nan))
    header = (place / "inputs.npy").read_bytes()[:128].replace(b"(2, 9, 3)", b"(2,9,3**9)").replace(b"3**9", b"9" * 9)
    (place / "huge.npy").write_bytes(header[:128])

    for name in ("results", "torn", "damaged"):
        (place / name).mkdir()
        for file in ("sweep.json", "cells.jsonl"):
            (place / name / file).write_bytes((CORPUS / file).read_bytes())
    cell = json.loads((CORPUS / "cells.jsonl").read_text().splitlines()[0])
    with (place / "results" / "cells.jsonl").open("a") as cells:
        cells.write(json.dumps(cell | {"method": "full", "ratio": 0.0}) + "\n")
    (place / "torn" / "sweep.json").write_text("{")
    (place / "damaged" / "cells.jsonl").write_text("[1]\n")
    (place / "folder").mkdir()
    (place / "text.txt").write_text("hello\n")
    (place / "empty.safetensors").touch()
    write_all(place / "data")
    emptied = place / "emptied"
    write_all(emptied)
    for file in (emptied / "aclImdb" / "test" / "neg").iterdir():
        file.unlink()
    (emptied / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(b"")
    (emptied / "aan" / "new_aan_pairs.test.tsv").write_text("1\tA\tB\tonly one text\n")
    (emptied / "listops").mkdir()
    (emptied / "listops" / "basic_test.tsv").write_text("Source\tTarget\n[MAX 2 9 ]\tten\n")
    for file in (emptied / "speech_commands").glob("*/*.wav"):
        write_wav(file, np.zeros(500, np.int16), rate=500)
    return place


@pytest.fixture
def ssmprune(folder, capsys, monkeypatch):
    """Run a command line in the folder; returns the exit code, stdout and stderr."""
    monkeypatch.chdir(folder)

    def run(line: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as leave:
            run_line(shlex.split(line))
        return leave.value.code, *capsys.readouterr()

    return run


def snapshot(folder: Path) -> dict[str, int]:
    """Every file below a folder and when it was written."""
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("line", "named"), LINES, ids=[line for line, _ in LINES])
def test_a_bad_line_is_told_and_writes_nothing(ssmprune, folder, line, named):
    before = snapshot(folder)
    code, out, err = ssmprune(line)
    assert code == 2, err
    assert named in err
    assert "Traceback" not in err
    assert "Unexpected" not in err
    assert out == ""
    assert snapshot(folder) == before


def test_every_command_is_in_the_table():
    verbs = {verb for commands in VERBS.values() for verb in commands}
    assert len(LINES) >= 60
    assert verbs - {line.split()[0] for line, _ in LINES} == set()


def test_debug_gives_the_traceback_wherever_it_stands(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for line in ("--debug inspect absent.safetensors", "inspect absent.safetensors --debug"):
        with pytest.raises(sp.InputError, match="absent"):
            run_line(shlex.split(line))


@pytest.mark.parametrize(
    ("error", "code", "named"),
    [
        (OSError(28, "No space left on device", "/disk/file"), 2, "/disk/file: No space left on device"),
        (PermissionError(13, "Permission denied", "secret"), 2, "secret: Permission denied"),
        (MemoryError(), 2, "Not enough memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 9 bytes"), 2, "memory"),
        (KeyboardInterrupt(), 130, "Interrupted"),
        (ZeroDivisionError("division by zero"), 1, "Unexpected ZeroDivisionError: division by zero"),
    ],
)
def test_what_nobody_expected_ends_cleanly_too(ssmprune, monkeypatch, error, code, named):
    def fail(*_arguments, **_options):
        raise error

    monkeypatch.setattr("ssmprune.cli.pruning.load", fail)
    left, out, err = ssmprune("inspect model.safetensors")
    assert (left, out) == (code, "")
    assert named in " ".join(err.split())
    assert "Traceback" not in err


def test_a_full_disk_keeps_the_old_file_and_leaves_no_part(ssmprune, folder, monkeypatch):
    ssmprune("prune model.safetensors --ratio 0.5 --out kept.safetensors")
    before = snapshot(folder)

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, _, err = ssmprune("prune model.safetensors --ratio 0.25 --out kept.safetensors")
    assert code == 2
    assert "kept.safetensors: No space left on device" in err
    assert snapshot(folder) == before
