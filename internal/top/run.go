package top

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
)

// Of the delay between two tables. The first table has to wait for a second
// answer too, since usage is what came between two; it does not wait for long.
const (
	minDelay   = 100 * time.Millisecond
	maxDelay   = time.Hour
	firstDelay = time.Second
)

// Options are those of the command.
type Options struct {
	Client control.Client
	Filter control.Filter
	Sort   Key
	Delay  time.Duration
	Tables int // 0: for ever
	JSON   bool
}

// Check refuses what the flags cannot mean.
func (o *Options) Check() error {
	switch {
	case !slices.Contains(Keys(), o.Sort):
		return cli.Usage("-s is %q; it must be one of %v", o.Sort, Keys())
	case o.Delay < minDelay || o.Delay > maxDelay:
		return cli.Usage("-d is %s; it must be %s to %s", o.Delay, minDelay, maxDelay)
	case o.Tables < 0:
		return cli.Usage("-n is %d; it must be 0 (for ever) or more", o.Tables)
	}
	return o.Filter.Check()
}

// patience bounds one question, so that a daemon that hangs leaves the keys working.
const patience = 5 * time.Second

func (o *Options) ask(ctx context.Context) (*control.Top, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	t, err := o.Client.Top(ctx)
	if err != nil {
		return nil, err
	}
	t.Filter(&o.Filter)
	return t, nil
}

// Print writes tables one after the other: JSON lines, or text with an empty
// line between two tables.
func (o *Options) Print(ctx context.Context, w io.Writer) error {
	before, err := o.ask(ctx)
	delay := min(o.Delay, firstDelay)
	for n := 0; err == nil && (o.Tables == 0 || n < o.Tables); n++ {
		if !pause(ctx, delay) {
			return nil
		}
		var now *control.Top
		if now, err = o.ask(ctx); err != nil {
			break
		}
		f := Compare(before, now)
		f.Sort(o.Sort)
		if n > 0 && !o.JSON {
			fmt.Fprintln(w)
		}
		if err = o.write(w, f); err != nil {
			return err
		}
		before, delay = now, o.Delay
	}
	if ctx.Err() != nil {
		return nil // it was cancelled, perhaps in the middle of a question
	}
	return err
}

func (o *Options) write(w io.Writer, f *Frame) error {
	if o.JSON {
		encode := json.NewEncoder(w)
		encode.SetEscapeHTML(false)
		return encode.Encode(f)
	}
	_, err := io.WriteString(w, strings.Join(f.Lines(Look{Sort: o.Sort}), "\n")+"\n")
	return err
}

// Live draws on a terminal until a key, ctx or the number of tables ends it.
func (o *Options) Live(ctx context.Context, in io.Reader, out *os.File) error {
	first, err := o.ask(ctx)
	if err != nil {
		return err
	}
	program := tea.NewProgram(newModel(o, o.asker(ctx), first, cli.Colored(out)), tea.WithContext(ctx),
		tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler())
	if _, err = program.Run(); ctx.Err() != nil {
		return nil
	}
	return err
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
