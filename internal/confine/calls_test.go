//go:build amd64 || arm64

package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// neverCalled are the calls that are denied whatever they ask for, apart from those of one architecture. With nonsense
// as arguments each does nothing where it is not denied.
var neverCalled = map[string]uintptr{
	"execve": unix.SYS_EXECVE, "execveat": unix.SYS_EXECVEAT,
	"ptrace": unix.SYS_PTRACE, "process_vm_readv": unix.SYS_PROCESS_VM_READV,
	"process_vm_writev": unix.SYS_PROCESS_VM_WRITEV, "process_madvise": unix.SYS_PROCESS_MADVISE,
	"process_mrelease": unix.SYS_PROCESS_MRELEASE, "kcmp": unix.SYS_KCMP, "pidfd_open": unix.SYS_PIDFD_OPEN,
	"pidfd_getfd": unix.SYS_PIDFD_GETFD, "pidfd_send_signal": unix.SYS_PIDFD_SEND_SIGNAL, "tkill": unix.SYS_TKILL,
	"rt_sigqueueinfo": unix.SYS_RT_SIGQUEUEINFO, "rt_tgsigqueueinfo": unix.SYS_RT_TGSIGQUEUEINFO,
	"migrate_pages": unix.SYS_MIGRATE_PAGES, "move_pages": unix.SYS_MOVE_PAGES,
	"sched_setaffinity": unix.SYS_SCHED_SETAFFINITY, "sched_setattr": unix.SYS_SCHED_SETATTR,
	"sched_setparam": unix.SYS_SCHED_SETPARAM, "sched_setscheduler": unix.SYS_SCHED_SETSCHEDULER,
	"setpriority": unix.SYS_SETPRIORITY, "ioprio_set": unix.SYS_IOPRIO_SET,
	"mount": unix.SYS_MOUNT, "umount2": unix.SYS_UMOUNT2, "pivot_root": unix.SYS_PIVOT_ROOT, "chroot": unix.SYS_CHROOT,
	"move_mount": unix.SYS_MOVE_MOUNT, "open_tree": unix.SYS_OPEN_TREE, "open_tree_attr": unix.SYS_OPEN_TREE_ATTR,
	"fsopen": unix.SYS_FSOPEN, "fsconfig": unix.SYS_FSCONFIG, "fsmount": unix.SYS_FSMOUNT, "fspick": unix.SYS_FSPICK,
	"mount_setattr": unix.SYS_MOUNT_SETATTR, "unshare": unix.SYS_UNSHARE, "setns": unix.SYS_SETNS,
	"init_module": unix.SYS_INIT_MODULE, "finit_module": unix.SYS_FINIT_MODULE,
	"delete_module": unix.SYS_DELETE_MODULE, "kexec_load": unix.SYS_KEXEC_LOAD,
	"kexec_file_load": unix.SYS_KEXEC_FILE_LOAD, "reboot": unix.SYS_REBOOT, "swapon": unix.SYS_SWAPON,
	"swapoff": unix.SYS_SWAPOFF, "acct": unix.SYS_ACCT, "quotactl": unix.SYS_QUOTACTL,
	"quotactl_fd": unix.SYS_QUOTACTL_FD, "syslog": unix.SYS_SYSLOG, "vhangup": unix.SYS_VHANGUP,
	"settimeofday": unix.SYS_SETTIMEOFDAY, "clock_settime": unix.SYS_CLOCK_SETTIME, "adjtimex": unix.SYS_ADJTIMEX,
	"clock_adjtime": unix.SYS_CLOCK_ADJTIME, "sethostname": unix.SYS_SETHOSTNAME,
	"setdomainname": unix.SYS_SETDOMAINNAME, "personality": unix.SYS_PERSONALITY,
	"setuid": unix.SYS_SETUID, "setgid": unix.SYS_SETGID, "setreuid": unix.SYS_SETREUID, "setregid": unix.SYS_SETREGID,
	"setresuid": unix.SYS_SETRESUID, "setresgid": unix.SYS_SETRESGID, "setfsuid": unix.SYS_SETFSUID,
	"setfsgid": unix.SYS_SETFSGID, "setgroups": unix.SYS_SETGROUPS, "capset": unix.SYS_CAPSET,
	"add_key": unix.SYS_ADD_KEY, "request_key": unix.SYS_REQUEST_KEY, "keyctl": unix.SYS_KEYCTL,
	"io_uring_setup": unix.SYS_IO_URING_SETUP, "io_uring_enter": unix.SYS_IO_URING_ENTER,
	"io_uring_register": unix.SYS_IO_URING_REGISTER, "io_setup": unix.SYS_IO_SETUP, "io_submit": unix.SYS_IO_SUBMIT,
	"userfaultfd": unix.SYS_USERFAULTFD, "memfd_create": unix.SYS_MEMFD_CREATE, "memfd_secret": unix.SYS_MEMFD_SECRET,
	"remap_file_pages": unix.SYS_REMAP_FILE_PAGES, "mknodat": unix.SYS_MKNODAT,
	"open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT, "fanotify_init": unix.SYS_FANOTIFY_INIT,
	"fanotify_mark": unix.SYS_FANOTIFY_MARK,
}

