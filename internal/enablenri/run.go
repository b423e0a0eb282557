package enablenri

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Run looks at the configuration below root, and writes what there is to change, or
// changes it.
func Run(out io.Writer, root string, o Options, apply bool) error {
	files, err := ReadFiles(root, o.Dir)
	var plan *Plan
	if err == nil {
		plan, err = Look(files, o)
	}
	listens := o.On && o.RequestTimeout == 0 // nothing is wanted but what is there now
	switch {
	case err != nil && listens:
		_, err := fmt.Fprintf(out,
			"NRI is on: %s listens for plugins; whether its configuration keeps it so is not to be seen: %v\n",
			o.Runtime, err)
		return err
	case err != nil:
		return err
	case plan == nil && listens:
		_, err := fmt.Fprintf(out, "NRI is on: %s listens for plugins\n", o.Runtime)
		return err
	case plan == nil:
		_, err := fmt.Fprintf(out,
			"nothing to do: the configuration in %s has NRI on; if nothing listens, restart %s\n", o.Dir, o.Runtime)
		return err
	case listens:
		fmt.Fprintf(out, "NRI is on until %s is restarted: its configuration has it off\n", o.Runtime)
	}
	fmt.Fprint(out, plan.Diff())
	if !apply {
		_, err := fmt.Fprintln(out, "nothing was written; --apply does it")
		return err
	}
	if err := plan.Apply(root); err != nil {
		return err
	}
	kept := ""
	if plan.Backup != "" {
		kept = ", the text from before is in " + plan.Backup
	}
	_, err = fmt.Fprintf(out, "%s is written%s; it takes effect when %s is restarted\n", plan.Path, kept, o.Runtime)
	return err
}

// usual is where a runtime is, unless it was moved.
type usual struct{ socket, dir string }

func usually(r Runtime) usual {
	if r == CRIO {
		return usual{"/run/crio/crio.sock", "/etc/crio"}
	}
	return usual{"/run/containerd/containerd.sock", "/etc/containerd"}
}

// Dir is where a runtime usually has its configuration.
func (r Runtime) Dir() string { return usually(r).dir }

// Find finds the runtime below root by the socket that it listens on.
func Find(root string) (Runtime, error) {
	var found []Runtime
	for _, r := range []Runtime{Containerd, CRIO} {
		if _, err := os.Stat(filepath.Join(root, usually(r).socket)); err == nil {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "",
			errors.New("neither /run/containerd/containerd.sock nor /run/crio/crio.sock is there; say --runtime " +
				"(k3s and RKE2: see docs/install.md)")
	default:
		return "", errors.New("both containerd and CRI-O are there; say --runtime")
	}
}
