package detect

import "math"

// entry is a stored sample.
type entry struct {
	at      int64 // nanoseconds
	usage   float64
	cpi     float64 // 0: none
	misses  float32
	outlier bool
}

// ring holds a container's last samples in order of time, without duplicates.
type ring struct {
	entries []entry
	head, n int
}

func (r *ring) at(i int) *entry {
	i += r.head
	if i >= len(r.entries) {
		i -= len(r.entries)
	}
	return &r.entries[i]
}

func (r *ring) newest() *entry { return r.at(r.n - 1) }

// put inserts by time. It rejects a duplicate and, once full, a sample older than all
// others.
func (r *ring) put(e entry) (*entry, dropReason) {
	i := r.n
	for ; i > 0; i-- {
		if was := r.at(i - 1).at; was == e.at {
			return nil, dropDuplicate
		} else if was < e.at {
			break
		}
	}
	if r.n == len(r.entries) {
		if i == 0 {
			return nil, dropTooLate
		}
		if r.head++; r.head == len(r.entries) {
			r.head = 0
		}
		i--
	} else {
		r.n++
	}
	for j := r.n - 1; j > i; j-- {
		*r.at(j) = *r.at(j - 1)
	}
	slot := r.at(i)
	*slot = e
	return slot, dropNone
}

// nearest returns the sample closest to a time and less than half a period away, or
// nil. The search starts at from; next is where to start for a later time.
func (r *ring) nearest(at, period int64, from int) (e *entry, next int) {
	for from < r.n && 2*(at-r.at(from).at) >= period {
		from++
	}
	if from < r.n {
		if e = r.at(from); e.at == at {
			return e, from
		}
		e = nil
	}
	for i, gap := from, int64(math.MaxInt64); i < r.n; i++ {
		this := r.at(i)
		off := this.at - at
		if off < 0 {
			off = -off
		}
		if 2*off >= period || off >= gap {
			break
		}
		e, gap = this, off
	}
	return e, from
}

// dropReason says why a sample is dropped.
type dropReason uint8

const (
	dropNone dropReason = iota
	dropDuplicate
	dropTooLate
	dropFuture
	dropAbsurd
	dropUnknown
	dropReasons
)

// dropLabels are the reasons as metric labels.
var dropLabels = [dropReasons]string{"", "duplicate", "late", "future", "absurd", "unknown-container"}