// outright are all that are denied outright.
func outright(counts bool) map[string]uintptr {
	all := maps.Clone(neverCalled)
	maps.Copy(all, neverCalledHere)
	if !counts {
		all["bpf"], all["perf_event_open"] = unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN
	}
	return all
}

// report is what does not hold in the child.
type report struct {
	mu   sync.Mutex
	code int
}

func (r *report) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.code = 1
	fmt.Printf(format+"\n", args...)
}

// rawCall makes a call with these arguments; those that are left out are nonsense.
func rawCall(nr uintptr, args ...uintptr) syscall.Errno {
	all := [6]uintptr{^uintptr(0), ^uintptr(0), ^uintptr(0), ^uintptr(0), ^uintptr(0), ^uintptr(0)}
	copy(all[:], args)
	_, _, errno := syscall.Syscall6(nr, all[0], all[1], all[2], all[3], all[4], all[5])
	return errno
}

func (r *report) want(what string, got, want syscall.Errno) {
	if got != want {
		r.fail("%s: %v (%d), want %v", what, got, got, want)
	}
}

// allowed requires that the kernel looked at a call: it may find fault with it.
func (r *report) allowed(what string, got syscall.Errno) {
	if got == syscall.EPERM || got == syscall.ENOSYS {
		r.fail("%s is denied: %v", what, got)
	}
}

// filteredChild has its calls denied, and prints what does not hold.
func filteredChild(how string) int {
	r := &report{}
	counts := how == "counts"
	open := opened(r) // before, as the daemon has it
	before := 0       // what the kernel denies anyway
	for name, nr := range outright(counts) {
		if name != "vhangup" && name != "fork" && name != "vfork" && rawCall(nr) == syscall.EPERM {
			before++
		}
	}
	// Threads that run already are denied it, too.
	var begun, rest sync.WaitGroup
	hold := make(chan struct{})
	for range 4 {
		begun.Add(1)
		rest.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			begun.Done()
			<-hold
			r.want("keyctl on a thread that ran before", rawCall(unix.SYS_KEYCTL), syscall.EPERM)
		})
	}
	begun.Wait()
	names, err := Calls(counts)
	if err != nil {
		fmt.Println("not denied:", err)
		return 2
	}
	close(hold)
	rest.Wait()
	fmt.Printf("%d of %d calls were denied before; now %s\n", before, len(outright(counts)), strings.Join(names, ", "))
	for name, nr := range outright(counts) {
		if name != "fork" && name != "vfork" {
			r.want(name, rawCall(nr), syscall.EPERM)
		}
	}
	deniedByArgument(r, counts)
	stillWorks(r, open)
	if r.code == 0 { // a process that is not kept from being two would go on as two
		deniedProcesses(r)
	}
	return r.code
}

