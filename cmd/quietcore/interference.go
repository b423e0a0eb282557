package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/loop"
	"github.com/quietcore/quietcore/cpi/record"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/cpi/sampler"
	"github.com/quietcore/quietcore/internal/clusterspec"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

// detector makes the loop from windows to caps. Without it windows are still
// counted and shown.
func (p *performance) detector(s *sampler.Sampler, cfg *config.Config) (*loop.Loop, error) {
	detection := cfg.CPI.Detection()
	observe := cfg.Mode == config.Observe
	detection.Enforce = detection.Enforce && !observe
	o := loop.Options{
		Detector: detection, Model: cpuModel(os.DirFS("/proc")), Log: p.d.log,
		Snapshot: p.d.plugin.Snapshot, Submit: p.d.plugin.Submit, BEFloor: p.beFloor, Notify: p.d.tell,
	}
	file := filepath.Join(cfg.State.Dir, state.LearnedFile)
	if !observe {
		o.Keep = func(s detect.State) error { return keepLearned(file, s) }
	}
	recorder := p.recorder(s, cfg)
	if recorder != nil {
		s.Subscribe(recorder.Look)
	}
	away := p.evictor(&cfg.CPI)
	o.Told = func(f *loop.Finding) {
		count(p.d.metrics, f)
		away.want(f)
		if recorder != nil {
			recorder.Find(f)
		}
	}
	o.Learned = p.d.metrics.CPILearned
	var reader *clusterspec.Reader
	o.Beside = func(ctx context.Context) {
		var group sync.WaitGroup
		if away != nil {
			group.Go(func() { away.run(ctx) })
		}
		if reader != nil {
			group.Go(func() { reader.Run(ctx) })
		}
		group.Wait()
	}
	l, err := loop.New(o)
	if err != nil {
		return nil, err
	}
	reader = p.specs(&cfg.CPI.Specs.Prometheus, l)
	p.d.metrics.CPIJobs(cfg.CPI.JobSeries, l.Jobs)
	p.d.metrics.CPIDetector(func() metrics.Detection {
		c := l.Counters()
		return metrics.Detection{Outliers: c.Outliers, Anomalies: c.Anomalies, Jobs: l.Jobs()}
	})
	switch learned, err := readLearned(file); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		p.d.log.Warn("what was learned of jobs is not used; it is learned again", "file", file, "err", err)
	default:
		if err := l.Restore(learned); err != nil {
			p.d.log.Warn("what was learned of jobs is used in part", "file", file, "err", err)
		}
	}
	return l, nil
}

// specs reads what the cluster knows to be normal; nil where nobody is asked. A
// reader that cannot be made is told of and does without.
func (p *performance) specs(from *config.Prometheus, l *loop.Loop) *clusterspec.Reader {
	if from.URL == "" {
		return nil
	}
	reader, err := clusterspec.New(clusterspec.Options{
		URL: from.URL, Period: time.Duration(from.Period), Timeout: time.Duration(from.Timeout),
		MaxAge:    time.Duration(from.MaxAge),
		TokenFile: from.TokenFile, CAFile: from.CAFile, Log: p.d.log,
		Jobs: l.Jobs, Set: l.SetSpecs,
	})
	if err != nil {
		p.d.health.Degraded(metrics.FeatureSpecs, err.Error())
		p.d.log.Warn("specs of the cluster are not read; what this node learns itself counts", "err", err)
		return nil
	}
	p.reader.Store(reader)
	p.d.health.Watch(metrics.FeatureSpecs, reader.Why)
	p.d.metrics.CPIClusterSpecs(func() metrics.ClusterSpecs {
		s := reader.Stats()
		return metrics.ClusterSpecs{
			Queries: map[string]uint64{"ok": s.OK, "error": s.Errors, "timeout": s.Timeouts}, Refused: s.Refused,
			InUse: s.InUse, Age: s.Seconds(),
		}
	})
	return reader
}

// whyNoSpecs is what is wrong with the cluster's specs; empty: nothing, or they are
// not wanted.
func (p *performance) whyNoSpecs() string {
	if r := p.reader.Load(); r != nil {
		return r.Why()
	}
	return ""
}

// count keeps metrics on what the detector found.
func count(m *metrics.Metrics, f *loop.Finding) {
	switch f.Kind {
	case detect.AnalysisEvent:
		m.CPIVerdict(f.Verdict)
		for i := range f.Antagonists {
			m.CPIBlamed(f.Victim.Job, f.Antagonists[i].Job)
		}
	case detect.OutcomeEvent:
		m.CPIOutcome(f.Outcome.Result)
	}
}

// recorder keeps incidents; nil where nothing may be written.
func (p *performance) recorder(s *sampler.Sampler, cfg *config.Config) *record.Recorder {
	if p.d.incidents == nil {
		return nil
	}
	return record.New(record.Options{
		Node: cfg.NodeName(), Put: p.d.incidents.Put, History: func(id string) []sample.Sample {
			return s.History(id, nil)
		},
	})
}

// newIncidentStore is the database of incidents; nil where it may not be written.
func newIncidentStore(cfg *config.Config) *incidents.Store {
	if cfg.Mode == config.Observe || cfg.CPI.Mode == config.CPIOff {
		return nil
	}
	return incidents.New(incidents.Options{Path: filepath.Join(cfg.State.Dir, state.IncidentsFile)})
}

// beFloor is what best effort keeps of its pool.
func (p *performance) beFloor(s *policy.Snapshot) int {
	if floor := p.d.cfg.Load().Pools.BEFloor; floor > 0 {
		return floor
	}
	return s.Topology.ThreadsPerCore()
}

// tell tells people about a pod, in the log and where Events are written there too.
func (d *daemon) tell(n policy.Notice) {
	d.log.Warn(n.Message, "reason", n.Reason, "pod", n.Pod.Namespace+"/"+n.Pod.Name)
	if d.notify != nil {
		d.notify(n)
	}
}

// maxLearned bounds what is read: 4,096 jobs take under 40 MiB.
const maxLearned = 64 << 20

func readLearned(name string) (detect.State, error) {
	var s detect.State
	text, err := readAtMost(name, maxLearned)
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(text, &s)
}

// readAtMost reads a file that was written by a daemon, or by nobody knows whom.
func readAtMost(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("longer than %d bytes", most)
	}
	return text, err
}

func keepLearned(name string, s detect.State) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return renameio.WriteFile(name, text, 0o600)
}

// cpuModel names the CPUs, so that a CPI is compared with those of the same ones
// only.
func cpuModel(proc fs.FS) string {
	text, err := fs.ReadFile(proc, "cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	found := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(line, ":")
		if key = strings.TrimSpace(key); ok && found[key] == "" {
			found[key] = strings.TrimSpace(value)
		}
	}
	if name := found["model name"]; name != "" {
		return name
	}
	// arm64 has numbers only.
	if part := found["CPU part"]; part != "" {
		return fmt.Sprintf("%s implementer %s part %s variant %s", runtime.GOARCH, found["CPU implementer"], part,
			found["CPU variant"])
	}
	return runtime.GOARCH
}

// judge has the detector look at every window until ctx ends.
func (c *counting) judge(ctx context.Context) {
	if c.loop != nil {
		c.loop.Run(ctx)
	}
}
