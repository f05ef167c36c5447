"""``python -m faultlines.cli``."""

from faultlines.cli import main

main()
