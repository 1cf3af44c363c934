"""Checks of finished runs by somebody who trusts nothing, and where two runs part."""
