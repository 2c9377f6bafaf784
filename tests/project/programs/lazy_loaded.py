import sys

import goloop

goloop.run  # noqa: B018
print(*sorted(name for name in sys.modules if name.startswith("goloop")))
