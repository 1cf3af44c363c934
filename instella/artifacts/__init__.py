"""Artifacts: identity, manifest, store, runner, journal. Knows nothing of training."""
