"""What an algorithm is written against, and the things that can run it."""
