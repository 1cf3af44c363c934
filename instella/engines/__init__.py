"""Engines that are not the kit's own, made to do what a stage's settings say."""
