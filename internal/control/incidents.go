package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/quietcore/quietcore/internal/incidents"
)

// maxIncidents bounds one answer of /v1/incidents.
const maxIncidents = 10_000

func (s *Server) incidentRoutes() []route {
	return []route{
		{path: "/v1/incidents", answer: s.incidents(s.listIncidents)},
		{path: "/v1/incidents/top", answer: s.incidents(func(w http.ResponseWriter, r *http.Request) error {
			q, err := topQueryOf(r.URL.Query())
			if err != nil {
				return err
			}
			out, err := s.Incidents.Top(r.Context(), q)
			return answer(w, out, err)
		})},
		{path: "/v1/incidents/export", slow: true, answer: s.incidents(s.exportIncidents)},
		{path: "/v1/incidents/one/{id}", answer: s.incidents(func(w http.ResponseWriter, r *http.Request) error {
			out, err := s.Incidents.Get(r.Context(), r.PathValue("id"))
			return answer(w, out, err)
		})},
	}
}

func (s *Server) listIncidents(w http.ResponseWriter, r *http.Request) error {
	f, err := filterOf(r.URL.Query())
	if err != nil {
		return err
	}
	if f.Limit == 0 || f.Limit > maxIncidents {
		f.Limit = maxIncidents
	}
	out, err := s.Incidents.List(r.Context(), f)
	return answer(w, out, err)
}

type badRequest struct{ error }

func (s *Server) incidents(do func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.Incidents == nil {
			fail(w, http.StatusServiceUnavailable,
				errors.New("this daemon keeps no incidents; with cpi.mode observe or enforce it does"))
			return
		}
		err := do(w, r)
		var bad badRequest
		var missing *incidents.NotFoundError
		var closed *incidents.UnavailableError
		switch {
		case err == nil:
		case errors.As(err, &bad):
			fail(w, http.StatusBadRequest, err)
		case errors.As(err, &missing):
			fail(w, http.StatusNotFound, err)
		case errors.As(err, &closed):
			fail(w, http.StatusServiceUnavailable, err)
		default:
			fail(w, http.StatusInternalServerError, err)
		}
	}
}

func answer(w http.ResponseWriter, out any, err error) error {
	if err == nil {
		reply(w, http.StatusOK, out)
	}
	return err
}

// exportIncidents writes a line for each incident, and an empty one at the end: an answer without
// it was cut off.
func (s *Server) exportIncidents(w http.ResponseWriter, r *http.Request) error {
	f, err := filterOf(r.URL.Query())
	if err != nil {
		return err
	}
	begun := false
	encode := json.NewEncoder(w)
	err = s.Incidents.Export(r.Context(), f, func(i *incidents.Incident) error {
		if !begun {
			w.Header().Set("Content-Type", "application/x-ndjson")
			begun = true
		}
		return encode.Encode(i)
	})
	if err == nil {
		_, _ = w.Write([]byte("{}\n")) // the client went away
	}
	if begun {
		return nil // it is too late for an error status; the missing end shows it
	}
	return err
}

// Values is a filter as the address has it.
func Values(f incidents.Filter) url.Values {
	v := url.Values{}
	set := func(key, value string) {
		if value != "" {
			v.Set(key, value)
		}
	}
	setTime := func(key string, t time.Time) {
		if !t.IsZero() {
			v.Set(key, t.UTC().Format(time.RFC3339Nano))
		}
	}
	setTime("since", f.Since)
	setTime("until", f.Until)
	set("victim", f.Victim)
	set("antagonist", f.Antagonist)
	set("verdict", f.Verdict)
	if f.Active {
		v.Set("active", "true")
	}
	if f.Limit > 0 {
		v.Set("limit", strconv.Itoa(f.Limit))
	}
	return v
}

func filterOf(v url.Values) (incidents.Filter, error) {
	f := incidents.Filter{Victim: v.Get("victim"), Antagonist: v.Get("antagonist"), Verdict: v.Get("verdict"),
		Active: v.Get("active") == "true"}
	var err error
	for key, to := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		if text := v.Get(key); text != "" {
			if *to, err = time.Parse(time.RFC3339Nano, text); err != nil {
				return f, badRequest{fmt.Errorf("%s: %w", key, err)}
			}
		}
	}
	if text := v.Get("limit"); text != "" {
		if f.Limit, err = strconv.Atoi(text); err != nil || f.Limit < 0 {
			return f, badRequest{fmt.Errorf("limit is %.20q, must be a number from 0 on", text)}
		}
	}
	return f, nil
}

func topQueryOf(v url.Values) (incidents.TopQuery, error) {
	f, err := filterOf(v)
	return incidents.TopQuery{Victim: f.Victim, Antagonist: f.Antagonist, Since: f.Since, Until: f.Until,
		Limit: f.Limit, By: v.Get("by"), Group: v.Get("group")}, err
}

// Incidents asks the daemon about incidents.
func (c Client) Incidents() incidents.Source { return incidentClient{c} }

type incidentClient struct{ c Client }

func (i incidentClient) List(ctx context.Context, f incidents.Filter) (*incidents.Listing, error) {
	out := &incidents.Listing{}
	return out, i.get(ctx, "/v1/incidents?"+Values(f).Encode(), out)
}

func (i incidentClient) Get(ctx context.Context, id string) (*incidents.Incident, error) {
	out := &incidents.Incident{}
	return out, i.get(ctx, "/v1/incidents/one/"+url.PathEscape(id), out)
}

func (i incidentClient) Top(ctx context.Context, q incidents.TopQuery) (*incidents.Top, error) {
	out := &incidents.Top{}
	return out, i.get(ctx, "/v1/incidents/top?"+TopValues(q).Encode(), out)
}

// TopValues is a query as the address has it.
func TopValues(q incidents.TopQuery) url.Values {
	v := Values(incidents.Filter{Victim: q.Victim, Antagonist: q.Antagonist, Since: q.Since, Until: q.Until,
		Limit: q.Limit})
	v.Set("by", q.By)
	v.Set("group", q.Group)
	return v
}

func (i incidentClient) get(ctx context.Context, path string, out any) error {
	return i.c.get(ctx, path, func(text []byte) error { return json.Unmarshal(text, out) })
}

func (i incidentClient) Export(ctx context.Context, f incidents.Filter, give func(*incidents.Incident) error) error {
	body, err := i.c.ask(ctx, "/v1/incidents/export?"+Values(f).Encode())
	if err != nil {
		return err
	}
	defer body.Close()
	for lines := json.NewDecoder(body); ; {
		one := &incidents.Incident{}
		if err := lines.Decode(one); errors.Is(err, io.EOF) {
			return errors.New(
				"the daemon's answer was cut off before its end: it ended, or its database failed meanwhile")
		} else if err != nil {
			return fmt.Errorf("read the daemon's answer: %w", err)
		}
		if one.ID == "" {
			return nil
		}
		if err := give(one); err != nil {
			return err
		}
	}
}
