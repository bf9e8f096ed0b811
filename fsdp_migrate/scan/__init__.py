"""What the bytes of a file tell without being parsed: words, the names of torch that it may write, comments."""
