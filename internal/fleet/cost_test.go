package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// 500 daemons: how long the program takes, how much memory, and how much the API server is asked. The daemons share the
// processors with it.
//
//	go test ./internal/fleet -run '^$' -bench Program -benchtime 3x
func BenchmarkProgram(b *testing.B) {
	f, c := clusterOf(b, 500)
	program := built(b, "kubectl-quietcore")
	for _, args := range [][]string{{"status"}, {"map", "-o", "json"}, {"top"}, {"explain", "shop/nobody"},
		{"incidents"}, {"incidents", "top", "--victim", "web"}} {
		b.Run(strings.Join(args, "_"), func(b *testing.B) {
			before := f.all()
			var most cost
			for b.Loop() {
				c, out, err := run(b, exec.CommandContext(b.Context(), program, append([]string{"--kubeconfig",
					c.Kubeconfig}, args...)...))
				if err != nil && args[0] != "explain" {
					b.Fatalf("%v\n%.2000s", err, out)
				}
				most.resident, most.size = max(most.resident, c.resident), len(out)
				most.processor += c.processor
			}
			n := float64(b.N)
			for what, many := range f.all() {
				b.ReportMetric(float64(many-before[what])/n, what+"/op")
			}
			b.ReportMetric(most.resident, "MiB-resident")
			b.ReportMetric(most.processor/n, "cpu-s/op")
			b.ReportMetric(float64(most.size)/1e6, "MB-written")
		})
	}
}

// cost is what a program took: how long, MiB at most, seconds of CPU time, and how many bytes it wrote.
type cost struct {
	took                time.Duration
	resident, processor float64
	size                int
}

func run(t testing.TB, cmd *exec.Cmd) (c cost, out string, err error) {
	t.Helper()
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	peak := peakOf(cmd.Process.Pid, ended)
	err = cmd.Wait()
	c.took = time.Since(began)
	close(ended)
	c.resident, c.size = <-peak, text.Len()
	c.processor = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	return c, text.String(), err
}

// 500 daemons and the hub: how long its first round takes, its memory and its CPU time in so many rounds, and how long
// the page's numbers are.
//
//	go test ./internal/fleet -run '^$' -bench Hub -benchtime 1x
func BenchmarkHub(b *testing.B) {
	_, c := clusterOf(b, 500)
	program := built(b, "quietcore")
	for b.Loop() {
		h := runHub(b, program, c.Kubeconfig, 4, 15*time.Second)
		if h.silent > 0 {
			b.Fatalf("%d nodes did not answer", h.silent)
		}
		b.ReportMetric(h.took.Seconds(), "s-first-round")
		b.ReportMetric(h.resident, "MiB-resident")
		b.ReportMetric(h.processor/4, "cpu-s/round")
		b.ReportMetric(float64(h.size)/1e3, "kB-page")
	}
}

// hubCost is what a hub took: took is its first round, size the page's numbers. nodes are on its page, of which some
// are silent.
type hubCost struct {
	cost
	nodes, silent int
}

// runHub runs one for so many rounds.
func runHub(t testing.TB, program, kubeconfig string, rounds int, every time.Duration) (h hubCost) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "page.sock")
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	cmd := exec.CommandContext(t.Context(), program, "hub", "--kubeconfig", kubeconfig, "--listen", socket,
		"--every", every.String())
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	peak := peakOf(cmd.Process.Pid, ended)
	began := time.Now()
	var said struct {
		Rounds int
		Nodes  []struct{}
		Sums   struct{ Silent int }
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for said.Rounds < rounds {
		<-tick.C
		resp, err := client.Get("http://localhost/api/fleet")
		if err != nil {
			if peakNow(cmd.Process.Pid) == 0 {
				t.Fatalf("the hub has ended: %v\n%s", cmd.Wait(), complaints.String())
			}
			continue // it does not listen yet
		}
		text, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close(), json.Unmarshal(text, &said)); err != nil {
			t.Fatal(err)
		}
		if h.size = len(text); h.took == 0 && said.Rounds > 0 {
			h.took = time.Since(began)
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	close(ended)
	if err != nil {
		t.Fatal(err)
	}
	h.resident, h.nodes, h.silent = <-peak, len(said.Nodes), said.Sums.Silent
	h.processor = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	return h
}

// peakOf is how many MiB a process had at most, as last seen before it ended. What a parent is told at its end is the
// parent's own peak, if that was higher.
func peakOf(pid int, ended <-chan struct{}) <-chan float64 {
	peak := make(chan float64, 1)
	go func() {
		most := 0.0
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			most = max(most, peakNow(pid))
			select {
			case <-tick.C:
			case <-ended:
				peak <- most
				return
			}
		}
	}()
	return peak
}

// peakNow is how many MiB a process had at most; 0: it is not there any more.
func peakNow(pid int) (mib float64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	if _, err := fmt.Sscan(rest, &mib); err != nil {
		return 0
	}
	return mib / 1024
}

// built is one of our programs.
func built(t testing.TB, name string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../cmd/"+name)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}
