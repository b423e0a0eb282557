package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/plugin"
	"github.com/quietcore/quietcore/policy"
)

// Handler takes events for tests.
func Handler(p *plugin.Plugin) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /event", func(w http.ResponseWriter, r *http.Request) {
		const most = 1 << 20
		var e event
		d := json.NewDecoder(http.MaxBytesReader(w, r.Body, most))
		d.DisallowUnknownFields()
		if err := d.Decode(&e); err != nil {
			fail(w, http.StatusBadRequest, err)
			return
		}
		if err := inject(r.Context(), p, e); err != nil {
			fail(w, http.StatusUnprocessableEntity, err)
			return
		}
		_, _ = w.Write([]byte("{}\n")) // the client went away
	})
	return mux
}

type event struct {
	Cap        *script.Cap        `json:"cap"`
	Advance    *script.Advance    `json:"advance"`
	NodeLabels map[string]*string `json:"nodeLabels"`
	Audit      *struct{}          `json:"audit"`
}

func inject(ctx context.Context, p *plugin.Plugin, e event) error {
	switch {
	case e.Cap != nil:
		return applyCap(ctx, p, *e.Cap)
	case e.Advance != nil:
		return p.Advance(ctx, seconds(e.Advance.Seconds))
	case e.NodeLabels != nil:
		return p.MergeLabels(ctx, e.NodeLabels)
	case e.Audit != nil:
		p.Audit()
		return nil
	}
	return errors.New("the event has none of cap, advance, nodeLabels and audit")
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func applyCap(ctx context.Context, p *plugin.Plugin, c script.Cap) error {
	if c.Namespace == "" {
		c.Namespace = "default"
	}
	for _, v := range p.Snapshot().Containers {
		if v.Namespace == c.Namespace && v.Pod == c.Pod && v.Name == c.Container {
			return p.Submit(ctx, policy.CapVerdict{ID: v.ID, Milli: int64(c.CPU*1000 + 0.5),
				For: seconds(c.Seconds)})
		}
	}
	return &policy.Refusal{Code: policy.InvalidRequest, Message: fmt.Sprintf("no container %s of pod %s/%s runs",
		c.Container, c.Namespace, c.Pod)}
}

// fail answers with the code of a refusal, or with none.
func fail(w http.ResponseWriter, status int, err error) {
	out := script.Error{Message: err.Error()}
	var refusal *policy.Refusal
	if errors.As(err, &refusal) {
		out.Code, out.Message = refusal.Code, refusal.Message
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(out) // the client went away
}
