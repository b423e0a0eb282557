package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/quietcore/quietcore/internal/cmdtest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"quietcore": main})
}

// TestScripts plays testdata/*.txtar. `exits N quietcore …` runs the command
// and wants that exit code, since 1 and 2 mean different things.
func TestScripts(t *testing.T) {
	repo, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(e *testscript.Env) error {
			e.Setenv("REPO", repo)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": cmdtest.Exits, "eventually": eventually, "envsubst": envsubst,
		},
	})
}

// eventually repeats a command until it succeeds.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: eventually COMMAND [ARG...]")
	}
	const limit, pause = time.Minute, 20 * time.Millisecond
	for deadline := time.Now().Add(limit); ; time.Sleep(pause) {
		err := ts.Exec(args[0], args[1:]...)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no success within %v: %v", limit, err)
		}
	}
}

// envsubst replaces $WORK in files.
func envsubst(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("envsubst cannot be negated")
	}
	for _, name := range args {
		text := strings.ReplaceAll(ts.ReadFile(name), "$WORK", ts.Getenv("WORK"))
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o600))
	}
}
