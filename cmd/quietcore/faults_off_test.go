//go:build !quietcore_faults

package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/internal/cli"
)

// A production binary has neither the flags nor the code by which tests make the
// daemon fail. That the other one has the code shows that this looks for the right one.
func TestAProductionBinaryCannotBeMadeToFail(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--test-socket=x", "--fail-at=create.reply", "--test-late=1s"} {
		if code, _, errs := call("run", flag); code != cli.Wrong || !strings.Contains(errs, "unknown flag") {
			t.Errorf("run %s: exit %d, %s", flag, code, errs)
		}
	}
	const module = "github.com/quietcore/quietcore/"
	for tags, want := range map[string]bool{"": false, "quietcore_faults": true} {
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", tags, "-f",
			"{{$p := .ImportPath}}{{range .GoFiles}}{{$p}}/{{.}}\n{{end}}", ".")
		out, err := list.Output()
		if err != nil {
			t.Fatalf("go list -tags %q: %v", tags, err)
		}
		for _, file := range []string{"internal/faults/kill.go", "internal/faults/socket.go", "plugin/faults.go"} {
			if has := strings.Contains(string(out), module+file+"\n"); has != want {
				t.Errorf("the binary with the tags %q has %s: %t", tags, file, has)
			}
		}
	}
}
