"""`sumone train` as a script, for launchers:

accelerate launch --num_processes 8 scripts/train_grpo.py configs/paper.yaml [KEY=VALUE]...
"""

import sys

from sumone.cli import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]])
