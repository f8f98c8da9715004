#!/bin/sh
# Installs Debian's Chromium, in which the tests open the pages that
# `tf_cdops explain --html` writes.
#
#   third_party/chromium/install.sh
#
# Does so only if there is none and this is root with apt-get. Succeeds in any
# case: without Chromium those tests are skipped, and say so.
set -eu

if command -v chromium >/dev/null || command -v chromium-browser >/dev/null; then
  exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Chromium is missing: installing Debian's."
  apt-get -qq update &&
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
      --no-install-recommends chromium >/dev/null || true
fi
if ! command -v chromium >/dev/null; then
  echo "Chromium is not installed and can't be: its tests are LEFT OUT." >&2
fi
