package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func nothing(http.ResponseWriter, *http.Request) {}

// served is a listener that answers until the test ends.
func served(t *testing.T, limits Limits, times Times, h http.HandlerFunc) string {
	t.Helper()
	l, err := Listen("127.0.0.1:0", limits)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, h, times) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// dial connects from an address of loopback.
func dial(t *testing.T, from, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: time.Minute}
	c, err := d.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

// answered says whether a request over a connection has an answer.
func answered(t *testing.T, c net.Conn) bool {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, request); err != nil {
		return false
	}
	_, err := c.Read(make([]byte, 16))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("no answer and no end within a minute")
	}
	return err == nil
}

// A tenant that takes all the connections it can get keeps no other client from being
// answered, and gives what it took back by ending.
func TestAFloodFromOneSource(t *testing.T) {
	const most = 16
	address := served(t, Limits{All: 64, FromOne: most}, Times{Request: time.Hour, Idle: time.Hour}, nothing)
	var held []net.Conn
	for i := range most {
		c := dial(t, "127.0.0.2", address)
		if !answered(t, c) {
			t.Fatalf("connection %d is not answered", i)
		}
		held = append(held, c)
	}
	for range 100 {
		if answered(t, dial(t, "127.0.0.2", address)) {
			t.Fatal("one more is answered")
		}
	}
	if !answered(t, dial(t, "127.0.0.3", address)) {
		t.Error("another client is locked out")
	}
	for _, c := range held {
		c.Close()
	}
	for end := time.Now().Add(time.Minute); !answered(t, dial(t, "127.0.0.2", address)); {
		if time.Now().After(end) {
			t.Fatal("it is kept out though it has none any more")
		}
	}
}

// Connections that are held by many addresses, with a part of a request or none, are
// closed one by one for clients that have fewer.
func TestAFloodFromManySources(t *testing.T) {
	address := served(t, Limits{All: 32, FromOne: 16}, Times{Request: time.Hour}, nothing)
	for i := range 200 {
		c := dial(t, fmt.Sprintf("127.0.1.%d", i%20), address)
		_, _ = io.WriteString(c, request[:i%len(request)]) // it may be closed already
	}
	for i := range 100 {
		if !answered(t, dial(t, fmt.Sprintf("127.0.2.%d", i), address)) {
			t.Fatalf("client %d is locked out", i)
		}
	}
}

// fake is a connection from an address.
type fake struct {
	net.Conn
	from   string
	closed bool
}

func (c *fake) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.from), 1))
}
func (c *fake) Close() error { c.closed = true; return nil }

// fakes is a net.Listener of connections that a test makes.
type fakes struct {
	net.Listener
	next []*fake
}

func (l *fakes) Accept() (net.Conn, error) {
	if len(l.next) == 0 {
		return nil, io.EOF
	}
	c := l.next[0]
	l.next = l.next[1:]
	return c, nil
}

// accepted opens a connection, nil where it was refused.
func accepted(t interface {
	Helper()
	Fatal(...any)
}, l *Listener, f *fake) *conn {
	t.Helper()
	l.Listener.(*fakes).next = []*fake{f}
	c, err := l.Accept()
	if err != nil {
		if !f.closed {
			t.Fatal("it is refused and left open")
		}
		return nil
	}
	return c.(*conn)
}

