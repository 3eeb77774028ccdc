"""What the compiler made: targets, artifacts, and readers for TTGIR, PTX and cubins. Knows no rule and no torch."""
