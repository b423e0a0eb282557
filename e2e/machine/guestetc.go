package machine

import (
	"maps"
	"strings"

	"github.com/quietcore/quietcore/e2e/kubelet"
)

// guestEtc are the files of a guest that never change.
func guestEtc(kind Kind) map[string]string {
	files := map[string]string{
		"etc/hosts":       "127.0.0.1 localhost\n",
		"etc/resolv.conf": "",
		"etc/hostname":    "guest\n",
		"etc/profile":     "export PATH=" + guestPath + " PS1='guest# '\n",
	}
	maps.Copy(files, kind.Runtime.kit().etc(kind.Driver))
	own := busyboxEtc
	if kind.Driver == kubelet.Systemd {
		own = systemdEtc
	}
	maps.Copy(files, own)
	return files
}

const guestPath = "/usr/bin:/usr/sbin"

// busyboxEtc are those of a guest without systemd.
var busyboxEtc = map[string]string{
	"etc/passwd":     "root:x:0:0:root:/root:/bin/sh\n",
	"etc/group":      "root:x:0:\n",
	"etc/os-release": "NAME=guest\n",
	"etc/inittab":    inittab,
	"etc/ld.so.conf": "/usr/lib\n",
}

// systemdEtc are those of a guest with systemd. Its target wants nothing but what
// a test uses, so that the guest is there soon.
var systemdEtc = map[string]string{
	"etc/machine-id":                     "0123456789abcdef0123456789abcdef\n",
	"etc/systemd/system/" + guestTarget:  guestTargetUnit,
	"etc/systemd/system/agent.service":   agentUnit,
	"etc/systemd/system/console.service": consoleUnit,
	"etc/systemd/journald.conf":          "[Journal]\nStorage=volatile\nRuntimeMaxUse=16M\n",
}

const guestTarget = "guest.target"

const guestTargetUnit = `[Unit]
Description=What a test needs
Wants=agent.service console.service dbus.socket systemd-journald.service
AllowIsolate=yes
`

// agentCPUs are for the agent and what it starts, pods excepted: under emulation
// each further CPU that a Go program spreads over makes all of them slower.
const agentCPUs = "0-1"

// agentUnit: containerd and the daemon are the agent's children, as far from
// kubepods as on any node. They outlive it, and it may make cgroups of its own.
const agentUnit = `[Unit]
Description=The test host's agent
DefaultDependencies=no

[Service]
ExecStart=/usr/bin/agent
Environment=PATH=` + guestPath + ` HOME=/root
KillMode=process
Delegate=yes
AllowedCPUs=` + agentCPUs + `
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
`

// consoleUnit is the shell for a user who keeps the machine.
const consoleUnit = `[Unit]
Description=A shell on the console
DefaultDependencies=no

[Service]
ExecStart=/usr/bin/busybox sh -l
Environment=PATH=` + guestPath + ` HOME=/root TERM=linux
WorkingDirectory=/root
StandardInput=tty-force
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
Restart=always
RestartSec=0
KillMode=process
`

// masked are units that others ask for and that no test needs.
var masked = []string{
	"systemd-udevd.service", "systemd-udevd-control.socket", "systemd-udevd-kernel.socket",
	"systemd-udev-trigger.service",
	"systemd-logind.service", "systemd-tmpfiles-setup.service", "systemd-tmpfiles-setup-dev.service",
	"systemd-journal-flush.service",
	"systemd-remount-fs.service", "systemd-update-utmp.service", "systemd-random-seed.service", "tmp.mount",
}

func unitLinks() []tarFile {
	var links []tarFile
	for _, unit := range masked {
		links = append(links, tarFile{name: "etc/systemd/system/" + unit, link: "/dev/null"})
	}
	return links
}

// inittab: busybox init reaps orphans, which the shims leave behind. A shell
// waits on the console for a user who keeps the machine.
const inittab = `::respawn:/usr/bin/agent
ttyS0::askfirst:-/bin/sh
`

// moduleDir holds the kernel modules that initScript loads.
const moduleDir = "usr/share/modules"

// initScript is the first process. runc needs to pivot_root away from its root,
// which the kernel refuses on the initramfs itself; a bind mount of it over "/" is
// a mount like any other, and unlike switch_root it copies nothing.
const initScript = `#!/usr/bin/busybox sh
export PATH=/usr/bin:/usr/sbin
mount --bind / /newroot
cd /newroot
mount --move . /
exec chroot . /usr/bin/busybox sh /rc
`

// kernelFiles mounts what both kinds of guests need before their init runs and
// loads the modules of the agent's port. Moving a process between cgroups waits
// for every CPU without favordynmods, which is long under emulation; 5.10 lacks it.
//
// The kernel rewrites its scheduler's code when a node's first quota comes, and
// QEMU 7.2 with a thread for every CPU may go on with the code of that moment for
// ever: the guest hangs. So it is rewritten here, while nothing runs yet; 6.1 never
// takes it back when a cgroup goes with its quota.
var kernelFiles = `export PATH=/usr/bin:/usr/sbin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t cgroup2 -o favordynmods cgroup2 /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing
for m in ` + strings.Join(modules, " ") + `; do
    test ! -e /` + moduleDir + `/$m.ko || busybox insmod /` + moduleDir + `/$m.ko
done
echo +cpu > /sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/quota
echo '100000 100000' > /sys/fs/cgroup/quota/cpu.max
rmdir /sys/fs/cgroup/quota
echo -cpu > /sys/fs/cgroup/cgroup.subtree_control
`

// rcScript ends in the init of the guest.
func rcScript(driver kubelet.Driver, network bool) string {
	script := kernelFiles
	if network {
		script += networkScript
	}
	if driver == kubelet.Systemd {
		return script + "exec /usr/lib/systemd/systemd\n"
	}
	return script + busyboxRC
}

// busyboxRC does what systemd would.
const busyboxRC = `mkdir -p /dev/pts /dev/shm /dev/mqueue
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t mqueue mqueue /dev/mqueue
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
rm -rf /var/run
ln -s /run /var/run
echo '+cpuset +cpu +memory +pids' > /sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/system
echo ` + agentCPUs + ` > /sys/fs/cgroup/system/cpuset.cpus
echo $$ > /sys/fs/cgroup/system/cgroup.procs
hostname -F /etc/hostname
ifconfig lo 127.0.0.1 up
exec /usr/bin/init
`
