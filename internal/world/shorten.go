package world

import "slices"

// Shorten leaves out as many choices of a failed run as it can while the same property is
// violated. Choices that depend on them are left out too.
func Shorten(failed *Report, play func(Config) *Report) *Report {
	best := failed
	for size := max(len(best.Trace)/2, 1); ; size = max(size/2, 1) {
		shorter := best
		for from := 0; from < len(shorter.Trace); {
			cfg := failed.Config
			cfg.Swarm = false
			cfg.Trace = slices.Delete(slices.Clone(shorter.Trace), from, min(from+size, len(shorter.Trace)))
			next := play(cfg)
			if v := next.Violation; v != nil && v.Property == failed.Violation.Property {
				shorter = next
			} else {
				from += size
			}
		}
		if size == 1 && len(shorter.Trace) == len(best.Trace) {
			return shorter
		}
		best = shorter
	}
}
