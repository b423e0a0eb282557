package control

import (
	"testing"
	"time"

	"github.com/quietcore/quietcore/policy"
)

func TestTopIsTheSnapshotWithWhatIsUsed(t *testing.T) {
	p, client, _ := daemon(t, func(s *Server) {
		cpi, age := 1.25, 3.0
		s.Performance = func() Performance {
			return Performance{CPI: CPI{Mode: "observe", Counting: true, Age: &age}, Samples: map[string]Sample{
				"db-1": {CPI: &cpi}, "batch-1": {Why: "it ran too little"}, "gone": {CPI: &cpi},
			}, Throttled: map[string]Throttled{"batch-1": {Victim: "shop/db/main", Why: "a test"}, "gone": {}}}
		}
		s.Usage = func(view *policy.Snapshot) map[string]Used {
			return map[string]Used{view.Containers[0].ID: {CPU: 1500 * time.Millisecond, At: time.Minute}}
		}
	})
	live(t, p)
	got, err := client.Top(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	if got.CPUs != 16 || got.Pools.Exclusive != "0-3" || got.Connected || !got.CPI.Counting || *got.CPI.Age != 3 ||
		len(got.Containers) != 2 {
		t.Fatalf("%+v", got)
	}
	batch, db := got.Containers[0], got.Containers[1]
	if batch.Pod != "batch" || batch.Class != policy.BE || batch.Pool != policy.PoolBE || *batch.UsageSeconds != 1.5 ||
		batch.UsageAt != 60 || batch.Why != "it ran too little" || batch.Sample.CPI != nil {
		t.Errorf("%+v", batch)
	}
	if db.Pod != "db" || db.CPUs != "0-3" || db.UsageSeconds != nil || *db.Sample.CPI != 1.25 {
		t.Errorf("%+v", db)
	}
	if batch.Throttled == nil || batch.Throttled.Victim != "shop/db/main" || batch.Throttled.Verdict ||
		db.Throttled != nil {
		t.Errorf("throttled: %+v, %+v", batch.Throttled, db.Throttled)
	}
	s, err := client.Status(limited(t))
	if at := batch.Namespace + "/batch/" + batch.Container; err == nil && (len(s.Throttled) != 1 ||
		s.Throttled[at].Why != "a test") {
		t.Errorf("throttled: %+v, want %s", s.Throttled, at)
	}
	if err != nil || !s.CPI.Counting || s.CPI.Mode != "observe" {
		t.Errorf("status: %+v, %v", s.CPI, err)
	}
}

func TestTopOfADaemonThatDoesNotCount(t *testing.T) {
	p, client, _ := daemon(t)
	live(t, p)
	got, err := client.Top(limited(t))
	if err != nil || got.CPI.Counting || got.CPI.Why == "" || len(got.Containers) != 2 ||
		got.Containers[0].UsageSeconds != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestJobsOfOneContainer(t *testing.T) {
	j := Jobs{Judged: 2, LackSamples: 1, MinTasks: 1, MinTaskSamples: 40}
	if got := j.String(); got != "2 of 3 jobs are judged; 1 lacks samples (40 of all its containers)" {
		t.Error(got)
	}
}

func TestJobsSayWhatTheyAreJudgedBy(t *testing.T) {
	for want, j := range map[string]Jobs{
		"2 of 3 jobs are judged; 1 with fewer than 5 containers are not": {Judged: 2, LackTasks: 1, MinTasks: 5},
		"2 of 2 jobs are judged by how long they wait in the run queue, since no CPI is counted here": {Judged: 2,
			ByQueue: true},
		"none of 2 jobs can be judged: no CPI is counted here": {Judged: 2, Blind: true},
	} {
		if got := j.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
