"""Signed statements about a finished run, proofs of parts of it, and a search for secrets."""
