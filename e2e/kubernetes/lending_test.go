package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/config"
)

func TestGaveWay(t *testing.T) {
	rest, peak := point{Pool: 6, Node: unknown}, point{Shop: 3.9, Pool: 6, Node: unknown}
	at := func(p point, at float64, pool int) point { p.At, p.Pool = at, pool; return p }
	for _, c := range []struct {
		name   string
		points []point
		want   time.Duration
		wrong  string
	}{
		{"within two looks", []point{at(rest, 9, 6), at(rest, 10, 6), at(peak, 10.2, 6), at(peak, 11, 4),
			at(peak, 11.5, 2)}, 1500 * time.Millisecond, ""},
		{"never", []point{at(rest, 9, 6), at(rest, 10, 6), at(peak, 10.2, 6), at(peak, 11, 4)}, 0, "never had as few"},
		{"before the step", []point{at(rest, 9, 6), at(rest, 10, 2), at(peak, 10.2, 2)}, 0, "shows nothing"},
		{"no step", []point{at(rest, 9, 6), at(rest, 10, 2)}, 0, "not used anything"},
	} {
		got, _, err := gaveWay(c.points, 9, 3)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) ||
			(got-c.want).Abs() > time.Millisecond {
			t.Errorf("%s: %s, %v", c.name, got, err)
		}
	}
}

func TestNeverAbove(t *testing.T) {
	var points []point
	for i := range 20 {
		points = append(points, point{At: float64(i), Shop: 4, Pool: 2})
	}
	if err := neverAbove(points, 5, 3); err != nil {
		t.Error(err)
	}
	if err := neverAbove(points, 15, 3); err == nil {
		t.Error("five looks are enough")
	}
	points[12].Pool = 6
	if err := neverAbove(points, 5, 3); err == nil {
		t.Error("a pool that was widened is not seen")
	}
}

func TestLeastNode(t *testing.T) {
	points := []point{{At: 1, Node: 0}, {At: 2, Node: 6000}, {At: 3, Node: unknown}, {At: 4, Node: 5000},
		{At: 5, Node: 7000}}
	if least, seen := leastNode(points, 2); least != 5000 || seen != 3 {
		t.Errorf("%d in %d looks", least, seen)
	}
	if least, _ := leastNode(append(points, point{At: 6, Node: -1}), 2); least != -1 {
		t.Errorf("%d where the Node had none", least)
	}
}

func TestGuestFiles(t *testing.T) {
	c, pool, err := lookOf("12.50 80.00\n", "usage_usec 1500000\nuser_usec 1\n", "nr_periods 1\nusage_usec 7\n",
		"0-1,4\n")
	if err != nil || c.at != 12.5 || c.shop != 1500000 || c.batch != 7 || pool != 3 {
		t.Errorf("%+v %d %v", c, pool, err)
	}
	if _, _, err := lookOf("x", "user_usec 1\n", "", "0-"); err == nil {
		t.Error("nonsense is read")
	}
	w, err := workOf("100.0 1\n", "usage_usec 2000000\n",
		"some avg10=0.00 avg60=0.00 avg300=0.00 total=250000\nfull avg10=0.00 total=0\n")
	if err != nil || w.used != 2 || w.waited != 0.25 || w.span != 100 {
		t.Errorf("%+v %v", w, err)
	}
	for _, c := range []struct {
		text string
		want int64
	}{{"5000", 5000}, {"5k", 5000}, {"0", 0}} {
		if got, err := milliOf(map[string]string{batchCPU: c.text}); err != nil || got != c.want {
			t.Errorf("%q: %d %v", c.text, got, err)
		}
	}
	if got, err := milliOf(nil); err != nil || got != -1 {
		t.Errorf("none: %d %v", got, err)
	}
}

// What the daemon is given has to be a configuration, and leave the room that the proof
// counts on.
func TestLendingConfig(t *testing.T) {
	whole := map[string]any{"apiVersion": config.APIVersion}
	for key, value := range lendingConfig {
		whole[key] = value
	}
	text, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if c.Reclaim.Mode != config.SwitchEnforce || !c.Reclaim.Evict || c.Reclaim.Idle.Percentile != 95 {
		t.Errorf("%+v", c.Reclaim)
	}
	if left := float64(grid.CPUs())*suppressAt/100 - shopThreads; left >= mostCPUs+1 || left < 2 {
		t.Errorf("next to production's peak best effort may have %.1f CPUs, the proof waits for %d or fewer", left,
			mostCPUs)
	}
	free := func(production int) int { return grid.CPUs()*1000 - production + 2*idleMilli }
	switch need := 2 * busyMilli; {
	case free(shopMilli) <= boundMilli, free(shopMilli+moreMilli) >= need, free(shopMilli+moreMilli) <= busyMilli,
		free(shopMilli+moreMilli+mostMilli) >= busyMilli:
		t.Errorf(
			"what is left next to production's requests (%d, %d, %d) does not make the steps that the proof waits for",
			free(shopMilli), free(shopMilli+moreMilli), free(shopMilli+moreMilli+mostMilli))
	}
}

func TestTimelineIsWritten(t *testing.T) {
	points := []point{{At: 10, Shop: 0.1, Batch: 3, Pool: 6, Node: 6000},
		{At: 10.2, Shop: 4, Batch: 2, Pool: 2, Node: unknown}}
	if got := string(
		csvOf(points)); got != "seconds,production,batch,pool,node\n0.00,0.100,3.000,6,6000\n0.20,4.000,2.000,2,\n" {
		t.Error(got)
	}
	svg, err := svgOf(points)
	if err != nil || !bytes.Contains(svg, []byte("<svg")) || !bytes.Contains(svg, []byte("best-effort pool")) {
		t.Errorf("%v\n%.200s", err, svg)
	}
	r := &recorder{points: points}
	files, err := r.write(t.TempDir())
	if err != nil || len(files) != 2 {
		t.Errorf("%v %v", files, err)
	}
}

func TestBatchPodRequestsLentCPUsOnly(t *testing.T) {
	text, err := json.Marshal(batchPod("b", 1500))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(text); strings.Count(got, `"quietcore.dev/batch-cpu":"1500"`) != 2 ||
		strings.Contains(got, `"cpu"`) {
		t.Error(got)
	}
}
