"""Takes a published checkpoint in as the artifact of a stage: copies, checks, records."""
