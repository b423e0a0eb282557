package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/internal/soak"
	"github.com/quietcore/quietcore/policy"
)

// waves are all of a plan.
func waves(seed uint64, pods int) (list []*wave) {
	plan := newSoakPlan(seed, pods)
	for w := plan.next(); w != nil; w = plan.next() {
		list = append(list, w)
	}
	return list
}

func TestSoakPlan(t *testing.T) {
	for pods, most := range map[int]int{soak.Least: 1, 48: 2, 100: 4, 1000: waveMost} {
		list := waves(7, pods)
		if !reflect.DeepEqual(list, waves(7, pods)) {
			t.Errorf("%d pods: the same seed gives other pods", pods)
		}
		if pods > 50 && reflect.DeepEqual(list, waves(8, pods)) {
			t.Errorf("%d pods: another seed gives the same pods", pods)
		}
		if len(list) < soak.Least {
			t.Errorf("%d pods come in %d waves, too few for a slope", pods, len(list))
		}
		made := 0
		for i, w := range list {
			made += len(w.pods)
			if n := len(w.pods); n > most || n < (most+1)/2 && i < len(list)-1 || w.hurry > waveHurry {
				t.Errorf("%d pods: wave %d has %d, in a hurry after %s", pods, i, n, w.hurry)
			}
		}
		if made != pods {
			t.Errorf("%d pods are %d", pods, made)
		}
	}
}

// What the proof wants to have seen in the end is in what it plays, whatever the seed.
func TestSoakPlanIsEnough(t *testing.T) {
	for seed := range uint64(40) {
		for _, pods := range []int{48, 1000} {
			s := &soaking{kinds: map[string]int{}, lives: map[string]int{}, became: map[string]int{}}
			for _, w := range waves(seed, pods) {
				s.looks[0], s.looks[1], s.mapped = s.looks[0]+1, s.looks[1]+1, s.mapped+1
				for _, p := range w.pods {
					if s.lives[p.life]++; p.life != lifeHurried {
						s.kinds[p.kind]++
					}
				}
			}
			if err := s.enough(pods); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		}
	}
}

