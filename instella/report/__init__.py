"""What a person sees of a run: the page, two runs side by side, and how far a run is."""
