"""Does shrinking S5 at the paper's sizes gain what the operation count promises?

Both directions, the paper's H, n, layers and lengths; the batch is cut to about 16,384 steps and the weights are
random, both of which leave the operation count per step as it is. The ideal counts B u, C x, GLU, encoder and
decoder; beside it stands what these products alone gain in time, because torch multiplies matrices of odd sizes less
efficiently. Speed is of an evaluation, memory what the process grows by during a pass, shrunk against full. The
paper's figures are those of its speed table (RTX 3090).
"""

from collections.abc import Callable
from statistics import median

import speed
import subjects
from products import bare_products
from table import Figure, of, show
from timing import peak_memory, time_in_turns
from work import multiply_adds

PAPER = {  # task: share pruned, speed and memory against the full model
    "text": (0.6, 1.6, 0.9),
    "retrieval": (0.5, 1.7, 0.6),
    "image": (0.3, 1.2, 1.0),
    "pathfinder": (0.3, 1.1, 0.8),
    "pathx": (0.3, 1.3, 0.8),
}
STEPS, ROUNDS = 16_384, 15


def measure() -> list[Figure]:
    return [figure for task in PAPER for figure in of_task(task)]


def of_task(task: str) -> list[Figure]:
    ratio, paper_speed, paper_memory = PAPER[task]
    size = subjects.found()[f"{task}-s5"]
    documents = 2 if size.config.retrieval else 1
    subject = subjects.subject(f"{task}-s5", batch=STEPS // (documents * size.length))
    models, x = speed.variants(subject.model, ratio), subject.inputs()
    passes = {name: speed.evaluation(model, x) for name, model in models.items()}
    products = {f"products, {which}": bare_products(models[which].config, *x.shape[:2]) for which in ("full", "shrunk")}
    times = time_in_turns(passes | products, ROUNDS)
    work = {name: sum(multiply_adds(model.config, *x.shape[:2]).values()) for name, model in models.items()}
    ideal = work["full"] / work["shrunk"]
    name = f"{task} {ratio:.0%}"
    alone = (times["products, full"] / times["products, shrunk"]).median
    beside = {"ideal": ideal, "products alone": alone, "paper's GPU": paper_speed}
    trainings = {which: speed.training(models[which], x) for which in ("full", "shrunk")}
    return [
        of(f"{name}, shrunk, speed", times["full"] / times["shrunk"], at_least=0.9 * ideal, beside=beside),
        of(f"{name}, masked, speed", times["full"] / times["masked"], beside={"expected": 1.0}),
        Figure(f"{name}, shrunk, evaluation's memory", memory(passes, 5), beside={"paper's GPU": paper_memory}),
        Figure(f"{name}, shrunk, training's memory", memory(trainings, 1)),
    ]


def memory(passes: dict[str, Callable[[], object]], repeats: int) -> float | None:
    """Peak of the shrunk model against the full one's; small peaks depend on what the allocator has at hand."""
    peaks = {which: [peak_memory(passes[which]) for _ in range(repeats)] for which in ("full", "shrunk")}
    if None in peaks["full"]:
        return None
    return median(peaks["shrunk"]) / median(peaks["full"])


if __name__ == "__main__":
    show(__doc__, measure)
