package plugin

import (
	"testing"

	"github.com/containerd/nri/pkg/api"
)

// A runtime whose NRI has no resize of pods refuses a plugin that asks for it. What
// NRI 0.8 knows are the first eleven events.
func TestEventsThatTheRuntimeDoesNotKnowAreNotAskedFor(t *testing.T) {
	const known08 = api.EventMask(1<<11 - 1)
	for _, tc := range []struct {
		said, runtime, version string
		all                    bool
	}{
		{"", "containerd", "1.7.35", false}, {"", "containerd", "v1.7.0", false},
		{"", "containerd", "1.7.24~ds1", false},
		{"v0.8.0", "containerd", "v2.1.4", false}, {"", "containerd", "1.7.35+unknown", false},
		{"", "containerd", "v2.2.1", true},
		{"v0.12.1", "containerd", "v2.4.2", true}, {"", "cri-o", "1.32.4", false}, {"", "cri-o", "1.34.0", true},
		{"", "another", "3.0", false}, {api.UnknownVersion, "another", "", false},
	} {
		got := subscription(versionOfNRI(tc.said, tc.runtime, tc.version))
		if tc.all != (got == 0) {
			t.Errorf("%+v: asks for %s", tc, got.PrettyString())
		}
		if extra := got &^ known08; extra != 0 {
			t.Errorf("%+v: asks for %s", tc, extra.PrettyString())
		}
	}
}
