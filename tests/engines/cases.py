"""Inputs on which the kit's formulas and verl's are compared, nasty ones among them."""

import torch

ROWS, COLUMNS = 6, 9
LENGTHS = [7, 12, 3]

# Gold answer and response; the right verdicts are the grader's.
GRADED = [
    ("42", r"So \boxed{41}, no: \boxed{42}."),
    ("42", "The answer is 42."),
    (r"\frac{1}{2}", r"\boxed{0.5}"),
    ("3", r"\boxed{3"),
    ("3", r"\boxed{\boxed{3}}"),
    ("7", r"\boxed{9^{9^{9^{9}}}}"),
    # By computer algebra, whose parser has another ANTLR in verl's environment.
    (r"\frac{\sqrt{3}}{2}+x^2", r"\boxed{x^2 + \frac{\sqrt3}{2}}"),
    (r"\sqrt{8}", r"\boxed{2\sqrt{2}}"),
    (r"\sqrt{8}", r"\boxed{3\sqrt{2}}"),
    (r"(-\infty, 2) \cup (3, 5]", r"\boxed{(3, 5] \cup (-\infty, 2)}"),
    (r"y = 2x+3", r"\boxed{2x-y=-3}"),
    ("7", ""),
    ("x", r"\boxed{" + "{" * 60 + "x" + "}" * 60 + "}"),
]

GROUPS = {
    "mixed": [[1, 0, 0, 1, 0, 0, 0, 1], [1, 1, 1, 1, 1, 1, 1, 0], [0, 1, 0, 0, 0, 0, 0, 0]],
    "all_equal": [[1.0] * 8, [0.0] * 8],
    "pairs": [[1, 0], [0, 1]],
    "sixteen": [[float(n < k) for n in range(16)] for k in range(17)],
}


def rewards_of(name: str) -> torch.Tensor:
    """float32 [groups, n]."""
    return torch.tensor(GROUPS[name], dtype=torch.float32)


def random_ids() -> torch.Tensor:
    """int64 [3, 12]: rows whose first LENGTHS tokens count."""
    generator = torch.Generator().manual_seed(11)
    return torch.randint(2, 400, (len(LENGTHS), max(LENGTHS)), generator=generator)


def loss_cases() -> dict[str, torch.Tensor]:
    """``CASE.name`` to tensors: logprobs, old, reference, mask [rows, columns], advantages [rows],
    and normalizer, the response tokens."""
    found = {}
    for number, (name, (spread, drift, change)) in enumerate(CASES.items()):
        generator = torch.Generator().manual_seed(number)
        old = -torch.rand(ROWS, COLUMNS, generator=generator) * spread
        logprobs = old + torch.randn(ROWS, COLUMNS, generator=generator) * drift
        reference = old + torch.randn(ROWS, COLUMNS, generator=generator) * drift
        advantages = torch.randn(ROWS, generator=generator)
        lengths = torch.randint(1, COLUMNS + 1, (ROWS,), generator=generator)
        case = {
            "old": old, "logprobs": logprobs, "reference": reference, "advantages": advantages,
            "mask": torch.arange(COLUMNS)[None] < lengths[:, None],
        }  # fmt: skip
        change(case)
        case["normalizer"] = case["mask"].sum()
        found |= {f"{name}.{key}": value.clone() for key, value in case.items()}
    return found


def _nothing(case: dict[str, torch.Tensor]) -> None:
    pass


def _no_signal(case: dict[str, torch.Tensor]) -> None:
    case["advantages"].zero_()


def _empty(case: dict[str, torch.Tensor]) -> None:
    case["mask"][2] = False


def _overlong(case: dict[str, torch.Tensor]) -> None:
    case["mask"][:] = True


def _clipped(case: dict[str, torch.Tensor]) -> None:
    # Ratios far outside, on the side on which the clip acts.
    far = torch.where(case["advantages"] > 0, 3.0, -3.0)[:, None]
    case["logprobs"] = case["old"] + far


def _dual(case: dict[str, torch.Tensor]) -> None:
    case["advantages"] = -case["advantages"].abs()
    case["logprobs"] = case["old"] + 4.0


def _extreme(case: dict[str, torch.Tensor]) -> None:
    # Beyond +-20, where both sides cut the difference.
    case["logprobs"][0] = case["old"][0] + 60.0
    case["logprobs"][1] = case["old"][1] - 60.0


def _unmoved(case: dict[str, torch.Tensor]) -> None:
    case["logprobs"] = case["old"].clone()
    case["reference"] = case["old"].clone()


# Spread of the log-probabilities, how far they moved, and what is done to them then.
CASES = {
    "small": (4.0, 0.05, _nothing),
    "large": (20.0, 2.0, _nothing),
    "no_signal": (4.0, 0.5, _no_signal),
    "empty_response": (4.0, 0.5, _empty),
    "overlong": (4.0, 0.5, _overlong),
    "all_clipped": (4.0, 0.5, _clipped),
    "dual_clip": (4.0, 0.5, _dual),
    "extreme": (4.0, 0.5, _extreme),
    "unmoved": (4.0, 0.0, _unmoved),
}
