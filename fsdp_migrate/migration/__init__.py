"""What a migration takes: where a code base stands, and the steps in order. `reports/` shows it."""
