"""Twelve spoken words as a C program: `python examples/spoken_words.py clip.wav ...`, or a made-up sound without clips.

The program reads raw audio, 8,000 samples of 16 bits a second, so a microphone will do as well:

    arecord -q -t raw -f S16_LE -r 8000 -d 1 | ./words --s16 --class
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import ssmprune as sp
from ssmprune.deploy.build import compiler
from ssmprune.deploy.c import export_c
from ssmprune.tasks._formats import read_wav

WORDS = ("bed", "cat", "down", "eight", "five", "go", "happy", "left", "one", "right", "up", "zero")
RATE = 8000  # of the model; one second is one clip

model = sp.load(Path(__file__).parents[1] / "checkpoints" / "speech-s5.safetensors")


def clips(paths):
    """One second of each file, or of a chirp."""
    for path in map(Path, paths):
        samples, rate = read_wav(path)
        yield path.name, np.pad(samples[:: rate // RATE], (0, RATE))[:RATE].astype("<i2")
    if not paths:
        t = np.arange(RATE) / RATE
        yield "a chirp", (8000 * np.sin(2 * np.pi * (200 + 400 * t) * t)).astype("<i2")


with tempfile.TemporaryDirectory() as folder:
    program, source = Path(folder) / "words", Path(folder) / "words.c"
    export_c(model, source)
    subprocess.run([*compiler(), "-O3", "-DSSMPRUNE_MAIN", source, "-lm", "-o", program], check=True)
    print(f"the program has {program.stat().st_size / 1024:.0f} KB")
    for name, samples in clips(sys.argv[1:]):
        start = time.perf_counter()
        printed = subprocess.run([program, "--s16"], input=samples.tobytes(), capture_output=True, check=True).stdout
        seconds = time.perf_counter() - start
        logits = np.array(printed.split(), np.float32)
        with torch.no_grad():
            expected = model(torch.from_numpy(samples.astype(np.float32) / 32768)[None, :, None])[0].numpy()
        assert np.abs(logits - expected).max() <= 1e-4 * np.abs(expected).max()
        print(f"{name}: {WORDS[logits.argmax()]}, one second of sound in {1000 * seconds:.0f} ms")
