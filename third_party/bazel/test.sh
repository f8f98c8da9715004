#!/bin/sh
# Runs `bazel test //...` with the Python of a virtual environment.
#
#   third_party/bazel/test.sh VENV
#
# Installs Debian's Bazel if there is none and apt-get may be used; says so and
# succeeds if there is no Bazel to be had. Bazel's output stays in .bazel.
set -eu
cd "$(dirname "$0")/../.."

if ! command -v bazel >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Bazel is missing: installing Debian's bazel-bootstrap."
    apt-get -qq update &&
      DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
        --no-install-recommends bazel-bootstrap >/dev/null || true
  fi
  if ! command -v bazel >/dev/null; then
    echo "Bazel is not installed and can't be: its tests were LEFT OUT." >&2
    exit 0
  fi
fi

PATH="$PWD/$1/bin:$PATH"
export PATH
status=0
bazel --output_base="$PWD/.bazel" test \
  --repository_cache="$PWD/.bazel/repositories" --test_summary=terse \
  --noshow_progress //... || status=$?
bazel --output_base="$PWD/.bazel" shutdown
exit $status
