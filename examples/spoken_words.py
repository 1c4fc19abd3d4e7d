"""Twelve spoken words as a C program: `python examples/spoken_words.py clip.wav ...`, or a made-up sound without clips.

The trained model is rounded to 8 bits, written as C and compiled. The program reads raw audio, 8,000 samples of 16 bits
a second, and takes one second of it, so a microphone will do as well:

    arecord -q -t raw -f S16_LE -r 8000 -d 1 | ./words --s16 --class
"""

import re
import resource
import subprocess
import sys
import tempfile
import wave
from pathlib import Path

import numpy as np
import torch

import ssmprune as sp
from ssmprune.deploy.build import compiler

WORDS = ("bed", "cat", "down", "eight", "five", "go", "happy", "left", "one", "right", "up", "zero")
RATE = 8000  # of the model; one second is one clip

model = sp.quantize(sp.load(Path(__file__).parents[1] / "paper" / "checkpoints" / "speech-s5.safetensors"), bits=8)


def clips(paths):
    """One second of each file, or of a chirp."""
    for path in map(Path, paths):
        with wave.open(str(path)) as clip:
            samples, rate = np.frombuffer(clip.readframes(clip.getnframes()), "<i2"), clip.getframerate()
        yield path.name, np.pad(samples[:: rate // RATE], (0, RATE))[:RATE].astype("<i2")
    if not paths:
        t = np.arange(RATE) / RATE
        yield "a chirp", (8000 * np.sin(2 * np.pi * (200 + 400 * t) * t)).astype("<i2")


def listen(program, samples):
    """What the program prints, and the CPU seconds it takes, its start included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    printed = subprocess.run([program, "--s16"], input=samples.tobytes(), capture_output=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return printed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


with tempfile.TemporaryDirectory() as folder:
    program, source = Path(folder) / "words", Path(folder) / "words.c"
    sp.export_c(model, source)
    options = ["-O3", "-s", "-DSSMPRUNE_MAIN", f"-DSSMPRUNE_LONGEST={RATE}"]
    subprocess.run([*compiler(), *options, source, "-lm", "-o", program], check=True)
    floats = int(re.search(r"FLOATS_PER_STEP (\d+)", source.with_suffix(".h").read_text())[1])
    print(f"program: {program.stat().st_size / 1000:.0f} kB; memory: {4 * RATE * floats / 1e6:.1f} MB")
    times = []
    for name, samples in clips(sys.argv[1:]):
        printed, seconds = listen(program, samples)
        logits = np.array(printed.split(), np.float32)
        with torch.no_grad():
            expected = model(torch.from_numpy(samples.astype(np.float32) / 32768)[None, :, None])[0].numpy()
        assert np.abs(logits - expected).max() <= 1e-4 * np.abs(expected).max()
        print(f"{name}: {WORDS[logits.argmax()]}")
        times.append(seconds)
    print(f"real-time factor: {np.median(times):.3f} (CPU seconds for one second of sound, one core)")
