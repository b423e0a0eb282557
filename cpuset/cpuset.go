// Package cpuset holds sets of logical CPUs as fixed-size bitmasks.
//
// A Set is a plain value: it is copied by assignment and compared with ==. The zero
// Set is empty. It has room for the CPU numbers 0 to MaxCPUs-1, the most that Linux can
// be built for on any architecture. A copy is 136 bytes, and no operation that makes a Set
// of CPUs below 1,024 allocates; higher ones are kept in a table of the process, where an
// operation looks its result up.
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
	"unique"
)

// MaxCPUs bounds CPU numbers. A list that names a larger number is refused
// before anything is built from it.
const MaxCPUs = 8192

// maxListBytes bounds the text of a list: every second CPU of MaxCPUs, written
// out, takes under 24 KiB.
const maxListBytes = 32 << 10

const (
	wordCount = MaxCPUs / 64
	nearWords = 16 // 1,024 CPUs: machines with more are rare
)

// Set is a set of logical CPU numbers in [0, MaxCPUs).
type Set struct {
	near [nearWords]uint64
	far  unique.Handle[words] // the CPUs beyond near; zero if there is none, so that == compares sets
}

// words are the CPUs of a set beyond its near ones.
type words [wordCount - nearWords]uint64

// beyond are the CPUs that are not near.
func (s *Set) beyond() (far words) {
	if s.reaches() {
		far = s.far.Value()
	}
	return far
}

func (s *Set) reaches() bool { return s.far != unique.Handle[words]{} }

func (s *Set) setBeyond(far *words) {
	if *far == (words{}) {
		s.far = unique.Handle[words]{}
	} else {
		s.far = unique.Make(*far)
	}
}

// combine replaces the CPUs that are not near by what op makes of those of both sets.
func (s *Set) combine(t *Set, op func(a, b uint64) uint64) {
	a, b := s.beyond(), t.beyond()
	for i := range a {
		a[i] = op(a[i], b[i])
	}
	s.setBeyond(&a)
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
	var b builder
	for c := lo; c <= hi; c++ {
		b.add(c)
	}
	return b.set()
}

// builder is a set that is being made.
type builder [wordCount]uint64

func (b *builder) add(cpu int)      { b[cpu>>6] |= 1 << (cpu & 63) }
func (b *builder) has(cpu int) bool { return b[cpu>>6]&(1<<(cpu&63)) != 0 }

func (b *builder) set() Set {
	s := Set{near: [nearWords]uint64(b[:nearWords])}
	s.setBeyond((*words)(b[nearWords:]))
	return s
}

// Add puts cpu into the set.
func (s *Set) Add(cpu int) {
	if i := cpu >> 6; i < nearWords {
		s.near[i] |= 1 << (cpu & 63)
		return
	}
	far := s.beyond()
	far[cpu>>6-nearWords] |= 1 << (cpu & 63)
	s.setBeyond(&far)
}

// Remove takes cpu out of the set.
func (s *Set) Remove(cpu int) { s.clear(cpu>>6, 1<<(cpu&63)) }

// clear takes the CPUs of one word out of the set.
func (s *Set) clear(word int, cpus uint64) {
	if word < nearWords {
		s.near[word] &^= cpus
		return
	}
	far := s.beyond()
	far[word-nearWords] &^= cpus
	s.setBeyond(&far)
}

// AddSet puts every CPU of t into the set.
func (s *Set) AddSet(t *Set) {
	for i := range s.near {
		s.near[i] |= t.near[i]
	}
	if t.reaches() {
		s.combine(t, func(a, b uint64) uint64 { return a | b })
	}
}

// RemoveSet takes every CPU of t out of the set.
func (s *Set) RemoveSet(t *Set) {
	for i := range s.near {
		s.near[i] &^= t.near[i]
	}
	if s.reaches() && t.reaches() {
		s.combine(t, func(a, b uint64) uint64 { return a &^ b })
	}
}

