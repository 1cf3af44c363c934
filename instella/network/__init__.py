"""The network in plain torch: layers, products of each numerics class, checkpoints."""
