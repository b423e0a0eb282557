package serve

import (
	"net"
	"net/netip"
	"testing"
	"testing/fstest"
)

// The files as a pod behind a bridge has them.
const (
	routes = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	0101F40A	0003	0	0	0	00000000	0	0	0
eth0	0001F40A	00000000	0001	0	0	0	00FFFFFF	0	0	0
`
	routes6 = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 " +
		"fd000000000000000000000000000001 00000400 00000001 00000000 00000003     eth0\n" +
		"fd000000000000000000000000000000 40 00000000000000000000000000000000 00 " +
		"00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0\n"
)

func TestOwnAddresses(t *testing.T) {
	files := fstest.MapFS{"route": {Data: []byte(routes)}, "ipv6_route": {Data: []byte(routes6)}}
	interfaces := []net.Addr{&net.IPNet{IP: net.IPv4(10, 244, 1, 7), Mask: net.CIDRMask(24, 32)}}
	own := OwnAddresses(files, interfaces, []string{"192.168.0.4", " fd01::4", "nonsense", ""})
	for address, want := range map[string]bool{
		"127.0.0.1": true, "127.0.0.9": true, "::1": true, // loopback
		"10.244.1.1": true, "fd00::1": true, // gateways
		"10.244.1.7":  true,                                              // its own
		"192.168.0.4": true, "::ffff:192.168.0.4": true, "fd01::4": true, // named
		"0.0.0.0": false, "::": false, "10.244.1.2": false, "1.1.244.10": false, "192.168.0.5": false,
		"fd00::2": false,
	} {
		if got := own(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is the node's own: %t", address, got)
		}
	}
	if none := OwnAddresses(fstest.MapFS{}, nil, nil); none(netip.MustParseAddr("10.244.1.1")) ||
		!none(netip.MustParseAddr("127.0.0.1")) {
		t.Error("without files it is not loopback alone")
	}
}
