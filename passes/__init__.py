"""Rules over an Artifact. A rule is pure: it yields findings and settled obligations, and never prints."""
