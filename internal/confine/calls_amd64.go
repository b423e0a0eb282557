package confine

import "golang.org/x/sys/unix"

// onlyHere is what this architecture alone has.
var onlyHere = arch{
	arch:     unix.AUDIT_ARCH_X86_64,
	programs: []uint32{unix.SYS_FORK, unix.SYS_VFORK},
	machine: []uint32{unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS_CREATE_MODULE,
		unix.SYS__SYSCTL, unix.SYS_NFSSERVCTL},
	devices: []uint32{unix.SYS_MKNOD},
}
