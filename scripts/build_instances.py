"""Make instances from transcripts: the same as `sumone data build`."""

import sys

from sumone.cli import main

main(["data", "build", *sys.argv[1:]])
