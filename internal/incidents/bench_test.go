package incidents

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func BenchmarkQueries(b *testing.B) {
	dir, err := os.MkdirTemp(inMemory(), "incidents")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	s, _ := running(b, Options{Path: filepath.Join(dir, "incidents.db"), MaxBytes: 1 << 30, Now: func() time.Time {
		return noon.Add(100_000 * time.Minute)
	}, MaxAge: 10_000 * time.Hour})
	for n := range 100_000 {
		i := example(noon.Add(time.Duration(n)*time.Minute), fmt.Sprint("victim-", n%50),
			fmt.Sprint("antagonist-", n%70), fmt.Sprint("antagonist-", n%31))
		s.Put(i)
		if n%100 == 0 {
			flush(b, s)
		}
	}
	flush(b, s)
	if st := s.Stats(); st.Kept != 100_000 {
		b.Fatalf("%+v", st)
	}
	ctx := context.Background()
	for name, do := range map[string]func() error{
		"list the last 50": func() error { _, err := s.List(ctx, Filter{Limit: 50}); return err },
		"list in vain":     func() error { _, err := s.List(ctx, Filter{Victim: "nobody"}); return err },
		"top of a victim":  func() error { _, err := s.Top(ctx, TopQuery{Victim: "victim-7"}); return err },
		"top of all":       func() error { _, err := s.Top(ctx, TopQuery{}); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPut(b *testing.B) {
	s, _ := running(b, Options{})
	i := example(noon, "web", "a", "b", "c")
	b.ReportAllocs()
	for b.Loop() {
		i.At = i.At.Add(time.Second)
		s.Put(i)
	}
}
