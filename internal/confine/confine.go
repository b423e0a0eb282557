// Package confine takes from the running process what the daemon never does. The kernel holds it for all threads and
// until the process ends: [Writes] has it change files in a few folders alone and execute none, by Landlock
// (https://docs.kernel.org/userspace-api/landlock.html); [Calls] denies it what it never asks the kernel for, by
// seccomp (https://docs.kernel.org/userspace-api/seccomp_filter.html).
//
// Reading is not confined: kubelet replaces the files that the daemon reads, and Landlock knows folders, so that the
// whole of kubelet's directory would have to be allowed.
package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrUnsupported is why a process cannot be confined: a kernel before 5.13, one without Landlock in lsm=, or a program
// that is linked with C's threads, of which Go does not know.
var ErrUnsupported = errors.New("there is no Landlock (before Linux 5.13, or not in lsm=, or built with cgo)")

// ErrNoFilter is why calls are not denied: a kernel without seccomp filters, or an architecture whose numbers of calls
// are not known here.
var ErrNoFilter = errors.New("there are no seccomp filters (CONFIG_SECCOMP_FILTER, on amd64 and arm64)")

// handled is everything by which a file, a folder or a name is changed, and running one, as far as a version of
// Landlock's interface knows. Moving to another folder is always refused by the first one.
func handled(version int) uint64 {
	rights := uint64(unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM)
	if version >= 2 {
		rights |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if version >= 3 {
		rights |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	return rights
}

// Writes forbids this process to change files anywhere but below these folders, and to execute any, for good. It
// returns the folders that it allows: of one that is not there, the nearest above it that is.
func Writes(folders []string) ([]string, error) {
	version, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return nil, unsupported("landlock_create_ruleset", errno)
	}
	rights := handled(int(version))
	attr := unix.LandlockRulesetAttr{Handled_access_fs: rights}
	// The size is the first interface's, which has these rights alone.
	rules, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)),
		unsafe.Sizeof(attr.Handled_access_fs), 0)
	if errno != 0 {
		return nil, unsupported("landlock_create_ruleset", errno)
	}
	defer unix.Close(int(rules))
	allowed := existing(folders)
	for _, folder := range allowed {
		if err := allow(int(rules), folder, rights&^unix.LANDLOCK_ACCESS_FS_EXECUTE); err != nil {
			return nil, err
		}
	}
	if _, _, errno = syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return nil, unsupported("no_new_privs", errno)
	}
	if _, _, errno = syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0, 0); errno != 0 {
		return nil, unsupported("landlock_restrict_self", errno)
	}
	return allowed, nil
}

// allow adds a folder to the rules.
func allow(rules int, folder string, rights uint64) error {
	fd, err := unix.Open(folder, unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("landlock: %s: %w", folder, err)
	}
	defer unix.Close(fd)
	below := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := syscall.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&below)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("landlock_add_rule: %s: %w", folder, errno)
	}
	return nil
}

// MayCount says whether the process has the capabilities of counting, without which the kernel denies it anyway.
func MayCount() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return true
	}
	has := func(n int) bool { return data[n/32].Effective>>(n%32)&1 == 1 }
	return has(unix.CAP_SYS_ADMIN) || has(unix.CAP_BPF) && has(unix.CAP_PERFMON)
}

func unsupported(what string, errno syscall.Errno) error {
	if errno == syscall.ENOSYS || errno == syscall.EOPNOTSUPP {
		return ErrUnsupported
	}
	return fmt.Errorf("%s: %w", what, errno)
}

// existing are these folders, or of each that is not there the nearest above it, sorted.
func existing(folders []string) []string {
	var list []string
	for _, f := range folders {
		for f = filepath.Clean(f); ; f = filepath.Dir(f) {
			if _, err := os.Stat(f); !errors.Is(err, fs.ErrNotExist) || f == filepath.Dir(f) {
				break
			}
		}
		list = append(list, f)
	}
	slices.Sort(list)
	return slices.Compact(list)
}
