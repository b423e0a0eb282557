package detect

import (
	"encoding/json"
	"fmt"
	"math"
)

// A Histogram counts CPIs in buckets that grow by 2^(1/16), or 4.4 %. The bounds are
// those of Prometheus' native histograms at schema 4, so histograms of nodes and of the
// cluster add up bucket by bucket. A quantile is off by half a bucket at most.
type Histogram struct {
	counts [histogramBuckets]float32
}

const (
	bucketsPerOctave = 16
	lowestOctave     = -4 // CPI 1/16
	highestOctave    = 6  // CPI 64
	histogramBuckets = (highestOctave - lowestOctave) * bucketsPerOctave
)

// bucketOf returns the bucket of a CPI: bucket i holds CPIs above UpperBound(i-1) and
// up to UpperBound(i). The outermost buckets also hold everything beyond.
func bucketOf(log2 float64) int {
	i := int(math.Ceil(log2*bucketsPerOctave)) - 1 - lowestOctave*bucketsPerOctave
	return min(max(i, 0), histogramBuckets-1)
}

// UpperBound returns the upper bound of bucket i.
func UpperBound(i int) float64 {
	return math.Exp2(float64(i+1)/bucketsPerOctave + lowestOctave)
}

func (h *Histogram) add(log2 float64) {
	h.counts[bucketOf(log2)]++
}

// Total is the aged number of samples. It is computed, not stored: five histograms are
// most of a container's memory, and one more word would move each to a larger size
// class.
func (h *Histogram) Total() (sum float64) {
	for _, n := range h.counts {
		sum += float64(n)
	}
	return sum
}

// Count returns the aged count of bucket i.
func (h *Histogram) Count(i int) float64 { return float64(h.counts[i]) }

// Merge adds o's counts.
func (h *Histogram) Merge(o *Histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
}

func (h *Histogram) age(weight float64) {
	for i := range h.counts {
		h.counts[i] *= float32(weight)
	}
}

// logQuantile is the natural logarithm of quantile q, interpolated in log space within
// its bucket.
func (h *Histogram) logQuantile(q float64) float64 {
	want, below := q*h.Total(), 0.0
	for i, n := range h.counts {
		if in := float64(n); in > 0 && below+in >= want {
			inside := (want - below) / in
			return (float64(i)+inside)/bucketsPerOctave*math.Ln2 + lowestOctave*math.Ln2
		} else {
			below += in
		}
	}
	return highestOctave * math.Ln2
}

// Quantile returns quantile q of the CPIs; NaN if there are none.
func (h *Histogram) Quantile(q float64) float64 {
	if h.Total() <= 0 {
		return math.NaN()
	}
	return math.Exp(h.logQuantile(q))
}

// Robust returns the median and the deviation of the natural logarithms. The deviation
// is that of the lower half, since the upper half may hold interference. If more than a
// quarter of the samples lie far above the median, that is normal for the job and the
// upper half counts too.
func (h *Histogram) Robust() (logMedian, logSD float64) {
	logMedian = h.logQuantile(0.5)
	logSD = max((logMedian-h.logQuantile(lowerQuantile))/lowerSigmas, leastLogSD)
	if h.logQuantile(1-commonShare) > logMedian+2*logSD {
		logSD = max(logSD, (h.logQuantile(1-lowerQuantile)-logMedian)/lowerSigmas)
	}
	return logMedian, logSD
}

// MarshalJSON writes the non-empty buckets by index.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	counts := map[int]float32{}
	for i, n := range h.counts {
		if n > 0 {
			counts[i] = n
		}
	}
	return json.Marshal(counts)
}

// UnmarshalJSON reads the output of MarshalJSON and rejects anything else.
func (h *Histogram) UnmarshalJSON(text []byte) error {
	var counts map[int]float32
	if err := json.Unmarshal(text, &counts); err != nil {
		return err
	}
	*h = Histogram{}
	for i, n := range counts {
		if i < 0 || i >= histogramBuckets {
			return fmt.Errorf("bucket %d of a CPI histogram; there are 0 to %d", i, histogramBuckets-1)
		}
		if !(n >= 0) || n > 1e12 {
			return fmt.Errorf("bucket %d of a CPI histogram counts %v; it must lie between 0 and 1e12", i, n)
		}
		h.counts[i] = n
	}
	return nil
}
