"""What users call: builders, writer, query, session."""
