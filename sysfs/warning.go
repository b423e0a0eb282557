package sysfs

import (
	"fmt"
	"strconv"

	"github.com/quietcore/quietcore/cpuset"
)

// Warning is something that /sys lacks or misstates, and the assumption made instead.
type Warning struct {
	File    string // below /sys; cpu* stands for several CPUs
	Problem string
}

func (w Warning) String() string { return w.File + ": " + w.Problem }

func (r *reader) warn(file string, err error, assumed string) {
	r.warnf(file, "%v; %s", err, assumed)
}

func (r *reader) warnf(file, format string, args ...any) {
	r.warnings = append(r.warnings, Warning{File: file, Problem: fmt.Sprintf(format, args...)})
}

// brief is a list of CPUs that fits into a sentence.
func brief(s cpuset.Set) string {
	const most = 60
	if text := s.String(); len(text) <= most {
		return text
	}
	return fmt.Sprintf("%d to %d (%d of them)", s.First(), last(s), s.Count())
}

func last(s cpuset.Set) int {
	for i := cpuset.Words - 1; i >= 0; i-- {
		if s.Word(i) != 0 {
			for cpu := i*64 + 63; ; cpu-- {
				if s.Has(cpu) {
					return cpu
				}
			}
		}
	}
	return -1
}

// quote shortens hostile text, so that a warning stays one readable line.
func quote(text string) string {
	const most = 40
	if len(text) > most {
		return strconv.QuoteToASCII(text[:most]) + "…"
	}
	return strconv.QuoteToASCII(text)
}

// misses combines the same problem of many CPUs into one warning.
type misses struct {
	cpus  cpuset.Set
	first error
}

func (m *misses) add(cpu int, err error) {
	if m.first == nil {
		m.first = err
	}
	m.cpus.Add(cpu)
}

// warnMisses reports what the CPUs of m lack.
func (r *reader) warnMisses(file string, m *misses, assumed string) {
	if m.first == nil {
		return
	}
	of := "CPUs " + brief(m.cpus)
	if m.cpus == r.online {
		of = "every CPU"
	}
	r.warnf(cpuDir+"/cpu*/"+file, "%v (%s); %s", m.first, of, assumed)
}
