"""``python -m faultlines``, where the script ``faultlines`` is not on the path."""

from faultlines.cli import main

main()
