"""What there is to find in a workspace and what is to be done about it: findings and transactions, nothing written."""
