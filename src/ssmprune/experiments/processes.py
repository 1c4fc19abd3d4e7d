"""Several training processes as one: torchrun starts them, DistributedDataParallel averages their gradients."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..errors import InputError


@dataclass(frozen=True)
class Group:
    """The processes that train together; alone unless torchrun started us."""

    rank: int = 0
    size: int = 1

    @property
    def device(self) -> torch.device:
        """The GPU of this process when there is one, else the CPU."""
        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))

    def wrap(self, model: nn.Module) -> nn.Module:
        """A module that computes what `model` does and whose gradients are means over the group."""
        return model if self.size == 1 else DistributedDataParallel(model)

    def total(self, value: Tensor) -> Tensor:
        """The sum of `value` over the processes, the same on each of them."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def wait(self) -> None:
        """Return when every process has come here."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def joined() -> Iterator[Group]:
    """The group that torchrun's environment describes, left again at the end."""
    if not dist.is_torchelastic_launched():
        yield Group()
        return
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield Group(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


def relaunch(devices: int, nodes: int = 1) -> None:
    """Replace this process by torchrun running the same command in `devices` processes on each of `nodes` machines.

    Does nothing inside torchrun, or when one process is asked for. With several nodes torchrun learns the
    meeting point from its own variables: PET_MASTER_ADDR, PET_MASTER_PORT and PET_NODE_RANK.
    """
    if dist.is_torchelastic_launched() or devices * nodes == 1:
        return
    if devices < 1 or nodes < 1:
        raise InputError(f"Expected at least one device and one node, got {devices} and {nodes}.")
    if nodes > 1 and not {"PET_MASTER_ADDR", "PET_NODE_RANK"} <= os.environ.keys():
        raise InputError(
            f"Training on {nodes} nodes needs to know where they meet: set PET_MASTER_ADDR (a host they all reach) "
            "and PET_NODE_RANK (0, 1, ...) on each, or start the command with torchrun yourself."
        )
    meet = ["--standalone"] if nodes == 1 else [f"--nnodes={nodes}"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={devices}", *meet]
    os.execv(sys.executable, [*torchrun, "-m", "ssmprune", *sys.argv[1:]])
