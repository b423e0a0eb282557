package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/e2e/sampler/sweep"
	"github.com/quietcore/quietcore/e2e/wire"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/soak"
)

// What is measured, in this order, and by how much each may grow over all pods.
const (
	resident = iota
	heap
	goroutines
	descriptors
	mapEntries
	statusEntries
	metricSeries
	stateBytes
	holdingsCount
)

// newHoldings has for each the growth that is none. Memory is not asked for to the byte: Go returns it by spans of
// pages, and collects garbage when it likes. Connections come and go, each with a goroutine or two and a descriptor; so
// do services of the node, of which each has an entry in a BPF map. A label's value that was never counted before makes
// a series, and a file has numbers with more digits. What is in the status is of pods, and there is none.
func newHoldings() []*soak.Series {
	return []*soak.Series{
		resident:      {What: "bytes resident", More: 4 << 20},
		heap:          {What: "bytes of heap", More: 1 << 20},
		goroutines:    {What: "goroutines", More: 2},
		descriptors:   {What: "descriptors", More: 2},
		mapEntries:    {What: "entries of BPF maps", More: 2},
		statusEntries: {What: "entries of the status", More: 0},
		metricSeries:  {What: "series", More: 10},
		stateBytes:    {What: "bytes of state", More: 64},
	}
}

// holdings is what the daemon holds at one time.
type holdings [holdingsCount]float64

// measure waits until windows have passed in which no container was there, and measures.
func (s *soaking) measure(ctx context.Context) (*holdings, error) {
	if err := s.untilForgotten(ctx); err != nil {
		return nil, err
	}
	pid, err := s.daemonPID(ctx)
	if err != nil {
		return nil, err
	}
	if pid != s.pid {
		return nil, fmt.Errorf("the daemon was process %s and is %s: a leak ends with a life", s.pid, pid)
	}
	var m metricValues
	live, err := liveHeap(func() (float64, error) {
		var err error
		m, err = s.metrics(ctx)
		return m["go_memstats_heap_alloc_bytes"], err
	})
	if err != nil {
		return nil, err
	}
	h, err := s.held(ctx)
	if err != nil {
		return nil, err
	}
	h[heap], h[goroutines], h[metricSeries] = live, m["go_goroutines"], float64(len(m))
	text, err := s.node.ReadFile(ctx, "/proc/"+pid+"/status")
	if err != nil {
		return nil, err
	}
	memory, err := parseUsage(text)
	if err != nil {
		return nil, err
	}
	h[resident] = float64(memory.resident)
	// A daemon that has never had a pod has no state.
	state, err := s.node.Files(ctx, wire.FileAction{Do: wire.FileRead, Path: stateFile, Optional: true})
	if err != nil {
		return nil, err
	}
	h[stateBytes] = float64(len(state[0].Data))
	return h, nil
}

// held is what is known of the daemon at any time, also while pods run.
func (s *soaking) held(ctx context.Context) (*holdings, error) {
	status, err := s.settle(ctx)
	if err != nil {
		return nil, err
	}
	out, err := s.node.Exec(ctx, samplerPath, "held", s.pid)
	if err != nil {
		return nil, err
	}
	var is sweep.Held
	if err := json.Unmarshal([]byte(out.Stdout), &is); err != nil {
		return nil, fmt.Errorf("the sampler says %q: %w", out.Stdout, err)
	}
	if len(is.Entries) == 0 {
		return nil, errors.New("the daemon has no BPF map whose entries could be counted")
	}
	h := &holdings{descriptors: float64(is.Descriptors), statusEntries: float64(entriesOf(status))}
	for _, n := range is.Entries {
		h[mapEntries] += float64(n)
	}
	return h, nil
}

// entriesOf are those of all lists of a status that are about pods.
func entriesOf(s *control.Status) int {
	return len(s.Containers) + len(s.Owners) + len(s.Unannounced) + len(s.Short) + len(s.Waiting) + len(s.Claims) +
		len(s.Powers) + len(s.Throttled)
}

// look is in the middle of a wave.
func (s *soaking) look(ctx context.Context, rest *holdings) error {
	now, err := s.held(ctx)
	if err != nil {
		return err
	}
	s.looks[0]++
	if now[statusEntries] > rest[statusEntries] {
		s.looks[1]++
	}
	if now[mapEntries] > rest[mapEntries] {
		s.mapped++
	}
	return nil
}

// keep is what the daemon holds after so many pods.
func (s *soaking) keep(pods int, rest *holdings) {
	s.pods = append(s.pods, float64(pods))
	for i, one := range s.series {
		one.Add(rest[i])
	}
}

