package daemon

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/quietcore/quietcore/internal/access"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/serve"
)

// remoteServer is how /metrics, all of it, is served on l: in plain text on loopback; elsewhere with
// TLS, to tokens that the API server allows, as is what the socket answers. Nil where that is not
// possible.
func (d *daemon) remoteServer(cfg *config.Config, l net.Listener, s *control.Server) (net.Listener, http.Handler) {
	if config.Local(cfg.Listen) {
		return l, onlyMetrics(s.Metrics)
	}
	if config.Local(cfg.Health.Listen) {
		d.log.Warn("health.listen is on loopback and listen is not, as in configurations of before health.listen: for "+
			"this version alone probes and /metrics are served as they were, without the names of pods and jobs; set "+
			"health.listen to an address that kubelet reaches, or to \"\"", "listen", cfg.Listen)
		mux := http.NewServeMux()
		mux.Handle("/", d.health.Probes())
		mux.Handle("GET /metrics", d.metrics.Nameless())
		return l, mux
	}
	if cfg.Metrics.Auth == config.AuthOff {
		d.log.Warn("metrics.auth is off: anyone who reaches the port reads /metrics, in plain text and without the "+
			"names of pods and jobs; the next version refuses this", "listen", cfg.Listen)
		return l, onlyMetrics(d.metrics.Nameless())
	}
	if d.api.client == nil {
		d.log.Error("no metrics are served: without an API server no token can be reviewed; listen on loopback, or "+
			"nowhere", "listen", cfg.Listen)
		l.Close()
		return nil, nil
	}
	certificate, err := serve.NewCertificate(cfg.Metrics.CertFile, cfg.Metrics.KeyFile, time.Now, d.log)
	if err != nil {
		d.log.Error("no metrics are served", "err", err)
		l.Close()
		return nil, nil
	}
	guard := access.New(access.NewReviews(d.api.client.REST), time.Now, d.log)
	mux := onlyMetrics(guard.Protect("/metrics", s.Metrics))
	mux.Handle(control.RemotePrefix+"/", s.Remote(guard.Protect))
	return tls.NewListener(l, certificate.Config()), mux
}

// onlyMetrics serves /metrics and nothing else.
func onlyMetrics(h http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	return mux
}

// metricsLimits leave room for a few Prometheus servers, each with the few connections that
// it keeps.
func metricsLimits() serve.Limits { return serve.Limits{All: 64, FromOne: 8, Rate: 4} }

// serveMetrics ends the connections of clients that send requests or read answers slowly:
// they occupy memory.
func serveMetrics(ctx context.Context, l net.Listener, h http.Handler) error {
	const ask, take, idle = 5 * time.Second, 15 * time.Second, 10 * time.Second
	return serve.Serve(ctx, l, h, serve.Times{Request: ask, Answer: take, Idle: idle})
}
