package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/script"
)

// About is what a daemon says beyond what it does with pods. Nil ones are not known.
type About struct {
	Version string
	// Degraded says of each feature that does not work why.
	Degraded func() map[string]string
	// Doctor is `quietcore doctor` by the daemon itself.
	Doctor func(context.Context) (any, error)
	// Bundle writes the archive of `quietcore bundle`.
	Bundle func(ctx context.Context, w io.Writer, hashNames bool) error
}

// Summary is the body of /v1/summary: a node in a few numbers. It is some hundred bytes for every node, whatever
// runs there.
type Summary struct {
	Node    string `json:"node"`
	Version string `json:"version,omitempty"`
	// Mode is the mode in force; nil: it cannot be changed.
	Mode         *Mode        `json:"mode,omitempty"`
	Connected    bool         `json:"connected"`
	Synchronised bool         `json:"synchronised"`
	Settled      bool         `json:"settled"`
	Revision     uint64       `json:"revision"`
	CPUs         int          `json:"cpus"` // online
	Pools        script.Pools `json:"pools"`
	Owners       int          `json:"owners"`
	Waiting      int          `json:"waiting"`
	Containers   int          `json:"containers"`
	Capped       int          `json:"capped"`
	CPI          string       `json:"cpi"` // the mode of counting
	Counting     bool         `json:"counting"`
	// Used is what is in use, in CPUs; nil: it is not measured, since nothing is lent.
	Used *Use `json:"used,omitempty"`
	// Lent is what is offered to batch pods, Suppressed what best effort keeps of its pool.
	Lent       *float64 `json:"lent,omitempty"`
	Suppressed string   `json:"suppressed,omitempty"`
	// Withheld is how many CPUs of its pool best effort is kept off; nil: it is not suppressed.
	Withheld *float64 `json:"withheld,omitempty"`
	// Problems are sentences, the worst first; empty: all is well.
	Problems []string `json:"problems"`
}

// Use is the use of a node's CPUs, by whose it is.
type Use struct {
	Production float64 `json:"production"`
	Batch      float64 `json:"batch"`
	Outside    float64 `json:"outside"`
}

// Summary is a status in a few numbers.
func (s *Status) summary(online int, degraded map[string]string) *Summary {
	out := &Summary{Mode: s.Mode, Connected: s.Connected, Synchronised: s.Synchronised, Settled: s.Settled,
		Revision: s.Revision, CPUs: online, Pools: s.Pools, Owners: len(s.Owners), Waiting: len(s.Waiting),
		Containers: len(s.Containers), CPI: s.CPI.Mode, Counting: s.CPI.Counting, Problems: s.problems(degraded)}
	for i := range s.Containers {
		if s.Containers[i].CapMilli != nil {
			out.Capped++
		}
	}
	if l := s.Lending; l != nil {
		out.Suppressed = l.Suppressed
		out.Withheld = l.withheld()
		if l.Known {
			out.Used = &Use{l.Production, l.Batch, l.Outside}
		}
		if l.Estimate != nil {
			out.Lent = &l.Estimate.Offer
		}
	}
	return out
}

// withheld is Summary.Withheld, as quietcore_lending_withheld_cpus has it.
func (l *Lending) withheld() *float64 {
	if l.Suppression == "" || l.Suppression == "off" || l.Problem != "" {
		return nil
	}
	n := 0.0
	switch kept, err := cpuset.Parse(l.Suppressed); {
	case err != nil || l.Retreated: // what it does not use is not withheld
	case !kept.IsEmpty():
		n = max(float64(l.Pool-kept.Count()), 0)
	case l.Quota > 0:
		n = max(float64(l.Pool)-l.Quota, 0)
	}
	return &n
}

func (s *Status) problems(degraded map[string]string) []string {
	list := []string{}
	switch {
	case !s.Connected:
		list = append(list, "not registered with the runtime: pods that start are not placed")
	case !s.Synchronised:
		list = append(list, "what runs is not taken over yet")
	}
	for _, p := range s.Short {
		list = append(list, p.String())
	}
	if n := len(s.Unannounced); n > 0 {
		list = append(list, fmt.Sprintf("%d pods were never announced by the runtime", n))
	}
	for _, r := range s.Rivals {
		list = append(list, r.String())
	}
	if s.Mode != nil && s.Mode.Problem != "" {
		list = append(list, s.Mode.Problem)
	}
	for _, feature := range slices.Sorted(maps.Keys(degraded)) {
		list = append(list, feature+": "+degraded[feature])
	}
	if len(s.RestartRequired) > 0 {
		list = append(list, "a restart is required for "+strings.Join(s.RestartRequired, ", "))
	}
	return list
}

func (s *Server) summary(w http.ResponseWriter, r *http.Request) {
	now, err := s.statusNow(r.Context())
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	var degraded map[string]string
	if s.About.Degraded != nil {
		degraded = s.About.Degraded()
	}
	out := now.summary(s.Plugin.Snapshot().Topology.Online().Count(), degraded)
	out.Node, out.Version = s.Config().NodeName(), s.About.Version
	reply(w, http.StatusOK, out)
}

func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	want := strings.Split(r.URL.Query().Get("pod"), "/")
	if len(want) < 2 || len(want) > 3 {
		fail(w, http.StatusBadRequest, errors.New("pod is to be NAMESPACE/POD or NAMESPACE/POD/CONTAINER"))
		return
	}
	now, err := s.statusNow(r.Context())
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	e := now.Explain(want)
	if e == nil {
		fail(w, http.StatusNotFound, fmt.Errorf("no container of %s runs here; a pod that was refused shows the "+
			"sentence as an Event", strings.Join(want, "/")))
		return
	}
	reply(w, http.StatusOK, e)
}

var errNoTools = errors.New("this daemon was started without what answers this")

func (s *Server) doctor(w http.ResponseWriter, r *http.Request) {
	if s.About.Doctor == nil {
		fail(w, http.StatusServiceUnavailable, errNoTools)
		return
	}
	report, err := s.About.Doctor(r.Context())
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	reply(w, http.StatusOK, report)
}

// bundle is made before it is sent: what fails has a status.
func (s *Server) bundle(w http.ResponseWriter, r *http.Request) {
	if s.About.Bundle == nil {
		fail(w, http.StatusServiceUnavailable, errNoTools)
		return
	}
	var archive bytes.Buffer
	if err := s.About.Bundle(r.Context(), &archive, r.URL.Query().Get("hashNames") == "true"); err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/gzip")
	_, _ = w.Write(archive.Bytes()) // the client disconnected
}