// nothingLeft fails while the runtime, the daemon's status or its state file has something of a pod.
func (s *soaking) nothingLeft(ctx context.Context) error {
	if err := s.node.Forget(ctx); err != nil {
		return err
	}
	status, err := s.settle(ctx)
	if err != nil {
		return err
	}
	left, text, err := s.remembered(ctx)
	if err != nil {
		return err
	}
	if n := entriesOf(status); n+left > 0 {
		return fmt.Errorf("all pods are gone; left are %d entries of the status, containers %+v, owners %+v, and %d "+
			"of the state file %s", n, status.Containers, status.Owners, left, text)
	}
	return nil
}

// untilForgotten waits for two windows: the first one may have begun while pods ran.
func (s *soaking) untilForgotten(ctx context.Context) error {
	first, err := s.windows(ctx)
	if err != nil {
		return err
	}
	return cluster.Until(ctx, soakRest, func(ctx context.Context) error {
		now, err := s.windows(ctx)
		if err == nil && now < first+2 {
			err = fmt.Errorf("there were %.0f windows of counting when the node was empty, and are %.0f", first, now)
		}
		return err
	})
}

func (s *soaking) windows(ctx context.Context) (float64, error) {
	m, err := s.metrics(ctx)
	return m.sum("quietcore_cpi_windows_total{"), err
}

// sandboxes is how many the daemon was asked for.
func (s *soaking) sandboxes(ctx context.Context) (float64, error) {
	m, err := s.metrics(ctx)
	return m[`quietcore_nri_requests_total{event="RunPodSandbox",result="ok"}`], err
}

const (
	// collectScrapes bounds how many times metrics are asked for until garbage is collected. Each leaves some.
	collectScrapes = 200
	// sweepScrapes is how many times they are asked for then: what was collected is freed bit by bit.
	sweepScrapes = 6
)

// liveHeap asks for the size of the heap until garbage has been collected, and returns the least that it was then.
func liveHeap(ask func() (float64, error)) (float64, error) {
	var was, least float64
	swept := 0
	for range collectScrapes {
		now, err := ask()
		switch {
		case err != nil:
			return 0, err
		case now == 0:
			return 0, errors.New("the daemon does not say how large its heap is")
		case now < was && (least == 0 || now < least):
			least = now
		}
		if least > 0 {
			swept++
		}
		if swept > sweepScrapes {
			return least, nil
		}
		was = now
	}
	return 0, fmt.Errorf("no garbage was collected during %d scrapes: %.0f bytes", collectScrapes, was)
}

// metrics are those of the daemon's socket.
func (s *soaking) metrics(ctx context.Context) (metricValues, error) {
	code, body, err := s.node.HTTP(ctx, daemonSocket, "GET", "/v1/metrics", nil)
	if err == nil && code != 200 {
		err = fmt.Errorf("the daemon's metrics: code %d: %.200s", code, body)
	}
	if err != nil {
		return nil, err
	}
	return parseMetrics(string(body))
}

// metricValues are by name and labels, as they are written.
type metricValues map[string]float64

func parseMetrics(text string) (metricValues, error) {
	m := metricValues{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if at < 0 {
			return nil, fmt.Errorf("a metric without a value: %q", line)
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		m[line[:at]] = v
	}
	if len(m) == 0 {
		return nil, errors.New("the daemon says no metric")
	}
	return m, nil
}

// sum is over all labels of a name.
func (m metricValues) sum(prefix string) (sum float64) {
	for series, v := range m {
		if strings.HasPrefix(series, prefix) {
			sum += v
		}
	}
	return sum
}

// daemonPID is the process of the daemon that runs as a service.
func (b *bench) daemonPID(ctx context.Context) (string, error) {
	out, err := b.node.Exec(ctx, "busybox", "pidof", "quietcore")
	pid := strings.TrimSpace(out.Stdout)
	if err == nil && len(strings.Fields(pid)) != 1 {
		err = fmt.Errorf("the daemon's processes are %q, want one", pid)
	}
	return pid, err
}

// stateFile is the daemon's.
const stateFile = "/var/lib/quietcore/state.json"

// remembered is of how many pods, owners and claims the daemon's state file has something.
func (b *bench) remembered(ctx context.Context) (n int, text string, err error) {
	text, err = b.node.ReadFile(ctx, stateFile)
	if err != nil {
		return 0, "", err
	}
	var file struct {
		Body struct{ Pods, Owners, Claims []any }
	}
	err = json.Unmarshal([]byte(text), &file)
	return len(file.Body.Pods) + len(file.Body.Owners) + len(file.Body.Claims), text, err
}
