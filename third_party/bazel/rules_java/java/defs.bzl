# SPDX-License-Identifier: Apache-2.0
"""The native Java rules that @bazel_tools//tools/jdk loads from @rules_java.

Bazel <= 6 registers the toolchains of that package in every workspace, and reads
it before any test, also when no Java is built.
"""

java_import = native.java_import
java_runtime = native.java_runtime
java_toolchain = native.java_toolchain
