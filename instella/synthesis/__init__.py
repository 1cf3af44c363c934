"""Synthetic problems: a problem is abstracted, solved by a program, given new values, solved again.

The four steps are one stage each (``instella/stages/synthetic_*.py``). What thinks is a
*teacher* (``teacher.py``): a language model behind an endpoint, or fixed rules. Nothing a
teacher says is believed: replies are parsed strictly, programs run in a sandbox of three
layers (``language``: a small part of Python and nothing else; ``interpreter``: our own, with
every operation counted; ``confinement``: a process that may neither open, connect nor start
anything), and each step keeps only what its check confirms.
"""