// Whatever comes, a listener keeps to its limits; a connection of a source that holds
// less than the others is accepted; and what it closes is of a source that had the most.
func TestSharesAreFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{
			All: rapid.IntRange(1, 8).Draw(t, "all"), FromOne: rapid.IntRange(1, 8).Draw(t, "one"),
			Own: rapid.IntRange(0, 3).Draw(t, "own"), IsOwn: netip.Addr.IsLoopback,
		}
		l := Limit(&fakes{}, limits)
		var all []*fake
		place := map[*fake]*conn{}
		open := func(from string) (n int) {
			for _, f := range all {
				if !f.closed && (from == "" && f.from != "127.0.0.1" || f.from == from) {
					n++
				}
			}
			return n
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(all) > 0 && rapid.IntRange(0, 3).Draw(t, "what") == 0 {
				if f := rapid.SampledFrom(all).Draw(t, "whose"); place[f] != nil {
					place[f].Close()
				}
				continue
			}
			from := rapid.SampledFrom([]string{"127.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3"}).Draw(t, "from")
			mine, heaviest := open(from), 0
			for _, f := range all {
				if f.from != "127.0.0.1" {
					heaviest = max(heaviest, open(f.from))
				}
			}
			others := open("")
			f := &fake{from: from}
			c := accepted(t, l, f)
			all, place[f] = append(all, f), c
			wanted := limits.Own > 0
			if from != "127.0.0.1" {
				wanted = mine < limits.FromOne && (others < limits.All || mine < heaviest)
			}
			if wanted != (c != nil) {
				t.Fatalf("%s has %d of %d, the most is %d: accepted %t", from, mine, others, heaviest, c != nil)
			}
			if open("") > limits.All || open("127.0.0.1") > limits.Own {
				t.Fatalf("%+v: %d and %d own are open", limits, open(""), open("127.0.0.1"))
			}
		}
		for _, f := range all {
			if place[f] != nil {
				place[f].Close()
			}
		}
		if len(l.open) != 0 {
			t.Fatalf("after the last has gone %d are counted", len(l.open))
		}
	})
}

// The node's own addresses have places that no other takes.
func TestPlacesOfTheNode(t *testing.T) {
	l := Limit(&fakes{}, Limits{All: 2, FromOne: 2, Own: 1, IsOwn: netip.Addr.IsLoopback})
	first := &fake{from: "127.0.0.1"}
	if accepted(t, l, first) == nil {
		t.Fatal("the first of the node is refused")
	}
	for i := range 20 {
		accepted(t, l, &fake{from: fmt.Sprintf("10.0.0.%d", i)})
	}
	if first.closed {
		t.Error("others took the node's place")
	}
	if accepted(t, l, &fake{from: "127.0.0.1"}) == nil || !first.closed {
		t.Error("the node's next one does not take the place of its first")
	}
}

// An answer under way is the last to be closed.
func TestAnswersAreFinished(t *testing.T) {
	l := Limit(&fakes{}, Limits{All: 2, FromOne: 2})
	old, idle := &fake{from: "10.0.0.1"}, &fake{from: "10.0.0.1"}
	accepted(t, l, old).answering.Store(true)
	accepted(t, l, idle)
	if accepted(t, l, &fake{from: "10.0.0.2"}) == nil || old.closed || !idle.closed {
		t.Errorf("closed: the one that is answered %t, the idle one %t", old.closed, idle.closed)
	}
}

