"""vLLM: the network in its terms, and greedy answers beside the kit's own.

``model`` and ``inside`` run in vLLM's environment (``./kit setup vllm``), the other modules in the
kit's.
"""