// KeepSet takes every CPU out of the set that is not in t.
func (s *Set) KeepSet(t *Set) {
	for i := range s.near {
		s.near[i] &= t.near[i]
	}
	if s.reaches() {
		s.combine(t, func(a, b uint64) uint64 { return a & b })
	}
}

// Has reports whether cpu is in the set. Numbers out of range are in no set.
func (s *Set) Has(cpu int) bool {
	return uint(cpu) < MaxCPUs && s.Word(cpu>>6)&(1<<(cpu&63)) != 0
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
	for i := range s.near {
		n += bits.OnesCount64(s.near[i] & t.near[i])
	}
	if s.reaches() && t.reaches() {
		a, b := s.beyond(), t.beyond()
		for i := range a {
			n += bits.OnesCount64(a[i] & b[i])
		}
	}
	return n
}

// IsEmpty reports whether the set has no CPU.
func (s Set) IsEmpty() bool { return s == Set{} }

// Intersects reports whether the two sets share a CPU.
func (s *Set) Intersects(t *Set) bool {
	for i := range s.near {
		if s.near[i]&t.near[i] != 0 {
			return true
		}
	}
	if s.reaches() && t.reaches() {
		a, b := s.beyond(), t.beyond()
		for i := range a {
			if a[i]&b[i] != 0 {
				return true
			}
		}
	}
	return false
}

// SubsetOf reports whether every CPU of s is in t.
func (s *Set) SubsetOf(t *Set) bool {
	for i := range s.near {
		if s.near[i]&^t.near[i] != 0 {
			return false
		}
	}
	return !s.reaches() || s.Minus(*t).far == unique.Handle[words]{}
}

// Next returns the lowest CPU of the set that is at least from, or -1.
func (s *Set) Next(from int) int {
	from = max(from, 0)
	if from >= MaxCPUs {
		return -1
	}
	i := from >> 6
	if w := s.Word(i) >> (from & 63); w != 0 {
		return from + bits.TrailingZeros64(w)
	}
	for i++; i < nearWords; i++ {
		if w := s.near[i]; w != 0 {
			return i<<6 + bits.TrailingZeros64(w)
		}
	}
	if s.reaches() {
		far := s.beyond()
		for ; i < wordCount; i++ {
			if w := far[i-nearWords]; w != 0 {
				return i<<6 + bits.TrailingZeros64(w)
			}
		}
	}
	return -1
}

// First returns the lowest CPU of the set, or -1 if it is empty.
func (s Set) First() int { return s.Next(0) }

// All ranges over the CPUs in rising order.
func (s *Set) All() iter.Seq[int] {
	return func(yield func(int) bool) { s.each(yield) } // so short that the set stays on the caller's stack
}

func (s *Set) each(yield func(int) bool) {
	if !eachOf(s.near[:], 0, yield) || !s.reaches() {
		return
	}
	far := s.beyond()
	eachOf(far[:], nearWords, yield)
}

func eachOf(words []uint64, first int, yield func(int) bool) bool {
	for i, w := range words {
		for ; w != 0; w &= w - 1 {
			if !yield((first+i)<<6 + bits.TrailingZeros64(w)) {
				return false
			}
		}
	}
	return true
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
	if list == "" {
		return Set{}, nil
	}
	if len(list) > maxListBytes {
		return Set{}, fmt.Errorf("CPU list of %d bytes is longer than the %d that any machine needs", len(list),
			maxListBytes)
	}
	var b builder
	for part := range strings.SplitSeq(list, ",") {
		lo, hi, err := parseRange(part)
		if err != nil {
			return Set{}, fmt.Errorf("CPU list %s: %w", quote(list), err)
		}
		for c := lo; c <= hi; c++ {
			if b.has(c) {
				return Set{}, fmt.Errorf("CPU list %s: names CPU %d twice", quote(list), c)
			}
			b.add(c)
		}
	}
	return b.set(), nil
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
