"""TTT-Bench: four games on small boards, their solvers, new positions, and a grader."""
