package sample

import (
	"testing"
	"time"
	"unsafe"
)

// A container's history is most of what it costs.
func TestWhatAHistoryKeepsIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(kept{}); size > 80 {
		t.Errorf("%d bytes a sample, the budget is 80", size)
	}
}

func TestAHistoryKeepsEveryField(t *testing.T) {
	s := Sample{End: time.Unix(7, 0), Boot: 1, Length: 2, Usage: 3, CPI: 4, MPKI: 5, Wait: 0.5, NoCPI: Idle,
		HasMPKI: true, HasWait: true, Speed: 1.25, Counted: 0.5, Reference: true, Queue: 1.5, Pressure: 0.25}
	h := NewHistory(1)
	h.Add(s)
	if got, _ := h.Last(); got != s {
		t.Errorf("%+v, want %+v", got, s)
	}
}
