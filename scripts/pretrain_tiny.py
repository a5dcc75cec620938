"""Rebuild the tiny models and their data: python scripts/pretrain_tiny.py [configs/tiny.yaml]"""

import sys

from sumone.training.pretrain import main

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
