package main

import (
	"compress/gzip"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// zipped is a text as the sample is stored.
func zipped(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "sample.csv.gz")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestGoogleInSmall judges a sample of which every figure is known: "busy" has 120
// CPIs around 1, three of them 9, and a row without one; "even" has twenty of 2.
func TestGoogleInSmall(t *testing.T) {
	text, err := os.ReadFile("testdata/google.csv")
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := readGoogle(zipped(t, string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if len(jobs["busy"]) != 120 || len(jobs["even"]) != 20 || jobs["busy"][0] != (googleRow{0.5, 0.92}) {
		t.Fatalf("read %d and %d rows", len(jobs["busy"]), len(jobs["even"]))
	}
	got, err := judgeGoogle(jobs)
	if err != nil {
		t.Fatal(err)
	}
	if got.meanOff > 1e-12 || got.sdOff > 1e-12 {
		t.Errorf("means and deviations are off by %v and %v", got.meanOff, got.sdOff)
	}
	got.meanOff, got.sdOff = 0, 0
	// "even" has too few samples for a band of its own.
	want := googleResult{jobs: 2, samples: 140, classic: rate{3, 140}, robust: rate{3, 140}, banded: rate{3, 120}}
	if *got != want {
		t.Errorf("%+v, want %+v", *got, want)
	}
}

func TestGoogleRefuses(t *testing.T) {
	const header = "job,avg_cpus,cpi\n"
	for _, c := range []struct{ text, want string }{
		{"", "EOF"},
		{"job,avg_cpus\n", "no column cpi among [job avg_cpus]"},
		{header + "a,x,1\n", `parsing "x"`},
		{header + "a,1\n", "wrong number of fields"},
	} {
		if _, err := readGoogle(zipped(t, c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}

// TestGooglesFigures holds what docs/evidence/detector.md says of real CPIs.
func TestGooglesFigures(t *testing.T) {
	const name = "../../../shared/testdata/traces/google2019_cpi_sample.csv.gz"
	if _, err := os.Stat(name); err != nil {
		t.Skipf("needs the recorded data at %s, which are not part of this repository: %v", name, err)
	}
	if testing.Short() {
		t.Skip("takes seconds: not with -short")
	}
	jobs, err := readGoogle(name)
	if err != nil {
		t.Fatal(err)
	}
	got, err := judgeGoogle(jobs)
	if err != nil {
		t.Fatal(err)
	}
	if got.jobs != 112 || got.samples != 113071 || got.meanOff > 1e-12 || got.sdOff > 1e-12 {
		t.Errorf("%d rows of %d jobs, means and deviations off by %v and %v", got.samples, got.jobs, got.meanOff,
			got.sdOff)
	}
	for _, c := range []struct {
		name string
		rate rate
		want float64
	}{{"classic", got.classic, 1.33}, {"robust", got.robust, 1.98}, {"by band", got.banded, 1.32}} {
		if math.Abs(c.rate.percent()-c.want) > 0.005 {
			t.Errorf("%s: %.3f %% above the threshold, want %.2f", c.name, c.rate.percent(), c.want)
		}
	}
}
