"""The neural graphics processing cluster (NGPC, ISCA 2023): what it would give, in numbers."""
