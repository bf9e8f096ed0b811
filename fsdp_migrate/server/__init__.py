"""The language server: what editors show of findings while code is typed."""
