"""LLVM's assembly, as text, and what LLVM makes of it."""
