"""Sequential MNIST in another order."""

import numpy as np

from ssmprune.tasks import get
from ssmprune_paper.tasks.psmnist import bit_reversal
from tiny_data import write_mnist


def test_permutation_by_reversed_binary_digits(tmp_path):
    slow = [int(f"{i:010b}"[::-1], 2) for i in range(1024)]
    assert bit_reversal(10).tolist() == slow
    write_mnist(tmp_path)
    plain, permuted = (get(name).load("test", tmp_path).batch([0]).x for name in ("smnist", "psmnist"))
    assert np.array_equal(permuted[0], plain[0, [i for i in slow if i < 784]])
