#!/bin/sh
# Installs what the virtual machines need on a Debian host. Does nothing when all
# is there, so that it can stand before every run.
set -eu
packages="qemu-system-x86 debootstrap"
missing=""
for p in $packages; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
if [ -z "$missing" ]; then
    exit 0
fi
echo "e2e: installing$missing" >&2
sudo=""
[ "$(id -u)" = 0 ] || sudo="sudo"
$sudo apt-get update -qq >&2
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
