package serve

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// shown is the certificate that a handshake has.
func shown(t *testing.T, c *Certificate) *x509.Certificate {
	t.Helper()
	pair, err := c.Config().GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// A pair that a rotation replaces is read again, a broken one is not used, and the log
// has it once.
func TestRotatedFiles(t *testing.T) {
	now := time.Unix(1e9, 0)
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write := func() *tls.Certificate {
		t.Helper()
		pair, err := signSelf(now)
		if err != nil {
			t.Fatal(err)
		}
		secret, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		for file, block := range map[string]*pem.Block{
			certFile: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, keyFile: {Type: "PRIVATE KEY", Bytes: secret},
		} {
			if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return pair
	}
	var log bytes.Buffer
	clock := func() time.Time { return now }
	logger := slog.New(slog.NewTextHandler(&log, nil))
	if _, err := NewCertificate(certFile, keyFile, clock, logger); err == nil {
		t.Error("a pair that is not there is served")
	}
	first := write()
	c, err := NewCertificate(certFile, keyFile, clock, logger)
	if err != nil {
		t.Fatal(err)
	}
	is := func(when string, want *tls.Certificate) {
		t.Helper()
		if !bytes.Equal(shown(t, c).Raw, want.Certificate[0]) {
			t.Errorf("%s another certificate is shown", when)
		}
	}
	is("at first", first)
	second := write()
	is("at once", first)
	now = now.Add(rereadAfter)
	is("after a rotation", second)
	if err := os.WriteFile(keyFile, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		now = now.Add(rereadAfter)
		is("with half a key", second)
	}
	if n := strings.Count(log.String(), "cannot be used"); n != 1 {
		t.Errorf("%d lines in the log:\n%s", n, &log)
	}
	third := write()
	now = now.Add(rereadAfter)
	is("after it was mended", third)
}

// A certificate of our own is replaced long before it is over.
func TestOwnCertificate(t *testing.T) {
	now := time.Unix(1e9, 0)
	c, err := NewCertificate("", "", func() time.Time { return now }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	first := shown(t, c)
	if first.NotAfter.Sub(now) != selfSigned || !first.NotBefore.Before(now) {
		t.Errorf("valid from %s to %s", first.NotBefore, first.NotAfter)
	}
	now = now.Add(selfSigned/2 - time.Second)
	if !shown(t, c).Equal(first) {
		t.Error("it is replaced early")
	}
	now = now.Add(time.Second)
	if next := shown(t, c); next.Equal(first) || next.NotAfter.Sub(now) != selfSigned {
		t.Error("it is not replaced")
	}
}
