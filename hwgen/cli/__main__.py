"""``python -m hwgen.cli``."""

import sys

from hwgen.cli.main import main

sys.exit(main())
