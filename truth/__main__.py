"""`python -m truth` is the command `truth`."""

import sys

from truth.cli import main

sys.exit(main())
