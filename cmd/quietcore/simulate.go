package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/render"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/internal/topodoc"
)

func newSimulate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "simulate FILE",
		Short: "play a node's life on the daemon's own state machine, without a node",
		Long: `Plays a script of steps (create, resize, kubeletUpdate, restartContainer, stop, remove,
restartDaemon, nodeLabels, kubeletState, offline, online, cap, advance) and shows after each
step whom it changed, why, and the pools; -o svg draws the machine after the last step. It
answers "what would happen if"; docs/semantics.md is made of such scripts. A refused step is a
result: it changes nothing and says why. FILE may be - for standard input, and may be what
` + "`quietcore record`" + ` wrote.`,
		Example: "  quietcore simulate e2e/scenarios/classes.yaml\n  quietcore simulate -o json " +
			"e2e/scenarios/classes.yaml | jq .pools",
		Args: cli.OneArg("the script"),
	}
	format := cli.Output(cmd, "text", "json", "svg")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file, player, err := loadScript(args[0], cmd)
		if err != nil {
			return err
		}
		out := bufio.NewWriter(cmd.OutOrStdout())
		defer out.Flush()
		var last script.Line
		encode := json.NewEncoder(out)
		encode.SetEscapeHTML(false)
		for _, step := range file.Steps {
			line, err := player.Play(step)
			if err != nil {
				return cli.UsageError{Err: err}
			}
			switch *format {
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
		if *format == "svg" && last.View != nil {
			view := script.View(file.Node.Name, last.View.Topology, last.Containers, last.Pools)
			if err := render.SVG(out, view); err != nil {
				return err
			}
		}
		return out.Flush()
	}
	return cmd
}

// readInput reads a file, or standard input for "-", and no more of it than a
// script may have.
func readInput(path string, cmd *cobra.Command) ([]byte, error) {
	in := cmd.InOrStdin()
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

// loadScript reads a script and makes its node.
func loadScript(path string, cmd *cobra.Command) (*script.File, *script.Player, error) {
	text, err := readInput(path, cmd)
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
	cli.Warn(cmd.ErrOrStderr(), warnings)
	player, err := script.NewPlayer(file, t)
	if err != nil {
		return nil, nil, cli.Usage("%s: %w", path, err)
	}
	return file, player, nil
}
