package cli

import (
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBuild(t *testing.T) {
	b := Build{Version: "v1.2.3", Go: "go1.26", OS: "linux", Arch: "arm64"}
	for name, test := range map[string]struct {
		settings []debug.BuildSetting
		want     Build
		text     string
	}{
		"nothing recorded": {nil, b, "quietcore v1.2.3 (go1.26, linux/arm64)"},
		"a clean tree": {
			[]debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"},
				{Key: "vcs.time", Value: "2026-11-22T01:02:03Z"}, {Key: "vcs.modified", Value: "false"}},
			Build{Version: "v1.2.3", Commit: "0123456789abcdef", Date: "2026-11-22T01:02:03Z", Go: "go1.26",
				OS: "linux", Arch: "arm64"},
			"quietcore v1.2.3 (go1.26, linux/arm64, commit 0123456789ab, of 2026-11-22T01:02:03Z)",
		},
		"a changed tree": {
			[]debug.BuildSetting{{Key: "vcs.revision", Value: "0123"}, {Key: "vcs.modified", Value: "true"}},
			Build{Version: "v1.2.3", Commit: "0123", Changed: true, Go: "go1.26", OS: "linux", Arch: "arm64"},
			"quietcore v1.2.3 (go1.26, linux/arm64, commit 0123, changed since)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := b.recorded(test.settings)
			if d := cmp.Diff(test.want, got); d != "" {
				t.Error(d)
			}
			if got.String() != test.text {
				t.Errorf("the text is %q, want %q", got, test.text)
			}
		})
	}
}
