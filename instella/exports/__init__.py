"""A finished run in other people's formats: RO-Crate, CycloneDX, model card."""
