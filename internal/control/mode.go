package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Mode is the mode in force, and why.
type Mode struct {
	Mode   string `json:"mode"`   // observe or enforce
	Source string `json:"source"` // file, policy, command or annotation
	// Since is when the command or the annotation said so.
	Since *time.Time `json:"since,omitempty"`
	// Undoing means that what was enforced before is still being undone, Resuming that it is enforced again once the
	// runtime has listed what runs.
	Undoing  bool `json:"undoing,omitempty"`
	Resuming bool `json:"resuming,omitempty"`
	// Problem is what is wrong with it, such as that it would not survive a restart.
	Problem string `json:"problem,omitempty"`
}

// Words are what a mode may be set to: config leaves it to the configuration's file.
func Words() []string { return []string{"observe", "enforce", "config"} }

// handleMode serves the mode. Whoever may open the socket is root.
func (s *Server) handleMode(mux *http.ServeMux) {
	if s.Mode == nil || s.SetMode == nil {
		return
	}
	mux.HandleFunc("GET /v1/mode", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, s.Mode()) })
	mux.HandleFunc("POST /v1/mode/{word}", func(w http.ResponseWriter, r *http.Request) {
		word := r.PathValue("word")
		for _, known := range Words() {
			if word == known {
				s.setMode(w, r, word)
				return
			}
		}
		fail(w, http.StatusBadRequest, fmt.Errorf("mode %q is not known: observe, enforce or config", word))
	})
}

func (s *Server) setMode(w http.ResponseWriter, r *http.Request, word string) {
	now, err := s.SetMode(r.Context(), word)
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	reply(w, http.StatusOK, now)
}

// Mode asks for the mode in force.
func (c Client) Mode(ctx context.Context) (*Mode, error) {
	m := &Mode{}
	return m, c.get(ctx, "/v1/mode", into(m))
}

// SetMode sets it, and waits until what was enforced is undone, or until ctx ends.
func (c Client) SetMode(ctx context.Context, word string) (*Mode, error) {
	m := &Mode{}
	if err := c.send(ctx, http.MethodPost, "/v1/mode/"+url.PathEscape(word), into(m)); err != nil {
		return nil, err
	}
	problem := m.Problem
	for m.Undoing || m.Resuming {
		select {
		case <-ctx.Done():
			m.Problem = problem
			return m, nil
		case <-time.After(askAgain):
		}
		next, err := c.Mode(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			continue
		}
		if err != nil {
			return nil, err
		}
		m = next
	}
	if m.Problem == "" {
		m.Problem = problem
	}
	return m, nil
}
