package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/internal/cmdtest"
)

var floodFor = flag.Duration("flood.for", 0, "how long a flood lasts; 0: until each client has asked often enough")

// floodEnv marks the two processes of a flood, in a network namespace of their own: the
// daemon with those who ask it, and the hostile clients, which have what CPU time is
// left: elsewhere they are on other machines.
const (
	floodEnv       = "QUIETCORE_TEST_FLOOD"
	floodOfDaemon  = "daemon"
	floodOfClients = "clients"
)

// Addresses of a flood. All of 10.9.0.0/16 is local in the namespace, so that clients
// can have any of it; only inTheNamespace is an interface's.
const (
	inTheNamespace = "10.9.255.254"
	kubeletAddress = "10.9.1.1" // named to the daemon as its node's
	// Kubelet's where the daemon does not know it, and a scraper's. Each asks from another
	// address each time, since it asks more often than one address may.
	otherAddresses   = "10.9.2.%d"
	scraperAddresses = "10.9.3.%d"

	hostileAddresses = 32
	hostileEach      = 500 // connections to each listener
)

// A flood of idle, slow and deaf connections to every listener of a daemon keeps no
// probe out, for a second, nor a scrape.
func TestAFloodOfConnections(t *testing.T) {
	switch os.Getenv(floodEnv) {
	case floodOfDaemon:
		flood(t)
		return
	case floodOfClients:
		hostile(t)
		return
	}
	again := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-flood.for="+floodFor.String(),
		"-test.timeout="+(*floodFor+5*time.Minute).String())
	again.Env = append(os.Environ(), floodEnv+"="+floodOfDaemon, "NODE_IPS="+kubeletAddress)
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := again.CombinedOutput()
	if errors.Is(err, os.ErrPermission) {
		why := fmt.Sprintf("a network namespace is root's: %v", err)
		if os.Getenv("QUIETCORE_CI") != "" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	if t.Logf("%s", out); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("in the namespace: %v", err)
	}
}

// niceness sets it of every thread of the process, from which later ones have it.
func niceness(t *testing.T, n int) {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err == nil {
			err = unix.Setpriority(unix.PRIO_PROCESS, id, n)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			t.Fatal(err)
		}
	}
}

// loopback gives the namespace its addresses.
func loopback(t *testing.T) {
	t.Helper()
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s)
	set := func(what string, request uint, fill func(*unix.Ifreq) error) {
		name := "lo:1"
		if request == unix.SIOCSIFFLAGS {
			name = "lo"
		}
		r, err := unix.NewIfreq(name)
		if err == nil {
			err = fill(r)
		}
		if err == nil {
			err = unix.IoctlIfreq(s, request, r)
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	set("start loopback", unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error {
		r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		return nil
	})
	set("address", unix.SIOCSIFADDR, func(r *unix.Ifreq) error {
		return r.SetInet4Addr(net.ParseIP(inTheNamespace).To4())
	})
	set("mask", unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr(net.CIDRMask(16, 32)) })
}

func from(address string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: 10 * time.Second}
}

// attack is what the hostile connections of a flood do.
type attack struct{ opened, closed atomic.Int64 }

// on opens connections to an address again and again until ctx ends: one that sends
// nothing, one that sends a request byte by byte, one that asks and does not read, and
// one that asks for much at once.
func (a *attack) on(ctx context.Context, source, target string, kind int) {
	pace := time.NewTicker(time.Second)
	defer pace.Stop()
	for ctx.Err() == nil {
		if c, err := from(source).DialContext(ctx, "tcp", target); err == nil {
			a.opened.Add(1)
			stop := context.AfterFunc(ctx, func() { c.Close() })
			a.hold(c, kind, pace.C)
			stop()
			c.Close()
			a.closed.Add(1)
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
		}
	}
}

// hold has a connection until the daemon closes it.
func (a *attack) hold(c net.Conn, kind int, pace <-chan time.Time) {
	const asked = "GET /metrics HTTP/1.1\r\nHost: x\r\n"
	switch kind % 4 {
	case 1: // a byte of a header that does not end at a time
		_, err := io.WriteString(c, asked)
		for err == nil {
			<-pace
			_, err = io.WriteString(c, "x")
		}
		return
	case 2: // answers that are not read
		_, err := io.WriteString(c, asked+"\r\n")
		for err == nil {
			<-pace
			_, err = io.WriteString(c, asked+"\r\n")
		}
		return
	case 3:
		_, _ = io.WriteString(c, strings.Repeat(asked+"\r\n", 50))
	}
	_, _ = io.Copy(io.Discard, c)
}

// asker asks over a new connection each time.
type asker struct {
	name, source, url string
	want              string
	limit             time.Duration
	took              []time.Duration
}

func (a *asker) ask(t *testing.T, n int) {
	t.Helper()
	source := a.source
	if strings.Contains(source, "%") {
		source = fmt.Sprintf(source, n%250+1)
	}
	transport := insecure()
	transport.DialContext = from(source).DialContext
	client := &http.Client{Timeout: a.limit, Transport: transport}
	q, err := http.NewRequest(http.MethodGet, a.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+readerToken)
	begin := time.Now()
	resp, err := client.Do(q)
	if err != nil {
		t.Errorf("%s, the %d. time: %v", a.name, n+1, err)
		return
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(text), a.want) {
		t.Errorf("%s, the %d. time: %s, %v, no %q in %.200q", a.name, n+1, resp.Status, err, a.want, text)
	}
	a.took = append(a.took, time.Since(begin))
}

