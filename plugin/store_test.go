package plugin

import (
	"errors"
	"sync"

	"github.com/quietcore/quietcore/internal/state"
)

// memoryStore is a state file in memory that outlives the plugin.
type memoryStore struct {
	mu    sync.Mutex
	last  state.Snapshot
	tries int
	fail  bool
}

func (s *memoryStore) Save(next state.Snapshot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	if s.fail {
		return errors.New("no space left on device")
	}
	s.last = next
	return nil
}

func (s *memoryStore) load() state.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *memoryStore) set(next state.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = next
}

func (s *memoryStore) failing(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = yes
}

func (s *memoryStore) attempts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tries
}
