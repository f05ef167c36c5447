"""The command line: words to calls of the library, results to files, verdicts to exit codes; no statistics."""

from faultlines.cli.run import main

__all__ = ["main"]
