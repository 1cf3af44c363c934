"""GRPO by verl with vLLM and Ray: configuration, data, reward and model for verl 0.9.1.

``model``, ``reward`` and ``order`` are imported by verl in its own environment, which has
another transformers; the other modules run in the kit's.
"""

VERSION = "0.9.1"
