package probe

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/doctor"
	"github.com/quietcore/quietcore/internal/metrics"
)

func askDaemon(ctx context.Context, c *config.Config) doctor.DaemonFacts {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	d := doctor.DaemonFacts{There: exists(c.Socket)}
	s, err := control.Client{Socket: c.Socket}.Status(ctx)
	if err != nil {
		if d.There {
			d.Err = err.Error()
		}
		return d
	}
	d.Answers, d.Connected, d.Synchronised, d.Containers = true, s.Connected, s.Synchronised, len(s.Containers)
	d.RestartRequired, d.Short = s.RestartRequired, s.Short
	d.Writes, d.Unconfined = s.Confined.Writes, s.Confined.Why
	d.Denied, d.Undenied = s.Confined.Denied, s.Confined.Undenied
	for _, p := range s.Unannounced {
		d.Unannounced = append(d.Unannounced, p.CgroupPath)
		if p.Masked {
			d.Masked = append(d.Masked, p.CgroupPath)
		}
	}
	if j := s.CPI.Jobs; j != nil && !j.Whole() {
		d.Unjudged = j.String()
	}
	if w := s.CPI.Watchlist; w != nil {
		d.Uncounted = w.String()
	}
	if health, err := Readiness(ctx, c.Health.Listen); err == nil {
		d.Degraded = health.Degraded
	} else if why := s.CPI.Why; why != "" {
		d.Degraded = map[string]string{metrics.FeatureCPI: why}
	}
	return d
}

// Readiness asks /readyz of the daemon on this machine.
func Readiness(ctx context.Context, listen string) (*metrics.Report, error) {
	if listen == "" {
		return nil, errors.New("the daemon serves no probes: health.listen is empty")
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/readyz", nil)
	if err != nil {
		return nil, err
	}
	// No proxy: the address is this machine's.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	const most = 1 << 20
	text, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return nil, err
	}
	r := &metrics.Report{}
	return r, json.Unmarshal(text, r)
}
