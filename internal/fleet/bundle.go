package fleet

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"github.com/quietcore/quietcore/internal/cli"
)

// Bundle writes what a bug report needs of each node, a file for each, into a folder.
func (c *Cluster) Bundle(ctx context.Context, s cli.Streams, dir string, hashNames bool, now time.Time) error {
	if !c.chosen() {
		return cli.Usage("a bundle is megabytes of every node: choose them with --node, --selector or --all")
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return cli.Usage("--dir is %q; it must be a directory", dir)
	}
	a, err := c.begin(ctx)
	if err != nil {
		return err
	}
	q := question{path: "/v1/bundle"}
	if hashNames {
		q.query = url.Values{"hashNames": {"true"}}
	}
	answers, err := each(ctx, a, a.daemons, func(ctx context.Context, d daemon) (string, error) {
		node := filepath.Base(d.node)
		if hashNames {
			node = "node-" + fmt.Sprint(numberOf(a.daemons, d.node))
		}
		name := filepath.Join(dir, fmt.Sprintf("quietcore-bundle-%s-%s.tar.gz", node,
			now.UTC().Format("20060102T150405Z")))
		err := a.one(ctx, d, q, func(r io.Reader) error { return toFile(name, r) })
		return name, err
	})
	if err != nil {
		return err
	}
	for i := range answers {
		if answers[i].err != nil {
			continue
		}
		if _, err := fmt.Fprintf(s.Out, "%s: %s\n", line(answers[i].node), answers[i].value); err != nil {
			return err
		}
	}
	return failuresOf(answers).end(s.Errs)
}

// numberOf is the place of a node among those that are asked, from 1 on.
func numberOf(daemons []daemon, node string) int {
	for i := range daemons {
		if daemons[i].node == node {
			return i + 1
		}
	}
	return 0
}

// toFile writes a file as a whole or not at all, for its owner alone.
func toFile(name string, r io.Reader) error {
	f, err := renameio.NewPendingFile(name, renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }()
	if _, err := io.Copy(f, r); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}
