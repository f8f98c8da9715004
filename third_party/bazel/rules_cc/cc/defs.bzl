# SPDX-License-Identifier: Apache-2.0
"""The native C++ rules that @bazel_tools loads from @rules_cc.

Bazel <= 6 reads its C++ toolchain, and the packages of its JDK and of its
launcher for Windows, before any test, also when all of them are in Python.
"""

cc_binary = native.cc_binary
cc_library = native.cc_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
