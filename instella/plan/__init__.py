"""What a recipe costs, from its settings alone: pure arithmetic without torch."""
