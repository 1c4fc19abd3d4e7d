"""What holds for every test: no network, and the process is left as it was."""

import ipaddress
import socket
import sys
from collections import namedtuple

import pytest
import torch
from hypothesis import settings

from ssmprune import registry
from ssmprune.cli import main

# The same examples in every run, so that a failure can be repeated; how long one takes depends on the machine.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("quick", settings.get_profile("repeatable"), max_examples=20)  # `make quick`
settings.load_profile("repeatable")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Let torch draw the same numbers in a test, and in the fixtures made for it, whichever tests ran before."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def denormals_as_before():
    """Undo the switch that commands set for the whole process, as they may; hypothesis needs denormal numbers."""
    yield
    torch.set_flush_denormal(False)


def forget_entry_points():
    for kind in registry._registries:
        vars(kind).pop("installed", None)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a package with entry points on the path, as an installer would, and forget it after the test."""

    def write(name, entry_points, module=None):
        if module is not None:
            (tmp_path / f"{name}.py").write_text(module)
        about = tmp_path / f"{name}-1.0.dist-info"
        about.mkdir(exist_ok=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(entry_points)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, name, raising=False)
        forget_entry_points()

    yield write
    forget_entry_points()


@pytest.fixture(autouse=True)
def forget_modules(monkeypatch):
    """Files that a test adds are not known to the next."""
    monkeypatch.setattr(registry, "_files", {})


def is_local(family: int, address: object) -> bool:
    """Whether an address is a file, or this machine's own."""
    if family not in (socket.AF_INET, socket.AF_INET6):
        return True
    host = str(address[0])
    if host in ("", "localhost", socket.gethostname()):
        return True
    try:
        numeric = ipaddress.ip_address(host)
    except ValueError:
        return False
    with socket.socket(family, socket.SOCK_DGRAM) as probe:  # one can only bind to an address of one's own
        try:
            probe.bind((str(numeric), 0))
        except OSError:
            return False
    return True


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Refuse connections to other machines, and fail the test that tried, whatever it made of the refusal."""
    tried = []

    def guarded(name):
        real = getattr(socket.socket, name)

        def connect(self, address):
            if not is_local(self.family, address):
                tried.append(address)
                raise OSError(f"a test tried to reach {address}")
            return real(self, address)

        monkeypatch.setattr(socket.socket, name, connect)

    real_lookup = socket.getaddrinfo

    def lookup(host, *arguments, **options):
        if host is not None and not is_local(socket.AF_INET, (host, 0)) and not is_local(socket.AF_INET6, (host, 0)):
            tried.append(host)
            raise OSError(f"a test tried to look up {host}")
        return real_lookup(host, *arguments, **options)

    guarded("connect")
    guarded("connect_ex")
    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    yield
    assert not tried, f"tests must not need the network; tried {tried}"


Result = namedtuple("Result", "returncode stdout stderr")


@pytest.fixture
def ssmprune(capsys, monkeypatch):
    """Run the command line as a user does, but in this process: importing torch anew takes seconds."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["ssmprune", *map(str, arguments)])
        with pytest.raises(SystemExit) as leave:
            main()
        return Result(leave.value.code or 0, *capsys.readouterr())

    return run
