package cpuallocator

// searchGrown and setTargetGrown stand in for the table of node sets on
// machines with too many nodes for one.
func (a *Allocator) searchGrown() {}

func (a *Allocator) setTargetGrown() bool { return true }

func (a *Allocator) fewestGrown() int { return len(a.m.nodes) }
