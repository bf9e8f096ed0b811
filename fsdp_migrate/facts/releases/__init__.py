"""Which torch releases get to a place: version checks, `try/except` fallbacks, early exits, skipped tests."""
