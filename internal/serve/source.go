package serve

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Source is what shares are counted by, of a request's RemoteAddr.
func Source(remote string) netip.Prefix {
	a, _ := netip.ParseAddrPort(remote) // of a Unix socket's peer: the zero address
	return sourceOf(a.Addr().Unmap().WithZone(""))
}

// sourceOf is an address, or of IPv6 its network: whoever has one address of it has
// them all.
func sourceOf(a netip.Addr) netip.Prefix {
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // of no address: the zero prefix, a source too
	return p
}

// maxRates bounds the sources whose rates are known; beyond it all begin anew.
const maxRates = 4096

// Rates bounds how often each source does something. It is safe for concurrent use.
type Rates struct {
	limit rate.Limit
	burst int

	mu       sync.Mutex // guards what follows
	of       map[netip.Prefix]*rate.Limiter
	returned map[netip.Prefix]int // what was given back and not used since
}

// NewRates allows so many a second on average, and burst at once.
func NewRates(perSecond float64, burst int) *Rates {
	return &Rates{limit: rate.Limit(perSecond), burst: burst, of: map[netip.Prefix]*rate.Limiter{},
		returned: map[netip.Prefix]int{}}
}

// Allow counts one more of a source, if it may have it.
func (r *Rates) Allow(source netip.Prefix, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.returned[source]; n > 0 {
		r.returned[source] = n - 1
		return true
	}
	l := r.of[source]
	if l == nil {
		if len(r.of) >= maxRates {
			clear(r.of)
			clear(r.returned)
		}
		l = rate.NewLimiter(r.limit, r.burst)
		r.of[source] = l
	}
	return l.AllowN(now, 1)
}

// Return gives back what Allow counted, of something that is not to be bounded after all.
func (r *Rates) Return(source netip.Prefix) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of[source] != nil { // else it begins anew, with all that it may have
		r.returned[source] = min(r.returned[source]+1, r.burst)
	}
}
