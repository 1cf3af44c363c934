"""Sources, documents, tokenizer and token arrays."""
