"""Measures gemel and other libraries: `python -m benchmarks NAME ...`, see README.md."""
