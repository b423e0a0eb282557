package detect

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpi"
)

// CommandKind says what is to be done.
type CommandKind string

const (
	DoCap     CommandKind = "cap"          // limit Container to Milli until Until
	DoUncap   CommandKind = "uncap"        // restore Container's own limit
	DoMove    CommandKind = "move-pool"    // keep the BE pool off Container's L3 domains until Until
	DoRestore CommandKind = "restore-pool" // let the BE pool use them again
	DoIdle    CommandKind = "idle"         // let Container run on otherwise idle CPUs alone until Until
	DoWake    CommandKind = "wake"         // let it run on others, too
	DoNarrow  CommandKind = "narrow"       // give Container little memory bandwidth until Until
	DoWiden   CommandKind = "widen"        // give it all again
	DoEvict   CommandKind = "evict"        // Container should run on another node
)

// Command is what the detector wants done. Its opposite follows at the deadline at the
// latest. The enforcer must keep the deadline on its own too, since the detector may be
// gone by then.
type Command struct {
	Kind      CommandKind
	Container Ref
	Milli     int64
	Until     time.Time
	Victim    Ref
	Why       string
}

// Result says whether an action helped a victim.
type Result string

const (
	Success Result = "success" // the victim's CPI is normal again
	Partial Result = "partial" // better, but not normal
	Failure Result = "failure"
	Unknown Result = "unknown" // the victim had too few samples
	Harm    Result = "harm"    // the cap disrupted the antagonist
	Gone    Result = "gone"    // the antagonist ended
	Refused Result = "refused" // the command was refused
)

// Outcome is the effect of one action on one victim: its CPI before and after, as
// multiples of the threshold.
type Outcome struct {
	Kind          CommandKind // DoCap or DoMove
	Antagonist    Ref
	Victim        Ref
	Result        Result
	Before, After float64
	Samples       int
	Why           string // the reason of a refusal
}

// party is a victim that an action protects.
type party struct {
	victim Ref
	before float64 // mean log(CPI/threshold) of its outliers before the action
	sum    float64 // of log(CPI/threshold) since
	room   float64 // sum since, of half the distance from normal to threshold
	n, bad int
	ended  Result // once its action is verified
}

// action is a cap or a move in force.
type action struct {
	kind       CommandKind
	antagonist Ref
	start      int64
	until      int64
	milli      int64
	verified   bool // a move that has helped and goes on
	threads    int32
	verdict    Result // set if it ends early
	parties    []party
}

const (
	maxParties = 8
	// A drop of the victim's CPI by 10 % is an improvement.
	improvement = 0.1
	// earlySamples outliers without improvement end a cap before its term.
	earlySamples = 3
	minTerm      = 3 // periods
	maxLevel     = 1000
	// A cap is harmful if its antagonist has so many times the threads, and so many more.
	harmfulGrowth, harmfulThreads = 4, 16
	evictPause                    = int64(time.Hour)
)

// decide chooses what follows from an analysis and does it.
func (d *Detector) decide(v *Verdict) {
	v.Kind = None
	antagonists := d.antagonists(v)
	if len(antagonists) == 0 {
		v.Why = d.whyNoAntagonist(v)
		return
	}
	if v.Score == 0 {
		v.Score = v.Suspects[0].Score
	}
	v.Kind = Observe
	v.Antagonists = antagonists[:1]
	victim := &d.all[v.Victim]
	switch {
	case !victim.Class.LatencySensitive():
		v.Why = fmt.Sprintf(
			"%s is to blame, but only LSE, LSR and LS containers are protected and the victim is of class %s",
			d.name(antagonists[0]), victim.Class)
		return
	case d.joinCap(v, antagonists):
		return
	}
	if a := d.pending(v.Victim); a != nil {
		v.Why = fmt.Sprintf("%s of %s is being verified until %s", a.kind, d.name(a.antagonist),
			stamp(a.until).Format(time.TimeOnly))
		return
	}
	able, reasons := d.actionable(victim, antagonists, true)
	if len(able) == 0 {
		// No new antagonist is left: try again those that failed once in this episode.
		able, reasons = d.actionable(victim, antagonists, false)
	}
	if len(able) == 0 {
		v.Why = "no action: " + strings.Join(reasons, "; ")
		return
	}
	if d.cfg.Mode == Classic {
		able = able[:1]
	}
	v.Antagonists = able
	d.act(v, reasons)
}

