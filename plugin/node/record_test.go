package node

import (
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/policy"
)

// An event is one line of the log, however long a tenant makes it.
func TestTheTextOfAnEvent(t *testing.T) {
	at := time.Unix(1e9, 0)
	text := recordText(at, policy.PodRemoved{Sandbox: "sb-db"})
	if !strings.Contains(text, `"podRemoved"`) || !strings.Contains(text, "sb-db") || strings.Contains(text, "\n") {
		t.Errorf("a removal is %s", text)
	}
	p := lsr("long", 1000)
	p.Name = strings.Repeat("x", 1<<20)
	if n := len(recordText(at, policy.PodRun{Pod: p})); n < 1<<10 || n > 16<<10 {
		t.Errorf("a pod of a long name is %d bytes", n)
	}
	if text := recordText(at, policy.Reconfigured{}); text != "policy.Reconfigured" {
		t.Errorf("what has no record is %q", text)
	}
}
