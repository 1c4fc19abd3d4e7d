"""Several training processes as one: torchrun starts them, DistributedDataParallel averages their gradients."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

# Imported before any group exists: default arguments in this module would keep a group and its threads until exit.
from torch.distributed.nn.functional import all_reduce
from torch.nn.parallel import DistributedDataParallel

from ..models.classifier import BatchNorm


@dataclass(frozen=True)
class Group:
    """The processes that train together; a single one unless torchrun started them."""

    rank: int = 0
    size: int = 1

    @property
    def device(self) -> torch.device:
        """Return the GPU of this process where there is one, else the CPU."""
        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return a model that computes as `model` does, with batch statistics and mean gradients of the whole group."""
        if self.size == 1:
            return model
        for module in model.modules():
            if isinstance(module, BatchNorm):
                module.__class__ = SharedBatchNorm
        return DistributedDataParallel(model)

    def total(self, value: Tensor) -> Tensor:
        """Return the sum of `value` over the processes, the same on each of them."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def agrees_on(self, number: int) -> bool:
        """Return whether all processes have come with the same number."""
        extremes = torch.tensor([number, -number], device=self.device)
        if self.size > 1:
            dist.all_reduce(extremes, dist.ReduceOp.MAX)
        return bool(extremes.sum() == 0)


class SharedBatchNorm(BatchNorm):
    """A batch norm over a batch of which each process has an equal share; torch's SyncBatchNorm is for GPUs only."""

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> the same
        """Normalise with the statistics of all shares in training, with the running ones in evaluation."""
        if not self.training:
            return super().forward(x)
        dims = tuple(range(x.ndim - 1))
        mean = group_mean(x.mean(dims))
        centred = x - mean
        var = group_mean(centred.square().mean(dims))
        with torch.no_grad():
            count = x[..., 0].numel() * dist.get_world_size()
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var * (count / (count - 1)), self.momentum)
        normed: Tensor = centred * (var + self.eps).rsqrt() * self.weight + self.bias
        return normed


def group_mean(value: Tensor) -> Tensor:
    """Return the mean of `value` over the processes, differentiable."""
    total: Tensor = all_reduce(value)  # type: ignore[no-untyped-call]
    return total / dist.get_world_size()


@contextmanager
def join_group() -> Iterator[Group]:
    """Join the group that torchrun's environment describes, and leave it at the end; nested calls share a group.

    Processes cannot meet twice under the same torchrun: a script that trains several times joins once, around them.
    """
    if dist.is_initialized() or not dist.is_torchelastic_launched():
        yield Group(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else Group()
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(Group().device)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield Group(dist.get_rank(), dist.get_world_size())
        dist.barrier()  # no process leaves while another still sends
    finally:
        dist.destroy_process_group()


def is_first_process() -> bool:
    """Return whether this process is the only one or torchrun's first, which writes the results."""
    return os.environ.get("RANK", "0") == "0"
