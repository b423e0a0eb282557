package experiment

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
)

// kernels of the largest bank, and windows that it remembers: coins of more than its longest
// lag, and residuals of as many as are judged together.
const (
	kernels = 24
	recent  = 20
	judged  = 2
)

// kernel is one hypothesis on how a suspect acts: the residual is judged by the coin of so
// many windows ago. They run side by side, and a test's e-value is their weighted mean,
// since a mean of e-values is one.
type kernel struct {
	lag    int
	weight float64
	idle   float64 // share of the windows in which an active suspect does not disturb
	leaky  bool    // the effect fills and drains: a cache
	block  bool    // it bets on the coins of blocks alone
	over   int     // windows whose mean is judged, up to the present one
	group  int     // of kernels that are given up together
}

// bank is the hypotheses for windows of a length.
type bank struct {
	list      []kernel
	span      int // windows in a period
	block     int // windows that a block's coin is for; 0: there are no blocks
	fill      float64
	drain     float64
	longest   int // lag
	wellAfter int // windows without disturbance beside the busy suspect, from which on it is left alone
	// terms of a verdict, in windows of activity: the next one after each that was survived.
	terms []int
}

// The first term of a verdict is so many windows, the longest so many periods.
const firstTerm, longestTerm = 5, 40

func termsFor(span int) (list []int) {
	for n := firstTerm; n < longestTerm*span; n *= 2 {
		list = append(list, n)
	}
	return append(list, longestTerm*span)
}

// The leaky kernel's cache is filled by so much of what is free, and keeps so much, in a
// period.
const fillsBy, keeps = 0.6, 0.65

// bankFor windows of which so many are in a period. Effects may be three periods late.
func bankFor(span int) *bank {
	b := &bank{span: span, longest: 3 * span, fill: 1 - math.Pow(1-fillsBy, 1/float64(span)),
		drain: math.Pow(keeps, 1/float64(span)), wellAfter: 3, terms: termsFor(span)}
	if span == 1 {
		b.list = []kernel{
			{lag: 0, weight: .26, idle: .08, group: 0},
			{lag: 0, weight: .14, idle: .40, group: 1},
			{lag: 0, weight: .21, idle: .08, leaky: true, group: 2},
			{lag: 1, weight: .13, idle: .30, group: 3},
			{lag: 2, weight: .13, idle: .30, group: 4},
			{lag: 3, weight: .13, idle: .30, group: 5},
		}
		return b
	}
	// What acts at once, or late by so many windows exactly, shows in single windows; what
	// fills and drains in blocks of them.
	b.block, b.wellAfter = span, 6
	end := (span + 2) / 3
	b.list = []kernel{
		{lag: 0, weight: .28, idle: .08, group: 0},
		{lag: 0, weight: .14, idle: .40, group: 1},
		{lag: b.block - 1, weight: .13, idle: .08, block: true, over: end, group: 2},
		{lag: b.block - 1, weight: .17, idle: .08, leaky: true, block: true, over: end, group: 3},
	}
	for lag := 1; lag <= b.longest; lag++ {
		b.list = append(b.list, kernel{lag: lag, weight: .28 / float64(b.longest), idle: .30, group: 4})
	}
	return b
}

// coin is one throw, and what was known when it was thrown.
type coin struct {
	Window int64   `json:"w"`
	P      float64 `json:"p"` // of on
	On     bool    `json:"on"`
	// Active says that the suspect wanted more than the throttle leaves, which a throttle
	// does not change. Known after the window.
	Active bool `json:"active"`
	// Block says that what it says holds for the windows after it, too.
	Block bool `json:"block,omitempty"`

	held float64 // how full the cache was before it
	x    effect  // what is bet on it does not depend on it
}

// effect is what the test expects of a residual: what it is while the suspect disturbs,
// and how much it varies anyway.
type effect struct{ disturbed, sd float64 }

