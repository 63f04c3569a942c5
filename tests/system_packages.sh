#!/bin/sh
# Installs the system packages that the tests use, where root and apt-get are at hand. Elsewhere the tests that need
# a missing one are skipped, and pytest's summary names them.
set -u
missing=""
command -v "${CC:-cc}" >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
command -v objdump >/dev/null 2>&1 || missing="$missing binutils"
has_llvm_mca() {
    [ -n "${LLVM_MCA:-}" ] && return 0
    for version in 16 17 18 19 20 21 22; do command -v "llvm-mca-$version" >/dev/null 2>&1 && return 0; done
    # without a number in its name it may be too old
    major=$(llvm-mca --version 2>/dev/null | sed -n 's/.*LLVM version \([0-9]*\).*/\1/p')
    [ "${major:-0}" -ge 16 ]
}
has_llvm_mca || missing="$missing llvm-19"
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing:$missing"
    apt-get update -qq
    for package in $missing; do
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$package" ||
            echo "$package cannot be installed (the tests that need it are skipped)"
    done
else
    echo "missing system packages:$missing (the tests that need them are skipped)"
fi
exit 0
