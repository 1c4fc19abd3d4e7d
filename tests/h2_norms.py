"""H2 norms, the sizes of impulse responses: of a complex state, of a stored state's real response, of a system."""

import numpy as np

from ssmprune.core.norms import _bank_of_states, _bank_of_system, of_unit_size


def state_h2(system):
    """Return |C_i||B_i| / sqrt(1 - |pole_i|²) of every complex state alone (n,), the mean square over directions."""
    _bank_of_states(system)  # refuses unstable poles
    system, exponents = of_unit_size(system)
    gains = np.linalg.norm(system.C, axis=(0, 1)) * np.linalg.norm(system.B, axis=1) / np.sqrt(system.directions)
    return np.ldexp(gains / np.sqrt(-np.expm1(2 * system.log_poles.real)), exponents)


def pair_h2(system):
    """Return the H2 norm of every stored state's real response (n,)."""
    system, exponents = of_unit_size(system)
    return np.ldexp(np.sqrt(_energies(_bank_of_states(system))), exponents)


def h2(system):
    """Return the H2 norm of the real system, sqrt(Σ_k |h_k|²)."""
    if system.n == 0:
        return 0.0
    system, exponents = of_unit_size(system, together=True)
    return float(np.ldexp(np.sqrt(_energies(_bank_of_system(system)).sum()), exponents[0]))


def _energies(bank):
    """Return the squared H2 norm (g,) of every system, of the impulse response 2 Re z_k with z_k = Σ_i R_i λ_i^k.

    Its square is 2 (|z_k|² + Re z_k²), for any two states a geometric series in k. Forward and backward responses meet
    at lag 0 alone, and with a backward delay nowhere.
    """
    g, d, m = len(bank.C), bank.directions, bank.log_poles.shape[1] // 2
    kernels = -1 / np.expm1(bank.log_poles[:, :, None] + bank.log_poles[:, None, :m])  # conjugates in the second half
    C, B = bank.C.swapaxes(1, 2), bank.B.swapaxes(1, 2)
    grams = (C.conj() @ bank.C) * (bank.B.conj() @ B), (C @ bank.C) * (bank.B @ B)
    same, mixed = (gram.reshape(g, d, m, d, m) for gram in grams)
    total = np.einsum("gdidj,gij->g", same, kernels[:, m:]) + np.einsum("gdidj,gij->g", mixed, kernels[:, :m])
    if d == 2 and bank.backward_delay == 0:
        total += 2 * (same[:, 0, :, 1] + mixed[:, 0, :, 1]).sum(axis=(1, 2))
    return np.asarray(np.maximum(2 * total.real, 0), np.float64)
