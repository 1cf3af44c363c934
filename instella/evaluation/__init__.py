"""Measures of a checkpoint, their intervals, and the table of results."""
