# SPDX-License-Identifier: Apache-2.0
"""The native Python rules of Bazel <= 6 under the name that rules_python gives them.

Lets BUILD files load the rules from @rules_python, as Bazel >= 7 has it, and still
be used by an older Bazel without network access.
"""

py_binary = native.py_binary
py_library = native.py_library
py_test = native.py_test
