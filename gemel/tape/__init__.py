"""The tape: what was recorded, and how gradients go back through it."""
