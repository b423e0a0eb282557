package daemon

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/cpi/loop"
)

// TestEachDetectorKeepsWhatItLearned in a file of its own, so that one that is chosen again
// goes on with what it knew.
func TestEachDetectorKeepsWhatItLearned(t *testing.T) {
	dir := t.TempDir()
	watched := detect.State{Version: 3, Jobs: []detect.JobState{{Tasks: 7}}}
	tested := experiment.State{Version: 1, At: time.Unix(5, 0).UTC(), Jobs: []experiment.JobState{{Job: "web"}}}
	for _, s := range []loop.State{{Detector: &watched}, {Experiment: &tested}} {
		if err := keepLearned(dir, &s); err != nil {
			t.Fatal(err)
		}
	}
	first, err := readLearned(learnedFile(dir, false), false)
	if err != nil || first.Experiment != nil || first.Detector.Jobs[0].Tasks != 7 {
		t.Errorf("%+v, %v", first, err)
	}
	second, err := readLearned(learnedFile(dir, true), true)
	if err != nil || second.Detector != nil || second.Experiment.Jobs[0].Job != "web" ||
		!second.Experiment.At.Equal(tested.At) {
		t.Errorf("%+v, %v", second, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
}
