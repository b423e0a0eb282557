package loop

import "github.com/quietcore/quietcore/cpi/sample"

// Questions are the detector's, for sampler.Options: who has to be counted in the next window.
func (l *Loop) Questions() []sample.Question {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.detector.questions()
}

func (p *watcher) questions() []sample.Question {
	open := p.d.Questioned()
	list := make([]sample.Question, len(open))
	for i := range open {
		list[i] = sample.Question{Victim: open[i].Victim, Suspects: open[i].Suspects}
	}
	return list
}

func (t *trials) questions() []sample.Question {
	open := t.d.Questions()
	list := make([]sample.Question, len(open))
	for i := range open {
		list[i] = sample.Question(open[i])
	}
	return list
}
