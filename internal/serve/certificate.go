package serve

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"sync"
	"time"
)

const (
	// rereadAfter is how long a certificate is used without a look at its files.
	rereadAfter = 10 * time.Second
	// selfSigned is how long a certificate of our own is valid. Half of it is used.
	selfSigned = 365 * 24 * time.Hour
)

// Certificate is what a listener shows: a pair of files, read again when they change, or,
// where none are named, a certificate that the process signs itself.
type Certificate struct {
	certFile, keyFile string
	now               func() time.Time
	log               *slog.Logger

	mu      sync.Mutex // guards what follows
	pair    *tls.Certificate
	text    []byte // of both files
	looked  time.Time
	problem string
}

// NewCertificate reads or makes a certificate. Later a pair that cannot be read, or does not
// fit together, leaves the one before in use.
func NewCertificate(certFile, keyFile string, now func() time.Time, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, now: now, log: log}
	_, err := c.get()
	return c, err
}

// Config is for a listener. It speaks HTTP/1.1 alone, and TLS 1.2 and later.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.get() }}
}

func (c *Certificate) get() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	age := rereadAfter
	if c.certFile == "" {
		age = selfSigned / 2
	}
	if c.pair != nil && now.Sub(c.looked) < age {
		return c.pair, nil
	}
	c.looked = now
	err := c.look(now)
	if err == nil {
		c.problem = ""
		return c.pair, nil
	}
	if c.pair == nil {
		return nil, err
	}
	if c.problem != err.Error() {
		c.problem = err.Error()
		c.log.Error("a new certificate cannot be used, the one before is", "err", err)
	}
	return c.pair, nil
}

// look reads the pair if it is another one, or signs a new one.
func (c *Certificate) look(now time.Time) error {
	if c.certFile == "" {
		pair, err := signSelf(now)
		if err == nil {
			c.pair = pair
		}
		return err
	}
	cert, err := os.ReadFile(c.certFile)
	if err != nil {
		return err
	}
	secret, err := os.ReadFile(c.keyFile)
	if err != nil {
		return err
	}
	text := bytes.Join([][]byte{cert, secret}, []byte{0})
	if c.pair != nil && bytes.Equal(text, c.text) {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, secret)
	if err != nil {
		return fmt.Errorf("%s and %s: %w", c.certFile, c.keyFile, err)
	}
	c.pair, c.text = &pair, text
	return nil
}

func signSelf(now time.Time) (*tls.Certificate, error) {
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "quietcore"}, DNSNames: []string{"quietcore"},
		// An hour for clocks that differ.
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(selfSigned),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &secret.PublicKey, secret)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: secret}, nil
}
