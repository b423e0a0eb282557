package experiment

// bucket fills by a rate each window, up to a bound.
type bucket struct {
	Left   float64 `json:"left"`
	Window int64   `json:"-"`
}

// fill to a window; the first time it is full.
func (b *bucket) fill(window int64, rate, most float64) {
	if b.Window == 0 {
		b.Left = most
	} else {
		b.Left = min(b.Left+rate*float64(window-b.Window), most)
	}
	b.Window = window
}

// accuser is who pays for tests: a namespace, so that more containers buy no more.
type accuser struct {
	starts bucket // of tests
	harm   bucket // minutes in which a throttle took something away
}

const (
	savedStarts = 2 // hours' worth
	savedHarm   = 2 // hours' worth
	leastHarm   = 1 // minutes: with less nobody is probed
	// A suspect bears twice as much as one accuser may ask for, whoever asks.
	bears = 2
)

func (d *Detector) perWindow(hourly float64) float64 { return hourly * d.cfg.Period.Hours() }

// accuserOf a container: its namespace, or where there is none its job.
func (d *Detector) accuserOf(name string) *accuser {
	a := d.accusers[name]
	if a == nil {
		a = &accuser{}
		d.accusers[name] = a
	}
	a.starts.fill(d.window, d.perWindow(d.cfg.Starts), savedStarts*d.cfg.Starts)
	a.harm.fill(d.window, d.perWindow(d.cfg.Budget), savedHarm*d.cfg.Budget)
	return a
}

// harmOf a suspect.
func (d *Detector) harmOf(s *suspect) *bucket {
	s.harm.fill(d.window, d.perWindow(bears*d.cfg.Budget), savedHarm*bears*d.cfg.Budget)
	return &s.harm
}

// price of a window in which a throttle took something away. It falls with the evidence;
// an innocent reaches e ≥ 16 with probability 1/16 only, so that it cannot be farmed.
func price(e float64) float64 { return min(1, 4/e) }
