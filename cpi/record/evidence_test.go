package record

import (
	"math"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi/loop"
	"github.com/quietcore/quietcore/cpi/sample"
)

func TestEvidenceNamesContainers(t *testing.T) {
	nan := math.NaN()
	f := &loop.Finding{Names: map[string]string{"b": "default/batch/main"}, Evidence: &sample.Evidence{
		Resource: sample.Cache, Waited: true,
		Good: sample.Means{Windows: 3, CPI: 1, MPKI: 2, Wait: nan, Speed: nan, Queue: nan, Pressure: 0.1},
		By:   []sample.Delay{{By: "b", For: 3 * time.Second}, {For: time.Second}},
		Beside: &sample.Beside{Steal: 0.1, L3: sample.Domain{Most: []sample.Neighbour{
			{ID: "b", CPUs: 2, Instructions: 1e9, Misses: 1e6}, {ID: "gone", CPUs: 1}}}},
	}}
	e := evidence(f)
	if e.Lacked() != "L3 and queue" || e.Now != nil || *e.Before.CPI != 1 || e.Before.Wait != nil || e.Steal != 0.1 {
		t.Errorf("%+v, %+v", e, e.Before)
	}
	if len(e.WaitedFor) != 2 || e.WaitedFor[0].Name != "default/batch/main" || e.WaitedFor[0].Share != 0.75 ||
		e.WaitedFor[1].Name != "" {
		t.Errorf("%+v", e.WaitedFor)
	}
	if len(e.L3) != 2 || e.L3[0].Name != "default/batch/main" || e.L3[0].Misses != 1e6 || e.L3[1].Name != "gone" {
		t.Errorf("%+v", e.L3)
	}
	if evidence(&loop.Finding{}) != nil {
		t.Error("there is evidence where nobody asked")
	}
}
