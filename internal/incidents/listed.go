package incidents

import "time"

// Select has those of a list that match, in the list's order, whatever the limit. What is in force is as it was when
// the list was made.
func (f Filter) Select(list []Summary) []Summary {
	active := f.Active
	f.Active = false
	s := f.selection(time.Time{})
	var out []Summary
	for i := range list {
		one := &list[i]
		if one.At.Before(f.Since) || !f.Until.IsZero() && !one.At.Before(f.Until) || active && !one.Active {
			continue
		}
		if d := one.digest(0); s.matchesStart(&d) && s.match(&d) {
			out = append(out, *one)
		}
	}
	return out
}

// Of is the Top of incidents in a list. A list does not say which caps its incidents share, so nobody has
// CappedSeconds.
func (q TopQuery) Of(list []Summary) *Top {
	r := q.ranking(time.Time{})
	for i, one := range (Filter{Since: q.Since, Until: q.Until}).Select(list) {
		if d := one.digest(uint64(i) + 1); r.matchesStart(&d) {
			r.add(&d)
		}
	}
	return r.top()
}

// digest is as much of one as a list has.
func (s *Summary) digest(seq uint64) digest {
	d := digest{seq: seq, at: s.At.UnixMilli(), cpi: s.CPI, threshold: s.Threshold, mean: s.Mean, before: s.Before,
		after: s.After, verdict: []byte(s.Verdict), result: []byte(s.Result), victim: s.Victim.raw()}
	for i := range s.Antagonists {
		a := &s.Antagonists[i]
		d.antagonists = append(d.antagonists, rawAntagonist{rawSubject: a.raw(), score: a.Score})
	}
	return d
}
