"""Multi-label learning when labels have gaps."""
