"""Extraction and grading of mathematical answers."""
