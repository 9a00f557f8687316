"""``python -m cosmos_transfer`` is ``cosmos-transfer``."""

import sys

from cosmos_transfer.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
