package clusterspec

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"

	"github.com/quietcore/quietcore/cpi/detect"
)

// recorded is what the rules call their results, before the name of each.
const recorded = "quietcore:job_cpi_spec:"

// whole is the band of all bands together.
const whole = "all"

// chunk is how many jobs are asked for at once: a question has to fit into what
// proxies let through.
const chunk = 50

type key struct{ job, platform string }

// question asks for jobs of one platform, of which the answer may speak.
type question struct {
	text string
	jobs map[key]bool
}

// ask makes the questions for all jobs that run, in a fixed order.
func ask(jobs []detect.JobInfo) []question {
	var running []key
	for i := range jobs {
		if j := &jobs[i]; j.Containers > 0 {
			running = append(running, key{j.Job, j.Platform})
		}
	}
	slices.SortFunc(running, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.platform, b.platform), cmp.Compare(a.job, b.job))
	})
	var questions []question
	for len(running) > 0 {
		n := 1
		for n < min(len(running), chunk) && running[n].platform == running[0].platform {
			n++
		}
		q := question{jobs: map[key]bool{}}
		var names []string
		for _, k := range running[:n] {
			q.jobs[k] = true
			names = append(names, regexp.QuoteMeta(k.job))
		}
		q.text = fmt.Sprintf(`{__name__=~%q,platform=%s,workload=~%s}`, recorded+
			"(mean|stddev|usage|samples|tasks|median|log_stddev)",
			strconv.Quote(running[0].platform), strconv.Quote(strings.Join(names, "|")))
		questions = append(questions, q)
		running = running[n:]
	}
	return questions
}

// specs are those in an answer, and why others are none. What the detector checks is
// not checked here.
func (q *question) specs(answer model.Vector) (specs []detect.Spec, refused []error) {
	found := map[key]map[string]map[string]float64{} // by band and value
	for _, s := range answer {
		name, _ := strings.CutPrefix(string(s.Metric[model.MetricNameLabel]), recorded)
		k := key{string(s.Metric["workload"]), string(s.Metric["platform"])}
		if !q.jobs[k] {
			continue // not asked for
		}
		band := cmp.Or(string(s.Metric["band"]), whole) // tasks have none
		if found[k] == nil {
			found[k] = map[string]map[string]float64{}
		}
		if found[k][band] == nil {
			found[k][band] = map[string]float64{}
		}
		found[k][band][name] = float64(s.Value)
	}
	for k, bands := range found {
		s, err := spec(k, bands)
		if err != nil {
			refused = append(refused, err)
			continue
		}
		specs = append(specs, s)
	}
	slices.SortFunc(specs, func(a, b detect.Spec) int { return cmp.Compare(a.Job, b.Job) })
	slices.SortFunc(refused, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return specs, refused
}

// maxTasks bounds what is converted to a whole number.
const maxTasks = 1e9

func spec(k key, bands map[string]map[string]float64) (detect.Spec, error) {
	s := detect.Spec{Job: k.job, Platform: k.platform}
	all := bands[whole]
	for name, to := range map[string]*float64{"mean": &s.Mean, "stddev": &s.StdDev, "usage": &s.UsageMean,
		"samples": &s.Samples} {
		v, ok := all[name]
		if !ok {
			return s, fmt.Errorf("spec of job %q on platform %q: there is no %s; are all rules loaded?", k.job,
				k.platform, name)
		}
		*to = v
	}
	if tasks, ok := all["tasks"]; ok { // whose daemons run
		if !(tasks >= 0 && tasks <= maxTasks) {
			return s, fmt.Errorf("spec of job %q on platform %q: %v tasks; they must lie between 0 and %v", k.job,
				k.platform, tasks, maxTasks)
		}
		s.Tasks = int(math.Floor(tasks))
	}
	for name, values := range bands {
		if name == whole {
			continue
		}
		band, err := strconv.Atoi(name)
		if err != nil {
			return s, fmt.Errorf("spec of job %q on platform %q: band %q is no number", k.job, k.platform, name)
		}
		b := detect.BandSpec{Band: band, Samples: values["samples"], Median: values["median"],
			LogSD: values["log_stddev"]}
		if b.Samples < detect.BandSamples {
			continue // the whole says more
		}
		s.Bands = append(s.Bands, b)
	}
	slices.SortFunc(s.Bands, func(a, b detect.BandSpec) int { return cmp.Compare(a.Band, b.Band) })
	return s, nil
}
