package daemon

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/internal/page"
)

func TestWhatNobodyHad(t *testing.T) {
	const text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 10 0 10 500 0 150 50 1000 0 0\n" +
		"cpu2 0 0 0 0 0 0 0 25 0 0\ncpuX 0 0 0 0 0 7 7 7 0 0\ncpu99999999 0 0 0 0 0 7 7 7\ncpu3 1 2 3\n" +
		"intr 1 2 3 4 5 6 7 8 9\n"
	name := filepath.Join(t.TempDir(), "stat")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []sample.Taken{{Steal: 10, Interrupts: 2}, {}, {Steal: 0.25}}
	if got := takenFrom(name)(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := takenFrom(name + "x")(); got != nil {
		t.Errorf("of no file: %+v", got)
	}
}

func TestLoadOfEachCPU(t *testing.T) {
	const text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 50 30 500 250 15 5 50 70 10\ncpu2 0 0 0 400 0 0 0 0 0 0\n" +
		"cpu3 1 2 3\nintr 1 2 3 4 5 6 7 8 9\n"
	name := filepath.Join(t.TempDir(), "stat")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := loadFrom(name)()
	if len(got) != 3 || got[1].Total != 0 || got[2] != (page.CPUTime{Total: 4}) {
		t.Errorf("%+v", got)
	} else if busy, total := got[0].Busy, got[0].Total; math.Abs(busy-2) > 1e-9 || math.Abs(total-10) > 1e-9 {
		t.Errorf("CPU 0 was busy for %v s of %v s, want 2 of 10", busy, total)
	}
	if got := loadFrom(name + "x")(); got != nil {
		t.Errorf("of no file: %+v", got)
	}
}

func FuzzTaken(f *testing.F) {
	f.Add([]byte("cpu0 1 2 3 4 5 6 7 8 9\ncpu1 18446744073709551615 0 0 0 0 -1 1e9 99999999999999999999\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, one := range parseLoad(text) {
			if !(one.Busy >= 0 && one.Total >= one.Busy) {
				t.Fatalf("%+v", one)
			}
		}
		list := parseTaken(text)
		if len(list) > maxCPUs {
			t.Fatalf("%d CPUs", len(list))
		}
		for _, one := range list {
			if !(one.Steal >= 0 && one.Interrupts >= 0) {
				t.Fatalf("%+v", one)
			}
		}
	})
}
