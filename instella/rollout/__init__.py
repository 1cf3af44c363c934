"""Sampling of responses whose bits depend on nothing but their own prompt and stream."""
