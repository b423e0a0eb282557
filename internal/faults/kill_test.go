package faults

import (
	"strconv"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/internal/failpoint"
)

func TestKillAtCountsPassings(t *testing.T) {
	for text, want := range map[string]int{"create.reply": 1, "create.reply:1": 1, "create.reply:3": 3} {
		passed, died := 0, 0
		at, err := KillAt(text, func() { died = passed })
		if err != nil {
			t.Fatal(err)
		}
		for passed = 1; passed <= 5; passed++ {
			at(failpoint.CreateReply)
			at(failpoint.RunReply)
		}
		if died != want {
			t.Errorf("%s: died at passing %d, want %d", text, died, want)
		}
	}
	for _, text := range []string{"", "nowhere", "create.reply:", "create.reply:0", "create.reply:-1",
		"create.reply:1:2", ":1"} {
		if _, err := KillAt(text, func() {}); err == nil {
			t.Errorf("%q is taken", text)
		} else if !strings.Contains(err.Error(), strconv.Quote(text)) &&
			!strings.Contains(err.Error(), "there is no point") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
