package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Build is what is known of a binary.
type Build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Date    string `json:"date,omitempty"`    // the commit's, in UTC: the build's own would differ each time
	Changed bool   `json:"changed,omitempty"` // built from files that were not committed
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// BuildOf is this binary, with what the linker set. Where that is no commit, it is what
// Go recorded of the working tree.
func BuildOf(version, commit, date string) Build {
	b := Build{Version: version, Commit: commit, Date: date, Go: runtime.Version(), OS: runtime.GOOS,
		Arch: runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok && commit == "" {
		return b.recorded(info.Settings)
	}
	return b
}

// recorded adds what Go recorded of the working tree.
func (b Build) recorded(settings []debug.BuildSetting) Build {
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

func (b Build) String() string {
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
