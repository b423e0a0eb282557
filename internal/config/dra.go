package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
)

// DRA says what of the node's CPUs is offered to ResourceClaims, by a driver of our own.
type DRA struct {
	Mode    DRAMode    `json:"mode"`
	Devices DRADevices `json:"devices"`
	Share   Share      `json:"share"` // what claims may have in all
	// ListAttributes publishes attributes that are lists, of which the API server must know.
	ListAttributes bool `json:"listAttributes"`
	// NodeAllocatable publishes that a claim's CPUs are some of the node's allocatable ones (KEP-5517).
	NodeAllocatable bool `json:"nodeAllocatable"`

	PluginDir   string `json:"pluginDir"`   // of our socket; kubelet has it by the same path
	RegistryDir string `json:"registryDir"` // where kubelet looks for plugins
}

func defaultDRA() DRA {
	return DRA{Mode: DRAOff, Devices: DevicesNUMA, Share: "50%",
		PluginDir:   "/var/lib/kubelet/plugins/cpu.quietcore.dev",
		RegistryDir: "/var/lib/kubelet/plugins_registry"}
}

// DRAMode is whether there is a driver, DRADevices what one device of it is.
type (
	DRAMode    string
	DRADevices string
)

const (
	DRAOff        DRAMode    = "off"
	DRAOn         DRAMode    = "on"
	DevicesNUMA   DRADevices = "numa"
	DevicesL3     DRADevices = "l3"
	DevicesSocket DRADevices = "socket"
)

func (v *DRAMode) UnmarshalText(text []byte) error { return setWord(v, text, DRAOff, DRAOn) }
func (v *DRADevices) UnmarshalText(text []byte) error {
	return setWord(v, text, DevicesNUMA, DevicesL3, DevicesSocket)
}

// Share is a part of the node's CPUs: "16" of them, "50%", or ShareDynamic.
type Share string

// ShareDynamic is what owners by annotation and kubelet leave, now.
const ShareDynamic Share = "dynamic"

// Of is the share of n CPUs.
func (s Share) Of(n int) int {
	if s == ShareDynamic {
		return n
	}
	number, percent := strings.CutSuffix(string(s), "%")
	part, _ := strconv.Atoi(number) // it was validated
	if percent {
		part = n * part / 100
	}
	return min(part, n)
}

// UnmarshalText reads a number of CPUs, a percentage, or the word.
func (s *Share) UnmarshalText(text []byte) error {
	if Share(text) == ShareDynamic {
		*s = ShareDynamic
		return nil
	}
	number, percent := strings.CutSuffix(string(text), "%")
	n, err := strconv.ParseUint(number, 10, 16)
	most := uint64(cpuset.MaxCPUs)
	if percent {
		most = 100
	}
	if err != nil || n < 1 || n > most || strconv.FormatUint(n, 10) != number {
		return fmt.Errorf("is %s, must be a number of CPUs such as \"16\", a share of the node such as \"50%%\", or "+
			"\"dynamic\"",
			quote(string(text)))
	}
	*s = Share(text)
	return nil
}

func (v *checker) dra(d *DRA) {
	if d.Share == ShareDynamic && !d.NodeAllocatable {
		v.fail("dra.share", "is \"dynamic\", which needs dra.nodeAllocatable: true; else kube-scheduler counts the "+
			"same CPUs for pods and for claims, and nodes refuse what it placed")
	}
	const longest = "/cpu.quietcore.dev-reg.sock"
	for _, l := range []struct{ key, dir string }{
		{"dra.pluginDir", d.PluginDir}, {"dra.registryDir", d.RegistryDir},
	} {
		v.path(l.key, l.dir)
		if len(l.dir)+len(longest) > maxSocketPath {
			v.fail(l.key, "is %d bytes long; with a socket in it, a Unix socket's path has at most %d", len(l.dir),
				maxSocketPath)
		}
	}
}
