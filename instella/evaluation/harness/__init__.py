"""lm-evaluation-harness over our network; imported only in its own environment.

``./kit setup harness`` makes that environment and ``instella evaluation harness`` starts its
Python (``__main__.py``). Nothing here is imported by a stage.
"""
