package main

import (
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// allSeals are those by which runc knows that its binary cannot be written.
const allSeals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// sealRunc replaces runc by a link to a sealed copy in memory that is there as long
// as the returned file is open, as runc's own memfd-bind does for nodes that start
// many containers. Otherwise runc copies itself before each container, and each copy
// is new code that the emulator must translate anew: 0.9 of the 1.3 s of a start.
func sealRunc() (*os.File, error) {
	path, err := exec.LookPath("runc")
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("runc", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), path)
	if _, err := f.Write(data); err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, allSeals); err != nil {
		return nil, fmt.Errorf("seal a copy of %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return f, os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()), path)
}
