"""All-reduce algorithms, one a file; importing this registers ours."""

from tf_cdops.algorithms import native  # noqa: F401
from tf_cdops.algorithms import rechd  # noqa: F401
from tf_cdops.algorithms import shuffle  # noqa: F401
from tf_cdops.algorithms import tree  # noqa: F401
from tf_cdops.algorithms import xring  # noqa: F401
