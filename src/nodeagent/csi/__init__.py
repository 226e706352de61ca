"""Storage drivers: how they make themselves known, and how they are called."""
