"""Tests of sources, adapters, selection and contamination."""