// A source that opens connections faster than it may has them closed, and no other has.
func TestRates(t *testing.T) {
	now := time.Unix(0, 0)
	l := Limit(&fakes{}, Limits{All: 100, FromOne: 4, Rate: 2, Own: 1, IsOwn: netip.Addr.IsLoopback})
	l.now = func() time.Time { return now }
	opened := func(from string) (n int) {
		for range 10 {
			if c := accepted(t, l, &fake{from: from}); c != nil {
				c.Close()
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		from string
		want int
	}{{"10.0.0.1", 4}, {"10.0.0.1", 0}, {"10.0.0.2", 4}, {"127.0.0.1", 10}} {
		if got := opened(c.from); got != c.want {
			t.Errorf("%s opened %d of 10, want %d", c.from, got, c.want)
		}
	}
	now = now.Add(time.Second)
	if got := opened("10.0.0.1"); got != 2 {
		t.Errorf("a second later it opened %d, want 2", got)
	}
	for i := range 2 * maxRates {
		accepted(t, l, &fake{from: netip.AddrFrom4([4]byte{11, 0, byte(i >> 8), byte(i)}).String()})
	}
	if len(l.rates.of) > maxRates {
		t.Errorf("%d sources are remembered", len(l.rates.of))
	}
}

// Whoever has one address of an IPv6 network has all of them.
func TestSources(t *testing.T) {
	l := Limit(&fakes{}, Limits{All: 8, FromOne: 2})
	for i, want := range []bool{true, true, false} {
		if got := accepted(t, l, &fake{from: fmt.Sprintf("2001:db8::%d", i+1)}) != nil; got != want {
			t.Errorf("connection %d of one network: accepted %t", i, got)
		}
	}
	if accepted(t, l, &fake{from: "2001:db8:0:1::1"}) == nil {
		t.Error("another network is refused")
	}
	if got := sourceOf(addressOf(&fake{from: "::ffff:10.0.0.1"})).String(); got != "10.0.0.1/32" {
		t.Errorf("an IPv4 address of a dual-stack socket is %s", got)
	}
}

// A client that requests much and reads nothing is disconnected: answers occupy memory.
func TestAReaderThatTakesNothingIsDisconnected(t *testing.T) {
	ended := make(chan struct{})
	address := served(t, Limits{All: 8, FromOne: 8}, Times{Request: time.Hour, Answer: 100 * time.Millisecond},
		func(w http.ResponseWriter, _ *http.Request) {
			defer close(ended)
			_, _ = io.WriteString(w, strings.Repeat("x", 64<<20))
		})
	if _, err := io.WriteString(dial(t, "127.0.0.1", address), request); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("after a minute the answer still waits")
	}
}

// A request, a handshake, the next request and a body that do not come end the
// connection.
func TestSlowClientsAreDisconnected(t *testing.T) {
	const soon = 50 * time.Millisecond
	limits := Limits{All: 8, FromOne: 8}
	for name, c := range map[string]struct {
		times Times
		send  string
	}{
		"no request":        {Times{Request: soon, Idle: time.Hour}, ""},
		"half a request":    {Times{Request: soon, Idle: time.Hour}, request[:len(request)-2]},
		"no second request": {Times{Request: time.Hour, Idle: soon}, request},
		"one request alone": {Times{Request: time.Hour}, request},
		"no body": {Times{Request: time.Hour, Idle: time.Hour},
			"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"},
		"no chunk": {Times{Request: time.Hour, Idle: time.Hour},
			"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, "127.0.0.1", served(t, limits, c.times, nothing))
			if _, err := io.WriteString(conn, c.send); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("it is open after a minute")
			}
		})
	}
}

// Behind TLS the listener knows as well which connection is answered.
func TestAnswersBehindTLS(t *testing.T) {
	l, err := Listen("127.0.0.1:0", Limits{All: 8, FromOne: 8})
	if err != nil {
		t.Fatal(err)
	}
	secure := httptest.NewUnstartedServer(nil)
	secure.StartTLS() // for its certificate
	defer secure.Close()
	marked := make(chan bool, 1)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, tls.NewListener(l, secure.TLS), http.HandlerFunc(
			func(_ http.ResponseWriter, r *http.Request) {
				c, ok := r.Context().Value(connKey{}).(*conn)
				marked <- ok && c.answering.Load()
			}), Times{Request: time.Minute})
	}()
	resp, err := secure.Client().Get("https://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if !<-marked {
		t.Error("a connection of TLS is not marked")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// What is given back can be had again, by the same source, and never adds up to more than there is at once.
func TestWhatIsGivenBack(t *testing.T) {
	now := time.Unix(1e9, 0)
	a, b := netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.0.0.2/32")
	r := NewRates(0.2, 3)
	for range 100 {
		if !r.Allow(a, now) {
			t.Fatal("it is kept out by what it gave back")
		}
		r.Return(a)
	}
	had := 0
	for r.Allow(a, now) {
		had++
	}
	if had != 3 {
		t.Errorf("%d at once, want 3", had)
	}
	for range 100 {
		r.Return(a)
		r.Return(b) // had nothing
	}
	for had = 0; r.Allow(a, now); had++ {
	}
	if had != 3 {
		t.Errorf("%d at once after it gave back more than it had, want 3", had)
	}
	for had = 0; r.Allow(b, now); had++ {
	}
	if had != 3 {
		t.Errorf("%d of another source, want 3", had)
	}
}
