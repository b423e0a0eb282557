package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/quietcore/quietcore/hack/image/build"
)

const govulncheck = "golang.org/x/vuln/cmd/govulncheck@v1.8.0"

var errUnreachable = errors.New("the database of vulnerabilities does not answer, so nothing was checked")

// vulncheckCommand runs govulncheck. It must not pass for want of a database, unless it
// says so first, and then it says so.
func vulncheckCommand(ctx context.Context, args []string, out io.Writer) error {
	flags, source := flagsOf("vulncheck")
	database := flags.String("db", os.Getenv("GOVULNDB"),
		"the database, such as file:///srv/vulndb; by default $GOVULNDB, else govulncheck's own")
	unreachable := flags.Bool("unreachable-ok", false, "succeed, and say so, where the database does not answer")
	if err := parse(flags, args); err != nil {
		return err
	}
	err := vulncheck(ctx, *source, *database, out)
	if *unreachable && errors.Is(err, errUnreachable) {
		fmt.Fprintf(out, "NOT CHECKED for vulnerabilities: %v\n", err)
		return nil
	}
	return err
}

func vulncheck(ctx context.Context, source, database string, out io.Writer) error {
	// govulncheck takes a folder that is no database for one without entries.
	if dir, ok := strings.CutPrefix(database, "file://"); ok {
		if _, err := os.Stat(filepath.Join(dir, "index", "modules.json")); err != nil {
			return fmt.Errorf("%w: %s is no database (%w)", errUnreachable, database, err)
		}
	}
	work, err := os.MkdirTemp("", "quietcore-vulncheck-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := command(ctx, "", append(toolEnv(), "GOBIN="+work), "go", "install", govulncheck); err != nil {
		return err
	}
	args := []string{}
	if database != "" {
		args = append(args, "-db", database)
	}
	env, err := build.Environment(build.Platforms()[0])
	if err != nil {
		return err
	}
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(work, "govulncheck"), append(args, "./cmd/...")...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = source, env, out, &errs
	err = cmd.Run()
	says := strings.TrimSpace(errs.String())
	var failed *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failed) && failed.ExitCode() == 3:
		return errors.New("vulnerabilities were found that the code reaches: take the version that mends them")
	case strings.Contains(says, "fetching vulnerabilities"), strings.Contains(says, "creating client"):
		return fmt.Errorf("%w: set GOVULNDB to one that does (%s)", errUnreachable, says)
	}
	return fmt.Errorf("govulncheck: %w: %s", err, says)
}
