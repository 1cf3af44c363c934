"""All tests run in the numerics class of the tiny recipe, set before torch is imported."""

from instella import numerics

numerics.apply_environment("portable-x86")
