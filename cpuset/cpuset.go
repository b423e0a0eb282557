// Package cpuset holds sets of logical CPUs as fixed-size bitmasks.
//
// A Set is a plain value: it is copied by assignment, compared with ==, and no
// operation allocates. The zero Set is empty. It has room for the CPU numbers
// 0 to MaxCPUs-1, the most that Linux can be built for on any architecture.
//
//	shared := online.Minus(exclusive)
//	fmt.Println(shared) // 0-3,8-11
package cpuset

import (
	"fmt"
	"iter"
	"math/bits"
	"strconv"
	"strings"
)

// MaxCPUs bounds CPU numbers. A list that names a larger number is refused
// before anything is built from it.
const MaxCPUs = 8192

// maxListBytes bounds the text of a list: every second CPU of MaxCPUs, written
// out, takes under 24 KiB.
const maxListBytes = 32 << 10

const (
	wordCount    = MaxCPUs / 64
	summaryCount = wordCount / 64
)

// Set is a set of logical CPU numbers in [0, MaxCPUs).
type Set struct {
	// some has a bit for each word of w that is not zero, and no other: operations then cost
	// what the machine's words cost, and == compares sets.
	some [summaryCount]uint64
	w    [wordCount]uint64
}

// Of returns the set of the given CPUs. It panics on a number out of range:
// numbers that come from outside go through Parse.
func Of(cpus ...int) Set {
	var s Set
	for _, c := range cpus {
		s.Add(c)
	}
	return s
}

// Range returns the CPUs lo to hi, both included; empty if lo > hi.
func Range(lo, hi int) Set {
	var s Set
	for c := lo; c <= hi; c++ {
		s.Add(c)
	}
	return s
}

// place is where a word's bit is in the summary.
func place(word int) (summary int, bit uint64) {
	return word >> 6 & (summaryCount - 1), 1 << (word & 63)
}

// word is the number of the lowest word that a part of the summary names.
func word(summary int, some uint64) int {
	return (summary<<6 + bits.TrailingZeros64(some)) & (wordCount - 1)
}

// Add puts cpu into the set.
func (s *Set) Add(cpu int) {
	s.w[cpu>>6] |= 1 << (cpu & 63)
	k, bit := place(cpu >> 6)
	s.some[k] |= bit
}

// Remove takes cpu out of the set.
func (s *Set) Remove(cpu int) { s.clear(cpu>>6, 1<<(cpu&63)) }

// clear takes the CPUs of one word out of the set.
func (s *Set) clear(word int, cpus uint64) {
	if s.w[word] &^= cpus; s.w[word] == 0 {
		k, bit := place(word)
		s.some[k] &^= bit
	}
}

// AddSet puts every CPU of t into the set.
func (s *Set) AddSet(t *Set) {
	for k, some := range t.some {
		for s.some[k] |= some; some != 0; some &= some - 1 {
			i := word(k, some)
			s.w[i] |= t.w[i]
		}
	}
}

// RemoveSet takes every CPU of t out of the set.
func (s *Set) RemoveSet(t *Set) {
	for k := range s.some {
		for some := s.some[k] & t.some[k]; some != 0; some &= some - 1 {
			i := word(k, some)
			s.clear(i, t.w[i])
		}
	}
}

// KeepSet takes every CPU out of the set that is not in t.
func (s *Set) KeepSet(t *Set) {
	for k, some := range s.some {
		for ; some != 0; some &= some - 1 {
			i := word(k, some)
			s.clear(i, ^t.w[i])
		}
	}
}

// Has reports whether cpu is in the set. Numbers out of range are in no set.
func (s *Set) Has(cpu int) bool {
	return uint(cpu) < MaxCPUs && s.w[cpu>>6]&(1<<(cpu&63)) != 0
}

// And returns the CPUs that are in both sets.
func (s Set) And(t Set) Set {
	s.KeepSet(&t)
	return s
}

// Or returns the CPUs that are in either set.
func (s Set) Or(t Set) Set {
	s.AddSet(&t)
	return s
}

// Minus returns the CPUs of s that are not in t.
func (s Set) Minus(t Set) Set {
	s.RemoveSet(&t)
	return s
}

// Count returns how many CPUs the set has.
func (s Set) Count() int { return s.CountAnd(&s) }

// CountAnd returns how many CPUs the two sets share.
func (s *Set) CountAnd(t *Set) int {
	n := 0
	for k := range s.some {
		for some := s.some[k] & t.some[k]; some != 0; some &= some - 1 {
			i := word(k, some)
			n += bits.OnesCount64(s.w[i] & t.w[i])
		}
	}
	return n
}

