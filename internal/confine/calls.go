//go:build amd64 || arm64

package confine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kind is what the daemon never does, by a word for people.
type kind struct {
	name  string
	calls []call
}

// call is one of the kernel's, by number, and what of it is allowed.
type call struct {
	nr      uint32
	allowed []form        // none: the call is denied whatever it asks for
	errno   syscall.Errno // of a denial; 0: EPERM
}

// form is a way to make a call: all of these arguments are so.
type form []argument

// argument says that the low 32 bits of an argument are is, of those bits that mask has.
type argument struct {
	n        uint32
	mask, is uint32
}

const all = 1<<32 - 1 // bits

// one is a form for each value of an argument.
func one(n uint32, values ...uint32) (forms []form) {
	for _, v := range values {
		forms = append(forms, form{{n, all, v}})
	}
	return forms
}

func denied(numbers ...uint32) (calls []call) {
	for _, nr := range numbers {
		calls = append(calls, call{nr: nr})
	}
	return calls
}

// cloneThread are the flags of a thread; cloneNamespaces those of a process of its own namespaces.
const (
	cloneThread     = unix.CLONE_THREAD
	cloneNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
)

// kinds are what a process with this ID is denied. counts says that it may count.
func kinds(pid uint32, counts bool) []kind {
	self := one(0, pid)
	list := []kind{
		{"programs", append(denied(onlyHere.programs...),
			call{nr: unix.SYS_EXECVE}, call{nr: unix.SYS_EXECVEAT},
			// A thread is all that is made. What clone3 asks for lies in memory, where no filter looks: it is not
			// there, as in a kernel of before.
			call{nr: unix.SYS_CLONE, allowed: []form{{{0, cloneThread | cloneNamespaces, cloneThread}}}},
			call{nr: unix.SYS_CLONE3, errno: syscall.ENOSYS})},
		{"other processes", append(denied(unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
			unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE, unix.SYS_KCMP, unix.SYS_PIDFD_OPEN,
			unix.SYS_PIDFD_GETFD, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_TKILL, unix.SYS_RT_SIGQUEUEINFO,
			unix.SYS_RT_TGSIGQUEUEINFO,
			unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES, unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETATTR,
			unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET),
			call{nr: unix.SYS_KILL, allowed: self}, call{nr: unix.SYS_TGKILL, allowed: self},
			call{nr: unix.SYS_PRLIMIT64, allowed: one(0, 0, pid)})},
		{"mounts and namespaces", denied(unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
			unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_FSOPEN, unix.SYS_FSCONFIG,
			unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_UNSHARE, unix.SYS_SETNS)},
		{"the kernel's code", denied(unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
			unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD)},
		{"the machine", append(denied(onlyHere.machine...), denied(unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF,
			unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SYSLOG, unix.SYS_VHANGUP,
			unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME,
			unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_PERSONALITY)...)},
		{"users", denied(unix.SYS_SETUID, unix.SYS_SETGID, unix.SYS_SETREUID, unix.SYS_SETREGID, unix.SYS_SETRESUID,
			unix.SYS_SETRESGID, unix.SYS_SETFSUID, unix.SYS_SETFSGID, unix.SYS_SETGROUPS, unix.SYS_CAPSET)},
		{"keys", denied(unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL)},
		{"rings and faults", denied(unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
			unix.SYS_IO_SETUP, unix.SYS_IO_SUBMIT, unix.SYS_USERFAULTFD, unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET,
			unix.SYS_REMAP_FILE_PAGES)},
		{"devices and files by handle", append(denied(onlyHere.devices...), denied(unix.SYS_MKNODAT,
			unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK)...)},
		{"other sockets", []call{{nr: unix.SYS_SOCKET, allowed: append(
			one(0, unix.AF_UNIX, unix.AF_INET, unix.AF_INET6),
			form{{0, all, unix.AF_NETLINK}, {2, all, unix.NETLINK_ROUTE}},
			form{{0, all, unix.AF_NETLINK}, {2, all, unix.NETLINK_KOBJECT_UEVENT}})}}},
	}
	if !counts {
		return append(list, kind{"counting", denied(unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN)})
	}
	// Programs and maps of its own; not those of others, by their IDs or a name in a file system.
	return append(list, kind{"others' programs in the kernel", []call{
		{nr: unix.SYS_BPF, allowed: one(0, unix.BPF_MAP_CREATE, unix.BPF_MAP_LOOKUP_ELEM, unix.BPF_MAP_UPDATE_ELEM,
			unix.BPF_MAP_DELETE_ELEM, unix.BPF_MAP_GET_NEXT_KEY, unix.BPF_PROG_LOAD, unix.BPF_PROG_TEST_RUN,
			unix.BPF_OBJ_GET_INFO_BY_FD, unix.BPF_RAW_TRACEPOINT_OPEN, unix.BPF_BTF_LOAD,
			unix.BPF_MAP_LOOKUP_AND_DELETE_ELEM, unix.BPF_MAP_FREEZE, unix.BPF_MAP_LOOKUP_BATCH,
			unix.BPF_MAP_LOOKUP_AND_DELETE_BATCH, unix.BPF_MAP_UPDATE_BATCH, unix.BPF_MAP_DELETE_BATCH,
			unix.BPF_LINK_CREATE, unix.BPF_PROG_BIND_MAP)},
		// A whole CPU, and no task.
		{nr: unix.SYS_PERF_EVENT_OPEN, allowed: one(1, all)}}})
}

