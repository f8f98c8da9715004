#!/bin/sh
# Runs `bazel test //...` with the Python of a virtual environment.
#
#   third_party/bazel/test.sh VENV [all]
#
# Without "all" it leaves out the tests tagged "slow", which `make test` has run
# with pytest by then: twice they would take too long.
# Installs Debian's Bazel if there is none and this is root with apt-get; fails if
# there is no Bazel to be had: tests that nobody ran must not look like passed
# ones. `make test BAZEL=no` leaves this out. Bazel's output stays in .bazel.
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
    echo "Bazel must be installed for its tests, and it isn't; install it" \
      "(Debian has bazel-bootstrap), or leave them out: make test BAZEL=no" >&2
    exit 1
  fi
fi

PATH="$PWD/$1/bin:$PATH"
export PATH
left_out=-slow
if [ "${2-}" = all ]; then
  left_out=
fi
# Two options keep all output in .bazel. Bazel 8 refuses the first, and then
# leaves a few empty folders in the user's cache; Debian's has no number.
set -- --output_base="$PWD/.bazel"
case "$(bazel --version)" in
  "bazel no_version" | "bazel "[4-7].*)
    set -- --output_user_root="$PWD/.bazel/user" "$@" ;;
esac
status=0
bazel "$@" test --test_summary=terse --noshow_progress \
  --test_tag_filters="$left_out" //... || status=$?
bazel "$@" shutdown
exit $status
