"""Names of the two logs that every stage that trains writes, one line a step."""

STEPS = "steps.jsonl"
"""Figures: loss, rate, tokens and the like."""
LEDGER = "steps.ledger.jsonl"
"""Digests: cursor, generators, figures and now and then every tensor."""
