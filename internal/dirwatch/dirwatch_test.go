package dirwatch

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// A change is looked at, and so is the first state; which of them a look sees is the file's to say.
func TestChangesAreLookedAt(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "state")
	ctx, cancel := context.WithCancel(t.Context())
	ended, looks := make(chan struct{}), make(chan string)
	go func() {
		defer close(ended)
		Watch(ctx, []string{filepath.Join(dir, "none"), dir}, func(ctx context.Context) {
			text, _ := os.ReadFile(file)
			select {
			case looks <- string(text):
			case <-ctx.Done():
			}
		}, func(err error) { t.Error(err) })
	}()
	if got := <-looks; got != "" {
		t.Fatalf("before there is a file a look sees %q", got)
	}
	if err := os.WriteFile(file, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	for <-looks != "a" {
	}
	cancel()
	<-ended
}

// Without a watch there are no events, and only polling is left.
func TestPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began, looks := time.Now(), 0
		watch(ctx, nil, nil, func(context.Context) {
			if looks++; looks == 3 {
				cancel()
			}
		})
		if took := time.Since(began); took != 2*Every {
			t.Errorf("three looks took %v, want %v", took, 2*Every)
		}
	})
}
