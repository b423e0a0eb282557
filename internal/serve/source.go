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

	mu sync.Mutex // guards of
	of map[netip.Prefix]*rate.Limiter
}

// NewRates allows so many a second on average, and burst at once.
func NewRates(perSecond float64, burst int) *Rates {
	return &Rates{limit: rate.Limit(perSecond), burst: burst, of: map[netip.Prefix]*rate.Limiter{}}
}

// Allow counts one more of a source, if it may have it.
func (r *Rates) Allow(source netip.Prefix, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.of[source]
	if l == nil {
		if len(r.of) >= maxRates {
			clear(r.of)
		}
		l = rate.NewLimiter(r.limit, r.burst)
		r.of[source] = l
	}
	return l.AllowN(now, 1)
}
