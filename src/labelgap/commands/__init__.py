"""The work of the commands; :mod:`labelgap.cli` declares their options."""