// deniedByArgument makes calls of which some are allowed.
func deniedByArgument(r *report, counts bool) {
	self, other, no := uintptr(os.Getpid()), uintptr(os.Getppid()), syscall.Errno(0)
	r.want("kill of itself", rawCall(unix.SYS_KILL, self, 0), no)
	r.want("kill of its parent", rawCall(unix.SYS_KILL, other, 0), syscall.EPERM)
	r.want("kill of all", rawCall(unix.SYS_KILL, ^uintptr(0), 0), syscall.EPERM)
	r.want("tgkill of its parent", rawCall(unix.SYS_TGKILL, other, other, 0), syscall.EPERM)
	r.want("limits of its parent", rawCall(unix.SYS_PRLIMIT64, other, unix.RLIMIT_NOFILE, 0, 0), syscall.EPERM)
	r.want("its own limits", rawCall(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, 0, 0), no)
	socket := func(family, protocol uintptr) syscall.Errno {
		fd, _, errno := syscall.Syscall(unix.SYS_SOCKET, family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
		if errno == 0 {
			_ = unix.Close(int(fd))
		}
		return errno
	}
	for _, protocol := range []uintptr{unix.NETLINK_ROUTE, unix.NETLINK_KOBJECT_UEVENT} {
		r.want(fmt.Sprint("netlink ", protocol), socket(unix.AF_NETLINK, protocol), no)
	}
	for _, protocol := range []uintptr{unix.NETLINK_NETFILTER, unix.NETLINK_XFRM, unix.NETLINK_AUDIT,
		unix.NETLINK_CRYPTO} {
		r.want(fmt.Sprint("netlink ", protocol), socket(unix.AF_NETLINK, protocol), syscall.EPERM)
	}
	for _, family := range []uintptr{unix.AF_PACKET, unix.AF_ALG, unix.AF_VSOCK, unix.AF_KEY, unix.AF_XDP,
		unix.AF_TIPC} {
		r.want(fmt.Sprint("socket family ", family), socket(family, 0), syscall.EPERM)
	}
	r.want("clone3", rawCall(unix.SYS_CLONE3), syscall.ENOSYS)
	r.want("a call that is newer", rawCall(newest+1), syscall.ENOSYS)
	r.want("a call that will be", rawCall(1<<30|unix.SYS_GETPID), syscall.ENOSYS)
	r.want("threads of other namespaces", rawCall(unix.SYS_CLONE, unix.CLONE_THREAD|unix.CLONE_NEWNET), syscall.EPERM)
	if !counts {
		return
	}
	for name, command := range map[string]uintptr{"pin": unix.BPF_OBJ_PIN, "get": unix.BPF_OBJ_GET,
		"program by ID": unix.BPF_PROG_GET_FD_BY_ID, "map by ID": unix.BPF_MAP_GET_FD_BY_ID,
		"attach": unix.BPF_PROG_ATTACH, "link by ID": unix.BPF_LINK_GET_FD_BY_ID, "detach": unix.BPF_LINK_DETACH} {
		r.want("bpf "+name, rawCall(unix.SYS_BPF, command), syscall.EPERM)
	}
	r.want("events of a task", rawCall(unix.SYS_PERF_EVENT_OPEN, 0, other), syscall.EPERM)
	if MayCount() {
		r.allowed("bpf", rawCall(unix.SYS_BPF, unix.BPF_PROG_LOAD))
		r.allowed("events of a CPU", rawCall(unix.SYS_PERF_EVENT_OPEN, ^uintptr(0), ^uintptr(0), 0))
	}
}

// deniedProcesses are the ways to make another process.
func deniedProcesses(r *report) {
	if err := execute("/proc/self/exe"); !errors.Is(err, fs.ErrPermission) {
		r.fail("executing is not denied: %v", err)
	}
	for name, nr := range neverCalledHere {
		if name != "fork" && name != "vfork" {
			continue
		}
		child, _, errno := syscall.RawSyscall(nr, 0, 0, 0)
		if errno == 0 && child == 0 {
			syscall.RawSyscall(unix.SYS_EXIT_GROUP, 9, 0, 0)
		}
		r.want(name, errno, syscall.EPERM)
	}
}

// signals has the process signal itself, which ends blocking calls of Go's too.
func signals(r *report) {
	got := make(chan os.Signal, 1)
	signal.Notify(got, syscall.SIGUSR1)
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		r.fail("a signal to itself: %v", err)
		return
	}
	<-got
}

// TestCalls: what the daemon never asks for is denied, on all threads, and what it does works.
func TestCalls(t *testing.T) {
	for _, how := range []string{"counts", "not"} {
		t.Run(how, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), filtered+"="+how)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			out, err := cmd.CombinedOutput()
			if strings.Contains(string(out), ErrNoFilter.Error()) && os.Getenv("QUIETCORE_CI") != "1" {
				t.Skip(ErrNoFilter)
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}

// TestEachDenialIsTried holds the lists of denials and of tries together.
func TestEachDenialIsTried(t *testing.T) {
	for _, counts := range []bool{true, false} {
		tried := map[uint32]string{}
		for name, nr := range outright(counts) {
			tried[uint32(nr)] = name
		}
		byArgument := []uint32{unix.SYS_CLONE, unix.SYS_CLONE3, unix.SYS_KILL, unix.SYS_TGKILL, unix.SYS_PRLIMIT64,
			unix.SYS_SOCKET}
		if counts {
			byArgument = append(byArgument, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN)
		}
		names := map[string]bool{}
		for _, k := range kinds(1, counts) {
			if names[k.name] {
				t.Errorf("%q is there twice", k.name)
			}
			names[k.name] = true
			for _, c := range k.calls {
				_, is := tried[c.nr]
				if is == slices.Contains(byArgument, c.nr) {
					t.Errorf("%s: call %d is not tried, or tried twice", k.name, c.nr)
				}
				delete(tried, c.nr)
			}
		}
		for _, name := range tried {
			t.Errorf("counts %v: %s is not denied", counts, name)
		}
		if n := len(program(kinds(1, counts))); n > unix.BPF_MAXINSNS {
			t.Errorf("the filter has %d instructions, more than the kernel takes", n)
		}
	}
}
