package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
)

// commit and date are set by the linker beside version. Without them they are what Go
// noted of the working tree, if it did.
var commit, date string

// buildInfo is what is known of this binary.
type buildInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Date    string `json:"date,omitempty"`    // the commit's, in UTC: the build's own would differ each time
	Changed bool   `json:"changed,omitempty"` // built from files that were not committed
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func thisBuild() buildInfo {
	b := buildInfo{Version: version, Commit: commit, Date: date, Go: runtime.Version(), OS: runtime.GOOS,
		Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok || b.Commit != "" {
		return b
	}
	return b.noted(info.Settings)
}

// noted adds what Go noted of the working tree.
func (b buildInfo) noted(settings []debug.BuildSetting) buildInfo {
	for _, s := range settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Changed = s.Value == "true"
		}
	}
	return b
}

func (b buildInfo) String() string {
	more := []string{b.Go, b.OS + "/" + b.Arch}
	if b.Commit != "" {
		more = append(more, "commit "+b.Commit[:min(len(b.Commit), 12)])
	}
	if b.Date != "" {
		more = append(more, "of "+b.Date)
	}
	if b.Changed {
		more = append(more, "changed since")
	}
	return fmt.Sprintf("quietcore %s (%s)", b.Version, strings.Join(more, ", "))
}

func newVersion() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "print the version of this binary", Args: cli.NoArgs}
	format := output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		b := thisBuild()
		if *format == "json" {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(b)
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), b)
		return err
	}
	return cmd
}
