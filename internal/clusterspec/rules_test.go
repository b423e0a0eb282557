package clusterspec

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/internal/promtest"
)

const shippedRules = "../../charts/quietcore/rules/cpi-specs.yaml"

// counted is a job whose CPI is distributed log-normally, as nodes count it.
type counted struct {
	workload  string
	median    float64
	sd        float64 // of logarithms
	above     float64 // the same above the median; 0: alike
	perMinute float64 // samples of each node
	from, to  time.Duration
	every     int // bucket is there; 0: each
}

const nodes = 2

// quantiles are the CPIs of a thousand samples.
func (c *counted) quantiles() []float64 {
	list := make([]float64, 1000)
	for i := range list {
		z := math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/float64(len(list))-1)
		sd := c.sd
		if z > 0 && c.above > 0 {
			sd = c.above
		}
		list[i] = c.median * math.Exp(z*sd)
	}
	return list
}

// inputs are its series in promtool's notation, one value every four minutes until
// end: nothing before from, growth until to, then nothing more.
func (c *counted) inputs(end time.Duration) string {
	var b strings.Builder
	series := func(name, labels string, each float64) {
		steps := func(d time.Duration) int { return int(d / (4 * time.Minute)) }
		step := 4 * each * c.perMinute
		for node := range nodes {
			values := fmt.Sprintf("0+0x%d", max(steps(c.from)-1, 0))
			grown := steps(min(c.to, end) - c.from)
			values += fmt.Sprintf(" 0+%vx%d", step, grown)
			if left := steps(end - c.to); left > 0 {
				// A hair more than the sum above, whose rounding must not look like a reset.
				values += fmt.Sprintf(" %v+0x%d", step*float64(grown)*(1+1e-9), left)
			}
			fmt.Fprintf(&b,
				"      - series: '%s{instance=\"n%d\",workload=\"%s\",platform=\"p\"%s}'\n        values: '%s'\n",
				name, node, c.workload, labels, values)
		}
	}
	samples := c.quantiles()
	sum, squares := 0.0, 0.0
	for _, v := range samples {
		sum += v / float64(len(samples))
		squares += v * v / float64(len(samples))
	}
	for k := -16; k <= 33; k += max(c.every, 1) {
		le, below := math.Round(math.Exp2(float64(k)/8)*1e5)/1e5, 0
		name := strconv.FormatFloat(le, 'g', -1, 64)
		if k == 33 {
			le, name = math.Inf(1), "+Inf"
		}
		for _, v := range samples {
			if v <= le {
				below++
			}
		}
		series("quietcore_job_cpi_bucket", fmt.Sprintf(",band=\"2\",le=\"%s\"", name),
			float64(below)/float64(len(samples)))
	}
	series("quietcore_job_cpi_sum", ",band=\"2\"", sum)
	series("quietcore_job_cpi_squares_total", ",band=\"2\"", squares)
	series("quietcore_job_cpi_usage_total", ",band=\"2\"", 1.5)
	for node := range nodes {
		fmt.Fprintf(&b,
			"      - series: 'quietcore_job_cpi_tasks{instance=\"n%d\",workload=\"%s\",platform=\"p\"}'\n        "+
				"values: '3x%d'\n", node, c.workload, int(end/(4*time.Minute)))
	}
	return b.String()
}

// expectation is what an expression, rounded, must be at the end.
type expectation struct {
	expr string
	want float64
}

