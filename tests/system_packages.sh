#!/bin/sh
# Installs the system packages that the tests use, where root and apt-get are at hand. Elsewhere the tests that need
# a missing one are skipped, and pytest's summary names them.
set -u
missing=""
command -v "${CC:-cc}" >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
command -v objdump >/dev/null 2>&1 || missing="$missing binutils"
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing:$missing"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing
else
    echo "missing system packages:$missing (the tests that need them are skipped)"
fi
exit 0
