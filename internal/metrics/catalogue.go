package metrics

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/policy"
)

// Entry is a metric of the catalogue.
type Entry struct {
	Name   string  `json:"name"`
	Type   string  `json:"type"` // counter, gauge or histogram
	Labels []Label `json:"labels,omitempty"`
	Help   string  `json:"help"`
}

// Label is one of a metric's labels.
type Label struct {
	Name string `json:"name"`
	// Values are all values of the label; nil if they are not a fixed list.
	Values []string `json:"values,omitempty"`
}

// open lists the labels without a fixed list of values: those that depend on the node,
// its pods or the configuration.
func open() []string {
	return []string{"version", "goversion", "mode", "cpi", "reclaim", "suppression", "namespace", "pod", "container",
		"victim", "antagonist", "workload", "platform", "band"}
}

// Catalogue lists all metrics of a daemon, sorted by name. It reads them from a
// registry in which everything is enabled.
func Catalogue() ([]Entry, error) {
	families, err := everythingOn().registry.Gather()
	if err != nil {
		return nil, err
	}
	list := make([]Entry, 0, len(families))
	for _, f := range families {
		list = append(list, entry(f))
	}
	return list, nil
}

func everythingOn() *Metrics {
	m := New("", func() (Stats, bool) {
		s := Stats{Lending: &Lending{Used: &Used{}}}
		for _, kind := range policy.PoolKinds() {
			s.Pools = append(s.Pools, Pool{Kind: kind})
		}
		return s, true
	})
	m.CPICounting(true, perContainer)
	m.CPIWindow(&CPIWindow{Containers: []sample.Result{{Container: new(cpi.Container)}}})
	m.CPIJobs(1+perBand, func() []detect.JobInfo { return nil })
	m.CPILearned([]detect.Learned{{}})
	m.CPIBlamed("", "")
	m.CPIDetector(func() Detection { return Detection{Tests: &experiment.Counters{}} })
	m.CPIClusterSpecs(func() ClusterSpecs { return ClusterSpecs{} })
	m.health.health.Store(NewHealth(time.Now, time.Now))
	return m
}

func entry(f *dto.MetricFamily) Entry {
	return Entry{Name: f.GetName(), Type: strings.ToLower(f.GetType().String()), Labels: labelsOf(f), Help: f.GetHelp()}
}

func labelsOf(f *dto.MetricFamily) []Label {
	var list []Label
	for _, one := range f.GetMetric() {
		for _, pair := range one.GetLabel() {
			i := slices.IndexFunc(list, func(l Label) bool { return l.Name == pair.GetName() })
			if i < 0 {
				i = len(list)
				list = append(list, Label{Name: pair.GetName()})
			}
			if l := &list[i]; !slices.Contains(open(), l.Name) && !slices.Contains(l.Values, pair.GetValue()) {
				l.Values = append(l.Values, pair.GetValue())
			}
		}
	}
	for _, l := range list {
		slices.Sort(l.Values)
	}
	return list
}

// WriteCatalogue writes entries for people.
func WriteCatalogue(w io.Writer, list []Entry) error {
	var b strings.Builder
	for _, m := range list {
		fmt.Fprintf(&b, "%s  %s\n  %s\n", m.Name, m.Type, m.Help)
		for _, l := range m.Labels {
			if l.Values == nil {
				fmt.Fprintf(&b, "  %s\n", l.Name)
				continue
			}
			fmt.Fprintf(&b, "  %s: %s\n", l.Name, strings.Join(l.Values, ", "))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
