"""How figures are taken, compared and kept."""
