#!/bin/sh
# Installs Debian's iproute2, whose ip and tc lay the cables of
# LocalCluster(bandwidth=…).
#
#   third_party/iproute2/install.sh
#
# Does so only if there is none and this is root with apt-get. Succeeds in any
# case: without iproute2 the tests of cables are skipped, and say so.
set -eu

PATH="$PATH:${SBIN:-/usr/sbin:/sbin}"  # Where others than root don't look.
if command -v ip >/dev/null && command -v tc >/dev/null; then
  exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "iproute2 is missing: installing Debian's."
  apt-get -qq update &&
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
      --no-install-recommends iproute2 >/dev/null || true
fi
if ! command -v tc >/dev/null; then
  echo "iproute2 is not installed and can't be: its tests are LEFT OUT." >&2
fi
