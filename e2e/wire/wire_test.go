package wire

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFramesSurviveTheTrip(t *testing.T) {
	var buf bytes.Buffer
	sent := []Request{
		{ID: 1, Op: OpExec, Argv: []string{"echo", "a b"}, Stdin: []byte{0, 255, '\n'}},
		{ID: 2, Op: OpFiles, Files: []FileAction{{Do: FileWrite, Path: "/x", Data: []byte("y"), Mode: 0o600,
			Optional: true}}},
		{},
	}
	for _, r := range sent {
		if err := Write(&buf, r); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range sent {
		var got Request
		if err := Read(&buf, &got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	if err := Read(&buf, &Request{}); err != io.EOF {
		t.Errorf("after the last frame: %v, want io.EOF", err)
	}
}

func TestReadRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"absurd length": {"\xff\xff\xff\xff", "over the limit"},
		"cut short":     {"\x00\x00\x00\x05{}", "cut short"},
		"not JSON":      {"\x00\x00\x00\x02]]", "decode"},
	} {
		err := Read(strings.NewReader(tc.in), &Request{})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, tc.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02{}"))
	f.Add([]byte("\x00\x00\x00\x0d{\"op\":\"hello\"}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Request
		if len(data) >= 4 && data[0] > 0 {
			return // lengths over 16 MiB only test the allocator
		}
		if err := Read(bytes.NewReader(data), &r); err != nil {
			return
		}
		var buf bytes.Buffer
		if err := Write(&buf, r); err != nil {
			t.Fatalf("a decoded request does not encode: %v", err)
		}
	})
}
