"""Facts that several rules share. Each module opens with why it exists and what it does not do."""
