package cpuset

// Words is how many 64-CPU words a Set has.
const Words = wordCount

// Word returns CPUs 64*i to 64*i+63 as bits. Code that knows the highest CPU of
// its machine reads a few words instead of the whole set.
func (s *Set) Word(i int) uint64 {
	if i < nearWords {
		return s.near[i]
	}
	return s.word(i)
}

func (s *Set) word(i int) uint64 {
	far := s.beyond()
	return far[i-nearWords]
}