// process is the e-process of a pair, and those of the witnesses of its coins.
type process struct {
	stake
	Coins     coins     `json:"coins"`
	Held      float64   `json:"held"` // how full the leaky kernel's cache is
	Witnesses []witness `json:"witnesses,omitempty"`
	Witnessed string    `json:"witnessed,omitempty"` // the job that confirmed a verdict; empty: none yet
}

// stake is ln of what was won by betting on each kernel. A kernel of lag l knows the coins
// up to l windows ago.
type stake struct {
	Now  [kernels]float64 `json:"now"`
	past [judged]residual
}

// coins of the last windows.
type coins [recent]coin

// MarshalJSON leaves out the windows without a coin.
func (c coins) MarshalJSON() ([]byte, error) {
	list := make([]coin, 0, recent)
	for _, one := range c {
		if one.P > 0 {
			list = append(list, one)
		}
	}
	return json.Marshal(list)
}

// residual of a window.
type residual struct {
	window int64
	r      float64
}

// e is the newest value. It steers the propensities, which may be anything that the past
// decides.
func (p *process) e(b *bank) float64 {
	e := 0.0
	for i := range b.list {
		e += b.list[i].weight * math.Exp(p.Now[i])
	}
	return e
}

// best is the e-value of the best group of kernels alone: what the mean could still come
// back from.
func (p *process) best(b *bank) float64 {
	var won, staked [kernels]float64
	most := 0.0
	for i := range b.list {
		k := &b.list[i]
		won[k.group] += k.weight * math.Exp(p.Now[i])
		staked[k.group] += k.weight
		most = max(most, won[k.group]/staked[k.group])
	}
	return most
}

// slow says that what is seen in blocks explains the windows better than what is seen in
// single ones.
func (p *process) slow(b *bank) bool {
	var fast, slow float64
	for i := range b.list {
		if k := &b.list[i]; k.block || k.leaky {
			slow += k.weight * math.Exp(p.Now[i])
		} else {
			fast += k.weight * math.Exp(p.Now[i])
		}
	}
	return slow > slowLead*fast
}

const slowLead = 1.6

// on says what the coin of a window was.
func (p *process) on(window int64) bool {
	c := p.coinOf(window)
	return c != nil && c.On
}

// sure is what a verdict goes by: the guarantee holds for it exactly. Kernels of one lag
// know the same coins, so that the sum of what they won is a martingale, which begins at
// the sum of their weights w and reaches T with probability w/T at most. The weights of
// all lags sum to 1, and so any lag's sum reaches T with probability 1/T at most. The
// newest values of different lags together are no martingale.
func (p *process) sure(b *bank) float64 {
	won := p.byLag(b)
	return slices.Max(won[:])
}

// byLag is what the kernels of each lag have won.
func (s *stake) byLag(b *bank) (won [recent]float64) {
	for i := range b.list {
		won[b.list[i].lag] += b.list[i].weight * math.Exp(s.Now[i])
	}
	return won
}

// coinOf a window; nil if none was thrown.
func (p *process) coinOf(window int64) *coin { return p.Coins.of(window) }

func (l *coins) of(window int64) *coin {
	c := &l[index(window, recent)]
	if c.Window != window || c.P <= 0 {
		return nil
	}
	return c
}

// head is the coin of the block that a window is in, and does not begin; nil: there is none.
func (p *process) head(b *bank, window int64) *coin {
	for back := int64(1); back < int64(b.block); back++ {
		if c := p.coinOf(window - back); c != nil && c.Block {
			return c
		}
	}
	return nil
}

// move a coin that was in force for longer than a window to the end of that time.
func (p *process) move(from, to int64) {
	if c := p.coinOf(from); c != nil && from != to {
		moved := *c
		*c = coin{}
		moved.Window = to
		p.Coins[index(to, recent)] = moved
	}
}

func index(window, n int64) int64 { return (window%n + n) % n }

// seen is what a window showed: the victim's residual, NaN where there is none, and
// whether the suspect was active, which must not depend on the window's coin.
type seen struct {
	r      float64
	active bool
}

