package kube

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// TestAnnotationsOfTenantsCostLittle: 250 pods with 256 KiB of annotations each
// are 64 MiB on the wire, and neither while they are read nor afterwards in memory.
func TestAnnotationsOfTenantsCostLittle(t *testing.T) {
	const most = 8 << 20
	pods := 250
	if underRace {
		pods = 80 // 20 MiB are as many times too much, and the detector takes its time
	}
	annotation := strings.Repeat("x", 256<<10)
	s := upServer(t)
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	f := s.client()
	before := heap()
	var mu sync.Mutex
	var peak uint64
	s.breaks(func(verb, resource string, w http.ResponseWriter) bool {
		if verb != "GET" || resource != "pods" {
			return false
		}
		fmt.Fprint(w, `{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[`)
		for n := range pods {
			if n > 0 {
				fmt.Fprint(w, ",")
			}
			fmt.Fprintf(w, `{"metadata":{"namespace":"shop","name":"p-%d","uid":"uid-%d","annotations":{"a":"`, n, n)
			_, _ = io.WriteString(w, annotation)
			fmt.Fprint(w, `"}},"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1"}}}]}}`)
			if n%25 == 24 {
				mu.Lock()
				peak = max(peak, heap())
				mu.Unlock()
			}
		}
		fmt.Fprint(w, `]}`)
		return true
	})
	f.start()
	f.within("all are known", f.knows(fmt.Sprintf("uid-%d", pods-1)))
	mu.Lock()
	grown := int64(peak) - int64(before)
	mu.Unlock()
	kept := int64(heap()) - int64(before)
	t.Logf("while reading %d KiB more, afterwards %d KiB more", grown>>10, kept>>10)
	if grown > most || kept > most/4 {
		t.Errorf(
			"%d pods with 256 KiB of annotations each take %d bytes while they are read and %d afterwards; at most "+
				"%d and %d", pods, grown, kept, most, most/4)
	}
	runtime.KeepAlive(annotation)
}
