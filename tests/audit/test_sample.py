"""What is drawn, and what a sample proves."""

import random

from instella.audit.sample import Unit, caught, cheats, coverage, draw, needed


def test_published_sample_sizes() -> None:
    """Ateniese et al. 2007: of 10000 blocks, 1 % false, 300 find it with 95 %, 460 with 99 %."""
    assert 0.95 <= caught(10_000, 100, 300) < 0.96
    assert 0.99 <= caught(10_000, 100, 460) < 0.992
    assert needed(10_000, 100, 0.95) <= 300 and needed(10_000, 100, 0.99) <= 460


def test_the_formula_is_what_drawing_gives() -> None:
    chance = random.Random(1)
    total, false, sampled = 30, 4, 7
    hits = sum(
        bool({0, 1, 2, 3} & set(chance.sample(range(total), sampled))) for _ in range(20_000)
    )
    assert abs(hits / 20_000 - caught(total, false, sampled)) < 0.01


def test_edges() -> None:
    assert caught(10, 0, 5) == 0.0 and caught(10, 3, 0) == 0.0
    assert caught(10, 1, 10) == 1.0 and caught(10, 10, 1) == 1.0
    assert needed(10, 1, 0.95) == 10 and needed(1, 1, 0.95) == 1
    assert [item.units for item in cheats(100, 10)] == [1, 5, 10, 50]
    assert cheats(0, 0) == []
    for total in (7, 50):
        size = needed(total, 2, 0.9)
        assert caught(total, 2, size) >= 0.9 > caught(total, 2, size - 1)


def test_a_draw_depends_on_the_seed_alone() -> None:
    population = [Unit("a"), *(Unit("b", n, n + 1) for n in range(9))]
    assert draw(population, 4, 1) == draw(population, 4, 1) != draw(population, 4, 2)
    assert draw(population, 99, 1) == population
    assert len(set(draw(population, 4, 3))) == 4


def test_coverage_counts_a_replayed_prefix_once() -> None:
    population = [Unit("a"), Unit("b", 0, 4), Unit("b", 4, 8), Unit("b", 8, 10)]
    done = [Unit("b", 4, 8), Unit("b", 0, 4)]
    first = {done[0]: 0, done[1]: 0}
    found = coverage(population, done, {"b": 10}, first, {"a": 5.0, "b": 20.0})
    assert found.units == (4, 2) and found.stages == (2, 1)
    assert found.steps == (10, 8) and found.seconds == (25.0, 16.0)
    kept = coverage(population, [done[0]], {"b": 10}, {done[0]: 4}, {"b": 20.0})
    assert kept.steps == (10, 4)
