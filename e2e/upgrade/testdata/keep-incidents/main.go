// Command keep-incidents puts incidents into a file as the daemon of the tree in which it is built does: those on
// standard input, as JSON. It prints the ID of each that is on the disk.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/quietcore/quietcore/internal/incidents"
)

func main() {
	if err := keep(context.Background(), os.Args[1], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "keep-incidents:", err)
		os.Exit(1)
	}
}

func keep(ctx context.Context, file string, in io.Reader, out io.Writer) error {
	s := incidents.New(incidents.Options{Path: file})
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	for all := json.NewDecoder(in); ; {
		var i incidents.Incident
		if err := all.Decode(&i); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		id := s.Put(i)
		if err := s.Flush(ctx); err != nil {
			return err
		}
		if now := s.Stats(); now.Why != "" || now.Dropped > 0 || now.Written < now.Puts {
			return fmt.Errorf("it is not on the disk: %+v", now)
		}
		fmt.Fprintln(out, id)
	}
}
