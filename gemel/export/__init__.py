"""Files of whole programs."""
