"""The share of requests that miss the objectives as a function of the rate.

log(share) = a + b rate, and where it meets a limit. Near its capacity the misses of an open loop
grow about exponentially with the rate. A probe's misses come in bursts, since a queue makes whole
rows of requests late: their variance is not that of a Poisson count, so it is estimated from the
scatter of the probes around the line (quasi-Poisson; a probe is a cluster).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_load.run_folder.arithmetic.student_t import t_quantile

CONFIDENCE = 0.95
STEPS = 50
LEAST_PROBES = 4
RIDGE = 1e-9  # keeps the matrix invertible where all misses are in one probe
MOST_LEVERAGE = 0.9
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Root:
    """The rate at which the line meets the limit, and its 95 % interval."""

    value: float
    low: float
    high: float


def root(
    rates: Sequence[float], misses: Sequence[int], counts: Sequence[int], limit: float
) -> Root | None:
    """The rate at which the share of misses is `limit`.

    None if the probes show no share that grows with the rate.

    root = (log(limit) - a) / b, with a t interval from the covariance C of a and b: the variance of
    the root is g'C g with g = -(1, root) / b. C comes from the probes' own deviations from the
    line, each enlarged by its leverage (jackknife, HC3), so that probes may scatter differently;
    where one dispersion for all gives more, that is used. Sources: McCullagh and Nelder,
    Generalized Linear Models, chapter 9; MacKinnon and White, Some heteroskedasticity-consistent
    covariance matrix estimators (1985).
    """
    if len(rates) < LEAST_PROBES:
        return None
    x = np.array(rates, dtype=np.float64)
    y = np.array(misses, dtype=np.float64)
    n = np.array(counts, dtype=np.float64)

    centre = float(x.mean())
    scale = float(x.std())
    if not scale > 0 or not y.sum() > 0:
        return None

    design = np.stack([np.ones(len(x)), (x - centre) / scale], axis=1)
    beta, covariances = _fit(design, y, n)
    if not beta[1] > 0 or not np.isfinite(covariances).all():
        return None

    offset = float(beta[0]) - math.log(limit)
    slope = float(beta[1])
    value = -offset / slope
    gradient = np.array([1.0, value]) / slope
    variance = max(
        float(gradient @ covariance @ gradient) for covariance in covariances
    )
    quantile = t_quantile(1 - (1 - CONFIDENCE) / 2, len(x) - 2)
    reach = quantile * math.sqrt(variance)

    low = centre + scale * (value - reach)
    high = centre + scale * (value + reach)
    return Root(centre + scale * value, low, high)


def _fit(design: Floats, y: Floats, n: Floats) -> tuple[Floats, tuple[Floats, Floats]]:
    """Coefficients by iteratively weighted least squares.

    With two estimates of their covariance: by probe, by one dispersion.
    """
    share = float(y.sum() / n.sum())
    beta = np.array([math.log(max(share, 1e-9)), 0.0])
    for _ in range(STEPS):
        mean = _expected(design, beta, n)
        step = np.linalg.solve(_information(design, mean), design.T @ (y - mean))
        beta = beta + np.clip(step, -2, 2)
        if float(np.abs(step).max()) < 1e-9:
            break

    mean = _expected(design, beta, n)
    bread: NDArray[Any] = np.linalg.inv(_information(design, mean))

    leverage = mean * ((design @ bread) * design).sum(axis=1)
    enlarged = (y - mean) / (1 - np.minimum(leverage, MOST_LEVERAGE))
    scores = design * enlarged[:, None]
    robust = bread @ (scores.T @ scores) @ bread

    squares = float(((y - mean) ** 2 / mean).sum())
    dispersion = max(1.0, squares / (len(y) - 2))

    return beta, (robust, dispersion * bread)


def _expected(design: Floats, beta: Floats, n: Floats) -> Floats:
    """The misses that the line gives each probe."""
    expected: Floats = n * np.exp(np.clip(design @ beta, -30, 5))
    return expected


def _information(design: Floats, mean: Floats) -> Floats:
    """Fisher's information of the coefficients."""
    information: Floats = design.T @ (mean[:, None] * design) + RIDGE * np.eye(2)
    return information
