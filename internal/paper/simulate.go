package paper

import (
	"bufio"
	"encoding/json"
	"io"
	"os"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/render"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/internal/topodoc"
)

// Simulate plays a script and writes each step as text or JSON, or as SVG the machine
// after the last one.
func Simulate(s cli.Streams, path, format string) error {
	file, player, err := load(s, path)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(s.Out)
	defer out.Flush()
	var last script.Line
	encode := json.NewEncoder(out)
	encode.SetEscapeHTML(false)
	for _, step := range file.Steps {
		line, err := player.Play(step)
		if err != nil {
			return cli.UsageError{Err: err}
		}
		switch format {
		case "json":
			err = encode.Encode(line)
		case "text":
			err = line.WriteText(out, true)
		}
		if err != nil {
			return err
		}
		last = line
	}
	if format == "svg" && last.View != nil {
		view := script.View(file.Node.Name, last.View.Topology, last.Containers, last.Pools)
		if err := render.SVG(out, view); err != nil {
			return err
		}
	}
	return out.Flush()
}

// readScript reads a file, or standard input for "-", and no more of it than a
// script may have.
func readScript(s cli.Streams, path string) ([]byte, error) {
	in := s.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, cli.UsageError{Err: err}
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, script.MaxBytes+1))
	if err != nil {
		return nil, cli.Usage("read the script: %w", err)
	}
	return text, nil
}

// load reads a script and makes its node.
func load(s cli.Streams, path string) (*script.File, *script.Player, error) {
	text, err := readScript(s, path)
	if err != nil {
		return nil, nil, err
	}
	file, err := script.Parse(text)
	if err != nil {
		return nil, nil, cli.Usage("%s: %w", path, err)
	}
	t, warnings, err := file.Topology.Build(topodoc.Open)
	if err != nil {
		return nil, nil, cli.Usage("%s: %w", path, err)
	}
	cli.Warn(s.Errs, warnings)
	player, err := script.NewPlayer(file, t)
	if err != nil {
		return nil, nil, cli.Usage("%s: %w", path, err)
	}
	return file, player, nil
}
