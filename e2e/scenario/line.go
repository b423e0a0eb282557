package scenario

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Line is the state after one step.
type Line struct {
	Step       int               `json:"step"`
	Op         string            `json:"op"`
	Error      *Refusal          `json:"error"`
	Containers []ContainerState  `json:"containers"`
	Pools      map[string]string `json:"pools"`
	Changed    []string          `json:"changed"`
}

// Refusal is a case that was not admitted: a result, not a failure.
type Refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// ContainerState is one container in a Line. QuotaMilli -1 is "none".
type ContainerState struct {
	Pod        string `json:"pod"`
	Namespace  string `json:"namespace"`
	Container  string `json:"container"`
	Class      string `json:"class"`
	Pool       string `json:"pool"`
	CPUs       string `json:"cpus"`
	Mems       string `json:"mems"`
	Withheld   string `json:"withheld"`
	QuotaMilli int64  `json:"quotaMilli"`
	Shares     int64  `json:"shares"`
	Weight     int64  `json:"weight,omitempty"`
	CapMilli   *int64 `json:"capMilli"`
	Why        string `json:"why"`
}

func (c *ContainerState) key() string { return c.Namespace + "/" + c.Pod + "/" + c.Container }

// codes are all that a refusal can begin with.
var codes = []string{"InsufficientCPUs", "SMTAlignmentError", "TopologyAffinityError", "ExclusivityError", "InvalidRequest",
	"Unauthorized", "InvalidQoS", "InvalidAnnotation", "KubeletOwned"}

var refusalPattern = regexp.MustCompile(`(?s)\b(` + strings.Join(codes, "|") + `): (.*)$`)

// refusalOf finds our sentence in what the runtime made of it. Runtimes put
// their own words before a plugin's error; the code is ours. nil: not a refusal.
func refusalOf(err error) *Refusal {
	if err == nil {
		return nil
	}
	m := refusalPattern.FindStringSubmatch(err.Error())
	if m == nil {
		return nil
	}
	return &Refusal{Code: m[1], Message: strings.TrimSpace(m[2])}
}

// changed names the containers whose CPUs, memory nodes, quota or cap differ
// between two states; a new one differs from nothing.
func changed(before, after []ContainerState) []string {
	old := map[string]ContainerState{}
	for _, c := range before {
		old[c.key()] = c
	}
	names := []string{}
	for _, c := range after {
		o, known := old[c.key()]
		if !known || o.CPUs != c.CPUs || o.Mems != c.Mems || o.QuotaMilli != c.QuotaMilli || !sameCap(o.CapMilli, c.CapMilli) {
			names = append(names, c.key())
		}
	}
	slices.Sort(names)
	return names
}

func sameCap(a, b *int64) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// quotaMilli reads a cpu.max; several of them bound a container together.
func quotaMilli(files ...string) (int64, error) {
	least := int64(-1)
	for _, f := range files {
		fields := strings.Fields(f)
		if len(fields) == 0 || fields[0] == "max" {
			continue
		}
		if len(fields) != 2 {
			return 0, fmt.Errorf("cpu.max %q: want two fields", f)
		}
		quota, err1 := strconv.ParseInt(fields[0], 10, 64)
		period, err2 := strconv.ParseInt(fields[1], 10, 64)
		if err1 != nil || err2 != nil || period <= 0 {
			return 0, fmt.Errorf("cpu.max %q: not two numbers", f)
		}
		if milli := quota * 1000 / period; least < 0 || milli < least {
			least = milli
		}
	}
	return least, nil
}

// parseList reads the kernel's list format.
func parseList(list string) ([]int, error) {
	var out []int
	for _, part := range strings.Split(list, ",") {
		first, last, ranged := strings.Cut(strings.TrimSpace(part), "-")
		a, err := strconv.Atoi(first)
		if err != nil {
			return nil, fmt.Errorf("CPU list %q: %q is not a number", list, first)
		}
		b := a
		if ranged {
			if b, err = strconv.Atoi(last); err != nil {
				return nil, fmt.Errorf("CPU list %q: %q is not a number", list, last)
			}
		}
		if a < 0 || b < a || b > 1<<16 {
			return nil, fmt.Errorf("CPU list %q: range %d-%d is not possible", list, a, b)
		}
		for n := a; n <= b; n++ {
			out = append(out, n)
		}
	}
	return out, nil
}
