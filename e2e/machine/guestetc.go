package machine

import "strings"

// ContainerdSocket is where the runtime of the guest serves CRI.
const ContainerdSocket = "/run/containerd/containerd.sock"

// guestEtc are the files of the guest that never change.
var guestEtc = map[string]string{
	"etc/passwd":                 "root:x:0:0:root:/root:/bin/sh\n",
	"etc/group":                  "root:x:0:\n",
	"etc/hosts":                  "127.0.0.1 localhost\n",
	"etc/resolv.conf":            "",
	"etc/hostname":               "guest\n",
	"etc/os-release":             "NAME=guest\n",
	"etc/inittab":                inittab,
	"etc/profile":                "export PATH=/usr/bin PS1='guest# '\n",
	"etc/containerd/config.toml": containerdConfig,
	"etc/ld.so.conf":             "/usr/lib\n",
}

// inittab: busybox init reaps orphans, which the shims leave behind. A shell
// waits on the console for whoever keeps the machine.
const inittab = `::respawn:/usr/bin/agent
ttyS0::askfirst:-/bin/sh
`

// initScript is the first process. runc needs to pivot_root away from its root,
// which the kernel refuses on the initramfs itself; a bind mount of it over "/" is
// a mount like any other, and unlike switch_root it copies nothing.
const initScript = `#!/bin/sh
export PATH=/usr/bin
mount --bind / /newroot
cd /newroot
mount --move . /
exec chroot . /bin/sh /rc
`

// rcScript prepares what systemd would: kernel file systems, controllers below
// the cgroup root, the modules of the agent's port.
var rcScript = `export PATH=/usr/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm /dev/mqueue
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t mqueue mqueue /dev/mqueue
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
rm -rf /var/run
ln -s /run /var/run
mount -t cgroup2 -o favordynmods cgroup2 /sys/fs/cgroup
echo '+cpuset +cpu +memory +pids' > /sys/fs/cgroup/cgroup.subtree_control
mount -t bpf bpf /sys/fs/bpf
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing
for m in ` + strings.Join(modules, " ") + `; do
    insmod /lib/modules/$m.ko
done
hostname -F /etc/hostname
ifconfig lo 127.0.0.1 up
exec /usr/bin/init
`

const containerdConfig = `version = 4

[debug]
  level = 'info'

[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'native'

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '` + Image + `'

[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
  snapshotter = 'native'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = false

[plugins.'io.containerd.nri.v1.nri']
  disable = false
  # Under emulation one cgroup write can take longer than the default of 2s.
  plugin_registration_timeout = '1m'
  plugin_request_timeout = '30s'
`
