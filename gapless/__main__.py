"""`python -m gapless` is `gapless`."""

import sys

from gapless.cli.main import main

sys.exit(main())
