"""What runs on the ranks: standard library and torch only, so that any interpreter with torch can run it by path."""
