package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/fleet"
	"github.com/quietcore/quietcore/internal/page/site"
	"github.com/quietcore/quietcore/internal/prom"
	"github.com/quietcore/quietcore/internal/serve"
)

// Service is a hub with what it listens on and whom it asks.
type Service struct {
	Cluster fleet.Cluster
	Listen  string // of the page
	Health  string // of probes; empty: nowhere
	Every   time.Duration
	Window  time.Duration
	Version string
	// Prometheus is one that scrapes the daemons; without a URL there is none. Matchers choose the cluster's series.
	Prometheus prom.Server
	Matchers   string
}

// Check refuses what the flags cannot mean.
func (s *Service) Check() error {
	if err := s.Cluster.Check(); err != nil {
		return err
	}
	switch {
	case s.Every < time.Second || s.Every > time.Hour:
		return cli.Usage("--every is %s; it must be 1s to 1h", s.Every)
	case s.Window < time.Hour || s.Window > 31*24*time.Hour:
		return cli.Usage("--window is %s; it must be 1h to 744h", s.Window)
	case !isLocal(s.Listen):
		return cli.Usage("--listen is %q; it must be HOST:PORT on loopback, such as 127.0.0.1:9470, or the path of a "+
			"Unix socket: the page names the pods of all nodes and asks nobody for a password; reach it with kubectl "+
			"port-forward or ssh -L", s.Listen)
	case s.Prometheus.URL == "" && (s.Matchers != "" || s.Prometheus.TokenFile != "" || s.Prometheus.CAFile != ""):
		return cli.Usage("--prometheus-matchers, --prometheus-token-file and --prometheus-ca-file want --prometheus")
	case s.Prometheus.URL != "" && !isServer(s.Prometheus.URL):
		return cli.Usage("--prometheus is %q; it must be such as http://prometheus.monitoring:9090", s.Prometheus.URL)
	case strings.ContainsAny(s.Matchers, "{}\n"):
		return cli.Usage("--prometheus-matchers is %q; it must be matchers of labels without braces, such as "+
			`cluster="a"`, s.Matchers)
	}
	return nil
}

// isServer says whether an address is one of a server of HTTP.
func isServer(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.RawQuery == "" &&
		u.Fragment == ""
}

// prometheus is what is asked; nil: there is none.
func (s *Service) prometheus() (*Prometheus, error) {
	if s.Prometheus.URL == "" {
		return nil, nil
	}
	server := s.Prometheus
	server.Timeout = min(s.Every, 10*time.Second)
	client, err := prom.New(server)
	if err != nil {
		return nil, fmt.Errorf("connect to the Prometheus of --prometheus: %w", err)
	}
	u, err := url.Parse(server.URL)
	if err != nil {
		return nil, err
	}
	return &Prometheus{Query: client.Query, Name: u.Redacted(), Matchers: s.Matchers}, nil
}

// isLocal says whether an address cannot be reached from outside of the machine, or of the pod.
func isLocal(address string) bool {
	if path.IsAbs(address) {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Run serves until ctx ends.
func (s *Service) Run(ctx context.Context, log *slog.Logger) error {
	line, err := s.Cluster.Open("quietcore-hub", time.Now)
	if err != nil {
		return err
	}
	metrics, err := s.prometheus()
	if err != nil {
		return err
	}
	h, err := New(Options{Round: line.Round, Every: s.Every, Window: s.Window, Version: s.Version, Now: time.Now,
		Namespace: s.Cluster.Home, Prometheus: metrics, Log: log})
	if err != nil {
		return err
	}
	page, err := site.Listen(s.Listen)
	if err != nil {
		return fmt.Errorf("listen for the page: %w", err)
	}
	defer page.Close()
	parts := []func(context.Context) error{
		func(ctx context.Context) error { h.Run(ctx); return nil },
		func(ctx context.Context) error { return site.Serve(ctx, page, h.Handler()) },
	}
	if s.Health != "" {
		probes, err := serve.Listen(s.Health, serve.Limits{All: 32, FromOne: 8, Rate: 4})
		if err != nil {
			page.Close()
			return fmt.Errorf("listen for probes: %w", err)
		}
		parts = append(parts, func(ctx context.Context) error {
			return serve.Serve(ctx, probes, h.Health(), serve.Times{Request: 5 * time.Second, Answer: 5 * time.Second})
		})
	}
	log.Info("the page is served", "listen", page.Addr().String(), "every", s.Every)
	return together(ctx, parts)
}

// together runs parts until one ends, of which then none is of use without the others.
func together(ctx context.Context, parts []func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(parts))
	for _, run := range parts {
		go func() { ended <- run(ctx) }()
	}
	var errs error
	for range parts {
		errs = errors.Join(errs, <-ended)
		cancel()
	}
	return errs
}
