package parquet

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/quietcore/quietcore/internal/incidents"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// exported is what a daemon writes, one incident with everything and a bare one.
func exported(t *testing.T) string {
	t.Helper()
	who := func(job string) incidents.Subject {
		return incidents.Subject{Namespace: "shop", Pod: job + "-1", Container: "main", Job: "Deployment/" + job,
			Class: "BE", CPUs: "0-3"}
	}
	full := incidents.Bounded(incidents.Incident{
		At: noon, Node: "node-a", Victim: who("web"), CPI: 3.5, Threshold: 2.25,
		Spec: incidents.Spec{Mean: 1.75, StdDev: 0.25, Platform: "Intel", Band: 1, Samples: 900, Tasks: 7},
		Suspects: []incidents.Suspect{
			{Subject: who("video"), Score: 0.5, Contrast: 0.75, Confidence: 0.9, Usage: 4, Shares: "L3",
				Series: []incidents.Point{{Offset: -time.Minute, Value: 4}}},
			{Subject: who("cron"), Score: 0.25},
		},
		Verdict: incidents.Cap, Antagonists: []incidents.Subject{who("video")}, Why: "it uses the cache",
		Actions: []incidents.Action{{Kind: incidents.Cap, Subject: who("video"), Milli: 100, From: noon,
			Until: noon.Add(5 * time.Minute), Ended: noon.Add(time.Minute), EndedWhy: "it did not help"}},
		Outcome: incidents.Outcome{Result: "failure", Before: 3.5, After: 3.25, Samples: 3},
		Series:  []incidents.Point{{Offset: -time.Minute, Value: 3.5}, {Offset: 0, Value: 3.25}},
	})
	bare := incidents.Bounded(incidents.Incident{At: noon.Add(time.Hour), Victim: who("db"), CPI: 2})
	var b strings.Builder
	for _, i := range []incidents.Incident{full, bare} {
		text, err := json.Marshal(i)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(text, '\n'))
	}
	return b.String() + "{}\n"
}

func TestParquetIsReadBack(t *testing.T) {
	var b bytes.Buffer
	n, err := Of(strings.NewReader(exported(t)+exported(t)), &b) // of two nodes
	if err != nil || n != 4 {
		t.Fatalf("%d incidents, %v", n, err)
	}
	rows, err := parquet.Read[row](bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil || len(rows) != 4 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	r := rows[0]
	if r.ID == "" || r.ID != rows[2].ID || !r.At.Equal(noon) || r.Victim.Job != "Deployment/web" ||
		r.Spec.Mean != 1.75 || r.Node != "node-a" || r.Verdict != incidents.Cap ||
		len(r.Suspects) != 2 || !r.Suspects[0].Antagonist || r.Suspects[1].Antagonist ||
		r.Suspects[0].Series[0] != (pointRow{-60, 4}) || len(r.Actions) != 1 ||
		!r.Actions[0].Ended.Equal(noon.Add(time.Minute)) || len(r.Series) != 2 || r.After != 3.25 {
		t.Errorf("read back as %+v", r)
	}
	if r = rows[1]; r.Verdict != "none" || len(r.Suspects) != 0 || len(r.Actions) != 0 ||
		!r.At.Equal(noon.Add(time.Hour)) {
		t.Errorf("the bare one as %+v", r)
	}
	var empty bytes.Buffer
	if n, err := Of(strings.NewReader("{}\n"), &empty); n != 0 || err != nil {
		t.Fatalf("no incidents: %d, %v", n, err)
	}
	rows, err = parquet.Read[row](bytes.NewReader(empty.Bytes()), int64(empty.Len()))
	if err != nil || len(rows) != 0 {
		t.Errorf("no incidents are read as %d, %v", len(rows), err)
	}
}

// TestWhatIsCutOff: at every byte it is an error.
func TestWhatIsCutOff(t *testing.T) {
	text := exported(t)
	for at := range len(text) - len("}\n") {
		if _, err := Of(strings.NewReader(text[:at]), io.Discard); err == nil {
			t.Fatalf("%q is whole", text[:at])
		}
	}
	if _, err := Of(strings.NewReader(strings.TrimSuffix(text, "{}\n")), io.Discard); err == nil ||
		!strings.Contains(err.Error(), "the end is missing") {
		t.Errorf("without its end: %v", err)
	}
	if _, err := Of(strings.NewReader("at,node\n"), io.Discard); err == nil ||
		!strings.Contains(err.Error(), "incident 1: ") {
		t.Errorf("CSV: %v", err)
	}
}
