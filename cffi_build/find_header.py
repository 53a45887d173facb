"""Print the include folder of the distribution that holds a header: `find_header.py jaxlib a/b.h`."""

import sys
from importlib.metadata import PackageNotFoundError, files

distribution, header = sys.argv[1:]
try:
    paths = files(distribution) or []
except PackageNotFoundError:
    sys.exit(f"{distribution} is not installed")
for path in paths:
    if path.as_posix().endswith("/" + header):
        print(str(path.locate().resolve())[: -len(header)])
        break
else:
    sys.exit(f"{distribution} holds no {header}")