// observe a window.
func (p *process) observe(b *bank, window int64, s seen) {
	throttled := !s.active
	if now := p.coinOf(window); now != nil {
		now.held, now.Active = p.Held, s.active
		throttled = throttled || now.On
	}
	p.Held = b.filled(p.Held, throttled, 1)
	p.bet(b, &p.Coins, residual{window, s.r}, nil)
}

// bet on the coins with a window's residual. expects is what a disturbed window is like; nil: as
// it was when the coin was thrown.
func (s *stake) bet(b *bank, coins *coins, now residual, expects *effect) {
	s.past[index(now.window, judged)] = now
	for i := range b.list {
		k := &b.list[i]
		c := coins.of(now.window - int64(k.lag))
		if c == nil || !c.Active || c.P >= 1 || k.block && !c.Block {
			continue
		}
		if r := s.level(now.window, k.over); !math.IsNaN(r) {
			m := k.model(b, c, cmp.Or(expects, &c.x))
			s.Now[i] += math.Log(factor(c, m.quiet(r), m.noisy(r)))
		}
	}
}

// level is the mean residual of so many windows up to one, as far as they are known.
func (s *stake) level(window int64, over int) float64 {
	n, sum := 0, 0.0
	for k := range int64(max(over, 1)) {
		if at := &s.past[index(window-k, judged)]; at.window == window-k && !math.IsNaN(at.r) {
			n, sum = n+1, sum+at.r
		}
	}
	return sum / float64(n)
}

// model of the residual that a kernel has for a coin.
func (k *kernel) model(b *bank, c *coin, x *effect) model {
	m := model{a0: x.disturbed, s: max(0.06, 1.1*x.sd), idle: k.idle, wide: 0.15}
	if k.leaky {
		full, more := x.disturbed, 0.05
		if k.block {
			full, more, m.wide = fullShare*full, 0.02, 0.11
		}
		age := float64(k.lag+1) - 0.5*float64(max(k.over, 1)-1)
		m.a0, m.a1 = full*b.filled(c.held, false, age), full*b.filled(c.held, true, age)
		m.s += more
	}
	return m
}

// fullShare is what a full cache does, of what is expected of a disturbed window: in a test the cache
// is seldom full.
const fullShare = 1.3

// factor is how much a bet on the coin's side multiplies the stake. Its mean is 1 if the
// likelihoods do not depend on the coin.
func factor(c *coin, quiet, noisy float64) float64 {
	on := c.P * quiet / (c.P*quiet + (1-c.P)*noisy)
	if c.On {
		return on / c.P
	}
	return (1 - on) / (1 - c.P)
}

// filled is how full the cache is after windows of a kind.
func (b *bank) filled(held float64, throttled bool, windows float64) float64 {
	if throttled {
		return held * math.Pow(b.drain, windows)
	}
	return 1 - (1-held)*math.Pow(1-b.fill, windows)
}

// bound keeps e from growing beyond what it could fall back from. Giving away is
// allowed to who bets.
func (p *process) bound(b *bank, most float64) {
	over := p.e(b) / most
	if over <= 1 {
		return
	}
	down := math.Log(over)
	for i := range p.Now {
		p.Now[i] -= down
	}
}

// model of the residual while a suspect is left alone and while it is throttled: a0 and
// a1 are the two levels.
type model struct {
	a0, a1, s, idle float64
	wide            float64 // how much the level varies while it is left alone
}

// normal density.
func normal(x, mean, sd float64) float64 {
	z := (x - mean) / sd
	return math.Exp(-0.5*z*z) / (sd * 2.5066282746310002)
}

// noisy is the density while it is left alone.
func (m *model) noisy(r float64) float64 {
	return (0.92-m.idle)*normal(min(r, m.a0), m.a0, m.wide) + m.idle*normal(r, 0, m.s) + 0.08
}

// quiet is the density while it is throttled.
func (m *model) quiet(r float64) float64 {
	low := max(r, m.a1)
	return 0.7*normal(low, m.a1, m.s) + 0.25*normal(low, m.a1+0.4*(m.a0-m.a1), m.s+0.05) +
		0.05*normal(min(r, m.a0), m.a0, 0.15) + 0.03
}
