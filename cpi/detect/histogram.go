package detect

import (
	"encoding/json"
	"fmt"
	"math"
)

// A Histogram counts CPIs in buckets that grow by 2^(1/16), 4.4 %. These are the
// bounds of Prometheus' native histograms at schema 4, so what a node has learned
// and what the cluster has add up bucket by bucket; a sketch with other bounds
// would have to be bucketed twice. A quantile is at most half a bucket off.
type Histogram struct {
	counts [histogramBuckets]float32
}

const (
	bucketsPerOctave = 16
	lowestOctave     = -4 // CPI 1/16
	highestOctave    = 6  // CPI 64
	histogramBuckets = (highestOctave - lowestOctave) * bucketsPerOctave
)

// bucketOf says where a CPI is counted: bucket i holds those above UpperBound(i-1)
// and up to UpperBound(i). The outermost take what lies beyond.
func bucketOf(log2 float64) int {
	i := int(math.Ceil(log2*bucketsPerOctave)) - 1 - lowestOctave*bucketsPerOctave
	return min(max(i, 0), histogramBuckets-1)
}

// UpperBound of bucket i.
func UpperBound(i int) float64 {
	return math.Exp2(float64(i+1)/bucketsPerOctave + lowestOctave)
}

func (h *Histogram) add(log2 float64) {
	h.counts[bucketOf(log2)]++
}

// Total is the aged number of samples. It is added up, not kept: five histograms are
// most of what a container costs, and with it each would take a larger piece of memory.
func (h *Histogram) Total() (sum float64) {
	for _, n := range h.counts {
		sum += float64(n)
	}
	return sum
}

// Count of bucket i.
func (h *Histogram) Count(i int) float64 { return float64(h.counts[i]) }

// Merge adds what o counted.
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

// logQuantile is the natural logarithm of the quantile q, interpolated within
// its bucket in log space.
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

// Quantile q of the CPIs counted; NaN where there are none.
func (h *Histogram) Quantile(q float64) float64 {
	if h.Total() <= 0 {
		return math.NaN()
	}
	return math.Exp(h.logQuantile(q))
}

// Robust is the median and the deviation, of natural logarithms. The deviation is
// the lower half's: what lies above the median may be interference already. But
// what happens to more than a quarter of a job's samples is that job's nature, and
// its upper half counts too.
func (h *Histogram) Robust() (logMedian, logSD float64) {
	logMedian = h.logQuantile(0.5)
	logSD = max((logMedian-h.logQuantile(lowerQuantile))/lowerSigmas, leastLogSD)
	if h.logQuantile(1-commonShare) > logMedian+2*logSD {
		logSD = max(logSD, (h.logQuantile(1-lowerQuantile)-logMedian)/lowerSigmas)
	}
	return logMedian, logSD
}

// MarshalJSON writes the buckets that hold something, by their index.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	counts := map[int]float32{}
	for i, n := range h.counts {
		if n > 0 {
			counts[i] = n
		}
	}
	return json.Marshal(counts)
}

// UnmarshalJSON reads what MarshalJSON wrote, and refuses what it cannot have
// written.
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
