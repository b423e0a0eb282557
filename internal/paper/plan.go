package paper

import (
	"encoding/json"
	"fmt"

	"github.com/quietcore/quietcore/internal/cli"
)

// Plan plays a script and writes the moves that compaction would make after it.
func Plan(s cli.Streams, path, format string) error {
	file, player, err := load(s, path)
	if err != nil {
		return err
	}
	for _, step := range file.Steps {
		if _, err := player.Play(step); err != nil {
			return cli.UsageError{Err: err}
		}
	}
	moves, err := player.Plan()
	if err != nil {
		return err
	}
	if format == "text" && len(moves) == 0 {
		_, err = fmt.Fprintln(s.Out, "no owner has a better place")
		return err
	}
	encode := json.NewEncoder(s.Out)
	encode.SetEscapeHTML(false)
	for _, m := range moves {
		if format == "json" {
			err = encode.Encode(m)
		} else {
			_, err = fmt.Fprintf(s.Out, "%s/%s  %s -> %s  %s\n", m.Namespace, m.Pod, m.From, m.To, m.Why)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
