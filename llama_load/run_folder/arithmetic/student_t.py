"""Student's t distribution: the only one of the package."""

from __future__ import annotations

import math
from functools import cache


def t_tail(t: float, freedom: float) -> float:
    """P(T > t) of Student's t distribution. t_tail(2.306, 8) = 0.025."""
    beyond = _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)
    half = 0.5 * beyond
    return half if t >= 0 else 1 - half


@cache
def t_quantile(probability: float, freedom: float) -> float:
    """The value that T exceeds with 1 - probability (0.5 or more).

    By Newton's method on `t_tail`, and bisection where a step would leave the bracket.
    t_quantile(0.975, 8) = 2.306.
    """
    beyond = 1 - probability
    low = 0.0
    high = 1.0
    while t_tail(high, freedom) > beyond and high < 1e12:
        low = high
        high *= 2

    t = low
    while high - low > 1e-9 * high:
        excess = t_tail(t, freedom) - beyond
        if excess > 0:
            low = t
        else:
            high = t
        step = excess / _density(t, freedom)
        if abs(step) <= 1e-9 * t:
            return t + step
        t += step
        if not low < t < high:
            t = (low + high) / 2
    return (low + high) / 2


def _density(t: float, freedom: float) -> float:
    half = (freedom + 1) / 2
    log_scale = math.lgamma(half) - math.lgamma(freedom / 2)
    log_power = half * math.log1p(t * t / freedom)
    return math.exp(log_scale - log_power) / math.sqrt(freedom * math.pi)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularized incomplete beta function I_x(a, b), by Lentz's continued fraction.

    Source: Abramowitz and Stegun 26.5.8; I_x(a, b) = 1 - I_(1-x)(b, a) where the fraction converges
    slowly.
    """
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)

    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    log_powers = a * math.log(x) + b * math.log1p(-x)
    front = math.exp(log_powers - log_beta) / a
    return front * _beta_fraction(x, a, b)


def _beta_fraction(x: float, a: float, b: float) -> float:
    tiny = 1e-300
    c = 1.0
    d = 1 - (a + b) * x / (a + 1)
    d = 1 / (d or tiny)
    fraction = d
    for m in range(1, 500):
        even = a + 2 * m
        even_term = m * (b - m) * x / ((even - 1) * even)
        odd_term = -(a + m) * (a + b + m) * x / (even * (even + 1))
        for term in (even_term, odd_term):
            d = 1 / ((1 + term * d) or tiny)
            c = (1 + term / c) or tiny
            fraction *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return fraction
