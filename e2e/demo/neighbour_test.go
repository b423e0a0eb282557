package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// What the demo says of the recording.
func TestNeighbour(t *testing.T) {
	t.Chdir("../..")
	var out bytes.Buffer
	d := &demo{out: &out, began: time.Now()}
	if err := d.neighbour(); err != nil {
		t.Fatal(err)
	}
	const want = `        after 95 s web-0 is slow: 11.6, where up to 4.4 is normal
          batch    score 0.60, confidence 0.99
          steady   score 0.04, confidence 0.00
          periodic score 0.57, confidence 0.00
        batch would be throttled: batch (batch) scores 0.73 over 32 samples, contrast 1.00, confidence 0.99
`
	if _, text, _ := strings.Cut(out.String(), "\n"); text != want {
		t.Errorf("%s\nwant\n%s", text, want)
	}
}
