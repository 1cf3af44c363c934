"""Settings of a recipe, how they are read, and the graph they make."""
