"""The commands that learn, predict and look for gaps."""
