package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/quietcore/quietcore/internal/cli"
)

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// Help that cannot be written is an error, in the exit code too.
func TestHelpThatCannotBeWritten(t *testing.T) {
	for _, line := range []string{"", "--help", "help", "help cpi", "status --help", "config print --help",
		"--version"} {
		var errs strings.Builder
		code := run(t.Context(), strings.Fields(line), strings.NewReader(""), fullDisk{}, &errs)
		if code != cli.Failed || !strings.Contains(errs.String(), syscall.ENOSPC.Error()) {
			t.Errorf("quietcore %s: exit %d, %q", line, code, errs.String())
		}
		var out strings.Builder
		if code := run(t.Context(), strings.Fields(line), strings.NewReader(""), &out, &errs); code != 0 ||
			out.Len() == 0 {
			t.Errorf("quietcore %s: exit %d with room for %d bytes: %v", line, code, out.Len(), errs.String())
		}
	}
}