// act moves the BE pool where that is possible and has not failed before; otherwise it
// caps.
func (d *Detector) act(v *Verdict, reasons []string) {
	move := d.mayMove(v)
	v.Kind = Cap
	if move {
		v.Kind = Move
	}
	var names []string
	for _, ref := range v.Antagonists {
		s := v.Suspects[slices.IndexFunc(v.Suspects, func(s Suspect) bool { return s.Ref == ref })]
		name := fmt.Sprintf("%s scores %.2f over %d samples", d.name(ref), s.Score, s.Pairs)
		if d.cfg.Mode == Contrast {
			name = fmt.Sprintf("%s, contrast %.2f, confidence %.2f", name, s.Contrast, s.Confidence)
		}
		names = append(names, name)
	}
	v.Why = strings.Join(names, "; ")
	if len(reasons) > 0 {
		v.Why += "; not " + strings.Join(reasons, ", not ")
	}
	switch {
	case !d.cfg.Enforce:
		v.Why = fmt.Sprintf("observing, a %s would follow: %s", v.Kind, v.Why)
		v.Kind = Observe
	case move:
		d.startAction(v, action{kind: DoMove, antagonist: v.Antagonists[0], until: d.now + int64(d.cfg.CapFor)}, d.now+
			int64(d.cfg.MoveFor))
	default:
		for i, ref := range v.Antagonists {
			d.requestEviction(v, ref)
			// Of a group the least suspicious is released first: if the victim suffers
			// again, that cap was needed.
			term := max(int64(d.cfg.CapFor)-int64(i)*int64(d.cfg.Period),
				min(minTerm*int64(d.cfg.Period), int64(d.cfg.CapFor)))
			d.startAction(v, action{kind: DoCap, antagonist: ref, milli: d.level(v.Victim, ref), until: d.now + term},
				d.now+
					term)
		}
	}
}

func (d *Detector) startAction(v *Verdict, a action, until int64) {
	c := &d.all[a.antagonist]
	a.start, a.threads = d.now, c.threads
	a.parties = append(a.parties, d.party(v.Victim))
	cmd := Command{Kind: a.kind, Container: a.antagonist, Milli: a.milli, Until: stamp(until), Victim: v.Victim,
		Why: v.Why}
	if a.kind == DoMove {
		cmd.Container = v.Victim
	} else {
		c.capped++
		c.caps = append(c.caps, d.now)
		if extra := len(c.caps) - max(d.cfg.EvictAfter, 1); extra > 0 {
			c.caps = slices.Delete(c.caps, 0, extra)
		}
	}
	d.actions = append(d.actions, a)
	d.command(cmd)
}

func (d *Detector) command(c Command) {
	d.counts.Commands++
	d.work.commands = append(d.work.commands, c)
	d.events = append(d.events, Event{
		Kind: CommandEvent, At: stamp(d.now), Victim: d.all[c.Victim].Container,
		Command: &d.work.commands[len(d.work.commands)-1],
	})
}

// requestEviction asks for an eviction once an antagonist has been capped EvictAfter
// times in a day.
func (d *Detector) requestEviction(v *Verdict, ref Ref) {
	c := &d.all[ref]
	n := d.cfg.EvictAfter
	if n == 0 || len(c.caps) < n || d.now-c.caps[0] > int64(24*time.Hour) || c.evictionAsked != 0 &&
		d.now-c.evictionAsked < evictPause {
		return
	}
	c.evictionAsked = d.now
	d.command(Command{Kind: DoEvict, Container: ref, Victim: v.Victim,
		Why: fmt.Sprintf("%s was capped %d times in %s", d.name(ref), n,
			time.Duration(d.now-c.caps[0]).Round(time.Second))})
}

// party measures a victim before an action.
func (d *Detector) party(ref Ref) party {
	c := &d.all[ref]
	p := party{victim: ref}
	n := 0
	for i := c.window.n - 1; i >= 0; i-- {
		e := c.window.at(i)
		if e.at <= d.now-int64(d.cfg.Window) || e.at > d.now || !e.outlier {
			continue
		}
		p.before += d.excess(c, e)
		n++
	}
	p.before /= float64(max(n, 1))
	return p
}

// excess is log(CPI/threshold) of a sample.
func (d *Detector) excess(c *container, e *entry) float64 {
	return math.Log(e.cpi / c.job.threshold(d.cfg.Mode, BandOf(e.usage, d.cfg.MinUsage)))
}

