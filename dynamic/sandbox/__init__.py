"""Runs an untrusted candidate in a process of its own. Nothing of the candidate is ever imported by the grader."""
