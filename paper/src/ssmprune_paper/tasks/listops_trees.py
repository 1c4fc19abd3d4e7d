"""Random ListOps expressions, drawn and evaluated thousands at a time.

Tree(d) is, with probability 1/4 and if d < 10, an operator (MIN, MAX, MED or SM) with 2 to 10 children
Tree(d + 1), otherwise a digit; an expression is Tree(1). All trees of a batch are grown level by level, and the
children of a node lie next to each other, so that a whole level is evaluated by a few segmented reductions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ssmprune.errors import InputError

from .documents import Documents

TOKENS = ("<pad>", *"0123456789", "[MIN", "[MAX", "[MED", "[SM", "]")
DIGIT, OPERATOR, CLOSE = 1, 11, 15  # tokens of 0, of [MIN, of ]
MIN, MAX, MED, SM = range(4)
DEEPEST = 10
PATIENCE = 30  # batches without anything new before an error says so

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Level:
    """The nodes of one depth, over all trees. Operators are those with children, in the next level, in order."""

    symbol: Ints  # (nodes,) the digit, or which operator
    children: Ints  # (nodes,) how many; 0 for a digit

    @property
    def operators(self) -> Ints:
        """Indices of the nodes with children."""
        return np.flatnonzero(self.children)

    @property
    def first(self) -> Ints:
        """(operators,) where in the next level the children of each operator begin."""
        counts = self.children[self.operators]
        return np.cumsum(counts) - counts


def grow(trees: int, rng: np.random.Generator) -> list[Level]:
    """Draw `trees` random trees, level by level from their roots."""
    levels, nodes = [], trees
    for depth in range(1, DEEPEST + 1):
        is_operator = (rng.random(nodes) < 0.25) & (depth < DEEPEST)
        chance = rng.random((2, nodes))  # one number chooses the symbol, one the number of children
        symbol = np.where(is_operator, chance[0] * 4, chance[0] * 10).astype(np.int64)
        children = np.where(is_operator, 2 + (chance[1] * 9).astype(np.int64), 0)
        levels.append(Level(symbol, children))
        nodes = int(children.sum())
        if not nodes:
            break
    return levels


def evaluate(levels: list[Level]) -> tuple[list[Ints], list[Ints]]:
    """Return, of every node, level by level, its value and the number of tokens it is written with."""
    values, lengths = [levels[-1].symbol], [np.ones_like(levels[-1].symbol)]
    for level in reversed(levels[:-1]):
        value, length = level.symbol.copy(), np.ones_like(level.symbol)
        value[level.operators] = _apply(level, values[0])
        length[level.operators] = 2 + np.add.reduceat(lengths[0], level.first)
        values.insert(0, value)
        lengths.insert(0, length)
    return values, lengths


def _apply(level: Level, below: Ints) -> Ints:
    """Return the value of each operator of a level; `below` are the values of the next level."""
    first, counts = level.first, level.children[level.operators]
    owner = np.repeat(np.arange(len(first)), counts)
    ordered = below[np.argsort(owner * 10 + below, kind="stable")]  # sorted within each operator
    middle = (ordered[first + (counts - 1) // 2] + ordered[first + counts // 2]) // 2
    results = {
        MIN: ordered[first],
        MAX: ordered[first + counts - 1],
        MED: middle,
        SM: np.add.reduceat(below, first) % 10,
    }
    return np.choose(level.symbol[level.operators], [results[operator] for operator in range(4)])


def write(levels: list[Level], lengths: list[Ints]) -> Documents:
    """Return the trees as tokens: a digit, or an operator, its children, and a closing bracket."""
    starts = np.concatenate([[0], np.cumsum(lengths[0])])
    tokens = np.empty(starts[-1], np.uint8)
    place = starts[:-1]
    for depth, level in enumerate(levels):
        operators = level.operators
        tokens[place] = np.where(level.children > 0, OPERATOR, DIGIT) + level.symbol
        tokens[place[operators] + lengths[depth][operators] - 1] = CLOSE
        if len(operators):
            before = np.cumsum(lengths[depth + 1]) - lengths[depth + 1]  # tokens of the level left of each node
            place = before + np.repeat(place[operators] + 1 - before[level.first], level.children[operators])
    return Documents(tokens, starts)


def draw(shortest: int, longest: int, seed: int, trees: int = 10_000) -> Iterator[tuple[bytes, int]]:
    """Yield endless expressions with shortest < tokens < longest, and their values; none comes twice."""
    rng = np.random.default_rng(seed)
    seen: set[bytes] = set()
    vain = 0
    while vain < PATIENCE:
        levels = grow(trees, rng)
        values, lengths = evaluate(levels)
        written = write(levels, lengths)
        vain += 1
        for tree in np.flatnonzero((lengths[0] > shortest) & (lengths[0] < longest)):
            expression = written.tokens[written.starts[tree] : written.starts[tree + 1]].tobytes()
            digest = hashlib.blake2b(expression, digest_size=16).digest()
            if digest not in seen:
                seen.add(digest)
                vain = 0
                yield expression, int(values[0][tree])
    raise InputError(
        f"Only {len(seen)} different expressions of more than {shortest} and less than {longest} tokens turned up; "
        "ask for fewer, or widen the lengths."
    )