// room is half the distance from normal to the threshold at the sample's usage.
func (d *Detector) room(c *container, e *entry) float64 {
	return d.cfg.RobustSigmas * c.job.robust[BandOf(e.usage, d.cfg.MinUsage)].logSD / 2
}

// joinCap adds the victim to a cap in force on one of its antagonists.
func (d *Detector) joinCap(v *Verdict, antagonists []Ref) bool {
	for i := range d.actions {
		a := &d.actions[i]
		if a.kind != DoCap || !slices.Contains(antagonists, a.antagonist) || d.cfg.Mode == Classic &&
			a.antagonist != antagonists[0] {
			continue
		}
		if slices.ContainsFunc(a.parties, func(p party) bool { return p.victim == v.Victim }) {
			return false
		}
		if len(a.parties) < maxParties {
			a.parties = append(a.parties, d.party(v.Victim))
		}
		v.Antagonists = append(antagonists[:0], a.antagonist)
		v.Why = fmt.Sprintf("%s is capped already, for %s", d.name(a.antagonist), d.name(a.parties[0].victim))
		return true
	}
	return false
}

// pending returns the action for a victim that awaits verification, or nil.
func (d *Detector) pending(victim Ref) *action {
	for i := range d.actions {
		a := &d.actions[i]
		if !a.verified && slices.ContainsFunc(a.parties, func(p party) bool { return p.victim == victim }) {
			return a
		}
	}
	return nil
}

// actionable returns the antagonists that may be acted on, and the reasons for the others.
// fresh excludes those that were tried within the window without success.
func (d *Detector) actionable(victim *container, antagonists []Ref, fresh bool) (able []Ref, reasons []string) {
	for _, ref := range antagonists {
		if why := d.whyNotActed(victim, &d.all[ref], fresh); why != "" {
			reasons = append(reasons, d.name(ref)+" is "+why)
			continue
		}
		able = append(able, ref)
	}
	return able, reasons
}

// whyNotActed says why an antagonist is not acted on; empty if it may be.
func (d *Detector) whyNotActed(victim, c *container, fresh bool) string {
	if may, why := c.MayBeCapped(); !may {
		return why
	}
	if c.gone > 0 {
		return "gone"
	}
	if c.capped > 0 {
		return "capped already"
	}
	pair := d.pairs.of(victim.Container, c.Container)
	level := d.baseLevel(c)
	if c.refused != 0 && d.now-c.refused < int64(d.cfg.CapFor) {
		return "not capped: " + c.refusal
	}
	if pair != nil {
		level = max(level, pair.Level)
		switch {
		case stamp(d.now).Before(pair.Blocked):
			return "not tried before " + pair.Blocked.Format(time.TimeOnly) + ", since it did not help"
		case fresh && stamp(d.now).Sub(pair.Failed) < d.cfg.Window:
			return "tried already"
		}
	}
	if c.LimitMilli > 0 && c.LimitMilli <= level {
		return fmt.Sprintf("limited to %dm already, %dm would loosen that", c.LimitMilli, level)
	}
	return ""
}

func (d *Detector) baseLevel(c *container) int64 {
	if c.Class == cpi.BE {
		return d.cfg.CapBEMilli
	}
	return d.cfg.CapBatchMilli
}

// level is the CPU limit of a cap for this pair: the configured one, or a higher one
// that has proved sufficient.
func (d *Detector) level(victim, antagonist Ref) int64 {
	c := &d.all[antagonist]
	base := d.baseLevel(c)
	if pair := d.pairs.of(d.all[victim].Container, c.Container); pair != nil && d.cfg.Mode == Contrast {
		return max(base, pair.Level)
	}
	return base
}

// mayMove says whether moving the BE pool out of the victim's L3 domains is tried
// before a cap.
func (d *Detector) mayMove(v *Verdict) bool {
	victim := &d.all[v.Victim]
	if d.cfg.Mode == Classic || !victim.MovablePool || victim.moveRefused != 0 &&
		d.now-victim.moveRefused < int64(blockFor) {
		return false
	}
	for i := range d.actions {
		if a := &d.actions[i]; a.kind == DoMove && d.all[a.parties[0].victim].Place.L3s.Intersects(&victim.Place.L3s) {
			return false
		}
	}
	for _, ref := range v.Antagonists {
		c := &d.all[ref]
		pair := d.pairs.of(victim.Container, c.Container)
		if !c.Class.InPool() || nearness(victim, c) < 1 || pair != nil && stamp(d.now).Sub(pair.Moved) < blockFor {
			return false
		}
	}
	return true
}