// No pod of a plan is refused, in whichever order a wave's come.
func TestSoakPlanIsPlaced(t *testing.T) {
	config, err := yaml.Marshal(soakConfig)
	if err != nil {
		t.Fatal(err)
	}
	const machine = "topology: {grid: {sockets: 2, nodesPerSocket: 1, l3PerNode: 1, coresPerL3: 2, " +
		"threadsPerCore: 2, numbering: adjacent}}\nnode: {name: guest}\nsteps: []\nconfig:\n"
	f, err := script.Parse([]byte(machine + "  " + strings.ReplaceAll(string(config), "\n", "\n  ")))
	if err != nil {
		t.Fatal(err)
	}
	topo, _, err := f.Topology.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(topo.CPUs()); n != grid.CPUs() {
		t.Fatalf("the script is about %d CPUs, the guest has %d", n, grid.CPUs())
	}
	placed := map[string]int{}
	for seed := range uint64(5) {
		player, err := script.NewPlayer(f, topo)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range waves(seed, 1000) {
			if err := playWave(player, w, placed); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
	for _, kind := range soakKinds {
		if placed[kind] < 200 {
			t.Errorf("only %v were placed", placed)
		}
	}
}

func playWave(player *script.Player, w *wave, placed map[string]int) error {
	for _, p := range w.pods {
		c := &script.Create{Pod: p.spec.Name, Namespace: p.spec.Namespace, Labels: p.spec.Labels,
			Annotations: p.spec.Annotations}
		for _, k := range p.spec.Containers {
			c.Containers = append(c.Containers, script.Container{Name: k.Name, RequestMilli: k.RequestMilli,
				LimitMilli: k.LimitMilli, Kind: script.App})
		}
		line, err := player.Play(script.Step{Create: c})
		if err != nil {
			return err
		}
		if line.Error != nil {
			return fmt.Errorf("%s: %s: %s", p.kind, line.Error.Code, line.Error.Message)
		}
		if n := len(line.View.Waiting); n > 0 {
			return fmt.Errorf("%s: %d pods wait for CPUs", p.kind, n)
		}
		placed[p.kind]++
	}
	for _, p := range w.pods {
		gone := &script.PodName{Pod: p.spec.Name, Namespace: p.spec.Namespace}
		if _, err := player.Play(script.Step{Remove: gone}); err != nil {
			return err
		}
	}
	return nil
}

func TestSoakPodsAreWhatTheyAreToBecome(t *testing.T) {
	seen := map[string]int{}
	for _, w := range waves(3, 1000) {
		for _, p := range w.pods {
			spec := p.object()["spec"].(map[string]any)
			command := spec["containers"].([]any)[0].(map[string]any)["command"]
			if ends := spec["restartPolicy"] == "Never" && command != nil; ends != (p.life == lifeEnds) {
				t.Errorf("%s, which %s: %v", p.spec.Name, p.life, spec)
			}
			seen[fmt.Sprint(p.life, spec["terminationGracePeriodSeconds"])]++
		}
	}
	if len(seen) != 6 {
		t.Errorf("lives with periods of grace: %v", seen)
	}
}

// A leak of any of what is measured is found in 1,000 pods.
func TestLeaksAreFound(t *testing.T) {
	for what, leak := range map[int]float64{resident: 5 << 10, heap: 1200, goroutines: 0.01, descriptors: 0.01,
		mapEntries: 0.01, statusEntries: 0.01, metricSeries: 0.02, stateBytes: 0.1, holdingsCount: 0} {
		s := &soaking{series: newHoldings(), became: map[string]int{}, kinds: map[string]int{}, lives: map[string]int{}}
		made := 0
		for i, w := range waves(5, 1000) {
			made += len(w.pods)
			rest := &holdings{resident: 30<<20 + float64(i*7%5)*1e5, heap: 12<<20 + float64(i*5%7)*5e4,
				goroutines: 70 + float64(i%2), descriptors: 90 + float64(i*3%4%2), mapEntries: 12, metricSeries: 300,
				stateBytes: 400 + float64(i/20)}
			if what < holdingsCount {
				rest[what] += float64(int(leak * float64(made)))
			}
			s.looks[0], s.looks[1], s.mapped = s.looks[0]+1, s.looks[1]+1, s.mapped+1
			for _, p := range w.pods {
				s.kinds[p.kind]++
				s.lives[p.life]++
			}
			s.keep(made, rest)
		}
		err := s.judge(1000)
		if what == holdingsCount {
			if err != nil {
				t.Errorf("nothing leaks: %v", err)
			}
			continue
		}
		if err == nil || !strings.HasPrefix(err.Error(), s.series[what].What+" grow by ") {
			t.Errorf("%v of %s are left of each pod: %v", leak, s.series[what].What, err)
		}
	}
}

func TestSoakWantsEnough(t *testing.T) {
	sound := func() *soaking {
		s := &soaking{kinds: map[string]int{}, lives: map[string]int{}, looks: [2]int{40, 10}, mapped: 5}
		for _, kind := range soakKinds {
			s.kinds[kind] = 150
		}
		for _, life := range soakLives {
			s.lives[life] = 20
		}
		return s
	}
	if err := sound().enough(1000); err != nil {
		t.Fatal(err)
	}
	for want, less := range map[string]func(s *soaking){
		"749 of 1000 pods ran":                   func(s *soaking) { s.kinds[mixLSE] = 149 },
		"19 pods of kind LSE ran":                func(s *soaking) { s.kinds[mixLSE] = 19 },
		"19 pods were deleted while it":          func(s *soaking) { s.lives[lifeHurried] = 19 },
		"40 waves 9 were noticed in the":         func(s *soaking) { s.looks[1] = 9 },
		"in the daemon's status and 4 in its BP": func(s *soaking) { s.mapped = 4 },
	} {
		s := sound()
		if less(s); s.enough(1000) == nil || !strings.Contains(s.enough(1000).Error(), want) {
			t.Errorf("%q: %v", want, s.enough(1000))
		}
	}
}

func TestEntriesOfAStatus(t *testing.T) {
	s := &control.Status{}
	if n := entriesOf(s); n != 0 {
		t.Errorf("an empty status has %d", n)
	}
	s.Containers, s.Owners = make([]script.State, 3), make([]control.Owner, 2)
	s.Waiting, s.Throttled = make([]policy.Waiting, 1), map[string]control.Throttled{"x": {}}
	if n := entriesOf(s); n != 7 {
		t.Errorf("%d entries, want 7", n)
	}
}

func TestParseMetrics(t *testing.T) {
	m, err := parseMetrics(`# HELP go_goroutines Number.
# TYPE go_goroutines gauge
go_goroutines 71
windows_total{result="ok"} 4
windows_total{result="dropped"} 1
info{name="a b"} 1
age NaN
`)
	if err != nil || len(m) != 5 || m["go_goroutines"] != 71 || m[`info{name="a b"}`] != 1 ||
		m.sum("windows_total{") != 5 {
		t.Errorf("%v, %v", m, err)
	}
	for _, text := range []string{"", "# nothing\n", "go_goroutines\n", "go_goroutines many\n"} {
		if m, err := parseMetrics(text); err == nil {
			t.Errorf("%q is read as %v", text, m)
		}
	}
}

// Garbage grows the heap up to a collection, and is freed bit by bit after it.
func TestLiveHeap(t *testing.T) {
	for _, c := range []struct {
		sizes []float64
		want  float64
	}{
		{[]float64{7, 8, 9, 8.5, 6, 6.1, 5, 5.1, 5.2, 5.3, 1}, 5},
		{[]float64{9, 5, 6, 7, 8, 9, 10, 11, 4}, 5},
	} {
		i := 0
		got, err := liveHeap(func() (float64, error) { i++; return c.sizes[i-1], nil })
		if err != nil || got != c.want {
			t.Errorf("%v: %v, %v", c.sizes, got, err)
		}
	}
	if got, err := liveHeap(func() (float64, error) { return 5, nil }); err == nil {
		t.Errorf("%v without a collection", got)
	}
	if got, err := liveHeap(func() (float64, error) { return 0, nil }); err == nil {
		t.Errorf("%v of no heap", got)
	}
}

// The pods that a wave waits for are those of which nothing has become.
func TestNobodyWaitsForWhoHasEnded(t *testing.T) {
	pod := func(name, phase string) *cluster.Pod {
		p := &cluster.Pod{}
		p.Metadata.Name, p.Status.Phase = name, phase
		return p
	}
	s := &soaking{became: map[string]int{}, kinds: map[string]int{}, lives: map[string]int{}}
	there := map[string]*soakPod{}
	for _, name := range []string{"ended", "failed", "pending", "gone"} {
		there[name] = &soakPod{kind: mixShared, life: lifeEnds}
	}
	failed := pod("failed", "Failed")
	failed.Status.Reason = "OutOfcpu"
	err := s.sort(there, []*cluster.Pod{pod("ended", "Succeeded"), failed, pod("pending", "Pending")})
	if err == nil || !strings.Contains(err.Error(), "pod pending (shared, ends at once) is Pending") ||
		len(there) != 1 {
		t.Errorf("%v are waited for: %v", there, err)
	}
	if want := map[string]int{lifeEnds: 1, "failed: OutOfcpu": 1, "gone by itself": 1}; !reflect.DeepEqual(s.became,
		want) || s.lived() != 1 {
		t.Errorf("%v, %d", s.became, s.lived())
	}
}
