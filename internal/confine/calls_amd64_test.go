package confine

import "golang.org/x/sys/unix"

var neverCalledHere = map[string]uintptr{
	"fork": unix.SYS_FORK, "vfork": unix.SYS_VFORK, "iopl": unix.SYS_IOPL, "ioperm": unix.SYS_IOPERM,
	"modify_ldt": unix.SYS_MODIFY_LDT, "uselib": unix.SYS_USELIB, "create_module": unix.SYS_CREATE_MODULE,
	"_sysctl": unix.SYS__SYSCTL, "nfsservctl": unix.SYS_NFSSERVCTL, "mknod": unix.SYS_MKNOD,
}
