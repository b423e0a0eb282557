package config

import (
	"net"
	"net/netip"
)

// Metrics says who may read /metrics where other machines reach it.
type Metrics struct {
	Auth     MetricsAuth `json:"auth"`
	CertFile string      `json:"certFile"` // empty: a certificate that the daemon signs itself
	KeyFile  string      `json:"keyFile"`
}

// MetricsAuth is whether clients from elsewhere need a token, and have TLS.
type MetricsAuth string

const (
	AuthOn  MetricsAuth = "on"
	AuthOff MetricsAuth = "off" // for this version alone: plain text for anyone, without names
)

func (v *MetricsAuth) UnmarshalText(text []byte) error { return setWord(v, text, AuthOn, AuthOff) }

// Local says whether an address is on loopback: what listens there is plain text.
func Local(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip, bad := netip.ParseAddr(host)
	return err == nil && (host == "localhost" || bad == nil && ip.IsLoopback())
}

func (v *checker) metrics(c *Config) {
	m := &c.Metrics
	if m.CertFile != "" {
		v.path("metrics.certFile", m.CertFile)
	}
	if m.KeyFile != "" {
		v.path("metrics.keyFile", m.KeyFile)
	}
	if (m.CertFile == "") != (m.KeyFile == "") {
		v.fail("metrics.certFile", "is %s and metrics.keyFile is %s: a certificate takes both, or neither",
			quote(m.CertFile), quote(m.KeyFile))
	}
	if c.Listen != "" && !Local(c.Listen) && !Local(c.Health.Listen) && m.Auth == AuthOn &&
		c.Kubernetes.API == APIOff {
		v.fail("metrics.auth", "is on and kubernetes.api is off: only the API server says whose a token is; set "+
			"listen to an address on loopback, or to \"\"")
	}
}
