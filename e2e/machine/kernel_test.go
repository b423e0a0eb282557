package machine

import (
	"flag"
	"io"
	"testing"
)

func TestKernelsAreChosenByFlag(t *testing.T) {
	for arg, want := range map[string]Suite{"": Bookworm, "-kernel=bullseye": Bullseye, "-kernel=trixie": Trixie,
		"-kernel=sid": ""} {
		f := flag.NewFlagSet("test", flag.ContinueOnError)
		f.SetOutput(io.Discard)
		var got Suite
		got.Flag(f)
		var args []string
		if arg != "" {
			args = append(args, arg)
		}
		err := f.Parse(args)
		if (err != nil) != (want == "") || err == nil && got != want {
			t.Errorf("%q: kernel %s, %v, want %s", arg, got, err, want)
		}
	}
}
