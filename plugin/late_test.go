package plugin

import (
	"testing"
	"time"
)

func TestTheNaiveOrderStartsAnOwnerBesideTheOthers(t *testing.T) {
	n, g := gated(t)
	n.up(func(o *Options) { o.late = 100 * time.Millisecond })
	mustRun(t, n, burstable("web"))
	n.settle()
	released := make(chan struct{})
	g.set("kubepods/burstable", released, nil) // the window, as wide as this test needs it
	mustRun(t, n, lsr("db", 4000))
	if web, db := n.on("web-main"), n.on("db-main"); web != "0-15" || db != "0-3" {
		t.Errorf("web runs on %s, db on %s; want the owner started and nobody gone", web, db)
	}
	close(released)
	n.want("web-main", "4-15")
}

func TestAnAuditCanBeAskedFor(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	p := n.up(func(o *Options) { o.Clock.Audit = make(chan time.Time) })
	mustRun(t, n, burstable("web"), lsr("db", 4000))
	n.settle()
	n.kernel.Tamper("kubepods/burstable", "0-15")
	p.Audit()
	n.want("web-main", "4-15")
}
