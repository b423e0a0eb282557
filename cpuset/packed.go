package cpuset

import (
	"encoding/binary"
	"math/bits"
)

// Packed is a Set in as many bytes as its highest CPU needs: eight for each 64 CPUs. It is
// for the many sets that wait to be used, say of other nodes. Packed sets are equal, by ==,
// when the sets are; the zero value is empty.
type Packed string

// Pack makes a Packed of a set.
func (s *Set) Pack() Packed {
	n := wordCount
	if !s.reaches() {
		n = nearWords
	}
	for n > 0 && s.Word(n-1) == 0 {
		n--
	}
	text := make([]byte, 0, 8*n)
	for i := range n {
		text = binary.LittleEndian.AppendUint64(text, s.Word(i))
	}
	return Packed(text)
}

// Set is the set.
func (p Packed) Set() (s Set) {
	s.AddPacked(p)
	return s
}

// AddPacked adds the CPUs of a packed set.
func (s *Set) AddPacked(p Packed) {
	for i := 0; i < nearWords && 8*i < len(p); i++ {
		s.near[i] |= p.word(i)
	}
	if 8*nearWords < len(p) {
		far := s.beyond()
		for i := nearWords; 8*i < len(p); i++ {
			far[i-nearWords] |= p.word(i)
		}
		s.setBeyond(&far)
	}
}

// RemovePacked takes the CPUs of a packed set out.
func (s *Set) RemovePacked(p Packed) {
	for i := 0; i < nearWords && 8*i < len(p); i++ {
		s.near[i] &^= p.word(i)
	}
	if 8*nearWords < len(p) && s.reaches() {
		far := s.beyond()
		for i := nearWords; 8*i < len(p); i++ {
			far[i-nearWords] &^= p.word(i)
		}
		s.setBeyond(&far)
	}
}

func (p Packed) word(i int) uint64 {
	b := p[8*i : 8*i+8]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

// Count is how many CPUs the set has.
func (p Packed) Count() (n int) {
	for i := range len(p) {
		n += bits.OnesCount8(p[i])
	}
	return n
}

// String is the set in the kernel's list format; it is marshalled as that.
func (p Packed) String() string               { return p.Set().String() }
func (p Packed) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the kernel's list format.
func (p *Packed) UnmarshalText(text []byte) error {
	var s Set
	if err := s.UnmarshalText(text); err != nil {
		return err
	}
	*p = s.Pack()
	return nil
}
