package daemon

import (
	"maps"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/loop"
	"github.com/quietcore/quietcore/cpi/sample"
)

func TestWhatVictimsLackIsShownForAWhile(t *testing.T) {
	var l lacking
	at := time.Unix(1e9, 0)
	find := func(id string, kind detect.Kind, e *sample.Evidence, now time.Time) {
		l.find(&loop.Finding{Kind: kind, Victim: &cpi.Container{ID: id}, Evidence: e}, now)
	}
	find("web", detect.AnalysisEvent, &sample.Evidence{Resource: sample.Cache, Waited: true}, at)
	find("db", detect.AnalysisEvent, &sample.Evidence{Resource: sample.Queue, Waited: true}, at.Add(time.Minute))
	find("new", detect.AnalysisEvent, nil, at) // nobody asked
	find("old", detect.OutlierEvent, &sample.Evidence{Resource: sample.Cache}, at)
	for _, c := range []struct {
		after time.Duration
		want  map[string]string
	}{
		{2 * time.Minute, map[string]string{"web": "L3+queue", "db": "queue"}},
		{shownFor, map[string]string{"db": "queue"}},
		{shownFor + time.Minute, map[string]string{}},
	} {
		if got := l.now(at.Add(c.after)); !maps.Equal(got, c.want) {
			t.Errorf("after %v: %v, want %v", c.after, got, c.want)
		}
	}
}