// verify adds a victim's sample to the actions that protect it.
func (d *Detector) verify(ref Ref, e *entry) {
	for i := range d.actions {
		a := &d.actions[i]
		if a.verified || e.at <= a.start || e.at > a.until {
			continue
		}
		for k := range a.parties {
			p := &a.parties[k]
			if p.victim != ref || !d.all[ref].job.usable {
				continue
			}
			x := d.excess(&d.all[ref], e)
			p.n++
			p.sum += x
			p.room += d.room(&d.all[ref], e)
			if x > 0 {
				p.bad++
			}
		}
	}
}

// ineffective says that every victim has enough samples, all outliers, and did not
// improve.
func (a *action) ineffective() bool {
	for _, p := range a.parties {
		if p.n < earlySamples || p.bad < p.n || p.sum/float64(p.n) < p.before-improvement {
			return false
		}
	}
	return true
}

func (p *party) result() Result {
	switch after := p.sum / float64(max(p.n, 1)); {
	case p.n < 2:
		return Unknown
	case after <= 0:
		return Success
	case after <= p.before-improvement:
		return Partial
	}
	return Failure
}

// expire ends the actions that are due.
func (d *Detector) expire() {
	for i := 0; i < len(d.actions); {
		a := &d.actions[i]
		c := &d.all[a.antagonist]
		if a.kind == DoCap && a.threads > 0 && c.threads >= harmfulGrowth*a.threads && c.threads >= a.threads+
			harmfulThreads {
			a.until, a.verdict = min(a.until, d.now), Harm
		} else if d.cfg.Mode == Contrast && !a.verified && d.now < a.until && a.ineffective() {
			a.until, a.verdict = d.now, Failure
		}
		if d.now < a.until || !d.finish(a) {
			i++
			continue
		}
		d.actions = slices.Delete(d.actions, i, i+1)
	}
}

// finish verifies an action and undoes it. It returns false for a move that helped and
// continues.
func (d *Detector) finish(a *action) bool {
	why := "its time is over"
	if !a.verified {
		best := Unknown
		for k := range a.parties {
			p := &a.parties[k]
			p.ended = cmp.Or(a.verdict, p.result())
			if best == Unknown || p.ended == Success {
				best = p.ended
			}
		}
		for k := range a.parties {
			d.conclude(a, &a.parties[k], a.parties[k].ended)
		}
		if end := a.start + int64(d.cfg.MoveFor); a.kind == DoMove && best == Success && d.now < end {
			a.verified, a.until = true, end
			return false
		}
		why = fmt.Sprintf("its time is over: %s", best)
		if a.verdict != "" {
			why = fmt.Sprintf("ended early: %s", best)
		}
	}
	d.undo(a, why)
	return true
}

func (d *Detector) undo(a *action, why string) {
	victim := a.parties[0].victim
	if a.kind == DoMove {
		d.command(Command{Kind: DoRestore, Container: victim, Victim: victim, Why: why})
		return
	}
	d.all[a.antagonist].capped--
	d.command(Command{Kind: DoUncap, Container: a.antagonist, Victim: victim, Why: why})
}

// conclude reports the outcome for one victim and learns from it.
func (d *Detector) conclude(a *action, p *party, result Result) {
	victim, antagonist := &d.all[p.victim], &d.all[a.antagonist]
	o := Outcome{Kind: a.kind, Antagonist: a.antagonist, Victim: p.victim, Result: result, Before: math.Exp(p.before),
		Samples: p.n}
	if p.n > 0 {
		o.After = math.Exp(p.sum / float64(p.n))
	}
	d.work.outcomes = append(d.work.outcomes, o)
	d.events = append(d.events, Event{
		Kind: OutcomeEvent, At: stamp(d.now), Victim: victim.Container,
		Outcome: &d.work.outcomes[len(d.work.outcomes)-1],
	})
	if result == Unknown || result == Gone || result == Refused {
		return
	}
	pair := d.pairs.learn(d.now, victim.Container, antagonist.Container)
	if a.kind == DoMove {
		// A move that did not help says nothing about which container is to blame.
		if result == Failure || result == Partial {
			pair.Moved = stamp(d.now)
		}
		return
	}
	d.adapt(pair, a, p, result)
	switch result {
	case Success:
		pair.Success++
		pair.Row = 0
	case Partial:
		pair.Partial++
		pair.Failed = stamp(d.now)
	case Failure:
		pair.Failure++
		pair.Failed = stamp(d.now)
		if d.failsJob(a, p) {
			pair.Row++
		}
		if pair.Row >= failuresInRow {
			pair.Blocked, pair.Row = stamp(d.now).Add(blockFor), 0
		}
	case Harm:
		pair.Harm++
		pair.Blocked = stamp(d.now).Add(blockFor)
	}
}

