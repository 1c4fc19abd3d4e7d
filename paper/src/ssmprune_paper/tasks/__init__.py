"""The tasks of the paper but for sequential MNIST, which ships with ssmprune."""

from . import cifar, listops, pathfinder, psmnist, retrieval, speech, text

TASKS = [
    psmnist.TASK,
    *cifar.TASKS,
    listops.TASK,
    text.TASK,
    retrieval.TASK,
    *pathfinder.TASKS,
    speech.TASK,
]
