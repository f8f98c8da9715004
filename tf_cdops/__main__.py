"""Runs the command line: `python -m tf_cdops COMMAND`."""

import sys

from tf_cdops.cli import main

if __name__ == "__main__":
  sys.exit(main.main())