// newest is the last call that this list was made with. What is newer is not there, as in a kernel of before: programs
// then do without.
const newest = unix.SYS_FILE_SETATTR

// Calls denies this process, all of its threads and for good, what the daemon never asks the kernel for: a denied call
// fails with EPERM. counts leaves it the calls of counting. It returns what is denied.
func Calls(counts bool) (names []string, err error) {
	list := kinds(uint32(os.Getpid()), counts)
	for i := range list {
		names = append(names, list[i].name)
	}
	filter := program(list)
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread() // the flag and the filter are of the same thread; the filter takes the flag to all others
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("no_new_privs: %w", err)
	}
	// Without the second flag kernels before 5.16 slow every thread down against a speculation that no secret of this
	// process invites. Kernels before 4.17 do not know it.
	if err = install(&prog, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW); errors.Is(err, syscall.EINVAL) {
		err = install(&prog, 0)
	}
	if err != nil {
		return nil, err
	}
	return names, nil
}

// install gives all threads a filter.
func install(prog *unix.SockFprog, flags uintptr) error {
	thread, _, errno := syscall.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC|flags, uintptr(unsafe.Pointer(prog)))
	switch {
	case errno == syscall.ENOSYS:
		return ErrNoFilter
	case errno != 0:
		return fmt.Errorf("seccomp: %w", errno)
	case thread != 0:
		return fmt.Errorf("seccomp: thread %d has a filter of its own", thread)
	}
	return nil
}

// Offsets in the kernel's struct seccomp_data. Both architectures have the low half of an argument first.
const (
	offNr, offArch = 0, 4
	offArgs        = 16
)

// program is the filter: the first rule that knows the call decides.
func program(list []kind) []unix.SockFilter {
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	jump := func(how uint16, k uint32, yes, no int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | how | unix.BPF_K, K: k, Jt: uint8(yes), Jf: uint8(no)}
	}
	answer := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	deny := func(errno syscall.Errno) unix.SockFilter { return answer(unix.SECCOMP_RET_ERRNO | uint32(errno)) }
	p := []unix.SockFilter{
		load(offArch), jump(unix.BPF_JEQ, onlyHere.arch, 1, 0), deny(syscall.EPERM),
		load(offNr), jump(unix.BPF_JGT, newest, 0, 1), deny(syscall.ENOSYS), // of amd64's second set of numbers too
	}
	for i := range list {
		for _, c := range list[i].calls {
			if c.errno == 0 {
				c.errno = syscall.EPERM
			}
			var decide []unix.SockFilter
			for _, f := range c.allowed {
				for n, a := range f {
					left := 3*(len(f)-n-1) + 1 // to the next form
					decide = append(decide, load(offArgs+8*a.n),
						unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: a.mask},
						jump(unix.BPF_JEQ, a.is, 0, left))
				}
				decide = append(decide, answer(unix.SECCOMP_RET_ALLOW))
			}
			decide = append(decide, deny(c.errno))
			p = append(append(p, jump(unix.BPF_JEQ, c.nr, 0, len(decide))), decide...)
		}
	}
	return append(p, answer(unix.SECCOMP_RET_ALLOW))
}

// arch is an architecture: its name in a filter, and the calls that no other has.
type arch struct {
	arch                       uint32
	programs, machine, devices []uint32
}
