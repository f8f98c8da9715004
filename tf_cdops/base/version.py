"""The version of tf_cdops and the TensorFlow versions it works with.

setup.py and the import check both read this file, so it imports nothing.
"""

__version__ = "0.1.0"

# Oldest release the package works with; `make test-oldest` runs against it.
TENSORFLOW_OLDEST = "2.16"
# Newest release the whole test suite was run against. Newer ones are allowed.
TENSORFLOW_NEWEST_TESTED = "2.21"
