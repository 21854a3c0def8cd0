"""Entry point of ``python -m hwgen.cli``, which runs the command line."""

import sys

from hwgen.cli.main import main

sys.exit(main())
