package fleet

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/incidents/export"
)

// maxExport bounds what a node exports, which goes to the disk.
const maxExport = 1 << 30

// Export hands on the incidents of all nodes, node by node, of each all or none, and the oldest first. Each has the
// node's name by the API server.
func (c *Cluster) Export(ctx context.Context, s cli.Streams, f incidents.Filter,
	give func(*incidents.Incident) error) error {
	a, err := c.begin(ctx)
	if err != nil {
		return err
	}
	a.most = maxExport
	dir, err := os.MkdirTemp("", "kubectl-quietcore-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	answers, err := each(ctx, a, a.daemons, func(ctx context.Context, d daemon) (string, error) {
		name := filepath.Join(dir, strconv.Itoa(numberOf(a.daemons, d.node)))
		return name, a.one(ctx, d, question{"/v1/incidents/export", control.Values(f)}, func(r io.Reader) error {
			return spool(r, name)
		})
	})
	if err != nil {
		return err
	}
	for i := range answers {
		if answers[i].err != nil {
			continue
		}
		if err := replay(&answers[i], give); err != nil {
			return err
		}
	}
	return failuresOf(answers).end(s.Errs)
}

// spool keeps what a node exports in a file, unless it is cut off.
func spool(r io.Reader, name string) error {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = export.Read(io.TeeReader(r, file), func(*incidents.Incident) error { return nil })
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

// replay hands on what a node exported.
func replay(a *answer[string], give func(*incidents.Incident) error) error {
	file, err := os.Open(a.value)
	if err != nil {
		return err
	}
	defer file.Close()
	return export.Read(file, func(i *incidents.Incident) error {
		i.Node = a.node
		return give(i)
	})
}
