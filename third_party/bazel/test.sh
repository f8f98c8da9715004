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
# Two options keep all output in .bazel. Bazel 8 refuses the first, and then
# leaves a few empty folders in the user's cache; Debian's has no number.
set -- --output_base="$PWD/.bazel"
case "$(bazel --version)" in
  "bazel no_version" | "bazel "[4-7].*)
    set -- --output_user_root="$PWD/.bazel/user" "$@" ;;
esac
status=0
bazel "$@" test --test_summary=terse --noshow_progress //... || status=$?
bazel "$@" shutdown
exit $status