// IsEmpty reports whether the set has no CPU.
func (s Set) IsEmpty() bool { return s.some == [summaryCount]uint64{} }

// Intersects reports whether the two sets share a CPU.
func (s *Set) Intersects(t *Set) bool {
	for k := range s.some {
		for some := s.some[k] & t.some[k]; some != 0; some &= some - 1 {
			if i := word(k, some); s.w[i]&t.w[i] != 0 {
				return true
			}
		}
	}
	return false
}

// SubsetOf reports whether every CPU of s is in t.
func (s *Set) SubsetOf(t *Set) bool {
	for k, some := range s.some {
		if some&^t.some[k] != 0 {
			return false
		}
		for ; some != 0; some &= some - 1 {
			if i := word(k, some); s.w[i]&^t.w[i] != 0 {
				return false
			}
		}
	}
	return true
}

// Next returns the lowest CPU of the set that is at least from, or -1.
func (s *Set) Next(from int) int {
	if from < 0 {
		from = 0
	}
	if from >= MaxCPUs {
		return -1
	}
	i := from >> 6
	if w := s.w[i] >> (from & 63); w != 0 {
		return from + bits.TrailingZeros64(w)
	}
	if i++; i == wordCount {
		return -1
	}
	k, bit := place(i)
	some := s.some[k] &^ (bit - 1)
	for some == 0 {
		if k++; k == summaryCount {
			return -1
		}
		some = s.some[k]
	}
	i = word(k, some)
	return i<<6 + bits.TrailingZeros64(s.w[i])
}

// First returns the lowest CPU of the set, or -1 if it is empty.
func (s Set) First() int { return s.Next(0) }

// All ranges over the CPUs in rising order.
func (s *Set) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for k := range s.some {
			for some := s.some[k]; some != 0; some &= some - 1 {
				i := word(k, some)
				for w := s.w[i]; w != 0; w &= w - 1 {
					if !yield(i<<6 + bits.TrailingZeros64(w)) {
						return
					}
				}
			}
		}
	}
}

// String returns the set in the kernel's list format, shortest form: "0-3,8".
func (s Set) String() string {
	var b strings.Builder
	for lo := s.Next(0); lo >= 0; {
		hi := lo
		for s.Has(hi + 1) {
			hi++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(lo))
		if hi > lo {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(hi))
		}
		lo = s.Next(hi + 1)
	}
	return b.String()
}

// MarshalText writes the list format.
func (s Set) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the list format.
func (s *Set) UnmarshalText(text []byte) error {
	v, err := Parse(string(text))
	if err != nil {
		return err
	}
	*s = v
	return nil
}

// Parse reads the kernel's list format: numbers and ascending ranges joined by
// commas, each CPU at most once; "" is the empty set. Work and memory are
// bounded whatever the text says.
func Parse(list string) (Set, error) {
	var s Set
	if list == "" {
		return s, nil
	}
	if len(list) > maxListBytes {
		return Set{}, fmt.Errorf("CPU list of %d bytes is longer than the %d that any machine needs", len(list),
			maxListBytes)
	}
	for part := range strings.SplitSeq(list, ",") {
		lo, hi, err := parseRange(part)
		if err != nil {
			return Set{}, fmt.Errorf("CPU list %s: %w", quote(list), err)
		}
		for c := lo; c <= hi; c++ {
			if s.Has(c) {
				return Set{}, fmt.Errorf("CPU list %s: names CPU %d twice", quote(list), c)
			}
			s.Add(c)
		}
	}
	return s, nil
}

func parseRange(part string) (lo, hi int, err error) {
	first, last, isRange := strings.Cut(part, "-")
	if lo, err = parseCPU(first); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", quote(part), err)
	}
	if !isRange {
		return lo, lo, nil
	}
	if hi, err = parseCPU(last); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", quote(part), err)
	}
	if hi < lo {
		return 0, 0, fmt.Errorf("%s: range runs backwards, write %d-%d", quote(part), hi, lo)
	}
	return lo, hi, nil
}

func parseCPU(text string) (int, error) {
	if text == "" {
		return 0, fmt.Errorf("a CPU number is missing")
	}
	n := 0
	for i := range len(text) {
		d := text[i]
		if d < '0' || d > '9' {
			return 0, fmt.Errorf("not a CPU number")
		}
		if n = n*10 + int(d-'0'); n >= MaxCPUs {
			return 0, fmt.Errorf("CPU numbers end at %d", MaxCPUs-1)
		}
	}
	return n, nil
}

// quote shortens hostile text so that an error message stays one readable line.
func quote(text string) string {
	const most = 40
	if len(text) > most {
		return strconv.QuoteToASCII(text[:most]) + "…"
	}
	return strconv.QuoteToASCII(text)
}
