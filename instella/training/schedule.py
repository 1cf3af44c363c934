"""Learning rate over the updates, in plain double arithmetic.

The two published trainers count differently (recipe facts I): the OLMo-style trainer
raises its step before it asks, so its first update uses step 1; the Hugging Face
schedule starts at step 0, so the first update of a warm-up has rate 0.
"""

from decimal import Decimal, localcontext

from instella.recipe.settings import Schedule

_PI = Decimal("3.14159265358979323846264338327950288419716939937510582")


def learning_rate(settings: Schedule, peak: float, step: int, total_steps: int) -> float:
    """Learning rate of one update.

    Args:
        settings: shape, warm-up and step counting.
        peak: learning rate after the warm-up.
        step: updates already done, so 0 for the first one.
        total_steps: updates of the whole run, warm-up included.
    """
    warmup = warmup_steps(settings, total_steps)
    if settings.style == "olmo":
        step += 1
        start = settings.warmup_start
    else:
        start = 0.0
    if step < warmup:
        low = peak * start
        return low + (peak - low) * (step / warmup)
    return _after_warmup(settings, peak, step - warmup, max(1, total_steps - warmup))


def warmup_steps(settings: Schedule, total_steps: int) -> int:
    """Updates of the warm-up; a ratio is cut to whole steps, as published."""
    if settings.warmup_ratio is None:
        return settings.warmup_steps
    return int(total_steps * settings.warmup_ratio)


def _after_warmup(settings: Schedule, peak: float, step: int, length: int) -> float:
    if settings.kind == "constant":
        return peak
    low = peak * settings.final_fraction
    if step >= length:
        return low
    if settings.kind == "linear":
        return low + (peak - low) * ((length - step) / length)
    return low + (peak - low) * ((1.0 + _cosine(step, length)) / 2.0)


def _cosine(step: int, length: int) -> float:
    """cos(pi * step / length), rounded from 50 digits.

    The C library's cosine differs in the last bit between its versions, and the rate
    reaches every weight.
    """
    with localcontext() as context:
        context.prec = 50
        # cos(pi x) = -cos(pi (1 - x)) keeps the argument below pi / 2
        mirrored = 2 * step > length
        angle = _PI * (length - step if mirrored else step) / length
        square = angle * angle
        total = term = Decimal(1)
        power = 0
        while abs(term) > Decimal("1e-45"):
            power += 2
            term = -term * square / (power * (power - 1))
            total += term
        return float(-total if mirrored else total)