func (a *asker) log(t *testing.T) {
	slices.Sort(a.took)
	if n := len(a.took); n > 0 {
		t.Logf("%s: %d answers, median %s, p99 %s, longest %s", a.name, n, a.took[n/2], a.took[n*99/100], a.took[n-1])
	}
}

func flood(t *testing.T) {
	niceness(t, 0) // as kubelet starts a daemon, whatever the tests run with
	loopback(t)
	_, kubeconfig := reviewing(t)
	p := newPlace(t, reviewed(kubeconfig))
	text, err := os.ReadFile(p.config)
	if err != nil {
		t.Fatal(err)
	}
	const metrics, probes, page = ":9464", ":9466", "127.0.0.1:9465"
	changed := strings.NewReplacer(`listen: ""`, "listen: '"+metrics+"'",
		"health: {listen: ''}", "health: {listen: '"+probes+"'}", "page: {listen: ''}", "page: {listen: '"+page+"'}")
	if err := os.WriteFile(p.config, []byte(changed.Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	log, stop := p.start(t)

	clients := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=0")
	clients.Env = append(os.Environ(), floodEnv+"="+floodOfClients)
	for _, target := range []string{inTheNamespace + probes, inTheNamespace + metrics, page} {
		clients.Env = append(clients.Env, targetEnv+target+"=")
	}
	end, err := clients.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out := &cmdtest.Log{}
	clients.Stdout, clients.Stderr = out, out
	if err := clients.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = end.Close(); _ = clients.Wait(); t.Log(out) }()
	waitUntil(t, "the flood runs", func() bool { return strings.Contains(out.String(), flooding) })
	// The long form wants what is promised. The short one runs beside other tests, and wants an answer at all:
	// where listeners are full there is none.
	const scrape = 20 * time.Second
	soon := scrape
	if *floodFor > 0 {
		soon = time.Second
	}
	askers := []*asker{
		{name: "a probe from the node", source: kubeletAddress, url: "http://" + inTheNamespace + probes + "/livez",
			want: `"ok":true`, limit: soon},
		{name: "a probe from an unknown address", source: otherAddresses,
			url: "http://" + inTheNamespace + probes + "/readyz", want: `"ok":false`, limit: soon},
		{name: "a scrape", source: scraperAddresses, url: "https://" + inTheNamespace + metrics + "/metrics",
			want: "\nquietcore_build_info{", limit: scrape},
		{name: "the page", source: "127.0.0.1", url: "http://" + page + "/", want: "<html", limit: scrape},
	}
	pace := time.NewTicker(time.Second)
	defer pace.Stop()
	for begin, n := time.Now(), 0; n < 25 || time.Since(begin) < *floodFor; n++ {
		for _, a := range askers {
			a.ask(t, n)
		}
		if *floodFor > 0 {
			<-pace.C
		}
	}
	for _, a := range askers {
		a.log(t)
	}
	if code := stop(); code != 0 {
		t.Errorf("the daemon ended with %d\n%s", code, log)
	}
	if lines := strings.Count(log.String(), "\n"); lines > 100 {
		t.Errorf("the flood wrote %d lines into the log", lines)
	}
}

// targetEnv begins the names of variables that name the listeners; flooding is printed
// once every listener had so many connections that it closed some.
const (
	targetEnv = "QUIETCORE_TEST_FLOOD_TARGET_"
	flooding  = "the flood runs"
)

// hostile floods until its standard input ends.
func hostile(t *testing.T) {
	niceness(t, 19)
	ctx, cancel := context.WithCancel(context.Background())
	attacks := map[string]*attack{}
	var all sync.WaitGroup
	for _, variable := range os.Environ() {
		target, is := strings.CutPrefix(strings.TrimSuffix(variable, "="), targetEnv)
		if !is {
			continue
		}
		a := &attack{}
		attacks[target] = a
		for i := range hostileEach {
			source := fmt.Sprintf("10.9.0.%d", i%hostileAddresses+1)
			if strings.HasPrefix(target, "127.") {
				source = fmt.Sprintf("127.9.0.%d", i%hostileAddresses+1)
			}
			all.Go(func() { a.on(ctx, source, target, i/hostileAddresses) })
		}
	}
	waitUntil(t, "every listener closes connections, since it has no more places", func() bool {
		for _, a := range attacks {
			if a.opened.Load() < hostileEach || a.closed.Load() < hostileEach {
				return false
			}
		}
		return len(attacks) > 0
	})
	fmt.Println(flooding)
	_, _ = io.Copy(io.Discard, os.Stdin)
	for target, a := range attacks {
		t.Logf("%s: %d hostile connections opened, %d closed by the daemon", target, a.opened.Load(), a.closed.Load())
	}
	cancel()
	all.Wait()
}
