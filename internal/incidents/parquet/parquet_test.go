package parquet

import (
	"bytes"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/quietcore/quietcore/internal/incidents"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// two are one incident with everything and a bare one.
func two() []incidents.Incident {
	who := func(job string) incidents.Subject {
		return incidents.Subject{Namespace: "shop", Pod: job + "-1", Container: "main", Job: "Deployment/" + job,
			Class: "BE", CPUs: "0-3", Claims: "shop/cpus"}
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
			Until: noon.Add(5 * time.Minute), Ended: noon.Add(time.Minute), EndedWhy: "it did not help"},
			{Kind: incidents.Move, Subject: who("video"), Off: "0-7", From: noon.Add(time.Minute)}},
		Outcome: incidents.Outcome{Result: "failure", Before: 3.5, After: 3.25, Samples: 3},
		Series:  []incidents.Point{{Offset: -time.Minute, Value: 3.5}, {Offset: 0, Value: 3.25}},
	})
	bare := incidents.Bounded(incidents.Incident{At: noon.Add(time.Hour), Victim: who("db"), CPI: 2})
	return []incidents.Incident{full, bare}
}

// made is Parquet of a list.
func made(t *testing.T, list ...incidents.Incident) []row {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b)
	for i := range list {
		if err := w.Write(&list[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	rows, err := parquet.Read[row](bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil || len(rows) != len(list) {
		t.Fatalf("%d rows of %d incidents, %v", len(rows), len(list), err)
	}
	return rows
}

func TestParquetIsReadBack(t *testing.T) {
	rows := made(t, append(two(), two()...)...) // of two nodes
	r := rows[0]
	if r.ID == "" || r.ID != rows[2].ID || !r.At.Equal(noon) || r.Victim.Job != "Deployment/web" ||
		r.Victim.Claims != "shop/cpus" ||
		r.Spec.Mean != 1.75 || r.Node != "node-a" || r.Verdict != incidents.Cap ||
		len(r.Suspects) != 2 || !r.Suspects[0].Antagonist || r.Suspects[1].Antagonist ||
		r.Suspects[0].Series[0] != (pointRow{-60, 4}) || len(r.Actions) != 2 || r.Actions[0].Off != "" ||
		r.Actions[1].Off != "0-7" ||
		!r.Actions[0].Ended.Equal(noon.Add(time.Minute)) || len(r.Series) != 2 || r.After != 3.25 {
		t.Errorf("read back as %+v", r)
	}
	if r = rows[1]; r.Verdict != "none" || len(r.Suspects) != 0 || len(r.Actions) != 0 ||
		!r.At.Equal(noon.Add(time.Hour)) {
		t.Errorf("the bare one as %+v", r)
	}
	made(t)
}
