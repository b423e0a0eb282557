package experiment

import (
	"math"
	"slices"
)

// The hypotheses on how a suspect acts. They run side by side, and a test's e-value is
// their weighted mean, since a mean of e-values is one.
const (
	kernels = 6
	maxLag  = 3
)

// kernel is one hypothesis: today's residual is judged by the coin of so many windows
// ago.
type kernel struct {
	lag    int
	weight float64
	idle   float64 // share of the windows in which an active suspect does not disturb
	leaky  bool    // the effect fills and drains: a cache
}

func kernelTable() [kernels]kernel {
	return [kernels]kernel{
		{lag: 0, weight: .26, idle: .08},
		{lag: 0, weight: .14, idle: .40},
		{lag: 0, weight: .21, idle: .08, leaky: true},
		{lag: 1, weight: .13, idle: .30},
		{lag: 2, weight: .13, idle: .30},
		{lag: 3, weight: .13, idle: .30},
	}
}

// immediate kernels come first in the table: those without a lag.
const immediate = 3

// coin is one throw, and what was known when it was thrown.
type coin struct {
	Window int64   `json:"w"`
	P      float64 `json:"p"` // of on
	On     bool    `json:"on"`
	// Active says that the suspect wanted more than the throttle leaves, which a throttle
	// does not change. Known after the window.
	Active bool `json:"active"`
}

// effect is what the test expects of a residual: what it is while the suspect disturbs,
// and how much it varies anyway.
type effect struct{ disturbed, sd float64 }

// process is the e-process of a pair: ln of what was won by betting on each kernel.
type process struct {
	Now [kernels]float64 `json:"now"`
	// Past are the values of the last windows, the newest first. A kernel of lag l knows
	// the coins up to l windows ago only.
	Past  [maxLag][kernels]float64 `json:"past"`
	Coins [maxLag + 1]coin         `json:"coins"`
	Held  float64                  `json:"held"` // how full the leaky kernel's cache is
}

// mean is the e-value from ln e of every kernel.
func mean(logs *[kernels]float64) float64 {
	e := 0.0
	for i, k := range kernelTable() {
		e += k.weight * math.Exp(logs[i])
	}
	return e
}

// e is the newest value. It steers the propensities, which may be anything that the past
// decides.
func (p *process) e() float64 { return mean(&p.Now) }

// best is the e-value of the best kernel alone: what the mean could still come back from.
func (p *process) best() float64 { return math.Exp(slices.Max(p.Now[:])) }

// slow says that the leaky kernel explains the windows clearly better than those without
// a memory.
func (p *process) slow() bool { return p.Now[leaky] > max(p.Now[0], p.Now[1])+slowLead }

const (
	leaky    = 2 // in the table of kernels
	slowLead = 0.5
)

// on says what the coin of a window was.
func (p *process) on(window int64) bool {
	c := p.coinOf(window)
	return c != nil && c.On
}

// sure is what a verdict goes by: a value on which the guarantee holds exactly. A
// kernel with a lag has not seen the newest coins, so the newest values of all are no
// martingale together. Those of the coins up to three windows ago are; and so are those
// of the newest, of which the immediate kernels are a lower bound.
func (p *process) sure() float64 {
	now := 0.0
	for i, k := range kernelTable() {
		if i < immediate {
			now += k.weight * math.Exp(p.Now[i])
		}
	}
	return max(now, p.synchronous())
}

// synchronous is the e-value of the coins up to three windows ago, which all kernels have
// seen.
func (p *process) synchronous() float64 {
	e := 0.0
	for i, k := range kernelTable() {
		log := p.Now[i]
		if back := maxLag - k.lag; back > 0 {
			log = p.Past[back-1][i]
		}
		e += k.weight * math.Exp(log)
	}
	return e
}

// coinOf a window; nil if none was thrown.
func (p *process) coinOf(window int64) *coin {
	c := &p.Coins[index(window, maxLag+1)]
	if c.Window != window || c.P <= 0 {
		return nil
	}
	return c
}

func index(window, n int64) int64 { return (window%n + n) % n }

// observe takes the victim's residual of a window; NaN where there is none.
func (p *process) observe(window int64, r float64, x effect) {
	copy(p.Past[1:], p.Past[:maxLag-1])
	p.Past[0] = p.Now
	now := p.coinOf(window)
	held := p.Held
	p.fill(now)
	if math.IsNaN(r) {
		return
	}
	for i, k := range kernelTable() {
		c := p.coinOf(window - int64(k.lag))
		if c == nil || !c.Active || c.P >= 1 {
			continue
		}
		m := model{a0: x.disturbed, s: max(0.06, 1.1*x.sd), idle: k.idle}
		if k.leaky {
			m.a0, m.a1 = x.disturbed*filled(held, false), x.disturbed*filled(held, true)
			m.s += 0.05
		}
		p.Now[i] += math.Log(factor(c, m.quiet(r), m.noisy(r)))
	}
}

// factor is how much a bet on the coin's side multiplies the stake. Its mean is 1 if the
// likelihoods do not depend on the coin.
func factor(c *coin, quiet, noisy float64) float64 {
	on := c.P * quiet / (c.P*quiet + (1-c.P)*noisy)
	if c.On {
		return on / c.P
	}
	return (1 - on) / (1 - c.P)
}

// filled is how full the cache is after a window.
func filled(held float64, throttled bool) float64 {
	if throttled {
		return 0.65 * held
	}
	return held + 0.6*(1-held)
}

func (p *process) fill(c *coin) {
	switch {
	case c == nil:
		p.Held *= 0.8
	default:
		p.Held = filled(p.Held, c.On || !c.Active)
	}
}

// bound keeps e from growing beyond what it could fall back from. Giving away is
// allowed to who bets.
func (p *process) bound(most float64) {
	over := p.e() / most
	if over <= 1 {
		return
	}
	down := math.Log(over)
	for i := range p.Now {
		p.Now[i] -= down
	}
	for k := range p.Past {
		for i := range p.Past[k] {
			p.Past[k][i] -= down
		}
	}
}

// model of the residual while a suspect is left alone and while it is throttled: a0 and
// a1 are the two levels.
type model struct{ a0, a1, s, idle float64 }

// normal density.
func normal(x, mean, sd float64) float64 {
	z := (x - mean) / sd
	return math.Exp(-0.5*z*z) / (sd * 2.5066282746310002)
}

// noisy is the density while it is left alone.
func (m *model) noisy(r float64) float64 {
	return (0.92-m.idle)*normal(min(r, m.a0), m.a0, 0.15) + m.idle*normal(r, 0, m.s) + 0.08
}

// quiet is the density while it is throttled.
func (m *model) quiet(r float64) float64 {
	low := max(r, m.a1)
	return 0.7*normal(low, m.a1, m.s) + 0.25*normal(low, m.a1+0.4*(m.a0-m.a1), m.s+0.05) +
		0.05*normal(min(r, m.a0), m.a0, 0.15) + 0.03
}
