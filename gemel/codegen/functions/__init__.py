"""Mathematical functions and conversions in instructions that all targets have."""
