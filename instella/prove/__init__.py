"""Runs a recipe under varied conditions, kills it, and compares what comes out."""
