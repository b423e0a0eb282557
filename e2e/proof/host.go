package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/quietcore/quietcore/e2e/machine"
)

// errNoisy says that others had the host's CPUs for too long to conclude anything.
var errNoisy = errors.New("others had the host's CPUs")

// errUnseen says that what was waited for did not happen in time, errInnocent that somebody else was blamed. On a host
// that others may use each is one case of several, and the proof may try once more: a detector that is broken fails
// twice.
var (
	errUnseen   = errors.New("not seen")
	errInnocent = errors.New("innocent and capped")
)

// tries bounds the restarts because of that.
const tries = 3

// unlessNoisy begins a proof anew where others had the host's CPUs.
func unlessNoisy(ctx context.Context, n *node, run func(context.Context, *node) ([]figure, error)) ([]figure, error) {
	failed := false
	for try := 1; ; try++ {
		figures, err := run(ctx, n)
		switch {
		case !anew(err, n.options.unlessNoisy && !failed):
			return figures, err
		case try < tries:
			failed = failed || !errors.Is(err, errNoisy)
			fmt.Fprintf(n.stderr, "  begun anew: %v\n", err)
			if err := n.Clean(ctx); err != nil {
				return figures, err
			}
		case n.options.unlessNoisy:
			return append(figures, figure{Name: "NOT SHOWN", Value: err.Error()}), nil
		default:
			return figures, err
		}
	}
}

// anew says whether err may be the host's fault: it is by what was measured, or the detector has a first failure free.
func anew(err error, free bool) bool {
	return errors.Is(err, errNoisy) || free && (errors.Is(err, errUnseen) || errors.Is(err, errInnocent))
}

// taken is the share of the host's CPU time that its hypervisor took, and that other programs used.
type taken struct{ stolen, others float64 }

// mostOthers bounds what others may use in a usable window, the proof itself included.
const mostOthers = 0.1

func (t taken) much() bool { return t.stolen > mostStolen || t.others > mostOthers }

// mostStolen bounds the loss of a usable window: an emulated machine suffers several
// times what its host does.
const mostStolen = 0.04

// host is where the machine runs: the jiffies of its CPUs so far, and those of the machine among
// the busy ones.
type host struct{ stolen, busy, machine, total float64 }

// since is what was taken from the machine since the last call.
func (h *host) since(m *machine.Machine) (taken, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return taken{}, err
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	now, err := hostOf(line)
	if err != nil {
		return taken{}, fmt.Errorf("/proc/stat: %q: %w", line, err)
	}
	if now.machine, err = m.Jiffies(); err != nil {
		return taken{}, err
	}
	was := *h
	*h = now
	total := max(now.total-was.total, 1)
	return taken{
		stolen: (now.stolen - was.stolen) / total,
		others: max(now.busy-was.busy-(now.machine-was.machine), 0) / total,
	}, nil
}

// The fields of a line of /proc/stat (proc(5)) that are not work of the host, and the one for
// what the hypervisor gave to others; guest time after it is in user time already.
const (
	idleField   = 4
	iowaitField = 5
	stealField  = 8
)

func hostOf(line string) (h host, err error) {
	for i, word := range strings.Fields(line) {
		if i == 0 || i > stealField {
			continue
		}
		v, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return host{}, err
		}
		h.total += v
		switch i {
		case stealField:
			h.stolen = v
		case idleField, iowaitField:
		default:
			h.busy += v
		}
	}
	return h, nil
}