// failsJob says whether an action counts as a failure for the job of one of its victims: once,
// with the first of them, and not at all where it helped another.
func (d *Detector) failsJob(a *action, p *party) bool {
	antagonist := d.all[a.antagonist].Container
	key := keyOf(d.all[p.victim].Container, antagonist)
	of := func(other *party) bool { return keyOf(d.all[other.victim].Container, antagonist) == key }
	first := slices.IndexFunc(a.parties, func(other party) bool { return other.ended == Failure && of(&other) })
	return &a.parties[first] == p && !slices.ContainsFunc(a.parties, func(other party) bool {
		return (other.ended == Success || other.ended == Partial) && of(&other)
	})
}

// adapt raises the limit of the pair's next cap if this one helped more than enough,
// and lowers it if it did not help. The limit never falls below the configured one.
func (d *Detector) adapt(pair *Pair, a *action, p *party, result Result) {
	if d.cfg.Mode == Classic {
		return
	}
	switch {
	case result == Success && p.sum <= -p.room: // closer to normal than to the threshold
		pair.Level = min(2*a.milli, max(maxLevel, a.milli))
	case result == Success:
		pair.Level = a.milli
	default:
		pair.Level = a.milli / 2
	}
}

// abandon ends the part of a container that has ended in all actions.
func (d *Detector) abandon(now int64, ref Ref) {
	d.now = max(d.now, now)
	for i := 0; i < len(d.actions); {
		a := &d.actions[i]
		if a.kind == DoCap && a.antagonist == ref {
			for k := range a.parties {
				d.conclude(a, &a.parties[k], Gone)
			}
			d.all[ref].capped = 0
			d.actions = slices.Delete(d.actions, i, i+1)
			continue
		}
		left := slices.DeleteFunc(slices.Clone(a.parties), func(p party) bool { return p.victim == ref })
		if len(left) == 0 {
			d.undo(a, "the victim is gone")
			d.actions = slices.Delete(d.actions, i, i+1)
			continue
		}
		a.parties = left
		i++
	}
}

// whyNoAntagonist explains which condition the top suspect misses.
func (d *Detector) whyNoAntagonist(v *Verdict) string {
	if len(v.Suspects) == 0 {
		return "no other container ran"
	}
	s := &v.Suspects[0]
	switch name := d.name(s.Ref); {
	case s.Score < d.cfg.MinScore:
		return fmt.Sprintf("%s is the most suspicious with a score of %.3f; %.2f is needed", name, s.Score,
			d.cfg.MinScore)
	case s.Pairs < d.cfg.MinPairs:
		return fmt.Sprintf("%s scores %.3f over %d samples; %d are needed", name, s.Score, s.Pairs, d.cfg.MinPairs)
	case s.Contrast < steadyContrast:
		return fmt.Sprintf("%s scores %.3f but ran as much while the victim was normal: contrast %.2f", name, s.Score,
			s.Contrast)
	default:
		return fmt.Sprintf("%s scores %.3f, but its confidence is %.0f %%; %.0f %% is needed", name,
			s.Score, 100*s.Confidence, 100*d.cfg.MinConfidence)
	}
}

// InForce lists the caps and moves in force.
func (d *Detector) InForce() []Command {
	var list []Command
	for i := range d.actions {
		a := &d.actions[i]
		until := a.until
		if a.kind == DoMove {
			until = a.start + int64(d.cfg.MoveFor)
		}
		list = append(list, Command{Kind: a.kind, Container: a.antagonist, Milli: a.milli, Until: stamp(until),
			Victim: a.parties[0].victim})
	}
	return list
}
