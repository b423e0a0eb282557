// Package serve is how the daemon listens where others can connect. Each [Listener] has
// a budget of connections of its own, shared fairly between the addresses that they
// come from, and [Serve] ends the connections of slow clients.
//
// A full listener refuses nobody who holds less than others: the address with the most
// connections loses its oldest. A client that holds connections open therefore keeps
// no other out, however many it holds and however many addresses it has, as long as
// requests are answered faster than connections are opened.
package serve

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Limits is a listener's budget.
type Limits struct {
	// All is the number of connections at once, FromOne that from one source: an IPv4
	// address, an IPv6 prefix of 64 bits, or a Unix socket's peers together.
	All, FromOne int
	// Own is the number of connections in addition to All that only the sources which
	// IsOwn names can have. Of these the oldest is closed for a new one.
	Own   int
	IsOwn func(netip.Addr) bool // nil: none is
	// Rate is the number of connections a second that a source can open on average, 0 for
	// any, with FromOne at once. More are closed unseen: a handshake of TLS costs time.
	// The sources of IsOwn are not held to it.
	Rate float64
}

// Listener accepts within its Limits.
type Listener struct {
	net.Listener
	limits Limits

	now   func() time.Time
	rates *Rates // nil: none

	mu   sync.Mutex // guards open; not held while a connection is closed
	open []*conn    // the oldest first
}

// Listen listens on HOST:PORT.
func Listen(address string, limits Limits) (*Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return Limit(l, limits), nil
}

// Limit accepts what l does within limits.
func Limit(l net.Listener, limits Limits) *Listener {
	limited := &Listener{Listener: l, limits: limits, now: time.Now}
	if limits.Rate > 0 {
		limited.rates = NewRates(limits.Rate, limits.FromOne)
	}
	return limited
}

// Accept returns the next connection that fits. One that does not is closed at once.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := addressOf(c)
		k := &conn{Conn: c, listener: l, source: sourceOf(from), own: l.limits.IsOwn != nil && l.limits.IsOwn(from)}
		loser, fits := l.admit(k)
		if loser != nil {
			loser.Conn.Close()
		}
		if fits {
			return k, nil
		}
		c.Close()
	}
}

func addressOf(c net.Conn) netip.Addr {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// admit counts k, and returns the connection that has to be closed for it.
func (l *Listener) admit(k *conn) (loser *conn, fits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var rivals []*conn
	if k.own {
		rivals = l.having(func(c *conn) bool { return c.own })
		fits = len(rivals) < l.limits.Own
	} else {
		others := l.having(func(c *conn) bool { return !c.own })
		var mine int
		mine, rivals = heaviest(others, k.source)
		if l.rates != nil && !l.rates.Allow(k.source, l.now()) || mine >= l.limits.FromOne {
			return nil, false
		}
		if fits = len(others) < l.limits.All; !fits && len(rivals) <= mine {
			return nil, false
		}
	}
	if !fits {
		if len(rivals) == 0 {
			return nil, false
		}
		loser = first(rivals)
		l.drop(loser)
	}
	l.open = append(l.open, k)
	return loser, true
}

func (l *Listener) having(is func(*conn) bool) []*conn {
	var list []*conn
	for _, c := range l.open {
		if is(c) {
			list = append(list, c)
		}
	}
	return list
}

// heaviest is how many connections a source has, and those of the one with the most.
// Of two it is the one whose oldest connection is older.
func heaviest(list []*conn, source netip.Prefix) (mine int, most []*conn) {
	by := map[netip.Prefix][]*conn{}
	for _, c := range list {
		by[c.source] = append(by[c.source], c)
	}
	for _, c := range list {
		if len(by[c.source]) > len(most) {
			most = by[c.source]
		}
	}
	return len(by[source]), most
}

// first is the oldest connection, if possible one that no answer is under way on.
func first(list []*conn) *conn {
	for _, c := range list {
		if !c.answering.Load() {
			return c
		}
	}
	return list[0]
}

func (l *Listener) drop(c *conn) {
	if i := slices.Index(l.open, c); i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
	}
}

// conn is one connection of a listener.
type conn struct {
	net.Conn
	listener  *Listener
	source    netip.Prefix
	own       bool
	answering atomic.Bool // a whole request was read, and its handler runs
}

// Close gives the connection's place back.
func (c *conn) Close() error {
	c.listener.mu.Lock()
	c.listener.drop(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