func promtool(t *testing.T, end time.Duration, inputs string, want []expectation) {
	t.Helper()
	program := promtest.Tool(t, "promtool")
	rules, err := filepath.Abs(shippedRules)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b,
		"rule_files: [%q]\nevaluation_interval: 4m\ntests:\n  - interval: 4m\n    input_series:\n%s    "+
			"promql_expr_test:\n", rules, inputs)
	for _, w := range want {
		fmt.Fprintf(&b, "      - expr: %q\n        eval_time: %s\n        exp_samples: [{labels: '{}', value: %v}]\n",
			w.expr, end, w.want)
	}
	file := filepath.Join(t.TempDir(), "test.yaml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(program, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// rounded is a recorded value of a job, without its name.
func rounded(spec, workload, band string, to float64) string {
	return fmt.Sprintf(`sum(round(quietcore:job_cpi_spec:%s{workload="%s",platform="p",band="%s"}, %v))`, spec,
		workload, band, to)
}

// The rules make of what two nodes count what the detector makes of the same samples.
func TestRulesAgreeWithTheDetector(t *testing.T) {
	if out, err := exec.Command(promtest.Tool(t, "promtool"), "check", "rules",
		shippedRules).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
	const end = 3 * time.Hour
	var inputs string
	var want []expectation
	for _, c := range []counted{
		{workload: "usual", median: 1.5, sd: 0.09},
		{workload: "wild", median: 3, sd: 0.3},
		{workload: "even", median: 1.1, sd: 0.025},
		{workload: "skewed", median: 2, sd: 0.06, above: 0.4},
	} {
		c.perMinute, c.to = 5, end
		inputs += c.inputs(end)
		samples := c.quantiles()
		sum, squares, h := 0.0, 0.0, histogram(samples)
		for _, v := range samples {
			sum += v
			squares += v * v
		}
		n := float64(len(samples))
		mean := sum / n
		median, sd := h.Robust()
		if c.above == 0 {
			sd = c.sd // of an even job the detector knows only that it is within a bucket
		}
		for _, band := range []string{"2", "all"} {
			want = append(want,
				expectation{rounded("mean", c.workload, band, 0.001), math.Round(mean*1000) / 1000},
				expectation{rounded("stddev", c.workload, band, 0.001),
					math.Round(math.Sqrt(squares/n-mean*mean)*1000) / 1000},
				expectation{rounded("usage", c.workload, band, 0.01), 1.5},
				// Three hours of five samples a minute of two nodes.
				// The first hour knows no sample before it.
				expectation{rounded("samples", c.workload, band, 100), 1800},
			)
		}
		// Buckets twice as wide as the detector's, and interpolated otherwise.
		for spec, exact := range map[string]float64{"median": math.Exp(median), "log_stddev": sd} {
			expr := fmt.Sprintf(`sum(abs(quietcore:job_cpi_spec:%s{workload="%s",band="2"} / %v - 1) <bool 0.05)`,
				spec, c.workload, exact)
			want = append(want, expectation{expr, 1})
		}
		want = append(want, expectation{fmt.Sprintf(`sum(quietcore:job_cpi_spec:tasks{workload="%s",platform="p"})`,
			c.workload), 6})
	}
	promtool(t, end, inputs, want)
}

// histogram is the detector's of these samples.
func histogram(samples []float64) *detect.Histogram {
	counts := map[int]int{}
	for _, v := range samples {
		i := 0
		for v > detect.UpperBound(i) {
			i++
		}
		counts[i]++
	}
	var text []string
	for i, n := range counts {
		text = append(text, fmt.Sprintf("%q:%d", strconv.Itoa(i), n))
	}
	h := new(detect.Histogram)
	if err := h.UnmarshalJSON([]byte("{" + strings.Join(text, ",") + "}")); err != nil {
		panic(err)
	}
	return h
}

// Yesterday's samples weigh 0.9 of today's, and what is not counted any more is
// remembered.
func TestRulesAge(t *testing.T) {
	const end = 30 * time.Hour
	before := counted{workload: "web", median: 1, sd: 0.001, perMinute: 5, every: 49, to: 5 * time.Hour}
	after := counted{workload: "web", median: 2, sd: 0.001, perMinute: 5, every: 49, from: 24 * time.Hour, to: end}
	gone := counted{workload: "gone", median: 1, sd: 0.001, perMinute: 5, every: 49, to: 5 * time.Hour}
	inputs := strings.ReplaceAll(before.inputs(end), `instance="`, `instance="old-`) + after.inputs(end) +
		gone.inputs(end)
	// Six hours of today, five of yesterday, with 600 samples each.
	mean := (6*2 + 0.9*5) / (6 + 0.9*5)
	promtool(t, end, inputs, []expectation{
		{rounded("mean", "web", "all", 0.01), math.Round(mean*100) / 100},
		{rounded("mean", "gone", "all", 0.01), 1},
		{rounded("samples", "gone", "2", 100), 0.9 * 5 * 600},
	})
}
