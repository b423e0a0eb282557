package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/quietcore/quietcore/e2e/bench/figures"
)

const (
	workDir       = "/run/bench"
	quietcorePath = "/usr/bin/quietcore"
	controlSocket = workDir + "/quietcore.sock"
	testSocket    = workDir + "/test.sock"
	listen        = "127.0.0.1:9464"
)

// daemon is `quietcore run` as a node has it.
type daemon struct {
	cmd *exec.Cmd
	log string
}

func startDaemon(socket string, more map[string]any) (*daemon, error) {
	// JSON is YAML. What is not said is as on any node.
	content := map[string]any{
		"apiVersion": "quietcore.dev/v1alpha1", "kind": "Configuration",
		"nri": map[string]any{"socket": socket}, "state": map[string]any{"dir": workDir + "/state"},
		"socket": controlSocket, "listen": listen,
	}
	maps.Copy(content, more)
	cfg, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(workDir, "config.yaml")
	if err := os.WriteFile(file, cfg, 0o644); err != nil {
		return nil, err
	}
	d := &daemon{log: filepath.Join(workDir, "quietcore.log")}
	out, err := os.Create(d.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	d.cmd = exec.Command(quietcorePath, "run", "--config", file, "--test-socket", testSocket)
	d.cmd.Stdout, d.cmd.Stderr = out, out
	return d, d.cmd.Start()
}

func (d *daemon) kill() {
	_ = d.cmd.Process.Kill() // it may have ended
	_ = d.cmd.Wait()
}

func (d *daemon) tail() string {
	text, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	const most = 3000
	return string(text[max(len(text)-most, 0):])
}

func over(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context,
		_, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", socket)
	}}}
}

func fetch(ctx context.Context, c *http.Client, method, url string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, text)
	}
	return text, err
}

// settled returns when the daemon has nothing left to write.
func (d *daemon) settled(ctx context.Context) error {
	client := over(controlSocket)
	defer client.CloseIdleConnections()
	return until(ctx, "the daemon is settled", func() (bool, error) {
		text, err := fetch(ctx, client, http.MethodGet, "http://daemon/v1/status", nil)
		if err != nil {
			return false, nil // not there yet
		}
		var status struct{ Settled, Connected, Synchronised bool }
		err = json.Unmarshal(text, &status)
		return status.Settled && status.Connected && status.Synchronised, err
	})
}

// audit makes the daemon look at every cgroup.
func (d *daemon) audit(ctx context.Context) error {
	client := over(testSocket)
	defer client.CloseIdleConnections()
	_, err := fetch(ctx, client, http.MethodPost, "http://daemon/event", []byte(`{"audit":{}}`))
	return err
}

// counted are the metrics that matter here.
type counted struct {
	figures.Operations
	timeouts, errors int // of systemd
	drift            int
}

func (a counted) minus(b counted) figures.Operations {
	return figures.Operations{Writes: a.Writes - b.Writes, Calls: a.Calls - b.Calls}
}

func (d *daemon) metrics(ctx context.Context) (counted, error) {
	text, err := fetch(ctx, http.DefaultClient, http.MethodGet, "http://"+listen+"/metrics", nil)
	if err != nil {
		return counted{}, err
	}
	return parseMetrics(text)
}

func parseMetrics(text []byte) (counted, error) {
	var c counted
	found := 0
	scan := bufio.NewScanner(bytes.NewReader(text))
	for scan.Scan() {
		name, value, _ := strings.Cut(scan.Text(), " ")
		family, labels, _ := strings.Cut(name, "{")
		var into []*int
		switch family {
		case "quietcore_cpuset_writes_total":
			if !strings.Contains(labels, `"mismatch"`) { // those were counted as writes already
				into = append(into, &c.Writes)
			}
		case "quietcore_systemd_calls_total":
			into = append(into, &c.Calls)
			if strings.Contains(labels, `"timeout"`) {
				into = append(into, &c.timeouts)
			}
			if strings.Contains(labels, `"error"`) {
				into = append(into, &c.errors)
			}
		case "quietcore_cpuset_drift_total":
			into = append(into, &c.drift)
		}
		if len(into) == 0 {
			continue
		}
		found++
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return c, fmt.Errorf("metric %s: %w", name, err)
		}
		for _, i := range into {
			*i += int(v)
		}
	}
	if found == 0 {
		return c, fmt.Errorf("the metrics have none of ours")
	}
	return c, scan.Err()
}

// cpu is the time on CPU of all the daemon's threads.
func (d *daemon) cpu() (time.Duration, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", d.cmd.Process.Pid))
	if err != nil || len(threads) == 0 {
		return 0, fmt.Errorf("the daemon has no threads: %w", err)
	}
	var sum time.Duration
	for _, t := range threads {
		text, err := readWord(t)
		if err != nil {
			return 0, err
		}
		ran, _, _ := strings.Cut(text, " ")
		ns, err := strconv.ParseInt(ran, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", t, err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// resting returns the daemon's CPU time once it does nothing any more but its tick.
func (d *daemon) resting(ctx context.Context) (time.Duration, error) {
	const calm, little = 400 * time.Millisecond, 2 * time.Millisecond
	before, err := d.cpu()
	if err != nil {
		return 0, err
	}
	for ctx.Err() == nil {
		time.Sleep(calm) // it is the length of the look, not a wait for something
		now, err := d.cpu()
		if err != nil {
			return 0, err
		}
		if now-before < little {
			return now, nil
		}
		before = now
	}
	return 0, ctx.Err()
}
