package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/e2e/sampler/sweep"
)

func TestEveryChangeIsALine(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "cpuset.cpus.effective")
	write := func(cpus string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(cpus+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil { // never seen half written
			t.Fatal(err)
		}
	}
	write("0-7")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	in, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- watch(ctx, []string{dir}, out)
		out.Close()
	}()
	lines := bufio.NewScanner(in)
	began := time.Now().UnixNano()
	last := int64(0)
	for _, step := range []func(){func() {}, func() { write("2-7") }, func() { _ = os.Remove(file) }} {
		step()
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
		var c sweep.Change
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		text, _ := os.ReadFile(file) // gone: empty
		if c.CPUs.String() != strings.TrimSpace(string(text)) || c.At < began-int64(time.Hour) || c.At < last {
			t.Errorf("%+v, the file has %q", c, text)
		}
		last = c.At
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if watch(ctx, nil, io.Discard) == nil {
		t.Error("nothing to watch is no error")
	}
}
