package main

import "math"

// peak is the default of the first edition, kept to compare with: the most that production used,
// from a histogram with buckets 5 % wide whose weights halve in a day, and a margin.
type peak struct {
	margin  float64
	weights [320]float64
	total   float64
}

func (k *peak) next(use float64) float64 {
	decay := math.Exp2(-1.0 / day)
	for i := range k.weights {
		k.weights[i] *= decay
	}
	k.total = k.total*decay + 1
	bucket := math.Ceil(math.Log(max(use, 0.01)/0.01)/math.Log(1.05) - 1e-9)
	k.weights[min(int(bucket), len(k.weights)-1)]++
	above := 0.0
	for i := len(k.weights) - 1; i >= 0; i-- {
		if above += k.weights[i]; above > 0.0001*k.total {
			return k.margin * 0.01 * math.Pow(1.05, float64(i))
		}
	}
	return 0
}
