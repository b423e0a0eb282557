package detect

// Score is the paper's antagonist correlation (section 4.2). cpi are the victim's
// samples, usage the suspect's at the same times, threshold the CPI above which the
// victim suffers. Usage is normalised to sum 1. While the victim suffers, usage counts
// for the suspect, otherwise against it:
//
//	c > T:  + u·(1 − T/c)        c < T:  + u·(c/T − 1)
//
// The result lies in [-1, 1]. A suspect without usage has no score. Usage and CPIs must
// not be negative.
func Score(threshold float64, cpi, usage []float64) (score float64, ok bool) {
	var total float64
	for i, c := range cpi {
		u := usage[i]
		total += u
		switch {
		case c > threshold:
			score += u * (1 - threshold/c)
		case c < threshold:
			score += u * (c/threshold - 1)
		}
	}
	if !(total > 0) {
		return 0, false
	}
	return min(max(score/total, -1), 1), true
}
