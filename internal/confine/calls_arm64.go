package confine

import "golang.org/x/sys/unix"

// onlyHere is what this architecture alone has.
var onlyHere = arch{arch: unix.AUDIT_ARCH_AARCH64}
