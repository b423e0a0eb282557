package serve

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"io/fs"
	"net"
	"net/netip"
	"strings"
)

// OwnAddresses knows the addresses that connections from this node have: those of
// loopback, of the interfaces, of the gateways in the routing tables, and those named.
// A pod sees its node by one of the last two: network plugins differ in which.
//
// procNet is /proc/net. What cannot be read or parsed is left out.
func OwnAddresses(procNet fs.FS, interfaces []net.Addr, named []string) func(netip.Addr) bool {
	own := map[netip.Addr]bool{}
	for _, a := range interfaces {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own[p.Addr().Unmap().WithZone("")] = true
		}
	}
	for _, text := range named {
		if a, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil {
			own[a.Unmap().WithZone("")] = true
		}
	}
	const gateway, nextHop = 2, 4 // the columns
	for _, text := range column(procNet, "route", gateway) {
		if raw, err := hex.DecodeString(text); err == nil && len(raw) == 4 {
			// The kernel prints the four bytes as one number of the machine.
			a := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, binary.NativeEndian.Uint32(raw))))
			own[a] = true
		}
	}
	for _, text := range column(procNet, "ipv6_route", nextHop) {
		if raw, err := hex.DecodeString(text); err == nil && len(raw) == 16 {
			own[netip.AddrFrom16([16]byte(raw))] = true
		}
	}
	return func(a netip.Addr) bool {
		a = a.Unmap().WithZone("")
		return a.IsLoopback() || own[a] && !a.IsUnspecified() // which is how a route without gateway looks
	}
}

func column(procNet fs.FS, name string, n int) []string {
	f, err := procNet.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	var list []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > n {
			list = append(list, fields[n])
		}
	}
	return list
}
