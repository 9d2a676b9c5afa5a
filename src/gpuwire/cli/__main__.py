"""`python -m gpuwire.cli`, for where the command itself is not on the path."""

import sys

from gpuwire.cli.main import main

sys.exit(main())
