package machine

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// The addresses of QEMU's user network as a guest sees them. The guest has no route
// to anywhere else, so what it sends ends on the host's loopback.
const (
	GuestAddress = "10.0.2.15"
	HostAddress  = "10.0.2.2"
)

// networkModules are what a card and the pods' own interfaces need in addition to the
// agent's port, in the order in which they depend on each other.
var networkModules = []string{"failover", "net_failover", "virtio_net", "veth"}

// networkScript is part of a guest's rc where it has a card.
var networkScript = `for m in ` + strings.Join(networkModules, " ") + `; do
    busybox insmod /` + moduleDir + `/$m.ko
done
busybox ip link set lo up
busybox ip address add ` + GuestAddress + `/24 dev eth0
busybox ip link set eth0 up
`

// networkArgs let the guest reach the host's loopback and, since it has no route
// and no resolver, nothing beyond.
func networkArgs(forward map[int]int) []string {
	net := "user,id=net,ipv6=off,hostname=guest"
	for here, there := range forward {
		net += fmt.Sprintf(",hostfwd=tcp:127.0.0.1:%d-:%d", here, there)
	}
	return []string{"-netdev", net, "-device", "virtio-net-pci,netdev=net,romfile="}
}

// addNetwork makes the modules of a card part of the guest's files.
func addNetwork(ctx context.Context, o *Options, assets *Assets) error {
	dir, err := locked(o.Cache, o.Progress, func(b *builder) (string, error) {
		return b.network(ctx, filepath.Base(filepath.Dir(assets.Kernel)))
	})
	if err != nil {
		return err
	}
	files := map[string]string{}
	for _, m := range networkModules {
		files[moduleDir+"/"+m+".ko"] = filepath.Join(dir, m+".ko")
	}
	maps.Copy(files, o.Files)
	o.Files = files
	return nil
}

// network asks for the package of the cached kernel again: modules of another one
// would not load.
func (b *builder) network(ctx context.Context, kernel string) (string, error) {
	return b.once("network-"+kernel, func(tmp string) error {
		b.say("download the network modules of %s", kernel)
		if err := b.download(ctx, tmp, kernel); err != nil {
			return err
		}
		tree := filepath.Join(tmp, "tree")
		defer os.RemoveAll(tree)
		if err := extractAll(ctx, tmp, tree); err != nil {
			return err
		}
		return pickModules(tree, tmp, networkModules)
	})
}

// Once makes a directory of the cache that a program needs in addition to the machines'
// own parts: fill writes into a temporary one. Two runs at once wait for each other.
func Once(cache, name string, fill func(tmp string) error) (string, error) {
	return locked(cache, io.Discard, func(b *builder) (string, error) { return b.once(name, fill) })
}
