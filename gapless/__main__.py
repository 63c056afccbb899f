"""`python -m gapless` is `gapless`."""

import sys

from gapless.launch import launch

sys.exit(launch())
