package simulate

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/internal/topodoc"
)

const usage = `Play a cluster from FILE, or standard input for "-": a line of JSON a step.

  quietcore-scheduler simulate FILE [-o json]
`

// Main is the command: 0 done, 1 the work failed, 2 the input or the flags are wrong.
func Main(args []string, in io.Reader, out, errs io.Writer) int {
	flags := flag.NewFlagSet("simulate", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	format := flags.String("o", "json", "")
	var files []string
	for len(args) > 0 { // flags may come after the file
		if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(out, usage)
			return 0
		} else if err != nil {
			return fail(errs, 2, err)
		}
		if args = flags.Args(); len(args) > 0 {
			files, args = append(files, args[0]), args[1:]
		}
	}
	if len(files) != 1 || *format != "json" {
		return fail(errs, 2, fmt.Errorf("one FILE and the format json are wanted, given are %q and %s", files, *format))
	}
	text, err := read(files[0], in)
	if err == nil {
		err = Run(text, out, topodoc.Open)
	}
	var path *os.PathError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &path) && path.Op == "write":
		return fail(errs, 1, err)
	}
	return fail(errs, 2, fmt.Errorf("%s: %w", files[0], err))
}

func fail(errs io.Writer, code int, err error) int {
	fmt.Fprintln(errs, "quietcore-scheduler simulate:", err)
	return code
}

func read(path string, in io.Reader) ([]byte, error) {
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	return io.ReadAll(io.LimitReader(in, script.MaxBytes+1))
}
