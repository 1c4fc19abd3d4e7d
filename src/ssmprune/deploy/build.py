"""C text to a loaded library: the system's compiler, or zig's from PyPI, and a cache that only its owner can write."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path

from ..errors import InputError
from ..files import refuse_unsafe, safe_folder

FLAGS = ("-std=c99", "-O3", "-ffp-contract=fast", "-fPIC", "-shared")
# For gcc, tuning for one machine's own model of costs reads weights from memory that are in registers already.
INTEL, ARM = ("-march=native", "-mtune=generic"), ("-mcpu=native",)
NATIVE: dict[str, tuple[str, ...]] = {"x86_64": INTEL, "AMD64": INTEL, "aarch64": ARM, "arm64": ARM}


def load(sources: Mapping[str, str], folder: Path | None = None) -> ctypes.CDLL:
    """Return the library built from files by name; the same sources are built once for this compiler and processor.

    A library is built beside its place and renamed, so that of two processes each finds a whole one. Its name tells its
    size: loading one that a full or failing disk has cut short would end the process.
    """
    program = compiler()
    native = NATIVE.get(platform.machine(), ())
    command = [*program, *FLAGS, *(native[:1] if "ziglang" in program else native)]  # zig stumbles over -mtune
    place = safe_folder(default_folder()) if folder is None else safe_folder(folder, "use another folder")
    key = _key(sources, command, _version(*program))
    for path in place.glob(f"{key}-*.so"):
        if path.stem.endswith(f"-{path.stat().st_size}"):
            with suppress(OSError):  # what cannot be loaded is built again
                return _opened(path)
    try:
        return _opened(_build(sources, command, place, key))
    except OSError as error:
        raise InputError(f"The compiled model cannot be loaded: {error}.") from error


def unload(library: ctypes.CDLL) -> None:
    """Give back the memory of a library, none of whose functions may be called any more."""
    if os.name == "posix":
        ctypes.CDLL(None).dlclose(ctypes.c_void_p(library._handle))


def compiler() -> list[str]:
    """Return the command of a C compiler; where there is none, say what to install."""
    if command := find_compiler():
        return command
    raise InputError(
        "Compiling a model needs a C compiler: install gcc or clang, or `pip install ziglang`, which brings zig's."
    )


def find_compiler() -> list[str] | None:
    """Return the command of a C compiler, None where there is none."""
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return [path]
    return None if find_spec("ziglang") is None else [sys.executable, "-m", "ziglang", "cc"]


def default_folder() -> Path:
    """Return where libraries are kept."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "ssmprune" / "compiled"


def scratch_folder() -> Path:
    """Return a safe folder for libraries that are used once: the system's for temporary files, else the cache."""
    try:
        return _writable(safe_folder(Path(tempfile.gettempdir()), "set TMPDIR to a folder that is"))
    except (InputError, FileNotFoundError) as error:  # without any folder for temporary files: FileNotFoundError
        with suppress(InputError):
            return _writable(safe_folder(default_folder()))
        raise InputError(f"There is no safe folder to compile in. {error}") from error


def _writable(folder: Path) -> Path:
    if os.access(folder, os.W_OK | os.X_OK):
        return folder
    raise InputError(f"{folder} cannot be written.")


def _opened(path: Path) -> ctypes.CDLL:
    refuse_unsafe(path)
    return ctypes.CDLL(str(path))


def _build(sources: Mapping[str, str], command: list[str], folder: Path, key: str) -> Path:
    with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as name:
        built = Path(name) / "built.so"
        for file, text in sources.items():
            (Path(name) / file).write_text(text, "ascii")
        to_compile = [file for file in sources if file.endswith(".c")]
        line = [*command, *to_compile, "-lm", "-o", built.name]
        result = run(line, name)
        if result.returncode:
            raise InputError(f"{command[0]} could not compile the model:\n{result.stderr[-2000:]}")
        os.chmod(built, 0o700)
        return built.replace(folder / f"{key}-{built.stat().st_size}.so")


def _key(sources: Mapping[str, str], command: list[str], version: str) -> str:
    texts = (part for item in sorted(sources.items()) for part in item)
    parts = [*command, version, instruction_set(), *texts]
    return blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


@cache
def _version(*program: str) -> str:
    return run([*program, "--version"]).stdout


def run(
    command: list[str], folder: str | None = None, text: str = "", remedy: str = "Install gcc or clang, or mend PATH."
) -> subprocess.CompletedProcess[str]:
    """Run a program, which reads `text`, and return what it printed; one that cannot be run is an InputError."""
    try:
        return subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True, errors="replace")
    except OSError as error:  # a file with the name of a compiler need not be a program
        raise InputError(f"{command[0]} cannot be run: {error.strerror or error}. {remedy}") from error


def object_sizes(source: Path) -> tuple[int, int] | tuple[None, None]:
    """Return the bytes of code and constants that a C file becomes with -Os, and of the stack that its functions take.

    None without a compiler and `size`. The stack is that of all functions together, which none exceeds.
    """
    with suppress(InputError, IndexError, ValueError, OSError), tempfile.TemporaryDirectory() as folder:
        flags = ("-std=c99", "-Os", "-fstack-usage", "-c")
        compiled = run([*compiler(), *flags, str(source.absolute()), "-o", "model.o"], folder)
        table = run(["size", "model.o"], folder).stdout if compiled.returncode == 0 else ""
        frames = [line.split("\t")[1] for line in Path(folder, "model.su").read_text().splitlines()]
        return sum(int(field) for field in table.splitlines()[1].split()[:2]), sum(map(int, frames))  # text and data
    return None, None


@cache
def instruction_set() -> str:
    """Return what tells this processor from others for which the same flags would mean other instructions."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() + platform.machine()
    telling = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(telling)}))
