"""`python -m evolver`."""

from evolver.cli import main

main()
