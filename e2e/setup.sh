#!/bin/sh
# Installs what the virtual machines need on a Debian host. Does nothing when all
# is there, so that it can stand before every run.
exec "$(dirname "$0")/../hack/setup" qemu-system-x86 debootstrap
