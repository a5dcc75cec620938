"""`python -m sumone` is the command line."""

from sumone.cli import main

main()
