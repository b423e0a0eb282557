package replay

import (
	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
)

// GivenSpec is a line of a file of specs. Without a platform it holds for all; without
// samples or tasks it is trusted.
type GivenSpec struct {
	Job       string            `json:"job"`
	Platform  string            `json:"platform"`
	Mean      float64           `json:"mean"`
	StdDev    float64           `json:"stddev"`
	Samples   *float64          `json:"samples,omitempty"`
	Tasks     *int              `json:"tasks,omitempty"`
	UsageMean float64           `json:"usageMean,omitempty"`
	Bands     []detect.BandSpec `json:"bands,omitempty"`
}

type specKey struct{ job, platform string }

// specs are the given ones, by what they are of.
type specs struct {
	given map[specKey]*GivenSpec
	ofJob map[string][]*GivenSpec
	done  map[specKey]bool
	o     Options
}

func newSpecs(o Options) *specs {
	s := &specs{given: map[specKey]*GivenSpec{}, ofJob: map[string][]*GivenSpec{}, done: map[specKey]bool{}, o: o}
	for i := range o.Specs {
		g := &o.Specs[i]
		s.given[specKey{g.Job, g.Platform}] = g
		s.ofJob[g.Job] = append(s.ofJob[g.Job], g)
	}
	return s
}

// of a container: its job's on its platform, else its job's whatever the platform, else
// the only one of its job.
func (s *specs) of(c *cpi.Container) *GivenSpec {
	if g := s.given[specKey{c.Job, c.Platform}]; g != nil {
		return g
	}
	if g := s.given[specKey{c.Job, ""}]; g != nil {
		return g
	}
	if list := s.ofJob[c.Job]; c.Platform == "" && len(list) == 1 {
		return list[0]
	}
	return nil
}

// set passes the spec of a container's job on, the first time that the job is seen.
func (s *specs) set(c *cpi.Container, set func(detect.Spec) error) {
	key := specKey{c.Job, c.Platform}
	if s.done[key] {
		return
	}
	s.done[key] = true
	g := s.of(c)
	if g == nil {
		return
	}
	spec := detect.Spec{Job: c.Job, Platform: c.Platform, Mean: g.Mean, StdDev: g.StdDev, UsageMean: g.UsageMean,
		Bands: g.Bands}
	spec.Samples, spec.Tasks = float64(s.o.Config.MinTasks*s.o.Config.MinTaskSamples), s.o.Config.MinTasks
	if g.Samples != nil {
		spec.Samples = *g.Samples
	}
	if g.Tasks != nil {
		spec.Tasks = *g.Tasks
	}
	if err := set(spec); err != nil {
		s.o.Warn(err.Error())
	}
}
