package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/top"
)

// Of the delay between two tables. The first table has to wait for a second
// answer too, since usage is what came between two; it does not wait for long.
const (
	minDelay   = 100 * time.Millisecond
	maxDelay   = time.Hour
	firstDelay = time.Second
)

type topOptions struct {
	client control.Client
	sort   top.Key
	delay  time.Duration
	tables int // 0: for ever
	batch  bool
	json   bool
}

func newTop() *cobra.Command {
	var o topOptions
	var sort string
	cmd := &cobra.Command{
		Use:   "top",
		Short: "what every container uses, and its cycles per instruction",
		Long: `Shows the containers of the node like top: CPUs in use since the last table, and
of the last window of counting cycles per instruction (CPI), misses of the last-level
cache per thousand instructions (MPKI), and the share of the time in which the
container could have run that it spent waiting for a CPU (%WAIT).

Keys: q quits, s sorts by the next column. Without a terminal it prints one table.`,
		Example: "  quietcore top\n  quietcore top -s cpi -d 10s\n  quietcore top -b -n 3\n  quietcore top -o json " +
			"-n 1 | jq '.containers[] | select(.cpi > 3)'",
		Args: cli.NoArgs,
	}
	socketFlag(cmd, &o.client.Socket)
	cmd.Flags().StringVarP(&sort, "sort", "s", "usage", fmt.Sprintf("column to sort by: %v", top.Keys()))
	cmd.Flags().DurationVarP(&o.delay, "delay", "d", 2*time.Second, "time between two tables, 100ms to 1h")
	cmd.Flags().IntVarP(&o.tables, "iterations", "n", 0,
		"end after this many tables; 0: never on a terminal and with -b, after one elsewhere")
	cmd.Flags().BoolVarP(&o.batch, "batch", "b", false,
		"print tables one after the other, whole and without colour, instead of a screen")
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.sort, o.json = top.Key(sort), *format == "json"
		if err := o.check(); err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP)
		defer stop()
		out, isFile := cmd.OutOrStdout().(*os.File)
		if !o.batch && !o.json && isFile && term.IsTerminal(int(out.Fd())) && os.Getenv("TERM") != "dumb" {
			return o.live(ctx, newScreen(cmd.InOrStdin(), out))
		}
		if o.tables == 0 && !o.batch {
			o.tables = 1
		}
		return o.print(ctx, cmd.OutOrStdout())
	}
	return cmd
}

func (o *topOptions) check() error {
	switch {
	case !slices.Contains(top.Keys(), o.sort):
		return cli.Usage("-s is %q; it must be one of %v", o.sort, top.Keys())
	case o.delay < minDelay || o.delay > maxDelay:
		return cli.Usage("-d is %s; it must be %s to %s", o.delay, minDelay, maxDelay)
	case o.tables < 0:
		return cli.Usage("-n is %d; it must be 0 (for ever) or more", o.tables)
	}
	return nil
}

// patience bounds one question, so that a daemon that hangs leaves the keys working.
const patience = 5 * time.Second

func (o *topOptions) ask(ctx context.Context) (*control.Top, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return o.client.Top(ctx)
}

// print writes tables one after the other: JSON lines, or text with an empty
// line between two tables.
func (o *topOptions) print(ctx context.Context, w io.Writer) error {
	before, err := o.ask(ctx)
	delay := min(o.delay, firstDelay)
	for n := 0; err == nil && (o.tables == 0 || n < o.tables); n++ {
		if !pause(ctx, delay) {
			return nil
		}
		var now *control.Top
		if now, err = o.ask(ctx); err != nil {
			break
		}
		f := top.Compare(before, now)
		f.Sort(o.sort)
		if n > 0 && !o.json {
			fmt.Fprintln(w)
		}
		if err = o.write(w, f); err != nil {
			return err
		}
		before, delay = now, o.delay
	}
	if ctx.Err() != nil {
		return nil // told to end, also in the middle of a question
	}
	return err
}

func (o *topOptions) write(w io.Writer, f *top.Frame) error {
	if o.json {
		encode := json.NewEncoder(w)
		encode.SetEscapeHTML(false)
		return encode.Encode(f)
	}
	_, err := io.WriteString(w, strings.Join(f.Lines(top.Look{Sort: o.sort}), "\n")+"\n")
	return err
}

// live draws on a screen until a key, a signal or the number of tables ends it.
// A daemon that is restarted is waited for.
func (o *topOptions) live(ctx context.Context, s *screen) error {
	before, err := o.ask(ctx)
	if err != nil {
		return err
	}
	if err := s.open(); err != nil {
		return err
	}
	defer s.close()
	frame, note := top.Compare(before, before), ""
	s.draw(frame, top.Look{Sort: o.sort})
	next := time.NewTimer(min(o.delay, firstDelay))
	defer next.Stop()
	for shown := 0; o.tables == 0 || shown < o.tables; {
		select {
		case <-ctx.Done():
			return nil
		case key := <-s.keys:
			switch key {
			case 'q', 'Q', ctrlC, ctrlD:
				return nil
			case 's':
				o.sort = o.sort.Next()
			}
		case <-s.resized:
		case <-next.C:
			now, err := o.ask(ctx)
			if note = ""; err != nil {
				note = err.Error()
			} else {
				frame, before = top.Compare(before, now), now
				shown++
			}
			next.Reset(o.delay)
		}
		frame.Sort(o.sort)
		s.draw(frame, top.Look{Sort: o.sort, Note: note})
	}
	return nil
}

// pause waits; false: ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
