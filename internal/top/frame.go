package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/policy"
)

// Frame is one table.
type Frame struct {
	At         time.Time    `json:"at"`
	Connected  bool         `json:"connected"`
	CPUs       int          `json:"cpus"`
	Usage      float64      `json:"usage"` // CPUs in use by all containers
	Pools      script.Pools `json:"pools"`
	CPI        control.CPI  `json:"cpi"`
	Containers []Row        `json:"containers"`
}

// Row is one container.
type Row struct {
	Namespace string          `json:"namespace"`
	Pod       string          `json:"pod"`
	Container string          `json:"container"`
	Class     policy.Class    `json:"class"`
	Pool      policy.PoolKind `json:"pool"`
	CPUs      string          `json:"cpus"`
	CapMilli  int64           `json:"capMilli,omitempty"`
	Lacks     string          `json:"lacks,omitempty"` // the resource, if it was disturbed lately
	// Throttled is why the detector throttles it now, if it does.
	Throttled string `json:"throttled,omitempty"`
	// Usage is CPUs in use since the table before; nil: not known.
	Usage *float64 `json:"usage"`
	control.Sample
}

// Compare makes a frame of two answers, the second later than the first. A
// container that was not in the first has no usage yet.
func Compare(before, now *control.Top) *Frame {
	was := make(map[string]*control.TopContainer, len(before.Containers))
	for i := range before.Containers {
		was[before.Containers[i].ID] = &before.Containers[i]
	}
	f := &Frame{At: now.At, Connected: now.Connected, CPUs: now.CPUs, Pools: now.Pools, CPI: now.CPI,
		Containers: make([]Row, 0, len(now.Containers))}
	for i := range now.Containers {
		c := &now.Containers[i]
		r := Row{
			Namespace: c.Namespace, Pod: c.Pod, Container: c.Container, Class: c.Class, Pool: c.Pool, CPUs: c.CPUs,
			CapMilli: c.CapMilli, Lacks: c.Lacks,
			Usage: usageOf(was[c.ID], c), Sample: c.Sample,
		}
		if c.Throttled != nil {
			r.Throttled = c.Throttled.Why
		}
		if r.Usage != nil {
			f.Usage += *r.Usage
		}
		f.Containers = append(f.Containers, r)
	}
	return f
}

func usageOf(before, now *control.TopContainer) *float64 {
	if before == nil || before.UsageSeconds == nil || now.UsageSeconds == nil {
		return nil
	}
	used, took := *now.UsageSeconds-*before.UsageSeconds, now.UsageAt-before.UsageAt
	if used < 0 || took <= 0 {
		return nil // another cgroup under the same name
	}
	used /= took
	return &used
}

// Key is a column to sort by.
type Key string

// Keys lists the columns in the order in which the key s goes through them.
func Keys() []Key { return []Key{"usage", "cpi", "mpki", "wait", "class", "name"} }

// Next is the key after this one.
func (k Key) Next() Key {
	all := Keys()
	return all[(slices.Index(all, k)+1)%len(all)]
}

func (k Key) previous() Key {
	all := Keys()
	return all[(slices.Index(all, k)+len(all)-1)%len(all)]
}

// chosen are the rows whose namespace, pod, container, class or pool has all words of a filter.
func (f *Frame) chosen(filter string) []*Row {
	words := strings.Fields(strings.ToLower(filter))
	rows := make([]*Row, 0, len(f.Containers))
	for i := range f.Containers {
		r := &f.Containers[i]
		text := strings.ToLower(r.name() + " " + string(r.Class) + " " + string(r.Pool))
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
			rows = append(rows, r)
		}
	}
	return rows
}

// Sort puts the rows in the order of a key: the largest first, what is not known
// last, equals by name.
func (f *Frame) Sort(k Key) {
	slices.SortStableFunc(f.Containers, func(a, b Row) int {
		return k.Compare(&a, &b)
	})
}

// Compare is the order of two rows.
func (k Key) Compare(a, b *Row) int { return cmp.Or(k.compare(a, b), cmp.Compare(a.name(), b.name())) }

func (k Key) compare(a, b *Row) int {
	switch k {
	case "usage":
		return larger(a.Usage, b.Usage)
	case "cpi":
		return larger(a.Sample.CPI, b.Sample.CPI)
	case "mpki":
		return larger(a.MPKI, b.MPKI)
	case "wait":
		return larger(a.Wait, b.Wait)
	case "class":
		return cmp.Compare(rank(a.Class), rank(b.Class))
	}
	return 0
}

func larger(a, b *float64) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return cmp.Compare(*b, *a)
}

func rank(c policy.Class) int {
	order := []policy.Class{policy.LSE, policy.LSR, policy.LS, policy.SYSTEM, policy.BE}
	if at := slices.Index(order, c); at >= 0 {
		return at
	}
	return len(order)
}

func (r *Row) name() string { return r.Namespace + "/" + r.Pod + "/" + r.Container }

// head is what stands above the table.
func (f *Frame) head() []string {
	connected := ""
	if !f.Connected {
		connected = "; not connected to the runtime: what is shown is what was known last"
	}
	return []string{
		fmt.Sprintf("quietcore top - %s, %s, %s, %.2f CPUs in use%s", f.At.Format(time.TimeOnly), count(f.CPUs, "CPU"),
			count(len(f.Containers), "container"), f.Usage, connected),
		"pools: " + f.pools(),
		"CPI: " + f.cpi(),
	}
}

func (f *Frame) pools() string {
	var parts []string
	for _, p := range []struct{ name, cpus string }{
		{"shared", f.Pools.Shared}, {"be", f.Pools.BE}, {"exclusive", f.Pools.Exclusive},
		{"reserved", f.Pools.Reserved},
	} {
		if p.cpus != "" {
			parts = append(parts, p.name+" "+p.cpus)
		}
	}
	return strings.Join(parts, ", ")
}

// cpi says what the columns of the last window are, or why they are empty.
func (f *Frame) cpi() string {
	c := &f.CPI
	if !c.Counting {
		if c.Mode == "off" && c.Why == "" {
			return "not counted: cpi.mode is off"
		}
		return "not counted: " + c.Why
	}
	text := fmt.Sprintf("windows of %s every %s", seconds(c.Window), seconds(c.Interval))
	switch {
	case c.Age == nil:
		text += fmt.Sprintf("; the first one's numbers come in %s", seconds(c.Next))
	case c.Dropped != "":
		text += fmt.Sprintf("; the last one was dropped: %s", c.Dropped)
	default:
		text += fmt.Sprintf(", the last one %s ago", seconds(*c.Age))
	}
	switch {
	case c.Why != "":
		text += "; " + c.Why
	case c.Reference:
		text += "; reference cycles"
	}
	if c.Watchlist != nil {
		text += "; " + c.Watchlist.String()
	}
	if c.Jobs != nil {
		text += "; " + c.Jobs.String()
	}
	return text
}

// seconds is a length of time for people.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d >= 10*time.Second {
		d = d.Round(time.Second)
	}
	return config.Duration(d.Round(100 * time.Millisecond)).String()
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
