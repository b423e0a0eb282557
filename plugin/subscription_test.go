package plugin

import (
	"testing"

	"github.com/containerd/nri/pkg/api"
)

// A runtime whose NRI has no resize of pods, or validates nothing, refuses a plugin that asks for it. What
// NRI 0.8 knows are the first eleven events.
func TestEventsThatTheRuntimeDoesNotKnowAreNotAskedFor(t *testing.T) {
	const known08 = api.EventMask(1<<11 - 1)
	var known09 = known08
	known09.Set(api.Event_UPDATE_POD_SANDBOX, api.Event_POST_UPDATE_POD_SANDBOX)
	for _, tc := range []struct {
		said, runtime, version string
		known                  api.EventMask
	}{
		{"", "containerd", "1.7.35", known08}, {"", "containerd", "v1.7.0", known08},
		{"", "containerd", "1.7.24~ds1", known08},
		{"v0.8.0", "containerd", "v2.1.4", known08}, {"", "containerd", "1.7.35+unknown", known08},
		{"", "containerd", "v2.2.1", api.ValidEvents},
		{"v0.12.1", "containerd", "v2.4.2", api.ValidEvents}, {"", "cri-o", "1.32.4", known08},
		{"", "cri-o", "1.34.0", known09},
		{"", "another", "3.0", known08}, {api.UnknownVersion, "another", "", known08},
	} {
		got := subscription(versionOfNRI(tc.said, tc.runtime, tc.version))
		if extra := got &^ tc.known; extra != 0 {
			t.Errorf("%+v: asks for %s", tc, extra.PrettyString())
		}
		resize, passed := api.EventMask(0), api.EventMask(0)
		resize.Set(api.Event_UPDATE_POD_SANDBOX)
		passed.Set(api.Event_VALIDATE_CONTAINER_ADJUSTMENT, api.Event_POST_CREATE_CONTAINER)
		if (got&resize != 0) != (tc.known&resize != 0) || got&passed == 0 || got&passed == passed {
			t.Errorf("%+v: asks for %s", tc, got.PrettyString())
		}
	}
}
