package scenario

import (
	"context"
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/quietcore/quietcore/e2e/machine"
)

// BootOptions say which guest to make.
type BootOptions struct {
	Machine machine.Options
	Daemon  bool
	// Binary is the quietcore to test; empty: it is built from this checkout.
	Binary string
}

// Boot makes a node: a machine whose runtime serves CRI, with the daemon's binary
// in it but not yet running.
func Boot(ctx context.Context, o BootOptions) (*Guest, error) {
	if o.Daemon {
		if o.Binary == "" {
			bin, err := machine.BuildDaemon(ctx, o.Machine.Cache, "quietcore-faults")
			if err != nil {
				return nil, err
			}
			o.Binary = bin
		}
		files := map[string]string{strings.TrimPrefix(binary, "/"): o.Binary}
		maps.Copy(files, o.Machine.Files)
		o.Machine.Files = files
	}
	m, err := machine.Boot(ctx, o.Machine)
	if err != nil {
		return nil, err
	}
	g := &Guest{Machine: m, Daemon: o.Daemon, Binary: binary, tree: newHierarchy(m, m.Driver)}
	if err := g.startRuntime(ctx); err != nil {
		err = fmt.Errorf("%w\n%s", err, g.Diagnosis(ctx))
		m.Close()
		return nil, err
	}
	return g, nil
}

func (g *Guest) startRuntime(ctx context.Context) error {
	if err := g.StartRuntime(ctx); err != nil {
		return err
	}
	return g.ImportImage(ctx)
}

// Diagnosis is what one wants to read when something went wrong.
func (g *Guest) Diagnosis(ctx context.Context) string {
	var b strings.Builder
	section := func(title, text string) {
		fmt.Fprintf(&b, "--- %s\n%s\n", title, text)
	}
	section("console", g.ConsoleTail(1500))
	section(string(g.Runtime), g.RuntimeLog(ctx, 2500))
	if g.Daemon {
		section("quietcore run", g.LogTail(ctx, machine.Daemon, 6000))
	}
	return b.String()
}

// Shell connects a terminal to the guest's console until the terminal's input or
// the context ends.
func (g *Guest) Shell(ctx context.Context, in io.Reader, out io.Writer) error {
	fmt.Fprintln(out, "e2e: the machine's shell; leave it with Ctrl-], which stops the machine")
	return g.Machine.Shell(ctx, in, out)
}
