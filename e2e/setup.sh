#!/bin/sh
# Installs what the virtual machines need on a Debian host. Does nothing when all
# is there, so that it can stand before every run. The compiler is for the one C
# program of CRI-O.
exec "$(dirname "$0")/../hack/setup" qemu-system-x86 debootstrap gcc libc6-dev
